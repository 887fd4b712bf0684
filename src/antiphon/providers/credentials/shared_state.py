"""`Standing`: what is held against a key, as a value that several processes can add to without asking each other.

Whoever learns something of a key joins it to what it knows and passes on the join. That comes out the same for everybody,
whatever the order, however often a message is repeated, and however late it comes, because standings are a join-semilattice:

    until[facet]     when a rest ends          join: the later one
    healed[facet]    when a probe succeeded    join: the later one
    is_disabled                                join: disabled, if either is
    generation       what an operator said     the higher one counts alone; of equal ones the rest is joined

`max` and `or` are commutative, associative and idempotent, so is a map of them, and so is the choice of the highest generation
with the join of everything in it.

What it means. A facet (the key was rejected, is exhausted, cools or was rejected for one model) rests until its deadline, and is
half-open from then on, unless `healed` is not before `until`. A probe is made only after the deadline it knows, or after a reload
that waived it, so its success forgives exactly the deadlines it knew of: a longer rest that somebody else has learnt of meanwhile
stands, and nothing is ever un-cooled by word of mouth. An operator who enables a key means all of it, whatever its deadlines:
that is a new generation, in which nothing is held against the key. So is disabling, with everything kept: of two operators who
disagree at the same moment, the one who disables is heard.

Times are seconds on a clock that the parties agree on, to the millisecond: converting between clocks must give back what came.
What was over `MEMORY` seconds ago is of no use to anybody and is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from msgspec import Struct

MEMORY = 3600.0
REFUSED, EXHAUSTED = "refused", "exhausted"
_COOLING, _REJECTED = "model ", "refused "
_LONGEST_NAME = 200
_NOTHING: Mapping[str, float] = MappingProxyType({})


class Standing(Struct, frozen=True, kw_only=True):
    """What is held against a key. The default is nothing: it adds nothing to any other."""

    generation: int = 0
    is_disabled: bool = False
    until: Mapping[str, float] = _NOTHING
    healed: Mapping[str, float] = _NOTHING

    def joined(self, other: Standing) -> Standing:
        """What both know together; one of the two themselves where it knows it all."""
        if self.generation != other.generation:
            return self if self.generation > other.generation else other
        joined = Standing(
            generation=self.generation,
            is_disabled=self.is_disabled or other.is_disabled,
            until=_latest(self.until, other.until),
            healed=_latest(self.healed, other.healed),
        )
        return self if joined == self else joined

    def moved(self, seconds: float) -> Standing:
        """The same on a clock that is ahead by `seconds`."""
        return Standing(
            generation=self.generation,
            is_disabled=self.is_disabled,
            until={facet: round(at + seconds, 3) for facet, at in self.until.items()},
            healed={facet: round(at + seconds, 3) for facet, at in self.healed.items()},
        )

    @property
    def resting(self) -> dict[str, float]:
        """The facets that nobody has healed, with their deadlines."""
        return {facet: at for facet, at in self.until.items() if at > self.healed.get(facet, 0.0)}


NOTHING_HELD = Standing()


def cooling_for(model: str) -> str:
    """The facet of a key that is its use for one model."""
    return _COOLING + model


def rejected_for(model: str) -> str:
    """The facet of a key that a provider rejected for one model."""
    return _REJECTED + model


def is_rejection(facet: str) -> bool:
    """Whether a facet says that a provider rejected the key, for every model or for one."""
    return facet == REFUSED or facet.startswith(_REJECTED)


def model_of(facet: str) -> str | None:
    """The model that a facet is about; None if it is about the key."""
    for prefix in (_COOLING, _REJECTED):
        if facet.startswith(prefix):
            return facet.removeprefix(prefix)
    return None


def is_sharable(facet: str) -> bool:
    """Whether others are told of it. Clients invent names of models; what is no name stays here."""
    return len(facet) <= _LONGEST_NAME and facet.isprintable()


def _latest(one: Mapping[str, float], other: Mapping[str, float]) -> Mapping[str, float]:
    if not other or one == other:
        return one
    return {**one, **{facet: max(at, one.get(facet, at)) for facet, at in other.items()}}
