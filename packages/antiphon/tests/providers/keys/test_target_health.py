"""Circuits open, are probed and close; processes agree about them; and targets are asked in the order of their route."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from antiphon.errors import RoutingError
from antiphon.providers.keys.health import MAX_COOLDOWNS
from antiphon.providers.keys.target_health import MAX_TARGETS, CircuitPolicy, TargetHealth
from antiphon.providers.routes import Route, RouteTable, Target
from antiphon.wire.output import ErrorKind, ProviderError

A, B = Target("one", "a"), Target("two", "b")
DOWN = ProviderError("down", "server")
POLICY = CircuitPolicy(failures=3, seconds=5.0, max_seconds=15.0)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def opened(clock: Clock | None = None) -> tuple[TargetHealth, Clock]:
    clock = clock or Clock()
    health = TargetHealth(POLICY, clock=clock)
    for _ in range(POLICY.failures):
        assert not health.is_open(A)
        health.on_failure(A, 0, DOWN)
    return health, clock


def test_circuit_opens_after_failures_in_a_row() -> None:
    health, _ = opened()
    assert health.is_open(A)
    assert not health.is_open(B)
    (status,) = health.status()
    assert (status.target, status.state, status.seconds, status.last_error) == (A, "open", 5.0, DOWN)


@pytest.mark.parametrize("kind", ["rate_limit", "authentication", "invalid_request", "context_length", "not_found"])
def test_refusals_do_not_count(kind: ErrorKind) -> None:
    health = TargetHealth(POLICY)
    for _ in range(10):
        health.on_failure(A, 0, ProviderError("no", kind))
    assert not health.is_watched


def test_an_answer_between_failures_begins_the_count_again() -> None:
    health = TargetHealth(POLICY)
    for _ in range(5):
        health.on_failure(A, 0, DOWN)
        health.on_failure(A, 0, DOWN)
        health.on_answer(A)
    assert not health.is_open(A)
    assert not health.is_watched  # nothing is stored about a target that answers


def test_probes_double_the_time_until_one_succeeds() -> None:
    health, clock = opened()
    waits = []
    for _ in range(4):
        assert health.begin(A) == 0  # too early
        (status,) = health.status()
        waits.append(status.seconds)
        clock.now += status.seconds
        probe = health.begin(A)
        assert probe
        assert health.is_open(A)  # for every other call, while one probes
        assert health.begin(A) == 0
        health.on_failure(A, probe, DOWN)
    assert waits == [5.0, 10.0, 15.0, 15.0]
    clock.now += 15.0
    assert health.begin(A)
    health.on_answer(A)
    assert not health.status()


def test_probe_without_a_result_is_released() -> None:
    health, clock = opened()
    clock.now += 5.0
    probe = health.begin(A)
    health.release(A, probe)
    assert health.begin(A)


def test_open_circuit_is_ignored_if_no_other_target_is_better() -> None:
    health, _ = opened()
    assert health.should_skip(A, [B])
    assert not health.should_skip(A, [])
    for _ in range(POLICY.failures):
        health.on_failure(B, 0, DOWN)
    assert not health.should_skip(A, [B])


def test_zero_failures_turn_it_off() -> None:
    health = TargetHealth(CircuitPolicy(failures=0))
    for _ in range(10):
        health.on_failure(A, 0, DOWN)
    assert not health.is_open(A)


def exchange(source: TargetHealth, *others: TargetHealth) -> None:
    for other in others:
        other.circuits_of("one").merge(source.circuits_of("one").export())


def test_processes_share_open_and_closed_circuits() -> None:
    first, clock = opened()
    second = TargetHealth(POLICY, clock=clock)
    exchange(first, second)
    assert second.is_open(A)
    clock.now += 5.0
    probe = second.begin(A)
    assert probe
    second.on_answer(A)
    exchange(second, first)
    assert not first.status()
    exchange(first, second)  # what was closed is not opened again
    assert not second.status()


def test_a_probe_that_fails_elsewhere_counts_here() -> None:
    first, clock = opened()
    second = TargetHealth(POLICY, clock=clock)
    exchange(first, second)
    clock.now += 5.0
    second.on_failure(A, second.begin(A), DOWN)
    exchange(second, first)
    (status,) = first.status()
    assert (status.state, status.seconds) == ("open", 10.0)


def table(health: TargetHealth, route: Route) -> RouteTable:
    return RouteTable([route], {}, ["three/c"], lambda: {"one": (), "two": (), "three": ()}, arrange=health.arrange)


def test_weights_share_the_calls() -> None:
    health = TargetHealth(chance=random.Random(7))
    routes = table(health, Route("m", ["one/a", "two/b"], "weighted", [3, 1]))
    orders = Counter(tuple(map(str, routes.resolve("m"))) for _ in range(1000))
    assert set(orders) == {("one/a", "two/b", "three/c"), ("two/b", "one/a", "three/c")}
    assert 700 < orders["one/a", "two/b", "three/c"] < 800


def test_weighted_order_asks_no_target_whose_circuit_is_open() -> None:
    health, _ = opened()
    routes = table(health, Route("m", ["one/a", "two/b", "three/c"], "weighted", [1000, 1, 0]))
    assert {routes.resolve("m")[0] for _ in range(50)} == {B}


def test_measured_times_are_bounded() -> None:
    health = TargetHealth(measures=True)
    for number in range(MAX_TARGETS + 10):
        health.on_answer(Target("one", f"model-{number}"), 0.1)
    assert len(health._seconds) == MAX_TARGETS


def test_open_circuits_are_bounded() -> None:
    health = TargetHealth(CircuitPolicy(failures=1, seconds=1000.0, max_seconds=1000.0))
    for number in range(2 * MAX_COOLDOWNS):
        health.on_failure(Target("one", f"model-{number}"), 0, DOWN)
    assert len(health.status()) == MAX_COOLDOWNS
    assert {circuit.last_error for circuit in health.status()} == {DOWN}


def test_fastest_target_is_asked_first_after_each_was_measured() -> None:
    health = TargetHealth(measures=True, chance=random.Random(7))
    routes = table(health, Route("m", ["one/a", "two/b"], "fastest"))
    health.on_answer(A, 0.9)
    assert routes.resolve("m")[0] == B  # not measured yet
    health.on_answer(B, 0.2)
    firsts = Counter(routes.resolve("m")[0] for _ in range(400))
    assert firsts[B] > 350
    assert firsts[A]  # it is still measured now and then
    for _ in range(20):
        health.on_answer(B, 3.0)
    assert Counter(routes.resolve("m")[0] for _ in range(400))[A] > 350


def test_each_target_needs_a_weight() -> None:
    with pytest.raises(RoutingError, match="2 targets and 1 weights; give each target a weight"):
        Route("m", ["one/a", "two/b"], "weighted", [1])
