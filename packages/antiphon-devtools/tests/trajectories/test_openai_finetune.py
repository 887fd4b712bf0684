"""OpenAI's fine-tuning JSONL, judged by the rules of OpenAI's guide and by the types of its SDK."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from openai.types.chat import ChatCompletionFunctionToolParam
from pydantic import TypeAdapter

from antiphon.history import AgentHistory, ModelInputEntry, ModelOutputEntry, ToolCallResultsEntry
from antiphon.parts import Audio, Document, Image, Text, Thinking, ToolCallRequest, ToolCallResult
from antiphon.wire.request import ToolDefinition
from antiphon_devtools.trajectories import TrajectoryExport, WrittenTrajectory
from trajectories.example_history import PNG, example_history

_KEYS = {
    "system": {"role", "content", "name"},
    "user": {"role", "content", "name"},
    "assistant": {"role", "content", "name", "tool_calls", "weight", "refusal"},
    "tool": {"role", "content", "tool_call_id"},
}


def problems_of(example: dict[str, Any]) -> list[str]:
    """What OpenAI's fine-tuning API would refuse about an example."""
    found: list[str] = []
    found += [f"unknown key {key}" for key in example.keys() - {"messages", "tools", "parallel_tool_calls"}]
    messages = example["messages"]
    open_calls: list[str] = []
    for number, message in enumerate(messages):
        role = message.get("role")
        if role not in _KEYS:
            found.append(f"message {number}: role {role}")
            continue
        found += [f"message {number}: unknown key {key}" for key in message.keys() - _KEYS[role]]
        content = message.get("content")
        if role in ("system", "user") and not content:
            found.append(f"message {number}: empty")
        if role == "assistant" and not (content or message.get("tool_calls") or message.get("refusal")):
            found.append(f"message {number}: an assistant that writes nothing")
        for part in content if isinstance(content, list) else ():
            allowed = ("text", {"user": "image_url", "assistant": "refusal"}.get(role))
            found += [f"message {number}: {role} with {part['type']}"] if part["type"] not in allowed else []
        if open_calls and role != "tool":
            found.append(f"message {number}: calls {open_calls} have no results")
        if role == "tool":
            if message.get("tool_call_id") not in open_calls:
                found.append(f"message {number}: a result without a call")
            else:
                open_calls.remove(message["tool_call_id"])
        for call in message.get("tool_calls") or ():
            found += _call_problems(call, example.get("tools") or [])
            open_calls.append(call["id"])
        if "weight" in message and message["weight"] not in (0, 1):
            found.append(f"message {number}: weight {message['weight']}")
    if messages[-1]["role"] != "assistant":
        found.append("the last message is not the assistant's")
    return found


def _call_problems(call: dict[str, Any], tools: list[dict[str, Any]]) -> list[str]:
    if call.get("type") != "function" or not isinstance(call["function"]["arguments"], str):
        return [f"not a function call: {call}"]
    names = {tool["function"]["name"] for tool in tools}
    return [] if call["function"]["name"] in names else [f"{call['function']['name']} is not among the tools"]


def written(history: AgentHistory, **options: Any) -> WrittenTrajectory:
    (result,) = TrajectoryExport("openai-finetune", **options).write(history)
    assert result.body is not None
    assert problems_of(result.body) == []
    for tool in result.body.get("tools", ()):
        TypeAdapter(ChatCompletionFunctionToolParam).validate_python(tool)
    return result


def test_a_conversation_with_tools_is_one_legal_example() -> None:
    example = written(example_history()).body
    assert example is not None
    roles = [message["role"] for message in example["messages"]]
    assert roles[:6] == ["system", "user", "assistant", "tool", "tool", "assistant"]
    assert example["messages"][1]["content"][1]["image_url"]["url"] == f"data:image/png;base64,{PNG}"
    assert example["messages"][2]["content"] == "Let me look."
    assert [call["function"]["arguments"] for call in example["messages"][2]["tool_calls"]] == [
        '{"city": "Oslo"}',
        '{"city": "Bergen", "days": 2}',
    ]
    assert example["messages"][5] == {"role": "assistant", "content": "Rain in Oslo. 带伞。"}


def test_losses_are_reported_by_turn() -> None:
    notes = written(example_history()).notes
    assert (
        "turn 1: lost messages[2].parts[0].signature: signature: reasoning signatures are accepted only by the "
        in notes[0]
    )
    assert any("thinking" in note.lower() and note.startswith("turn 1: lost") for note in notes[1:])


def test_tools_are_inferred_from_their_calls_unless_they_are_given() -> None:
    result = written(example_history())
    assert result.body is not None
    schemas = {tool["function"]["name"]: tool["function"]["parameters"] for tool in result.body["tools"]}
    assert schemas["weather"]["properties"] == {"city": {"type": "string"}, "days": {"type": "integer"}}
    assert "inferred the definitions of weather, delete_file from their calls" in result.notes[-1]
    given = [ToolDefinition(name, "What it does.", {"type": "object", "properties": {}}) for name in schemas]
    result = written(example_history(), tools=given)
    assert result.body is not None
    assert [tool["function"]["description"] for tool in result.body["tools"]] == ["What it does."] * 2
    assert not any("inferred" in note for note in result.notes)


