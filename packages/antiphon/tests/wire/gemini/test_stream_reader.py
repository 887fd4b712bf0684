"""Gemini streams, read: however they are cut, with errors, pieces of arguments and several candidates."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.parts import Native, Source, Text, Thinking, TokenUsage, ToolCallRequest
from antiphon.wire.delta import (
    Finished,
    ModelOutputDelta,
    PartDelta,
    PartEnded,
    PartStarted,
    Started,
    UsageReported,
)
from antiphon.wire.gemini.candidate_reader import PartialCall
from antiphon.wire.tools.call_ids import GENERATED_ID_PREFIX
from support.corpus import in_collection
from support.wire_formats import GEMINI
from wire.gemini.bodies import as_array, as_events, camel, streams, values
from wire.gemini.stream_helpers import assembled, failure, read, rewritten
from wire.stream_grammar import check_grammar

read_response = GEMINI.read_response


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(places), len(data)]
    return [data[start:end] for start, end in pairwise(edges)]


def chunk(*parts: Any, finish: str | None = None, **rest: Any) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"parts": list(parts), "role": "model"}, "index": 0}
    if finish:
        candidate["finishReason"] = finish
    return {"candidates": [candidate], "responseId": "r", "modelVersion": "m", **rest}


@pytest.mark.parametrize("last", [None, [], [{"promptTokenCount": 9}], 3, "x"])
def test_the_last_usage_that_is_an_object_counts(last: Any) -> None:
    counts = [{"promptTokenCount": 100}, {"promptTokenCount": 100, "candidatesTokenCount": 50}]
    chunks = [chunk({"text": "a"}, usageMetadata=usage) for usage in counts]
    for ending in (
        chunk({"text": "b"}, finish="STOP", usageMetadata=last),
        chunk({"functionCall": {"name": "f"}}, usageMetadata=last),
    ):
        usage = assembled(read(as_events([*chunks, ending, chunk({"text": "c"}, finish="STOP")]))).usage
        assert usage is not None
        assert usage.completion_tokens == 50


@pytest.mark.parametrize("odd", [None, [], 3])
def test_a_name_of_the_answer_is_not_replaced_by_what_is_none(odd: Any) -> None:
    odd_chunk = chunk({"text": "b"}, finish="STOP") | {"responseId": odd, "modelVersion": odd}
    data = as_events([chunk({"text": "a"}), odd_chunk])
    output = assembled(read(data))
    assert (output.id, output.model, output.native) == ("r", "m", None)


def test_events_and_the_array_give_the_same() -> None:
    parts_seen = dict(streams())
    both = [name for name in parts_seen if f"{name}.array" in parts_seen]
    assert len(both) > in_collection(60)
    for name in both:
        assert read(parts_seen[name]) == read(parts_seen[f"{name}.array"]), name


def test_every_byte_before_the_end_is_needed() -> None:
    data = as_events([chunk({"text": "a"}), chunk({"text": "b"}, finish="STOP")])
    for place in range(len(data) - 4):
        error = failure(read(data[:place]))
        assert error is not None
        assert error.kind == "stream_cut"
    assert failure(read(data[:-4])) is None, "the last blank line may be missing"
    array = as_array([chunk({"text": "a"}), chunk({"text": "b"}, finish="STOP")]).rstrip()
    for place in range(len(array)):
        assert failure(read(array[:place])) is not None
    assert failure(read(array)) is None


def collected(data: bytes) -> dict[str, Any]:
    """The chunks of a stream put together by hand: the response that was not streamed."""
    text = data.decode()
    if text.startswith("["):
        chunks = msgspec.json.decode(data)
    else:
        chunks = [msgspec.json.decode(line[5:].encode()) for line in text.splitlines() if line.startswith("data:")]
    body: dict[str, Any] = {}
    candidate: dict[str, Any] = {}
    parts: list[Any] = []
    for piece in chunks:
        body.update({name: value for name, value in piece.items() if name != "candidates"})
        for one in piece.get("candidates", ()):
            grounding = {**candidate.get("groundingMetadata", {}), **one.get("groundingMetadata", {})}
            candidate.update({name: value for name, value in one.items() if name != "content"})
            if grounding:
                candidate["groundingMetadata"] = grounding
            for part in (one.get("content") or {}).get("parts", ()):
                add(parts, part)
    if candidate:
        body["candidates"] = [{**candidate, "content": {"parts": parts, "role": "model"}}]
    return body


def add(parts: list[Any], part: dict[str, Any]) -> None:
    last = parts[-1] if parts and "text" in parts[-1] else None
    if "text" not in part:
        parts.append(part)
    elif last is not None and last.get("thought", False) == part.get("thought", False):
        parts[-1] = {**last, **part, "text": last["text"] + part["text"]}
    elif part["text"] or "thoughtSignature" in part:
        parts.append(part)


def test_a_stream_equals_the_whole() -> None:
    compared = 0
    for name, data in streams():
        deltas = read(data)
        if failure(deltas) or b"partialArgs" in data or b"citationMetadata" in data:
            continue
        assert assembled(deltas) == read_response(collected(data)), name
        compared += 1
    assert compared > in_collection(200)


def test_text_thoughts_and_calls() -> None:
    usage = {"promptTokenCount": 3, "candidatesTokenCount": 4, "totalTokenCount": 7}
    deltas = read(
        as_events(
            [
                chunk({"text": "h", "thought": True}, usageMetadata={"promptTokenCount": 3, "totalTokenCount": 3}),
                chunk({"text": "m", "thought": True}),
                chunk({"text": "It "}),
                chunk({"text": "rains."}),
                chunk({"functionCall": {"name": "f", "args": {"a": 1}}, "thoughtSignature": "c2ln"}),
                chunk({"text": ""}, finish="STOP", usageMetadata=usage),
            ]
        )
    )
    first = next(part.part.tool_call_id for part in started(deltas) if isinstance(part.part, ToolCallRequest))
    assert first.startswith(GENERATED_ID_PREFIX)
    call = ToolCallRequest("f", first, "", native={"gemini": {"thoughtSignature": "c2ln"}})
    assert deltas == [
        Started("r", "m", None, "gemini"),
        UsageReported(
            TokenUsage(3, 0, total_tokens=3, raw={"promptTokenCount": 3, "totalTokenCount": 3}, format="gemini")
        ),
        PartStarted(0, Thinking(source=Source("gemini"))),
        PartDelta(0, "h"),
        PartDelta(0, "m"),
        PartEnded(0),
        PartStarted(1, Text("")),
        PartDelta(1, "It "),
        PartDelta(1, "rains."),
        PartEnded(1),
        PartStarted(2, call),
        PartDelta(2, '{"a":1}'),
        PartEnded(2),
        UsageReported(TokenUsage(3, 4, total_tokens=7, raw=usage, format="gemini")),
        Finished("tool_calls"),
    ]


def started(deltas: list[ModelOutputDelta]) -> list[PartStarted]:
    return [delta for delta in deltas if isinstance(delta, PartStarted)]


def test_a_signature_belongs_to_the_part_it_comes_with() -> None:
    signed = {"gemini": {"thoughtSignature": "one"}}
    late = read(as_events([chunk({"text": "a"}), chunk({"text": "", "thoughtSignature": "one"}, finish="STOP")]))
    assert assembled(late).parts == (Text("a", native=signed),)
    early = read(as_events([chunk({"text": "a", "thoughtSignature": "one"}), chunk({"text": "b"}, finish="STOP")]))
    assert assembled(early).parts == (Text("ab", native=signed),)
    alone = read(
        as_events(
            [chunk({"functionCall": {"name": "f"}}), chunk({"text": "", "thoughtSignature": "one"}, finish="STOP")]
        )
    )
    assert assembled(alone).parts[1:] == (Text("", native=signed),)
    two = (
        chunk({"text": "a", "thoughtSignature": "one"}),
        chunk({"text": "b", "thoughtSignature": "two"}, finish="STOP"),
    )
    assert assembled(read(as_events([*two]))).parts == (
        Text("a", native=signed),
        Text("b", native={"gemini": {"thoughtSignature": "two"}}),
    )


def test_the_model_may_continue_after_a_finish_reason() -> None:
    code = {"executableCode": {"language": "PYTHON", "code": "1"}}
    chunks = [chunk(code, finish="STOP"), chunk({"text": "1"}), chunk({"text": "."}, finish="STOP")]
    assert assembled(read(as_events(chunks))).parts == (Native("gemini", code), Text("1."))
    assert failure(read(as_events(chunks[:2]))) is not None
    assert failure(read(as_array(chunks)[:-5])) is not None


def test_an_empty_answer_is_finished() -> None:
    output = assembled(read(as_events([chunk(finish="STOP")])))
    assert (output.parts, output.stop_reason) == ((), "end")


def test_a_blocked_prompt_is_finished() -> None:
    body = {"promptFeedback": {"blockReason": "SAFETY"}, "responseId": "r"}
    deltas = read(as_events([body]))
    assert assembled(deltas) == read_response(body)
    assert assembled(read(rewritten(deltas))) == read_response(body)


def test_candidates_side_by_side() -> None:
    def candidate(index: int, text: str, **rest: Any) -> dict[str, Any]:
        return {"content": {"parts": [{"text": text}], "role": "model"}, "index": index, **rest}

    chunks: list[dict[str, Any]] = [
        {"candidates": [candidate(0, "a"), candidate(1, "x")]},
        {"candidates": [candidate(1, "y", finishReason="MAX_TOKENS")]},
        {"candidates": [candidate(0, "b", finishReason="STOP")]},
    ]
    for deltas in (read(as_events(chunks)), read(rewritten(read(as_events(chunks))))):
        output = assembled(deltas)
        assert (output.parts, output.stop_reason) == ((Text("ab"),), "end")
        assert [(other.parts, other.stop_reason) for other in output.others] == [((Text("xy"),), "length")]
    assert failure(read(as_events(chunks[:2]))) is not None


ERROR = {"error": {"code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE"}}


@pytest.mark.parametrize(
    "data",
    [
        as_events([ERROR]),
        as_events([chunk({"text": "a"}), ERROR]),
        as_events([chunk({"text": "a"}, finish="STOP"), ERROR]),
        as_events([[ERROR]]),
        as_array([ERROR]),
        as_array([chunk({"text": "a"}), ERROR]),
        msgspec.json.encode(ERROR),
        as_events([chunk({"text": "a"}, finish="STOP")]) + msgspec.json.format(msgspec.json.encode(ERROR), indent=2),
        as_events([chunk({"text": "a"})]).replace(b"\r\n", b"\r") + msgspec.json.encode(ERROR) + b"\r",
    ],
)
def test_an_error_in_the_stream(data: bytes) -> None:
    for pieces in ([data], [data[place : place + 1] for place in range(len(data))]):
        deltas = read(*pieces)
        check_grammar(deltas)
        error = failure(deltas)
        assert error is not None
        assert (error.kind, error.message) == ("overloaded", "The model is overloaded.")


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"", "stream_cut"),
        (b"\n", "stream_cut"),
        (b"\xef\xbb", "stream_cut"),
        (b"<html>bad gateway</html>", "stream_cut"),
        (b"data: {]}\n\n" + as_events([chunk(finish="STOP")]), "server"),
        (b"data: 5\n\n", "server"),
        (b'data: "\xff"\n\n', "server"),
        (b"data: [[1]]\n\n", "server"),
        (b"[5]", "server"),
        (b"[{},5]", "server"),
        (b"[{]}]", "server"),
        (b"data: " + b'{"a":' * 20_000 + b"1" + b"}" * 20_000 + b"\n\n", "server"),
    ],
)
def test_an_invalid_stream_is_a_failure(data: bytes, kind: str) -> None:
    for pieces in ([data], [data[place : place + 1] for place in range(len(data))]):
        deltas = read(*pieces)
        check_grammar(deltas)
        error = failure(deltas)
        assert error is not None
        assert error.kind == kind


def test_events_that_a_proxy_appends_are_ignored() -> None:
    data = as_events([chunk({"text": "a"}, finish="STOP")]) + b"data: [DONE]\n\n"
    assert assembled(read(data)).parts == (Text("a"),)


def test_snake_case_is_read_in_a_stream_too() -> None:
    chunks = [chunk({"text": "a"}, finish="STOP", usageMetadata={"promptTokenCount": 1})]
    snake: dict[str, Any] = {
        "candidates": [{"content": chunks[0]["candidates"][0]["content"], "finish_reason": "STOP"}]
    }
    snake |= {"response_id": "r", "model_version": "m", "usage_metadata": {"prompt_token_count": 1}}
    output = assembled(read(as_events([snake])))
    assert output.usage is not None
    assert (output.parts, output.stop_reason, output.id, output.model) == ((Text("a"),), "end", "r", "m")
    assert output.usage.prompt_tokens == 1
    assert camel("finish_reason") == "finishReason"


def test_arguments_that_come_in_pieces() -> None:
    def piece(path: str, goes_on: bool = False, **value: Any) -> dict[str, Any]:
        return {"jsonPath": path, **value, **({"willContinue": True} if goes_on else {})}

    def call(*pieces: dict[str, Any], **more: Any) -> dict[str, Any]:
        return {"functionCall": {**({"partialArgs": list(pieces)} if pieces else {}), **more}}

    deltas = read(
        as_events(
            [
                chunk({**call(name="f", willContinue=True), "thoughtSignature": "c2ln"}),
                chunk(call(piece("$.a.b[1]", goes_on=True, stringValue="x"), willContinue=True)),
                chunk(call(piece("$.a.b[1]", stringValue="y"), willContinue=True)),
                chunk(call(piece("$['c.d']", numberValue=3.0), piece("$.e", boolValue=False), willContinue=True)),
                chunk(
                    call(piece("$.n", nullValue="NULL_VALUE"), piece("nonsense", stringValue="z"), willContinue=True)
                ),
                chunk(call()),
                chunk(call(name="g", args={})),
                chunk(finish="STOP"),
            ]
        )
    )
    check_grammar(deltas)
    first, second = assembled(deltas).parts
    assert isinstance(first, ToolCallRequest)
    assert isinstance(second, ToolCallRequest)
    assert first.parse_arguments() == {"a": {"b": [None, "xy"]}, "c.d": 3, "e": False, "n": None}
    assert first.native == {"gemini": {"thoughtSignature": "c2ln"}}
    assert (first.tool_name, second.tool_name, second.arguments) == ("f", "g", "{}")


@given(st.text("$.[]'\"a0\\9", max_size=12), st.sampled_from(["stringValue", "numberValue", "nullValue"]), values)
def test_any_piece_of_arguments_is_read(path: str, name: str, value: Any) -> None:
    call = PartialCall(0)
    for _ in range(2):
        call.add({"partialArgs": [{"jsonPath": "$" + path, name: value}, value]})
    assert msgspec.json.decode(msgspec.json.encode(call.arguments)) == call.arguments


def test_the_recorded_pieces_are_put_together() -> None:
    seen = 0
    for _name, data in streams():
        if b"partialArgs" in data:
            calls = [part for part in assembled(read(data)).parts if isinstance(part, ToolCallRequest)]
            assert all(call.parse_arguments() for call in calls)
            seen += len(calls)
    assert seen
