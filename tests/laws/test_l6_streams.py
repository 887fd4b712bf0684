"""L6, streams equal wholes: generated streams, assembled by us and by the official SDK, are the same message.

The recorded streams are with each format, in `wire/`. Here everything that may change between the first and the last event
does: counts, lists beside the content, the model itself. Writers of every format end once: nothing follows an end or a failure.
"""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.parts import Image, Native, Text, Thinking, TokenUsage, ToolCallRequest
from antiphon.wire import FORMATS, Assembler, ModelOutput, ModelOutputDelta, ProviderError, formats
from antiphon.wire.delta import (
    Failed,
    Finished,
    PartDelta,
    PartEnded,
    PartExtended,
    PartStarted,
    Started,
    UsageReported,
    deltas_from_output,
)
from antiphon.wire.inbound import client_formats
from support.cases import each_case
from support.corpus import streams
from support.damage import damaged_stream
from support.examples import scaled
from wire.anthropic.bodies import without_nulls, written_out

FORMAT = formats["anthropic"]
MODELS = ["claude-refused", "claude-second", "claude-third"]

texts = st.text(alphabet='abc \n"\\é漢😀', max_size=12)
counts = st.integers(0, 3)
transformations = st.lists(
    st.fixed_dictionaries({"type": st.just("thinking_dropped"), "index": st.integers(0, 9)}), max_size=2
)


@st.composite
def text_blocks(draw: st.DrawFn) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    deltas: list[dict[str, Any]] = [{"type": "text_delta", "text": text} for text in draw(st.lists(texts, max_size=4))]
    if draw(st.booleans()):
        citation = {"type": "char_location", "cited_text": draw(texts), "document_index": 0}
        deltas.append({"type": "citations_delta", "citation": citation})
    return {"type": "text", "text": ""}, deltas


@st.composite
def thinking_blocks(draw: st.DrawFn) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    deltas = [{"type": "thinking_delta", "thinking": text} for text in draw(st.lists(texts, max_size=3))]
    return {"type": "thinking", "thinking": "", "signature": ""}, [
        *deltas,
        {"type": "signature_delta", "signature": "c2ln"},
    ]


@st.composite
def call_blocks(draw: st.DrawFn) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    kind = draw(st.sampled_from(["tool_use", "server_tool_use"]))
    given = draw(st.dictionaries(texts, st.one_of(texts, st.integers()), max_size=3))
    text = msgspec.json.encode(given).decode() if draw(st.booleans()) or given else ""
    cut = draw(st.integers(0, len(text)))
    deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in (text[:cut], text[cut:])]
    number = draw(st.integers(0, 10**6))
    return {"type": kind, "id": f"toolu_{number}", "name": draw(st.sampled_from(["a", "b"])), "input": {}}, deltas


@st.composite
def whole_blocks(draw: st.DrawFn) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    if draw(st.booleans()):
        return {"type": "redacted_thinking", "data": draw(texts)}, []
    models = draw(st.permutations(MODELS))
    ends: dict[str, Any] = {"from": {"model": models[0]}, "to": {"model": models[1]}}
    return {"type": "fallback", **ends, "trigger": {"type": "refusal"}}, []


blocks = st.one_of(text_blocks(), thinking_blocks(), call_blocks(), whole_blocks())


@st.composite
def anthropic_streams(draw: st.DrawFn) -> list[dict[str, Any]]:
    """The events of a stream as the API sends them: provisional counts first, the final ones at the end."""
    content = draw(st.lists(blocks, max_size=5))
    started = {"input_tokens": draw(counts), "output_tokens": draw(counts), "cache_read_input_tokens": draw(counts)}
    message: dict[str, Any] = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": MODELS[0],
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": started,
    }
    if draw(st.booleans()):
        message["input_transformations"] = draw(transformations)
    events: list[dict[str, Any]] = [{"type": "message_start", "message": message}]
    for index, (block, deltas) in enumerate(content):
        events.append({"type": "content_block_start", "index": index, "content_block": block})
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": index})
        if draw(st.booleans()):
            events.append({"type": "ping"})
    usage: dict[str, Any] = {"output_tokens": draw(counts)}
    if draw(st.booleans()):  # cumulative: never less than at the start
        usage["input_tokens"] = started["input_tokens"] + draw(counts)
    if draw(st.booleans()):
        usage["server_tool_use"] = {"web_search_requests": draw(counts)}
    stop = draw(st.sampled_from(["end_turn", "max_tokens", "stop_sequence", "refusal", "pause_turn"]))
    ended: dict[str, Any] = {"stop_reason": stop, "stop_sequence": "X" if stop == "stop_sequence" else None}
    if draw(st.booleans()):
        ended["container"] = {"id": "container_1", "expires_at": "2026-01-01T00:00:00Z"}
    last: dict[str, Any] = {"type": "message_delta", "delta": ended, "usage": usage}
    if draw(st.booleans()):
        last["input_transformations"] = draw(transformations)
    if draw(st.booleans()):
        last["context_management"] = {"applied_edits": draw(st.lists(st.just({"type": "x"}), max_size=2))}
    return [*events, last, {"type": "message_stop"}]


