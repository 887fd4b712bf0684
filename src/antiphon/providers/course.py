"""`Course`: the tries of one call; which key each takes, whether there is another, and when.

Two budgets that do not touch: rotations (another key, at once) and retries (the same again, later). A deadline over all of it,
where the call has one: a try gets what is left, and a wait that would pass it is not begun.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import inf
from typing import cast

from msgspec import structs

from antiphon.errors import NoUsableCredential
from antiphon.providers.credentials import CredentialPool, Lease
from antiphon.providers.retry import REACTIONS, RetryPolicy, may_retry
from antiphon.wire.output import ErrorKind, ProviderError

_NO_REASON = ProviderError("the provider gave no answer and no reason", "stream_cut")


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
