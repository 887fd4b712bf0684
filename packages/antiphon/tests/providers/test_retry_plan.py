"""The steps of a call against a model of them: generated targets, keys and failures, and what the documentation promises."""

from __future__ import annotations

import re
from collections.abc import Callable
from math import inf
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import event, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from msgspec import Struct

import antiphon
from antiphon.errors import NoUsableCredential
from antiphon.http.client.request import Timeouts
from antiphon.providers.retry import RetryPolicy, Upstream
from antiphon.providers.routes import Target
from antiphon.wire.output import NOT_AN_ANSWER, ErrorKind, ProviderError
from providers.failing_calls import Clock, FailingRequest, Failure, Trace, call_in_vain
from support.examples import scaled

# The promises, in tables of their own: the plan's table may change only together with these.
ANOTHER_KEY_HELPS = {"authentication", "billing", "permission", "rate_limit"}
WAITING_HELPS = {"rate_limit", "overloaded", "server", "timeout", "conflict", "stream_cut"}
NO_TARGET_HELPS = {"invalid_request"}
ANOTHER_MODEL_HELPS = {"context_length", "too_large"}
WAITING_IS_USELESS = {"tls_failed", "redirected", "redirect_loop", "invalid_url", "total_timeout"}
MAY_BE_BILLED = {NOT_AN_ANSWER, "not_http"}
STAYED_SILENT = {"read_timeout", "first_token_timeout"}
CODES = [None, "", "other", *sorted(WAITING_IS_USELESS | MAY_BE_BILLED | STAYED_SILENT)]
LONGEST_WAIT, FIRST_DELAY, LONGEST_DELAY = 60.0, 0.5, 8.0

Refused = float | None
"""No key is free, and when the first one is; None if waiting does not help."""


class TargetCase(Struct, frozen=True):
    """One target: what it allows, and what its pool does each time a key is requested (the last outcome is repeated)."""

    model: str
    has_keys: bool
    retries: int
    rotations: int
    total: float | None
    outcomes: tuple[Refused | str, ...]
    free_in: float


class FailureCase(Struct, frozen=True):
    """How an attempt fails, and how long it took."""

    kind: ErrorKind
    code: str | None
    retry_after: float | None
    advice: str | None
    seconds: float

    @property
    def error(self) -> ProviderError:
        return ProviderError("failed", self.kind, code=self.code, retry_after=self.retry_after)


class Lease(str):
    """A lease that is only the name of its key."""

    def release(self) -> None:
        """Nothing is held."""


class ScriptedPool:
    """Gives keys as its case says, and counts."""

    def __init__(self, case: TargetCase) -> None:
        self._case = case
        self.requests = 0

    def acquire(self, model: str, *, in_order: bool = False, preferred: str = "") -> Any:
        assert model == self._case.model
        outcome = outcome_of(self._case, self.requests)
        self.requests += 1
        if isinstance(outcome, str):
            return Lease(outcome)
        raise NoUsableCredential("no usable key", outcome, "rate_limit")

    def retry_after(self, model: str) -> float:
        assert model == self._case.model
        return self._case.free_in


def outcome_of(case: TargetCase, request: int) -> Refused | str:
    return case.outcomes[min(request, len(case.outcomes) - 1)]


SECONDS = st.sampled_from([0.25, 1.0, 3.0, 59.0, 61.0])
OUTCOMES = st.lists(st.one_of(st.sampled_from(["key one", "key two"]), st.none(), SECONDS), min_size=1, max_size=6).map(
    tuple
)
TARGETS = st.lists(
    st.builds(
        TargetCase,
        model=st.sampled_from(["small", "large"]),
        has_keys=st.sampled_from([True, True, False]),
        retries=st.integers(0, 3),
        rotations=st.integers(0, 3),
        total=st.sampled_from([None, None, 0.5, 1.5, 30.0]),
        outcomes=OUTCOMES,
        free_in=st.sampled_from([0.0, 2.0, 7.0, inf]),
    ),
    min_size=1,
    max_size=4,
)
FAILURES = st.lists(
    st.builds(
        FailureCase,
        kind=st.sampled_from([*get_args(ErrorKind), *["rate_limit"] * 8, *["server"] * 4]),
        code=st.sampled_from([*CODES, *[None] * 8]),
        retry_after=st.none() | SECONDS,
        advice=st.sampled_from([None, None, None, "true", "false", "perhaps"]),
        seconds=st.sampled_from([0.0, 0.1, 2.0]),
    ),
    min_size=1,
    max_size=30,
)


