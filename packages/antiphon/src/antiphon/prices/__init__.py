"""Prices of models, and what a call costs."""

from antiphon.prices.cost import Cost as Cost
from antiphon.prices.cost import Spend as Spend
from antiphon.prices.cost import cost_of as cost_of
from antiphon.prices.cost import spend_of as spend_of
from antiphon.prices.rate_card import Price as Price
from antiphon.prices.table import PriceOverride as PriceOverride
from antiphon.prices.table import PriceTable as PriceTable
