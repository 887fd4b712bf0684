"""`Health`: what is known against a key or a host: cooldowns by scope; and `KeyHealth`, the state machine of one key.

`Health` keeps, ends, exports and merges cooldowns; keys and the circuits of targets (`target_health`) are made of it. The
transitions of a key are a table in `tests/providers/keys/test_health.py`.

A key has a state for the whole key (healthy, exhausted, rejected) and one per model (healthy, cooling, rejected). Each has a
deadline that only moves forward; after it the state is half-open, and one call at a time probes it. A failure for one model
does not affect another, but a second rejected model rejects the key. A cooldown is what the provider asks for, or a default;
a call that began after it and failed again doubles it. Of calls that fail together only the first counts. A reload waives the
deadline of a rejection without changing it, so that another process cannot bring it back; so does a ring that has no other key,
`retry_rejected` seconds after the rejection: a person who replaced the key at the provider can try again.

Calls have growing numbers. The ring locks; what other processes know is exported and merged under the same lock (`sharing`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from math import inf
from typing import Literal, TypeAlias

from msgspec import Struct

from antiphon.providers.keys.secret import Credential, mask
from antiphon.providers.keys.sharing import (
    EXHAUSTED,
    REFUSED,
    RETENTION_SECONDS,
    SharedHealth,
    cooling_scope,
    is_rejection,
    is_sharable,
    model_of,
    rejected_scope,
)
from antiphon.wire.output import ErrorKind, ProviderError

KeyState: TypeAlias = Literal["healthy", "cooling", "exhausted", "half_open", "invalid", "disabled"]
_BY_SEVERITY: tuple[KeyState, ...] = ("healthy", "half_open", "cooling", "exhausted", "invalid", "disabled")

_NEXT_LOOK_SECONDS = 1.0
"""After so many seconds a call may ask again whether a probe has ended."""
_CLOCK_STEP = 0.001
"""Deadlines that come back from another process are rounded to this many seconds."""
MAX_COOLDOWNS = 256
"""Clients choose model names where a route is a glob. Above this many, cooldowns that are over are removed, or the one of a model
that ends first; and the oldest recovery is forgotten."""


class CooldownPolicy(Struct, frozen=True, kw_only=True):
    """Cooldown lengths in seconds, used if the provider does not send one; and the limits of doubling."""

    rate_limit: float = 1.0
    permission: float = 300.0
    max_model_cooldown: float = 900.0
    exhausted: float = 600.0
    max_exhausted: float = 21_600.0
    max_retry_after: float = 86_400.0
    """A longer Retry-After is shortened to this."""
    probe: float = 600.0
    """A probe without a result after this time is lost; the next call probes."""
    rejected: float = 120.0
    """For a key that the provider rejected (401)."""
    max_rejected: float = 3600.0
    retry_rejected: float = 5.0
    """A rejected key is probed this long after the rejection if no other key is usable."""


class ModelStatus(Struct, frozen=True):
    """A key's state for a model it is not healthy for. `seconds` is what is left of the cooldown."""

    state: KeyState
    seconds: float


class CredentialStatus(Struct, frozen=True, kw_only=True):
    """The health of one key; contains no secret."""

    name: str
    masked: str
    state: KeyState
    """Its state for every model."""
    weight: int
    seconds: float = 0.0
    """What is left of the cooldown of an exhausted or rejected key."""
    models: Mapping[str, ModelStatus] = {}
    """The models it is not healthy for."""
    calls: int = 0
    successes: int = 0
    failures: int = 0
    last_error: ProviderError | None = None

    is_unproven: bool = False
    """Whether it was rejected for a model, and no call succeeded since."""

    @property
    def health(self) -> ModelStatus:
        """The worst of its states, for every model or for one: what people and alarms need to see.

        A model whose cooldown is over counts only if the key was rejected for it and has not worked since.
        """
        models = [held for held in self.models.values() if held.state != "half_open" or self.is_unproven]
        states = [ModelStatus(self.state, self.seconds), *models]
        return max(states, key=lambda known: (_BY_SEVERITY.index(known.state), known.seconds))


