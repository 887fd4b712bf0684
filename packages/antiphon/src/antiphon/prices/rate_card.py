"""The prices of one model, and `RateCard`: what its tokens cost, found once and asked for every call.

Prices are US dollars per million tokens, as exact decimals: by kind of tokens, from a date on, at hours of the day, by size of
the prompt, and in variants. A price that is not known is None, never 0.

Rates are integers, so a cost is exact until it is rounded, once, to a whole nanodollar. A kind of tokens without a price of its
own is charged as the kind it is part of (cached tokens as input, reasoning as output); without that the cost is unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from operator import mul
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

from antiphon.parts import TokenUsage

KINDS = ("input", "output", "cache_read", "cache_write", "cache_write_1h", "reasoning")

TokenCounts: TypeAlias = tuple[int, int, int, int, int, int]
"""Prompt, completion, cached, written to a cache, those of them for an hour, reasoning. As in `TokenUsage` the first two are
inclusive."""

MAX_TOKENS = 10**12
"""More is an error of the provider, and would not fit into a sum."""
_PLACES = 18
"""Decimal places of a rate in dollars per million tokens: rates are integers of that unit."""
_UNIT = 10 ** (_PLACES - 3)
"""What a nanodollar is in tokens times rates."""
_DOLLAR = Decimal(10 ** (_PLACES + 6))
_MINUTE, _DAY = 60_000_000, 86_400_000_000
_ALWAYS = 1 << 62
_LATEST = 253_402_300_799_000_000  # in the year 9999
_MAX_TIMES = 1024
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


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


def token_counts(usage: TokenUsage) -> TokenCounts:
    """The tokens of a call as they are charged. Parts are at most the whole, whatever was reported."""
    prompt, completion = usage.prompt_tokens, usage.completion_tokens
    if not 0 <= prompt <= MAX_TOKENS or not 0 <= completion <= MAX_TOKENS:
        prompt, completion = _within(prompt, MAX_TOKENS), _within(completion, MAX_TOKENS)
    if not (usage.cached_tokens or usage.cache_write_tokens or usage.reasoning_tokens):
        return prompt, completion, 0, 0, 0, 0
    cached = _within(usage.cached_tokens, prompt)
    written = _within(usage.cache_write_tokens, prompt - cached)
    written_1h = _within(_cache_write_1h_tokens(usage), written) if written else 0
    return prompt, completion, cached, written, written_1h, _within(usage.reasoning_tokens, completion)


def encode_variant(variant: Mapping[str, str]) -> str:
    """A variant as a text: `{"service_tier":"flex"}`, or nothing."""
    return msgspec.json.encode(variant, order="sorted").decode() if variant else ""


class RateCard:
    """The rates of a model in one variant, at any time; `version` is that of the table. Times are microseconds since 1970."""

    __slots__ = ("_by_time", "_prices", "_step", "_variant", "version")

    def __init__(self, prices: ModelPrices | None, variant: Mapping[str, str], version: str) -> None:
        self.version = version
        self._prices = prices
        self._variant = variant
        known = () if prices is None else prices.prices
        changes = any(price.since is not None for price in known)
        self._step = _MINUTE if any(price.hours is not None for price in known) else _DAY if changes else _ALWAYS
        self._by_time: dict[int, _Rates] = {}

    @property
    def is_known(self) -> bool:
        """Whether the table has prices of the model."""
        return self._prices is not None

    def nanodollars(self, tokens: TokenCounts, at: int, *, prompt_size: int = 0) -> int | None:
        """What a call at a time cost; None if a price is not known. A call without tokens costs nothing.

        `prompt_size` is for the sum of several calls: how large the prompt of each was.
        """
        rates = self._by_time.get(at // self._step) or self._in_force(at)
        if rates.larger:
            rates = rates.for_prompt(prompt_size or tokens[0])
        if not rates.is_complete and not rates.has_price(tokens):
            return None
        nanodollars: int = (sum(map(mul, tokens, rates.inclusive)) + _UNIT // 2) // _UNIT
        return nanodollars

    def dollars(self, tokens: TokenCounts, at: int) -> dict[str, Decimal] | None:
        """The same by kind of tokens, in dollars and not rounded."""
        rates = self._in_force(at).for_prompt(tokens[0])
        if not rates.has_price(tokens):
            return None
        prompt, output, *parts = zip(KINDS, rates.split(tokens), rates.amounts, strict=True)
        charged = (prompt, *parts, output)  # as the provider's bill: what was sent, what came back
        return {kind: Decimal(count * rate) / _DOLLAR for kind, count, rate in charged if count}

    def price_at(self, at: int) -> Price:
        """The price that applies at a time."""
        return self._in_force(at).price

    def _in_force(self, at: int) -> _Rates:
        place = at // self._step
        known = self._by_time.get(place)
        if known is not None:
            return known
        if len(self._by_time) >= _MAX_TIMES:
            self._by_time.clear()
        start = _EPOCH + timedelta(microseconds=min(place * self._step, _LATEST))
        price = Price() if self._prices is None else self._prices.price_at(start, self._variant)
        found = self._by_time[place] = _Rates(price)
        return found


class _Rates:
    """What tokens cost by kind (`amounts`, as `KINDS`), and by the counts of `TokenCounts` (`inclusive`).

    A cached token is counted in the prompt too, so its inclusive rate is the difference to that of the prompt. `larger` has the
    rates of the sizes of the prompt that change them, the largest first.
    """

    __slots__ = ("_has", "amounts", "inclusive", "is_complete", "larger", "price")

    def __init__(self, price: Price, prompt_size: int = 0) -> None:
        self.price = price
        self.larger: list[tuple[int, _Rates]] = []
        if not prompt_size:
            tiers = (amount for kind in KINDS if isinstance(amount := getattr(price, kind), Tiers))
            starts = sorted({start for amount in tiers for start, _ in amount.above}, reverse=True)
            self.larger = [(start, _Rates(price, start + 1)) for start in starts]
        known = [price.amount(kind, prompt_size) for kind in KINDS]
        self._has = tuple(amount is not None for amount in known)
        self.is_complete = self._has[0] and self._has[1]
        self.amounts = tuple(0 if amount is None else round(amount.scaleb(_PLACES)) for amount in known)
        _, _, has_read, has_write, has_1h, has_reasoning = self._has
        prompt, completion, read, written, written_1h, reasoning = self.amounts
        written = written if has_write else prompt
        self.inclusive = (
            prompt,
            completion,
            read - prompt if has_read else 0,
            written - prompt,
            written_1h - written if has_1h else 0,
            reasoning - completion if has_reasoning else 0,
        )

    def for_prompt(self, size: int) -> _Rates:
        """The rates of a call with so many tokens in its prompt."""
        return next((rates for start, rates in self.larger if size > start), self)

    def has_price(self, tokens: TokenCounts) -> bool:
        """Whether all these tokens have a price."""
        prompt, completion, *_ = self.split(tokens)
        return (self._has[0] or not prompt) and (self._has[1] or not completion)

    def split(self, tokens: TokenCounts) -> TokenCounts:
        """The tokens of each kind, as `KINDS`: what has a price of its own is taken out of the whole."""
        prompt, completion, cached, written, written_1h, reasoning = tokens
        _, _, has_read, has_write, has_1h, has_reasoning = self._has
        cached = cached if has_read else 0
        written_1h = written_1h if has_1h else 0
        written = written - written_1h if has_write else 0
        reasoning = reasoning if has_reasoning else 0
        return prompt - cached - written - written_1h, completion - reasoning, cached, written, written_1h, reasoning


def _within(count: int, most: int) -> int:
    return max(0, min(count, most))


def _cache_write_1h_tokens(usage: TokenUsage) -> int:
    """What was written to a cache for an hour, which only Anthropic's own object has."""
    written = (usage.raw or {}).get("cache_creation")
    tokens = written.get("ephemeral_1h_input_tokens") if isinstance(written, dict) else 0
    return tokens if isinstance(tokens, int) else 0
