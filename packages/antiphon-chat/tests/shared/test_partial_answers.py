"""Partial answers: written while an answer streams, taken into the log once, and never while another process streams."""

from __future__ import annotations

from pathlib import Path

import pytest

import antiphon as ap
from antiphon.conversation import rounds_of
from antiphon.conversation.events import LoopFinished, RoundStarted, TextDelta, ThinkingDelta
from antiphon.history import SqliteStore
from antiphon_chat.shared.partial_answers import PartialAnswers


def leave_partial(folder: Path, history: ap.AgentHistory, *texts: str, model: str = "openai/gpt-5.5") -> None:
    """The file of a killed process, without its lock."""
    writer = PartialAnswers(folder).writer(ap.Conversation(model, provider=ap.ScriptedModel(), history=history))
    for text in texts:
        writer._next = 0.0
        writer.on_event(TextDelta(text))
    assert writer._file is not None
    writer._file.close()


@pytest.fixture
def history(tmp_path: Path) -> ap.AgentHistory:
    store = SqliteStore(tmp_path / "chats.db")
    history = store.create()
    history.append(ap.ModelInputEntry.of("Hello?"))
    return history


def test_text_is_recovered_once_as_an_answer_that_was_cut(tmp_path: Path, history: ap.AgentHistory) -> None:
    leave_partial(tmp_path, history, "Half ", "an answer")
    [file] = (tmp_path / "partial").iterdir()
    assert file.stat().st_mode & 0o077 == 0
    with file.open("ab") as more:
        more.write(b'"not a whole li')
    partial = PartialAnswers(tmp_path)
    assert partial.recover(history)
    output = history.entries[-1]
    assert isinstance(output, ap.ModelOutputEntry)
    assert (output.response_markdown, output.stop_reason) == ("Half an answer", "failed")
    assert output.origin is not None
    assert (output.origin.provider, output.origin.model) == ("openai", "gpt-5.5")
    assert not partial.recover(history)
    chat = ap.Conversation(ap.ScriptedModel("The whole answer."), history=history)
    assert str(ap.ToolLoop(chat).run_sync()) == "The whole answer."


@pytest.mark.parametrize("line", [b'"\xff"\n', b"[" * 5_000 + b"\n"])
def test_a_damaged_file_keeps_no_conversation_closed(tmp_path: Path, history: ap.AgentHistory, line: bytes) -> None:
    leave_partial(tmp_path, history, "Half ")
    [file] = (tmp_path / "partial").iterdir()
    with file.open("ab") as more:
        more.write(line)
    assert not PartialAnswers(tmp_path).recover(history)


@pytest.mark.parametrize(
    ("model", "origin"),
    [
        ("openrouter/anthropic/claude-x", ap.Origin("openrouter", "", "anthropic/claude-x")),
        ("openai/gpt-5.5", ap.Origin("openai", "", "gpt-5.5")),
        ("fast", ap.Origin("", "", "fast")),
    ],
)
def test_the_recovered_answer_is_of_its_model_and_of_no_agent(
    tmp_path: Path, history: ap.AgentHistory, model: str, origin: ap.Origin
) -> None:
    leave_partial(tmp_path, history, "Half", model=model)
    assert PartialAnswers(tmp_path).recover(history)
    output = history.entries[-1]
    assert isinstance(output, ap.ModelOutputEntry)
    assert output.origin == origin
    *_, last = rounds_of(history.snapshot())
    assert (last.agent, last.model) == ("", model)


def test_nothing_is_recovered_while_it_is_streamed_or_after_the_answer(
    tmp_path: Path, history: ap.AgentHistory
) -> None:
    partial = PartialAnswers(tmp_path)
    writer = partial.writer(ap.Conversation(ap.ScriptedModel(), history=history))
    writer.on_event(RoundStarted(1, "m"))
    writer.on_event(TextDelta("Half"))
    writer.on_event(ThinkingDelta("hm"))
    assert not partial.recover(history)  # the lock
    writer.on_event(LoopFinished("answered"))
    assert list((tmp_path / "partial").iterdir()) == []
    leave_partial(tmp_path, history, "Half")
    history.append(ap.ModelOutputEntry.of("Half and whole."))
    version = history.version
    assert not partial.recover(history)
    assert history.version == version


def test_without_a_folder_nothing_is_written(history: ap.AgentHistory) -> None:
    partial = PartialAnswers(None)
    partial.writer(ap.Conversation(ap.ScriptedModel(), history=history)).on_event(TextDelta("a"))
    assert not partial.recover(history)
