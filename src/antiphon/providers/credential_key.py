"""One key's state machine: what is held against a key, for how long, and how it comes back.

The machine. A key is healthy, `exhausted`, `invalid` or `disabled`; and for each model it is healthy or `cooling`. What rests
(an exhausted key, a cooling model) has a deadline; past it, it is half-open: one call at a time may try it, the probe.

    what happens                     to what            what follows
    rate_limit, permission           the key's model    cooling until now + wait
    billing (quota, balance)         the key            exhausted until now + wait
    authentication                   the key            invalid, for every model
    anything else                    nothing            not the key's fault; a probe it was gives its place to the next
    success of a probe               what it probed     healthy, unless its deadline has moved beyond now
    success of another call          nothing            it may have begun before the rest did
    disable / enable                 the key            disabled / healthy, with nothing held against it
    word of another process          what it says       the longer rest of the two; healthy, where it was healed since

Invariants.
- A deadline only moves forward: max(old, new).
- A wait is what the provider asked for, or a first guess. A call that began after the rest and failed again doubles the wait
  before it, up to a bound; of many calls that fail together only the first counts, for the others began before the rest.
- A rate limit on one model says nothing of another; a refused key is refused for all.
- A refusal that was seen here lasts until the secret is replaced, the key is enabled, or another process finds that it works. One
  that others tell of lasts `Waits.refused` seconds: then the key is tried, so that one bad moment does not end it everywhere.

What other processes are told, and how it is put together, is `credential_standing`'s. Calls are told apart by their numbers,
which grow; time is told from outside. Nothing here locks: the pool does.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Literal, TypeAlias

from msgspec import Struct

from antiphon.providers.credential_standing import (
    EXHAUSTED,
    MEMORY,
    REFUSED,
    Standing,
    cooling_for,
    is_sharable,
    model_of,
)
from antiphon.providers.secret import Credential, masked
from antiphon.wire.output import ErrorKind, ProviderError

KeyState: TypeAlias = Literal["healthy", "cooling", "exhausted", "half_open", "invalid", "disabled"]

_MOST_RESTS = 256
"""More rests than this of one key are looked through for those that are over; of more recoveries the oldest is forgotten."""


class Waits(Struct, frozen=True, kw_only=True):
    """For how many seconds what failed rests, where the provider does not say; and the bounds of doubling."""

    cooling: float = 1.0
    denied: float = 300.0
    longest_cooling: float = 900.0
    exhausted: float = 600.0
    longest_exhausted: float = 21_600.0
    longest_asked: float = 86_400.0
    """A provider that asks for more is not believed."""
    probe: float = 600.0
    """A probe that reports nothing for so long is lost, and another may be made."""
    refused: float = 3600.0
    """For so long other processes take this one's word that a key was refused."""


class ModelStatus(Struct, frozen=True):
    """A key's standing at one model where it is not healthy. `seconds` is how long it rests yet."""

    state: KeyState
    seconds: float


class CredentialStatus(Struct, frozen=True, kw_only=True):
    """What is known of one key; nothing in it is secret."""

    name: str
    masked: str
    state: KeyState
    weight: int
    seconds: float = 0.0
    """How long an exhausted key rests yet."""
    models: Mapping[str, ModelStatus] = {}
    calls: int = 0
    successes: int = 0
    failures: int = 0
    last_error: ProviderError | None = None


class Rest(Struct):
    """A spell of not being used, and the call that may end it."""

    began: int
    """The number of the latest call when it began."""
    until: float = 0.0
    wait: float = 0.0
    probe: int = 0
    """The number of the call that tries it; 0: none does."""
    lost_at: float = 0.0

    def free_at(self) -> float:
        """From when on a call may try it."""
        return max(self.until, self.lost_at) if self.probe else self.until

    def prolong(self, number: int, latest: int, now: float, asked: float, longest: float) -> None:
        """A call failed, and `asked` is the wait that follows from that alone."""
        if number > self.began:
            self.began = latest
            asked = max(asked, min(longest, self.wait * 2))
        self.wait = max(asked, self.wait)
        self.until = max(self.until, now + asked)

    def hear(self, latest: int, now: float, until: float) -> None:
        """Another process has been told to wait until then. Calls that are under way have not heard of it."""
        self.began = latest
        self.until = max(self.until, until)
        self.wait = max(self.wait, until - now)

    def is_healed_by(self, number: int, now: float) -> bool:
        """Whether the success of a call ends it."""
        if self.probe != number:
            return False
        self.probe = 0
        return self.until <= now

    def state(self, now: float, word: KeyState) -> KeyState:
        return word if now < self.until else "half_open"


