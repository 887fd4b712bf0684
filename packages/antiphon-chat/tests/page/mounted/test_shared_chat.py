"""The chat of a gateway with several workers: one has it, the others forward to it, and its death loses no conversation."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.served import ServedGateway, served
from page.rig import Browser
from support.waiting import until


@pytest.fixture
def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServedGateway]:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    config = tmp_path / "antiphon.toml"
    config.write_text('[[providers]]\nname = "offline"\n\n[[models]]\nname = "m"\ntargets = ["offline/plain"]\n')
    with served(config, "--workers", "3") as running:
        until(lambda: len(running.workers) == 3)
        yield running


def test_any_worker_forwards_to_the_one_that_has_the_chat(running: ServedGateway) -> None:
    # Every request is a connection of its own, so all workers are asked.
    browser = Browser(running.port)
    for _ in range(6):
        assert browser.get("/").status == 302
        assert b"<html" in browser.get("/chat/").body
    conversation = browser.create()
    for number in range(6):
        events_seen = browser.ask(conversation, f"question {number}")
        assert [event.id for event in events_seen if event.id] == sorted(
            {event.id for event in events_seen if event.id}
        )
        assert events_seen[-1].name == "LoopFinished"
    assert browser.show(conversation)["turn"] == 6
    assert browser.api("POST", f"/conversations/{conversation}/turns", {"content": []}, status=400)
    assert browser.get("/chat/api/nothing").status == 404


def test_another_worker_takes_the_chat_of_one_that_died(running: ServedGateway) -> None:
    browser = Browser(running.port)
    conversation = browser.create()
    for turn in range(1, 4):
        events_seen = browser.ask(conversation, f"question {turn}")
        assert events_seen[-1].data["reason"] == "answered"
        before = browser.show(conversation)["last_event"]
        with browser.events(conversation, before) as watching:
            owner = _owner(running)
            os.kill(owner, signal.SIGKILL)
            assert list(watching) == []  # the stream ends, and does not hang
        until(lambda owner=owner: len(running.workers) == 3 and owner not in running.workers)
        shown = browser.show(conversation)
        assert (shown["turn"], shown["running"]) == (turn, False)
    assert running.stop() == 0


def _owner(running: ServedGateway) -> int:
    """The worker that holds the lock of the chat. Workers hold others too, such as those of their ledger journals."""
    locks = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    held = {
        (int(fields[4]), int(fields[5].rpartition(":")[2]))
        for fields in locks
        if "FLOCK" in fields and "->" not in fields
    }
    (owner,) = {worker for worker in running.workers for file in _chat_locks(worker) if (worker, file) in held}
    return owner


def _chat_locks(worker: int) -> list[int]:
    """The inodes of the chat locks that a process has open."""
    found = []
    for opened in Path(f"/proc/{worker}/fd").iterdir():
        with contextlib.suppress(OSError):
            if os.readlink(opened).endswith("chat.lock"):
                found.append(opened.stat().st_ino)
    return found
