"""Interactions as answers: read, written back, and written from the answers of other formats; usage, status and errors."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.errors import WireError
from antiphon.parts import Native, Refusal, Text, Thinking, TokenUsage, ToolCallRequest
from antiphon.wire.output import ModelOutput, StopReason
from support.corpus import in_collection
from support.history_strategies import output_parts
from support.interactions_spec import FORMAT, carried_records, problems, specification
from support.interactions_spec import INTERACTION as SCHEMA
from wire.gemini_interactions.bodies import CALL, INTERACTION, MODEL, WHOLE, WIRE, output, text


def rewritten(body: dict[str, Any]) -> dict[str, Any]:
    written, losses = WIRE.write_response(WIRE.read_response(body))
    assert losses == []
    return written


@pytest.mark.parametrize("body", [INTERACTION, WHOLE, {**INTERACTION, "status": "in_progress", "steps": []}])
def test_interactions_come_back_as_they_were(body: dict[str, Any]) -> None:
    assert rewritten(body) == {"object": "interaction", **body}
    assert problems(SCHEMA, body) == []


def test_the_examples_of_the_specification_come_back() -> None:
    responses = specification()["paths"]["/{api_version}/interactions"]["post"]["responses"]["200"]
    examples = [example["value"] for example in responses["content"]["application/json"]["examples"].values()]
    assert len(examples) >= 7
    for body in examples:
        assert rewritten(body) == body


def test_every_carried_answer_comes_back_and_fits_the_specification(capsys: pytest.CaptureFixture[str]) -> None:
    answers = [record["response"] for record in carried_records() if record["response"] is not None]
    for body in answers:
        assert problems(SCHEMA, body) == []
        assert rewritten(body) == body
    with capsys.disabled():
        print(f"\n{len(answers)} answers of the Interactions API came back", end="")
    assert len(answers) > in_collection(500)


def test_the_parts_of_an_answer() -> None:
    read = WIRE.read_response(INTERACTION)
    kinds = [type(part).__name__ for part in read.parts]
    assert kinds == ["Thinking", "Native", "Native", "Text", "Image", "Text", "Text"]
    assert (read.id, read.model, read.created, read.stop_reason) == ("v1_abc", MODEL, 1778611491, "end")


def test_the_usage_counts_thoughts_and_is_written_back() -> None:
    usage = WIRE.read_response(INTERACTION).usage
    assert usage is not None
    assert (usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens) == (11, 335, 3)
    assert (usage.reasoning_tokens, usage.total) == (245, 346)
    foreign = ModelOutput(parts=(Text("a"),), usage=TokenUsage(10, 5, 2, 1, 3, 15))
    body, losses = WIRE.write_response(foreign)
    assert body["usage"] == {
        "total_input_tokens": 10,
        "total_output_tokens": 2,
        "total_thought_tokens": 3,
        "total_cached_tokens": 2,
        "total_tool_use_tokens": 0,
        "total_tokens": 15,
    }
    assert [loss.path for loss in losses] == ["usage.cache_write_tokens"]


@pytest.mark.parametrize(
    ("status", "stop"),
    [
        ("completed", "end"),
        ("requires_action", "tool_calls"),
        ("incomplete", "length"),
        ("budget_exceeded", "length"),
        ("requires_continuation", "paused"),
        ("in_progress", ""),
        ("queued", ""),
        ("new_status", "other"),
    ],
)
def test_a_status_is_a_stop_reason_and_comes_back(status: str, stop: StopReason) -> None:
    read = WIRE.read_response({"id": "v1_1", "status": status, "steps": [output("a")]})
    assert read.stop_reason == stop
    assert WIRE.write_response(read).body["status"] == status


@pytest.mark.parametrize(
    ("stop", "status", "lost"),
    [
        ("end", "completed", []),
        ("stop_sequence", "completed", []),
        ("tool_calls", "requires_action", []),
        ("length", "incomplete", []),
        ("content_filter", "incomplete", []),
        ("refusal", "incomplete", []),
        ("paused", "incomplete", ["stop_reason"]),
        ("other", "incomplete", ["stop_reason"]),
    ],
)
def test_a_stop_reason_is_a_status(stop: StopReason, status: str, lost: list[str]) -> None:
    body, losses = WIRE.write_response(ModelOutput(parts=(Text("a"),), stop_reason=stop, model="m"))
    assert body["status"] == status
    assert [loss.path for loss in losses] == lost
    assert problems(SCHEMA, body) == []
    again = WIRE.read_response(body)
    assert again.stop_reason == {"stop_sequence": "end", "paused": "length", "other": "length"}.get(stop, stop)
    assert "errors" not in (again.native or {}).get(FORMAT, {})


@pytest.mark.parametrize("status", ["failed", "cancelled"])
def test_a_failed_interaction_is_not_an_answer(status: str) -> None:
    body = {"id": "v1_1", "status": status, "errors": [{"code": "resource_exhausted", "message": "quota exceeded"}]}
    with pytest.raises(WireError, match=status):
        WIRE.read_response(body)
    error = WIRE.read_error(body)
    assert (error.kind, error.message) == ("rate_limit", "quota exceeded")


@pytest.mark.parametrize("body", [{"steps": 5, "status": "completed"}, {"choices": []}])
def test_another_body_is_not_an_answer(body: dict[str, Any]) -> None:
    with pytest.raises(WireError):
        WIRE.read_response(body)


def test_an_answer_of_another_model_is_complete() -> None:
    call = ToolCallRequest("weather", "call_1", '{"city":"Oslo"}')
    foreign = ModelOutput(
        parts=(Thinking("Hm."), Text("See."), Refusal("No."), call), stop_reason="tool_calls", model="m"
    )
    body, losses = WIRE.write_response(foreign)
    assert body["steps"] == [{"type": "thought", "summary": [text("Hm.")]}, output("See.", "No."), CALL]
    assert body["id"].startswith("v1_")
    assert body.keys() >= {"object", "created", "updated", "status", "model"}
    assert [loss.path for loss in losses] == ["parts[2].refusal"]
    other = ModelOutput(parts=(Native("anthropic", {"type": "x"}),), others=(foreign,), format="anthropic")
    assert [loss.path for loss in WIRE.write_response(other).losses] == ["others[0]", "parts[0]"]


@given(st.lists(output_parts, max_size=4).map(tuple))
def test_every_answer_fits_the_specification_and_is_read_back(parts: tuple[Any, ...]) -> None:
    body = WIRE.write_response(ModelOutput(parts=parts, stop_reason="end", model="m", id="x")).body
    assert problems(SCHEMA, body) == []
    assert rewritten(body) == body
