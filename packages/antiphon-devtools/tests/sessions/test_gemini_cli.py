"""Sessions of Gemini CLI: changes are applied, results are read once, going back makes a branch."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from antiphon.errors import SessionError
from antiphon.history import AgentHistory, HistoryEntry, ModelInputEntry, ModelOutputEntry, ToolCallResultsEntry
from antiphon.parts import Image, Text, Thinking, ToolCallRequest, ToolExecutionStatus
from antiphon_devtools.sessions import load_program
from antiphon_devtools.sessions.written import SessionTarget
from sessions.session_lines import PIXEL, GeminiLines, gemini_session

GEMINI = load_program("gemini-cli")


def check_entries(entries: tuple[HistoryEntry, ...]) -> None:
    """Check the entries of `gemini_session`."""
    prompt, answer, results, last = entries
    assert isinstance(prompt, ModelInputEntry)
    assert prompt.content == (Text("Read note.txt 绿灯"),)
    assert isinstance(answer, ModelOutputEntry)
    assert [type(part) for part in answer.content] == [Thinking, Text, ToolCallRequest, ToolCallRequest]
    assert answer.plan == "**Reading**\nThe note first."
    assert answer.origin is not None
    assert answer.origin.model == "gemini-2.5-pro"
    assert isinstance(results, ToolCallResultsEntry)
    first, second = results.results
    assert first.content == (Text("the lamp is green"), Image(media_type="image/png", data=PIXEL))
    assert (second.status, second.content) == (ToolExecutionStatus.FAILED, (Text("no such file"),))
    assert isinstance(last, ModelOutputEntry)
    assert last.response_markdown == "It is green."


def test_an_answer_that_is_written_again_is_one_entry_with_its_results(tmp_path: Path) -> None:
    imported = GEMINI.read(gemini_session().write(tmp_path))
    (branch,) = imported.branches
    check_entries(branch.entries)
    assert imported.unreadable == ()
    assert imported.own_context == 1


def test_the_earlier_form_in_one_object_is_read_the_same(tmp_path: Path) -> None:
    lines = gemini_session().lines
    messages = {line["id"]: line for line in lines if isinstance(line, dict) and "id" in line}
    path = tmp_path / ".gemini" / "tmp" / "hash" / "chats" / "session-2026-11-16T15-41-a04fbf00.json"
    path.parent.mkdir(parents=True)
    path.write_text(
        json.dumps({"sessionId": "a04fbf00", "startTime": "2026-11-16T15:41:00Z", "messages": list(messages.values())})
    )
    check_entries(GEMINI.read(path).branches[0].entries)
    (session,) = GEMINI.find(tmp_path)
    assert (session.id, session.title) == ("a04fbf00", "Read note.txt 绿灯")


def test_the_session_is_found_with_its_title_and_folder(tmp_path: Path) -> None:
    path = gemini_session().write(tmp_path)
    (session,) = GEMINI.find(tmp_path)
    assert (session.path, session.title, session.folder) == (str(path), "Read note.txt 绿灯", "/home/ann/lamp")


def test_messages_the_user_went_back_from_are_a_branch(tmp_path: Path) -> None:
    lines = GeminiLines()
    lines.prompt("u1", "What is this?")
    lines.answer("g1", "A lamp.")
    lines.prompt("u2", "Make it red.")
    lines.answer("g2", "It is red.")
    lines.lines.append({"$rewindTo": "u2"})
    lines.prompt("u3", "Make it green.")
    first, second = GEMINI.read(lines.write(tmp_path)).branches
    assert [entry.kind for entry in first.entries] == ["model_input", "model_output", "model_input", "model_output"]
    assert [entry.kind for entry in second.entries] == ["model_input", "model_output", "model_input"]
    assert (second.parent, second.shared) == ("", 2)


def test_bad_lines_are_reported_and_the_rest_is_read(tmp_path: Path) -> None:
    lines = gemini_session()
    lines.lines += ['{"id": "g3", "ty', {"$push": {}}]
    lines.add("robot", "r1", "beep")
    lines.answer("g9", "")
    imported = GEMINI.read(lines.write(tmp_path))
    assert [one.why.partition(":")[0] for one in imported.unreadable] == [
        "not valid JSON",
        "neither a message nor a change of one",
        "a message of the unknown type 'robot'; left out",
        "an empty answer; left out",
    ]
    check_entries(imported.branches[0].entries)


@pytest.mark.parametrize("name", ["other.jsonl", "other.json"])
def test_a_file_of_something_else_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text('{"type": "user"}\n')
    with pytest.raises(SessionError, match="has no conversation of Gemini CLI"):
        GEMINI.read(path)


def test_a_written_session_is_read_as_the_same_history_and_registers_its_project(tmp_path: Path) -> None:
    (branch,) = GEMINI.read(gemini_session().write(tmp_path / "first")).branches
    assert GEMINI.write is not None
    target = SessionTarget(home=tmp_path, folder=Path("/home/ann/Lamp Post"))
    index = tmp_path / ".gemini" / "projects.json"
    index.parent.mkdir()
    index.write_text('{"projects": {"/other/lamp-post": "lamp-post"}}')
    written = GEMINI.write(AgentHistory(branch.entries), target)
    chat, projects, *roots = written.files
    assert json.loads(projects.data) == {
        "projects": {"/other/lamp-post": "lamp-post", "/home/ann/Lamp Post": "lamp-post-1"}
    }
    assert {root.data for root in roots} == {b"/home/ann/Lamp Post"}
    for file in written.files:
        file.path.parent.mkdir(parents=True, exist_ok=True)
        file.path.write_bytes(file.data)
    again = GEMINI.read(chat.path)
    assert (again.session.id, again.session.folder) == (written.id, "/home/ann/Lamp Post")
    check_entries(again.branches[0].entries)
    assert len(GEMINI.write(AgentHistory(branch.entries), target).files) == 1, "the project is known by now"


def test_results_are_written_with_their_calls_only(tmp_path: Path) -> None:
    (branch,) = GEMINI.read(gemini_session().write(tmp_path)).branches
    assert GEMINI.write is not None
    written = GEMINI.write(AgentHistory(branch.entries), SessionTarget(home=tmp_path, folder=tmp_path))
    messages = [json.loads(line) for line in written.files[0].data.splitlines()[1:]]
    assert [message["type"] for message in messages] == ["user", "gemini", "gemini"]
    first, second = messages[1]["toolCalls"]
    assert [list(part) for part in first["result"]] == [["functionResponse"], ["inlineData"]]
    assert (first["status"], second["status"]) == ("success", "error")
