"""Streams of the Messages API, read; `stream_writer` writes them.

    stream := message_start ( ping | block )* message_delta+ message_stop        | … error
    block  := content_block_start content_block_delta* content_block_stop

A block of text, thinking or a call is a part that grows. Any other block is the provider's own: it is put together here and
comes as one `Native` part when it is whole. Citations and signatures extend their part. A `fallback` block names the model that
gives the rest of the answer, and so the answer's model.

Usage is cumulative: a later count replaces an earlier one, but null is ignored, and so is a zero in place of a number. One zero
counts: `output_tokens` in the first `message_delta`, because `message_start` has a provisional one.

The end is `message_stop`; a stream that ends without it is complete if a stop reason was told, and cut otherwise.

What real streams do besides, and is put up with: pings and unknown events anywhere; blocks that do not end, are counted from 1,
or have all they say in their start; a second `message_start` after a reconnect; `[DONE]`. Deltas of an unknown kind on a part we
know, and the running estimate in some thinking deltas, are passed over.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from antiphon.parts import Native, Text, Thinking, ToolCallRequest
from antiphon.wire.anthropic.content import read_output_block
from antiphon.wire.anthropic.errors import read_error
from antiphon.wire.anthropic.native import FORMAT, extras_of
from antiphon.wire.anthropic.response import RESPONSE_FIELDS, read_stop
from antiphon.wire.anthropic.usage import read_usage
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
from antiphon.wire.output import NOT_AN_ANSWER, ErrorKind, ProviderError
from antiphon.wire.sse import SseEvent, SseOverflow, SseReader

_decode = msgspec.json.Decoder().decode
_DELTA_FIELDS = frozenset({"type", "stop_reason", "stop_sequence"})
_MESSAGE_DELTA_FIELDS = frozenset({"type", "delta", "usage"})
_STOP_FIELDS = frozenset({"type"})


class _Block(Struct):
    """A block under way: the part it is, or the whole of it if it is the provider's own."""

    index: int
    kind: type
    data: dict[str, Any] = {}
    pieces: list[str] = []  # of the input, in a block of the provider's own
    held: str = ""  # arguments that came with the start of a call, in case no others come


class _PlainDelta(Struct, forbid_unknown_fields=True, gc=False, tag="text_delta", tag_field="type"):
    text: str


class _PlainEvent(Struct, forbid_unknown_fields=True, gc=False, tag="content_block_delta", tag_field="type"):
    """An event that is more of a text and nothing else: what most are, told while decoding."""

    index: int
    delta: _PlainDelta


_decode_text = msgspec.json.Decoder(_PlainEvent).decode


