"""Streams of the Messages API that we write: legal for any deltas, and assembled by the official SDK."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.parts import Audio, Native, Refusal, Source, Text, Thinking, TokenUsage, ToolCallRequest
from antiphon.wire import ModelOutputDelta, ProviderError
from antiphon.wire.delta import (
    Failed,
    Finished,
    PartDelta,
    PartEnded,
    PartExtended,
    PartStarted,
    Started,
    UsageReported,
)
from support.examples import scaled
from support.local_server import LocalServer
from support.wire_formats import ANTHROPIC
from wire.anthropic.bodies import streams, without_nulls
from wire.anthropic.stream_helpers import (
    assembled,
    check_grammar,
    event,
    events_of,
    meaning,
    output_of,
    read,
    written,
)

read_response = ANTHROPIC.read_response
StreamWriter = ANTHROPIC.stream_writer


def test_recorded_streams_are_written_again(capsys: pytest.CaptureFixture[str]) -> None:
    count = 0
    for name, data in streams():
        deltas = read(data)
        again, losses = written(deltas)
        assert losses == [], name
        assert output_of(read(again)) == output_of(deltas), name
        check_grammar(events_of(again))
        count += 1
    with capsys.disabled():
        sys.stdout.write(f"\n{count} streams written again\n")


# The writer takes the deltas of any format.

FOREIGN: list[ModelOutputDelta] = [
    Started("chatcmpl-1", "gpt", 1, "openai-chat", {"openai-chat": {"system_fingerprint": "f"}}),
    PartStarted(0, Thinking("", source=Source("openai-chat", ("reasoning",)))),
    PartDelta(0, "Hm."),
    PartStarted(1, Text("")),
    PartDelta(1, "Let me "),
    PartStarted(2, ToolCallRequest("weather", "call:1", "")),
    PartDelta(2, '{"city":'),
    PartStarted(3, ToolCallRequest("weather", "call_2", "")),
    PartDelta(3, " "),
    PartDelta(3, '{"city":"Bergen"}'),
    PartDelta(2, '"Oslo"}'),
    PartDelta(1, "look."),
    PartEnded(0),
    PartStarted(4, Refusal("")),
    PartDelta(4, "No."),
    PartEnded(4),
    PartEnded(3),
    PartEnded(1),
    PartStarted(5, ToolCallRequest("patch", "call_3", "", freeform=True)),
    PartDelta(5, '*** "Begin"\n'),
    PartDelta(5, "é"),
    PartStarted(6, Text("")),
    PartEnded(6),
    PartStarted(7, Audio("audio/wav", "AA")),
    PartEnded(7),
    PartStarted(8, ToolCallRequest("weather", "call_4", "")),
    PartDelta(8, "["),
    PartDelta(8, "1]"),
    PartStarted(9, Native("openai-responses", {"type": "web_search_call"})),
    PartEnded(9),
    PartStarted(10, Text("Second candidate"), 1),
    PartDelta(10, "!"),
    PartEnded(10),
    PartStarted(11, ToolCallRequest("weather", "call_5", "{}")),
    UsageReported(TokenUsage(10, 5, 3, 2, 1)),
    PartExtended(2, {"gemini": {"thoughtSignature": "x"}}),
    PartEnded(2),
    PartEnded(5),
    PartEnded(8),
    Finished("tool_calls"),
    Finished("end", candidate=1),
]  # fmt: skip


def test_interleaved_parts_are_written_one_after_the_other() -> None:
    data, losses = written(FOREIGN)
    events = events_of(data)
    check_grammar(events)
    message = assembled(events)
    assert [
        (part["type"], part.get("text", part.get("thinking", part.get("input")))) for part in message["content"]
    ] == [
        ("thinking", "Hm."),
        ("text", "Let me look."),
        ("tool_use", {"city": "Oslo"}),
        ("tool_use", {"city": "Bergen"}),
        ("text", "No."),
        ("tool_use", {"input": '*** "Begin"\né'}),
        ("tool_use", {"_raw": "[1]"}),
        ("tool_use", {}),
    ]
    assert message["id"] == "msg_chatcmpl-1"
    assert message["stop_reason"] == "tool_use"
    assert message["usage"] == {
        "input_tokens": 5,
        "cache_creation_input_tokens": 2,
        "cache_read_input_tokens": 3,
        "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0},
        "output_tokens": 5,
        "output_tokens_details": {"thinking_tokens": 1},
        "service_tier": "standard",
    }
    assert sorted(losses) == sorted(
        [
            "created",
            "native.system_fingerprint",
            "parts[2].thoughtSignature",
            "parts[7]",
            "parts[8].arguments",
            "parts[9]",
            "others[0]",
        ]
    )


def test_the_writer_does_not_buffer_text() -> None:
    writer = StreamWriter("claude")
    assert b"message_start" in writer.write(Started("x", "gpt", format="openai-chat"))
    assert writer.write(PartStarted(0, Text(""))) == b""
    any_event = writer.write(PartDelta(0, "Rain"))
    assert [event["type"] for event in events_of(any_event)] == ["content_block_start", "content_block_delta"]
    assert [event["type"] for event in events_of(writer.write(PartDelta(0, ".")))] == ["content_block_delta"]
    assert writer.write(PartStarted(1, ToolCallRequest("weather", "call_1", ""))) == b""
    assert [event["type"] for event in events_of(writer.write(PartEnded(0)))] == [
        "content_block_stop",
        "content_block_start",
    ]
    writer.write(PartEnded(1))
    assert b"message_stop" in writer.write(Finished("tool_calls"))
    assert writer.write(PartDelta(0, "more")) == writer.close() == b""


def test_a_stream_that_does_not_finish_is_written_as_an_error() -> None:
    writer = StreamWriter()
    writer.write(PartStarted(0, Text("a")))
    assert events_of(writer.close())[-1]["error"]["type"] == "api_error"
    writer = StreamWriter()
    failed = writer.write(Failed(ProviderError("Slow down.", "rate_limit", 429)))
    assert events_of(failed) == [event("error", error={"type": "rate_limit_error", "message": "Slow down."})]
    assert writer.close() == b""
    assert [event["type"] for event in events_of(StreamWriter().write(Finished()))] == [
        "message_start",
        "message_delta",
        "message_stop",
    ]


any_event = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)

parts = st.one_of(
    st.builds(Text, any_event),
    st.builds(Thinking, any_event),
    st.builds(Refusal, any_event),
    st.builds(ToolCallRequest, st.just("weather"), any_event, st.just(""), st.booleans()),
    st.builds(Thinking, any_event, native=st.just({"anthropic": {"signature": "c2ln"}})),
    st.builds(Text, any_event, native=st.just({"anthropic": {"citations": [{"n": 1}]}})),
)


@given(st.lists(parts, max_size=5), st.data())
@settings(max_examples=scaled(25), deadline=None)
def test_any_deltas_make_a_legal_stream(made: list[Any], data: st.DataObject) -> None:
    deltas: list[ModelOutputDelta] = [Started("x", "m", format="gemini")]
    waiting = list(enumerate(made))
    opened: list[int] = []
    while waiting or opened:
        choice = data.draw(st.sampled_from(["start", "say", "end"]))
        if choice == "start" and waiting:
            index, part = waiting.pop(0)
            deltas.append(PartStarted(index, part))
            opened.append(index)
        elif choice == "say" and opened:
            index = data.draw(st.sampled_from(opened))
            is_call = isinstance(made[index], ToolCallRequest) and not made[index].freeform
            said_before = any(isinstance(delta, PartDelta) and delta.index == index for delta in deltas)
            text = ("" if said_before else '{"a":1}') if is_call else data.draw(any_event)
            deltas.append(PartDelta(index, text))
        elif opened:
            index = data.draw(st.sampled_from(opened))
            opened.remove(index)
            deltas.append(PartEnded(index))
    deltas.append(Finished("end"))
    again, _ = written(deltas)
    check_grammar(events_of(again))
    stop_place, expected = output_of(read(again)), output_of(deltas)
    assert [text_of(part) for part in stop_place.parts] == [
        text_of(part)
        for part in expected.parts
        if not isinstance(part, Text | Refusal | Thinking) or part.text or part.native
    ]


def text_of(part: Any) -> Any:
    if not isinstance(part, ToolCallRequest):
        return part.text
    return {"input": part.arguments if part.arguments != "{}" else ""} if part.freeform else json.loads(part.arguments)


def test_the_official_sdk_assembles_our_streams(capsys: pytest.CaptureFixture[str]) -> None:
    anthropic = pytest.importorskip("anthropic")
    count = 0
    # The SDK parses the arguments of a call again with every piece: the longest streams are left to the tests above.
    recorded = [data for _, data in streams() if len(data) < 12_000][::2]
    with LocalServer() as server, anthropic.Anthropic(api_key="none", base_url=server.url, max_retries=0) as client:
        for deltas in [FOREIGN, *map(read, recorded)]:
            data, _ = written(deltas)
            server.answer(200, "text/event-stream", data)
            with client.beta.messages.stream(
                model="m", max_tokens=9, messages=[{"role": "user", "content": "?"}]
            ) as stream:
                message = stream.get_final_message().to_dict(mode="json", warnings=False)
            stop_place, usage = assembled(events_of(data)), output_of(read(data)).usage
            if any(isinstance(part.get("input"), str) for part in stop_place["content"]):
                continue  # a call cut off by the limit of tokens: the SDK makes of it what it can
            assert without_nulls(message["content"]) == without_nulls(stop_place["content"])
            assert (message["id"], message["stop_reason"]) == (stop_place["id"], stop_place["stop_reason"])
            assert message["usage"]["output_tokens"] == (usage.completion_tokens if usage else 0)
            assert meaning(read_response(without_nulls(message)))["parts"] == meaning(output_of(read(data)))["parts"]
            assert json.loads(server.received)["stream"] is True
            count += 1
        server.answer(200, "text/event-stream", StreamWriter().write(Failed(ProviderError("Busy.", "overloaded"))))
        with (
            pytest.raises(anthropic.APIStatusError, match="Busy"),
            client.messages.stream(model="m", max_tokens=9, messages=[{"role": "user", "content": "?"}]) as stream,
        ):
            stream.get_final_message()
    with capsys.disabled():
        sys.stdout.write(f"\n{count} streams of ours assembled by the official SDK\n")
