"""A store that is locked, read-only or gone for a while: a worker waits, logs it once and continues."""

from __future__ import annotations

import asyncio
import logging
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from antiphon.conversation import Conversation, ToolLoop
from antiphon.history import AgentHistory, Run, SqliteStore
from antiphon.providers.scripted import ScriptedModel
from antiphon.runs import RunRegistry, RunRetryPolicy, Runs, Worker
from antiphon.tools import tool
from runs.workers import WorkerProcess, check_log, over, placed
from support.planned_turns import planned, results_in
from support.postgres_server import PostgresServer
from support.waiting import until

SOON = RunRetryPolicy(first_delay=0.05, longest_delay=0.1)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Another program holds the file."""
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    try:
        yield
    finally:
        other.execute("ROLLBACK")
        other.close()


async def logged(caplog: pytest.LogCaptureFixture, line: str) -> None:
    """Wait until something was logged."""
    for _ in range(6000):
        if line in caplog.text:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"nothing was logged about: {line}")


def greeting() -> RunRegistry:
    registry = RunRegistry()

    @registry.kind("chat")
    def chat(history: AgentHistory, run: Run) -> ToolLoop:
        return ToolLoop(Conversation(ScriptedModel("Hello."), history=history))

    return registry


def test_worker_waits_for_locked_store(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "chats.db"

    async def through() -> None:
        with SqliteStore(path, timeout=0.05) as store:
            run = Runs(store).submit("Hello?")
            worker = Worker(store, greeting(), retry_policy=SOON)
            with locked(path):
                working = asyncio.ensure_future(worker.run())
                await logged(caplog, "the store is unavailable")
                assert not working.done()
            assert (await Runs(store).wait(run.id)).reason == "answered"
            worker.stop()
            await working

    with caplog.at_level(logging.INFO, "antiphon.runs"):
        asyncio.run(through())
    log_lines = [line for line in caplog.messages if "the store is" in line]
    assert len(log_lines) == 2
    assert "locked" in log_lines[0]
    assert log_lines[1] == "the store is back"


def test_store_locked_during_turn(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "chats.db"
    at_work = asyncio.Event()
    go_on = asyncio.Event()
    registry = RunRegistry()
    ran: list[str] = []

    @registry.kind("chat")
    def chat(history: AgentHistory, run: Run) -> ToolLoop:
        @tool(effect="idempotent")
        async def put() -> str:
            """Writes something."""
            ran.append("put")
            at_work.set()
            await go_on.wait()
            return "written"

        @tool(effect="once")
        async def send() -> str:
            """Sends something."""
            ran.append("send")
            return "sent"

        plan = [["send"], ["put"], ["send"]]
        return ToolLoop(Conversation(planned(plan), tools=[put, send], history=history), max_repeats=9)

    async def through() -> None:
        with SqliteStore(path, timeout=0.05) as store:
            run = Runs(store).submit("Go.")
            worker = Worker(store, registry, retry_policy=SOON, lease_seconds=60)
            working = asyncio.ensure_future(worker.run())
            await at_work.wait()
            with locked(path):
                go_on.set()  # its result cannot be written
                await logged(caplog, "the store is unavailable")
                assert not working.done()
            done = await Runs(store).wait(run.id)
            assert (done.reason, done.attempts) == ("answered", 2)
            worker.stop()
            await working
            log_lines = results_in(store.open(run.conversation).entries)
            assert list(log_lines.values()) == ["sent", "written", "sent"]

    asyncio.run(through())
    assert ran == ["send", "put", "put", "send"], "only what has no result is done again"


def test_worker_waits_for_read_only_store_until_stopped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "chats.db"
    with SqliteStore(path) as store:
        run = Runs(store).submit("Hello?")

    async def through() -> None:
        with SqliteStore(path, read_only=True) as replica:
            worker = Worker(replica, greeting())
            working = asyncio.ensure_future(worker.run())
            await logged(caplog, "the store is unavailable")
            assert not working.done()
            worker.stop()
            await working
            assert replica.runs.get(run.id).display_state == "waiting"

    asyncio.run(through())
    assert len([line for line in caplog.messages if "the store is unavailable" in line]) == 1


def test_conversation_deleted_during_run(tmp_path: Path) -> None:
    at_work = asyncio.Event()
    go_on = asyncio.Event()
    registry = greeting()

    @registry.kind("slow")
    def slow(history: AgentHistory, run: Run) -> ToolLoop:
        @tool
        async def wait() -> str:
            """Waits."""
            at_work.set()
            await go_on.wait()
            return "done"

        return ToolLoop(Conversation(planned([["wait"]]), tools=[wait], history=history))

    async def through() -> None:
        with SqliteStore(tmp_path / "chats.db") as store:
            gone = Runs(store).submit("Go.", kind="slow")
            worker = Worker(store, registry, retry_policy=SOON)
            working = asyncio.ensure_future(worker.run())
            await at_work.wait()
            store.delete(gone.conversation)
            go_on.set()
            later = Runs(store).submit("Hello?")
            assert (await Runs(store).wait(later.id)).state == "done"
            worker.stop()
            await working

    asyncio.run(through())


@pytest.mark.slow
def test_database_server_killed_during_run(postgres: str, postgres_server: PostgresServer, tmp_path: Path) -> None:
    place = placed(tmp_path, postgres)
    with place.open() as store:
        run = Runs(store).submit("Go.", kind="work", options={"plan": [["send"], ["hold_put"], ["look"]]})
    with WorkerProcess(place, lease=2) as worker:
        until(lambda: place.began("hold_put"))
        postgres_server.kill()
        place.go()
        until(lambda: "the store is unavailable" in worker.log)
        postgres_server.start()
        with place.open() as store:
            assert over(store, run)[0].reason == "answered"
            assert check_log(place, store, run) == 0
        assert worker.is_alive
        assert len(place.began("send")) == 1
        assert "Traceback" not in worker.log


@pytest.mark.slow
def test_worker_waits_for_database_server(postgres: str, postgres_server: PostgresServer, tmp_path: Path) -> None:
    place = placed(tmp_path, postgres)
    with place.open() as store:
        run = Runs(store).submit("Go.", kind="work", options={"plan": [["look"]]})
    postgres_server.stop()
    with WorkerProcess(place) as worker:
        until(lambda: "waiting for the store" in worker.log)
        postgres_server.start()
        with place.open() as store:
            assert over(store, run)[0].state == "done"
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0
