"""What to do about a failed call: another key, the same request later, another target, or give up; and how long to wait.

`RETRY_RULES` is the one table for this. `RetryPlan` applies it to one call and all its targets, without I/O: it names the next
step, and `engine.provider_call` performs it, for the library and for the gateway. Each target has two separate budgets: rotations
(another key, at once) help if the key is the problem, retries (the same key, later) help if the moment is. A storm of rate
limits over ten keys spends rotations, an outage spends retries. Both end, and both happen only before anything was shown.

Delays have full jitter, so clients that failed together do not return together. A delay the provider asks for is respected; if
it is longer than `longest_wait`, the next target is tried at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from math import inf
from random import random as random_fraction
from types import MappingProxyType
from typing import Literal, TypeAlias, cast

from msgspec import Struct, structs

from antiphon.errors import NoUsableCredential
from antiphon.providers.call import Fallback
from antiphon.providers.keys.ring import KeyLease, KeyRing
from antiphon.providers.routes import Target
from antiphon.wire.output import NOT_AN_ANSWER, ErrorKind, ProviderError

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


def fallback_targets(error: ProviderError, failed: Target, others: list[Target]) -> list[Target]:
    """Which of the other targets to try after `failed` failed."""
    scope = RETRY_RULES[error.kind].fallback
    if scope == "another model":
        return [target for target in others if target.model != failed.model]
    return others if scope == "anywhere" else []


class RetrySettings(Struct, frozen=True, kw_only=True):
    """What a target allows. `keys` has its keys (None: it needs none); `total` bounds all its attempts together, in seconds,
    and `first_token` the wait for the first visible output of a stream (None: as the call says)."""

    policy: RetryPolicy = RetryPolicy()
    keys: KeyRing | None = None
    total: float | None = None
    first_token: float | None = None
    clock: Callable[[], float] = time.monotonic
    fraction: Callable[[], float] = random_fraction
    takes_keys_in_order: bool = False
    """Whether the first usable key is taken, and not the next one in turn."""
    preferred_key: str = ""
    """The name of the key that is taken for the first attempt, if it is usable."""


ONE_ATTEMPT = RetrySettings(policy=RetryPolicy(retries=0, rotations=0))
"""For a target that is called once."""


class NextTarget(Struct, frozen=True):
    """Prepare the request for this target, then call `RetryPlan.begin`."""

    target: Target


class Send(Struct, frozen=True):
    """Send the request with this key (None: without one), then call `RetryPlan.after` if it fails."""

    lease: KeyLease | None


class Wait(Struct, frozen=True):
    """Wait because of the error, then call `RetryPlan.resume`."""

    seconds: float
    error: ProviderError


class GiveUp(Struct, frozen=True):
    """No attempt is left. If keys are rate limited, `error.retry_after` is the time until the first of them is free."""

    error: ProviderError


Step: TypeAlias = NextTarget | Send | Wait | GiveUp


class RetryPlan:
    """One call after its first failure. `target` is tried now, `others` may follow; `fallbacks` gets every change."""

    _settings = RetrySettings()
    _deadline: float | None = None
    _retries = _rotations = 0
    _last_error: ProviderError | None = None

    def __init__(self, targets: Sequence[Target], fallbacks: list[Fallback] | None = None) -> None:
        self.target, *self.others = targets
        self._rings: dict[Target, KeyRing] = {}
        self._fallbacks = [] if fallbacks is None else fallbacks

    def first(self) -> NextTarget:
        """The first step."""
        return NextTarget(self.target)

    def begin(self, settings: RetrySettings, *, is_probe: bool = False) -> Step:
        """The request for the current target is prepared (once more, if it was rewritten): its budgets begin.

        `is_probe`: the target failed before, so it is tried once if another one is left.
        """
        if is_probe and self.others:
            settings = structs.replace(settings, policy=structs.replace(settings.policy, retries=0))
        self._begin_budgets(settings)
        return self.resume()

    def _begin_budgets(self, settings: RetrySettings) -> None:
        self._settings = settings
        self._retries = self._rotations = 0
        self._deadline = None if settings.total is None else settings.clock() + settings.total
        if settings.keys is not None:
            self._rings[self.target] = settings.keys

    def continue_from(self, settings: RetrySettings, began: float) -> None:
        """The first attempt at the first target was made without a plan; it began at that time of the target's clock."""
        self._begin_budgets(settings)
        if settings.total is not None:
            self._deadline = began + settings.total

    def resume(self) -> Step:
        """Take a key for the next attempt: the wait is over, or the target is new."""
        keys = self._settings.keys
        if keys is None:
            return Send(None)
        try:
            settings = self._settings
            return Send(
                keys.acquire(self.target.model, in_order=settings.takes_keys_in_order, preferred=settings.preferred_key)
            )
        except NoUsableCredential as none:
            kind = cast(ErrorKind, none.kind)
            error = ProviderError(str(none), kind, code="no_usable_credential", retry_after=none.retry_after)
        return self._wait_or_next(error, error.retry_after, None)

    def after(self, error: ProviderError, *, should_retry: str | None = None) -> Step:
        """The attempt failed, and its key knows it. See `may_retry` for `should_retry`."""
        keys, requested_delay = self._settings.keys, error.retry_after
        if keys is not None and RETRY_RULES[error.kind].rotates and self._rotations < self._settings.policy.rotations:
            try:
                lease = keys.acquire(self.target.model, in_order=self._settings.takes_keys_in_order)
            except NoUsableCredential as none:
                requested_delay = max(requested_delay or 0.0, none.retry_after or 0.0) or None
            else:
                self._rotations += 1
                return Send(lease)
        return self._wait_or_next(error, requested_delay, should_retry)

    def leave(self, error: ProviderError) -> Step:
        """The current target broke after it had answered: the next one, whatever budget is left."""
        others = fallback_targets(error, self.target, self.others)
        return self._fall_back(error, others) if others else GiveUp(error)

    def skip(self, error: ProviderError) -> Step:
        """The current target cannot take the request at all. The error counts only if no target was tried before."""
        if not self.others:
            return GiveUp(error if self._last_error is None else self._with_applied_wait(self._last_error))
        return self._fall_back(error, self.others)

    def return_to(self, targets: Sequence[Target], error: ProviderError) -> Step:
        """Go back to targets that were skipped, because none of those after them could be asked."""
        return self._fall_back(error, targets)

    def has_next(self, error: ProviderError) -> bool:
        """Whether another target could be tried after this error."""
        return bool(fallback_targets(error, self.target, self.others))

    def time_left(self) -> float | None:
        """Seconds left of the target's total timeout; None if there is none."""
        return None if self._deadline is None else max(0.001, self._deadline - self._settings.clock())

    def _wait_or_next(self, error: ProviderError, requested_delay: float | None, should_retry: str | None) -> Step:
        settings, others = self._settings, fallback_targets(error, self.target, self.others)
        is_left_alone = error.code in _SILENT_CODES and bool(others)
        if self._retries < settings.policy.retries and not is_left_alone and may_retry(error, should_retry):
            delay = settings.policy.delay(self._retries, requested_delay, settings.fraction)
            left = self.time_left()
            if delay is not None and (left is None or delay < left):
                self._retries += 1
                return Wait(delay, error)
        if not others:
            return GiveUp(self._with_applied_wait(error))
        self._last_error = error
        return self._fall_back(error, others)

    def _fall_back(self, error: ProviderError, others: Sequence[Target]) -> NextTarget:
        failed, self.target, *self.others = self.target, *others
        self._fallbacks.append(Fallback(str(failed), str(self.target), error))
        return NextTarget(self.target)

    def _with_applied_wait(self, error: ProviderError) -> ProviderError:
        """The error with the wait that the next call really meets, if rate limits are the reason."""
        if error.kind != "rate_limit" or not self._rings:
            return error
        waits = [keys.retry_after(target.model) for target, keys in self._rings.items()]
        if self._settings.keys is None:
            waits.append(error.retry_after or 0.0)
        soonest = min(waits)
        return structs.replace(error, retry_after=soonest if 0.0 < soonest < inf else None)
