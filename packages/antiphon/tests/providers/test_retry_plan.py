"""`RetryPlan` against a model of it: generated targets, keys and failures, and what the documentation promises for each step."""

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
from antiphon.providers.retry import (
    GiveUp,
    NextTarget,
    RetryPlan,
    RetryPolicy,
    RetrySettings,
    Send,
    Step,
    Wait,
)
from antiphon.providers.routes import Target
from antiphon.wire.output import NOT_AN_ANSWER, ErrorKind, ProviderError
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
            return outcome
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


def shape(step: Step, targets: list[Target]) -> tuple[str, object]:
    if isinstance(step, Send):
        return "send", step.lease
    if isinstance(step, Wait):
        return "wait", pytest.approx(step.seconds)
    if isinstance(step, NextTarget):
        return "next", targets.index(step.target)
    return "give up", step.error.retry_after


@hypothesis_settings(max_examples=scaled(40))
@given(TARGETS, FAILURES)
def test_every_step_is_the_one_of_the_model(cases: list[TargetCase], failures: list[FailureCase]) -> None:
    now = [0.0]
    targets = [Target(f"provider-{number}", case.model) for number, case in enumerate(cases)]
    pools = [ScriptedPool(case) for case in cases]
    model, plan = PlanModel(cases), RetryPlan(targets)

    def settings(number: int) -> RetrySettings:
        case = cases[number]
        policy = RetryPolicy(
            retries=case.retries,
            rotations=case.rotations,
            first_delay=FIRST_DELAY,
            longest_delay=LONGEST_DELAY,
            longest_wait=LONGEST_WAIT,
        )
        pool: Any = pools[number] if case.has_keys else None
        return RetrySettings(policy=policy, keys=pool, total=case.total, clock=lambda: now[0], fraction=lambda: 1.0)

    def passes(seconds: float) -> None:
        now[0] += seconds
        model.passes(seconds)

    sent = [0] * len(cases)
    begun: list[int] = []
    step: Step = plan.first()
    assert step == NextTarget(targets[0])
    last: ProviderError | None = None
    queue = list(failures)
    while not isinstance(step, GiveUp):
        if isinstance(step, NextTarget):
            number = targets.index(step.target)
            assert number not in begun
            begun.append(number)
            expected, step = model.begin(), plan.begin(settings(number))
            last = None
        elif isinstance(step, Wait):
            passes(step.seconds)
            expected, step = model.request_key(), plan.resume()
            last = None
        else:
            sent[begun[-1]] += 1
            failure = queue.pop(0) if len(queue) > 1 else queue[0]
            passes(failure.seconds)
            last = failure.error
            expected, step = model.fails(failure), plan.after(last, should_retry=failure.advice)
        if expected[0] != "give up":
            assert shape(step, targets) == expected
    assert expected[0] == "give up"
    event(f"{len(begun)} targets, {sum(sent)} requests")
    expected_wait = expected[1]
    if expected_wait == "as it was":
        assert last is None or step.error == last
    elif isinstance(expected_wait, tuple):
        assert last is not None
        waits = [*expected_wait[1], last.retry_after or 0.0]
        assert step.error.retry_after == (None if min(waits) in (0.0, inf) else min(waits))
    else:
        assert step.error.retry_after == expected_wait
    for case, count in zip(cases, sent, strict=True):
        assert count <= 1 + case.retries + case.rotations
    assert begun == sorted(begun)


def one_target(**changes: Any) -> tuple[RetryPlan, RetrySettings]:
    plan = RetryPlan([Target("mine", "m"), Target("yours", "m"), Target("yours", "other")])
    return plan, RetrySettings(policy=RetryPolicy(retries=0), **changes)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("server", NextTarget(Target("yours", "m"))),
        ("not_found", NextTarget(Target("yours", "m"))),
        ("context_length", NextTarget(Target("yours", "other"))),
        ("too_large", NextTarget(Target("yours", "other"))),
        ("invalid_request", GiveUp(ProviderError("no", "invalid_request"))),
    ],
)
def test_which_target_is_next(kind: ErrorKind, expected: Step) -> None:
    plan, settings = one_target()
    assert plan.begin(settings) == Send(None)
    assert plan.after(ProviderError("no", kind)) == expected


def test_a_rewritten_request_begins_again() -> None:
    """Its budgets are those of a new request: the refusal of the first body says nothing about the second."""
    plan = RetryPlan([Target("mine", "m")])
    settings = RetrySettings(policy=RetryPolicy(retries=1), fraction=lambda: 1.0)
    down = ProviderError("down", "server")
    for _ in range(2):
        assert plan.begin(settings) == Send(None)
        assert plan.after(down) == Wait(0.5, down)
        assert plan.resume() == Send(None)
    assert plan.after(down) == GiveUp(down)


def test_a_target_that_cannot_take_the_request_is_skipped() -> None:
    plan, settings = one_target()
    unsuitable, down = ProviderError("cannot take it", "invalid_request"), ProviderError("down", "server")
    assert plan.skip(unsuitable) == NextTarget(Target("yours", "m"))
    assert plan.begin(settings) == Send(None)
    assert plan.after(down) == NextTarget(Target("yours", "other"))
    assert plan.skip(unsuitable) == GiveUp(down)  # the failure of the one that was tried
    assert RetryPlan([Target("mine", "m")]).skip(unsuitable) == GiveUp(unsuitable)


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


def test_only_the_plan_takes_keys_and_chooses_targets() -> None:
    assert set(lines_with(r"keys\.acquire\(")) == {"providers/retry.py", "providers/engine/provider_call.py"}
    assert set(lines_with(r"fallback_targets\(")) == {"providers/retry.py"}
    assert set(lines_with(r"RetryPlan\(")) == {"providers/engine/provider_call.py"}


def test_a_silent_target_is_not_asked_again_while_another_one_is_left() -> None:
    silent = ProviderError("no output", "timeout", code="first_token_timeout")
    plan = RetryPlan([Target("mine", "m"), Target("yours", "m")])
    settings = RetrySettings(policy=RetryPolicy(retries=2), fraction=lambda: 1.0)
    plan.begin(settings)
    assert plan.after(silent) == NextTarget(Target("yours", "m"))
    plan.begin(settings)
    assert plan.after(silent) == Wait(0.5, silent)
