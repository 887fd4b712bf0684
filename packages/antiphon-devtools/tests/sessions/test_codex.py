"""Sessions of Codex: the items of an answer are one entry, what Codex adds by itself is left out, going back makes a branch."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import structs

from antiphon.errors import SessionError
from antiphon.history import (
    AgentHistory,
    CompactionEntry,
    ModelInputEntry,
    ModelOutputEntry,
    Origin,
    SetSystemInstructionEntry,
    ToolCallResultsEntry,
)
from antiphon.parts import Image, Text, Thinking, ToolCallRequest
from antiphon_devtools.sessions import load_program
from antiphon_devtools.sessions.written import SessionTarget
from sessions.session_lines import PIXEL, CodexLines, codex_session

CODEX = load_program("codex")


def test_items_become_entries_with_reasoning_calls_results_and_images(tmp_path: Path) -> None:
    imported = CODEX.read(codex_session().write(tmp_path))
    (branch,) = imported.branches
    prompt, answer, results, last = branch.entries
    assert isinstance(prompt, ModelInputEntry)
    assert prompt.content == (Text("Read note.txt 绿灯"), Image(media_type="image/png", data=PIXEL))
    assert isinstance(answer, ModelOutputEntry)
    assert [type(part) for part in answer.content] == [Thinking, Text, ToolCallRequest, ToolCallRequest]
    reasoning = answer.content[0]
    assert isinstance(reasoning, Thinking)
    assert reasoning.text == "The note first."
    assert (reasoning.native or {})["openai-responses"]["encrypted_content"] == "ZW5jcnlwdGVk"
    assert answer.tool_calls[1] == ToolCallRequest("apply_patch", "call_2", "*** Begin Patch", freeform=True)
    assert answer.origin == Origin("openai", "openai-responses", "gpt-5.5")
    assert isinstance(results, ToolCallResultsEntry)
    assert [result.tool_call_id for result in results.results] == ["call_1", "call_2"]
    assert isinstance(last, ModelOutputEntry)
    assert last.response_markdown == "It is green."
    assert imported.own_context == 2
    assert imported.unreadable == ()


def test_the_session_is_found_with_its_title_and_folder(tmp_path: Path) -> None:
    path = codex_session().write(tmp_path)
    (session,) = CODEX.find(tmp_path)
    assert (session.path, session.id) == (str(path), "01a1e505-6f9d-7c63-9bbf-49ca67d9d1ac")
    assert (session.title, session.folder) == ("Read note.txt 绿灯", "/home/ann/lamp")


def test_its_own_folder_may_be_named_by_a_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    codex_session().write(tmp_path)
    monkeypatch.setenv("CODEX_HOME", str(tmp_path / ".codex"))
    assert [session.title for session in CODEX.find(tmp_path / "elsewhere")] == ["Read note.txt 绿灯"]


def test_turns_the_user_went_back_from_are_a_branch(tmp_path: Path) -> None:
    lines = CodexLines()
    lines.prompt("What is this?")
    lines.answer("A lamp.")
    lines.prompt("Make it red.")
    lines.answer("It is red.")
    lines.add("event_msg", {"type": "thread_rolled_back", "num_turns": 1})
    lines.prompt("Make it green.")
    lines.answer("It is green.")
    first, second = CODEX.read(lines.write(tmp_path)).branches
    assert [e.response_markdown for e in first.entries if isinstance(e, ModelOutputEntry)] == ["A lamp.", "It is red."]
    assert [e.response_markdown for e in second.entries if isinstance(e, ModelOutputEntry)] == [
        "A lamp.",
        "It is green.",
    ]
    assert (second.parent, second.shared) == ("", 2)


def test_a_compaction_keeps_what_it_summarised(tmp_path: Path) -> None:
    lines = CodexLines()
    lines.prompt("What is this?")
    lines.answer("A lamp.")
    summary = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "About a lamp."}]}
    lines.add("response_item", summary, metadata={"compaction_output": True})
    lines.add("compacted", {"message": "About a lamp.", "replacement_history": []})
    lines.prompt("Is it green?")
    (branch,) = CODEX.read(lines.write(tmp_path)).branches
    assert [entry.kind for entry in branch.entries] == ["model_input", "model_output", "compaction", "model_input"]
    assert isinstance(branch.entries[2], CompactionEntry)
    assert (branch.entries[2].summary, branch.entries[2].up_to) == ("About a lamp.", 2)


def test_an_interrupted_turn_keeps_its_notice(tmp_path: Path) -> None:
    lines = codex_session()
    lines.prompt("<turn_aborted>\nThe user interrupted the previous turn.</turn_aborted>")
    entries = CODEX.read(lines.write(tmp_path)).branches[0].entries
    assert isinstance(entries[-1], ModelInputEntry)
    assert entries[-1].content[0] == Text("<turn_aborted>\nThe user interrupted the previous turn.</turn_aborted>")


def test_bad_lines_are_reported_and_the_rest_is_read(tmp_path: Path) -> None:
    lines = codex_session()
    lines.lines.insert(2, '{"timestamp": "2026-')
    lines.lines.append({"timestamp": "2026-11-16T15:42:00Z", "type": "response_item"})
    imported = CODEX.read(lines.write(tmp_path))
    assert [one.line for one in imported.unreadable] == [3, 15]
    assert imported.unreadable[1].why == "a line of type response_item without a payload"
    assert len(imported.branches[0].entries) == 4


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.jsonl"
    path.write_text('{"type": "user", "payload": {}}\n')
    with pytest.raises(SessionError, match="has no conversation of Codex"):
        CODEX.read(path)


def test_a_written_session_is_read_as_the_same_history(tmp_path: Path) -> None:
    (branch,) = CODEX.read(codex_session().write(tmp_path / "first")).branches
    history = AgentHistory()
    history.append(SetSystemInstructionEntry("Be brief."))
    for entry in branch.entries:
        history.append(structs.replace(entry, sequence_number=0))
    assert CODEX.write is not None
    written = CODEX.write(history, SessionTarget(home=tmp_path, folder=Path("/home/ann/lamp")))
    assert written.notes == ("the system instruction: Codex has its own; left out",)
    (file,) = written.files
    assert file.path.name == f"rollout-1970-01-01T00-00-00-{written.id}.jsonl"
    file.path.parent.mkdir(parents=True)
    file.path.write_bytes(file.data)
    again = CODEX.read(file.path)
    assert again.session.id == written.id
    contents = [getattr(entry, "content", None) for entry in again.branches[0].entries]
    assert contents == [getattr(entry, "content", None) for entry in branch.entries]


def test_the_same_loss_in_many_messages_is_one_note(tmp_path: Path) -> None:
    history = AgentHistory()
    for number in range(3):
        history.append(ModelInputEntry.of(f"Question {number}"))
        history.append(ModelOutputEntry.of(Thinking("Hm."), f"Answer {number}", origin=Origin("x", "gemini", "m")))
    assert CODEX.write is not None
    written = CODEX.write(history, SessionTarget(home=tmp_path, folder=tmp_path))
    assert written.notes == (
        "messages[1].parts[0] and 2 more: thinking: reasoning can only be returned to the host that produced it; dropped",
    )
