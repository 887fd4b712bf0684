"""What a worker does after a failure: retries with backoff, and when a run fails."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence

import pytest

from antiphon.conversation import Conversation, ToolLoop
from antiphon.history import AgentHistory, ContextEntry, Run
from antiphon.providers.call import ProviderCallOptions
from antiphon.providers.scripted import FunctionModel, ScriptedAnswer, call
from antiphon.runs import RunRegistry, RunRetryPolicy, Runs
from antiphon.runs.worker import _SHORTEST_POLL
from antiphon.wire.output import ErrorKind, ProviderError
from runs.worker_helpers import counted_claims, play, saying, worker_of, working
from runs.workers import Place
from support.planned_turns import World
from support.waiting import until_async


@pytest.mark.parametrize(
    ("kind", "state"),
    [
        ("rate_limit", "waiting"),
        ("overloaded", "waiting"),
        ("server", "waiting"),
        ("timeout", "waiting"),
        ("authentication", "failed"),
        ("invalid_request", "failed"),
        ("context_length", "failed"),
    ],
)
def test_transient_errors_are_retried_and_others_fail(place: Place, kind: ErrorKind, state: str) -> None:
    with place.open() as store:
        run = Runs(store).submit("Hello?")
        play(store, saying(ProviderError("not now", kind, retry_after=100)))
        known = store.runs.get(run.id)
        assert known.state == state
        assert "not now" in known.reason
        if state == "waiting":
            assert 10 < (known.due - known.updated).total_seconds() < 102  # less, the longer settling it took
        else:
            again = Runs(store).retry(run.id)
            assert again.state == "waiting"
            play(store, saying("Now."))
            assert store.runs.get(run.id).state == "done"


def test_worker_backs_off_on_429(place: Place) -> None:
    storm = ProviderError("too many requests", "rate_limit", 429, retry_after=0.2)
    calls: list[float] = []
    registry = RunRegistry()

    def answer(context: Sequence[ContextEntry], options: ProviderCallOptions) -> ScriptedAnswer:
        calls.append(time.monotonic())
        return storm if len(calls) <= 12 else "At last."

    @registry.kind("chat")
    def chat(history: AgentHistory, run: Run) -> ToolLoop:
        return ToolLoop(Conversation(FunctionModel(answer), history=history))

    async def weather() -> None:
        with place.open() as store:
            runs = [Runs(store).submit("Hello?") for _ in range(4)]
            asked, began = counted_claims(store), time.monotonic()
            async with working(worker_of(store, registry)):
                await until_async(lambda: store.runs.counts() == {"done": 4})
            # One claim for each call, and one after each pause; the worker is woken at most once for each end of a run.
            pauses = (time.monotonic() - began) / (_SHORTEST_POLL / 2)
            assert asked[0] <= 3 * len(calls) + pauses + 3
            assert sum(store.runs.get(run.id).attempts for run in runs) == len(calls) == 16

    asyncio.run(weather())
    # 16 calls of 4 runs: each run asked, and asked again no sooner than allowed.
    assert calls[-1] - calls[0] > 3 * 0.2


def test_backoff_grows_with_jitter() -> None:
    policy = RunRetryPolicy(first_delay=1, longest_delay=60, max_failures=9)
    for failures, bound in [(1, 1), (2, 2), (5, 16), (8, 60), (50, 60)]:
        waits = {policy.delay(failures) for _ in range(50)}
        assert bound / 2 <= min(waits) < max(waits) <= bound
    assert all(10 <= policy.delay(1, retry_after=10) <= 11 for _ in range(50))


def test_run_fails_after_max_failures(place: Place) -> None:
    registry = saying(ProviderError("down", "server"))
    policy = RunRetryPolicy(first_delay=0.001, longest_delay=0.002, max_failures=4)
    with place.open() as store:
        run = Runs(store).submit("Hello?")
        for _ in range(9):
            time.sleep(0.005)
            play(store, registry, retry_policy=policy)
        known = store.runs.get(run.id)
        assert known.state == "failed"
        assert "after 4 failed model calls" in known.reason
        assert known.attempts == 4


def test_finished_calls_are_not_repeated_after_failures(place: Place) -> None:
    """A provider that fails in every other call: the tools still run once each."""
    world = World()
    registry = RunRegistry()
    calls = Counter[str]()

    def answer(context: Sequence[ContextEntry], options: ProviderCallOptions) -> ScriptedAnswer:
        calls["all"] += 1
        if calls["all"] % 2:
            return ProviderError("cut", "stream_cut")
        results = sum(entry.role == "tool_result" for entry in context)
        return [call("send"), call("look")] if results < 3 else "Done."

    @registry.kind("chat")
    def chat(history: AgentHistory, run: Run) -> ToolLoop:
        return ToolLoop(Conversation(FunctionModel(answer), tools=world.tools(), history=history), max_repeats=9)

    async def through() -> None:
        with place.open() as store:
            run = Runs(store).submit("Go.")
            async with working(
                worker_of(store, registry, retry_policy=RunRetryPolicy(first_delay=0.01, longest_delay=0.02))
            ):
                done = await Runs(store).wait(run.id)
            assert (done.state, done.attempts) == ("done", 5)

    asyncio.run(through())
    assert set(world.began.values()) == {1}
    assert len(world.began) == 6