def test_shared_turns_of_branches_are_context_without_weight() -> None:
    current, abandoned = TrajectoryExport("openai-finetune", branch="all").write(example_history())
    assert current.body is not None
    assert abandoned.body is not None
    assert problems_of(abandoned.body) == []
    assert [message.get("weight") for message in abandoned.body["messages"] if message["role"] == "assistant"] == [
        0,
        0,
        None,
    ]
    assert not any("weight" in message for message in current.body["messages"])


def test_the_end_without_an_answer_is_left_out() -> None:
    history = AgentHistory()
    history.append(ModelInputEntry.of("one"))
    history.append(ModelOutputEntry.of("1"))
    history.append(ModelInputEntry.of("two"))
    result = written(history)
    assert result.body == {"messages": [{"role": "user", "content": "one"}, {"role": "assistant", "content": "1"}]}
    assert result.notes == ("turn 2: left out the last user message: an example ends with what the model wrote",)


def test_open_calls_at_the_end_stay_as_the_target() -> None:
    history = AgentHistory()
    history.append(ModelInputEntry.of("Is it raining?"))
    history.append(ModelOutputEntry.of(ToolCallRequest("weather", "c1", "{}")))
    result = written(history)
    assert result.body is not None
    assert result.body["messages"][-1]["tool_calls"][0]["id"] == "c1"
    assert any("left out the last results" in note for note in result.notes)


def test_a_conversation_without_an_answer_is_not_an_example() -> None:
    history = AgentHistory()
    history.append(ModelInputEntry.of("one"))
    (result,) = TrajectoryExport("openai-finetune").write(history)
    assert result.body is None
    assert result.line == b""


@pytest.mark.parametrize(
    ("part", "reason"),
    [
        (Audio("audio/wav", "UklGRg=="), "audio: fine-tuning examples have text and images only"),
        (Document("application/pdf", "JVBERi0="), "document: fine-tuning examples have text and images only"),
        (Image("image/gif", "R0lGODlh"), "image/gif is not accepted; expected JPEG, PNG or WebP"),
        (Image(file_id="file-1"), "stored at a provider; an example has the image or its address"),
        (Image("image/png", "iVBORw0KGgo" + "A" * 14_000_001), "larger than 10 MB"),
    ],
)
def test_media_that_an_example_cannot_have_are_reported(part: Any, reason: str) -> None:
    history = AgentHistory()
    history.append(ModelInputEntry((Text("Look."), part)))
    history.append(ModelOutputEntry.of("I see."))
    assert any(reason in note for note in written(history).notes)


def test_an_image_of_a_tool_result_becomes_one_of_the_user() -> None:
    call = ToolCallRequest("screenshot", "c1", "{}")
    history = AgentHistory()
    history.append(ModelInputEntry.of("Look at the screen."))
    history.append(ModelOutputEntry.of(call))
    history.append(ToolCallResultsEntry((ToolCallResult.of(call, "taken", Image("image/png", PNG)),)))
    history.append(ModelOutputEntry.of("A lamp."))
    example = written(history).body
    assert example is not None
    assert [message["role"] for message in example["messages"]] == ["user", "assistant", "tool", "user", "assistant"]


def test_operators_and_freeform_tools_are_written_as_the_format_has_them() -> None:
    call = ToolCallRequest("apply_patch", "c1", "*** Begin Patch", freeform=True)
    history = AgentHistory()
    history.append(ModelInputEntry.of("Patch it."))
    history.append(ModelInputEntry.of("Be careful.", channel="developer"))
    history.append(ModelOutputEntry.of(call))
    history.append(ToolCallResultsEntry((ToolCallResult.of(call, "ok"),)))
    history.append(ModelOutputEntry((Thinking("fine"), Text("Patched."))))
    example = written(history).body
    assert example is not None
    assert [message["role"] for message in example["messages"]][:2] == ["user", "system"]
    assert "*** Begin Patch" in example["messages"][2]["tool_calls"][0]["function"]["arguments"]


def test_a_changed_instruction_comes_before_the_answer_that_saw_it() -> None:
    history = AgentHistory()
    history.set_system_instruction("Be brief.")
    history.append(ModelInputEntry.of("one"))
    history.append(ModelOutputEntry.of("1"))
    history.set_system_instruction("Be kind.")
    history.append(ModelInputEntry.of("two"))
    history.append(ModelOutputEntry.of("2, dear"))
    example = written(history).body
    assert example is not None
    assert [(m["role"], m["content"]) for m in example["messages"]][3] == ("system", "Be kind.")


def test_the_example_reads_back_as_the_same_messages() -> None:
    history = example_history()
    example = written(history).body
    assert example is not None
    again = AgentHistory.from_messages(msgspec.json.decode(msgspec.json.encode(example))["messages"])
    assert again.to_messages() == example["messages"]