class PlanModel:
    """What the plan has to do, as the documentation states it: one target after the other, each with its own budgets."""

    def __init__(self, cases: list[TargetCase]) -> None:
        self._cases = cases
        self._left = list(range(len(cases)))  # targets that may still be tried, the current one first
        self._tried: list[int] = []
        self._now = 0.0

    @property
    def index(self) -> int:
        return self._left[0]

    def passes(self, seconds: float) -> None:
        self._now += seconds

    def begin(self) -> tuple[str, object]:
        self._begun_at = self._now
        self._retries_left = self._cases[self.index].retries
        self._rotations_left = self._cases[self.index].rotations
        self._keys_requested = 0
        self._tried.append(self.index)
        return self.request_key()

    def request_key(self) -> tuple[str, object]:
        case = self._cases[self.index]
        if not case.has_keys:
            return "send", None
        outcome = self._next_outcome()
        if isinstance(outcome, str):
            return "send", outcome
        return self._later_or_elsewhere("rate_limit", "no_usable_credential", None, outcome)

    def fails(self, failure: FailureCase) -> tuple[str, object]:
        case, wait = self._cases[self.index], failure.retry_after
        if case.has_keys and failure.kind in ANOTHER_KEY_HELPS and self._rotations_left:
            outcome = self._next_outcome()
            if isinstance(outcome, str):
                self._rotations_left -= 1
                return "send", outcome
            known = [seconds for seconds in (wait, outcome) if seconds]
            wait = max(known) if known else None
        return self._later_or_elsewhere(failure.kind, failure.code, failure.advice, wait)

    def _next_outcome(self) -> Refused | str:
        self._keys_requested += 1
        return outcome_of(self._cases[self.index], self._keys_requested - 1)

    def _later_or_elsewhere(
        self, kind: str, code: str | None, advice: str | None, wait: float | None
    ) -> tuple[str, object]:
        case = self._cases[self.index]
        failed, *others = self._left
        if kind in NO_TARGET_HELPS:
            others = []
        if kind in ANOTHER_MODEL_HELPS:
            others = [other for other in others if self._cases[other].model != self._cases[failed].model]
        if code in MAY_BE_BILLED or (code in STAYED_SILENT and others):
            helps = False
        elif advice in ("true", "false"):
            helps = advice == "true"
        else:
            helps = kind in WAITING_HELPS and code not in WAITING_IS_USELESS
        if helps and self._retries_left:
            number = case.retries - self._retries_left
            jitter = min(LONGEST_DELAY, FIRST_DELAY * 2**number)  # the whole of it: the fraction is 1
            delay = jitter if wait is None else wait + min(jitter, FIRST_DELAY)
            fits = case.total is None or delay < max(0.001, self._begun_at + case.total - self._now)
            if fits and (wait is None or wait <= LONGEST_WAIT):
                self._retries_left -= 1
                return "wait", delay
        if others:
            self._left = others
            return "next", others[0]
        return "give up", self._expected_wait(kind, wait if code == "no_usable_credential" else None)

    def _expected_wait(self, kind: str, own: float | None) -> object:
        """The wait in the error: until the first key of any tried target is free."""
        if kind != "rate_limit" or not any(self._cases[index].has_keys for index in self._tried):
            return "as it was"
        waits = [self._cases[index].free_in for index in self._tried if self._cases[index].has_keys]
        if not self._cases[self.index].has_keys:
            return "own or", waits
        return None if min(waits) in (0.0, inf) else min(waits)


@hypothesis_settings(max_examples=scaled(40))
@given(TARGETS, FAILURES)
def test_every_step_is_the_one_of_the_model(cases: list[TargetCase], failures: list[FailureCase]) -> None:
    clock = Clock()
    trace: Trace = []
    targets = [Target(f"provider-{number}", case.model) for number, case in enumerate(cases)]
    queue = list(failures)

    def next_failure() -> Failure:
        failure = queue.pop(0) if len(queue) > 1 else queue[0]
        trace.append(("failure", failure))
        return failure.error, failure.advice, failure.seconds

    def upstream(case: TargetCase) -> Upstream:
        policy = RetryPolicy(
            retries=case.retries,
            rotations=case.rotations,
            first_delay=FIRST_DELAY,
            longest_delay=LONGEST_DELAY,
            longest_wait=LONGEST_WAIT,
        )
        pool: Any = ScriptedPool(case) if case.has_keys else None
        return Upstream(retry=policy, keys=pool, timeouts=Timeouts(total=case.total), clock=clock, fraction=lambda: 1.0)

    call_in_vain(targets, [FailingRequest(upstream(case), clock, next_failure, trace) for case in cases], trace)
    model = PlanModel(cases)
    steps, begun, sent, last = iter(trace), [0], 0, None
    assert next(steps) == ("next", 0)
    expected = model.begin()
    for kind, value in steps:
        if kind == "failure":
            last = value.error
            model.passes(value.seconds)
            expected = model.fails(value)
            continue
        assert kind == expected[0]
        if kind == "send":
            assert value == expected[1]
            sent += 1
        elif kind == "wait":
            assert value == pytest.approx(expected[1])
            model.passes(value)
            last, expected = None, model.request_key()
        elif kind == "next":
            assert value == expected[1]
            begun.append(value)
            last, expected = None, model.begin()
    event(f"{len(begun)} targets, {sent} requests")
    assert (kind, begun) == ("give up", sorted(set(begun)))
    expected_wait = expected[1]
    if expected_wait == "as it was":
        assert last is None or value == last
    elif isinstance(expected_wait, tuple):
        assert last is not None
        waits = [*expected_wait[1], last.retry_after or 0.0]
        assert value.retry_after == (None if min(waits) in (0.0, inf) else min(waits))
    else:
        assert value.retry_after == expected_wait
    assert sent <= sum(1 + case.retries + case.rotations for case in cases)


