"""What a client does about an error: take another key, try again, or give up; and how long it waits.

Two budgets, for two reasons. Rotating helps where the *key* is the trouble, and costs no waiting; retrying helps where the
*moment* is. So a storm of rate limits over ten keys spends rotations and not retries, and a provider that is down spends
retries and never blames a key. Both end, and both happen only while nothing of an answer was shown.

Waits are full jitter: anything between nothing and the doubled bound, so that clients that failed together do not come back
together. What a provider asks for is waited for, and a little more; one that asks for longer than we are willing to wait is not
waited for at all, and the error that says so goes to whoever knows somebody else to ask.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import inf
from random import random as any_fraction
from types import MappingProxyType
from typing import cast

from msgspec import Struct, structs

from antiphon.errors import NoUsableCredential
from antiphon.providers.credentials.pool import CredentialPool, Lease
from antiphon.wire.output import NOT_AN_ANSWER, ErrorKind, ProviderError


class Reaction(Struct, frozen=True, kw_only=True):
    """What may help against an error."""

    rotates: bool = False
    retries: bool = False


_GIVE_UP = Reaction()
_ROTATE = Reaction(rotates=True)
_RETRY = Reaction(retries=True)

REACTIONS: Mapping[ErrorKind, Reaction] = MappingProxyType(
    {
        "invalid_request": _GIVE_UP,
        "context_length": _GIVE_UP,
        "too_large": _GIVE_UP,
        "not_found": _GIVE_UP,
        "unknown": _GIVE_UP,
        "authentication": _ROTATE,
        "billing": _ROTATE,
        "permission": _ROTATE,
        "rate_limit": Reaction(rotates=True, retries=True),
        "overloaded": _RETRY,
        "server": _RETRY,
        "timeout": _RETRY,
        "conflict": _RETRY,
        "stream_cut": _RETRY,
    }
)
"""By the kind of the error."""

_LASTING = frozenset({"tls_failed", "redirected", "redirect_loop", "invalid_url", "total_timeout"})
"""Codes of errors that the next moment will not change."""
_NO_REASON = ProviderError("the provider gave no answer and no reason", "stream_cut")
_MALFORMED = frozenset({NOT_AN_ANSWER, "not_http"})
"""Codes of answers that cannot be read. They may be billed, so the same target is not asked again, whatever it advises."""


class RetryPolicy(Struct, frozen=True, kw_only=True):
    """How often, and how long between. 0 retries and 0 rotations: every call is one request."""

    retries: int = 2
    rotations: int = 8
    first_delay: float = 0.5
    longest_delay: float = 8.0
    longest_wait: float = 60.0
    """A provider that asks for more than this many seconds is not waited for."""

    def delay(self, retry: int, asked: float | None, fraction: Callable[[], float] = any_fraction) -> float | None:
        """The seconds before the retry of that number (from 0); None where that is longer than we wait."""
        jitter = fraction() * min(self.longest_delay, self.first_delay * 2.0 ** min(retry, 32))
        if asked is None:
            return jitter
        if asked > self.longest_wait:
            return None
        return asked + min(jitter, self.first_delay)


def may_retry(error: ProviderError, advice: str | None = None) -> bool:
    """Whether the same request may fare better later. `advice` is the provider's `x-should-retry`."""
    if error.code in _MALFORMED:
        return False
    if advice in ("true", "false"):
        return advice == "true"
    return REACTIONS[error.kind].retries and error.code not in _LASTING


def applied_wait(keys: Iterable[tuple[CredentialPool, str]]) -> float | None:
    """In how many seconds the first of these pools has a key for its model; None if one has it now, or waiting does not help."""
    soonest = min((pool.retry_after(model) for pool, model in keys), default=0.0)
    return soonest if 0.0 < soonest < inf else None


class Course:
    """One call from its first try to its last. `lease` is the key of the try, `error` why it came to nothing."""

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
        self._is_rotated = False

    def begin(self) -> bool:
        """Begin a try. False where no key can be used; `error` then says why."""
        self.error = None
        if self._pool is not None and not self._is_rotated:
            self.lease = None
            try:
                self.lease = self._pool.acquire(self._model)
            except NoUsableCredential as none:
                kind = cast(ErrorKind, none.kind)
                self.error = ProviderError(str(none), kind, code="no_usable_credential", retry_after=none.soonest)
        self._is_rotated = False
        return self.error is None

    def remaining(self) -> float | None:
        """The seconds that are left of the whole; None: it has no end."""
        return None if self._deadline is None else max(0.001, self._deadline - self._clock())

    def next_delay(self, advice: str | None = None) -> float | None:
        """The seconds before the next try, 0 where another key is at hand; None: there is none. `advice` as in `may_retry`."""
        error = self.error
        if error is None:
            return None
        asked = error.retry_after
        if self._may_rotate(error) and self._pool is not None:
            try:
                self.lease = self._pool.acquire(self._model)
            except NoUsableCredential as none:
                asked = max(asked or 0.0, none.soonest or 0.0) or None
            else:
                self._rotations += 1
                self._is_rotated = True
                return 0.0
        if self._retries >= self._policy.retries or not may_retry(error, advice):
            return None
        delay = self._policy.delay(self._retries, asked, self._fraction)
        left = self.remaining()
        if delay is None or (left is not None and delay >= left):
            return None
        self._retries += 1
        return delay

    def final_error(self) -> ProviderError:
        """The error once there is no other try. Where keys are rate limited, its `retry_after` is how long they really are."""
        error = self.error or _NO_REASON
        if error.kind != "rate_limit" or self._pool is None:
            return error
        return structs.replace(error, retry_after=applied_wait([(self._pool, self._model)]))

    def _may_rotate(self, error: ProviderError) -> bool:
        is_refused = self.lease is not None and REACTIONS[error.kind].rotates
        return is_refused and self._rotations < self._policy.rotations
