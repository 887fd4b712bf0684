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

Invariants.
- A deadline only moves forward: max(old, new).
- A wait is what the provider asked for, or a first guess. A call that began after the rest and failed again doubles the wait
  before it, up to a bound; of many calls that fail together only the first counts, for the others began before the rest.
- A rate limit on one model says nothing of another; a refused key is refused for all.

Calls are told apart by their numbers, which grow; time is told from outside. Nothing here locks: the pool does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

from msgspec import Struct

from antiphon.providers.secret import Credential, masked
from antiphon.wire.output import ErrorKind, ProviderError

KeyState: TypeAlias = Literal["healthy", "cooling", "exhausted", "half_open", "invalid", "disabled"]

_MOST_MODELS = 256
"""More rests than this of one key are looked through for those that are over."""


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
        self.is_invalid = False
        self.is_disabled = False
        self.calls = self.successes = self.failures = 0
        self.last_error: ProviderError | None = None
        self._waits = waits
        self._exhausted: Rest | None = None
        self._models: dict[str, Rest] = {}

    def free_at(self, model: str) -> float | None:
        """From when on it may be used for the model; None: not by waiting."""
        if self.is_disabled or self.is_invalid:
            return None
        return max((rest.free_at() for rest in self._rests(model)), default=0.0)

    def lend(self, model: str, number: int, now: float) -> bool:
        """A call begins; whether it is a probe."""
        self.calls += 1
        rests = self._rests(model)
        for rest in rests:
            rest.probe, rest.lost_at = number, now + self._waits.probe
        return bool(rests)

    def on_success(self, model: str, number: int, now: float) -> None:
        self.successes += 1
        if self._exhausted is not None and self._exhausted.is_healed_by(number, now):
            self._exhausted = None
        cooling = self._models.get(model)
        if cooling is not None and cooling.is_healed_by(number, now):
            del self._models[model]

    def on_failure(self, model: str, number: int, latest: int, now: float, error: ProviderError) -> None:
        self.failures += 1
        self.last_error = error
        self.on_release(model, number)
        waits = self._waits
        if error.kind == "authentication":
            self.is_invalid = True
        elif error.kind == "billing":
            self._exhausted = self._exhausted or Rest(latest)
            self._exhausted.prolong(number, latest, now, self._asked(error, waits.exhausted), waits.longest_exhausted)
        elif error.kind in ("rate_limit", "permission"):
            if len(self._models) >= _MOST_MODELS:
                self._models = {name: rest for name, rest in self._models.items() if rest.free_at() > now}
            rest = self._models.setdefault(model, Rest(latest))
            first = waits.cooling if error.kind == "rate_limit" else waits.denied
            rest.prolong(number, latest, now, self._asked(error, first), waits.longest_cooling)

    def on_release(self, model: str, number: int) -> None:
        for rest in self._rests(model):
            if rest.probe == number:
                rest.probe = 0

    def forget_troubles(self) -> None:
        self.is_invalid = self.is_disabled = False
        self._exhausted = None
        self._models.clear()

    def kind(self) -> ErrorKind:
        """What a call says that found this key unusable."""
        if self.is_disabled:
            return "permission"
        if self.is_invalid:
            return "authentication"
        return "rate_limit" if self._exhausted is None else "billing"

    def trouble(self, model: str, now: float) -> str:
        """Why it cannot be used now, in words."""
        if self.is_disabled:
            return "is disabled"
        if self.is_invalid:
            return "was refused"
        until = max((rest.until for rest in self._rests(model)), default=0.0)
        if until <= now:
            return "is being tried by another call"
        return f"{'cools down' if self._exhausted is None else 'is exhausted'} for {until - now:.1f} s"

    def status(self, now: float) -> CredentialStatus:
        """What may be shown of it."""
        models = {
            name: ModelStatus(rest.state(now, "cooling"), max(0.0, rest.until - now))
            for name, rest in self._models.items()
        }
        return CredentialStatus(
            name=self.name,
            masked=masked(self.secret),
            state=self._state(now),
            weight=self.credential.weight,
            seconds=max(0.0, self._exhausted.until - now) if self._exhausted is not None else 0.0,
            models=models,
            calls=self.calls,
            successes=self.successes,
            failures=self.failures,
            last_error=self.last_error,
        )

    def _state(self, now: float) -> KeyState:
        if self.is_disabled:
            return "disabled"
        if self.is_invalid:
            return "invalid"
        return "healthy" if self._exhausted is None else self._exhausted.state(now, "exhausted")

    def _rests(self, model: str) -> list[Rest]:
        return [rest for rest in (self._exhausted, self._models.get(model)) if rest is not None]

    def _asked(self, error: ProviderError, first: float) -> float:
        return first if error.retry_after is None else min(error.retry_after, self._waits.longest_asked)
