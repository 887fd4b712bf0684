"""The verdicts of `bench.failover.scenarios`: each rule can fail a gateway."""

from __future__ import annotations

import pytest
from bench.failover.faulty_provider import ANSWER, HEALTHY, LoggedRequest, Times
from bench.failover.scenarios import SCENARIOS, ClientResult, Observation, judge

WHOLE = ClientResult(text=ANSWER, model=HEALTHY, usage={"total_tokens": 1}, seconds=1.0)
ERROR = ClientResult(outcome="error", error="HTTP 503", seconds=1.0)
HALF = ClientResult(text=ANSWER[:100], seconds=1.0)
HANG = ClientResult(outcome="hang")


def verdict(scenario: str, got: ClientResult, *primary: float, is_alive: bool = True) -> str:
    found = next(each for each in SCENARIOS if each.id == scenario)
    attempts = [LoggedRequest(at, found.model, "answer") for at in primary or (0.0,)]
    times = Times()
    sequence = [(0.0, got), (times.outage + 1, got)] if found.fault == "down" else []
    seen = Observation(times=times, got=got, primary=attempts, fallback=[], is_alive=is_alive, sequence=sequence)
    return judge(found, seen).verdict


@pytest.mark.parametrize(
    ("scenario", "got", "primary", "expected"),
    [
        ("S01", WHOLE, (0.0, 2.0), "pass"),
        ("S01", WHOLE, (0.0, 0.5), "partial"),
        ("S01", WHOLE, (0.0, 0.1, 0.2), "fail"),
        ("S02", ERROR, (0.0, 1.0), "safe"),
        ("S04", WHOLE, tuple(map(float, range(7))), "fail"),
        ("S06", WHOLE, (0.0, 30.0), "partial"),
        ("S06", ClientResult(text=ANSWER, seconds=101.0), (0.0,), "fail"),
        ("S07", ClientResult(text=ANSWER, seconds=21.0), (0.0,), "partial"),
        ("S08", HALF, (0.0,), "fail"),
        ("S08", HANG, (0.0,), "fail"),
        ("S12", WHOLE, (0.0, 1.0), "fail"),
        ("S13", ERROR, (0.0,), "pass"),
        ("S13", WHOLE, (0.0,), "partial"),
        ("S15", WHOLE, (70.0,), "pass"),
        ("S15", WHOLE, (95.0,), "fail"),
        ("S16", WHOLE, (0.0,), "pass"),
        ("S16", ClientResult(text=ANSWER, model="s16-overloaded", usage={"total_tokens": 1}), (0.0,), "fail"),
    ],
)
def test_verdict_follows_the_rules(scenario: str, got: ClientResult, primary: tuple[float, ...], expected: str) -> None:
    assert verdict(scenario, got, *primary) == expected


def test_gateway_that_is_dead_afterwards_fails() -> None:
    assert verdict("S09", WHOLE, 0.0, is_alive=False) == "fail"