class StreamReader:
    """Bytes of a stream in, deltas out."""

    def __init__(self) -> None:
        self._sse = SseReader()
        self._open: dict[int, _Block] = {}
        self._count = 0
        self._is_started = False
        self._is_over = False
        self._has_calls = False
        self._speaks_text = False
        self._usage: dict[str, Any] = {}
        self._is_output_provisional = True
        self._fallback_model = ""
        self._stop_word: Any = None
        self._stop_sequence: str | None = None
        self._extras: dict[str, Any] = {}

    def feed(self, data: bytes) -> list[ModelOutputDelta]:
        deltas: list[ModelOutputDelta] = []
        if self._is_over:
            return deltas
        try:
            events = self._sse.feed(data)
        except SseOverflow:
            self._fail("server", "an event of the stream never ends", deltas)
            return deltas
        self._read(events, deltas, "server")
        return deltas

    def close(self) -> list[ModelOutputDelta]:
        """The stream ended."""
        deltas: list[ModelOutputDelta] = []
        if not self._is_over:
            self._read(self._sse.close(), deltas, "stream_cut")
        if not self._is_over:
            self._end(deltas)
        return deltas

    def _read(self, events: list[SseEvent], deltas: list[ModelOutputDelta], malformed: ErrorKind) -> None:
        for event in events:
            if self._is_over:
                return
            if self._speaks_text:
                try:
                    plain = _decode_text(event.data)
                except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
                    self._speaks_text = False  # until text is said again, nothing is taken for granted
                else:
                    block = self._open.get(plain.index)
                    if block is not None and block.kind is Text:
                        if plain.delta.text:
                            deltas.append(PartDelta(block.index, plain.delta.text))
                        continue
            try:
                data = _decode(event.data)
            except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
                if event.data.strip() == b"[DONE]":
                    self._end(deltas)
                else:
                    self._fail(malformed, "an event of the stream is not JSON", deltas)
                return
            if type(data) is not dict:
                self._fail("server", "an event of the stream is not an object", deltas)
                return
            kind, number = data.get("type"), data.get("index")
            if kind == "content_block_delta":
                self._on_delta(data, deltas)
            elif kind == "content_block_start":
                self._begin(number if type(number) is int else -1, data.get("content_block"), deltas)
            elif kind == "content_block_stop":
                if type(number) is int:
                    self._finish(number, deltas)
            elif kind == "message_start":
                self._on_message_start(data, deltas)
            elif kind == "message_delta":
                self._on_message_delta(data, deltas)
            elif kind == "message_stop":
                self._keep_extras(data, _STOP_FIELDS)
                self._complete(deltas)
            elif kind == "error" or (kind is None and "error" in data):
                self._is_over = True
                deltas.append(Failed(read_error(data)))

    def _on_message_start(self, event: dict[str, Any], deltas: list[ModelOutputDelta]) -> None:
        message = event.get("message")
        if type(message) is not dict:
            return
        if not self._is_started:
            self._is_started = True
            message_id, model = message.get("id"), message.get("model")
            started = Started(
                message_id if type(message_id) is str else "",
                model if type(model) is str else "",
                format=FORMAT,
                native=extras_of(message, RESPONSE_FIELDS),
            )
            deltas.append(started)
        self._report_usage(message.get("usage"), deltas)
        content = message.get("content")
        for block in content if type(content) is list else ():
            self._begin(-1, block, deltas)
            self._finish(-1, deltas)

    def _begin(self, number: int, block: Any, deltas: list[ModelOutputDelta]) -> None:
        if type(block) is not dict:
            return
        for other in [other for other, open_ in self._open.items() if other == number or open_.kind is Native]:
            self._finish(other, deltas)
        part = read_output_block(block)
        begun = self._open[number] = _Block(self._count, type(part))
        self._count += 1
        if isinstance(part, Native):
            begun.data = dict(block)
            self._fallback_model = _model_after_fallback(block) or self._fallback_model
        elif isinstance(part, ToolCallRequest):
            self._has_calls = True
            begun.held = part.arguments if part.arguments != "{}" else ""
            empty = ToolCallRequest(part.tool_name, part.tool_call_id, "", native=part.native)
            deltas.append(PartStarted(begun.index, empty))
        else:
            deltas.append(PartStarted(begun.index, type(part)("", native=part.native)))
            if part.text:
                deltas.append(PartDelta(begun.index, part.text))

    def _on_delta(self, event: dict[str, Any], deltas: list[ModelOutputDelta]) -> None:
        delta, number = event.get("delta"), event.get("index")
        if type(delta) is not dict or type(number) is not int:
            return
        kind = delta.get("type")
        if number not in self._open and kind in ("text_delta", "thinking_delta"):  # it came without a start
            said = str(kind).removesuffix("_delta")
            self._begin(number, {"type": said, said: ""}, deltas)
        block = self._open.get(number)
        if block is None:
            return
        if block.kind is Native:
            _grow(block, delta)
        elif kind == "text_delta" and block.kind is Text:
            text = delta.get("text")
            self._speaks_text = True
            if type(text) is str and text:
                deltas.append(PartDelta(block.index, text))
        elif kind == "input_json_delta" and block.kind is ToolCallRequest:
            text = delta.get("partial_json")
            if type(text) is str and text:
                block.held = ""
                deltas.append(PartDelta(block.index, text))
        elif kind == "thinking_delta" and block.kind is Thinking:
            text = delta.get("thinking")
            if type(text) is str and text:
                deltas.append(PartDelta(block.index, text))
        elif kind == "signature_delta" and block.kind is Thinking:
            if type(delta.get("signature")) is str and delta["signature"]:
                deltas.append(PartExtended(block.index, {FORMAT: {"signature": delta["signature"]}}))
        elif kind == "citations_delta" and block.kind is Text and delta.get("citation") is not None:
            deltas.append(PartExtended(block.index, {FORMAT: {"citations": [delta["citation"]]}}))

    def _finish(self, number: int, deltas: list[ModelOutputDelta]) -> None:
        block = self._open.pop(number, None)
        if block is None:
            return
        if block.kind is Native:
            deltas.append(PartStarted(block.index, Native(FORMAT, _whole(block))))
        elif block.held:
            deltas.append(PartDelta(block.index, block.held))
        deltas.append(PartEnded(block.index))

    def _on_message_delta(self, event: dict[str, Any], deltas: list[ModelOutputDelta]) -> None:
        delta = event.get("delta")
        if type(delta) is dict:
            self._stop_word = delta.get("stop_reason", self._stop_word)
            if type(delta.get("stop_sequence")) is str:
                self._stop_sequence = delta["stop_sequence"]
            self._keep_extras(delta, _DELTA_FIELDS)
        self._keep_extras(event, _MESSAGE_DELTA_FIELDS)
        usage = event.get("usage")
        if self._is_output_provisional and type(usage) is dict and usage.get("output_tokens") is not None:
            self._is_output_provisional = False
            self._usage.pop("output_tokens", None)
        self._report_usage(usage, deltas)

    def _keep_extras(self, said: dict[str, Any], known: frozenset[str]) -> None:
        extras = extras_of(said, known)
        if extras is not None:
            self._extras |= extras[FORMAT]

    def _report_usage(self, usage: Any, deltas: list[ModelOutputDelta]) -> None:
        if type(usage) is not dict:
            return
        known = self._usage
        for name, value in usage.items():
            if value is not None and (value != 0 or not known.get(name)):
                known[name] = value
        reported = read_usage(dict(known))
        if reported is not None:
            deltas.append(UsageReported(reported))

    def _complete(self, deltas: list[ModelOutputDelta]) -> None:
        for number in list(self._open):
            self._finish(number, deltas)
        self._is_over = True
        stop, more = read_stop(self._stop_word, self._has_calls)
        extras = self._extras | more
        native = {FORMAT: extras} if extras else None
        deltas.append(Finished(stop, self._stop_sequence, native=native, model=self._fallback_model))

    def _end(self, deltas: list[ModelOutputDelta]) -> None:
        """No more events will come."""
        if self._stop_word is not None:
            self._complete(deltas)
        else:
            self._fail("stream_cut", "the stream ended before the answer was complete", deltas)

    def _fail(self, kind: ErrorKind, message: str, deltas: list[ModelOutputDelta]) -> None:
        self._is_over = True
        code = NOT_AN_ANSWER if kind == "server" else None
        deltas.append(Failed(ProviderError(message, kind, code=code)))


def _model_after_fallback(block: dict[str, Any]) -> str:
    """The model that a block hands the answer over to, or "" if it is another block."""
    to = block.get("to") if block.get("type") == "fallback" else None
    model = to.get("model") if type(to) is dict else None
    return model if type(model) is str else ""


def _grow(block: _Block, delta: dict[str, Any]) -> None:
    """Add a delta to a block of the provider's own: text and lists grow, everything else is replaced."""
    if delta.get("type") == "input_json_delta":
        if type(delta.get("partial_json")) is str:
            block.pieces.append(delta["partial_json"])
        return
    if delta.get("type") == "citations_delta":
        delta = {"citations": [delta.get("citation")]}
    for name, value in delta.items():
        if name == "type" or value is None:
            continue
        known = block.data.get(name)
        is_growing = (type(known) is str and type(value) is str) or (type(known) is list and type(value) is list)
        block.data[name] = known + value if is_growing else value


def _whole(block: _Block) -> dict[str, Any]:
    text = "".join(block.pieces)
    if not text:
        return block.data
    try:
        given = _decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        given = {"_raw": text}  # cut off by the limit of tokens
    return {**block.data, "input": given}