class Key:
    """One credential with all that is known of it."""

    def __init__(self, credential: Credential, secret: str, name: str, waits: Waits) -> None:
        self.credential = credential
        self.secret = secret
        self.name = name
        self.turn = 0
        self.is_disabled = False
        self.calls = self.successes = self.failures = 0
        self.last_error: ProviderError | None = None
        self._waits = waits
        self._generation = 0
        self._refused_at = 0.0
        self._rests: dict[str, Rest] = {}
        self._healed: dict[str, float] = {}

    @property
    def is_refused(self) -> bool:
        """Whether the provider does not know it, as far as anybody has seen."""
        return REFUSED in self._rests

    def free_at(self, model: str) -> float | None:
        """From when on it may be used for the model; None: not by waiting."""
        if self.is_disabled:
            return None
        at = max((rest.free_at() for rest in self._met(model).values()), default=0.0)
        return None if at == inf else at

    def is_free(self, model: str, now: float) -> bool:
        """Whether it may be used for the model now."""
        if not self._rests:
            return not self.is_disabled
        at = self.free_at(model)
        return at is not None and at <= now

    def lend(self, model: str, number: int, now: float) -> bool:
        """A call begins; whether it is a probe."""
        self.calls += 1
        rests = self._met(model)
        for rest in rests.values():
            rest.probe, rest.lost_at = number, now + self._waits.probe
        return bool(rests)

    def on_success(self, model: str, number: int, now: float) -> None:
        self.successes += 1
        for facet, rest in self._met(model).items():
            if rest.is_healed_by(number, now):
                del self._rests[facet]
                self._heal(facet, now)

    def on_failure(self, model: str, number: int, latest: int, now: float, error: ProviderError) -> None:
        self.failures += 1
        self.last_error = error
        self.on_release(model, number)
        waits = self._waits
        if error.kind == "authentication":
            self._rests[REFUSED] = Rest(latest, until=inf)
            self._refused_at = now
        elif error.kind == "billing":
            asked = self._asked(error, waits.exhausted)
            self._rest(EXHAUSTED, latest, now).prolong(number, latest, now, asked, waits.longest_exhausted)
        elif error.kind in ("rate_limit", "permission"):
            asked = self._asked(error, waits.cooling if error.kind == "rate_limit" else waits.denied)
            self._rest(cooling_for(model), latest, now).prolong(number, latest, now, asked, waits.longest_cooling)

    def on_release(self, model: str, number: int) -> None:
        for rest in self._met(model).values():
            if rest.probe == number:
                rest.probe = 0

    def disable(self) -> None:
        """Use it no more, whoever has other news of it."""
        self.is_disabled = True
        self._generation += 1

    def enable(self) -> None:
        """Use it again, and hold nothing against it, whoever does."""
        self._forget()
        self._generation += 1

    def replace(self, secret: str, name: str) -> None:
        """Another secret is in its place, of which nobody knows anything."""
        self.secret, self.name = secret, name
        self._forget()
        self._generation = 0

    def standing(self, now: float) -> Standing:
        """What others should know of it."""
        since = now - MEMORY
        self._healed = {facet: at for facet, at in self._healed.items() if at > since}
        return Standing(
            generation=self._generation,
            is_disabled=self.is_disabled,
            until={
                facet: until
                for facet, rest in self._rests.items()
                if (until := self._told(facet, rest)) > since and is_sharable(facet)
            },
            healed={facet: at for facet, at in self._healed.items() if is_sharable(facet)},
        )

    def learn(self, told: Standing, latest: int, now: float) -> None:
        """Add what others know of it. `latest` is the number of the latest call."""
        if told.generation < self._generation:
            return
        if told.generation > self._generation:
            self._forget()
            self._generation = told.generation
        self.is_disabled = self.is_disabled or told.is_disabled
        for facet, at in told.healed.items():
            self._heal(facet, at)
            rest = self._rests.get(facet)
            if rest is not None and self._told(facet, rest) <= at:
                del self._rests[facet]
        for facet, until in told.resting.items():
            rest = self._rests.get(facet)
            if until > self._healed.get(facet, 0.0) and (rest is None or until > self._told(facet, rest)):
                self._rest(facet, latest, now).hear(latest, now, until)
                if facet == REFUSED:  # if it was refused here too, others hear the later of the two from here
                    self._refused_at = until - self._waits.refused

    def kind(self) -> ErrorKind:
        """What a call says that found this key unusable."""
        if self.is_disabled:
            return "permission"
        if self.is_refused:
            return "authentication"
        return "billing" if EXHAUSTED in self._rests else "rate_limit"

    def trouble(self, model: str, now: float) -> str:
        """Why it cannot be used now, in words."""
        if self.is_disabled:
            return "is disabled"
        rests = self._met(model)
        until = max((rest.until for rest in rests.values()), default=0.0)
        if until <= now:
            return "is being tried by another call"
        if REFUSED in rests and now < rests[REFUSED].until:
            return "was refused"
        return f"{'is exhausted' if EXHAUSTED in rests else 'cools down'} for {until - now:.1f} s"

    def status(self, now: float) -> CredentialStatus:
        """What may be shown of it."""
        exhausted = self._rests.get(EXHAUSTED)
        return CredentialStatus(
            name=self.name,
            masked=masked(self.secret),
            state=self._state(now),
            weight=self.credential.weight,
            seconds=max(0.0, exhausted.until - now) if exhausted is not None else 0.0,
            models={
                model: ModelStatus(rest.state(now, "cooling"), max(0.0, rest.until - now))
                for facet, rest in self._rests.items()
                if (model := model_of(facet)) is not None
            },
            calls=self.calls,
            successes=self.successes,
            failures=self.failures,
            last_error=self.last_error,
        )

    def _state(self, now: float) -> KeyState:
        if self.is_disabled:
            return "disabled"
        words: tuple[tuple[str, KeyState], ...] = ((REFUSED, "invalid"), (EXHAUSTED, "exhausted"))
        for facet, word in words:
            if facet in self._rests:
                return self._rests[facet].state(now, word)
        return "healthy"

    def _met(self, model: str) -> dict[str, Rest]:
        """What a call for the model meets."""
        if not self._rests:
            return {}
        facets = (REFUSED, EXHAUSTED, cooling_for(model))
        return {facet: self._rests[facet] for facet in facets if facet in self._rests}

    def _rest(self, facet: str, latest: int, now: float) -> Rest:
        """The rest of a facet, begun if there is none."""
        if len(self._rests) >= _MOST_RESTS:
            self._rests = {name: rest for name, rest in self._rests.items() if rest.free_at() > now}
        return self._rests.setdefault(facet, Rest(latest))

    def _told(self, facet: str, rest: Rest) -> float:
        """The deadline that others are told."""
        return self._refused_at + self._waits.refused if rest.until == inf and facet == REFUSED else rest.until

    def _heal(self, facet: str, at: float) -> None:
        if facet not in self._healed and len(self._healed) >= _MOST_RESTS:
            del self._healed[next(iter(self._healed))]
        self._healed[facet] = max(at, self._healed.get(facet, at))

    def _forget(self) -> None:
        self.is_disabled = False
        self._rests.clear()
        self._healed.clear()

    def _asked(self, error: ProviderError, first: float) -> float:
        return first if error.retry_after is None else min(error.retry_after, self._waits.longest_asked)
