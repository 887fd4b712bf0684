"""Streams of Responses, written from the deltas of any format, and read by the official SDK."""

from __future__ import annotations

from functools import cache
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from antiphon.parts import Image, Native, Refusal, Text, Thinking, TokenUsage, ToolCallRequest
from antiphon.wire import format as wire_format
from antiphon.wire.delta import (
    Failed,
    Finished,
    ModelOutputDelta,
    PartDelta,
    PartEnded,
    PartExtended,
    PartStarted,
    Started,
    UsageReported,
)
from antiphon.wire.output import ModelOutput, ProviderError
from support.history_strategies import output_parts, texts
from support.wire_formats import RESPONSES
from wire.openai_responses.bodies import (
    FORMAT,
    Events,
    all_streams,
    assembled,
    events_of,
    read_all,
    serving,
)

read_response = RESPONSES.read_response
StreamWriter = RESPONSES.stream_writer

CHANGING_IDS = {"3cff7ef22532f6de"}  # a host that gives an item another id with every event


def written(deltas: list[ModelOutputDelta], model: str = "") -> tuple[bytes, wire_format.StreamWriter]:
    writer = StreamWriter(model)
    data = b"".join(map(writer.write, deltas)) + writer.close()
    return data, writer


def check_form(data: bytes) -> Events:
    """A stream as OpenAI sends it: numbered, every item and part opened and closed, the items repeated at the end."""
    events = events_of(data)
    assert [found["sequence_number"] for found in events] == list(range(len(events)))
    names = [line[7:].decode() for line in data.split(b"\n") if line.startswith(b"event: ")]
    assert names == [found["type"] for found in events]
    assert names[:2] == ["response.created", "response.in_progress"]
    if names[-1] != "response.failed":
        for opened, closed in (
            ("response.output_item.added", "response.output_item.done"),
            ("response.content_part.added", "response.content_part.done"),
            ("response.reasoning_summary_part.added", "response.reasoning_summary_part.done"),
        ):
            assert names.count(opened) == names.count(closed)
        done = {
            found["output_index"]: found["item"] for found in events if found["type"] == "response.output_item.done"
        }
        assert events[-1]["response"]["output"] == [done[index] for index in range(len(done))]
    return events


def nameless(output: ModelOutput) -> ModelOutput:
    """An answer without the ids of its items."""

    def stripped(part: Any) -> Any:
        own = (part.native or {}).get(FORMAT, {})
        own = {key: value for key, value in own.items() if key != "id"}
        if "item" in own:
            own["item"] = {key: value for key, value in own["item"].items() if key != "id"}
        return structs.replace(part, native={FORMAT: own})

    return structs.replace(output, parts=tuple(map(stripped, output.parts)))


def test_recorded_streams_are_written_as_they_were(capsys: pytest.CaptureFixture[str]) -> None:
    count = 0
    for stream_id, data in all_streams():
        deltas = read_all(data)
        again, writer = written(deltas)
        check_form(again)
        assert writer.losses == []
        first, second = assembled(deltas), assembled(read_all(again))
        if first.error is not None:
            assert second.error is not None
            assert second.error.message == first.error.message
        elif stream_id in CHANGING_IDS:
            assert nameless(second.output) == nameless(first.output)
        else:
            assert second.output == first.output
        count += 1
    with capsys.disabled():
        print(f"\n{count} streams written and read again")


def test_a_stream_without_an_end_is_written_as_a_failure() -> None:
    for deltas in ([], [Started("x")], [PartStarted(0, Text("a"))]):
        data, _ = written(list(deltas))
        assert check_form(data)[-1]["type"] == "response.failed"
        failed = read_all(data)[-1]
        assert isinstance(failed, Failed)
        assert failed.error.kind == "stream_cut"


def test_open_parts_side_by_side() -> None:
    deltas: list[ModelOutputDelta] = [
        Started("chatcmpl-1", "gpt", format="openai-chat"),
        PartStarted(0, Text("")),
        PartStarted(1, ToolCallRequest("f", "a", "")),
        PartDelta(0, "one "),
        PartStarted(2, ToolCallRequest("g", "b", "", freeform=True)),
        PartDelta(2, "x"),
        PartDelta(1, "{}"),
        PartDelta(0, "two"),
        PartEnded(2),
        PartEnded(0),
        PartEnded(1),
        PartStarted(3, Text("three")),
        PartEnded(3),
        PartStarted(4, Text("four")),
        PartEnded(4),
        Finished("tool_calls"),
    ]
    data, writer = written(deltas)
    events = check_form(data)
    output = events[-1]["response"]["output"]
    assert writer.losses == []
    assert [item["type"] for item in output] == ["message", "function_call", "custom_tool_call", "message"]
    assert [part["text"] for part in output[3]["content"]] == ["three", "four"]
    assert events[-1]["response"]["id"] == "resp_chatcmpl-1"
    assert [item.get("arguments", item.get("input")) for item in output] == [None, "{}", "x", None]


