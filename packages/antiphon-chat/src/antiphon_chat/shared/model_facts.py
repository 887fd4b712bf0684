"""What a person wants to know of a model before choosing it: the size of its window and its prices, from the tables we ship."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from typing import TypeAlias

from antiphon.model_name import ModelName
from antiphon.prices.table import PriceTable
from antiphon.wire.capabilities import find_family

ModelFacts: TypeAlias = tuple[int | None, Decimal | None, Decimal | None]
"""The window in tokens, and the dollars for a million tokens in and out; None is not known."""


def facts_of(names: Iterable[str]) -> dict[str, ModelFacts]:
    """The facts of the models that the tables have."""
    known = {name: _facts(name) for name in names}
    return {name: facts for name, facts in known.items() if any(fact is not None for fact in facts)}


@cache
def _facts(name: str) -> ModelFacts:
    provider, model = ModelName.parse(name)
    family = find_family(model)
    window: int | None = family.facts.get("context_window") if family is not None else None
    found = _prices().find(model, provider) if provider else _prices().find(model)
    if found is None:
        return window, None, None
    price = found.price_at(datetime.now(UTC), {})
    return window, price.amount("input", 0), price.amount("output", 0)


@cache
def _prices() -> PriceTable:
    return PriceTable()
