"""ATIF documents are read into histories: what was exported comes back, and what others wrote is read or reported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given

from antiphon.cli import main
from antiphon.errors import WireError
from antiphon.history import AgentHistory, HistoryEntry, ModelInputEntry, ModelOutputEntry, ToolCallResultsEntry
from antiphon.parts import Image, Text, ToolExecutionStatus
from antiphon_devtools.trajectories import TrajectoryExport, read_atif
from support.history_strategies import append_any, turns
from trajectories.example_history import example_history


def history_of(document: dict[str, Any]) -> AgentHistory:
    history = AgentHistory()
    for entry in read_atif(document).entries:
        history.append(entry)
    return history


def document_of(*steps: dict[str, Any], **fields: Any) -> dict[str, Any]:
    numbered = [{"step_id": number, "message": "", **step} for number, step in enumerate(steps, 1)]
    return {"schema_version": "ATIF-v1.6", "agent": {"name": "openhands", "version": "1"}, "steps": numbered, **fields}


def settled(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages without images, and with the arguments of calls as objects: blanks in JSON are not kept."""
    found = []
    for message in messages:
        content, calls = message["content"], message.get("tool_calls", ())
        if isinstance(content, list):
            content = "".join(part.get("text", "") for part in content)
        arguments = [(call["id"], msgspec.json.decode(call["function"]["arguments"])) for call in calls]
        found.append({"role": message["role"], "content": content, "calls": arguments})
    return found


def test_an_exported_conversation_comes_back() -> None:
    history = example_history()
    (written,) = TrajectoryExport("atif").write(history)
    assert written.body is not None
    again = history_of(written.body)
    assert settled(again.to_messages()) == settled(history.to_messages())
    (output,) = [entry for entry in again.entries if isinstance(entry, ModelOutputEntry) and len(entry.tool_calls) == 2]
    assert output.origin is not None
    assert (output.origin.provider, output.origin.model) == ("anthropic", "claude-sonnet-4-5")
    assert output.plan == "Two cities."
    results = next(entry for entry in again.entries if isinstance(entry, ToolCallResultsEntry))
    assert [result.status for result in results.results] == [ToolExecutionStatus.SUCCESS, ToolExecutionStatus.FAILED]
    assert again.entries[1].timestamp == history.entries[1].timestamp


@given(turns())
def test_any_turn_comes_back_the_same(made: list[HistoryEntry]) -> None:
    history = AgentHistory()
    for entry in made:
        append_any(history, entry)
    (written,) = TrajectoryExport("atif").write(history)
    if written.body is None:
        return
    once = history_of(written.body)
    (again,) = TrajectoryExport("atif").write(once)
    if again.body is not None:
        assert history_of(again.body).to_messages() == once.to_messages()


def test_steps_of_another_agent_are_read() -> None:
    call = {"tool_call_id": "c1", "function_name": "bash", "arguments": {"_raw": "ls -"}}
    picture = {"type": "image", "source": {"media_type": "image/png", "path": "https://example.com/lamp.png"}}
    document = document_of(
        {"source": "system", "message": "You are an agent."},
        {"source": "user", "message": [{"type": "text", "text": "看灯"}, picture]},
        {
            "source": "agent",
            "timestamp": "2026-11-16T15:47:48Z",
            "model_name": "openai/gpt-5.5",
            "tool_calls": [call],
            "observation": {"results": [{"source_call_id": "c1", "content": "note.txt"}, {"content": "1 file"}]},
        },
        {"source": "agent", "message": "Done."},
    )
    read = read_atif(document)
    assert read.losses == ()
    assert [entry.kind for entry in read.entries] == [
        *("set_system_instruction", "model_input", "model_output", "tool_call_results", "model_input", "model_output")
    ]
    assert isinstance(read.entries[1], ModelInputEntry)
    assert read.entries[1].content == (Text("看灯"), Image("image/png", url="https://example.com/lamp.png"))
    assert isinstance(read.entries[2], ModelOutputEntry)
    assert read.entries[2].tool_calls[0].arguments == "ls -"


def test_losses_of_the_atif_import_are_reported() -> None:
    picture = {"type": "image", "source": {"media_type": "image/png", "path": "/etc/lamp.png"}}
    document = document_of(
        {"source": "user", "message": [{"type": "text", "text": "Look."}, picture]},
        {"source": "agent", "message": "A lamp.", "metrics": {"prompt_tokens": 1}, "extra": {"a": 1}},
        subagent_trajectories=[{"schema_version": "ATIF-v1.7"}],
    )
    assert [str(loss) for loss in read_atif(document).losses] == [
        "steps[0].message[1]: image: /etc/lamp.png is a file; files are not read",
        "steps[1].metrics: metrics: a history has no place for it",
        "steps[1].extra: extra: a history has no place for it",
        "subagent_trajectories: subagent_trajectories: another trajectory; import it by itself",
    ]


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ({"messages": []}, "not an ATIF trajectory: schema_version is None; expected 'ATIF-v1.…'"),
        ({"schema_version": "ATIF-v2.0", "steps": []}, "schema_version is 'ATIF-v2.0'"),
        ({"schema_version": "ATIF-v1.7", "steps": []}, "steps must be a list with at least one step"),
        (document_of({"source": "robot"}), r"steps\[0\]: not a step; expected an object whose source is"),
        (
            document_of({"source": "user", "message": 7}),
            r"steps\[0\].message: expected text or a list of parts, not int",
        ),
        (document_of({"source": "user", "message": [{"type": "video"}]}), "unknown part 'video'"),
        (
            document_of({"source": "agent", "tool_calls": [{"arguments": "x"}]}),
            r"steps\[0\].tool_calls\[0\]: not a call",
        ),
        (document_of({"source": "agent", "observation": {"results": [7]}}), r"results\[0\]: not a result"),
    ],
)
def test_a_document_of_another_shape_is_refused(document: dict[str, Any], reason: str) -> None:
    with pytest.raises(WireError, match=reason):
        read_atif(document)


def test_the_command_reads_files_and_lines(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    store = str(tmp_path / "chats.db")
    line = msgspec.json.encode(
        document_of({"source": "user", "message": "看灯"}, {"source": "agent", "message": "Green."})
    )
    (tmp_path / "trajectory.json").write_bytes(line)
    (tmp_path / "many.jsonl").write_bytes(line + b"\n" + line + b"\n")
    names = [str(tmp_path / "trajectory.json"), str(tmp_path / "many.jsonl")]
    assert main(["history", "--store", store, "import", "--from", "atif", *names]) == 0
    assert capfd.readouterr().out.count("2 entries  看灯") == 3
    (tmp_path / "list.json").write_text("[]")
    assert main(["history", "--store", store, "import", "--from", "atif", str(tmp_path / "list.json")]) == 1
    assert "list.json: expected an ATIF trajectory, a JSON object" in capfd.readouterr().err
