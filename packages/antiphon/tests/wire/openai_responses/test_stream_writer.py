"""Streams of Responses, written from the deltas of any format, and read by the official SDK."""

from __future__ import annotations

from functools import cache
from typing import Any, get_args

import pytest
from hypothesis import given

from antiphon.parts import Image, Native, Text, Thinking, ToolCallRequest
from antiphon.wire import format as wire_format
from antiphon.wire.delta import (
    Finished,
    ModelOutputDelta,
    PartDelta,
    PartEnded,
    PartExtended,
    PartStarted,
    Started,
)
from support.wire_formats import RESPONSES
from wire.openai_responses.bodies import (
    all_streams,
    assembled,
    events_of,
    read_all,
    serving,
)
from wire.stream_grammar import any_deltas

read_response = RESPONSES.read_response
StreamWriter = RESPONSES.stream_writer

CHANGING_IDS = {"3cff7ef22532f6de"}  # a host that gives an item another id with every event


def written(deltas: list[ModelOutputDelta], model: str = "") -> tuple[bytes, wire_format.StreamWriter]:
    writer = StreamWriter(model)
    data = b"".join(map(writer.write, deltas)) + writer.close()
    return data, writer


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
    events = events_of(data)
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


@given(any_deltas(1))
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
