"""What a call cost, and what a conversation did: usage times price, in exact decimals.

The log of a conversation has tokens and no money, so a corrected price gives a corrected cost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from decimal import Decimal

from msgspec import Struct

from antiphon.context.model_usage import model_calls_of
from antiphon.history import HistoryEntry
from antiphon.parts import TokenUsage
from antiphon.prices.rate_card import Price, encode_variant, token_counts
from antiphon.prices.table import PriceTable

_DEFAULT_TABLE = PriceTable()


class Cost(Struct, frozen=True):
    """US dollars, by kind of tokens, and the price they were made with."""

    total: Decimal
    by_kind: dict[str, Decimal]
    price: Price
    version: str
    """The version of the price table."""


def cost_of(
    usage: TokenUsage,
    model: str,
    provider: str = "",
    *,
    at: datetime | None = None,
    variant: Mapping[str, str] = {},
    table: PriceTable | None = None,
) -> Cost | None:
    """The cost of a call, or None if the price is not known.

    `at` is when it was made (now by default; a time without a zone is UTC); `variant` changes its price:
    `{"processing": "batch"}`, `{"service_tier": "flex"}`.
    """
    card = (table or _DEFAULT_TABLE).card(provider, model, encode_variant(variant))
    moment = datetime.now(UTC) if at is None else at if at.tzinfo is not None else at.replace(tzinfo=UTC)
    microseconds = int(moment.timestamp() * 1_000_000)
    by_kind = card.dollars(token_counts(usage), microseconds) if card.is_known else None
    if by_kind is None:
        return None
    return Cost(sum(by_kind.values(), Decimal(0)), by_kind, card.price_at(microseconds), card.version)


class Spend(Struct, frozen=True):
    """What calls cost together. `unpriced_calls` have no known price and are not in the total."""

    total: Decimal = Decimal(0)
    by_model: dict[str, Decimal] = {}
    unpriced_calls: int = 0


def spend_of(entries: Iterable[HistoryEntry], table: PriceTable | None = None) -> Spend:
    """What the model calls of a conversation cost, by model; also calls rolled back, failed, or made by an agent as a tool."""
    by_model: dict[str, Decimal] = {}
    unpriced = 0
    for entry in entries:
        for call in model_calls_of(entry):
            origin, usage = call.origin, call.usage
            cost = cost_of(usage, origin.model, origin.provider, at=entry.timestamp, table=table) if usage else None
            if cost is None:
                unpriced += 1
                continue
            name = f"{origin.provider}/{origin.model}"
            by_model[name] = by_model.get(name, Decimal(0)) + cost.total
    return Spend(sum(by_model.values(), Decimal(0)), by_model, unpriced)
