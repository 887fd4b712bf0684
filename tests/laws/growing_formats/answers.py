"""Answers of any size, whole and streamed, one shape after the other: each was, or might be, handled in quadratic time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import msgspec

from antiphon.parts import Image, NativeExtras, OutputPart, Refusal, Text, Thinking, TokenUsage, ToolCallRequest
from antiphon.providers.engine.continuation import Continuation
from antiphon.wire import FORMATS, Assembler, ModelOutput, ModelOutputDelta, ModelRequest, ToolDefinition, formats
from antiphon.wire.delta import (
    Finished,
    PartDelta,
    PartEnded,
    PartExtended,
    PartStarted,
    Started,
    UsageReported,
)
from antiphon.wire.inbound import client_formats
from antiphon.wire.tools.call_restorer import CallRestorer
from laws.growing_formats.requests import FOREIGN, REASONING, Shape, Work, call

READABLE = (*FORMATS, "openai-completions")
PIECE = 1_000
CITATIONS: NativeExtras = {
    "anthropic": {"citations": [{"type": "char_location", "cited_text": "a", "document_index": 0}]},
    "openai-chat": {"annotations": [{"type": "url_citation", "url_citation": {"url": "u", "title": "t"}}]},
    "openai-responses": {"annotations": [{"type": "url_citation", "url": "u", "title": "t"}]},
    "gemini-interactions": {"annotations": [{"type": "url_citation", "url": "u", "title": "t"}]},
}

PARTS: dict[str, Callable[[int], tuple[OutputPart, ...]]] = {
    "texts": lambda size: tuple(Text(f"word {it}") for it in range(size)),
    "refusals": lambda size: tuple(Refusal("No.") for _ in range(size)),
    "calls": lambda size: tuple(call(it) for it in range(size)),
    "calls with one id": lambda size: tuple(call(it, call_id="c") for it in range(size)),
    "reasoning": lambda size: REASONING * size,
    "text and reasoning in turn": lambda size: (Text("a"), *REASONING) * size,
    "blocks": lambda size: (*FOREIGN, Text("a")) * size,
    "images": lambda size: (Image("image/png", "iVBORw0KGgo="),) * size,
    "cited texts": lambda size: tuple(Text("a", native=CITATIONS) for _ in range(size)),
}


def writing_whole(name: str, shape: str, size: int) -> Work:
    output = ModelOutput(parts=PARTS[shape](size), stop_reason="end", id="1", model="m", created=1)
    return lambda: client_formats[name].encode_response(output)


def reading_whole(name: str, shape: str, size: int) -> Work:
    data = (
        client_formats[name]
        .encode_response(ModelOutput(parts=PARTS[shape](size), stop_reason="end", id="1", model="m"))
        .data
    )
    body = msgspec.json.decode(data)
    return lambda: (client_formats[name].read_response(body), client_formats[name].scan_usage(data))


def _grown(part: Callable[[int], OutputPart], *changes: Callable[[int], ModelOutputDelta]) -> Any:
    """One part that grows by the changes of each number."""

    def deltas(size: int) -> Iterator[ModelOutputDelta]:
        yield PartStarted(0, part(0))
        yield from (change(number) for number in range(size) for change in changes)
        yield PartEnded(0)

    return deltas


def _one_by_one(part: Callable[[int], OutputPart], text: str) -> Any:
    def deltas(size: int) -> Iterator[ModelOutputDelta]:
        for number in range(size):
            yield PartStarted(number, part(number))
            if text:
                yield PartDelta(number, text)
            yield PartEnded(number)

    return deltas


def _all_open(part: Callable[[int], OutputPart], text: str) -> Any:
    """All parts start, then all grow, then all end."""

    def deltas(size: int) -> Iterator[ModelOutputDelta]:
        yield from (PartStarted(number, part(number)) for number in range(size))
        yield from (PartDelta(number, text) for number in range(size))
        yield from (PartEnded(number) for number in range(size))

    return deltas


def _never_ended(part: Callable[[int], OutputPart], text: str) -> Any:
    def deltas(size: int) -> Iterator[ModelOutputDelta]:
        for number in range(size):
            yield PartStarted(number, part(number))
            yield PartDelta(number, text)

    return deltas


def _text(_: int) -> Text:
    return Text("")


def _call(number: int) -> ToolCallRequest:
    return ToolCallRequest(f"tool_{number}", f"call_{number}", "")


def _freeform(number: int) -> ToolCallRequest:
    return ToolCallRequest(f"tool_{number}", f"call_{number}", "", freeform=True)


def _thinking(number: int) -> Thinking:
    return Thinking("", native=REASONING[number % len(REASONING)].native)


DELTAS: dict[str, Callable[[int], Iterator[ModelOutputDelta]]] = {
    "one long text": _grown(_text, lambda _: PartDelta(0, "word ")),
    "one long refusal": _grown(lambda _: Refusal(""), lambda _: PartDelta(0, "word ")),
    "one long thought": _grown(_thinking, lambda _: PartDelta(0, "word ")),
    "one long call": _grown(_call, lambda _: PartDelta(0, '{"a":"')),
    "one long freeform call": _grown(_freeform, lambda _: PartDelta(0, "word ")),
    "a call of blanks": _grown(_call, lambda _: PartDelta(0, "    ")),
    "a call that is not an object": _grown(_call, lambda _: PartDelta(0, "word ")),
    "a text with many citations": _grown(
        _text, lambda _: PartDelta(0, "word "), lambda _: PartExtended(0, dict(CITATIONS))
    ),
    "a thought with many signatures": _grown(
        _thinking,
        lambda it: PartExtended(0, {"anthropic": {"signature": f"{it}"}, "gemini": {"thoughtSignature": "x"}}),
    ),
    "a call with many extras": _grown(
        _call, lambda it: PartExtended(0, {name: {f"field_{it}": it} for name in FORMATS})
    ),
    "usage again and again": _grown(_text, lambda it: UsageReported(TokenUsage(it, it))),
    "texts": _one_by_one(_text, "word"),
    "empty texts": _one_by_one(_text, ""),
    "refusals": _one_by_one(lambda _: Refusal(""), "No."),
    "thoughts": _one_by_one(_thinking, "Hm."),
    "calls": _one_by_one(_call, "{}"),
    "calls without arguments": _one_by_one(_call, ""),
    "freeform calls": _one_by_one(_freeform, "text"),
    "images": _one_by_one(lambda _: Image("image/png", "iVBORw0KGgo="), ""),
    "blocks": _one_by_one(lambda it: FOREIGN[it % len(FOREIGN)], ""),
    "texts, all open": _all_open(_text, "word"),
    "thoughts, all open": _all_open(_thinking, "Hm."),
    "calls, all open": _all_open(_call, "{}"),
    "texts that never end": _never_ended(_text, "word"),
    "calls that never end": _never_ended(_call, "{}"),
    "texts of two candidates": lambda size: (
        delta
        for number in range(size)
        for delta in (PartStarted(number, Text(""), number % 2), PartDelta(number, "word"), PartEnded(number))
    ),
}


def deltas_of(shape: str, size: int) -> list[ModelOutputDelta]:
    """A whole answer of one shape."""
    body = list(DELTAS[shape](size))
    candidates = 2 if "candidates" in shape else 1
    return [Started("1", "m", 1), *body, *[Finished(candidate=number) for number in range(candidates)]]


def streamed(name: str, deltas: list[ModelOutputDelta]) -> bytes:
    writer = client_formats[name].stream_writer("m")
    return b"".join([*map(writer.write, deltas), writer.close()])


def writing_stream(name: str, shape: str, size: int) -> Work:
    deltas = deltas_of(shape, size)
    return lambda: streamed(name, deltas)


def read_stream(name: str, data: bytes, piece: int = PIECE) -> ModelOutput:
    """The answer in a stream that comes in pieces."""
    reader, assembler = client_formats[name].stream_reader(), Assembler()
    for start in range(0, len(data), piece):
        for delta in reader.feed(data[start : start + piece]):
            assembler.add(delta)
    for delta in reader.close():
        assembler.add(delta)
    return assembler.output


def reading_stream(name: str, shape: str, size: int) -> Work:
    data = streamed(name, deltas_of(shape, size))
    return lambda: read_stream(name, data)


def normalizing(shape: str, size: int) -> Work:
    return normalizing_bytes(streamed("openai-chat", deltas_of(shape, size)))


def normalizing_made(make: Callable[[int], bytes], size: int) -> Work:
    return normalizing_bytes(make(size))


def normalizing_bytes(data: bytes) -> Work:
    events = [event + b"\n\n" for event in data.split(b"\n\n")]

    def work() -> None:
        for group in (1, len(events)):
            normalizer = formats["openai-chat"].stream_normalizer()
            assert normalizer is not None
            for start in range(0, len(events), group):
                normalizer.feed(b"".join(events[start : start + group]))

    return work


def restoring(shape: str, size: int) -> Work:
    deltas = deltas_of(shape, size)
    tools = (ToolDefinition("tool_0", freeform=True), ToolDefinition("tool 1!"))

    def work() -> None:
        restorer = CallRestorer(ModelRequest(tools=tools))
        for delta in deltas:
            restorer.delta(delta)

    return work


def _events(*events: Any) -> bytes:
    return b"".join(b"data: " + msgspec.json.encode(event) + b"\n\n" for event in events)


def _chat(*deltas: dict[str, Any], **choice: Any) -> bytes:
    """A stream of Chat Completions; `choice` is what every chunk has beside its delta."""
    head = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    chunks = [{**head, "choices": [{"index": 0, "delta": delta, **choice}]} for delta in deltas]
    end = {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    return _events(*chunks, end) + b"data: [DONE]\n\n"


def _fragments(size: int, fragment: Callable[[int], dict[str, Any]]) -> bytes:
    return _chat(*[{"tool_calls": [fragment(number)]} for number in range(size)])


TOKEN = {"token": "word", "logprob": -0.1, "top_logprobs": []}


def _anthropic(*events: dict[str, Any]) -> bytes:
    message = {"id": "1", "type": "message", "role": "assistant", "content": [], "model": "m"}
    end = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 1}}
    return _events({"type": "message_start", "message": message}, *events, end, {"type": "message_stop"})


def _block(index: int, block: dict[str, Any]) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": block}


def _block_delta(index: int, **delta: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": delta}


def _responses(*events: dict[str, Any]) -> bytes:
    end = {"type": "response.completed", "response": {"id": "1", "status": "completed"}}
    return _events({"type": "response.created", "response": {"id": "1"}}, *events, end)


def _item(kind: str, item: dict[str, Any], **place: int) -> dict[str, Any]:
    return {"type": f"response.output_item.{kind}", "item": item, **place}


def _gemini(*candidates: dict[str, Any]) -> bytes:
    return _events(*[{"candidates": [it]} for it in (*candidates, {"finishReason": "STOP"})])


def _argument(number: int, **piece: Any) -> dict[str, Any]:
    name = {} if number else {"name": "f"}
    return {"content": {"parts": [{"functionCall": {**name, "partialArgs": [piece], "willContinue": True}}]}}


def _interaction(*events: dict[str, Any]) -> bytes:
    end = {"event_type": "interaction.completed", "interaction": {"status": "completed"}}
    return _events({"event_type": "interaction.created", "interaction": {"id": "1"}}, *events, end)


CALLED = {"name": "f", "arguments": "{}"}
STREAMS: dict[str, dict[str, Callable[[int], bytes]]] = {
    "openai-chat": {
        "log probabilities": lambda size: _chat(*[{"content": "word"}] * size, logprobs={"content": [TOKEN]}),
        "extras of a choice": lambda size: _events(
            *[{"choices": [{"index": 0, "delta": {"content": "a"}, f"x{it}": it}]} for it in range(size)]
        ),
        "calls without ids": lambda size: _fragments(size, lambda it: {"index": it, "function": CALLED}),
        "calls without ids and indices": lambda size: _fragments(size, lambda _: {"function": CALLED}),
        "calls without indices": lambda size: _fragments(size, lambda it: {"id": f"c{it}", "function": CALLED}),
        "calls without names": lambda size: _fragments(
            size, lambda it: {"index": it, "id": f"c{it}", "function": {"arguments": "{}"}}
        ),
        "calls without names, ids and indices": lambda size: _chat(
            {"tool_calls": [{"function": {"arguments": "{}"}}] * size}
        ),
        "calls with one index": lambda size: _fragments(
            size, lambda it: {"index": 0, "id": f"c{it}", "function": CALLED}
        ),
        "a name in every fragment": lambda size: _fragments(
            size, lambda it: {"index": 0, "function": {"name": "f", "arguments": "word " if it else '{"a": "'}}
        ),
        "a name and id in every fragment": lambda size: _fragments(
            size,
            lambda it: {"index": 0, "id": "c", "function": {"name": "f", "arguments": "word " if it else '{"a": "'}},
        ),
        "another id in every fragment": lambda size: _fragments(
            size, lambda it: {"index": 0, "id": f"c{it}", "function": {"arguments": "word "}}
        ),
        "arguments as objects": lambda size: _fragments(
            size, lambda it: {"index": 0, "id": "c", "function": {"name": "f", "arguments": {f"key_{it}": it}}}
        ),
        "extras of a call that has not started": lambda size: _fragments(size, lambda it: {"index": 0, f"x{it}": it}),
        "annotations before the text": lambda size: _chat(*[{"annotations": [{"type": "x"}]}] * size),
        "annotations of a text": lambda size: _chat(
            *[{"content": "word", "annotations": [{"type": "url_citation"}]}] * size
        ),
        "audio": lambda size: _chat(*[{"audio": {"id": "a", "data": "AAAA", "transcript": "word "}}] * size),
        "reasoning details": lambda size: _chat(
            *[{"reasoning_details": [{"type": "reasoning.text", "index": 0, "text": "word "}]}] * size
        ),
        "many reasoning details": lambda size: _chat(
            *[{"reasoning_details": [{"type": "reasoning.encrypted", "index": it, "data": "x"}]} for it in range(size)]
        ),
        "cumulative reasoning that changes": lambda size: _events(
            *[
                {"choices": [{"index": 0, "delta": {"reasoning_content": f"word {it}"}}], "input_sensitive": False}
                for it in range(size)
            ]
        ),
        "other fields": lambda size: _chat(*[{f"x{it}": it} for it in range(size)]),
        "comments": lambda size: b": wait\n\n" * size,
        "blank lines": lambda size: b"\n" * size * 20,
        "one long line": lambda size: b"data: " + b"x" * size * 100,
        "text and reasoning in turn": lambda size: _chat(*[{"content": "a"}, {"reasoning_content": "b"}] * size),
        "parts of content": lambda size: _chat(*[{"content": [{"type": "text", "text": "a"}, {"type": "x"}]}] * size),
        "function_call": lambda size: _chat(*[{"function_call": {"name": "f", "arguments": "word "}}] * size),
        "extras of the body": lambda size: _events(
            *[{"choices": [{"index": 0, "delta": {"content": "a"}}], f"x{it}": it} for it in range(size)]
        ),
    },
    "openai-completions": {
        "text": lambda size: _events(*[{"choices": [{"index": 0, "text": "word "}]}] * size) + b"data: [DONE]\n\n",
    },
    "anthropic": {
        "blocks without an end": lambda size: _anthropic(
            *[_block(it, {"type": "text", "text": "a"}) for it in range(size)]
        ),
        "calls without an end": lambda size: _anthropic(
            *[_block(it, {"type": "tool_use", "id": f"c{it}", "name": "f", "input": {}}) for it in range(size)]
        ),
        "unknown blocks without an end": lambda size: _anthropic(*[_block(it, {"type": "x"}) for it in range(size)]),
        "an unknown block that grows": lambda size: _anthropic(
            _block(0, {"type": "x", "data": "", "list": []}),
            *[_block_delta(0, type="x_delta", data="word ", list=[1])] * size,
        ),
        "an unknown block with many citations": lambda size: _anthropic(
            _block(0, {"type": "x", "citations": []}),
            *[_block_delta(0, type="citations_delta", citation={"type": "x"})] * size,
        ),
        "an unknown block with input": lambda size: _anthropic(
            _block(0, {"type": "server_tool_use", "id": "s", "name": "f", "input": {}}),
            *[_block_delta(0, type="input_json_delta", partial_json=" ")] * size,
        ),
        "a block whose start has no text": lambda size: _anthropic(
            _block(0, {"type": "text"}), *[_block_delta(0, type="text_delta", text="word ")] * size
        ),
        "usage with many fields": lambda size: _anthropic(
            *[{"type": "message_delta", "delta": {}, "usage": {"output_tokens": it}} for it in range(size)]
        ),
        "extras at the end": lambda size: _anthropic(
            *[{"type": "message_delta", "delta": {f"x{it}": it}} for it in range(size)]
        ),
        "message_start again": lambda size: _anthropic(
            *[{"type": "message_start", "message": {"content": [{"type": "text", "text": "a"}]}}] * size
        ),
    },
    "openai-responses": {
        "items without an index": lambda size: _responses(
            *[
                event
                for it in range(size)
                for event in (
                    _item("added", {"type": "function_call", "call_id": f"c{it}", "name": "f"}),
                    {"type": "response.function_call_arguments.delta", "delta": "{}"},
                    _item("done", {"type": "function_call", "call_id": f"c{it}", "name": "f", "arguments": "{}"}),
                )
            ]
        ),
        "a text that ends again and again": lambda size: _responses(
            *[
                event
                for _ in range(size)
                for event in (
                    {"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": "word "},
                    {"type": "response.output_text.done", "output_index": 0, "content_index": 0, "text": ""},
                )
            ]
        ),
        "a text that grows by its end": lambda size: _responses(
            *[
                {"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": "word "}
                for _ in range(size)
            ],
            *[{"type": "response.output_text.done", "output_index": 0, "content_index": 0, "text": "x"}] * size,
        ),
        "many contents": lambda size: _responses(
            *[
                {"type": "response.output_text.delta", "output_index": 0, "content_index": it, "delta": "word "}
                for it in range(size)
            ]
        ),
        "sections of reasoning": lambda size: _responses(
            *[
                {
                    "type": "response.reasoning_summary_text.delta",
                    "output_index": 0,
                    "summary_index": it,
                    "delta": "word ",
                }
                for it in range(size)
            ]
        ),
        "unknown items": lambda size: _responses(
            *[_item("added", {"type": "x", "id": f"x{it}"}, output_index=it) for it in range(size)]
        ),
    },
    "gemini": {
        "a string in pieces": lambda size: _gemini(
            *[_argument(it, jsonPath="$.a", stringValue="word ", willContinue=True) for it in range(size)]
        ),
        "a list in pieces": lambda size: _gemini(
            *[_argument(it, jsonPath=f"$.a[{it}]", numberValue=1) for it in range(size)]
        ),
        "names in pieces": lambda size: _gemini(
            *[_argument(it, jsonPath=f"$.a{it}", stringValue="x") for it in range(size)]
        ),
        "strings in turn": lambda size: _gemini(
            *[_argument(it, jsonPath=f"$.a{it % 2}", stringValue="word ", willContinue=True) for it in range(size)]
        ),
        "citations": lambda size: _gemini(
            *[
                {
                    "content": {"parts": [{"text": "word"}]},
                    "citationMetadata": {"citationSources": [{"startIndex": it, "uri": "u"}]},
                }
                for it in range(size)
            ]
        ),
        "the same citation": lambda size: _gemini(
            *[{"citationMetadata": {"citationSources": [{"startIndex": 1, "uri": "u"}]}}] * size
        ),
        "fields of grounding": lambda size: _gemini(*[{"groundingMetadata": {f"x{it}": it}} for it in range(size)]),
        "unknown fields": lambda size: _gemini(*[{f"x{it}": it} for it in range(size)]),
        "whole calls": lambda size: _gemini(
            {"content": {"parts": [{"functionCall": {"name": "f", "args": {}}}] * size}}
        ),
        "signatures": lambda size: _gemini(
            *[{"content": {"parts": [{"text": "a", "thoughtSignature": f"s{it}"}]}} for it in range(size)]
        ),
        "an array": lambda size: (
            b"["
            + b",\r\n".join(
                [
                    msgspec.json.format(
                        msgspec.json.encode({"candidates": [{"content": {"parts": [{"text": "word"}]}}]}), indent=2
                    )
                ]
                * size
            )
            + b"]"
        ),
        "an array without lines": lambda size: (
            b"[" + b",".join([b'{"candidates":[{"content":{"parts":[{"text":"a"}]}}]}'] * size) + b"]"
        ),
        "an array with a deep object": lambda size: b"[" + b'{"a":' * size + b"1" + b"}" * size + b"]",
        "an array with one long object": lambda size: b'[{"a":[' + b'"word","}",' * size + b"1]}]",
        "an array with one object of many lines": lambda size: (
            b'[{\n"a":[' + b'"word",\n{\n"x":1\n},' * size + b"1]\n}\n]"
        ),
        "leading blanks": lambda size: b" " * size * 100,
    },
    "gemini-interactions": {
        "an unknown step that grows": lambda size: _interaction(
            {"event_type": "step.start", "index": 0, "step": {"type": "x"}},
            *[{"event_type": "step.delta", "index": 0, "delta": {"type": "x", f"x{it}": it}} for it in range(size)],
        ),
        "steps without an end": lambda size: _interaction(
            *[{"event_type": "step.start", "index": it, "step": {"type": "model_output"}} for it in range(size)]
        ),
        "deltas without an index": lambda size: _interaction(
            *[
                event
                for _ in range(size)
                for event in (
                    {"event_type": "step.delta", "delta": {"type": "text", "text": "word "}},
                    {"event_type": "step.stop"},
                )
            ]
        ),
        "summaries": lambda size: _interaction(
            {"event_type": "step.start", "index": 0, "step": {"type": "thought"}},
            *[
                {
                    "event_type": "step.delta",
                    "index": 0,
                    "delta": {"type": "thought_summary", "content": {"type": "text", "text": "word"}},
                }
            ]
            * size,
        ),
        "annotations": lambda size: _interaction(
            {"event_type": "step.start", "index": 0, "step": {"type": "model_output"}},
            *[
                {"event_type": "step.delta", "index": 0, "delta": {"type": "text", "text": "word", "annotations": [1]}},
                {
                    "event_type": "step.delta",
                    "index": 0,
                    "delta": {"type": "text_annotation_delta", "annotations": [{"type": "x"}]},
                },
            ]
            * size,
        ),
    },
}


def continuing(shape: str, size: int) -> Work:
    """An answer that breaks at its end, and comes once more from another target."""
    deltas = deltas_of(shape, size)

    def work() -> None:
        continuation = Continuation()
        for delta in deltas[:-1]:
            continuation.feed([delta])
        continuation.begin(is_prefilled=False)
        for delta in deltas:
            continuation.feed([delta])

    return work


def reading_bytes(name: str, shape: str, size: int) -> Work:
    data = STREAMS[name][shape](size)
    return lambda: (read_stream(name, data), read_stream(name, data, 20))


def shapes() -> Iterator[tuple[str, Shape]]:
    """Every shape, by what is done with it."""
    for shape in PARTS:
        for name in client_formats:
            yield f"write a response of {name}: {shape}", partial(writing_whole, name, shape)
        for name in READABLE:
            yield f"read a response of {name}: {shape}", partial(reading_whole, name, shape)
    for shape in DELTAS:
        for name in client_formats:
            yield f"write a stream of {name}: {shape}", partial(writing_stream, name, shape)
        for name in READABLE:
            yield f"read a stream of {name}: {shape}", partial(reading_stream, name, shape)
        yield f"normalize a stream: {shape}", partial(normalizing, shape)
        yield f"restore the calls of a stream: {shape}", partial(restoring, shape)
        yield f"continue a stream: {shape}", partial(continuing, shape)
    for name in STREAMS:
        for shape in STREAMS[name]:
            yield f"read a stream of {name}: {shape}", partial(reading_bytes, name, shape)
    for shape, make in STREAMS["openai-chat"].items():
        yield f"normalize a stream: {shape}", partial(normalizing_made, make)
