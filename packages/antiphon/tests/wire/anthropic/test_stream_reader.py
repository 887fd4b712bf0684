"""Streams of the Messages API that we read: the same deltas for any chunking, errors, and what real streams do."""

from __future__ import annotations

import json
from typing import Any

import pytest

from antiphon.parts import Native, Text, Thinking, ToolCallRequest
from antiphon.wire import formats
from antiphon.wire.delta import (
    Failed,
    Finished,
)
from support.wire_formats import ANTHROPIC
from wire.anthropic.bodies import streams, written_out
from wire.anthropic.stream_helpers import (
    CALL,
    PING,
    RAIN,
    SEARCH,
    STOP,
    TEXT,
    TOOL_USE,
    WORDS,
    assembled,
    block,
    check_grammar,
    delta,
    event,
    events_of,
    finish,
    meaning,
    output_of,
    read,
    start,
    stop,
    written,
)
from wire.stream_grammar import check_grammar as check_deltas

read_response = ANTHROPIC.read_response


def test_recorded_streams_equal_their_answers() -> None:
    for name, data in streams():
        deltas = read(data)
        assert isinstance(deltas[-1], Finished), name
        assert meaning(output_of(deltas)) == meaning(read_response(assembled(events_of(data)))), name


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
def test_deviations_of_real_streams_are_understood(name: str) -> None:
    events, parts = STREAM_CASES[name]
    deltas = read(written_out(events))
    assert output_of(deltas).parts == parts
    assert isinstance(deltas[-1], Finished)
    again, losses = written(deltas)
    assert losses == []
    assert output_of(read(again)) == output_of(deltas)
    check_grammar(events_of(again))


def test_a_start_after_other_events_says_nothing() -> None:
    for events in ([*WORDS, start()], [WORDS[0], start(), *WORDS[1:]], [finish(), start()]):
        whole = written_out([*events, finish(), STOP])
        for deltas in (read(whole), read(*(whole[place : place + 1] for place in range(len(whole))))):
            check_deltas(deltas)
            assert (output_of(deltas).parts, output_of(deltas).id) == ((RAIN,) if len(events) > 2 else (), "")


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
def test_an_event_that_is_not_an_object_is_a_failure(data: bytes) -> None:
    deltas = read(written_out([start()]) + b"data: " + data + b"\n\n" + written_out([finish(), STOP]))
    assert isinstance(deltas[-1], Failed)
    assert deltas[-1].error.kind == "server"
