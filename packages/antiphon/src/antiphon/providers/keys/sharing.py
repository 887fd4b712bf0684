"""`SharedHealth`: the cooldowns of a key as a value that several processes merge without coordination.

Merging is commutative, associative and idempotent (a join-semilattice): the later `until` and the later `cleared` of each scope
win, disabled wins over enabled, and a higher `generation` replaces everything. So order, repetition and delay of messages do not
matter. A scope is the whole key (rejected, exhausted) or one model (cooling, rejected). It is on cooldown until its deadline and
half-open after it, unless `cleared` is at or after `until`: a successful probe forgives exactly the deadlines it knew of.

An operator who enables a key starts a new generation with nothing in it; disabling keeps everything. Times are seconds on a
clock the processes agree on, to the millisecond. What ended over `RETENTION_SECONDS` ago is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from msgspec import Struct

RETENTION_SECONDS = 3600.0
REFUSED, EXHAUSTED = "refused", "exhausted"
_COOLING, _REJECTED = "model ", "refused "
_MAX_SCOPE_LENGTH = 200
_NOTHING: Mapping[str, float] = MappingProxyType({})


class SharedHealth(Struct, frozen=True, kw_only=True):
    """Cooldowns of one key. The default is empty, and merging it changes nothing."""

    generation: int = 0
    is_disabled: bool = False
    until: Mapping[str, float] = _NOTHING
    cleared: Mapping[str, float] = _NOTHING

    def merge(self, other: SharedHealth) -> SharedHealth:
        """Both combined; one of the two objects if it contains the other."""
        if self.generation != other.generation:
            return self if self.generation > other.generation else other
        merged = SharedHealth(
            generation=self.generation,
            is_disabled=self.is_disabled or other.is_disabled,
            until=_latest(self.until, other.until),
            cleared=_latest(self.cleared, other.cleared),
        )
        return self if merged == self else merged

    def shift_clock(self, seconds: float) -> SharedHealth:
        """The same times on a clock that is ahead by `seconds`."""
        return SharedHealth(
            generation=self.generation,
            is_disabled=self.is_disabled,
            until={scope: round(at + seconds, 3) for scope, at in self.until.items()},
            cleared={scope: round(at + seconds, 3) for scope, at in self.cleared.items()},
        )

    @property
    def active(self) -> dict[str, float]:
        """The scopes that were not cleared since, with their deadlines."""
        return {scope: at for scope, at in self.until.items() if at > self.cleared.get(scope, 0.0)}


NO_COOLDOWNS = SharedHealth()


def cooling_scope(model: str) -> str:
    """The scope of a rate limit for one model."""
    return _COOLING + model


def rejected_scope(model: str) -> str:
    """The scope of a rejection for one model."""
    return _REJECTED + model


def is_rejection(scope: str) -> bool:
    """Whether it is the scope of a rejection, for every model or for one."""
    return scope == REFUSED or scope.startswith(_REJECTED)


def model_of(scope: str) -> str | None:
    """The model of a scope; None if it is the whole key."""
    for prefix in (_COOLING, _REJECTED):
        if scope.startswith(prefix):
            return scope.removeprefix(prefix)
    return None


def is_sharable(scope: str) -> bool:
    """Whether it is shared with other processes. Clients choose model names, so unusual ones stay local."""
    return len(scope) <= _MAX_SCOPE_LENGTH and scope.isprintable()


def _latest(one: Mapping[str, float], other: Mapping[str, float]) -> Mapping[str, float]:
    if not other or one == other:
        return one
    return {**one, **{scope: max(at, one.get(scope, at)) for scope, at in other.items()}}
