"""The leases of a worker: blocked tools, lost leases, a stuck event loop, runs that are handed back."""

from __future__ import annotations

import asyncio
import logging
import time
from datetime import UTC, datetime

import pytest

from antiphon.conversation import Conversation, ToolLoop, Turn
from antiphon.history import AgentHistory, Run
from antiphon.runs import RunRegistry, Runs
from antiphon.tools import tool
from runs.worker_helpers import play, worker_of, working
from runs.workers import Place
from support.planned_turns import planned
from support.waiting import until_async


def test_blocking_tool_keeps_lease(place: Place) -> None:
    registry = RunRegistry()
    held: list[bool] = []
    with place.open() as store:

        @registry.kind("chat")
        def chat(history: AgentHistory, run: Run) -> ToolLoop:
            @tool(effect="once")
            async def block() -> str:
                """Holds up everything, for longer than the lease lasts."""
                first = store.current_lease(run.conversation)
                assert first is not None
                while datetime.now(UTC) <= first.expires:
                    time.sleep(0.1)
                held.append(store.current_lease(run.conversation) is not None)
                return "moved"

            return ToolLoop(Conversation(planned([["block"]]), tools=[block], history=history))

        run = Runs(store).submit("Go.")
        play(store, registry, lease_seconds=4)
        assert store.runs.get(run.id).state == "done"
    assert held == [True]


def test_lost_lease_stops_tools(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    registry = RunRegistry()
    ended: list[str] = []
    at_work = asyncio.Event()

    @registry.kind("chat")
    def chat(history: AgentHistory, run: Run) -> ToolLoop:
        @tool(effect="idempotent", timeout=None)
        async def wait() -> str:
            """Waits forever, the first time."""
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
            async with working(worker_of(store, registry, lease_seconds=1)):
                await at_work.wait()
                lease = store.current_lease(run.conversation)
                assert lease is not None
                store.release(lease)  # as if it had expired and been claimed
                assert (await Runs(store).wait(run.id)).state == "done"
                await until_async(lambda: sorted(ended) == ["done", "stopped"])

    asyncio.run(lose())


def test_cancelled_worker_hands_runs_back(place: Place) -> None:
    at_work = asyncio.Event()
    registry = RunRegistry()

    @registry.kind("chat")
    def chat(history: AgentHistory, run: Run) -> ToolLoop:
        @tool(effect="idempotent", timeout=None)
        async def wait() -> str:
            """Waits forever."""
            at_work.set()
            await asyncio.sleep(1000)
            return "never"

        return ToolLoop(Conversation(planned([["wait"]]), tools=[wait], history=history))

    async def cancel() -> None:
        with place.open() as store:
            run = Runs(store).submit("Go.")
            working = asyncio.ensure_future(worker_of(store, registry, lease_seconds=600).run())
            await at_work.wait()
            working.cancel()
            with pytest.raises(asyncio.CancelledError):
                await working
            assert store.runs.get(run.id).display_state == "waiting"
            assert len(Turn.of(store.open(run.conversation).snapshot()).open_calls) == 1

    asyncio.run(cancel())


def test_stuck_event_loop_lets_leases_expire(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    registry = RunRegistry()
    with place.open() as store, caplog.at_level(logging.ERROR, "antiphon.history"):

        @registry.kind("chat")
        def chat(history: AgentHistory, run: Run) -> ToolLoop:
            @tool(effect="once")
            async def block() -> str:
                """Is stuck until another worker could claim the conversation."""
                while store.current_lease(run.conversation) is not None:
                    time.sleep(0.05)
                return "moved"

            return ToolLoop(Conversation(planned([["block"]]), tools=[block], history=history))

        Runs(store).submit("Go.")
        play(store, registry, lease_seconds=1, stuck_seconds=0.5)
    assert len(caplog.messages) == 1
    assert "is stuck" in caplog.messages[0]