DOWN = ProviderError("down", "server")


def steps_of(*failures: ProviderError, retries: int = 0, targets: int = 3, **options: Any) -> Trace:
    """The steps of a call whose attempts fail so; the last failure is repeated."""
    clock, queue = Clock(), list(failures)
    trace: Trace = []

    def next_failure() -> Failure:
        return queue.pop(0) if len(queue) > 1 else queue[0], None, 0.0

    upstream = Upstream(retry=RetryPolicy(retries=retries), fraction=lambda: 1.0)
    request = FailingRequest(upstream, clock, next_failure, trace)
    called = [Target("mine", "m"), Target("yours", "m"), Target("yours", "other")][:targets]
    call_in_vain(called, [options.pop(f"target_{number}", request) for number in range(targets)], trace, **options)
    return trace


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("server", ("next", 1)),
        ("not_found", ("next", 1)),
        ("context_length", ("next", 2)),
        ("too_large", ("next", 2)),
        ("invalid_request", ("give up", ProviderError("no", "invalid_request"))),
    ],
)
def test_which_target_is_next(kind: ErrorKind, expected: tuple[str, object]) -> None:
    assert steps_of(ProviderError("no", kind))[:3] == [("next", 0), ("send", None), expected]


def test_a_rewritten_request_begins_again() -> None:
    """Its budgets are those of a new request: the refusal of the first body says nothing about the second."""
    trace: Trace = []
    upstream = Upstream(retry=RetryPolicy(retries=1), fraction=lambda: 1.0)
    refused = ProviderError("unknown parameter", "invalid_request")
    failures = [DOWN, refused, DOWN]

    def next_failure() -> Failure:
        return failures.pop(0) if len(failures) > 1 else failures[0], None, 0.0

    request, rewritten = (FailingRequest(upstream, Clock(), next_failure, trace) for _ in range(2))

    async def rewrite(_: Target, error: ProviderError) -> FailingRequest | None:
        return rewritten if error == refused else None

    assert call_in_vain([Target("mine", "m")], [request], trace, rewrite=rewrite) == DOWN
    attempts = [("send", None), ("wait", 0.5), ("send", None)]
    assert trace == [("next", 0), *attempts, *attempts, ("give up", DOWN)]


def test_a_target_that_cannot_take_the_request_is_skipped() -> None:
    unsuitable = ProviderError("cannot take it", "invalid_request")
    steps = steps_of(DOWN, target_0=unsuitable, target_2=unsuitable)
    assert steps == [("next", 0), ("next", 1), ("send", None), ("next", 2), ("give up", DOWN)]
    assert steps_of(DOWN, targets=1, target_0=unsuitable) == [("next", 0), ("give up", unsuitable)]


def lines_with(pattern: str) -> list[str]:
    source = Path(antiphon.__file__).parent
    found: Callable[[str], Any] = re.compile(pattern).search
    return [
        module.relative_to(source).as_posix()
        for folder in ("providers", "gateway")
        for module in sorted((source / folder).rglob("*.py"))
        for line in module.read_text().splitlines()
        if found(line)
    ]


def test_only_the_call_and_its_plan_take_keys() -> None:
    assert set(lines_with(r"keys\.acquire\(")) == {"providers/retry.py", "providers/engine/provider_call.py"}


def test_a_silent_target_is_not_asked_again_while_another_one_is_left() -> None:
    silent = ProviderError("no output", "timeout", code="first_token_timeout")
    steps = steps_of(silent, retries=1, targets=2)
    assert [kind for kind, _ in steps] == ["next", "send", "next", "send", "wait", "send", "give up"]
