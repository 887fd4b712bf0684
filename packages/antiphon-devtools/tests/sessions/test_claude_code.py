"""Sessions of Claude Code are read as they are: answers in one piece, parallel results, branches, attachments, bad lines."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import pytest

from antiphon.errors import SessionError
from antiphon.history import (
    AgentHistory,
    CompactionEntry,
    HistoryEntry,
    ModelInputEntry,
    ModelOutputEntry,
    Origin,
    ToolCallResultsEntry,
)
from antiphon.parts import Image, Text, Thinking, ToolCallRequest
from antiphon_devtools.sessions import ImportedSession, load_program
from sessions.session_lines import PIXEL, ClaudeLines, call, claude_session, text, write_lines

CLAUDE = load_program("claude-code")


def read(lines: ClaudeLines, home: Path) -> ImportedSession:
    return CLAUDE.read(lines.write(home))


def kinds(entries: tuple[HistoryEntry, ...]) -> list[str]:
    return [entry.kind for entry in entries]


def test_blocks_of_one_answer_are_one_entry_with_the_results_of_its_parallel_calls(tmp_path: Path) -> None:
    imported = read(claude_session(), tmp_path)
    (branch,) = imported.branches
    assert imported.unreadable == ()
    prompt, answer, results, last = branch.entries
    assert isinstance(prompt, ModelInputEntry)
    assert prompt.content == (Text("Read note.txt 绿灯"),)
    assert isinstance(answer, ModelOutputEntry)
    assert [type(part) for part in answer.content] == [Thinking, Text, ToolCallRequest, ToolCallRequest]
    assert answer.content[0] == Thinking("The note first.", native={"anthropic": {"signature": "c2lnbmF0dXJl"}})
    assert answer.origin == Origin("anthropic", "anthropic", "claude-opus-4-8")
    assert isinstance(results, ToolCallResultsEntry)
    assert [result.tool_call_id for result in results.results] == ["call_1", "call_2"]
    assert results.results[1].content == (Image(media_type="image/png", data=PIXEL),)
    assert isinstance(last, ModelOutputEntry)
    assert last.response_markdown == "It is green."
    assert f"{prompt.timestamp:%H:%M:%S}" == "15:41:01"


def test_the_session_is_found_with_its_title_and_folder(tmp_path: Path) -> None:
    path = claude_session().write(tmp_path)
    (session,) = CLAUDE.find(tmp_path)
    assert (session.program, session.path, session.id) == ("claude-code", str(path), path.stem)
    assert (session.title, session.folder) == ("Read note.txt 绿灯", "/home/ann/lamp")


def test_a_changed_prompt_is_a_branch_that_shares_the_entries_before_it(tmp_path: Path) -> None:
    lines = ClaudeLines()
    lines.prompt("What is this?")
    before = lines.answer(text("A lamp."))
    lines.prompt("Make it red.")
    lines.answer(text("It is red."), "msg_2")
    lines.prompt("Make it green.", parent=before)
    lines.answer(text("It is green."), "msg_3")
    other, main = read(lines, tmp_path).branches
    assert [e.response_markdown for e in main.entries if isinstance(e, ModelOutputEntry)] == ["A lamp.", "It is green."]
    assert [e.response_markdown for e in other.entries if isinstance(e, ModelOutputEntry)] == ["A lamp.", "It is red."]
    assert (main.parent, main.shared) == ("", 2)
    assert main.entries[:2] == other.entries[:2]


def test_lines_of_a_subagent_are_a_history_of_their_own(tmp_path: Path) -> None:
    lines = ClaudeLines()
    lines.prompt("Look around.")
    lines.answer(text("I looked."))
    lines.prompt("Count the files.", parent=None, isSidechain=True)
    lines.answer(text("Three."), "msg_2", isSidechain=True)
    main, subagent = read(lines, tmp_path).branches
    assert kinds(main.entries) == ["model_input", "model_output"]
    assert (subagent.title, subagent.shared) == ("subagent: Count the files.", 0)


def test_a_file_of_a_subagent_is_a_history_of_its_own(tmp_path: Path) -> None:
    path = claude_session().write(tmp_path)
    lines = ClaudeLines()
    lines.prompt("Count the files.", isSidechain=True)
    lines.answer(text("Three."), isSidechain=True)
    lines.lines.append("damaged")
    file = write_lines(path.with_suffix("") / "subagents" / "agent-a897.jsonl", lines.lines)
    imported = CLAUDE.read(path)
    main, subagent = imported.branches
    assert len(main.entries) == 4
    assert (subagent.title, subagent.shared) == ("subagent: Count the files.", 0)
    assert [(one.path, one.line) for one in imported.unreadable] == [(str(file), 3)]
    assert len(list(CLAUDE.find(tmp_path))) == 1


def test_a_compaction_keeps_what_it_summarised(tmp_path: Path) -> None:
    lines = ClaudeLines()
    lines.prompt("What is this?")
    last = lines.answer(text("A lamp."))
    lines.add("system", subtype="compact_boundary", parent=None, logicalParentUuid=last)
    lines.prompt("They asked about a lamp.", isCompactSummary=True)
    lines.prompt("Is it green?")
    lines.answer(text("Yes."), "msg_2")
    (branch,) = read(lines, tmp_path).branches
    assert kinds(branch.entries) == ["model_input", "model_output", "compaction", "model_input", "model_output"]
    assert isinstance(branch.entries[2], CompactionEntry)
    assert (branch.entries[2].summary, branch.entries[2].up_to) == ("They asked about a lamp.", 2)


def test_attached_files_are_messages_of_the_user(tmp_path: Path) -> None:
    lines = ClaudeLines()
    lines.prompt("See @note.txt and @lamp.png")
    note = {"type": "text", "file": {"filePath": "/home/ann/lamp/note.txt", "content": "green"}}
    lines.add("attachment", attachment={"type": "file", "filename": "/home/ann/lamp/note.txt", "content": note})
    lamp = {"type": "image", "file": {"base64": PIXEL, "type": "image/png"}}
    lines.add("attachment", attachment={"type": "file", "filename": "/home/ann/lamp/lamp.png", "content": lamp})
    lines.answer(text("Seen."))
    (branch,) = read(lines, tmp_path).branches
    parts = [part for entry in branch.entries if isinstance(entry, ModelInputEntry) for part in entry.content]
    assert parts[1:] == [Text("Contents of /home/ann/lamp/note.txt:\ngreen"), Image(media_type="image/png", data=PIXEL)]


def test_bad_lines_are_reported_and_the_rest_is_read(tmp_path: Path) -> None:
    lines = claude_session()
    lines.lines.insert(1, '{"type": "user", "message": {"ro')
    lines.lines.insert(2, "[1, 2]")
    lines.lines.append({"type": "assistant", "uuid": "x", "parentUuid": None})
    imported = read(lines, tmp_path)
    assert [(one.line, one.why.partition(":")[0]) for one in imported.unreadable] == [
        (2, "not valid JSON"),
        (3, "not a JSON object"),
        (12, "a line of type assistant without a message"),
    ]
    assert len(imported.branches[0].entries) == 4
    assert str(imported.unreadable[0]).startswith(f"{imported.session.path}:2: not valid JSON")


def test_a_lone_surrogate_is_replaced(tmp_path: Path) -> None:
    lines = ClaudeLines()
    lines.prompt("broken \ud83d emoji")
    lines.answer(text("Seen."))
    (branch,) = read(lines, tmp_path).branches
    assert isinstance(branch.entries[0], ModelInputEntry)
    assert branch.entries[0].content == (Text("broken ? emoji"),)


def test_a_call_without_a_result_is_answered_and_reported(tmp_path: Path) -> None:
    lines = ClaudeLines()
    lines.prompt("Read it.")
    lines.answer(call("call_1", "note.txt"))
    imported = read(lines, tmp_path)
    assert kinds(imported.branches[0].entries) == ["model_input", "model_output", "tool_call_results"]
    assert [one.line for one in imported.unreadable] == [2]
    assert imported.unreadable[0].why.startswith("synthesised: ")


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.jsonl"
    path.write_text('{"type": "session_meta"}\n')
    with pytest.raises(SessionError, match="has no messages of Claude Code"):
        CLAUDE.read(path)
    with pytest.raises(SessionError, match=r"cannot read .*: No such file"):
        CLAUDE.read(tmp_path / "gone.jsonl")


def test_a_notice_beside_the_path_is_not_a_branch(tmp_path: Path) -> None:
    lines = claude_session()
    prompt = lines.lines[0]["uuid"]  # type: ignore[index]
    lines.add("system", subtype="turn_duration", parent=prompt)
    lines.add("attachment", attachment={"type": "date", "date": "2026-11-16"}, parent=prompt)
    (branch,) = read(lines, tmp_path).branches
    assert len(branch.entries) == 4


@pytest.mark.parametrize("is_continued", [False, True])
def test_the_result_of_a_parallel_call_that_comes_last_is_not_a_branch(tmp_path: Path, is_continued: bool) -> None:
    lines = ClaudeLines()
    lines.prompt("Read all three.")
    first = lines.answer(call("call_1", "a"))
    second = lines.answer(call("call_2", "b"))
    third = lines.answer(call("call_3", "c"))
    lines.result("call_3", "C", parent=third)
    lines.result("call_2", "B", parent=second)
    lines.result("call_1", "A", parent=first)
    if is_continued:
        lines.answer(text("Read."), "msg_2")
    imported = read(lines, tmp_path)
    (branch,) = imported.branches
    assert imported.unreadable == ()
    _, answer, results, *rest = branch.entries
    assert isinstance(answer, ModelOutputEntry)
    assert [each.tool_call_id for each in answer.tool_calls] == ["call_1", "call_2", "call_3"]
    assert isinstance(results, ToolCallResultsEntry)
    assert [result.result_markdown for result in results.results] == ["A", "B", "C"]
    assert len(rest) == is_continued


@pytest.mark.slow
def test_many_lines_are_read_in_linear_time(tmp_path: Path) -> None:
    lines = ClaudeLines()
    for number in range(3000):
        prompt = lines.prompt(f"Question {number}")
        lines.add("progress", parent=prompt)
        lines.answer(text("Yes."), f"msg_{number}", parent=prompt)
    for line in lines.lines:
        assert isinstance(line, dict)
        line["timestamp"] = "2026-11-16T15:41:00Z"
    path = lines.write(tmp_path)
    steps = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal steps
        steps += event == "call"

    sys.setprofile(count)
    try:
        (branch,) = CLAUDE.read(path).branches
    finally:
        sys.setprofile(None)
    assert len(branch.entries) == 6000
    assert steps < 300 * 9000, "calls of functions, for 9000 lines"


def test_parents_in_a_circle_end(tmp_path: Path) -> None:
    lines = ClaudeLines()
    lines.prompt("One")
    lines.lines[0]["parentUuid"] = lines.answer(text("Two"))  # type: ignore[index]
    assert kinds(read(lines, tmp_path).branches[0].entries) == ["model_input", "model_output"]


def test_messages_that_claude_code_adds_are_counted_and_left_out(tmp_path: Path) -> None:
    lines = claude_session()
    message = {"id": "x", "role": "assistant", "model": "<synthetic>", "content": [text("No response requested.")]}
    lines.add("assistant", message=message)
    lines.add("assistant", message={**message, "id": "y"}, isApiErrorMessage=True)
    imported = read(lines, tmp_path)
    assert imported.own_context == 2
    assert [one.why for one in imported.unreadable] == ["an error of the API that the program showed; left out"]
    assert len(imported.branches[0].entries) == 4


def test_a_written_session_is_read_as_the_same_history(tmp_path: Path) -> None:
    from antiphon_devtools.sessions.written import SessionTarget

    (branch,) = read(claude_session(), tmp_path / "first").branches
    assert CLAUDE.write is not None
    written = CLAUDE.write(AgentHistory(branch.entries), SessionTarget(home=tmp_path, folder=Path("/home/ann/lamp")))
    assert written.notes == ()
    (file,) = written.files
    assert file.path == tmp_path / ".claude" / "projects" / "-home-ann-lamp" / f"{written.id}.jsonl"
    file.path.parent.mkdir(parents=True)
    file.path.write_bytes(file.data)
    again = CLAUDE.read(file.path)
    assert again.session.id == written.id
    assert [_content(entry) for entry in again.branches[0].entries] == [_content(entry) for entry in branch.entries]


def _content(entry: HistoryEntry) -> object:
    return msgspec.structs.replace(entry, timestamp=None)
