"""Sessions of Copilot CLI are read as they are: calls, results, reasoning, images, subagents, bad lines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from antiphon.errors import SessionError
from antiphon.history import CompactionEntry, ModelInputEntry, ModelOutputEntry, ToolCallResultsEntry
from antiphon.parts import Image, Text, Thinking, ToolCallRequest, ToolExecutionStatus
from antiphon_devtools.sessions import ImportedSession, load_program
from sessions.session_lines import PIXEL, write_lines

COPILOT = load_program("copilot")
SESSION = "712b703f-35ed-42af-a274-33ce52fa82f9"


class CopilotLines:
    """Events in the shape of Copilot CLI 1.0."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any] | str] = []
        context = {"cwd": "/home/ann/lamp", "gitRoot": "/home/ann/lamp", "branch": "main"}
        self.add("session.start", sessionId=SESSION, version=1, copilotVersion="1.0.102", context=context)

    def add(self, kind: str, agent: str = "", **data: Any) -> None:
        number = len(self.lines) + 1
        line = {
            "type": kind,
            "data": data,
            "id": f"00000000-0000-4000-8000-{number:012}",
            "timestamp": f"2026-11-16T15:47:{number:02}.672Z",
            "parentId": None,
        }
        self.lines.append({**line, "agentId": agent} if agent else line)

    def call(self, call_id: str, path: str) -> dict[str, Any]:
        return {"toolCallId": call_id, "name": "view", "arguments": {"path": path}, "type": "function"}

    def write(self, home: Path) -> Path:
        return write_lines(home / ".copilot" / "session-state" / SESSION / "events.jsonl", self.lines)


def copilot_session() -> CopilotLines:
    lines = CopilotLines()
    lines.add("user.message", content="Read note.txt 绿灯", transformedContent="<current_datetime>…", turnId="0")
    lines.add("system.message", role="system", content="You are the terminal assistant.")
    lines.add("assistant.turn_start", turnId="0")
    blocks = [{"type": "thinking", "thinking": "The note first.", "signature": "c2ln"}]
    lines.add(
        "assistant.message",
        model="claude-sonnet-4-5",
        content="I read the note.",
        toolRequests=[
            lines.call("call_1", "note.txt"),
            lines.call("call_2", "lamp.png"),
            lines.call("call_3", "gone.txt"),
        ],
        reasoningText="The note first.",
        reasoningOpaque="c2ln",
        reasoningBlocks={"provider": "anthropic-messages", "blocks": blocks},
    )
    lines.add("tool.execution_start", toolCallId="call_1", toolName="view")
    lines.add("tool.execution_complete", toolCallId="call_3", success=False, error={"message": "Path does not exist"})
    lines.add("session.binary_asset", assetId="sha256:97a3", type="image", mimeType="image/png", data=PIXEL)
    seen = {"content": "Viewed.", "binaryResultsForLlm": [{"type": "image", "assetId": "sha256:97a3"}]}
    lines.add("tool.execution_complete", toolCallId="call_2", success=True, result=seen)
    lines.add("tool.execution_complete", toolCallId="call_1", success=True, result={"content": "It is green."})
    lines.add("assistant.message", model="claude-sonnet-4-5", content="Green. 绿色。", toolRequests=[])
    lines.add("session.shutdown", shutdownType="routine")
    return lines


def read(lines: CopilotLines, home: Path) -> ImportedSession:
    return COPILOT.read(lines.write(home))


def test_calls_results_reasoning_and_images_are_kept(tmp_path: Path) -> None:
    imported = read(copilot_session(), tmp_path)
    assert imported.unreadable == ()
    assert imported.own_context == 1  # its system prompt
    (branch,) = imported.branches
    prompt, answer, results, last = branch.entries
    assert isinstance(prompt, ModelInputEntry)
    assert prompt.content == (Text("Read note.txt 绿灯"),)
    assert f"{prompt.timestamp:%H:%M:%S}" == "15:47:02"
    assert isinstance(answer, ModelOutputEntry)
    assert answer.content[:2] == (
        Thinking("The note first.", native={"anthropic": {"signature": "c2ln"}}),
        Text("I read the note."),
    )
    assert answer.tool_calls[0] == ToolCallRequest("view", "call_1", '{"path":"note.txt"}')
    assert answer.origin is not None
    assert (answer.origin.format, answer.origin.model) == ("anthropic", "claude-sonnet-4-5")
    assert isinstance(results, ToolCallResultsEntry)
    assert [result.tool_name for result in results.results] == ["view"] * 3
    assert results.results[1].content == (Text("Viewed."), Image("image/png", PIXEL))
    assert results.results[2].status is ToolExecutionStatus.FAILED
    assert results.results[2].result_markdown == "Path does not exist"
    assert isinstance(last, ModelOutputEntry)
    assert last.response_markdown == "Green. 绿色。"


