"""`ClientAccounts`: what clients may use and have used: requests and tokens per minute, tokens and money per day and month (UTC).

A request is admitted while something is left of every limit, and charged when it has ended, because its cost is not known
before. A client below zero waits until its bucket is refilled, or its period ends. Requests of clients and model calls of the
chat page are both checked and charged here. What is used is counted with all other processes (`share`); how far a client can
exceed a limit is in docs/gateway/spend.md. Counts belong to the name of a client and survive a reload.

`LimitReached` is a limit that is used up, and the refusal in the shape that the client's SDK understands. Limits of requests and
tokens are 429, the rate limit error of every SDK. A money budget has no status that all SDKs read: OpenAI's own API answers an
exhausted budget with 429 `insufficient_quota`, and its clients look for that; Gemini's clients know only 429
`RESOURCE_EXHAUSTED`; Anthropic documents 402 `billing_error`; the others get 402. `x-should-retry: false` keeps OpenAI's and
Anthropic's SDKs from asking again when the next try can only succeed tomorrow.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from math import ceil

from msgspec import Struct

from antiphon.http.messages import Response
from antiphon.prices.rate_card import TokenCounts
from antiphon.prices.table import PriceTable
from antiphon.providers.routes import Target
from antiphon.wire.output import ErrorKind, ProviderError
from antiphon_gateway.access.client_keys import MONEY_LIMITS, ClientKey
from antiphon_gateway.errors import error_response
from antiphon_gateway.share.counts import Amount, Bucket, Buckets, Counters, Period, periods_of
from antiphon_gateway.utc_time import DAY_SECONDS, now_microseconds, utc_text

_PER_MINUTE = {"requests_per_minute": "requests", "tokens_per_minute": "tokens"}
_GOOGLE = ("gemini", "gemini-interactions")
_LONGEST_RETRY_SECONDS = 60.0
"""A client may wait this long and ask again."""


class LimitReached(Struct, frozen=True, kw_only=True):
    """A limit, by its name in the configuration; what was used of it; and when a request can succeed again."""

    limit: str
    used: float
    allowed: float
    wait: float
    resets_at: float | None = None
    """When the period of the limit ends, in seconds since 1970; None for a limit that refills all the time."""

    @property
    def is_money(self) -> bool:
        """Whether it limits money."""
        return self.limit in MONEY_LIMITS

    @property
    def message(self) -> str:
        """Which limit, how much was used, and when it resets."""
        resets = f"retry in {max(1, ceil(self.wait))} s, at {self.reset}"
        if self.limit in _PER_MINUTE:
            what = _PER_MINUTE[self.limit]
            return (
                f"rate limit exceeded for this key: {ceil(self.used):,} of {self.allowed:,.0f} {what} per minute used "
                f"({self.limit}); {resets}"
            )
        period = "today" if self.limit.endswith("_day") else "this month"
        if self.is_money:
            return (
                f"budget exceeded for this key: {dollars(self.used)} of {dollars(self.allowed)} spent {period} "
                f"({self.limit}); {resets}"
            )
        return (
            f"token limit exceeded for this key: {self.used:,.0f} of {self.allowed:,.0f} tokens used {period} "
            f"({self.limit}); {resets}"
        )

    def response(self, format_name: str) -> Response:
        """The refusal for a client of that format."""
        error = self.error(format_name)
        is_openai = format_name.startswith("openai") or not format_name
        status = 402 if error.kind == "billing" and not is_openai else 429
        return error_response(format_name, error, status=status, headers=dict(self._headers(format_name)))

    def error(self, format_name: str = "") -> ProviderError:
        """The error for a client of that format."""
        kind: ErrorKind = "billing" if self.is_money and format_name not in _GOOGLE else "rate_limit"
        native = {"gemini": {"error": {"details": [self._retry_info()]}}} if format_name == "gemini" else None
        return ProviderError(self.message, kind, retry_after=self.wait, native=native)

    def _headers(self, format_name: str) -> Iterator[tuple[str, str]]:
        reset = self.reset
        yield "x-antiphon-limit", self.limit
        yield "x-antiphon-limit-reset", reset
        if self.wait > _LONGEST_RETRY_SECONDS:
            yield "x-should-retry", "false"
        if self.is_money:
            return
        what = "requests" if self.limit == "requests_per_minute" else "tokens"
        if format_name == "anthropic":
            yield f"anthropic-ratelimit-{what}-limit", f"{self.allowed:.0f}"
            yield f"anthropic-ratelimit-{what}-remaining", "0"
            yield f"anthropic-ratelimit-{what}-reset", reset
        elif format_name.startswith("openai"):
            yield f"x-ratelimit-limit-{what}", f"{self.allowed:.0f}"
            yield f"x-ratelimit-remaining-{what}", "0"
            yield f"x-ratelimit-reset-{what}", f"{max(1, ceil(self.wait))}s"

    def _retry_info(self) -> dict[str, str]:
        """The delay, where Google's clients look for it."""
        return {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": f"{max(1, ceil(self.wait))}s"}

    @property
    def reset(self) -> str:
        """When a request can succeed again. Rounded up: a client that waits until then must not be early."""
        if self.resets_at is not None:
            return utc_text(datetime.fromtimestamp(self.resets_at, UTC))
        moment = datetime.now(UTC) + timedelta(seconds=self.wait)
        if moment.microsecond:
            moment = moment.replace(microsecond=0) + timedelta(seconds=1)
        return utc_text(moment)


def dollars(amount: float) -> str:
    """An amount as people write it: two decimals, or as many as a small one needs."""
    whole, _, decimals = f"{amount:,.6f}".partition(".")
    return f"${whole}.{decimals.rstrip('0').ljust(2, '0')}"


class ClientAccounts:
    """The accounts of all clients of a process. `on_refusal` is called for each refusal; `clock` gives seconds since 1970."""

    def __init__(
        self,
        buckets: Buckets | None = None,
        counters: Counters | None = None,
        on_refusal: Callable[[ClientKey, LimitReached], None] = lambda _, __: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._buckets = buckets or Buckets()
        self._counters = counters or Counters()
        self._on_refusal = on_refusal
        self._clock = clock

    async def limit_reached(self, key: ClientKey, *, costs: bool) -> LimitReached | None:
        """The limit that refuses a request of a client; None if it is admitted, and counted.

        `costs`: whether it uses tokens or money; a client can still list models when its budget is used up.
        """
        reached = await self.budget_reached(key) if costs else None
        if reached is None:
            requests, tokens = self._buckets_of(key)
            wait = await self._buckets.take(requests, tokens) if requests is not None or tokens is not None else 0.0
            if wait > 0:
                reached = _rate_reached(requests, tokens, wait)
                self._on_refusal(key, reached)
        return reached

    async def budget_reached(self, key: ClientKey) -> LimitReached | None:
        """The limit per day or month that a client has used up."""
        if not key.has_budget:
            return None
        reached = self._used_up(key)
        if reached is None:
            await self._counters.refresh(self._periods(key))
            reached = self._used_up(key)
        if reached is not None:
            self._on_refusal(key, reached)
        return reached

    def charge(self, key: ClientKey, tokens: int, nanodollars: int = 0) -> None:
        """Charge what a request of a client used; an unknown cost is 0."""
        if key.tokens_per_minute is not None and tokens > 0:
            _, bucket = self._buckets_of(key)
            assert bucket is not None, "it has that limit"
            bucket.take(tokens)
        if key.has_budget:
            amount = Amount(max(0, tokens), nanodollars)
            for period in self._periods(key):
                self._counters.add(period, amount)

    def _buckets_of(self, key: ClientKey) -> tuple[Bucket | None, Bucket | None]:
        """The buckets of requests and tokens, refilled until now; None where there is no limit."""
        requests, tokens = key.requests_per_minute, key.tokens_per_minute
        return (
            None if requests is None else self._buckets.find(f"{key.name}:requests", requests),
            None if tokens is None else self._buckets.find(f"{key.name}:tokens", tokens, has_debt=True),
        )

    def _periods(self, key: ClientKey) -> tuple[Period, Period]:
        """The day and the month of a client. Both are counted, whichever is limited: a limit that is added counts at once."""
        return periods_of(key.name, int(self._clock() // DAY_SECONDS))

    def _used_up(self, key: ClientKey) -> LimitReached | None:
        """The limit that is used up; the one that lasts longest, if there are several."""
        day, month = self._periods(key)
        for word, period in (("month", month), ("day", day)):
            used = self._counters.total(period)
            for limit, amount in (
                (f"budget_per_{word}", used.nanodollars / 1e9),
                (f"tokens_per_{word}", float(used.tokens)),
            ):
                allowed = getattr(key, limit)
                if allowed is not None and amount >= allowed:
                    resets_at = period.end * DAY_SECONDS
                    wait = max(1.0, resets_at - self._clock())
                    return LimitReached(limit=limit, used=amount, allowed=allowed, wait=wait, resets_at=resets_at)
        return None


def _rate_reached(requests: Bucket | None, tokens: Bucket | None, wait: float) -> LimitReached:
    """The limit per minute for which a client has to wait so many seconds."""
    if requests is None or (tokens is not None and tokens.wait_for(1.0) > requests.wait_for(1.0)):
        limit, bucket = "tokens_per_minute", tokens
    else:
        limit, bucket = "requests_per_minute", requests
    assert bucket is not None, "it has to wait for one of its limits"
    return LimitReached(limit=limit, used=bucket.size - bucket.level, allowed=bucket.size, wait=wait)


GENERATED: TokenCounts = (1, 1, 0, 0, 0, 0)
EMBEDDED: TokenCounts = (1, 0, 0, 0, 0, 0)
"""What a call uses at least."""


def priced_targets(
    client: ClientKey, targets: list[Target], table: PriceTable, tokens: TokenCounts = GENERATED
) -> list[Target] | ProviderError:
    """The targets a client with a money budget may use: those with a known price, because no call may be free by mistake."""
    if not client.has_money_budget:
        return targets
    now = now_microseconds()
    cards = (table.card(target.provider, target.model) for target in targets)
    priced = [target for target, card in zip(targets, cards, strict=True) if card.nanodollars(tokens, now) is not None]
    if priced:
        return priced
    names = ", ".join(f"{target.provider}/{target.model}" for target in targets)
    return ProviderError(
        f"this key has a money budget, and the price of {names} is not known; "
        "add it under [[prices]] in the configuration, or use a model with a known price",
        "permission",
        code="price_unknown",
    )