def test_inexpressible_deltas_are_losses() -> None:
    _, writer = written(
        [
            PartStarted(0, Thinking("", native={"anthropic": {"a": 1}})),
            PartExtended(0, {"anthropic": {"signature": "x"}}),
            PartEnded(0),
            PartStarted(1, Native("anthropic", {"type": "server_tool_use"})),
            PartEnded(1),
            PartStarted(2, Image(data="AAAA")),
            PartEnded(2),
            PartStarted(3, Text("b"), candidate=1),
            PartDelta(3, "c"),
            PartEnded(3),
            Finished("end", candidate=1),
            Finished("stop_sequence", "x", native={"anthropic": {"container": {}}}),
        ]
    )
    paths = [loss.path for loss in writer.losses]
    assert sorted(paths[:4]) == ["parts[0].a", "parts[0].signature", "parts[1]", "parts[2]"]
    assert paths[4:] == ["others[0]", "native.container", "stop_sequence", "stop_reason"]


@st.composite
def foreign_deltas(draw: st.DrawFn) -> list[ModelOutputDelta]:
    """Deltas of any format: several parts may be open at once."""
    deltas: list[ModelOutputDelta] = []
    if draw(st.booleans()):
        deltas.append(Started("id", "model", 5, "gemini"))
    parts: list[Any] = draw(st.lists(output_parts, max_size=5))
    for number, part in enumerate(parts):
        if isinstance(part, ToolCallRequest):
            parts[number] = structs.replace(part, tool_call_id=f"call_{number}")
    open_parts: list[int] = []
    started = 0
    while started < len(parts) or open_parts:
        if started < len(parts) and (not open_parts or draw(st.booleans())):
            part = parts[started]
            first = structs.replace(part, arguments="") if isinstance(part, ToolCallRequest) else part
            deltas.append(PartStarted(started, first))
            open_parts.append(started)
            started += 1
            continue
        index = draw(st.sampled_from(open_parts))
        if not isinstance(parts[index], Native) and draw(st.booleans()):
            deltas.append(PartDelta(index, draw(texts)))
        else:
            deltas.append(PartEnded(index))
            open_parts.remove(index)
    if draw(st.booleans()):
        deltas.append(UsageReported(TokenUsage(3, 4)))
    ends: list[Any] = [Finished("length"), Finished("end"), Failed(ProviderError("oh", "overloaded"))]
    deltas.append(draw(st.sampled_from(ends)))
    return deltas


def shown(output: ModelOutput) -> list[tuple[str, str]]:
    seen: list[tuple[str, str]] = []
    for part in output.parts:
        if isinstance(part, ToolCallRequest):
            seen.append((part.tool_call_id, part.arguments))
        elif isinstance(part, Text | Refusal | Thinking):
            seen.append((type(part).__name__, part.text))
    return seen


@given(foreign_deltas())
def test_any_deltas_make_a_legal_stream(deltas: list[ModelOutputDelta]) -> None:
    data, _ = written(deltas)
    check_form(data)
    first, second = assembled(deltas), assembled(read_all(data))
    if first.error is not None:
        assert second.error is not None
        assert (second.error.message, second.error.kind) == ("oh", "overloaded")
        return
    assert shown(second.output) == shown(first.output)
    assert second.output.stop_reason == first.output.stop_reason or first.output.stop_reason == "end"
    assert (second.output.usage is None) is (first.output.usage is None)


@given(foreign_deltas())
def test_the_official_sdk_knows_every_event(deltas: list[ModelOutputDelta]) -> None:
    kinds, events = sdk_events(), events_of(written(deltas)[0])
    assert events
    for found in events:
        if found["type"] != "response.failed":  # its list of error codes is shorter than the API's
            kinds[found["type"]].model_validate(found, strict=True)


@cache
def sdk_events() -> dict[str, Any]:
    """The SDK's class for each type of event."""
    responses = pytest.importorskip("openai.types.responses")
    union = get_args(responses.ResponseStreamEvent)[0]
    return {get_args(kind.model_fields["type"].annotation)[0]: kind for kind in get_args(union)}


def sdk_output(client: Any) -> dict[str, Any]:
    """The last response the SDK makes of a stream."""
    with client.responses.stream(model="m", input="hi") as stream:
        for seen in stream:
            last = seen
        if last.type == "response.completed":
            assert stream.get_final_response().output == last.response.output
    final: dict[str, Any] = last.response.to_dict(warnings=False)
    return final


def test_the_official_sdk_assembles_our_streams(capsys: pytest.CaptureFixture[str]) -> None:
    openai = pytest.importorskip("openai")
    streams = [found for number, found in enumerate(all_streams()) if number % 4 == 0]
    with serving() as server, openai.OpenAI(api_key="k", base_url=server.url, max_retries=0) as client:
        server.kind = "text/event-stream"
        for stream_id, data in streams:
            deltas = read_all(data)
            assembler = assembled(deltas)
            if assembler.error is not None or stream_id in CHANGING_IDS:
                continue
            server.reply, _ = written(deltas)
            final = read_response(_as_sent(sdk_output(client)))
            assert final.parts == assembler.output.parts
            assert (final.id, final.stop_reason) == (assembler.output.id, assembler.output.stop_reason)
    with capsys.disabled():
        print(f"\n{len(streams)} streams assembled by the official SDK")


def _as_sent(value: Any) -> Any:
    """What the SDK adds to items for its users' convenience, taken away again."""
    if isinstance(value, dict):
        return {key: _as_sent(inner) for key, inner in value.items() if key not in ("parsed", "parsed_arguments")}
    return [_as_sent(inner) for inner in value] if isinstance(value, list) else value