class Calls:
    """The time, growing numbers of calls, and the lock of what they change."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.last = 0
        self.lock = threading.Lock()


class Cooldown(Struct):
    """One cooldown, and the call that probes whether it is over."""

    began: int
    """The number of the last call when it began."""
    until: float = 0.0
    wait: float = 0.0
    probe: int = 0
    """The number of the call that probes it; 0 if none does."""
    lost_at: float = 0.0
    waived: float = 0.0
    """Deadlines up to this one no longer count, because the configuration was reloaded."""
    error: ProviderError | None = None
    """Why it began, if that is of interest and was seen by this process."""

    @property
    def deadline(self) -> float:
        """When it ends; 0 if its deadline was waived."""
        return self.until if self.until > self.waived else 0.0

    def probed_until(self, now: float) -> float:
        """While another call probes it: when to look again, as how long that takes is not known; else 0."""
        return min(self.lost_at, now + _NEXT_LOOK_SECONDS) if self.probe else 0.0

    def available_at(self, now: float) -> float:
        """When a call may probe it."""
        return max(self.deadline, self.probed_until(now))

    def end_probe(self, number: int) -> bool:
        """The call of that number has ended; whether it was the probe. The next one may probe."""
        is_probe = self.probe == number
        if is_probe:
            self.probe = 0
        return is_probe

    def left(self, now: float) -> float:
        """The seconds until it ends; 0 if it is half-open."""
        return max(0.0, self.deadline - now)


class Health:
    """Cooldowns by scope: the whole, or one model; and when scopes were found healthy again."""

    def __init__(self, calls: Calls) -> None:
        self.calls = calls
        self.cooldowns: dict[str, Cooldown] = {}
        self.is_disabled = False
        self._cleared: dict[str, float] = {}
        self._generation = 0

    def extend(self, scope: str, number: int, seconds: float, longest: float) -> Cooldown:
        """A call failed; `seconds` is the cooldown for that failure alone. Of calls that fail together the first counts."""
        now, cooldown = self.calls.clock(), self._cooldown(scope)
        if number > cooldown.began:
            cooldown.began = self.calls.last
            seconds = max(seconds, min(longest, cooldown.wait * 2))
        cooldown.wait = max(seconds, cooldown.wait)
        cooldown.until = max(cooldown.until, now + seconds)
        return cooldown

    def clear(self, scope: str) -> None:
        """The scope is healthy. Other processes may still wait for a deadline that was waived here."""
        cooldown = self.cooldowns.pop(scope, None)
        if cooldown is not None and is_sharable(scope):
            self._note_cleared(scope, max(self.calls.clock(), cooldown.until))

    def export(self) -> SharedHealth:
        """What other processes should know."""
        with self.calls.lock:
            since, known = self.calls.clock() - RETENTION_SECONDS, self.cooldowns.items()
            self._cleared = {scope: at for scope, at in self._cleared.items() if at > since}
            return SharedHealth(
                generation=self._generation,
                is_disabled=self.is_disabled,
                until={scope: held.until for scope, held in known if held.until > since and is_sharable(scope)},
                cleared=self._cleared.copy(),
            )

    def merge(self, remote: SharedHealth) -> None:
        """Add what other processes know. Times are on our clock."""
        with self.calls.lock:
            self._merge(remote)

    def _merge(self, remote: SharedHealth) -> None:
        if remote.generation < self._generation:
            return
        if remote.generation > self._generation:
            self.reset()
            self._generation = remote.generation
        self.is_disabled = self.is_disabled or remote.is_disabled
        for scope, at in remote.cleared.items():
            self._note_cleared(scope, at)
            cooldown = self.cooldowns.get(scope)
            if cooldown is not None and cooldown.until <= at:
                del self.cooldowns[scope]
        for scope, until in remote.active.items():
            cooldown = self.cooldowns.get(scope)
            if until > self._cleared.get(scope, 0.0) and (cooldown is None or until > cooldown.until):
                self._merge_cooldown(scope, until)

    def reset(self) -> None:
        """Forget everything."""
        self.is_disabled = False
        self.cooldowns.clear()
        self._cleared.clear()

    def _cooldown(self, scope: str) -> Cooldown:
        known = self.cooldowns
        if scope not in known and len(known) >= MAX_COOLDOWNS:
            now = self.calls.clock()
            known = self.cooldowns = {name: held for name, held in known.items() if held.available_at(now) > now}
            if len(known) >= MAX_COOLDOWNS:
                del known[
                    min((name for name in known if model_of(name) is not None), key=lambda name: known[name].until)
                ]
        return known.setdefault(scope, Cooldown(self.calls.last))

    def _merge_cooldown(self, scope: str, until: float) -> None:
        """Another process has a deadline. Calls that run now began without knowing it."""
        cooldown = self._cooldown(scope)
        cooldown.began = self.calls.last
        cooldown.until = until
        cooldown.wait = max(cooldown.wait, until - self.calls.clock())

    def _note_cleared(self, scope: str, at: float) -> None:
        if scope not in self._cleared and len(self._cleared) >= MAX_COOLDOWNS:
            del self._cleared[next(iter(self._cleared))]
        self._cleared[scope] = max(at, self._cleared.get(scope, at))


class KeyHealth(Health):
    """One credential and its health."""

    def __init__(self, credential: Credential, secret: str, name: str, policy: CooldownPolicy, calls: Calls) -> None:
        super().__init__(calls)
        self.credential = credential
        self.secret = secret
        self.name = name
        self.weight_credit = 0
        self.number_of_calls = self.successes = self.failures = 0
        self.last_error: ProviderError | None = None
        self._rejected_at = -inf
        self._policy = policy
        self.rejected_models: set[str] = set()
        """Models it was rejected for since the last success; two of them reject the key."""

    @property
    def is_rejected(self) -> bool:
        """Whether the provider rejected it, for every model or for one."""
        return bool(self.cooldowns) and any(map(is_rejection, self.cooldowns))

    def available_at(self, model: str) -> float | None:
        """When it can be used for the model; None if waiting does not help."""
        if self.is_disabled:
            return None
        now = self.calls.clock()
        return max((cooldown.available_at(now) for cooldown in self._held_for(model).values()), default=0.0)

    def is_free(self, model: str) -> bool:
        """Whether it can be used for the model now."""
        if not self.cooldowns:
            return not self.is_disabled
        at = self.available_at(model)
        return at is not None and at <= self.calls.clock()

    def begin_call(self, model: str, number: int) -> bool:
        """A call begins; whether it is a probe."""
        self.number_of_calls += 1
        held = self._held_for(model)
        for cooldown in held.values():
            cooldown.probe, cooldown.lost_at = number, self.calls.clock() + self._policy.probe
        return bool(held)

    def on_success(self, model: str, number: int) -> None:
        """A call succeeded; a key without `cooldowns` and `rejected_models` need not know."""
        self.rejected_models.clear()
        now = self.calls.clock()
        for scope, cooldown in self._held_for(model).items():
            if cooldown.end_probe(number) and cooldown.deadline <= now:
                self.clear(scope)

    def on_failure(self, model: str, number: int, error: ProviderError) -> None:
        self.failures += 1
        self.last_error = error
        self.on_release(model, number)
        policy, asked = self._policy, error.retry_after
        if asked is not None:
            asked = min(asked, policy.max_retry_after)
        if error.kind == "authentication":
            self._rejected_at = self.calls.clock()
            self.extend(self._rejected(model), number, policy.rejected, policy.max_rejected)
        elif error.kind == "billing":
            self.extend(EXHAUSTED, number, policy.exhausted if asked is None else asked, policy.max_exhausted)
        elif error.kind in ("rate_limit", "permission"):
            usual = policy.rate_limit if error.kind == "rate_limit" else policy.permission
            self.extend(cooling_scope(model), number, usual if asked is None else asked, policy.max_model_cooldown)

    def on_release(self, model: str, number: int) -> None:
        """A call ended without a result: the next one may probe."""
        if self.cooldowns:
            for cooldown in self._held_for(model).values():
                cooldown.end_probe(number)

    def retry_rejection_at(self, model: str) -> float | None:
        """When it may be probed for the model although it is rejected; None if that is not what keeps it from being used."""
        now, held = self.calls.clock(), self._held_for(model)
        if self.is_disabled or not any(map(is_rejection, held)):
            return None
        times = [
            cooldown.probed_until(now) if is_rejection(scope) else cooldown.available_at(now)
            for scope, cooldown in held.items()
        ]
        return max(self._rejected_at + self._policy.retry_rejected, *times)

    def disable(self) -> None:
        """Stop using it, in every process."""
        self.is_disabled = True
        self._generation += 1

    def enable(self) -> None:
        """Use it again with a clean state, in every process."""
        self.reset()
        self._generation += 1

    def waive_rejection(self) -> None:
        """The next call probes what was rejected."""
        for scope, cooldown in self.cooldowns.items():
            if is_rejection(scope):
                cooldown.waived = cooldown.until + _CLOCK_STEP
                cooldown.probe = 0

    def replace(self, secret: str, name: str) -> None:
        """It has a new secret, with a clean state."""
        self.secret, self.name = secret, name
        self.reset()
        self._generation = 0

    def reset(self) -> None:
        """Forget everything."""
        super().reset()
        self.rejected_models.clear()

    def why_unusable(self, model: str) -> tuple[str, ErrorKind]:
        """Why it cannot be used for the model now: as text, and as the kind of the error."""
        if self.is_disabled:
            return "is disabled", "permission"
        now, held = self.calls.clock(), self._held_for(model)
        rejections = [cooldown.left(now) for scope, cooldown in held.items() if is_rejection(scope)]
        kind: ErrorKind = "authentication" if rejections else "billing" if EXHAUSTED in held else "rate_limit"
        left = max((cooldown.left(now) for cooldown in held.values()), default=0.0)
        if not left:
            return "is being probed by another call", kind
        state = "rejected" if any(rejections) else "exhausted" if EXHAUSTED in held else "rate limited"
        return f"is {state} for {left:.1f} s", kind

    def status(self) -> CredentialStatus:
        """Its health, for display. Of a model that is both rejected and cooling, the longer one is shown."""
        now = self.calls.clock()
        whole, models = ModelStatus("disabled" if self.is_disabled else "healthy", 0.0), dict[str, ModelStatus]()
        for scope, cooldown in self.cooldowns.items():
            model = model_of(scope)
            active: KeyState = "invalid" if is_rejection(scope) else "exhausted" if model is None else "cooling"
            left = cooldown.left(now)
            known = ModelStatus(active if left else "half_open", left)
            if model is None:
                is_first = whole.state == "healthy" or (scope == REFUSED and not self.is_disabled)
                whole = ModelStatus(known.state if is_first else whole.state, max(whole.seconds, known.seconds))
            elif model not in models or models[model].seconds < known.seconds:
                models[model] = known
        return CredentialStatus(
            name=self.name,
            masked=mask(self.secret),
            state=whole.state,
            weight=self.credential.weight,
            seconds=whole.seconds,
            models=models,
            calls=self.number_of_calls,
            successes=self.successes,
            failures=self.failures,
            last_error=self.last_error,
            is_unproven=bool(self.rejected_models) and self.is_rejected,
        )

    def _held_for(self, model: str) -> dict[str, Cooldown]:
        """The cooldowns that concern a call for the model."""
        known = self.cooldowns
        if not known:
            return {}
        scopes = (REFUSED, EXHAUSTED, cooling_scope(model), rejected_scope(model))
        return {scope: known[scope] for scope in scopes if scope in known}

    def _merge_cooldown(self, scope: str, until: float) -> None:
        super()._merge_cooldown(scope, until)
        if is_rejection(scope):
            self._rejected_at = self.calls.clock()  # as far as this process knows
            if (model := model_of(scope)) is not None:
                self._note_rejected(model)

    def _rejected(self, model: str) -> str:
        """The scope that an authentication error rejects: the model, or the whole key if it is the second model."""
        self._note_rejected(model)
        is_whole = REFUSED in self.cooldowns or len(self.rejected_models) > 1
        return REFUSED if is_whole else rejected_scope(model)

    def _note_rejected(self, model: str) -> None:
        if len(self.rejected_models) < 2:
            self.rejected_models.add(model)
