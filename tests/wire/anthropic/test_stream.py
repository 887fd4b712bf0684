"""Streams of the Messages API: the same deltas however they are cut, whole answers at the end, and ours assembled by the SDK."""

from __future__ import annotations

import itertools
import json
import random
import sys
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from antiphon.history.entries import TokenUsage
from antiphon.parts import Audio, Native, Refusal, Text, Thinking, ToolCallRequest
from antiphon.wire import Assembler, ModelOutput, ModelOutputDelta, ProviderError, formats
from antiphon.wire.anthropic.response import read_response
from antiphon.wire.anthropic.stream_reader import StreamReader
from antiphon.wire.anthropic.stream_writer import StreamWriter
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
from antiphon.wire.sse import SseReader
from support.local_server import LocalServer
from wire.anthropic.bodies import json_values, streams, without_nulls, written_out


def read(*chunks: bytes) -> list[ModelOutputDelta]:
    reader = StreamReader()
    deltas = [delta for chunk in chunks for delta in reader.feed(chunk)]
    return deltas + reader.close()


def output_of(deltas: list[ModelOutputDelta]) -> ModelOutput:
    assembler = Assembler()
    for delta in deltas:
        assembler.add(delta)
    return assembler.output


def written(deltas: list[ModelOutputDelta]) -> tuple[bytes, list[str]]:
    writer = StreamWriter()
    data = b"".join([*(writer.write(delta) for delta in deltas), writer.close()])
    return data, [loss.path for loss in writer.losses]


def events_of(data: bytes) -> list[dict[str, Any]]:
    reader = SseReader()
    events = [event for event in reader.feed(data) + reader.close() if event.data != b"[DONE]"]
    return [json.loads(event.data) for event in events]


def assembled(events: list[dict[str, Any]]) -> dict[str, Any]:
    """The answer that a stream tells, put together by its own grammar."""
    message: dict[str, Any] = {}
    pieces: dict[int, str] = {}
    for event in events:
        match event["type"]:
            case "message_start":
                message = without_nulls(event["message"])
            case "content_block_start":
                message["content"].append(dict(event["content_block"]))
                if event["content_block"]["type"] == "fallback":
                    message["model"] = event["content_block"]["to"]["model"]
            case "content_block_delta":
                grow(message["content"][event["index"]], event["delta"], pieces, event["index"])
            case "message_delta":
                message |= without_nulls(event["delta"])
                message["usage"] |= without_nulls(event["usage"])
                message |= {name: value for name, value in event.items() if name not in ("type", "delta", "usage")}
            case "message_stop":
                message |= {name: value for name, value in event.items() if name != "type"}
    for index, text in pieces.items():
        if text:
            message["content"][index]["input"] = parsed(text)
    return message


