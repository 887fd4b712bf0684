"""`UsageRow`: one request to a provider, as the ledger keeps it; and `PriceClass`: what its price depends on besides the model.

A row has tokens and no money: what it cost is derived when it is asked for, so a corrected price corrects the past. It contains
no secret; a credential is named by where it is read from.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct

from antiphon.parts import TokenUsage
from antiphon.prices.cost import cache_write_1h_tokens
from antiphon.prices.table import ModelPrices, PriceTable, Tiers

Metering: TypeAlias = Literal["reported", "estimated", "unknown", "free"]
"""Where the tokens of a row come from. `unknown`: the provider reported none and there is nothing to estimate them from.
`free`: nothing was generated, as by a request that failed."""

TIER_BOUNDS = (32_000, 100_000, 128_000, 199_999, 200_000, 256_000, 272_000, 512_000, 524_288, 1_000_000)
"""Prompt sizes at which prices of the committed table change, so that sums of a class have one price."""
UNBOUNDED = 1 << 62
_MAX_TOKENS = 10**12
"""More is a defect of the provider, and would not fit into a sum."""
DAY_MICROSECONDS = 86_400_000_000
_HALF_HOUR_MICROSECONDS = 1_800_000_000


class UsageRow(Struct, frozen=True, kw_only=True, gc=False, array_like=True):
    """One request to a provider. `at` is when it ended, in microseconds since 1970."""

    request_id: str
    attempt: int
    """Its number among the attempts of the request, from 1."""
    at: int
    key: str = ""
    """The name of the client's key; empty without one."""
    client_format: str = ""
    """The format of the client."""
    operation: str = "chat"
    provider: str = ""
    credential: str = ""
    """The name of the provider's key: where it is read from, never the key."""
    model_asked: str = ""
    """What the client asked for."""
    model_served: str = ""
    """What the provider was asked for."""
    status: int = 0
    """Of the provider's response; 0: none came."""
    outcome: str = "ok"
    """`ok`, `disconnected` if the client left, or the kind of the error."""
    seconds: float = 0.0
    first_token_seconds: float | None = None
    metering: Metering = "free"
    prompt_tokens: int = 0
    """All tokens of the prompt, cached ones included."""
    completion_tokens: int = 0
    """All tokens of the answer, reasoning included."""
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    cache_write_1h_tokens: int = 0
    """Those of the cache writes that are kept for an hour."""
    reasoning_tokens: int = 0
    variant: str = ""
    """What else changes the price, as a JSON object: `{"service_tier":"flex"}`."""
    price_version: str = ""
    """The version of the price table when it was written."""

    @property
    def usage(self) -> TokenUsage:
        """Its tokens as prices take them."""
        written = {"cache_creation": {"ephemeral_1h_input_tokens": self.cache_write_1h_tokens}}
        return TokenUsage(
            prompt_tokens=self.prompt_tokens,
            completion_tokens=self.completion_tokens,
            cached_tokens=self.cached_tokens,
            cache_write_tokens=self.cache_write_tokens,
            reasoning_tokens=self.reasoning_tokens,
            raw=written if self.cache_write_1h_tokens else None,
        )

    @property
    def day(self) -> int:
        """Days since 1970, UTC."""
        return self.at // DAY_MICROSECONDS


def token_counts(usage: TokenUsage) -> tuple[int, int, int, int, int, int]:
    """The tokens of a row: prompt, completion, cached, written to the cache, those of them for an hour, reasoning.

    Parts are at most the whole, whatever was reported, so that sums of rows have a price.
    """
    prompt, completion = usage.prompt_tokens, usage.completion_tokens
    if not 0 <= prompt <= _MAX_TOKENS or not 0 <= completion <= _MAX_TOKENS:
        prompt, completion = _within(prompt, _MAX_TOKENS), _within(completion, _MAX_TOKENS)
    if not (usage.cached_tokens or usage.cache_write_tokens or usage.reasoning_tokens):
        return prompt, completion, 0, 0, 0, 0
    cached = _within(usage.cached_tokens, prompt)
    written = _within(usage.cache_write_tokens, prompt - cached)
    written_1h = _within(cache_write_1h_tokens(usage), written) if written else 0
    return prompt, completion, cached, written, written_1h, _within(usage.reasoning_tokens, completion)


def _within(count: int, most: int) -> int:
    return max(0, min(count, most))


class PriceClass(Struct, frozen=True, gc=False):
    """Prompts of more than `above` and at most `to` tokens, at a half hour of the day (-1: any)."""

    above: int
    to: int
    half_hour: int

    @classmethod
    def of(cls, row: UsageRow, table: PriceTable) -> PriceClass:
        """The class of a row."""
        place = bisect_left(TIER_BOUNDS, row.prompt_tokens)
        above = TIER_BOUNDS[place - 1] if place else 0
        to = TIER_BOUNDS[place] if place < len(TIER_BOUNDS) else UNBOUNDED
        has_hours = table.depends_on_hours(row.model_served, row.provider)
        half_hour = row.at % DAY_MICROSECONDS // _HALF_HOUR_MICROSECONDS if has_hours else -1
        return cls(above, to, half_hour)

    @property
    def key(self) -> tuple[int, int, int]:
        """Its fields, as they are stored."""
        return self.above, self.to, self.half_hour

    def has_one_price(self, prices: ModelPrices) -> bool:
        """Whether all rows of the class have the same price; false if prices have got bounds that were not known before."""
        for price in prices.prices:
            amounts = (
                getattr(price, kind)
                for kind in ("input", "output", "cache_read", "cache_write", "cache_write_1h", "reasoning")
            )
            bounds = [start for amount in amounts if isinstance(amount, Tiers) for start, _ in amount.above]
            if any(self.above < start < self.to for start in bounds):
                return False
            if price.hours and (self.half_hour < 0 or any(hour.minute % 30 or hour.second for hour in price.hours)):
                return False
        return True

    def time(self, day: int) -> datetime:
        """A time of the class on a day."""
        seconds = day * 86_400 + max(0, self.half_hour) * 1_800
        return datetime.fromtimestamp(seconds, UTC)


def encode_variant(variant: Mapping[str, str]) -> str:
    """A variant as it is stored."""
    return msgspec.json.encode(variant, order="sorted").decode() if variant else ""


def decode_variant(text: str) -> dict[str, str]:
    """A stored variant."""
    return msgspec.json.decode(text, type=dict[str, str]) if text else {}
