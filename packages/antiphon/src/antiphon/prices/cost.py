"""What a call cost: usage times price, in exact decimals.

Money is derived, never stored: a corrected price gives a corrected cost. A kind of tokens without a price of its own is charged
as the kind it is part of (cached tokens as input, reasoning as output); without that the cost is unknown, and None.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from decimal import Decimal

from msgspec import Struct

from antiphon.context.model_usage import model_calls_of
from antiphon.history import HistoryEntry
from antiphon.parts import TokenUsage
from antiphon.prices.table import Price, PriceTable

_MILLION = Decimal(1_000_000)
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
    prompt_size: int | None = None,
) -> Cost | None:
    """The cost of a call, or None if the price is not known.

    `at` is when it was made (now by default); `variant` changes its price: `{"processing": "batch"}`, `{"service_tier": "flex"}`.
    `prompt_size` is for the sum of several calls: how large the prompt of each was, where that changes the price.
    """
    table = table or _DEFAULT_TABLE
    known = table.find(model, provider)
    if known is None:
        return None
    price = known.price_at(at or datetime.now(UTC), variant)
    by_kind: dict[str, Decimal] = {}
    size = usage.prompt_tokens if prompt_size is None else prompt_size
    for kind, tokens in _tokens_by_kind(usage, price).items():
        amount = price.amount(kind, size)
        if amount is None:
            return None
        by_kind[kind] = amount * tokens / _MILLION
    return Cost(sum(by_kind.values(), Decimal(0)), by_kind, price, table.version)


def _tokens_by_kind(usage: TokenUsage, price: Price) -> dict[str, int]:
    """The tokens as they are charged; the counts of `usage` are inclusive, so what has a price of its own is taken out."""
    long_lived = min(cache_write_1h_tokens(usage), usage.cache_write_tokens)
    parts = {
        "cache_read": usage.cached_tokens if price.cache_read is not None else 0,
        "cache_write_1h": long_lived if price.cache_write_1h is not None else 0,
    }
    parts["cache_write"] = usage.cache_write_tokens - parts["cache_write_1h"] if price.cache_write is not None else 0
    counts = {"input": usage.prompt_tokens - sum(parts.values()), **parts}
    counts["reasoning"] = usage.reasoning_tokens if price.reasoning is not None else 0
    counts["output"] = usage.completion_tokens - counts["reasoning"]
    return {kind: tokens for kind, tokens in counts.items() if tokens > 0}


def cache_write_1h_tokens(usage: TokenUsage) -> int:
    """What was written to a cache for an hour, which only Anthropic's own object has."""
    written = (usage.raw or {}).get("cache_creation")
    tokens = written.get("ephemeral_1h_input_tokens") if isinstance(written, dict) else 0
    return tokens if isinstance(tokens, int) else 0


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
