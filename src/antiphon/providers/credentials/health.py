"""One key's state machine: what is held against a key, for how long, and how it recovers.

A key has a state for the whole key (healthy, exhausted, rejected) and one for each model (healthy, cooling, rejected). Each has a
deadline; after it the state is half-open: one call at a time may probe it. `tests/providers/credentials/test_health.py` has the
transitions as a table.

    event                            what it concerns   what follows
    rate_limit, permission           the key's model    cooling until now + wait
    billing (quota, balance)         the key            exhausted until now + wait
    authentication                   the key's model    rejected until now + wait
    authentication, second model     the key            rejected until now + wait, unless a call succeeded in between
    anything else                    nothing            not the key's fault; a probe gives its place to the next call
    success of a probe               what it probed     healthy, unless a longer deadline became known meanwhile
    configuration reloaded           what is rejected   half-open: the next call probes it
    disable / enable                 the key            disabled / healthy, with nothing held against it
    state from another process       what it names      the later deadline; healthy, if it recovered since

Invariants.
- A deadline only moves forward: max(old, new). A reload waives a deadline; it does not change it, so another process that still
  waits for it cannot bring it back.
- A wait is what the provider asked for, or a first guess. A call that began after the wait and failed again doubles it, up to a
  bound; of many calls that fail together only the first counts, because the others began before it.
- A failure for one model says nothing of another; a second rejected model rejects the key.

What other processes learn, and how it is merged, is `shared_state`'s. Calls are distinguished by their numbers, which
grow; time is given by the caller. Nothing here locks: the pool does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

from msgspec import Struct

from antiphon.providers.credentials.secret import Credential, masked
from antiphon.providers.credentials.shared_state import (
    EXHAUSTED,
    MEMORY,
    REFUSED,
    Standing,
    cooling_for,
    is_rejection,
    is_sharable,
    model_of,
    rejected_for,
)
from antiphon.wire.output import ErrorKind, ProviderError

KeyState: TypeAlias = Literal["healthy", "cooling", "exhausted", "half_open", "invalid", "disabled"]

_CLOCK_STEP = 0.001
"""Deadlines that another process sends back are rounded to this many seconds."""
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
    rejected: float = 120.0
    """For a key that a provider does not accept (401)."""
    longest_rejected: float = 3600.0


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
    """How long an exhausted or rejected key rests yet."""
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
    waived: float = 0.0
    """Deadlines up to this one do not count any more: the configuration was reloaded."""

    @property
    def deadline(self) -> float:
        """When it ends; 0 if its deadline was waived."""
        return self.until if self.until > self.waived else 0.0

    def free_at(self) -> float:
        """From when on a call may try it."""
        return max(self.deadline, self.lost_at) if self.probe else self.deadline

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
        return self.deadline <= now

    def state(self, now: float, word: KeyState) -> KeyState:
        return word if now < self.deadline else "half_open"


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
        self._rejected_models: set[str] = set()
        """Models it was rejected for since a call last succeeded; two are enough to reject the key."""
        self._rests: dict[str, Rest] = {}
        self._healed: dict[str, float] = {}

    @property
    def is_refused(self) -> bool:
        """Whether the provider rejected it, for every model or for one."""
        return bool(self._rests) and any(map(is_rejection, self._rests))

    def free_at(self, model: str) -> float | None:
        """From when on it may be used for the model; None: not by waiting."""
        if self.is_disabled:
            return None
        return max((rest.free_at() for rest in self._met(model).values()), default=0.0)

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
        self._rejected_models.clear()
        for facet, rest in self._met(model).items():
            if rest.is_healed_by(number, now):
                del self._rests[facet]
                # Others may still wait for a deadline that was waived here: they learn that it is over.
                self._heal(facet, max(now, rest.until))

    def on_failure(self, model: str, number: int, latest: int, now: float, error: ProviderError) -> None:
        self.failures += 1
        self.last_error = error
        self.on_release(model, number)
        waits = self._waits
        if error.kind == "authentication":
            facet = self._rejected(model)
            self._rest(facet, latest, now).prolong(number, latest, now, waits.rejected, waits.longest_rejected)
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

    def reload(self) -> None:
        """The configuration was reloaded: what was rejected is probed by the next call."""
        for facet, rest in self._rests.items():
            if is_rejection(facet):
                rest.waived = rest.until + _CLOCK_STEP
                rest.probe = 0

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
                facet: rest.until for facet, rest in self._rests.items() if rest.until > since and is_sharable(facet)
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
            if rest is not None and rest.until <= at:
                del self._rests[facet]
        for facet, until in told.resting.items():
            rest = self._rests.get(facet)
            if until > self._healed.get(facet, 0.0) and (rest is None or until > rest.until):
                self._rest(facet, latest, now).hear(latest, now, until)
                if is_rejection(facet) and (model := model_of(facet)) is not None:
                    self._note_rejected(model)

    def kind(self, model: str) -> ErrorKind:
        """What a call for the model reports that found this key unusable."""
        if self.is_disabled:
            return "permission"
        rests = self._met(model)
        if any(map(is_rejection, rests)):
            return "authentication"
        return "billing" if EXHAUSTED in rests else "rate_limit"

    def trouble(self, model: str, now: float) -> str:
        """Why it cannot be used now, in words."""
        if self.is_disabled:
            return "is disabled"
        rests = self._met(model)
        until = max((rest.deadline for rest in rests.values()), default=0.0)
        if until <= now:
            return "is being tried by another call"
        if any(is_rejection(facet) and now < rest.deadline for facet, rest in rests.items()):
            return f"was rejected and is tried again in {until - now:.1f} s"
        return f"{'is exhausted' if EXHAUSTED in rests else 'cools down'} for {until - now:.1f} s"

    def status(self, now: float) -> CredentialStatus:
        """What may be shown of it."""
        whole = [rest.deadline for facet, rest in self._rests.items() if model_of(facet) is None]
        return CredentialStatus(
            name=self.name,
            masked=masked(self.secret),
            state=self._state(now),
            weight=self.credential.weight,
            seconds=max(0.0, max(whole, default=0.0) - now),
            models=self._model_statuses(now),
            calls=self.calls,
            successes=self.successes,
            failures=self.failures,
            last_error=self.last_error,
        )

    def _model_statuses(self, now: float) -> dict[str, ModelStatus]:
        """The models it is not healthy for. One that is rejected and cools is shown by the longer of the two."""
        found: dict[str, ModelStatus] = {}
        for facet, rest in self._rests.items():
            model = model_of(facet)
            if model is not None:
                state = rest.state(now, "invalid" if is_rejection(facet) else "cooling")
                status = ModelStatus(state, max(0.0, rest.deadline - now))
                if model not in found or found[model].seconds < status.seconds:
                    found[model] = status
        return found

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
        facets = (REFUSED, EXHAUSTED, cooling_for(model), rejected_for(model))
        return {facet: self._rests[facet] for facet in facets if facet in self._rests}

    def _rest(self, facet: str, latest: int, now: float) -> Rest:
        """The rest of a facet, begun if there is none."""
        if len(self._rests) >= _MOST_RESTS:
            self._rests = {name: rest for name, rest in self._rests.items() if rest.free_at() > now}
        return self._rests.setdefault(facet, Rest(latest))

    def _rejected(self, model: str) -> str:
        """What an authentication error for the model rejects: the model, or the key if it is the second one."""
        self._note_rejected(model)
        is_whole = REFUSED in self._rests or len(self._rejected_models) > 1
        return REFUSED if is_whole else rejected_for(model)

    def _note_rejected(self, model: str) -> None:
        if len(self._rejected_models) < 2:
            self._rejected_models.add(model)

    def _heal(self, facet: str, at: float) -> None:
        if facet not in self._healed and len(self._healed) >= _MOST_RESTS:
            del self._healed[next(iter(self._healed))]
        self._healed[facet] = max(at, self._healed.get(facet, at))

    def _forget(self) -> None:
        self.is_disabled = False
        self._rests.clear()
        self._healed.clear()
        self._rejected_models.clear()

    def _asked(self, error: ProviderError, first: float) -> float:
        return first if error.retry_after is None else min(error.retry_after, self._waits.longest_asked)
