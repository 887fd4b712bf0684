"""`ProviderCall`: every step is performed, every attempt recorded, and nothing is sent again once a reply is an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from antiphon.providers.call import Attempt, CallReport
from antiphon.providers.engine.provider_call import ProviderCall
from antiphon.providers.engine.reply import EMPTY_RESPONSE, Outcome, Reply, UpstreamFailed, WholeReply
from antiphon.providers.keys.ring import KeyLease, KeyRing
from antiphon.providers.keys.target_health import CircuitPolicy, TargetHealth
from antiphon.providers.retry import RetryPolicy, Upstream
from antiphon.providers.routes import Target
from antiphon.wire.output import ProviderError

FIRST, SECOND = Target("first", "m"), Target("second", "m")
DOWN = ProviderError("down", "server")
REFUSED = ProviderError("unknown parameter", "invalid_request")
LIMITED = ProviderError("slow down", "rate_limit")


class ClosableReply(WholeReply):
    """A reply that knows whether it was closed."""

    is_closed: bool = False

    async def aclose(self) -> None:
        self.is_closed = True


def answer() -> ClosableReply:
    return ClosableReply(b"{}")


class ScriptedTarget:
    """A prepared request that plays outcomes: a reply, an error, or a reply that is judged to be an error."""

    streams = is_repeatable = True
    takes_keys_in_order = False
    preferred_key = ""

    def __init__(self, name: str, *outcomes: Any, pool: KeyRing | None = None, retries: int = 0) -> None:
        self.name = name
        self.outcomes = list(outcomes)
        self.slept: list[float] = []
        self.closed = 0
        self.provider = Upstream(retry=RetryPolicy(retries=retries), keys=pool, fraction=lambda: 1.0, sleep=self._sleep)

    async def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)

    def attempt(self, lease: KeyLease | None, time_left: float | None, report: CallReport) -> ScriptedAttempt:
        return ScriptedAttempt(self, lease, report)


class ScriptedAttempt:
    should_retry = None

    def __init__(self, target: ScriptedTarget, lease: KeyLease | None, report: CallReport) -> None:
        self._target = target
        self._lease = lease
        self._report = report

    async def run(self) -> Outcome:
        outcome = self._target.outcomes.pop(0)
        if isinstance(outcome, ProviderError):
            return None, outcome
        if isinstance(outcome, asyncio.Event):
            outcome.set()
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                self.close()
                raise
        assert isinstance(outcome, WholeReply)
        return outcome, outcome.content

    def succeeded(self, reply: Reply) -> None:
        if self._lease is not None:
            self._lease.succeeded()
        self._report.attempts.append(Attempt(provider=self._target.name))

    def failed(self, error: ProviderError) -> ProviderError:
        if self._lease is not None:
            self._lease.failed(error)
        self._report.attempts.append(Attempt(provider=self._target.name, error=error))
        return error

    def close(self) -> None:
        self._target.closed += 1
        if self._lease is not None:
            self._lease.release()


def call(*targets: ScriptedTarget, **options: Any) -> tuple[ProviderCall, CallReport]:
    by_name = {target.name: target for target in targets}
    report = CallReport()

    async def prepare(target: Target) -> ScriptedTarget:
        return by_name[target.provider]

    return ProviderCall([Target(target.name, "m") for target in targets], prepare, report, **options), report


def judged(error: ProviderError) -> ClosableReply:
    """A reply that is found not to be an answer."""
    return ClosableReply(b"{}", error)


def test_steps_are_performed_until_a_target_answers() -> None:
    expected = answer()
    first, second = (
        ScriptedTarget("first", DOWN, DOWN, DOWN, retries=2),
        ScriptedTarget("second", DOWN, expected, retries=1),
    )
    this, report = call(first, second)
    assert asyncio.run(this.reply()) is expected
    assert (first.slept, second.slept) == ([0.5, 1.0], [0.5])
    assert [(made.provider, made.error) for made in report.attempts] == [
        *[("first", DOWN)] * 3,
        ("second", DOWN),
        ("second", None),
    ]


def test_a_reply_that_is_not_an_answer_is_closed_and_fails_over() -> None:
    unreadable = judged(ProviderError("not JSON", "server", code="not_an_answer"))
    this, report = call(ScriptedTarget("first", unreadable), ScriptedTarget("second", answer()))
    asyncio.run(this.reply())
    assert unreadable.is_closed
    assert [made.error is None for made in report.attempts] == [False, True]


def test_the_last_error_is_raised_if_no_target_answers() -> None:
    last = ProviderError("also down", "overloaded")
    this, _ = call(ScriptedTarget("first", DOWN), ScriptedTarget("second", last))
    with pytest.raises(UpstreamFailed, match="also down"):
        asyncio.run(this.reply())


@pytest.mark.parametrize("accepts_empty", [False, True])
def test_an_empty_answer_of_the_last_target(accepts_empty: bool) -> None:
    """The library takes it as it came, the gateway does not; before that other targets are tried in both cases."""
    empties = [judged(EMPTY_RESPONSE), judged(EMPTY_RESPONSE)]
    targets = [ScriptedTarget(name, empty) for name, empty in zip(("first", "second"), empties, strict=True)]
    this, report = call(*targets, accepts_empty=accepts_empty)
    if accepts_empty:
        assert asyncio.run(this.reply()) is empties[1]
        assert [made.error for made in report.attempts] == [EMPTY_RESPONSE, None]
    else:
        with pytest.raises(UpstreamFailed, match="empty"):
            asyncio.run(this.reply())
    assert [empty.is_closed for empty in empties] == [True, not accepts_empty]


def test_a_refused_request_is_rewritten_once() -> None:
    first, changed = ScriptedTarget("first", REFUSED), ScriptedTarget("first", REFUSED)
    changes = [changed]

    async def rewrite(target: Target, error: ProviderError) -> ScriptedTarget | None:
        assert (target, error) == (FIRST, REFUSED)
        return changes.pop() if changes else None

    this, report = call(first, ScriptedTarget("second", answer()), rewrite=rewrite)
    with pytest.raises(UpstreamFailed, match="unknown parameter"):  # it is the request that is wrong: no target helps
        asyncio.run(this.reply())
    assert len(report.attempts) == 2


def test_a_target_that_cannot_be_prepared_is_skipped() -> None:
    expected = answer()

    async def prepare(target: Target) -> ScriptedTarget:
        if target == FIRST:
            raise UpstreamFailed(REFUSED)
        return ScriptedTarget("second", expected)

    report = CallReport()
    assert asyncio.run(ProviderCall([FIRST, SECOND], prepare, report).reply()) is expected
    assert [made.provider for made in report.attempts] == ["second"]


def test_another_key_is_used_at_once_and_a_success_is_reported() -> None:
    pool = KeyRing(["sk-first-key-000000aaaa", "sk-second-key-00000bbbb"])
    first = ScriptedTarget("first", LIMITED, answer(), pool=pool)
    this, _ = call(first)
    asyncio.run(this.reply())
    assert first.slept == []
    assert [(key.successes, key.failures) for key in pool.status()] == [(0, 1), (1, 0)]


def test_a_cancelled_attempt_releases_its_key() -> None:
    pool = KeyRing(["sk-first-key-000000aaaa"])
    started = asyncio.Event()
    first = ScriptedTarget("first", started, pool=pool)
    this, _ = call(first)

    async def leave() -> None:
        task = asyncio.ensure_future(this.reply())
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(leave())
    assert first.closed == 1


def half_open(clock: Callable[[], float]) -> TargetHealth:
    """The circuit of the first target has just opened, for no time: the next call probes it."""
    health = TargetHealth(CircuitPolicy(failures=1, seconds=0.0, max_seconds=0.0), clock=clock)
    health.on_failure(FIRST, 0, DOWN)
    return health


def keyless_ring() -> KeyRing:
    """A ring whose only key is not usable for a minute."""
    ring = KeyRing(["sk-first-key-000000aaaa"])
    ring.acquire("m").failed(ProviderError("slow down", "rate_limit", retry_after=60.0))
    return ring


def test_a_target_without_a_usable_key_is_not_taken_for_probed() -> None:
    health = half_open(lambda: 100.0)
    this, _ = call(ScriptedTarget("first", pool=keyless_ring()), ScriptedTarget("second", answer()), health=health)
    asyncio.run(this.reply())
    assert health.begin(FIRST)


def test_a_call_that_is_left_while_it_waits_for_a_key_probes_nothing() -> None:
    health, waits = half_open(lambda: 100.0), asyncio.Event()
    first = ScriptedTarget("first", pool=keyless_ring(), retries=1)

    async def wait(seconds: float) -> None:
        waits.set()
        await asyncio.sleep(seconds)

    first.provider.sleep = wait
    this, _ = call(first, health=health)

    async def leave() -> None:
        task = asyncio.ensure_future(this.reply())
        await waits.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(leave())
    assert health.begin(FIRST)


def test_a_call_waits_a_moment_for_the_probe_of_its_only_key() -> None:
    """It failed at once: the wait was that until a probe counts as lost, ten minutes."""
    now = [0.0]
    ring = KeyRing(["sk-first-key-000000aaaa"], clock=lambda: now[0])
    ring.acquire("m").failed(ProviderError("slow down", "rate_limit", retry_after=1.0))
    now[0] = 2.0
    probe = ring.acquire("m")
    assert probe.is_probe
    target = ScriptedTarget("first", answer(), pool=ring, retries=1)

    async def wait(seconds: float) -> None:
        target.slept.append(seconds)
        probe.succeeded()

    target.provider.sleep = wait
    asyncio.run(call(target)[0].reply())
    assert target.slept == [pytest.approx(1.5)]


def test_a_key_is_given_back_if_its_attempt_cannot_begin() -> None:
    """As if the ledger broke when the attempt was to be noted."""
    now = [0.0]
    ring = KeyRing(["sk-first-key-000000aaaa"], clock=lambda: now[0])
    ring.acquire("m").failed(ProviderError("slow down", "rate_limit", retry_after=1.0))
    now[0] = 2.0  # half-open: the next call is its probe

    def note(report: CallReport, target: Target, lease: KeyLease | None) -> None:
        raise OSError("disk full")

    this, _ = call(ScriptedTarget("first", answer(), pool=ring), on_send=note)
    with pytest.raises(OSError, match="disk full"):
        asyncio.run(this.reply())
    assert ring.acquire("m").is_probe
