"""`LimitReached`: a limit of a client that is used up, and the refusal in the shape that its SDK understands.

Limits of requests and tokens are 429, the rate limit error of every SDK. A money budget has no status that all SDKs read:
OpenAI's own API answers an exhausted budget with 429 `insufficient_quota`, and its clients look for that; Gemini's clients know
only 429 `RESOURCE_EXHAUSTED`; Anthropic documents 402 `billing_error`; the others get 402. `x-should-retry: false` keeps
OpenAI's and Anthropic's SDKs from asking again when the next try can only succeed tomorrow.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from math import ceil

from msgspec import Struct

from antiphon.http.messages import Response
from antiphon.wire.output import ErrorKind, ProviderError
from antiphon_gateway.errors import error_response
from antiphon_gateway.utc_time import utc_text

_PER_MINUTE = {"requests_per_minute": "requests", "tokens_per_minute": "tokens"}
_MONEY = ("budget_per_day", "budget_per_month")
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
        return self.limit in _MONEY

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