def parsed(text: str) -> Any:
    """The arguments of a call; as text if the limit of tokens cut them off."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def grow(block: dict[str, Any], delta: dict[str, Any], pieces: dict[int, str], index: int) -> None:
    match delta["type"]:
        case "text_delta":
            block["text"] += delta["text"]
        case "thinking_delta":
            block["thinking"] += delta["thinking"]
        case "signature_delta":
            block["signature"] = delta["signature"]
        case "citations_delta":
            block["citations"] = [*(block.get("citations") or []), delta["citation"]]
        case "input_json_delta":
            pieces[index] = pieces.get(index, "") + delta["partial_json"]
        case _:
            block.update({name: value for name, value in delta.items() if name != "type"})


def meaning(output: ModelOutput) -> Any:
    """An answer without the whitespace in its arguments, and without nulls in what is kept raw."""
    value = without_nulls(msgspec.json.decode(msgspec.json.encode(output)))
    for part in value.get("parts", ()):
        if part["type"] == "tool_call":
            part["arguments"] = parsed(part.get("arguments", "{}"))
    return value


def test_recorded_streams_equal_their_answers_for_any_chunking(capsys: pytest.CaptureFixture[str]) -> None:
    dice = random.Random(1)
    counts = {"streams": 0, "cuts": 0, "bytes": 0}
    for name, data in streams():
        deltas = read(data)
        assert [type(delta) for delta in deltas if isinstance(delta, Finished | Failed)] == [Finished], name
        assert isinstance(deltas[-1], Finished)
        assert meaning(output_of(deltas)) == meaning(read_response(assembled(events_of(data)))), name
        variants = [
            data,
            b"\xef\xbb\xbf" + data,
            data.replace(b"\n", b"\r\n"),
            data.replace(b"\n", b"\r"),
            data.rstrip(b"\n"),
        ]
        variants.append(data.replace(b"\n\n", b"\n\n: keep-alive\n\n"))
        for variant in variants:
            for _ in range(2):
                cuts = sorted(dice.sample(range(len(variant)), min(dice.randrange(1, 60), len(variant))))
                chunks = [variant[start:end] for start, end in itertools.pairwise([0, *cuts, len(variant)])]
                assert read(*chunks) == deltas, name
                counts["cuts"] += len(cuts)
        if len(data) < 6000:
            assert read(*(data[at : at + 1] for at in range(len(data)))) == deltas
            counts["cuts"] += len(data)
        counts["streams"] += 1
        counts["bytes"] += len(data)
    with capsys.disabled():
        sys.stdout.write(f"\n{counts['streams']} streams of {counts['bytes']} bytes, cut {counts['cuts']} times\n")
    assert counts["streams"] >= 251


def test_a_stream_that_is_cut_has_failed(capsys: pytest.CaptureFixture[str]) -> None:
    """At any byte before the stop reason."""
    dice = random.Random(2)
    counts = 0
    for _, data in streams():
        stop_place = (
            data.index(b'"message_delta"')
            if data.startswith(b"event")
            else data.rindex(b"data: ", 0, data.index(b'"stop_reason": "'))
        )
        line = data.rindex(b"\n", 0, stop_place) + 1
        end = line + data[line:].index(b"\n")
        if not data[line:end].startswith(b"data:"):
            line, end = end + 1, end + 1 + data[end + 1 :].index(b"\n")
        end = line + len(data[line:end].rstrip())
        every = range(end) if end < 1100 else ()
        for cut in {0, 1, line, end - 1, *(dice.randrange(end) for _ in range(12)), *every}:
            deltas = read(data[:cut])
            assert isinstance(deltas[-1], Failed)
            assert deltas[-1].error.kind == "stream_cut"
            assert not any(isinstance(delta, Finished | Failed) for delta in deltas[:-1])
            counts += 1
        assert isinstance(read(data[:end])[-1], Finished)
    with capsys.disabled():
        sys.stdout.write(f"\n{counts} streams cut short\n")


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


def check_grammar(events: list[dict[str, Any]]) -> None:
    """One block at a time, counted from 0, between `message_start` and `message_delta message_stop`."""
    kinds = [event["type"] for event in events]
    assert kinds[0] == "message_start"
    assert kinds[-2:] == ["message_delta", "message_stop"]
    assert kinds.count("message_start") == kinds.count("message_delta") == kinds.count("message_stop") == 1
    opened = -1
    is_open = False
    for event in events[1:-2]:
        if event["type"] == "content_block_start":
            opened += 1
            assert not is_open
            is_open = True
        assert is_open
        assert event["index"] == opened
        is_open = event["type"] != "content_block_stop"
    assert not is_open


def event(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": kind, **fields}


def start(*content: Any, **usage: Any) -> dict[str, Any]:
    any_event = {"input_tokens": 9, "output_tokens": 1, **usage}
    return event(
        "message_start", message={"id": "msg_1", "model": "claude", "content": list(content), "usage": any_event}
    )


def block(index: int, **fields: Any) -> dict[str, Any]:
    return event("content_block_start", index=index, content_block=fields)


def delta(index: int, kind: str, **fields: Any) -> dict[str, Any]:
    return event("content_block_delta", index=index, delta={"type": kind, **fields})


def stop(index: int) -> dict[str, Any]:
    return event("content_block_stop", index=index)


def finish(word: str | None = "end_turn", **usage: Any) -> dict[str, Any]:
    return event(
        "message_delta", delta={"stop_reason": word, "stop_sequence": None}, usage={"output_tokens": 5, **usage}
    )


STOP = event("message_stop")
PING = event("ping")
TEXT = {"type": "text", "text": ""}
WORDS = [block(0, **TEXT), delta(0, "text_delta", text="Rain."), stop(0)]
RAIN = Text("Rain.")
CALL = ToolCallRequest("weather", "toolu_1", '{"city": "Oslo"}')
TOOL_USE = {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {}}
SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}

# What real streams do, and what is understood of it.
STREAM_CASES: dict[str, tuple[list[Any], tuple[Any, ...]]] = {
    "plain": ([start(), *WORDS, finish(), STOP], (RAIN,)),
    "pings and unknown events": (
        [PING, start(), PING, WORDS[0], PING, event("of_tomorrow", x=1), *WORDS[1:], finish(), PING, STOP],
        (RAIN,),
    ),
    "text in the start": (
        [start(), block(0, type="text", text="Ra"), delta(0, "text_delta", text="in."), stop(0), finish(), STOP],
        (RAIN,),
    ),
    "text in the message": ([start({"type": "text", "text": "Rain."}), finish(), STOP], (RAIN,)),
    "blocks from 1": (
        [start(), block(1, **TEXT), delta(1, "text_delta", text="Rain."), stop(1), finish(), STOP],
        (RAIN,),
    ),
    "no stops": (
        [
            start(),
            *WORDS[:2],
            block(1, **TOOL_USE),
            delta(1, "input_json_delta", partial_json='{"city": "Oslo"}'),
            finish("tool_use"),
            STOP,
        ],
        (RAIN, CALL),
    ),
    "no starts": ([start(), delta(0, "text_delta", text="Rain."), stop(0), finish(), STOP], (RAIN,)),
    "no end": ([start(), *WORDS, finish()], (RAIN,)),
    "a second start": (
        [start(), *WORDS, start(), block(0, **TEXT), delta(0, "text_delta", text="Sun."), finish(), STOP],
        (RAIN, Text("Sun.")),
    ),
    "a call in pieces": (
        [
            start(),
            block(0, **TOOL_USE),
            delta(0, "input_json_delta", partial_json=""),
            delta(0, "input_json_delta", partial_json='{"city'),
            delta(0, "input_json_delta", partial_json='": "Oslo"}'),
            stop(0),
            finish("tool_use"),
            STOP,
        ],
        (CALL,),
    ),
    "a call in its start": (
        [start(), block(0, **{**TOOL_USE, "input": {"city": "Oslo"}}), stop(0), finish("tool_use"), STOP],
        (ToolCallRequest("weather", "toolu_1", '{"city":"Oslo"}'),),
    ),
    "a call of nothing": (
        [start(), block(0, **TOOL_USE), stop(0), finish("tool_use"), STOP],
        (ToolCallRequest("weather", "toolu_1", "{}"),),
    ),
    "thinking": (
        [
            start(),
            block(0, type="thinking", thinking="", signature=""),
            delta(0, "thinking_delta", thinking="Hm.", estimated_tokens=3),
            delta(0, "signature_delta", signature="c2ln"),
            stop(0),
            finish(),
            STOP,
        ],
        (Thinking("Hm.", native={"anthropic": {"signature": "c2ln"}}),),
    ),
    "hidden thinking": (
        [
            start(),
            block(0, type="thinking", thinking="", signature=""),
            delta(0, "signature_delta", signature="c2ln"),
            stop(0),
            finish(),
            STOP,
        ],
        (Thinking("", native={"anthropic": {"signature": "c2ln"}}),),
    ),
    "redacted thinking": (
        [start(), block(0, type="redacted_thinking", data="x"), stop(0), finish(), STOP],
        (Native("anthropic", {"type": "redacted_thinking", "data": "x"}),),
    ),
    "citations": (
        [
            start(),
            block(0, **TEXT, citations=[]),
            delta(0, "citations_delta", citation={"n": 1}),
            delta(0, "text_delta", text="Rain."),
            delta(0, "citations_delta", citation={"n": 2}),
            stop(0),
            finish(),
            STOP,
        ],
        (Text("Rain.", native={"anthropic": {"citations": [{"n": 1}, {"n": 2}]}}),),
    ),
    "a server's call": (
        [
            start(),
            block(0, **SEARCH),
            delta(0, "input_json_delta", partial_json='{"query":'),
            delta(0, "input_json_delta", partial_json='"rain"}'),
            stop(0),
            block(1, type="web_search_tool_result", tool_use_id="srvtoolu_1", content=[{"url": "u"}]),
            stop(1),
            finish("pause_turn"),
            STOP,
        ],
        (
            Native("anthropic", {**SEARCH, "input": {"query": "rain"}}),
            Native(
                "anthropic", {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [{"url": "u"}]}
            ),
        ),
    ),
    "a server's call cut off": (
        [start(), block(0, **SEARCH), delta(0, "input_json_delta", partial_json='{"qu'), finish("max_tokens"), STOP],
        (Native("anthropic", {**SEARCH, "input": {"_raw": '{"qu'}}),),
    ),
    "a block of tomorrow": (
        [
            start(),
            block(0, type="poem", lines=["a"], title="A"),
            delta(0, "poem_delta", lines=["b"], title="B", mood=3),
            delta(0, "citations_delta", citation=7),
            stop(0),
            finish(),
            STOP,
        ],
        (Native("anthropic", {"type": "poem", "lines": ["a", "b"], "title": "AB", "mood": 3, "citations": [7]}),),
    ),
    "a delta of tomorrow": ([start(), *WORDS[:2], delta(0, "mood_delta", mood=3), stop(0), finish(), STOP], (RAIN,)),
}


@pytest.mark.parametrize("name", STREAM_CASES)
def test_what_real_streams_do(name: str) -> None:
    events, parts = STREAM_CASES[name]
    deltas = read(written_out(events))
    assert output_of(deltas).parts == parts
    assert isinstance(deltas[-1], Finished)
    again, losses = written(deltas)
    assert losses == []
    assert output_of(read(again)) == output_of(deltas)
    check_grammar(events_of(again))


def test_done_is_an_end_like_any_other() -> None:
    done = b"data: [DONE]\n\n"
    whole = written_out([start(), *WORDS, finish(), STOP])
    assert read(whole + done) == read(whole)
    assert read(written_out([start(), *WORDS, finish()]) + done) == read(whole)
    assert isinstance(read(written_out([start(), *WORDS]) + done)[-1], Failed)


def test_usage_is_replaced_and_never_forgotten() -> None:
    events = [
        start(cache_read_input_tokens=100, service_tier="standard"),
        *WORDS,
        finish(input_tokens=0, cache_read_input_tokens=None, output_tokens_details={"thinking_tokens": 2}),
        STOP,
    ]
    usage = output_of(read(written_out(events))).usage
    assert usage is not None
    assert (usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens, usage.reasoning_tokens) == (
        109,
        100,
        5,
        2,
    )
    assert usage.raw == {
        "input_tokens": 9,
        "output_tokens": 5,
        "cache_read_input_tokens": 100,
        "service_tier": "standard",
        "output_tokens_details": {"thinking_tokens": 2},
    }


def test_a_final_count_of_zero_replaces_the_provisional_one() -> None:
    for counts, expected in (([0], 0), ([3, 0], 3), ([0, 3], 3), ([None], 1)):
        ends = [finish(output_tokens=count) for count in counts]
        usage = output_of(read(written_out([start(output_tokens=1), *WORDS, *ends, STOP]))).usage
        assert usage is not None
        assert usage.completion_tokens == expected


def test_values_at_the_end_replace_those_at_the_start() -> None:
    first, last = [{"type": "a", "index": 1}], [{"type": "b", "index": 2}]
    begun = start()
    begun["message"]["input_transformations"] = first
    for end, expected in (({"input_transformations": last}, last), ({"input_transformations": []}, []), ({}, first)):
        output = output_of(read(written_out([begun, *WORDS, {**finish(), **end}, STOP])))
        assert output.native is not None
        assert output.native["anthropic"]["input_transformations"] == expected


def test_the_model_is_the_one_that_the_last_fallback_names() -> None:
    def fallback(number: int, to: str) -> list[dict[str, Any]]:
        block = {"type": "fallback", "from": {"model": "m"}, "to": {"model": to}, "trigger": {"type": "refusal"}}
        return [
            event("content_block_start", index=number, content_block=block),
            event("content_block_stop", index=number),
        ]

    data = written_out([start(), *fallback(0, "second"), *fallback(1, "third"), finish(), STOP])
    output = output_of(read(data))
    assert output.model == "third"
    assert read_response(assembled(events_of(data))).model == "third"
    writer = formats["openai-responses"].stream_writer("")
    carried = b"".join(writer.write(delta) for delta in read(data))
    assert events_of(carried)[-1]["response"]["model"] == "third"


def test_an_error_in_the_middle() -> None:
    error = event("error", error={"type": "overloaded_error", "message": "Overloaded"})
    for any_event in (error, {"error": {"type": "overloaded_error", "message": "Overloaded"}}):
        data = (
            written_out([start(), WORDS[0]])
            + b"data: "
            + json.dumps(any_event).encode()
            + b"\n\n"
            + written_out([STOP])
        )
        deltas = read(data)
        assert isinstance(deltas[-1], Failed)
        assert (deltas[-1].error.kind, deltas[-1].error.status) == ("overloaded", 529)
        again, _ = written(deltas)
        assert events_of(again)[-1] == error


@pytest.mark.parametrize("data", [b"{", b'{"type": "ping"', b"5", b"null", b'"text"', b"\xff", b"[" * 100_000])
def test_what_is_not_an_event_is_a_failure(data: bytes) -> None:
    deltas = read(written_out([start()]) + b"data: " + data + b"\n\n" + written_out([finish(), STOP]))
    assert isinstance(deltas[-1], Failed)
    assert deltas[-1].error.kind == "server"


strange = st.fixed_dictionaries(
    {
        "type": st.sampled_from(
            [
                "message_start",
                "content_block_start",
                "content_block_delta",
                "content_block_stop",
                "message_delta",
                "error",
                "x",
            ]
        )
        | json_values
    },
    optional={
        "index": st.integers(0, 2) | json_values,
        "message": json_values
        | st.fixed_dictionaries({}, optional={"usage": json_values, "content": json_values, "id": json_values}),
        "content_block": json_values
        | st.fixed_dictionaries(
            {"type": st.sampled_from(["text", "thinking", "tool_use", "server_tool_use"])},
            optional={
                "text": json_values,
                "thinking": json_values,
                "id": json_values,
                "name": json_values,
                "input": json_values,
            },
        ),
        "delta": json_values
        | st.fixed_dictionaries(
            {
                "type": st.sampled_from(
                    ["text_delta", "input_json_delta", "thinking_delta", "signature_delta", "citations_delta", "x"]
                )
            },
            optional={
                "text": json_values,
                "partial_json": json_values,
                "thinking": json_values,
                "signature": json_values,
                "citation": json_values,
            },
        )
        | st.fixed_dictionaries({"stop_reason": json_values}, optional={"stop_sequence": json_values}),
        "usage": json_values | st.dictionaries(st.sampled_from(["input_tokens", "output_tokens"]), json_values),
        "error": json_values,
    },
)


@given(st.lists(strange | st.sampled_from([start(), *WORDS, finish()]), max_size=8), st.booleans())
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_events_give_one_end(events: list[Any], is_ended: bool) -> None:
    data = b"".join(
        b"data: " + msgspec.json.encode(any_event) + b"\n\n" for any_event in [*events, *([STOP] if is_ended else [])]
    )
    deltas = read(data)
    assert read(*(data[at : at + 7] for at in range(0, len(data), 7))) == deltas
    assert [isinstance(any_event, Finished | Failed) for any_event in deltas].count(True) == 1
    assert isinstance(deltas[-1], Finished | Failed)
    output_of(deltas)
    again, _ = written(deltas)
    assert isinstance(read(again)[-1], type(deltas[-1]))
    if isinstance(deltas[-1], Finished):
        check_grammar(events_of(again))
        if isinstance(deltas[0], Started):  # else the writer cannot know where it is from
            assert output_of(read(again)).parts == output_of(deltas).parts


# The writer takes the deltas of any format.

FOREIGN: list[ModelOutputDelta] = [
    Started("chatcmpl-1", "gpt", 1, "openai-chat", {"openai-chat": {"system_fingerprint": "f"}}),
    PartStarted(0, Thinking("", native={"openai-chat": {"field": "reasoning"}})),
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
        "output_tokens": 5,
        "output_tokens_details": {"thinking_tokens": 1},
    }
    assert sorted(losses) == sorted(
        [
            "created",
            "native.system_fingerprint",
            "parts[0].field",
            "parts[2].thoughtSignature",
            "parts[7]",
            "parts[8].arguments",
            "parts[9]",
            "parts[10]",
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
@settings(max_examples=200, deadline=None)
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
