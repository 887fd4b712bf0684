"""Turns on Temporal's real development server: one activity a step, signals, failures, and a history without messages."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from support.repository import ROOT

pytest.importorskip("temporalio", reason="Temporal's SDK is not installed (pip install 'antiphon[temporal]')")

from temporalio.client import Client, WorkflowExecutionStatus, WorkflowFailureError, WorkflowHandle
from temporalio.exceptions import ActivityError, ApplicationError, CancelledError
from temporalio.worker import Replayer

from antiphon.conversation import Conversation, RunLimits, ToolLoop
from antiphon.errors import RunStateError
from antiphon.history import AgentHistory, ContextEntry, ModelInputEntry, Run, SqliteStore
from antiphon.providers.call import ProviderCallOptions, ProviderClient
from antiphon.providers.scripted import FunctionModel, ScriptedAnswer, ScriptedModel, call
from antiphon.runs import RunRegistry
from antiphon.runs.temporal import start_turn, temporal_worker, turn_handle
from antiphon.runs.temporal_workflow import TurnStatus, TurnWorkflow
from antiphon.tools import Tool, tool
from antiphon.wire.output import ProviderError
from support.planned_turns import World, planned, refusals, results_in
from support.temporal_server import TemporalServer

pytestmark = pytest.mark.slow
Handle = WorkflowHandle[TurnWorkflow, TurnStatus]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TemporalServer]:
    with TemporalServer(tmp_path_factory.mktemp("temporal")) as server:
        yield server


def built(model: ProviderClient, tools: Sequence[Tool] = (), **limits: Any) -> RunRegistry:
    """A registry with one kind: this model and these tools."""
    registry = RunRegistry()

    @registry.kind("turn")
    def turn(history: AgentHistory, run: Run) -> ToolLoop:
        return ToolLoop(Conversation(model, tools=tools, history=history), limits=RunLimits(**limits))

    return registry


class Stage:
    """A client, a store, and a worker that plays one kind of turn."""

    def __init__(self, client: Client, store: SqliteStore) -> None:
        self.client = client
        self.store = store
        self.queue = f"queue-{id(self)}"

    def worker(self, registry: RunRegistry, **options: Any) -> Any:
        return temporal_worker(self.client, self.store, registry, task_queue=self.queue, **options)

    async def start(self, *content: str, **how: Any) -> Handle:
        return await start_turn(
            self.client, self.store, *content, kind="turn", task_queue=self.queue, **{"lease_seconds": 5.0, **how}
        )

    def history(self, handle: Handle) -> AgentHistory:
        return self.store.open(handle.id.removeprefix("antiphon-"))


def staged(server: TemporalServer, store: SqliteStore, play: Callable[[Stage], Awaitable[None]]) -> None:
    async def main() -> None:
        await play(Stage(await server.client(), store))

    asyncio.run(main())


async def until(handle: Handle, state: str) -> TurnStatus:
    """The standing once its state is this."""
    while (standing := await handle.query(TurnWorkflow.standing)).state != state:
        await asyncio.sleep(0.05)
    return standing


async def activities(handle: Handle) -> list[str]:
    """The names of the activities that were started, in order."""
    history = await handle.fetch_history()
    scheduled = [event.activity_task_scheduled_event_attributes for event in history.events]
    return [one.activity_type.name.removeprefix("antiphon.") for one in scheduled if one.activity_type.name]


def test_turn_with_several_rounds(server: TemporalServer, store: SqliteStore) -> None:
    world = World()
    plan = [["look"], ["put", "send"], ["trip"], ["look"]]

    async def run(stage: Stage) -> None:
        async with stage.worker(built(planned(plan), world.tools())):
            handle = await stage.start("Go, and say nothing of it.")
            end = await handle.result()
            assert (end.state, end.reason, end.rounds) == ("over", "answered", 5)
            assert end.version == stage.history(handle).version
            assert await handle.query(TurnWorkflow.standing) == end
        assert await activities(handle) == ["ask_model", "run_calls"] * 4 + ["ask_model"]
        history = await handle.fetch_history()
        whole = b"".join(event.SerializeToString() for event in history.events)
        assert not any(word in whole for word in (b"say nothing", b"Round 1", b"That is all", b"done call"))
        assert len(whole) / 9 < 1500, "a step costs Temporal a few hundred bytes, whatever its size"
        await Replayer(workflows=[TurnWorkflow]).replay_workflow(history)
        assert refusals(stage.history(handle).snapshot()) == []

    staged(server, store, run)
    assert set(world.began.values()) == set(world.ended.values()) == {1}


@pytest.mark.parametrize("steps_per_run", [200, 1])
def test_signals_decide_calls(server: TemporalServer, store: SqliteStore, steps_per_run: int) -> None:
    @tool(needs_approval=True)
    def registry(to: str) -> str:
        "Book."
        return f"booked {to}"

    model = ScriptedModel([call("registry", to=town) for town in ("Oslo", "Bergen", "Moss")], "Done.")

    async def run(stage: Stage) -> None:
        kinds = built(model, [registry])
        async with stage.worker(kinds):
            handle = await stage.start("Fly me somewhere.", steps_per_run=steps_per_run)
            first, second, third = (await until(handle, "approval")).pending
        # No worker runs: the signals wait in Temporal.
        await handle.signal(TurnWorkflow.approve, args=["call_unknown", ""])
        await handle.signal(TurnWorkflow.edit, args=[first, {"to": "Narvik"}, "nicer"])
        await handle.signal("deny", args=[second])
        async with stage.worker(kinds):
            while (standing := await handle.query(TurnWorkflow.standing)).pending != [third]:
                await asyncio.sleep(0.05)
            assert "call 'call_unknown' is not pending approval" in standing.note
            loop = ToolLoop(Conversation(history=stage.history(handle), tools=[registry]))
            loop.approve(third)  # in the log itself, without Temporal
            await handle.signal(TurnWorkflow.wake)
            assert (await handle.result()).reason == "answered"
        results = list(results_in(stage.history(handle).entries).values())
        assert ["booked Narvik" in results[0], "denied it" in results[1], results[2]] == [True, True, "booked Moss"]
        await Replayer(workflows=[TurnWorkflow]).replay_workflow(await handle.fetch_history())

    staged(server, store, run)


@pytest.mark.parametrize("how", ["signal", "cancel"])
def test_cancel_during_tool(server: TemporalServer, store: SqliteStore, how: str) -> None:
    running = asyncio.Event()
    stopped: list[str] = []

    @tool(timeout=None)
    async def wait_for_ever() -> str:
        "Never ends."
        running.set()
        try:
            await asyncio.sleep(3600)
        finally:
            stopped.append("tool")
        return ""

    async def run(stage: Stage) -> None:
        async with stage.worker(built(ScriptedModel(["I wait.", call("wait_for_ever")]), [wait_for_ever])):
            handle = await stage.start("Wait.")
            await running.wait()
            if how == "signal":
                await handle.signal(TurnWorkflow.cancel)
                assert (await handle.result()).reason == "interrupted"
            else:
                await handle.cancel()
                with pytest.raises(WorkflowFailureError) as failed:
                    await handle.result()
                assert isinstance(failed.value.cause, CancelledError)
        assert stopped == ["tool"]
        history = stage.history(handle)
        assert "cancelled while it was running" in next(iter(results_in(history.entries).values()))
        assert Conversation(history=history).turn.ended == "interrupted"
        assert store.current_lease(history.id) is None
        assert refusals(history.snapshot()) == []
        await Replayer(workflows=[TurnWorkflow]).replay_workflow(await handle.fetch_history())

    staged(server, store, run)


def test_cancel_of_suspended_turn(server: TemporalServer, store: SqliteStore) -> None:
    @tool(needs_approval=True)
    def registry() -> str:
        "Book."
        return "booked"

    async def run(stage: Stage) -> None:
        async with stage.worker(built(ScriptedModel([call("registry")]), [registry])):
            handle = await stage.start("Book.")
            await until(handle, "approval")
            await handle.signal(TurnWorkflow.cancel)
            assert (await handle.result()).reason == "interrupted"
        assert (await activities(handle))[-1] == "call_off"
        assert "was not run" in next(iter(results_in(stage.history(handle).entries).values()))

    staged(server, store, run)


def test_retry_after_is_respected(server: TemporalServer, store: SqliteStore) -> None:
    asked: list[float] = []

    def busy(context: Sequence[ContextEntry], options: ProviderCallOptions) -> ScriptedAnswer:
        asked.append(asyncio.get_running_loop().time())
        return "Here." if len(asked) > 2 else ProviderError("slow down", "rate_limit", retry_after=3.0)

    async def run(stage: Stage) -> None:
        async with stage.worker(built(FunctionModel(busy))):
            handle = await stage.start("Anybody?")
            assert (await handle.result()).reason == "answered"
        assert await activities(handle) == ["ask_model"], "one activity, tried three times"

    staged(server, store, run)
    assert len(asked) == 3
    assert all(later - sooner > 2.9 for sooner, later in pairwise(asked))


def test_failed_turn_can_be_continued(server: TemporalServer, store: SqliteStore) -> None:
    model = ScriptedModel([call("look")], ProviderError("no such key", "authentication"), "Here.")
    world = World()

    async def run(stage: Stage) -> None:
        async with stage.worker(built(model, world.tools())):
            handle = await stage.start("Anybody?")
            with pytest.raises(WorkflowFailureError) as failed:
                await handle.result()
            assert isinstance(failed.value.cause, ActivityError)
            assert isinstance(failed.value.cause.cause, ApplicationError)
            assert failed.value.cause.cause.type == "authentication"
            again = await stage.start(conversation=stage.history(handle).id)
            assert (await again.result()).reason == "answered"
            assert await activities(again) == ["look", "ask_model"]

    staged(server, store, run)
    assert set(world.began.values()) == {1}


def test_bounds_hold_across_continued_workflows(server: TemporalServer, store: SqliteStore) -> None:
    world = World()

    async def run(stage: Stage) -> None:
        kinds = built(planned([["look"], ["put"]] * 40), world.tools(), max_rounds=6)
        async with stage.worker(kinds):
            handle = await stage.start("Go on and on.", steps_per_run=3)
            end = await handle.result()
            assert (end.reason, end.rounds) == ("max_rounds", 7)
            first = stage.client.get_workflow_handle(handle.id, run_id=handle.first_execution_run_id)
            assert (await first.describe()).status is WorkflowExecutionStatus.CONTINUED_AS_NEW
            last = turn_handle(stage.client, stage.history(handle).id)
            assert await activities(last) == ["ask_model"], "13 steps, three a run"

    staged(server, store, run)
    assert sum(world.began.values()) == 6


def test_one_turn_per_conversation(server: TemporalServer, store: SqliteStore) -> None:
    world = World()

    async def run(stage: Stage) -> None:
        with pytest.raises(RunStateError, match="nothing to run"):
            await stage.start()
        elsewhere = store.runs.submit(ModelInputEntry.of("Go."), kind="chat")
        with pytest.raises(RunStateError, match="for `antiphon worker`"):
            await stage.start(conversation=elsewhere.conversation)
        handle = await stage.start("Go.")
        conversation = stage.history(handle).id
        with pytest.raises(RunStateError, match="unfinished turn"):
            await stage.start("Stop!", conversation=conversation)
        same = await stage.start(conversation=conversation)
        async with stage.worker(built(planned([["send"]]), world.tools())):
            assert await same.result() == await handle.result()
            second = await stage.start("Again.", conversation=conversation[-12:])
            assert (await second.result()).reason == "answered"
            over = await stage.start(conversation=conversation)
            assert (await over.result()).version == stage.history(handle).version
        assert [entry.kind for entry in stage.history(handle).entries].count("model_input") == 2

    staged(server, store, run)
    assert Counter(world.began.values()) == {1: 2}


def test_stopping_worker_hands_step_over(server: TemporalServer, store: SqliteStore) -> None:
    running = asyncio.Event()

    async def run(stage: Stage) -> None:
        async def stuck() -> str:
            "Ends only elsewhere."
            running.set()
            await asyncio.sleep(3600)
            return ""

        async def quick() -> str:
            "Ends."
            return "done"

        def kinds(function: Callable[[], Any]) -> RunRegistry:
            work = tool(name="work", effect="idempotent", timeout=None)(function)
            return built(planned([["work"]]), [work])

        async with stage.worker(kinds(stuck), graceful_shutdown_timeout=timedelta(seconds=0.2)):
            handle = await stage.start("Work.")
            await running.wait()
        assert store.current_lease(stage.history(handle).id) is None, "given back at once"
        async with stage.worker(kinds(quick)):
            assert (await handle.result()).reason == "answered"
        assert list(results_in(stage.history(handle).entries).values()) == ["done"]

    staged(server, store, run)


def test_example_runs(server: TemporalServer, tmp_path: Path) -> None:
    example = ROOT / "examples" / "temporal_run.py"
    run = subprocess.run(
        [sys.executable, str(example), server.address], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert "ended with signal 9" in run.stdout
    assert "answered after 3 rounds" in run.stdout
    assert run.stdout.count("tool_call_started") == 3, "the one that was killed, again, and the one that was approved"
