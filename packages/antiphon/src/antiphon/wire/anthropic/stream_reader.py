"""Streams of the Messages API, read; `stream_writer` writes them.

    stream := message_start ( ping | block )* message_delta+ message_stop        | ... error
    block  := content_block_start content_block_delta* content_block_stop

Blocks of text, thinking and calls are parts that grow; any other block is collected and emitted as one `Native` part. A
`fallback` block names the model of the rest of the answer. Usage is cumulative: null and a zero after a number are ignored,
except the first `output_tokens` of `message_delta`. A stream without `message_stop` is complete if it had a stop reason.
Tolerated: unknown events, blocks without an end or counted from 1, a second `message_start` after a reconnect, `[DONE]`.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from antiphon.parts import Native, Text, Thinking, ToolCallRequest
from antiphon.wire.anthropic import FORMAT
from antiphon.wire.anthropic.content import read_output_block
from antiphon.wire.anthropic.errors import read_error
from antiphon.wire.anthropic.response import RESPONSE_FIELDS, read_stop_reason, read_usage
from antiphon.wire.anthropic.shapes import unread_fields
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
from antiphon.wire.streams.reader import CUT, DeltaReader
from antiphon.wire.streams.sse import SseEvent, SseReader

_decode = msgspec.json.Decoder().decode
_DELTA_FIELDS = frozenset({"type", "stop_reason", "stop_sequence"})
_MESSAGE_DELTA_FIELDS = frozenset({"type", "delta", "usage"})
_STOP_FIELDS = frozenset({"type"})


class _OpenBlock(Struct):
    """An open block: its part, or all its data if it is native."""

    index: int
    kind: type
    data: dict[str, Any] = {}
    pieces: list[str] = []  # of the input of a native block
    texts: dict[str, list[str]] = {}  # the pieces of its other strings
    initial_arguments: str = ""  # arguments in the start of a call, used if no others follow


class _TextDelta(Struct, forbid_unknown_fields=True, gc=False, tag="text_delta", tag_field="type"):
    text: str


class _TextEvent(Struct, forbid_unknown_fields=True, gc=False, tag="content_block_delta", tag_field="type"):
    """An event that is only more text, as most are."""

    index: int
    delta: _TextDelta


_decode_text = msgspec.json.Decoder(_TextEvent).decode


class StreamReader(DeltaReader[SseEvent]):
    """Bytes of a stream in, deltas out."""

    def __init__(self) -> None:
        super().__init__(SseReader())
        self._open: dict[int, _OpenBlock] = {}
        self._native: int | None = None  # the open native block; there is at most one
        self._count = 0
        self._is_started = False
        self._has_calls = False
        self._text_open = False
        self._usage: dict[str, Any] = {}
        self._is_output_provisional = True
        self._fallback_model = ""
        self._stop_reason: Any = None
        self._stop_sequence: str | None = None
        self._extras: dict[str, Any] = {}

    def _read_events(self, events: list[SseEvent]) -> None:
        deltas = self._out
        for event in events:
            if self._is_over:
                return
            if self._text_open:
                try:
                    text_event = _decode_text(event.data)
                except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
                    self._text_open = False  # decode generically until the next text
                else:
                    block = self._open.get(text_event.index)
                    if block is not None and block.kind is Text:
                        if text_event.delta.text:
                            deltas.append(PartDelta(block.index, text_event.delta.text))
                        continue
            try:
                data = _decode(event.data)
            except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
                if event.data.strip() == b"[DONE]":
                    self._end_of_stream()
                else:
                    self._fail(self._malformed("event is not JSON"))
                return
            if type(data) is not dict:
                self._fail(self._malformed("event is not an object"))
                return
            kind, number = data.get("type"), data.get("index")
            if kind == "content_block_delta":
                self._on_delta(data)
            elif kind == "content_block_start":
                self._start_block(number if type(number) is int else -1, data.get("content_block"))
            elif kind == "content_block_stop":
                if type(number) is int:
                    self._end_block(number)
            elif kind == "message_start":
                self._on_message_start(data)
            elif kind == "message_delta":
                self._on_message_delta(data)
            elif kind == "message_stop":
                self._add_extras(data, _STOP_FIELDS)
                self._complete()
            elif kind == "error" or (kind is None and "error" in data):
                self._is_over = True
                deltas.append(Failed(read_error(data)))

    def _on_message_start(self, event: dict[str, Any]) -> None:
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
                native=unread_fields(message, RESPONSE_FIELDS),
            )
            self._out.append(started)
        self._report_usage(message.get("usage"))
        content = message.get("content")
        for block in content if type(content) is list else ():
            self._start_block(-1, block)
            self._end_block(-1)

    def _start_block(self, number: int, block: Any) -> None:
        if type(block) is not dict:
            return
        ended = {other: self._open[other].index for other in (self._native, number) if other in self._open}
        for other in sorted(ended, key=ended.__getitem__):
            self._end_block(other)
        kind = block.get("type")
        if kind in ("text", "thinking") and block.get(kind) is None:
            block = {**block, kind: ""}  # hosts leave out what the official API starts empty
        part = read_output_block(block)
        block_state = self._open[number] = _OpenBlock(self._count, type(part))
        self._count += 1
        if isinstance(part, Native):
            self._native = number
            block_state.data = dict(block)
            self._fallback_model = _model_after_fallback(block) or self._fallback_model
        elif isinstance(part, ToolCallRequest):
            self._has_calls = True
            block_state.initial_arguments = part.arguments if part.arguments != "{}" else ""
            empty = ToolCallRequest(part.tool_name, part.tool_call_id, "", native=part.native)
            self._out.append(PartStarted(block_state.index, empty))
        else:
            self._out.append(PartStarted(block_state.index, type(part)("", native=part.native)))
            if part.text:
                self._out.append(PartDelta(block_state.index, part.text))

    def _on_delta(self, event: dict[str, Any]) -> None:
        delta, number = event.get("delta"), event.get("index")
        if type(delta) is not dict or type(number) is not int:
            return
        kind = delta.get("type")
        if number not in self._open and kind in ("text_delta", "thinking_delta"):  # a block without a start
            kind_name = str(kind).removesuffix("_delta")
            self._start_block(number, {"type": kind_name, kind_name: ""})
        block = self._open.get(number)
        if block is None:
            return
        if block.kind is Native:
            _append_native(block, delta)
        elif kind == "text_delta" and block.kind is Text:
            text = delta.get("text")
            self._text_open = True
            if type(text) is str and text:
                self._out.append(PartDelta(block.index, text))
        elif kind == "input_json_delta" and block.kind is ToolCallRequest:
            text = delta.get("partial_json")
            if type(text) is str and text:
                block.initial_arguments = ""
                self._out.append(PartDelta(block.index, text))
        elif kind == "thinking_delta" and block.kind is Thinking:
            text = delta.get("thinking")
            if type(text) is str and text:
                self._out.append(PartDelta(block.index, text))
        elif kind == "signature_delta" and block.kind is Thinking:
            if type(delta.get("signature")) is str and delta["signature"]:
                self._out.append(PartExtended(block.index, {FORMAT: {"signature": delta["signature"]}}))
        elif kind == "citations_delta" and block.kind is Text and delta.get("citation") is not None:
            self._out.append(PartExtended(block.index, {FORMAT: {"citations": [delta["citation"]]}}))

    def _end_block(self, number: int) -> None:
        block = self._open.pop(number, None)
        if block is None:
            return
        if block.kind is Native:
            self._out.append(PartStarted(block.index, Native(FORMAT, _complete_native(block))))
        elif block.initial_arguments:
            self._out.append(PartDelta(block.index, block.initial_arguments))
        self._out.append(PartEnded(block.index))

    def _on_message_delta(self, event: dict[str, Any]) -> None:
        delta = event.get("delta")
        if type(delta) is dict:
            self._stop_reason = delta.get("stop_reason", self._stop_reason)
            if type(delta.get("stop_sequence")) is str:
                self._stop_sequence = delta["stop_sequence"]
            self._add_extras(delta, _DELTA_FIELDS)
        self._add_extras(event, _MESSAGE_DELTA_FIELDS)
        usage = event.get("usage")
        if self._is_output_provisional and type(usage) is dict and usage.get("output_tokens") is not None:
            self._is_output_provisional = False
            self._usage.pop("output_tokens", None)
        self._report_usage(usage)

    def _add_extras(self, fields: dict[str, Any], known: frozenset[str]) -> None:
        extras = unread_fields(fields, known)
        if extras is not None:
            self._extras |= extras[FORMAT]

    def _report_usage(self, usage: Any) -> None:
        if type(usage) is not dict:
            return
        known = self._usage
        for name, value in usage.items():
            if value is not None and (value != 0 or not known.get(name)):
                known[name] = value
        reported = read_usage(dict(known))
        if reported is not None:
            self._out.append(UsageReported(reported))

    def _complete(self) -> None:
        for number in list(self._open):
            self._end_block(number)
        self._is_over = True
        stop, stop_extras = read_stop_reason(self._stop_reason, self._has_calls)
        extras = self._extras | stop_extras
        native = {FORMAT: extras} if extras else None
        self._out.append(Finished(stop, self._stop_sequence, native=native, model=self._fallback_model))

    def _end_of_stream(self) -> None:
        """No more events will come."""
        if self._stop_reason is not None:
            self._complete()
        else:
            self._fail(CUT)


def _model_after_fallback(block: dict[str, Any]) -> str:
    """The model named in a `fallback` block; "" for other blocks."""
    to = block.get("to") if block.get("type") == "fallback" else None
    model = to.get("model") if type(to) is dict else None
    return model if type(model) is str else ""


def _append_native(block: _OpenBlock, delta: dict[str, Any]) -> None:
    """Add a delta to a native block: strings and lists are appended, everything else is replaced."""
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
        if type(known) is str and type(value) is str:
            block.texts.setdefault(name, [known]).append(value)
        elif type(known) is list and type(value) is list:
            known += value
        else:
            block.texts.pop(name, None)
            block.data[name] = value


def _complete_native(block: _OpenBlock) -> dict[str, Any]:
    block.data.update((name, "".join(pieces)) for name, pieces in block.texts.items())
    text = "".join(block.pieces)
    if not text:
        return block.data
    try:
        value = _decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        value = {"_raw": text}  # cut off by the token limit
    return {**block.data, "input": value}
