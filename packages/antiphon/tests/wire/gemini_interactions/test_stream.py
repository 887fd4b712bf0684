"""Streams of the Interactions API: cut anywhere, equal to the whole answer (L6), as the specification and the SDK read ours."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from antiphon.parts import Audio, Image, Native, Refusal, Text, Thinking, ToolCallRequest
from antiphon.wire.delta import Failed, Finished, ModelOutputDelta, PartDelta, PartStarted, Started, deltas_from_output
from antiphon.wire.output import ModelOutput, ProviderError
from antiphon.wire.streams.sse import SseReader
from support.corpus import in_collection, streams
from support.history_strategies import output_parts
from support.interactions_spec import EVENT, FORMAT, problems
from wire.gemini_interactions.bodies import (
    EVENTS,
    MODEL,
    WHOLE,
    WIRE,
    assembled,
    delta,
    event,
    output,
    read_stream,
    text,
    written_out,
)

STREAM = written_out(EVENTS)


def write_stream(deltas: list[ModelOutputDelta], model: str = "") -> bytes:
    writer = WIRE.stream_writer(model)
    return b"".join(writer.write(one) for one in deltas) + writer.close()


def events_of(data: bytes) -> list[dict[str, Any]]:
    return [msgspec.json.decode(one.data) for one in SseReader().feed(data) if one.data != b"[DONE]"]


def meaning(answer: ModelOutput) -> Any:
    """An answer with decoded arguments."""
    value = msgspec.json.decode(msgspec.json.encode(answer))
    for part in value.get("parts", ()):
        if part["type"] == "tool_call":
            part["arguments"] = arguments(part["arguments"])
    return value


def arguments(words: str) -> Any:
    """The arguments of a call; those that are not JSON are streamed as they are, and wrapped in a whole answer."""
    try:
        value = msgspec.json.decode(words.strip() or "{}")
    except msgspec.DecodeError:
        return {"_raw": words}
    return value if isinstance(value, dict) else {"_raw": words}


def test_the_events_fit_the_specification() -> None:
    for one in EVENTS:
        assert problems(EVENT, one) == []


def test_a_stream_equals_the_whole_answer() -> None:
    assert meaning(assembled(read_stream(STREAM))) == meaning(WIRE.read_response(WHOLE))


def test_a_status_that_ends_an_answer_is_enough() -> None:
    events = [*EVENTS[:-1], event("interaction.status_update", interaction_id="v1_abc", status="requires_action")]
    last = read_stream(written_out(events))[-1]
    assert isinstance(last, Finished)
    assert last.stop_reason == "tool_calls"


def test_every_carried_stream_fits_the_specification() -> None:
    """The recorded streams of generateContent and Messages, written as streams of this API."""
    count = 0
    for data in streams(FORMAT):
        for one in events_of(data):
            assert problems(EVENT, one) == []
        deltas = read_stream(data)
        if not isinstance(deltas[-1], Failed):
            again = read_stream(write_stream(deltas))
            assert meaning(assembled(again)) == meaning(assembled(deltas))
        count += 1
    assert count > in_collection(300)


@given(st.lists(output_parts, max_size=5).map(tuple), st.sampled_from([None, 1, 3]))
def test_any_answer_streamed_is_the_same_as_whole(parts: tuple[Any, ...], chunk_size: int | None) -> None:
    answer = ModelOutput(parts=parts, stop_reason="end", id="x", model="m", format="anthropic")
    data = write_stream(deltas_from_output(answer, chunk_size))
    for one in events_of(data):
        assert problems(EVENT, one) == []
    streamed = assembled(read_stream(data))
    whole = WIRE.read_response(WIRE.write_response(answer).body)
    assert visible_parts(streamed) == visible_parts(whole)


def visible_parts(answer: ModelOutput) -> list[Any]:
    """The parts of an answer, without which of them start a step."""
    found: list[Any] = []
    for part in answer.parts:
        if isinstance(part, ToolCallRequest):
            found.append((part.tool_name, part.tool_call_id, arguments(part.arguments)))
        elif isinstance(part, Text | Thinking | Refusal):
            found.append((type(part).__name__, part.text))
        else:
            found.append(structs.replace(part, native=None) if not isinstance(part, Native) else part)
    return found


def test_the_events_of_a_written_stream() -> None:
    deltas: list[ModelOutputDelta] = [
        Started("x", "provider-model", 1778611491, "anthropic"),
        PartStarted(0, Text("")),
        PartDelta(0, "Hi"),
        Finished("end"),
    ]
    data = write_stream(deltas, MODEL)
    created, status, start, piece, stop, completed = events_of(data)
    assert data.endswith(b"event: done\ndata: [DONE]\n\n")
    assert created["interaction"]["status"] == status["status"] == "in_progress"
    assert created["interaction"]["id"] == completed["interaction"]["id"] == "v1_x"
    assert (start["step"], piece["delta"], stop["index"]) == ({"type": "model_output"}, text("Hi"), 0)
    assert completed["interaction"]["status"] == "completed"
    assert completed["interaction"]["model"] == MODEL


def test_the_text_of_a_freeform_call_is_one_string() -> None:
    deltas: list[ModelOutputDelta] = [
        Started("x", "m", 1, "openai-responses"),
        PartStarted(0, ToolCallRequest("run", "c", "", freeform=True)),
        PartDelta(0, 'print("'),
        PartDelta(0, 'a")'),
        Finished("tool_calls"),
    ]
    (call,) = assembled(read_stream(write_stream(deltas))).parts
    assert isinstance(call, ToolCallRequest)
    assert call.parse_arguments() == {"input": 'print("a")'}


def test_steps_that_were_never_announced_are_read() -> None:
    events = [delta(0, type="thought_summary", content=text("Hm.")), delta(1, type="text", text="Hi"), EVENTS[-1]]
    answer = assembled(read_stream(written_out(events)))
    assert [type(part) for part in answer.parts] == [Thinking, Text]


def test_an_answer_that_was_not_streamed_is_taken_from_the_end() -> None:
    interaction = {"id": "v1_1", "status": "completed", "steps": [output("done")], "environment_id": "env_9"}
    answer = assembled(read_stream(written_out([EVENTS[0], event("interaction.completed", interaction=interaction)])))
    assert answer.parts == (Text("done"),)
    assert answer.native == {FORMAT: {"environment_id": "env_9"}}


@pytest.mark.parametrize(
    ("events", "kind"),
    [
        ([event("error", error={"code": "resource_exhausted", "message": "quota exceeded"})], "rate_limit"),
        (
            [event("interaction.completed", interaction={"status": "failed", "errors": [{"message": "overloaded"}]})],
            "overloaded",
        ),
        ([event("interaction.completed", interaction={"status": "cancelled"})], "unknown"),
    ],
)
def test_failures(events: list[dict[str, Any]], kind: str) -> None:
    last = read_stream(written_out([EVENTS[0], *events]))[-1]
    assert isinstance(last, Failed)
    assert last.error.kind == kind


def test_events_that_are_not_json_and_unknown_events() -> None:
    assert isinstance(read_stream(b"data: nonsense\n\n")[-1], Failed)
    odd = [
        event("new.event"),
        event("step.start", index=0, step=5),
        event("step.delta", index=0, delta=5),
        event("step.stop"),
    ]
    assert read_stream(written_out([EVENTS[0], *odd, *EVENTS[1:]])) == read_stream(STREAM)


def test_a_failure_is_an_error_event() -> None:
    writer = WIRE.stream_writer()
    data = writer.write(Failed(ProviderError("busy", "overloaded", 529, "overloaded_error", native={"anthropic": {}})))
    (failed,) = events_of(data)
    assert failed == {"error": {"code": "unavailable", "message": "busy"}, "event_type": "error", "event_id": "0"}
    assert problems(EVENT, failed) == []
    assert writer.close() == b""
    assert events_of(WIRE.stream_writer().close())[0]["error"]["code"] == "internal"


def test_media_of_a_stream_are_whole_deltas() -> None:
    parts = (Image("image/png", "iVBORw0KGgo="), Audio("audio/x-unknown", "AAAA"), Native("anthropic", {"type": "x"}))
    answer = ModelOutput(parts=parts, stop_reason="end", id="x", model="m", format="gemini")
    writer = WIRE.stream_writer()
    data = b"".join(writer.write(one) for one in deltas_from_output(answer)) + writer.close()
    assert assembled(read_stream(data)).parts == (Image("image/png", "iVBORw0KGgo="),)
    assert [loss.path for loss in writer.losses] == ["parts[1]", "parts[2]"]
