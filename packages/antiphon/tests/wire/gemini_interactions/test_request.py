"""Requests of the Interactions API: read, written back (L2), written for it from elsewhere (L4), judged by the specification."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from antiphon.errors import WireError
from antiphon.parts import Audio, Document, Image, Native, Source, Text, Thinking, ToolCallRequest, ToolCallResult
from antiphon.wire import Message, ModelRequest, Reasoning, ToolChoice, ToolDefinition
from support.corpus import accepted_requests, in_collection
from support.interactions_spec import FORMAT, request_problems, sample_requests
from wire.gemini_interactions.bodies import CALL, IMAGE, MODEL, REQUESTS, RESULT, THOUGHT, WIRE, output, text, user


def rewritten(body: dict[str, Any]) -> dict[str, Any]:
    written, losses = WIRE.write_request(WIRE.read_request(body))
    assert losses == []
    return written


@pytest.mark.parametrize("name", REQUESTS)
def test_requests_come_back_as_they_were(name: str) -> None:
    body = REQUESTS[name]
    assert rewritten(body) == body
    assert WIRE.check_request(body) == []
    assert request_problems(body) == []


def test_the_samples_of_the_specification_are_legal_and_come_back() -> None:
    samples = list(sample_requests())
    assert len(samples) >= 15
    for body in samples:
        assert WIRE.check_request(body) == []
        again = rewritten(body)
        assert again.pop("input") == [user(*([body["input"]] if isinstance(body["input"], str) else []))] or isinstance(
            body["input"], list
        )
        assert again == {name: value for name, value in body.items() if name != "input"}


def test_every_carried_request_comes_back_and_fits_the_specification(capsys: pytest.CaptureFixture[str]) -> None:
    """L2 and L4 over recorded conversations of generateContent and Messages, written for this API."""
    bodies = 0
    for body in accepted_requests(FORMAT):
        assert request_problems(body) == []
        again = rewritten(body)
        assert request_problems(again) == []
        assert rewritten(again) == again
        bodies += 1
    with capsys.disabled():
        print(f"\n{bodies} requests of the Interactions API fit its specification", end="")
    assert bodies > in_collection(1000)


@pytest.mark.parametrize(
    ("given", "contents"),
    [
        ("Hi", [text("Hi")]),
        (text("Hi"), [text("Hi")]),
        ([text("Hi"), IMAGE], [text("Hi"), IMAGE]),
        ([user("Hi", IMAGE)], [text("Hi"), IMAGE]),
    ],
)
def test_every_shape_of_input_is_one_message(given: Any, contents: list[Any]) -> None:
    request = WIRE.read_request({"model": MODEL, "input": given})
    assert request.messages == (Message("user", (Text("Hi"), Image("image/png", "iVBORw0KGgo="))[: len(contents)]),)
    assert WIRE.write_request(request).body["input"] == [user(*contents)]


@pytest.mark.parametrize("given", [5, True])
def test_an_input_of_another_type_is_an_error(given: Any) -> None:
    with pytest.raises(WireError, match="input: expected a string, an object or an array"):
        WIRE.read_request({"input": given})


def test_steps_of_the_model_are_one_message() -> None:
    request = WIRE.read_request({"input": [user("Rain?"), THOUGHT, output("Let me see."), CALL, RESULT]})
    question, answer, result = request.messages
    assert question.role == "user"
    assert answer == Message(
        "assistant",
        (
            Thinking("I need the weather.", native={FORMAT: {"signature": "c2lnbmF0dXJl"}}, source=Source(FORMAT)),
            Text("Let me see."),
            ToolCallRequest("weather", "call_1", '{"city":"Oslo"}'),
        ),
    )
    assert result == Message("tool", (ToolCallResult("weather", "call_1", content=(Text("rain"),)),))


def test_an_agent_is_the_model_and_is_written_as_an_agent_again() -> None:
    request = WIRE.read_request(REQUESTS["agent"])
    assert request.model == "deep-research-preview-04-2026"
    renamed = msgspec.structs.replace(request, model="antigravity-preview-05-2026")
    assert WIRE.write_request(renamed).body["agent"] == "antigravity-preview-05-2026"


QUESTION = Message("user", (Text("?"),))


def write(*messages: Message, model: str = MODEL, **fields: Any) -> tuple[dict[str, Any], list[str]]:
    body, losses = WIRE.write_request(ModelRequest(model=model, messages=messages, **fields))
    assert WIRE.check_request(body) == []
    assert request_problems(body) == []
    return body, [loss.path for loss in losses]


def test_results_come_first_and_media_they_cannot_hold_follow_as_input() -> None:
    call, other = ToolCallRequest("look", "call_1"), ToolCallRequest("look", "call_2")
    sound = ToolCallResult.of(call, "recorded", Audio("audio/wav", "UklGRg=="))
    messages = (
        QUESTION,
        Message("assistant", (call, other)),
        Message("tool", (sound,)),
        Message("tool", (ToolCallResult.of(other, "seen"),)),
        Message("assistant", (Text("Done."),)),
        QUESTION,
    )
    body, losses = write(*messages)
    kinds = [step["type"] for step in body["input"]]
    assert kinds[3:6] == ["function_result", "function_result", "user_input"]
    assert body["input"][3]["result"] == [text("recorded")]
    assert body["input"][5]["content"] == [{"type": "audio", "data": "UklGRg==", "mime_type": "audio/wav"}]
    assert losses == []


def test_a_text_file_is_sent_as_text_and_other_files_are_losses() -> None:
    notes = Document("text/markdown", text="# Rain", name="notes.md")
    body, losses = write(Message("user", (Text("?"), notes, Document("application/zip", "AAAA"))))
    asked, notes_text, omitted = body["input"][0]["content"]
    assert (asked, notes_text) == (text("?"), text("notes.md\n\n# Rain"))
    assert "application/zip is not supported" in omitted["text"]
    assert losses == ["messages[0].parts[2]"]


def test_thoughts_of_other_models_are_losses_and_own_thoughts_go_back() -> None:
    own = Thinking("Hm.", native={FORMAT: {"signature": "c2ln"}})
    body, losses = write(QUESTION, Message("assistant", (Thinking("Hm."), own, Text("Yes."))), QUESTION)
    assert body["input"][1] == {"type": "thought", "summary": [text("Hm.")], "signature": "c2ln"}
    assert losses == ["messages[1].parts[0]"]


def test_a_later_system_message_is_a_note_of_the_user() -> None:
    first, later = Message("system", (Text("Be brief."),)), Message("system", (Text("In French."),))
    body, losses = write(first, QUESTION, Message("assistant", (Text("Yes."),)), later)
    assert body["system_instruction"] == "Be brief."
    assert body["input"][-1] == user("[system note] In French.")
    assert losses == ["messages[3].role"]


@pytest.mark.parametrize(
    ("reasoning", "level"),
    [
        (Reasoning("low"), "low"),
        (Reasoning("xhigh"), "high"),
        (Reasoning("none"), "minimal"),
        (Reasoning(budget_tokens=5000), "medium"),
        (Reasoning(enabled=False), "minimal"),
        (Reasoning(enabled=True), None),
    ],
)
def test_efforts_and_budgets_are_levels(reasoning: Reasoning, level: str | None) -> None:
    body, _ = write(QUESTION, reasoning=reasoning)
    assert body.get("generation_config", {}).get("thinking_level") == level


def test_a_model_without_levels_gets_none_and_a_loss() -> None:
    body, losses = write(QUESTION, model="gemini-2.5-flash", reasoning=Reasoning("low", shown="auto"))
    assert body["generation_config"] == {"thinking_summaries": "auto"}
    assert losses == ["reasoning.effort"]


@pytest.mark.parametrize(
    ("choice", "written"),
    [
        (ToolChoice("auto"), "auto"),
        (ToolChoice("none"), "none"),
        (ToolChoice("required"), "any"),
        (ToolChoice("tool", ("weather",)), {"allowed_tools": {"mode": "any", "tools": ["weather"]}}),
        (
            ToolChoice("allowed", ("weather", "look")),
            {"allowed_tools": {"mode": "validated", "tools": ["weather", "look"]}},
        ),
        (
            ToolChoice("allowed", ("weather", "look"), True),
            {"allowed_tools": {"mode": "any", "tools": ["weather", "look"]}},
        ),
    ],
)
def test_choices_cross_both_ways(choice: ToolChoice, written: Any) -> None:
    tools = (ToolDefinition("weather"), ToolDefinition("look"))
    body, losses = write(QUESTION, tools=tools, tool_choice=choice)
    assert body["generation_config"]["tool_choice"] == written
    assert WIRE.read_request(body).tool_choice == choice
    assert losses == []


def test_parameters_without_a_place_are_losses() -> None:
    body, losses = write(
        QUESTION,
        tools=(ToolDefinition("f", strict=True), ToolDefinition("f"), Native("anthropic", {"type": "bash"})),
        top_k=3,
        user="me",
        parallel_tool_calls=False,
        service_tier="auto",
        seed=2**40,
        stop=("a",) * 6,
    )
    assert sorted(losses) == sorted(
        [
            "tools[0].strict",
            "tools[1]",
            "tools[2]",
            "top_k",
            "user",
            "parallel_tool_calls",
            "service_tier",
            "seed",
            "stop[5]",
        ]
    )
    assert body["generation_config"] == {"seed": 0, "stop_sequences": ["a"] * 5}


def test_arguments_that_are_not_an_object_are_wrapped_and_reported() -> None:
    call = ToolCallRequest("f", "", "[1]")
    messages = (QUESTION, Message("assistant", (call,)), Message("tool", (ToolCallResult.of(call, "x"),)))
    body, losses = write(*messages)
    _, called, answered = body["input"]
    assert called["arguments"] == {"_raw": "[1]"}
    assert called["id"] == answered["call_id"] != ""
    assert losses == ["messages[1].parts[0].arguments"]
