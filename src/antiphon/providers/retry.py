"""What to do about a failed call: another key, the same request later, another target, or give up; and how long to wait.

`RETRY_RULES` is the one table for this, used by the library and by the gateway. `RetryPlan` applies it to one call at one
provider. It has two separate budgets: rotations (another key, at once) help if the key is the problem, retries (the same key,
later) help if the moment is. A storm of rate limits over ten keys spends rotations, an outage spends retries. Both end, and
both happen only before anything of the answer was shown.

Delays have full jitter, so clients that failed together do not return together. A delay the provider asks for is respected; if
it is longer than `longest_wait`, the call fails at once, so that another target can be tried.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import inf
from random import random as random_fraction
from types import MappingProxyType
from typing import Literal, TypeAlias, cast

from msgspec import Struct, structs

from antiphon.errors import NoUsableCredential
from antiphon.providers.credentials.pool import CredentialPool, Lease
from antiphon.providers.routes import Target
from antiphon.wire.output import NOT_AN_ANSWER, ErrorKind, ProviderError

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
_MALFORMED_CODES = frozenset({NOT_AN_ANSWER, "not_http"})
"""Codes of unreadable responses. They may be billed, so the same target is never retried, whatever it advises."""
_NO_ANSWER = ProviderError("the provider gave no answer and no reason", "stream_cut")


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


def fallback_targets(error: ProviderError, failed: Target, others: list[Target]) -> list[Target]:
    """Which of the other targets to try after `failed` failed."""
    scope = RETRY_RULES[error.kind].fallback
    if scope == "another model":
        return [target for target in others if target.model != failed.model]
    return others if scope == "anywhere" else []


def applied_wait(keys: Iterable[tuple[CredentialPool, str]]) -> float | None:
    """Seconds until the first of these pools has a key for its model; None if one has it now, or waiting does not help."""
    soonest = min((pool.retry_after(model) for pool, model in keys), default=0.0)
    return soonest if 0.0 < soonest < inf else None


class RetryPlan:
    """One call from its first attempt to its last. `lease` is the key of the current attempt, `error` why it failed."""

    def __init__(
        self,
        policy: RetryPolicy,
        pool: CredentialPool | None,
        model: str,
        *,
        total: float | None,
        clock: Callable[[], float],
        fraction: Callable[[], float],
    ) -> None:
        self.lease: Lease | None = None
        self.error: ProviderError | None = None
        self._policy = policy
        self._pool = pool
        self._model = model
        self._clock = clock
        self._fraction = fraction
        self._deadline = None if total is None else clock() + total
        self._retries = 0
        self._rotations = 0
        self._has_next_key = False

    def begin_attempt(self) -> bool:
        """Take a key for an attempt. False if no key is usable; `error` then has the reason."""
        self.error = None
        if self._pool is not None and not self._has_next_key:
            self.lease = None
            try:
                self.lease = self._pool.acquire(self._model)
            except NoUsableCredential as none:
                kind = cast(ErrorKind, none.kind)
                self.error = ProviderError(str(none), kind, code="no_usable_credential", retry_after=none.soonest)
        self._has_next_key = False
        return self.error is None

    def time_left(self) -> float | None:
        """Seconds left of the total timeout; None if there is none."""
        return None if self._deadline is None else max(0.001, self._deadline - self._clock())

    def delay_after_failure(self, should_retry: str | None = None) -> float | None:
        """Seconds before the next attempt, 0 if another key is free; None to give up. See `may_retry` for `should_retry`."""
        error = self.error
        if error is None:
            return None
        requested_delay = error.retry_after
        if self._may_rotate(error) and self._pool is not None:
            try:
                self.lease = self._pool.acquire(self._model)
            except NoUsableCredential as none:
                requested_delay = max(requested_delay or 0.0, none.soonest or 0.0) or None
            else:
                self._rotations += 1
                self._has_next_key = True
                return 0.0
        if self._retries >= self._policy.retries or not may_retry(error, should_retry):
            return None
        delay = self._policy.delay(self._retries, requested_delay, self._fraction)
        left = self.time_left()
        if delay is None or (left is not None and delay >= left):
            return None
        self._retries += 1
        return delay

    def final_error(self) -> ProviderError:
        """The error after the last attempt. If keys are rate limited, `retry_after` is the wait until one is free."""
        error = self.error or _NO_ANSWER
        if error.kind != "rate_limit" or self._pool is None:
            return error
        return structs.replace(error, retry_after=applied_wait([(self._pool, self._model)]))

    def _may_rotate(self, error: ProviderError) -> bool:
        is_refused = self.lease is not None and RETRY_RULES[error.kind].rotates
        return is_refused and self._rotations < self._policy.rotations
