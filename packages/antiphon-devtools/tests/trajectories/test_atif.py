"""ATIF, judged by the `atif` package: Pydantic models of the specification, with its rules as validators."""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path
from typing import Any

import atif
import pytest
from pydantic import ValidationError

from antiphon.history import (
    AgentHistory,
    CompactionEntry,
    HumanDecisionEntry,
    ModelInputEntry,
    ModelOutputEntry,
    SqliteStore,
    ToolCallResultsEntry,
)
from antiphon.parts import Audio, Document, Native, ToolCallRequest, ToolCallResult
from antiphon_devtools.trajectories import TrajectoryExport, WrittenTrajectory
from trajectories.example_history import example_history

WAV = b64encode(b"RIFF\0\0\0\0WAVEfmt ").decode()


def written(history: AgentHistory, **options: Any) -> tuple[dict[str, Any], WrittenTrajectory]:
    (result,) = TrajectoryExport("atif", **options).write(history)
    assert result.body is not None
    atif.Trajectory.model_validate(result.body)
    return result.body, result


def test_the_judge_refuses_a_wrong_document() -> None:
    document, _ = written(example_history())
    document["steps"][0]["step_id"] = 7
    with pytest.raises(ValidationError, match="not sequential"):
        atif.Trajectory.model_validate(document)


def test_an_output_and_its_results_are_one_step(tmp_path: Path) -> None:
    document, _ = written(example_history(), media=tmp_path)
    assert document["schema_version"] == "ATIF-v1.7"
    assert [step["source"] for step in document["steps"]][:4] == ["system", "user", "agent", "agent"]
    step = document["steps"][2]
    assert step["message"] == "Let me look."
    assert step["reasoning_content"] == "Two cities."
    assert step["model_name"] == "anthropic/claude-sonnet-4-5"
    assert step["tool_calls"][1] == {
        "tool_call_id": "call_2",
        "function_name": "weather",
        "arguments": {"city": "Bergen", "days": 2},
    }
    assert step["observation"]["results"] == [
        {"source_call_id": "call_1", "content": "Rain, 7 °C"},
        {"source_call_id": "call_2", "content": "no such city", "extra": {"status": "failed"}},
    ]
    assert document["steps"][1]["message"][1]["source"]["media_type"] == "image/png"
    assert document["agent"]["model_name"] == "anthropic/claude-sonnet-4-5"
    assert [tool["function"]["name"] for tool in document["agent"]["tool_definitions"]] == ["weather", "delete_file"]


def test_tokens_and_cost_are_counted() -> None:
    document, _ = written(example_history())
    metrics = document["steps"][2]["metrics"]
    assert (metrics["prompt_tokens"], metrics["completion_tokens"], metrics["cached_tokens"]) == (100, 20, 40)
    assert metrics["extra"] == {"reasoning_tokens": 5}
    assert metrics["cost_usd"] == pytest.approx((60 * 3 + 40 * 0.3 + 20 * 15) / 1e6)
    assert document["final_metrics"]["total_cost_usd"] == metrics["cost_usd"]
    assert document["final_metrics"]["total_steps"] == len(document["steps"])


def test_decisions_of_people_are_kept() -> None:
    document, _ = written(example_history())
    (call,) = next(step for step in document["steps"] if step["message"] == "" and "tool_calls" in step)["tool_calls"]
    assert call["extra"] == {"decision": "approve", "reason": "yes, please"}
    history = AgentHistory()
    history.append(ModelInputEntry.of("Delete it."))
    history.append(ModelOutputEntry.of(ToolCallRequest("delete", "c1", '{"path": "a"}')))
    history.append(HumanDecisionEntry("c1", "edit", arguments='{"path": "b"}'))
    document, _ = written(history)
    assert document["steps"][1]["tool_calls"][0]["extra"]["edited_arguments"] == '{"path": "b"}'


def test_shared_turns_are_copied_context() -> None:
    current, abandoned = TrajectoryExport("atif", branch="all").write(example_history())
    assert current.body is not None
    assert abandoned.body is not None
    atif.Trajectory.model_validate(abandoned.body)
    assert [step.get("is_copied_context", False) for step in abandoned.body["steps"]] == [True] * 4 + [False] * 2
    assert abandoned.body["extra"] == {"branch": "abandoned"}
    assert not any("is_copied_context" in step for step in current.body["steps"])


def test_audio_needs_version_1_8(tmp_path: Path) -> None:
    history = AgentHistory()
    history.append(ModelInputEntry.of("Listen.", Audio("audio/x-wav", WAV)))
    history.append(ModelOutputEntry.of("Rain."))
    document, _ = written(history, media=tmp_path)
    assert document["schema_version"] == "ATIF-v1.8"
    assert document["steps"][0]["message"][1]["source"]["media_type"] == "audio/wav"


def test_losses_of_the_atif_export_are_reported(tmp_path: Path) -> None:
    call = ToolCallRequest("weather", "c1", '{"city": "Os')
    history = AgentHistory()
    history.append(
        ModelInputEntry.of("Read this.", Document("application/pdf", "JVBERi0="), Audio("audio/midi", "TVRoZA=="))
    )
    history.append(ModelOutputEntry((Native("anthropic", {"type": "server_tool_use"}), call)))
    history.append(ToolCallResultsEntry((ToolCallResult.of(call, "no"),), "1 call failed"))
    history.append(CompactionEntry("A summary.", 3))
    history.append(ModelOutputEntry.of("Sorry."))
    document, result = written(history, media=tmp_path)
    assert document["steps"][1]["tool_calls"][0]["arguments"] == {"_raw": '{"city": "Os'}
    notes = "\n".join(result.notes)
    for expected in (
        "turn 1: entry 4: summary: the entries it replaced are exported instead",
        "turn 1: lost document: a message has text, images and audio only",
        "turn 1: lost audio: audio/midi is not one of ATIF",
        "turn 1: lost anthropic block",
        "turn 1: changed call c1: the arguments of weather are not valid JSON",
    ):
        assert expected in notes


def test_results_belong_to_the_step_of_their_call() -> None:
    call = ToolCallRequest("weather", "c1", "{}")
    history = AgentHistory()
    history.append(ModelInputEntry.of("Is it raining?"))
    history.append(ModelOutputEntry.of(call))
    history.append(ModelOutputEntry.of("I wait."))
    history.append(ToolCallResultsEntry((ToolCallResult.of(call, "Rain"),), "1 call"))
    document, _ = written(history)
    assert document["steps"][1]["observation"]["results"] == [
        {"source_call_id": "c1", "content": "Rain"},
        {"content": "1 call"},
    ]
    history.rollback(1, kept=[4])
    document, result = written(history)
    assert document["steps"][1]["source"] == "system"
    assert result.notes == ("turn 1: the call of result c1 is not in the turn",)


def test_a_stored_branch_is_named_and_titled(tmp_path: Path) -> None:
    with SqliteStore(tmp_path / "chats.db") as store:
        history = store.create("Rain")
        history.append(ModelInputEntry.of("one"))
        history.append(ModelOutputEntry.of("1"))
        document, _ = written(store.open(history.id))
    assert document["session_id"] == history.id
    assert document["trajectory_id"] == f"{history.id}@2"
    assert document["steps"][0]["timestamp"].startswith("20")


def test_a_history_without_turns_has_no_document() -> None:
    (result,) = TrajectoryExport("atif").write(AgentHistory())
    assert result.body is None
