"""A worker in this process: what it takes, how it settles what it played, and what it leaves to others."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from antiphon.conversation import Conversation, ToolLoop, Turn
from antiphon.errors import RunConfigError
from antiphon.history import AgentHistory, ContextEntry, HistoryStore, ModelInputEntry, Run
from antiphon.history.codec import decode_entry
from antiphon.providers.call import ProviderCallOptions
from antiphon.providers.scripted import FunctionModel, Said, ScriptedModel, call
from antiphon.runs import RunBook, RunRetryPolicy, Runs, Worker
from antiphon.runs.worker import _SHORTEST_POLL
from antiphon.tools import ToolContext, tool
from antiphon.wire.output import ErrorKind, ProviderError
from runs.workers import Place
from support.planned_turns import World, planned, results_in

QUICK = RunRetryPolicy(first_delay=0.05, longest_delay=0.2)


def saying(*turns: Said) -> RunBook:
    """A book with one kind, whose model says these things, one a call."""
    book = RunBook()
    left = list(turns)

    def answer(context: Sequence[ContextEntry], options: ProviderCallOptions) -> Said:
        return left.pop(0) if len(left) > 1 else left[0]

    @book.kind("chat")
    def chat(history: AgentHistory, run: Run) -> ToolLoop:
        return ToolLoop(Conversation(FunctionModel(answer), history=history))

    return book


def worker_of(store: HistoryStore, book: RunBook, **settings: Any) -> Worker:
    return Worker(store, book, **{"patience": QUICK, "lease_seconds": 30, **settings})


def play(store: HistoryStore, book: RunBook, **settings: Any) -> Worker:
    """Play what there is."""

    async def work() -> Worker:
        worker = worker_of(store, book, **settings)
        await worker.run(once=True)
        return worker

    return asyncio.run(work())


@asynccontextmanager
async def working(*workers: Worker) -> AsyncIterator[None]:
    """The workers at work, for as long as the block lasts."""
    tasks = [asyncio.ensure_future(worker.run()) for worker in workers]
    try:
        yield
    finally:
        for worker in workers:
            worker.stop()
        await asyncio.gather(*tasks)


async def until(what: Callable[[], Any]) -> Any:
    for _ in range(3000):
        if found := what():
            return found
        await asyncio.sleep(0.01)
    raise AssertionError("it never came to that")


def test_worker_finishes_run(place: Place) -> None:
    with place.open() as store:
        run = Runs(store).submit("Hello?")
        worker = play(store, saying("Hello."))
        done = store.runs.get(run.id)
        assert (done.standing, done.reason, done.attempts) == ("done", "answered", 1)
        assert Runs(store).answer(run.id) == "Hello."
        assert worker.settled_count == 1
        assert store.leased(run.conversation) is None


def test_concurrent_runs_are_limited_by_slots(place: Place) -> None:
    seen = Watched()
    with place.open() as store:
        for _ in range(9):
            Runs(store).submit("Go.", kind="watched")
        play(store, seen.book, slots=3)
        assert store.runs.counts() == {"done": 9}
    assert seen.most == {"": 3}


def test_two_workers_execute_each_run_once(place: Place) -> None:
    seen = Watched()

    async def race() -> None:
        with place.open() as one, place.open() as other:
            for _ in range(20):
                Runs(one).submit("Go.", kind="watched")
            async with working(worker_of(one, seen.book), worker_of(other, seen.book)):
                await until(lambda: one.runs.counts() == {"done": 20})
            assert {run.attempts for run in one.runs.list(limit=100)} == {1}

    asyncio.run(race())
    assert set(seen.played.values()) == {1}
    assert len(seen.played) == 20


def test_provider_limits_hold_across_workers(place: Place) -> None:
    seen = Watched()

    async def crowd() -> None:
        with place.open() as one, place.open() as other:
            runs = Runs(one, seen.book)
            for number in range(24):
                runs.submit("Go.", kind="watched", provider="slow" if number % 2 else "fast")
            limits = {"slow": 2, "fast": 5}
            async with working(*(worker_of(store, seen.book, limits=limits) for store in (one, other))):
                await until(lambda: one.runs.counts() == {"done": 24})

    asyncio.run(crowd())
    assert seen.most["slow"] == 2
    assert 2 < seen.most["fast"] <= 5


class Watched:
    """A kind whose tool notes how many of it run at the same time, by provider."""

    def __init__(self) -> None:
        self.book = RunBook()
        self.most: Counter[str] = Counter()
        self.played: Counter[str] = Counter()
        now: Counter[str] = Counter()

        @self.book.kind("watched")
        def watched(history: AgentHistory, run: Run) -> ToolLoop:
            @tool
            async def look(context: ToolContext) -> str:
                """Looks for a moment."""
                self.played[context.conversation_id] += 1
                now[run.provider] += 1
                self.most[run.provider] = max(self.most[run.provider], now[run.provider])
                await asyncio.sleep(0.03)
                now[run.provider] -= 1
                return "seen"

            return ToolLoop(Conversation(planned([["look"]]), tools=[look], history=history))


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


def counted_claims(store: HistoryStore) -> list[int]:
    """How often a worker asks the store for a run, counted from here on."""
    asked, claim = [0], store.runs.claim

    def counted(*given: Any, **named: Any) -> Run | None:
        asked[0] += 1
        return claim(*given, **named)

    store.runs.claim = counted  # type: ignore[method-assign]
    return asked


def test_worker_backs_off_on_429(place: Place) -> None:
    storm = ProviderError("too many requests", "rate_limit", 429, retry_after=0.2)
    calls: list[float] = []
    book = RunBook()

    def answer(context: Sequence[ContextEntry], options: ProviderCallOptions) -> Said:
        calls.append(time.monotonic())
        return storm if len(calls) <= 12 else "At last."

    @book.kind("chat")
    def chat(history: AgentHistory, run: Run) -> ToolLoop:
        return ToolLoop(Conversation(FunctionModel(answer), history=history))

    async def weather() -> None:
        with place.open() as store:
            runs = [Runs(store).submit("Hello?") for _ in range(4)]
            asked, began = counted_claims(store), time.monotonic()
            async with working(worker_of(store, book)):
                await until(lambda: store.runs.counts() == {"done": 4})
            # One claim for each call, and one after each pause; the worker is woken at most once for each end of a run.
            pauses = (time.monotonic() - began) / (_SHORTEST_POLL / 2)
            assert asked[0] <= 3 * len(calls) + pauses + 3
            assert sum(store.runs.get(run.id).attempts for run in runs) == len(calls) == 16

    asyncio.run(weather())
    # 16 calls of 4 runs: each run asked, and asked again no sooner than allowed.
    assert calls[-1] - calls[0] > 3 * 0.2


def test_backoff_grows_with_jitter() -> None:
    patience = RunRetryPolicy(first_delay=1, longest_delay=60, max_failures=9)
    for failures, bound in [(1, 1), (2, 2), (5, 16), (8, 60), (50, 60)]:
        waits = {patience.delay(failures) for _ in range(50)}
        assert bound / 2 <= min(waits) < max(waits) <= bound
    assert all(10 <= patience.delay(1, retry_after=10) <= 11 for _ in range(50))


def test_run_fails_after_max_failures(place: Place) -> None:
    book = saying(ProviderError("down", "server"))
    patience = RunRetryPolicy(first_delay=0.001, longest_delay=0.002, max_failures=4)
    with place.open() as store:
        run = Runs(store).submit("Hello?")
        for _ in range(9):
            time.sleep(0.005)
            play(store, book, patience=patience)
        known = store.runs.get(run.id)
        assert known.state == "failed"
        assert "after 4 failed model calls" in known.reason
        assert known.attempts == 4


def test_cancel_of_running_run_is_recorded(place: Place) -> None:
    started = asyncio.Event()
    book = RunBook()

    @book.kind("chat")
    def chat(history: AgentHistory, run: Run) -> ToolLoop:
        @tool(effect="once", timeout=None)
        async def wait() -> str:
            """Waits for ever."""
            started.set()
            await asyncio.sleep(1000)
            return "never"

        return ToolLoop(Conversation(planned([["wait"]]), tools=[wait], history=history))

    async def cancel() -> None:
        with place.open() as store:
            run = Runs(store).submit("Wait.")
            async with working(worker_of(store, book, lease_seconds=1)):
                await started.wait()
                asked = Runs(store).cancel(run.id, "no longer needed")
                assert (asked.standing, asked.is_cancelled) == ("running", True)
                cancelled = await Runs(store).wait(run.id)
            assert cancelled.state == "cancelled"
            history = store.open(run.conversation)
            assert Turn.of(history.snapshot()).ended == "interrupted"
            assert "cancelled" in str(results_in(history.entries))

    asyncio.run(cancel())


def test_cancel_before_start(place: Place) -> None:
    building = asyncio.Event()
    book = RunBook()

    @book.kind("chat")
    async def chat(history: AgentHistory, run: Run) -> ToolLoop:
        building.set()
        await asyncio.sleep(1000)
        raise AssertionError("it was not stopped")

    async def cancel() -> None:
        with place.open() as store:
            run = Runs(store).submit("Wait.")
            async with working(worker_of(store, book, lease_seconds=1)):
                await building.wait()
                Runs(store).cancel(run.id)
                assert (await Runs(store).wait(run.id)).state == "cancelled"
            assert Turn.of(store.open(run.conversation).snapshot()).ended == "interrupted"

    asyncio.run(cancel())


def test_older_worker_leaves_run_and_warns_once(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    with place.open() as store, caplog.at_level(logging.WARNING, "antiphon.runs"):
        newer = Runs(store).submit("Hello?", code=3)
        other = Runs(store).submit("Hello?", kind="research")
        ours = Runs(store).submit("Hello?")
        worker = play(store, saying("Hello."))
        assert worker.settled_count == 1
        assert [store.runs.get(run.id).state for run in (newer, other, ours)] == ["waiting", "waiting", "done"]
        assert [store.runs.get(run.id).attempts for run in (newer, other)] == [0, 0]
    assert len(caplog.messages) == 2
    assert all("left to other workers" in line for line in caplog.messages)


def test_log_of_newer_version_is_left_alone(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    strange = decode_entry(b'{"kind":"vision_of_the_future","sequence_number":2,"depth":7}')
    with place.open() as store, caplog.at_level(logging.WARNING, "antiphon.runs"):
        history = store.create()
        history.append(ModelInputEntry.of("Hello?"))
        history.append(strange)
        runs = [Runs(store).submit(conversation=history.id)]
        copy = history.fork()
        runs.append(Runs(store).submit(conversation=copy.id))
        play(store, saying("Hello."))
        for run in runs:
            known = store.runs.get(run.id)
            assert (known.standing, store.open(run.conversation).version) == ("waiting", 2)
            assert "newer version" in known.reason
            assert known.due > known.updated
    assert len([line for line in caplog.messages if "newer version" in line]) == 1


@pytest.mark.parametrize("way", ["returned", "awaited", "yielded"])
def test_kind_accepts_sync_async_and_generator_functions(place: Place, way: str) -> None:
    book = RunBook()
    closed: list[str] = []

    class LoggedConversation(Conversation):
        async def aclose(self) -> None:
            closed.append("by the worker")
            await super().aclose()

    def loop(history: AgentHistory) -> ToolLoop:
        return ToolLoop(LoggedConversation(ScriptedModel("Hello."), history=history))

    if way == "returned":
        book.kind("chat")(lambda history, run: loop(history))
    elif way == "awaited":

        @book.kind("chat")
        async def awaited(history: AgentHistory, run: Run) -> ToolLoop:
            return loop(history)
    else:

        @book.kind("chat")
        async def yielded(history: AgentHistory, run: Run) -> AsyncIterator[ToolLoop]:
            yield loop(history)
            closed.append("by itself")

    with place.open() as store:
        run = Runs(store).submit("Hello?")
        play(store, book)
        assert store.runs.get(run.id).state == "done"
    assert closed == ["by itself" if way == "yielded" else "by the worker"]


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (lambda history, run: 1 / 0, "ZeroDivisionError"),
        (lambda history, run: "a string", "got str"),
        (lambda history, run: ToolLoop(Conversation("unknown/model", history=history)), "unknown"),
    ],
)
def test_failing_kind_fails_only_its_run(place: Place, build: Callable[[AgentHistory, Run], Any], reason: str) -> None:
    book = saying("Hello.")
    book.kind("broken")(build)
    with place.open() as store:
        broken, whole = Runs(store).submit("Go.", kind="broken"), Runs(store).submit("Go.")
        play(store, book)
        assert store.runs.get(whole.id).state == "done"
        known = store.runs.get(broken.id)
        assert known.state == "failed"
        assert reason in known.reason


def test_blocking_tool_keeps_lease(place: Place) -> None:
    book = RunBook()
    held: list[bool] = []
    with place.open() as store:

        @book.kind("chat")
        def chat(history: AgentHistory, run: Run) -> ToolLoop:
            @tool(effect="once")
            async def block() -> str:
                """Holds up everything, for longer than the lease lasts."""
                first = store.leased(run.conversation)
                assert first is not None
                while datetime.now(UTC) <= first.expires:
                    time.sleep(0.1)
                held.append(store.leased(run.conversation) is not None)
                return "moved"

            return ToolLoop(Conversation(planned([["block"]]), tools=[block], history=history))

        run = Runs(store).submit("Go.")
        play(store, book, lease_seconds=4)
        assert store.runs.get(run.id).state == "done"
    assert held == [True]


def test_lost_lease_stops_tools(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    book = RunBook()
    ended: list[str] = []
    at_work = asyncio.Event()

    @book.kind("chat")
    def chat(history: AgentHistory, run: Run) -> ToolLoop:
        @tool(effect="idempotent", timeout=None)
        async def wait() -> str:
            """Waits for ever, the first time."""
            at_work.set()
            try:
                await asyncio.sleep(0 if run.attempts > 1 else 1000)
            except asyncio.CancelledError:
                ended.append("stopped")
                raise
            ended.append("done")
            return "done"

        return ToolLoop(Conversation(planned([["wait"]]), tools=[wait], history=history))

    async def lose() -> None:
        with place.open() as store:
            run = Runs(store).submit("Go.")
            async with working(worker_of(store, book, lease_seconds=1)):
                await at_work.wait()
                lease = store.leased(run.conversation)
                assert lease is not None
                store.release(lease)  # as if it had expired and been claimed
                assert (await Runs(store).wait(run.id)).state == "done"
                await until(lambda: sorted(ended) == ["done", "stopped"])

    asyncio.run(lose())


def test_cancelled_worker_hands_runs_back(place: Place) -> None:
    at_work = asyncio.Event()
    book = RunBook()

    @book.kind("chat")
    def chat(history: AgentHistory, run: Run) -> ToolLoop:
        @tool(effect="idempotent", timeout=None)
        async def wait() -> str:
            """Waits for ever."""
            at_work.set()
            await asyncio.sleep(1000)
            return "never"

        return ToolLoop(Conversation(planned([["wait"]]), tools=[wait], history=history))

    async def cancel() -> None:
        with place.open() as store:
            run = Runs(store).submit("Go.")
            working = asyncio.ensure_future(worker_of(store, book, lease_seconds=600).run())
            await at_work.wait()
            working.cancel()
            with pytest.raises(asyncio.CancelledError):
                await working
            assert store.runs.get(run.id).standing == "waiting"
            assert len(Turn.of(store.open(run.conversation).snapshot()).open_calls) == 1

    asyncio.run(cancel())


def test_stuck_event_loop_lets_leases_expire(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    book = RunBook()
    with place.open() as store, caplog.at_level(logging.ERROR, "antiphon.history"):

        @book.kind("chat")
        def chat(history: AgentHistory, run: Run) -> ToolLoop:
            @tool(effect="once")
            async def block() -> str:
                """Is stuck until another worker could claim the conversation."""
                while store.leased(run.conversation) is not None:
                    time.sleep(0.05)
                return "moved"

            return ToolLoop(Conversation(planned([["block"]]), tools=[block], history=history))

        Runs(store).submit("Go.")
        play(store, book, lease_seconds=1, stuck_seconds=0.5)
    assert len(caplog.messages) == 1
    assert "is stuck" in caplog.messages[0]


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"slots": 0}, "slot"), ({"lease_seconds": 0}, "lease_seconds"), ({"grace": -1}, "grace")],
)
def test_invalid_worker_options_raise(place: Place, settings: dict[str, Any], message: str) -> None:
    with place.open() as store, pytest.raises(RunConfigError, match=message):
        Worker(store, saying("Hello."), **settings)


def test_invalid_kinds_raise(place: Place) -> None:
    book = saying("Hello.")
    for name, code, message in [("chat", 0, "already"), (" ", 0, "name"), ("research", -1, "at least 0")]:
        with pytest.raises(RunConfigError, match=message):
            book.kind(name, code=code)
    with place.open() as store, pytest.raises(RunConfigError, match="no kinds of runs"):
        Worker(store, RunBook())


def test_finished_calls_are_not_repeated_after_failures(place: Place) -> None:
    """A provider that fails in every other call: the tools still run once each."""
    world = World()
    book = RunBook()
    calls = Counter[str]()

    def answer(context: Sequence[ContextEntry], options: ProviderCallOptions) -> Said:
        calls["all"] += 1
        if calls["all"] % 2:
            return ProviderError("cut", "stream_cut")
        results = sum(entry.role == "tool_result" for entry in context)
        return [call("send"), call("look")] if results < 3 else "Done."

    @book.kind("chat")
    def chat(history: AgentHistory, run: Run) -> ToolLoop:
        return ToolLoop(Conversation(FunctionModel(answer), tools=world.tools(), history=history), max_repeats=9)

    async def through() -> None:
        with place.open() as store:
            run = Runs(store).submit("Go.")
            async with working(worker_of(store, book, patience=RunRetryPolicy(first_delay=0.01, longest_delay=0.02))):
                done = await Runs(store).wait(run.id)
            assert (done.state, done.attempts) == ("done", 5)

    asyncio.run(through())
    assert set(world.began.values()) == {1}
    assert len(world.began) == 6


def test_run_facts_are_json(place: Place) -> None:
    with place.open() as store:
        run = Runs(store).submit("Hello?", options={"depth": 3})
        assert msgspec.json.decode(msgspec.json.encode(run), type=Run) == run
