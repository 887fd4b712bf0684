"""The prices of one model: by kind of tokens, from a date on, at hours of the day, by size of the prompt, and in variants.

Prices are US dollars per million tokens, as exact decimals. A price that is not known is None, never 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

from msgspec import Struct

KINDS = ("input", "output", "cache_read", "cache_write", "cache_write_1h", "reasoning")


class Tiers(Struct, frozen=True):
    """A price that depends on the size of the prompt: the last of `above` that the prompt exceeds is for all tokens."""

    base: Decimal
    above: tuple[tuple[int, Decimal], ...] = ()

    def at(self, prompt_tokens: int) -> Decimal:
        return next((price for start, price in reversed(self.above) if prompt_tokens > start), self.base)


class Price(Struct, frozen=True, kw_only=True):
    """Prices per million tokens, and when they apply. `when` is for a variant: `{"processing": "batch"}`."""

    input: Tiers | str | None = None
    output: Tiers | str | None = None
    cache_read: Tiers | str | None = None
    cache_write: Tiers | str | None = None
    cache_write_1h: Tiers | str | None = None
    reasoning: Tiers | str | None = None
    since: date | None = None
    hours: tuple[time, time] | None = None
    when: dict[str, str] = {}

    def amount(self, kind: str, prompt_tokens: int) -> Decimal | None:
        """The price of a kind of tokens in a call with so many tokens in its prompt."""
        value = getattr(self, kind)
        if value is None:
            return None
        return value.at(prompt_tokens) if isinstance(value, Tiers) else Decimal(value)

    def applies(self, at: datetime) -> bool:
        """Whether its date and hours fit; a time without a zone is UTC."""
        moment = at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
        if self.since is not None and moment.date() < self.since:
            return False
        if self.hours is None:
            return True
        begin, end = (hour.replace(tzinfo=None) for hour in self.hours)
        clock = moment.time()
        return begin <= clock < end if begin <= end else clock >= begin or clock < end


class ModelPrices(Struct, frozen=True):
    """The prices of one model of one provider; `match` has alternatives, and all conditions of an alternative must hold."""

    name: str
    match: tuple[dict[str, str], ...]
    prices: tuple[Price, ...]

    def price_at(self, at: datetime, variant: Mapping[str, str]) -> Price:
        """The latest price that applies, with those of the variant in place of the standard ones."""
        standard = [price for price in self.prices if not price.when]
        found = next((price for price in reversed(standard) if price.applies(at)), standard[0])
        changed = [
            price for price in self.prices if price.when and price.applies(at) and price.when.items() <= variant.items()
        ]
        amounts: dict[str, Any] = {kind: getattr(found, kind) for kind in KINDS}
        for price in reversed(changed):  # the first takes precedence
            amounts |= {kind: value for kind in KINDS if (value := getattr(price, kind)) is not None}
        return Price(**amounts, since=found.since)