def test_the_session_is_found_with_its_title_and_folder(tmp_path: Path) -> None:
    path = copilot_session().write(tmp_path)
    write_lines(path.parent.parent / "empty" / "events.jsonl", CopilotLines().lines)  # it has no messages
    (session,) = COPILOT.find(tmp_path)
    assert (session.program, session.path, session.id) == ("copilot", str(path), SESSION)
    assert (session.title, session.folder) == ("Read note.txt 绿灯", "/home/ann/lamp")
    imported = COPILOT.read(path)
    assert (imported.session.id, imported.session.messages) == (SESSION, 3)


def test_the_folder_is_the_one_the_program_was_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copilot_session().write(tmp_path)
    monkeypatch.setenv("COPILOT_HOME", str(tmp_path / ".copilot"))
    assert [session.id for session in COPILOT.find(tmp_path / "elsewhere")] == [SESSION]


def test_attachments_are_parts_or_reported(tmp_path: Path) -> None:
    lines = CopilotLines()
    lines.add("session.binary_asset", assetId="sha256:1", type="image", mimeType="image/png", data=PIXEL)
    attachments = [
        {"type": "blob", "assetId": "sha256:1", "mimeType": "image/png", "displayName": "lamp.png"},
        {"type": "blob", "data": "JVBERi0=", "mimeType": "application/pdf", "displayName": "lamp.pdf"},
        {"type": "directory", "path": "/home/ann/lamp", "displayName": "lamp"},
    ]
    lines.add("user.message", content="Look.", attachments=attachments)
    imported = read(lines, tmp_path)
    (prompt,) = imported.branches[0].entries
    assert isinstance(prompt, ModelInputEntry)
    assert prompt.content[1] == Image("image/png", PIXEL)
    assert [type(part).__name__ for part in prompt.content] == ["Text", "Image", "Document"]
    (problem,) = imported.unreadable
    assert (problem.line, problem.why) == (3, "attachment lamp of type directory: its content is not in the session")


def test_a_subagent_is_a_branch(tmp_path: Path) -> None:
    lines = copilot_session()
    lines.add("user.message", agent="agent-1", content="Search for lamps.")
    lines.add("assistant.message", agent="agent-1", model="gpt-5.5", content="Two lamps.", toolRequests=[])
    main, agent = read(lines, tmp_path).branches
    assert len(main.entries) == 4
    assert (agent.name, agent.title, agent.parent) == ("agent-1", "subagent: Search for lamps.", "")
    assert [entry.kind for entry in agent.entries] == ["model_input", "model_output"]


def test_unreadable_events_are_reported_by_line(tmp_path: Path) -> None:
    lines = CopilotLines()
    lines.add("user.message", content="Go.")
    lines.lines.append('{"type": "assistant.mess')
    lines.add("assistant.message", model="gpt-5.5", content="", toolRequests=[lines.call("call_1", "a")])
    lines.add("session.error", errorType="query", message="rate limited")
    lines.add("assistant.message", model="gpt-5.5", content="Done.", reasoningText="hm", reasoningOpaque="gAAA")
    imported = read(lines, tmp_path)
    report = [(problem.line, problem.why.split(":")[0]) for problem in imported.unreadable]
    assert report == [
        (3, "not valid JSON"),
        (4, "synthesised"),
        (5, "an error that the program showed"),
        (6, "encrypted reasoning"),
    ]
    assert imported.branches[0].entries[-1].content[0] == Thinking("hm")  # type: ignore[attr-defined]


def test_a_compaction_is_an_entry(tmp_path: Path) -> None:
    lines = copilot_session()
    lines.add("session.compaction_complete", success=True, summaryContent="A green lamp.")
    lines.add("user.message", content="And now?")
    entries = read(lines, tmp_path).branches[0].entries
    assert isinstance(entries[4], CompactionEntry)
    assert (entries[4].summary, entries[4].up_to) == ("A green lamp.", 4)


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "events.jsonl", [{"type": "other"}])
    with pytest.raises(SessionError, match="has no messages of Copilot CLI; its sessions are in"):
        COPILOT.read(path)
    with pytest.raises(SessionError, match="cannot read"):
        COPILOT.read(tmp_path / "missing.jsonl")
