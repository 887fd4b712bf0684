"""`TargetHealth`: which targets are worth asking now: a circuit breaker for each, and how fast they answer.

A circuit opens after some failures in a row that say that the host is down or overloaded (not: that a key or a request was
refused). While it is open, calls that have another target skip this one. Then it is half-open: one call at a time probes the
target, with a single attempt. A probe that fails opens the circuit for twice as long; any answer closes it. If the circuits of
all targets are open, or no other target can be asked (it has no usable key), they are ignored: trying is better than failing. It
has the cooldowns of `credentials.health`, and is shared between processes in the same way: `HostCircuits` gives the circuits of
one host as a value that processes merge.

Nothing is stored for a target that answers, so a healthy call costs one look at an attribute.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import Literal, TypeAlias

from msgspec import Struct

from antiphon.providers.credentials.health import Cooldown
from antiphon.providers.credentials.shared_state import (
    RETENTION_SECONDS,
    SharedHealth,
    cooling_scope,
    is_sharable,
    model_of,
)
from antiphon.providers.routes import Target, TargetOrder
from antiphon.wire.output import ProviderError

CircuitState: TypeAlias = Literal["open", "half_open"]

_OUTAGES = frozenset({"server", "overloaded", "timeout", "stream_cut"})
"""Kinds of errors that count: the host does not answer, whatever the key and the request."""
_SHARED_NAME = "circuits"
MAX_TARGETS = 1024
"""Clients choose model names where a route is a glob: above this many the oldest count or time is dropped."""
_PROBE_SECONDS = 600.0
"""A probe without a result after this time is lost."""
_MEMORY = 0.7
"""How much of a measured average stays when another time is added."""
_EXPLORED_SHARE = 0.05
"""The share of calls that measure another target than the fastest."""


class CircuitPolicy(Struct, frozen=True, kw_only=True):
    """When a circuit opens, and for how long. `failures=0`: never."""

    failures: int = 5
    seconds: float = 5.0
    max_seconds: float = 20.0
    """The limit of doubling."""


class CircuitStatus(Struct, frozen=True, kw_only=True):
    """A circuit that is not closed. `seconds` is the time until the next probe."""

    target: Target
    state: CircuitState
    seconds: float
    last_error: ProviderError | None = None


class TargetHealth:
    """The health of the targets of one router or gateway. `measures`: answer times are measured, for the order `fastest`."""

    def __init__(
        self,
        policy: CircuitPolicy | None = None,
        *,
        measures: bool = False,
        clock: Callable[[], float] = time.monotonic,
        chance: random.Random | None = None,
    ) -> None:
        self.policy = policy or CircuitPolicy()
        self.measures = measures
        self.is_watched = measures
        """Whether results of calls matter now: some target failed, or times are measured."""
        self.opened = 0
        """How many times a circuit opened."""
        self._clock = clock
        self._chance = chance or random.Random()
        self._number = 0  # of the last probe
        self._failures: dict[Target, int] = {}
        self._errors: dict[Target, ProviderError] = {}
        self._circuits: dict[Target, Cooldown] = {}
        self._closed_at: dict[Target, float] = {}
        self._seconds: dict[Target, float] = {}

    def is_open(self, target: Target) -> bool:
        """Whether the target should not be asked now: its circuit is open, or another call is probing it."""
        circuit = self._circuits.get(target)
        return circuit is not None and circuit.available_at() > self._clock()

    def should_skip(self, target: Target, others: Sequence[Target]) -> bool:
        """Whether one of the other targets should be asked instead."""
        return self.is_open(target) and not all(map(self.is_open, others))

    def begin(self, target: Target) -> int:
        """A call asks the target. The number of the probe if it is one; 0 otherwise."""
        circuit = self._circuits.get(target)
        if circuit is None or circuit.available_at() > self._clock():
            return 0
        self._number += 1
        circuit.probe, circuit.lost_at = self._number, self._clock() + _PROBE_SECONDS
        return self._number

    def on_answer(self, target: Target, seconds: float | None = None) -> None:
        """The target answered, after so many seconds; or refused the request, so it is up."""
        if seconds is not None and self.measures:
            known = self._seconds.get(target)
            if known is None and len(self._seconds) >= MAX_TARGETS:
                del self._seconds[next(iter(self._seconds))]
            self._seconds[target] = seconds if known is None else known * _MEMORY + seconds * (1 - _MEMORY)
        self._failures.pop(target, None)
        circuit = self._circuits.pop(target, None)
        if circuit is not None:
            self._errors.pop(target, None)
            self._closed_at[target] = max(self._clock(), circuit.until)
        self._watch()

    def on_failure(self, target: Target, probe: int, error: ProviderError) -> None:
        """An attempt at the target failed."""
        if error.kind not in _OUTAGES or not self.policy.failures:
            if self.is_watched:
                self.on_answer(target)
            return
        self.is_watched = True
        now, circuit = self._clock(), self._circuits.get(target)
        if circuit is not None:
            if probe and circuit.probe == probe:
                circuit.probe = 0
                self._errors[target] = error
                circuit.extend(probe, self._number, now, self.policy.seconds, self.policy.max_seconds)
            return
        count = self._failures.pop(target, 0) + 1
        if count < self.policy.failures:
            self._failures[target] = count
            if len(self._failures) > MAX_TARGETS:
                del self._failures[next(iter(self._failures))]
            return
        self.opened += 1
        self._errors[target] = error
        self._circuits[target] = circuit = Cooldown(began=self._number)
        circuit.extend(0, self._number, now, self.policy.seconds, self.policy.max_seconds)

    def release(self, target: Target, probe: int) -> None:
        """A probe ended without a result: the next call may probe."""
        circuit = self._circuits.get(target)
        if circuit is not None and circuit.probe == probe:
            circuit.probe = 0

    def status(self) -> list[CircuitStatus]:
        """The circuits that are not closed."""
        now = self._clock()
        return [
            CircuitStatus(
                target=target,
                state="open" if now < circuit.deadline else "half_open",
                seconds=max(0.0, circuit.deadline - now),
                last_error=self._errors.get(target),
            )
            for target, circuit in self._circuits.items()
        ]

    def arrange(self, targets: Sequence[Target], order: TargetOrder, weights: Sequence[float]) -> list[Target]:
        """The targets of a route in the order in which this call asks them."""
        usable = [target for target in targets if not self.is_open(target)] if self._circuits else list(targets)
        if len(usable) < 2 or order == "listed":
            return list(targets)
        if order == "weighted":
            shares = [weights[targets.index(target)] for target in usable]
            first = self._chance.choices(usable, shares)[0] if sum(shares) > 0 else usable[0]
        elif self._chance.random() < _EXPLORED_SHARE:
            first = self._chance.choice(usable)
        else:
            first = min(usable, key=lambda target: self._seconds.get(target, -inf))
        rest = list(targets)
        if order == "fastest":
            rest.sort(key=lambda target: self._seconds.get(target, inf))
        rest.remove(first)
        return [first, *rest]

    def _watch(self) -> None:
        self.is_watched = self.measures or bool(self._failures or self._circuits)

    def shared_health(self, provider: str) -> SharedHealth:
        """What other processes should know about the circuits of a provider."""
        now = self._clock()
        self._closed_at = {target: at for target, at in self._closed_at.items() if at > now - RETENTION_SECONDS}
        until = {target: circuit.until for target, circuit in self._circuits.items()}
        return SharedHealth(until=_scopes(until, provider), cleared=_scopes(self._closed_at, provider))

    def merge(self, provider: str, remote: SharedHealth) -> None:
        """Add what other processes know about the circuits of a provider. Times are on our clock."""
        for scope, at in remote.cleared.items():
            target = Target(provider, model_of(scope) or "")
            self._closed_at[target] = max(at, self._closed_at.get(target, at))
            circuit = self._circuits.get(target)
            if circuit is not None and circuit.until <= at:
                del self._circuits[target]
        now = self._clock()
        for scope, until in remote.active.items():
            target = Target(provider, model_of(scope) or "")
            if until <= max(self._closed_at.get(target, 0.0), now - RETENTION_SECONDS):
                continue
            circuit = self._circuits.get(target)
            if circuit is None and until > now:
                circuit = self._circuits[target] = Cooldown(began=self._number)
            if circuit is not None and until > circuit.until:
                circuit.merge_remote(self._number, now, until)
        self._watch()


class HostCircuits:
    """The circuits of one provider, as `SharedKeyHealth` shares them."""

    def __init__(self, health: TargetHealth, provider: str) -> None:
        self._health = health
        self._provider = provider

    def export_health(self, named: Callable[[str], str]) -> dict[str, SharedHealth]:
        """What other processes should know, under one name for the host."""
        return {named(_SHARED_NAME): self._health.shared_health(self._provider)}

    def merge_health(self, named: Callable[[str], str], remote: Mapping[str, SharedHealth]) -> None:
        """Add what other processes know."""
        if found := remote.get(named(_SHARED_NAME)):
            self._health.merge(self._provider, found)


def _scopes(times: Mapping[Target, float], provider: str) -> dict[str, float]:
    scopes = {cooling_scope(target.model): at for target, at in times.items() if target.provider == provider}
    return {scope: at for scope, at in scopes.items() if is_sharable(scope)}
