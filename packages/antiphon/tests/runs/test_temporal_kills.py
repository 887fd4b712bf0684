"""Turns on Temporal while workers and the server itself are killed, stopped and started again: the laws hold whatever happens."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("temporalio", reason="Temporal's SDK is not installed (pip install 'antiphon[temporal]')")

from antiphon.history import AgentHistory
from antiphon.runs.temporal import start_turn, turn_handle
from antiphon.runs.temporal_workflow import TurnStatus
from antiphon.tools.call_runner import UNKNOWN_OUTCOME
from runs.workers import Place
from support.planned_turns import refusals, results_in
from support.temporal_server import TemporalServer
from support.waiting import until

pytestmark = pytest.mark.slow

LEASE = 4.0


class Theatre:
    """A server of Temporal beside a store, workers on it, and the traces that their tools leave."""

    def __init__(self, server: TemporalServer, place: Place) -> None:
        self.server = server
        self.place = place

    @contextmanager
    def worker(self) -> Iterator[subprocess.Popen[bytes]]:
        """A worker that is up; whatever became of it, it is gone in the end."""
        command = [sys.executable, str(Path(__file__).parent / "temporal_worker_process.py"), self.server.address]
        with (self.place.folder / "workers.log").open("ab") as log:
            process = subprocess.Popen(command, env=self.place.environment, stdout=subprocess.PIPE, stderr=log)
        assert process.stdout is not None
        try:
            with process.stdout:
                assert process.stdout.readline() == b"ready\n", (self.place.folder / "workers.log").read_text()
                yield process
        finally:
            process.kill()
            process.wait()

    def start(self, *plan: list[str]) -> str:
        """Ask for a turn; the id of its conversation."""

        async def run() -> str:
            client = await self.server.client()
            with self.place.open() as store:
                options = {"plan": plan}
                handle = await start_turn(client, store, "Go.", kind="work", options=options, lease_seconds=LEASE)
                return handle.id.removeprefix("antiphon-")

        return asyncio.run(run())

    def end(self, conversation: str) -> TurnStatus:
        async def over() -> TurnStatus:
            return await turn_handle(await self.server.client(), conversation).result()

        return asyncio.run(asyncio.wait_for(over(), 120))

    def count(self, name: str, what: str = "began") -> int:
        """How often a tool began, or ended."""
        return sum(each.what == what and each.name == name for each in self.place.traced())

    def results(self, conversation: str) -> list[str]:
        """What the calls came to, with `done` for those that were done."""
        history = self.history(conversation)
        assert refusals(history.snapshot()) == []
        return [text.partition(" call_")[0] for text in results_in(history.entries).values()]

    def kinds(self, conversation: str) -> list[str]:
        """The kinds of the entries in the log."""
        return [entry.kind for entry in self.history(conversation).entries]

    def history(self, conversation: str) -> AgentHistory:
        with self.place.open() as store:
            return store.open(conversation)


@pytest.fixture
def theatre(place: Place) -> Iterator[Theatre]:
    with TemporalServer(place.folder) as server:
        yield Theatre(server, place)


@pytest.mark.parametrize("tool", ["hold_put", "hold_send"])
def test_another_worker_continues_after_kill(theatre: Theatre, tool: str) -> None:
    with theatre.worker() as first:
        conversation = theatre.start(["look"], ["send", tool], ["send"])
        until(lambda: theatre.count(tool) == 1 and "tool_call_finished" in theatre.kinds(conversation))
        first.kill()
        first.wait()
    theatre.place.go()
    with theatre.worker():
        end = theatre.end(conversation)
    assert (end.reason, end.rounds) == ("answered", 4)
    assert (theatre.count("send"), theatre.count("look")) == (2, 1), "what was finished is not done again"
    if tool == "hold_put":
        assert theatre.count(tool) == 2
        assert len({each.key for each in theatre.place.began(tool)}) == 1, "under the same key"
        assert theatre.results(conversation) == ["done", "done", "done", "done"]
    else:
        assert theatre.count(tool) == 1
        assert theatre.results(conversation) == ["done", "done", UNKNOWN_OUTCOME, "done"]


def test_turn_survives_server_restart(theatre: Theatre) -> None:
    with theatre.worker():
        conversation = theatre.start(["send"], ["hold_send"], ["send", "look"])
        until(lambda: theatre.count("hold_send") == 1)
        theatre.server.kill()
        theatre.place.go()
        until(lambda: theatre.count("hold_send", "ended") == 1)  # whose result cannot be delivered
        theatre.server.start()
        end = theatre.end(conversation)
    assert (end.reason, end.rounds) == ("answered", 4)
    assert theatre.results(conversation) == ["done", "done", "done", "done"]
    assert (theatre.count("send"), theatre.count("hold_send"), theatre.count("look")) == (2, 1, 1)


def test_expired_worker_cannot_append(theatre: Theatre) -> None:
    with theatre.worker() as zombie:
        conversation = theatre.start(["look"], ["hold_put"], ["send"])
        until(lambda: theatre.count("hold_put") == 1)
        zombie.send_signal(signal.SIGSTOP)
        theatre.place.go()
        with theatre.worker():
            end = theatre.end(conversation)
        entries = list(theatre.history(conversation).entries)
        zombie.send_signal(signal.SIGCONT)
        assert theatre.end(theatre.start(["send"])).reason == "answered", "it continues with other work"
    assert (end.reason, end.version) == ("answered", len(entries))
    assert theatre.results(conversation) == ["done", "done", "done"]
    assert list(theatre.history(conversation).entries) == entries
