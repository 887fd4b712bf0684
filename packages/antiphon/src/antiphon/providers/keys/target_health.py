"""`TargetHealth`: which targets are worth asking now: a circuit breaker for each, and how fast they answer.

A circuit opens after some failures in a row that say that the host is down or overloaded (not: that a key or a request was
refused). While it is open, calls that have another target skip this one. Then it is half-open: one call at a time probes the
target, with a single attempt. A probe that fails opens the circuit for twice as long; any answer closes it. If the circuits of
all targets are open, or no other target can be asked (it has no usable key), they are ignored: trying is better than failing.
The circuits of a host are a `Health`, as a key is, and shared between processes in the same way (`HostCircuits`).

Nothing is stored for a target that answers, so a healthy call costs one look at an attribute.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from math import inf
from typing import Literal, TypeAlias

from msgspec import Struct

from antiphon.providers.keys.health import Calls, Cooldown, Health
from antiphon.providers.keys.sharing import RETENTION_SECONDS, SharedHealth, cooling_scope, model_of
from antiphon.providers.routes import Target, TargetOrder
from antiphon.wire.output import ProviderError

CircuitState: TypeAlias = Literal["open", "half_open"]

_OUTAGES = frozenset({"server", "overloaded", "timeout", "stream_cut"})
"""Kinds of errors that count: the host does not answer, whatever the key and the request."""
CIRCUITS = "circuits"
"""What names the circuits of a host in other processes, as its secret names a key."""
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
        self._calls = Calls(clock)  # their probes
        self._chance = chance or random.Random()
        self._failures: dict[Target, int] = {}
        self._hosts: dict[str, HostCircuits] = {}
        self._seconds: dict[Target, float] = {}

    def is_open(self, target: Target) -> bool:
        """Whether the target should not be asked now: its circuit is open, or another call is probing it."""
        circuit, now = self._circuit(target), self._calls.clock()
        return circuit is not None and circuit.available_at(now) > now

    def should_skip(self, target: Target, others: Sequence[Target]) -> bool:
        """Whether one of the other targets should be asked instead."""
        return self.is_open(target) and not all(map(self.is_open, others))

    def begin(self, target: Target) -> int:
        """A call asks the target. The number of the probe if it is one; 0 otherwise."""
        circuit, now = self._circuit(target), self._calls.clock()
        if circuit is None or circuit.available_at(now) > now:
            return 0
        self._calls.last += 1
        circuit.probe, circuit.lost_at = self._calls.last, now + _PROBE_SECONDS
        return circuit.probe

    def on_answer(self, target: Target, seconds: float | None = None) -> None:
        """The target answered, after so many seconds; or refused the request, so it is up."""
        if seconds is not None and self.measures:
            known = self._seconds.get(target)
            if known is None and len(self._seconds) >= MAX_TARGETS:
                del self._seconds[next(iter(self._seconds))]
            self._seconds[target] = seconds if known is None else known * _MEMORY + seconds * (1 - _MEMORY)
        self._failures.pop(target, None)
        if self._hosts and target.provider in self._hosts:
            self._hosts[target.provider].clear(cooling_scope(target.model))
        self.watch()

    def on_failure(self, target: Target, probe: int, error: ProviderError) -> None:
        """An attempt at the target failed."""
        if error.kind not in _OUTAGES or not self.policy.failures:
            if self.is_watched:
                self.on_answer(target)
            return
        self.is_watched = True
        circuit = self._circuit(target)
        if circuit is not None:
            if probe and circuit.end_probe(probe):
                self._open(target, probe, error)
            return
        count = self._failures.pop(target, 0) + 1
        if count < self.policy.failures:
            self._failures[target] = count
            if len(self._failures) > MAX_TARGETS:
                del self._failures[next(iter(self._failures))]
            return
        self.opened += 1
        self._open(target, 0, error)

    def release(self, target: Target, probe: int) -> None:
        """A probe ended without a result: the next call may probe."""
        circuit = self._circuit(target)
        if circuit is not None:
            circuit.end_probe(probe)

    def status(self) -> list[CircuitStatus]:
        """The circuits that are not closed."""
        now = self._calls.clock()
        known: list[CircuitStatus] = []
        for provider, host in self._hosts.items():
            for scope, circuit in host.cooldowns.items():
                target, left = Target(provider, model_of(scope) or ""), circuit.left(now)
                state: CircuitState = "open" if left else "half_open"
                known.append(CircuitStatus(target=target, state=state, seconds=left, last_error=circuit.error))
        return known

    def arrange(self, targets: Sequence[Target], order: TargetOrder, weights: Sequence[float]) -> list[Target]:
        """The targets of a route in the order in which this call asks them."""
        usable = [target for target in targets if not self.is_open(target)] if self._hosts else list(targets)
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

    def circuits_of(self, provider: str) -> HostCircuits:
        """The circuits of a provider."""
        if provider not in self._hosts:
            self._hosts[provider] = HostCircuits(self._calls, self.watch)
        return self._hosts[provider]

    def watch(self) -> None:
        """Look again at whether results of calls matter now."""
        self.is_watched = self.measures or bool(self._failures) or any(host.cooldowns for host in self._hosts.values())

    def _open(self, target: Target, probe: int, error: ProviderError) -> None:
        """Open a circuit, for longer if it failed a probe."""
        policy, host = self.policy, self.circuits_of(target.provider)
        host.extend(cooling_scope(target.model), probe, policy.seconds, policy.max_seconds).error = error

    def _circuit(self, target: Target) -> Cooldown | None:
        host = self._hosts.get(target.provider) if self._hosts else None
        return None if host is None else host.cooldowns.get(cooling_scope(target.model))


class HostCircuits(Health):
    """The circuits of one provider, by model, which processes share. `on_merge` is called when other processes add to it."""

    def __init__(self, calls: Calls, on_merge: Callable[[], None]) -> None:
        super().__init__(calls)
        self._on_merge = on_merge

    def _merge(self, remote: SharedHealth) -> None:
        super()._merge(remote)
        since = self.calls.clock() - RETENTION_SECONDS
        self.cooldowns = {scope: circuit for scope, circuit in self.cooldowns.items() if circuit.until > since}
        self._on_merge()
