"""`AgentHistory.on_append`: what is reported, when, and what a listener cannot break."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from antiphon.conversation import Conversation, ToolLoop
from antiphon.errors import InvalidEntry
from antiphon.history import (
    AgentHistory,
    DebugLogEntry,
    HistoryEntry,
    ModelInputEntry,
    SqliteStore,
    ToolCallResultsEntry,
)
from antiphon.parts import ToolCallRequest, ToolCallResult
from antiphon.providers.scripted import ScriptedModel, call
from antiphon.tools import tool


@tool
def look(what: str) -> str:
    """Look at something."""
    return f"The {what} is blue."


def test_listeners_get_every_entry_once_it_is_in_the_log() -> None:
    history = AgentHistory()
    received: list[tuple[int, int, str]] = []

    def listen(entry: HistoryEntry) -> None:
        received.append((entry.sequence_number, history.version, entry.kind))

    stop = history.on_append(listen)
    history.append(ModelInputEntry.of("One."))
    history.set_system_instruction("Be brief.")
    history.rollback(1)
    stop()
    history.append(ModelInputEntry.of("Unheard."))
    stop()
    assert received == [(1, 1, "model_input"), (2, 2, "set_system_instruction"), (3, 3, "rollback")]


def test_an_entry_that_is_not_written_is_not_reported() -> None:
    received: list[HistoryEntry] = []
    history = AgentHistory()
    history.on_append(received.append)
    with pytest.raises(InvalidEntry):
        history.append(ToolCallResultsEntry((ToolCallResult.of(ToolCallRequest("look", "unknown", "{}"), "found"),)))
    assert (received, history.version) == ([], 0)


def test_a_listener_that_fails_or_appends_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    history = AgentHistory()
    received: list[str] = []

    def echo(entry: HistoryEntry) -> None:
        history.append(DebugLogEntry("echo", entry.kind))

    history.on_append(echo)
    history.on_append(lambda entry: received.append(entry.kind))
    history.append(ModelInputEntry.of("One."))
    assert (received, history.version) == (["model_input"], 1)
    assert "on_append" in caplog.text
    assert "WriterConflict" in caplog.text
    wrong: Any = "not a function"
    with pytest.raises(InvalidEntry, match="expected a function that takes an entry"):
        history.on_append(wrong)


def test_entries_of_other_processes_are_reported_when_they_are_read(tmp_path: Path) -> None:
    with SqliteStore(tmp_path / "chats.db") as store:
        one = store.create()
        other = store.open(one.id)
        received: list[int] = []
        other.on_append(lambda entry: received.append(entry.sequence_number))
        one.append(ModelInputEntry.of("One."))
        one.append(ModelInputEntry.of("Two."))
        assert received == []
        other.refresh()
        assert received == [1, 2]


def test_two_structures_are_kept_in_step_during_a_migration() -> None:
    """The first phases of a migration: the log is written, and the old list of messages follows it (seed 003)."""
    history = AgentHistory()
    legacy = history.to_messages()
    history.on_append(lambda entry: legacy.extend(entry.to_messages()))
    model = ScriptedModel("Hello.", ["I look.", call("look", what="sky"), call("look", what="sea")], "Blue.")
    chat = Conversation(model, history=history, tools=[look], system="Be brief.")
    for question in ("Hi.", "Look around."):
        ToolLoop(chat).run_sync(question)
    assert legacy == history.to_messages()
    assert [message["role"] for message in legacy] == [
        *["system", "user", "assistant", "user", "assistant", "tool", "tool", "assistant"]
    ]