def assembled(data: bytes, seed: int) -> ModelOutput:
    dice = random.Random(seed)
    reader, assembler = FORMAT.stream_reader(), Assembler()
    position = 0
    while position < len(data):
        size = dice.randrange(1, 200)
        for delta in reader.feed(data[position : position + size]):
            assembler.add(delta)
        position += size
    for delta in reader.close():
        assembler.add(delta)
    assert assembler.is_finished, assembler.error
    return assembler.output


def meaning(output: ModelOutput) -> Any:
    """An answer without nulls, empty citations, and whitespace in the arguments of its calls."""
    value = without_nulls(msgspec.json.decode(msgspec.json.encode(output)))
    for part in value.get("parts", ()):
        if part["type"] == "tool_call":
            part["arguments"] = msgspec.json.decode(part.get("arguments") or "{}")
    return value


@settings(max_examples=scaled(25))
@given(anthropic_streams(), st.integers())
def test_anthropic_streams_equal_what_the_official_sdk_assembles(events: list[dict[str, Any]], seed: int) -> None:
    streaming = pytest.importorskip("anthropic.lib.streaming._beta_messages")
    ours = assembled(written_out(events), seed)
    snapshot: Any = None
    buffers: dict[int, bytes] = {}
    for event in events:
        if event["type"] == "ping":
            continue
        snapshot = streaming.accumulate_event(
            event=event, current_snapshot=snapshot, json_bufs=buffers, request_headers={}
        )
    theirs = FORMAT.read_response(without_nulls(snapshot.to_dict(mode="json", warnings=False)))
    assert meaning(ours) == meaning(theirs)
    # Written again and assembled by us, it is the same but for the name of the model, which a stream tells at its start.
    writer = FORMAT.stream_writer(ours.model)
    reader = FORMAT.stream_reader()
    again = b"".join(writer.write(delta) for delta in [*reader.feed(written_out(events)), *reader.close()])
    assert meaning(assembled(again + writer.close(), seed)) == meaning(ours)


def _every_delta(index: int, candidate: int = 0) -> list[ModelOutputDelta]:
    """A delta of every kind; `index` is that of a part which the stream has."""
    return [
        PartDelta(index, "late"),
        PartExtended(index, {name: {"annotations": [{"type": "x"}], "late": 1} for name in FORMATS}),
        PartEnded(index),
        PartStarted(9, Text("late"), candidate),
        PartDelta(9, "late"),
        PartExtended(9, {"anthropic": {"citations": [{"type": "x"}]}}),
        PartEnded(9),
        PartStarted(10, Thinking("late"), candidate),
        PartStarted(11, ToolCallRequest("late", "call_late", "{}"), candidate),
        PartEnded(11),
        PartStarted(12, Image("image/png", "iVBORw0KGgo="), candidate),
        PartStarted(13, Native("anthropic", {"type": "late"}), candidate),
        UsageReported(TokenUsage(1, 1)),
        Finished(candidate=candidate),
        Started("late", "late"),
    ]


OPENINGS: dict[str, list[ModelOutputDelta]] = {
    "nothing": [],
    "a start": [Started("1", "m", 1)],
    "an open text": [Started("1", "m", 1), PartStarted(0, Text("")), PartDelta(0, "Hello")],
    "an open thought": [PartStarted(0, Thinking("")), PartDelta(0, "Hm")],
    "an open call": [PartStarted(0, ToolCallRequest("f", "c", "")), PartDelta(0, '{"a":')],
    "a text that has ended": [PartStarted(0, Text("")), PartDelta(0, "Hello"), PartEnded(0)],
    "parts that wait": [
        PartStarted(0, Text("")),
        PartStarted(1, Text("")),
        PartDelta(1, "second"),
        PartStarted(2, ToolCallRequest("f", "c", "")),
        PartDelta(2, "{}"),
        PartEnded(2),
    ],
}


@each_case("opening", OPENINGS)
@each_case("name", client_formats)
def test_nothing_follows_a_failure(name: str, opening: str) -> None:
    writer = client_formats[name].stream_writer("m")
    for delta in OPENINGS[opening]:
        writer.write(delta)
    assert writer.write(Failed(ProviderError("It broke.", "server")))
    late = [*_every_delta(0), Failed(ProviderError("Again.", "server"))]
    assert [writer.write(delta) for delta in late] == [b""] * len(late)
    assert writer.close() == b""


