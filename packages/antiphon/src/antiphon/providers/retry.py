"""What to do about a failed call: another key, the same request later, another target, or give up; and how long to wait.

`RETRY_RULES` is the one table for this. `RetryPlan` applies it to one request to one target, without I/O; `engine.provider_call`
performs it, for the library and for the gateway. Each target has two separate budgets: rotations (another key, at once) help if
the key is the problem, retries (the same key, later) help if the moment is. A storm of rate limits over ten keys spends
rotations, an outage spends retries. Both end, and both happen only before anything was shown.

Delays have full jitter, so clients that failed together do not return together. A delay the provider asks for is respected; if
it is longer than `longest_wait`, the next target is tried at once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from random import random as random_fraction
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct

from antiphon.errors import NoUsableCredential
from antiphon.http.client.request import Timeouts
from antiphon.providers.keys.ring import KeyLease, KeyRing
from antiphon.providers.routes import Target
from antiphon.wire.output import NOT_AN_ANSWER, ErrorKind, ProviderError

if TYPE_CHECKING:
    from antiphon.providers.engine.provider_call import TargetCall

FIRST_TOKEN_SECONDS = 60.0
"""How long the first visible output of a stream is waited for by default, where another target is left."""

FallbackScope: TypeAlias = Literal["anywhere", "another model", "nowhere"]


class RetryRule(Struct, frozen=True, kw_only=True):
    """What may help after an error: another key, the same request later, another target."""

    rotates: bool = False
    retries: bool = False
    fallback: FallbackScope = "anywhere"


_FALL_BACK = RetryRule()
_ROTATE = RetryRule(rotates=True)
_RETRY = RetryRule(retries=True)
_LARGER_MODEL = RetryRule(fallback="another model")

RETRY_RULES: Mapping[ErrorKind, RetryRule] = MappingProxyType(
    {
        "invalid_request": RetryRule(fallback="nowhere"),
        "context_length": _LARGER_MODEL,
        "too_large": _LARGER_MODEL,
        "not_found": _FALL_BACK,
        "unknown": _FALL_BACK,
        "authentication": _ROTATE,
        "billing": _ROTATE,
        "permission": _ROTATE,
        "rate_limit": RetryRule(rotates=True, retries=True),
        "overloaded": _RETRY,
        "server": _RETRY,
        "timeout": _RETRY,
        "conflict": _RETRY,
        "stream_cut": _RETRY,
    }
)
"""By the kind of the error."""

_PERMANENT_CODES = frozenset({"tls_failed", "redirected", "redirect_loop", "invalid_url", "total_timeout"})
"""Codes of errors that a retry cannot fix."""
_SILENT_CODES = frozenset({"read_timeout", "first_token_timeout"})
"""Codes of a provider that stayed silent. A retry there multiplies the wait, so another target is tried first."""
_MALFORMED_CODES = frozenset({NOT_AN_ANSWER, "not_http"})
"""Codes of unreadable responses. They may be billed, so the same target is never retried, whatever it advises."""


class RetryPolicy(Struct, frozen=True, kw_only=True):
    """How often to retry, and how long to wait between. With 0 retries and 0 rotations every call is one request."""

    retries: int = 2
    rotations: int = 8
    first_delay: float = 0.5
    longest_delay: float = 8.0
    longest_wait: float = 60.0
    """Give up if the provider asks for a longer wait, in seconds."""

    def delay(
        self, retry: int, requested_delay: float | None, fraction: Callable[[], float] = random_fraction
    ) -> float | None:
        """Seconds before retry number `retry` (from 0); None if that is longer than `longest_wait`."""
        jitter = fraction() * min(self.longest_delay, self.first_delay * 2.0 ** min(retry, 32))
        if requested_delay is None:
            return jitter
        if requested_delay > self.longest_wait:
            return None
        return requested_delay + min(jitter, self.first_delay)


def may_retry(error: ProviderError, should_retry: str | None = None) -> bool:
    """Whether the same request may succeed later. `should_retry` is the provider's `x-should-retry` header."""
    if error.code in _MALFORMED_CODES:
        return False
    if should_retry in ("true", "false"):
        return should_retry == "true"
    return RETRY_RULES[error.kind].retries and error.code not in _PERMANENT_CODES


def fallback_targets(error: ProviderError, targets: Sequence[Target]) -> Sequence[Target]:
    """Which of the targets after the first one to try now that it failed."""
    scope = RETRY_RULES[error.kind].fallback
    failed, *others = targets
    if scope == "another model":
        return [target for target in others if target.model != failed.model]
    return others if scope == "anywhere" else ()


ONE_ATTEMPT = RetryPolicy(retries=0, rotations=0)
"""For a request that is sent once."""


class Upstream:
    """Who is asked, and what it allows. `keys` has its keys (None: it needs none); `timeouts.total` bounds all attempts of a
    request together, and `timeouts.first_token` the wait for the first visible output of a stream (None: as the call says)."""

    def __init__(
        self,
        *,
        keys: KeyRing | None = None,
        timeouts: Timeouts | None = None,
        retry: RetryPolicy | None = None,
        clock: Callable[[], float] = time.monotonic,
        fraction: Callable[[], float] = random_fraction,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self.keys = keys
        self.timeouts = timeouts or Timeouts()
        self.retry = retry or RetryPolicy()
        self.clock = clock
        self.fraction = fraction
        self.sleep = sleep


class RetryPlan:
    """What an upstream still allows after the first failure of a request: retries, rotations and time.

    `began` is when its first attempt was made. `is_probe`: the target failed before, so it is asked once.
    """

    lease: KeyLease | None = None
    """The key of the next attempt, if it has one already."""
    _free_in = 0.0

    def __init__(self, request: TargetCall, began: float, *, is_probe: bool = False) -> None:
        self.upstream = upstream = request.provider
        self._policy = policy = upstream.retry if request.is_repeatable else ONE_ATTEMPT
        self._takes_keys_in_order = request.takes_keys_in_order
        self._deadline = None if upstream.timeouts.total is None else began + upstream.timeouts.total
        self._most_retries = 0 if is_probe else policy.retries
        self._retries = self._rotations = 0

    def time_left(self) -> float | None:
        """Seconds left of the target's total timeout; None if there is none."""
        return None if self._deadline is None else max(0.001, self._deadline - self.upstream.clock())

    def rotate(self, model: str, error: ProviderError) -> bool:
        """Take another key at once, if that may help after the error, and there is one."""
        keys = self.upstream.keys
        if keys is None or not RETRY_RULES[error.kind].rotates or self._rotations >= self._policy.rotations:
            return False
        try:
            self.lease = keys.acquire(model, in_order=self._takes_keys_in_order)
        except NoUsableCredential as none:
            self._free_in = none.retry_after or 0.0
            return False
        self._rotations += 1
        return True

    def delay(self, error: ProviderError, should_retry: str | None = None, *, has_others: bool = False) -> float | None:
        """Seconds to wait before the same request is sent again; None if that does not help, or not any more.

        `has_others`: another target could be asked instead. See `may_retry` for `should_retry`.
        """
        requested, free_in = error.retry_after, self._free_in
        self._free_in = 0.0
        is_left_alone = has_others and error.code in _SILENT_CODES
        if self._retries >= self._most_retries or is_left_alone or not may_retry(error, should_retry):
            return None
        requested = max(requested or 0.0, free_in) if free_in else requested
        seconds, left = self._policy.delay(self._retries, requested, self.upstream.fraction), self.time_left()
        if seconds is None or (left is not None and seconds >= left):
            return None
        self._retries += 1
        return seconds
