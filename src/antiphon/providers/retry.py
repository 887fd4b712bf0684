"""What a client does about an error: take another key, try again, or give up; and how long it waits.

Two budgets, for two reasons. Rotating helps where the *key* is the trouble, and costs no waiting; retrying helps where the
*moment* is. So a storm of rate limits over ten keys spends rotations and not retries, and a provider that is down spends
retries and never blames a key. Both end, and both happen only while nothing of an answer was shown.

Waits are full jitter: anything between nothing and the doubled bound, so that clients that failed together do not come back
together. What a provider asks for is waited for, and a little more; one that asks for longer than we are willing to wait is not
waited for at all, and the error that says so goes to whoever knows somebody else to ask.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import random as any_fraction
from types import MappingProxyType

from msgspec import Struct

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