@each_case("opening", OPENINGS)
@each_case("name", client_formats)
def test_nothing_follows_the_end_of_an_answer(name: str, opening: str) -> None:
    """Once an answer is finished, only the end of the stream follows; then nothing does."""
    writer = client_formats[name].stream_writer("m")
    written = [writer.write(delta) for delta in OPENINGS[opening]]
    written.append(writer.write(Finished()))
    late = _every_delta(0)
    assert [writer.write(delta) for delta in late] == [b""] * len(late)
    written.append(writer.close())
    assert any(written)
    late = [*late, Failed(ProviderError("It broke.", "server"))]
    assert [writer.write(delta) for delta in late] == [b""] * len(late)
    assert writer.close() == b""


@pytest.mark.parametrize("name", client_formats)
def test_a_stream_is_cut_only_once(name: str) -> None:
    writer = client_formats[name].stream_writer("m")
    writer.write(PartStarted(0, Text("")))
    assert writer.close()
    late = _every_delta(0)
    assert [writer.write(delta) for delta in late] == [b""] * len(late)
    assert writer.close() == b""


@pytest.mark.parametrize("name", ["openai-chat", "gemini", "openai-completions"])
def test_the_end_of_one_candidate_does_not_end_the_other(name: str) -> None:
    writer = client_formats[name].stream_writer("m")
    deltas: list[ModelOutputDelta] = [
        PartStarted(0, Text("")),
        PartStarted(1, Text(""), 1),
        PartDelta(0, "one"),
        PartEnded(0),
        Finished(),
    ]
    begun = b"".join(map(writer.write, deltas))
    assert b"one" in begun
    assert [writer.write(delta) for delta in _every_delta(0)[:-1]] == [b""] * (len(_every_delta(0)) - 1)
    assert b"two" in writer.write(PartDelta(1, "two"))
    assert writer.write(Finished(candidate=1))


@pytest.mark.parametrize("source", FORMATS)
def test_a_damaged_stream_gives_the_same_deltas_however_it_is_cut_and_ends_once(source: str) -> None:
    """Every part of it is announced, and is ended if the answer is; streams of every format can be written of its deltas."""
    dice = random.Random(6)
    for stream in [*streams(source)] * 4:
        data = damaged_stream(stream, dice)
        cut = dice.randrange(len(data))
        deltas = _deltas(source, data)
        assert _deltas(source, data[:cut], data[cut:]) == deltas
        assert isinstance(deltas[-1], Finished | Failed)
        assert not any(isinstance(delta, Failed) for delta in deltas[:-1])
        open_parts: set[int] = set()
        for delta in deltas:
            match delta:
                case PartStarted(index):
                    assert index not in open_parts
                    open_parts.add(index)
                case PartDelta(index) | PartExtended(index):
                    assert index in open_parts
                case PartEnded(index):
                    open_parts.remove(index)
        assert not open_parts or isinstance(deltas[-1], Failed)
        for target in FORMATS:
            writer = formats[target].stream_writer("m")
            written = b"".join([*map(writer.write, deltas), writer.close()])
            again = _deltas(target, written)
            assert isinstance(again[-1], type(deltas[-1]))
            if isinstance(again[-1], Finished):
                assert _calls(again) == _calls(deltas), data


@pytest.mark.parametrize("name", FORMATS)
def test_a_number_that_no_float_holds_is_read_from_a_stream_as_from_a_whole_answer(name: str) -> None:
    call = ToolCallRequest("f", "call_1", '{"x":1e400}')
    answer = ModelOutput(parts=(call,), stop_reason="tool_calls", id="1", model="m", format=name)
    bodies: list[bytes | dict[str, Any]] = [
        formats[name].encode_response(answer).data,
        formats[name].write_response(answer).body,
    ]
    writer = formats[name].stream_writer("m")
    written = b"".join([*map(writer.write, deltas_from_output(answer)), writer.close()])
    assembler = Assembler()
    for delta in _deltas(name, written):
        assembler.add(delta)
    for found in (*map(formats[name].read_response, bodies), assembler.output):
        calls = [(part.tool_name, part.arguments) for part in found.parts if isinstance(part, ToolCallRequest)]
        assert calls == [("f", '{"x":1e400}')]


def _calls(deltas: list[ModelOutputDelta]) -> list[str]:
    """The names of the calls of the first candidate, which every format has; one without a name is dropped, or gets one."""
    return [
        delta.part.tool_name
        for delta in deltas
        if isinstance(delta, PartStarted)
        and isinstance(delta.part, ToolCallRequest)
        and not delta.candidate
        and delta.part.tool_name not in ("", "unknown_tool")
    ]


def _deltas(name: str, *pieces: bytes) -> list[ModelOutputDelta]:
    reader = formats[name].stream_reader()
    return [*(delta for piece in pieces for delta in reader.feed(piece)), *reader.close()]
