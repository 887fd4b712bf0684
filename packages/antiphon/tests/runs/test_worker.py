"""A worker in this process: what it takes, how it settles what it played, and what it leaves to others."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import pytest

from antiphon.conversation import Conversation, ToolLoop, Turn
from antiphon.errors import RunConfigError
from antiphon.history import AgentHistory, ModelInputEntry, Run
from antiphon.history.codec import decode_entry
from antiphon.providers.scripted import FunctionModel, ScriptedModel, call
from antiphon.runs import RunRegistry, Runs, Worker
from antiphon.tools import tool
from runs.worker_helpers import Watched, play, saying, worker_of, working
from runs.workers import Place
from support.planned_turns import planned, results_in
from support.waiting import until_async


def test_worker_finishes_run(place: Place) -> None:
    with place.open() as store:
        run = Runs(store).submit("Hello?")
        worker = play(store, saying("Hello."))
        done = store.runs.get(run.id)
        assert (done.display_state, done.reason, done.attempts) == ("done", "answered", 1)
        assert Runs(store).answer(run.id) == "Hello."
        assert worker.settled_count == 1
        assert store.current_lease(run.conversation) is None


def test_time_limit_holds_over_resumes(place: Place) -> None:
    registry = RunRegistry()

    @tool(needs_approval=True)
    async def slow() -> str:
        "Slow."
        await asyncio.sleep(0.2)
        return "done"

    @registry.kind("chat")
    def chat(history: AgentHistory, run: Run) -> ToolLoop:
        model = FunctionModel(lambda _, options: "Enough." if options.settings.tool_choice else call("slow"))
        return ToolLoop(
            Conversation(model, tools=[slow], history=history), max_seconds=0.5, max_rounds=9, max_repeats=0
        )

    with place.open() as store:
        run = Runs(store).submit("Go.")
        play(store, registry)
        while store.runs.get(run.id).state == "suspended":
            Runs(store).approve(run.id)
            play(store, registry)
        done = store.runs.get(run.id)
        assert (done.state, done.reason) == ("done", "time_budget")


def test_concurrent_runs_are_limited_by_slots(place: Place) -> None:
    seen = Watched()
    with place.open() as store:
        for _ in range(9):
            Runs(store).submit("Go.", kind="watched")
        play(store, seen.registry, slots=3)
        assert store.runs.counts() == {"done": 9}
    assert seen.most == {"": 3}


def test_two_workers_execute_each_run_once(place: Place) -> None:
    seen = Watched()

    async def race() -> None:
        with place.open() as one, place.open() as other:
            for _ in range(20):
                Runs(one).submit("Go.", kind="watched")
            async with working(worker_of(one, seen.registry), worker_of(other, seen.registry)):
                await until_async(lambda: one.runs.counts() == {"done": 20})
            assert {run.attempts for run in one.runs.list(limit=100)} == {1}

    asyncio.run(race())
    assert set(seen.played.values()) == {1}
    assert len(seen.played) == 20


def test_provider_limits_hold_across_workers(place: Place) -> None:
    seen = Watched()

    async def crowd() -> None:
        with place.open() as one, place.open() as other:
            runs = Runs(one, seen.registry)
            for number in range(24):
                runs.submit("Go.", kind="watched", provider="slow" if number % 2 else "fast")
            limits = {"slow": 2, "fast": 5}
            async with working(*(worker_of(store, seen.registry, limits=limits) for store in (one, other))):
                await until_async(lambda: one.runs.counts() == {"done": 24})

    asyncio.run(crowd())
    assert seen.most["slow"] == 2
    assert 2 < seen.most["fast"] <= 5


def test_cancel_of_running_run_is_recorded(place: Place) -> None:
    started = asyncio.Event()
    registry = RunRegistry()

    @registry.kind("chat")
    def chat(history: AgentHistory, run: Run) -> ToolLoop:
        @tool(effect="once", timeout=None)
        async def wait() -> str:
            """Waits forever."""
            started.set()
            await asyncio.sleep(1000)
            return "never"

        return ToolLoop(Conversation(planned([["wait"]]), tools=[wait], history=history))

    async def cancel() -> None:
        with place.open() as store:
            run = Runs(store).submit("Wait.")
            async with working(worker_of(store, registry, lease_seconds=1)):
                await started.wait()
                asked = Runs(store).cancel(run.id, "no longer needed")
                assert (asked.display_state, asked.is_cancelled) == ("running", True)
                cancelled = await Runs(store).wait(run.id)
            assert cancelled.state == "cancelled"
            history = store.open(run.conversation)
            assert Turn.of(history.snapshot()).ended == "interrupted"
            assert "cancelled" in str(results_in(history.entries))

    asyncio.run(cancel())


def test_cancel_before_start(place: Place) -> None:
    building = asyncio.Event()
    registry = RunRegistry()

    @registry.kind("chat")
    async def chat(history: AgentHistory, run: Run) -> ToolLoop:
        building.set()
        await asyncio.sleep(1000)
        raise AssertionError("it was not stopped")

    async def cancel() -> None:
        with place.open() as store:
            run = Runs(store).submit("Wait.")
            async with working(worker_of(store, registry, lease_seconds=1)):
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
            assert (known.display_state, store.open(run.conversation).version) == ("waiting", 2)
            assert "newer version" in known.reason
            assert known.due > known.updated
    assert len([line for line in caplog.messages if "was written by a newer version" in line]) == 1


@pytest.mark.parametrize("way", ["returned", "awaited", "yielded"])
def test_kind_accepts_sync_async_and_generator_functions(place: Place, way: str) -> None:
    registry = RunRegistry()
    closed: list[str] = []

    class LoggedConversation(Conversation):
        async def aclose(self) -> None:
            closed.append("by the worker")
            await super().aclose()

    def loop(history: AgentHistory) -> ToolLoop:
        return ToolLoop(LoggedConversation(ScriptedModel("Hello."), history=history))

    if way == "returned":
        registry.kind("chat")(lambda history, run: loop(history))
    elif way == "awaited":

        @registry.kind("chat")
        async def awaited(history: AgentHistory, run: Run) -> ToolLoop:
            return loop(history)
    else:

        @registry.kind("chat")
        async def yielded(history: AgentHistory, run: Run) -> AsyncIterator[ToolLoop]:
            yield loop(history)
            closed.append("by itself")

    with place.open() as store:
        run = Runs(store).submit("Hello?")
        play(store, registry)
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
    registry = saying("Hello.")
    registry.kind("broken")(build)
    with place.open() as store:
        broken, whole = Runs(store).submit("Go.", kind="broken"), Runs(store).submit("Go.")
        play(store, registry)
        assert store.runs.get(whole.id).state == "done"
        known = store.runs.get(broken.id)
        assert known.state == "failed"
        assert reason in known.reason


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"slots": 0}, "slot"), ({"lease_seconds": 0}, "lease_seconds"), ({"grace": -1}, "grace")],
)
def test_invalid_worker_options_raise(place: Place, settings: dict[str, Any], message: str) -> None:
    with place.open() as store, pytest.raises(RunConfigError, match=message):
        Worker(store, saying("Hello."), **settings)


def test_invalid_kinds_raise(place: Place) -> None:
    registry = saying("Hello.")
    for name, code, message in [("chat", 0, "already"), (" ", 0, "name"), ("research", -1, "at least 0")]:
        with pytest.raises(RunConfigError, match=message):
            registry.kind(name, code=code)
    with place.open() as store, pytest.raises(RunConfigError, match="no kinds of runs"):
        Worker(store, RunRegistry())


def test_run_facts_are_json(place: Place) -> None:
    with place.open() as store:
        run = Runs(store).submit("Hello?", options={"depth": 3})
        assert msgspec.json.decode(msgspec.json.encode(run), type=Run) == run
