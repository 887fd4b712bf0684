"""Streams of the Messages API, read; `stream_writer` writes them.

    stream := message_start ( ping | block )* message_delta+ message_stop        | ... error
    block  := content_block_start content_block_delta* content_block_stop

Blocks of text, thinking and calls are parts that grow; any other block is collected and emitted as one `Native` part. A
`fallback` block names the model of the rest of the answer. Usage is cumulative: null and a zero after a number are ignored,
except the first `output_tokens` of `message_delta`. A stream without `message_stop` is complete if it had a stop reason.
Tolerated: unknown events, blocks without an end or counted from 1, a second `message_start` after a reconnect, `[DONE]`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Struct, field

from antiphon.json_text import NOT_JSON, decode_json
from antiphon.parts import Native, Text, Thinking, ToolCallRequest
from antiphon.wire.anthropic import FORMAT
from antiphon.wire.anthropic.content import read_output_block
from antiphon.wire.anthropic.errors import read_error
from antiphon.wire.anthropic.response import RESPONSE_FIELDS, read_stop_reason, read_usage
from antiphon.wire.anthropic.shapes import unread_fields
from antiphon.wire.delta import Finished, PartDelta, Started, UsageReported
from antiphon.wire.streams.reader import CUT, GrowingObject, NamedEventReader

_DELTA_FIELDS = frozenset({"type", "stop_reason", "stop_sequence"})
_MESSAGE_DELTA_FIELDS = frozenset({"type", "delta", "usage"})
_STOP_FIELDS = frozenset({"type"})


class _Delta(Struct, gc=False, tag_field="type"):
    pass


class TextDelta(_Delta, tag="text_delta"):
    text: str


class ThinkingDelta(_Delta, tag="thinking_delta"):
    text: str = field(name="thinking")


class InputDelta(_Delta, tag="input_json_delta"):
    text: str = field(name="partial_json")


class SignatureDelta(_Delta, tag="signature_delta"):
    signature: str


class CitationsDelta(_Delta, tag="citations_delta"):
    citation: Any = None


class StreamEvent(Struct, gc=False):
    """The fields of an event that are read. The deltas of unknown blocks and of the message have further fields."""

    type: str | None = None
    index: int | None = None
    delta: TextDelta | ThinkingDelta | InputDelta | SignatureDelta | CitationsDelta | None = None
    content_block: dict[str, Any] | None = None
    message: dict[str, Any] | None = None
    usage: dict[str, Any] | None = None
    error: Any = None


class _OpenBlock(Struct):
    """An open block: its part, or all its data if it is native."""

    index: int
    kind: type
    delta: Any = None  # the kind of delta that has more of its text
    data: GrowingObject | None = None
    pieces: list[str] = []  # of the input of a native block
    initial_arguments: str = ""  # arguments in the start of a call, used if no others follow


_GROWTH: dict[type, type[TextDelta | ThinkingDelta | InputDelta]] = {
    Text: TextDelta,
    Thinking: ThinkingDelta,
    ToolCallRequest: InputDelta,
}


class StreamReader(NamedEventReader[StreamEvent]):
    """Bytes of a stream in, deltas out."""

    def __init__(self) -> None:
        super().__init__(StreamEvent, _HANDLERS)
        self._open: dict[int, _OpenBlock] = {}
        self._last = -1  # the block that started last; an event without an index belongs to it
        self._native: int | None = None  # the open native block; there is at most one
        self._usage: dict[str, Any] = {}
        self._is_output_provisional = True
        self._fallback_model = ""
        self._stop_reason: Any = None
        self._stop_sequence: str | None = None
        self._extras: dict[str, Any] = {}

    def _on_message_start(self, event: StreamEvent) -> None:
        message = event.message
        if message is None:
            return
        names = {name: message[name] for name in ("id", "model") if type(message.get(name)) is str}
        self._begin(Started(**names, format=FORMAT, native=unread_fields(message, RESPONSE_FIELDS)))
        self._report_usage(message.get("usage"))
        content = message.get("content")
        for block in content if type(content) is list else ():
            if type(block) is dict:
                self._start_block(-1, block)
                self._end_block(-1)

    def _on_start(self, event: StreamEvent) -> None:
        if event.content_block is not None:
            self._last = self._last + 1 if event.index is None else event.index
            self._start_block(self._last, event.content_block)

    def _start_block(self, number: int, block: dict[str, Any]) -> None:
        ended = {other: self._open[other].index for other in (self._native, number) if other in self._open}
        for other in sorted(ended, key=ended.__getitem__):
            self._end_block(other)
        kind = block.get("type")
        if kind in ("text", "thinking") and block.get(kind) is None:
            block = {**block, kind: ""}  # hosts leave out what the official API starts empty
        part = read_output_block(block)
        if isinstance(part, Native):
            self._native = number
            self._open[number] = _OpenBlock(self.parts.reserve(), Native, data=GrowingObject(dict(block)))
            self._fallback_model = _model_after_fallback(block) or self._fallback_model
            return
        arguments = text = ""
        if isinstance(part, ToolCallRequest):
            arguments = part.arguments if part.arguments != "{}" else ""
            empty: Any = ToolCallRequest(part.tool_name, part.tool_call_id, "", native=part.native)
        else:
            empty, text = type(part)("", native=part.native), part.text
        index = self.parts.start(empty)
        self.parts.text(index, text)
        self._open[number] = _OpenBlock(index, type(part), _GROWTH[type(part)], initial_arguments=arguments)

    def _on_delta(self, event: StreamEvent) -> None:
        delta: Any = event.delta
        block = self._open.get(event.index)  # type: ignore[arg-type]  # None finds nothing
        if block is None or type(delta) is not block.delta:
            self._on_other_delta(self._last if event.index is None else event.index, delta)
        elif delta.text:
            block.initial_arguments = ""
            self.parts.deltas.append(PartDelta(block.index, delta.text))

    def _on_other_delta(self, number: int, delta: Any) -> None:
        """A delta that has not simply more text of an open block."""
        block = self._open.get(number)
        if block is None:
            if type(delta) is not TextDelta and type(delta) is not ThinkingDelta:
                return
            self._start_block(number, {"type": "text" if type(delta) is TextDelta else "thinking"})
            block = self._open[number]
        if block.data is not None:
            given = self._fields().get("delta")
            _append_native(block, block.data, given if type(given) is dict else {})
            return
        if delta is None:
            delta = self._untyped_delta(block)
        if type(delta) is block.delta:
            block.initial_arguments = block.initial_arguments if not delta.text else ""
            self.parts.text(block.index, delta.text)
        elif type(delta) is SignatureDelta and block.kind is Thinking and delta.signature:
            self.parts.extend(block.index, {FORMAT: {"signature": delta.signature}})
        elif type(delta) is CitationsDelta and block.kind is Text and delta.citation is not None:
            self.parts.extend(block.index, {FORMAT: {"citations": [delta.citation]}})

    def _untyped_delta(self, block: _OpenBlock) -> Any:
        """A delta without a type, if it has the text of its block."""
        given = self._fields().get("delta")
        try:
            return msgspec.convert(given, block.delta) if type(given) is dict and given.get("type") is None else None
        except NOT_JSON:
            return None

    def _on_stop(self, event: StreamEvent) -> None:
        self._end_block(self._last if event.index is None else event.index)

    def _end_block(self, number: int) -> None:
        block = self._open.pop(number, None)
        if block is None:
            return
        if block.data is not None:
            self.parts.whole(Native(FORMAT, _complete_native(block, block.data)), index=block.index)
        else:
            self.parts.text(block.index, block.initial_arguments)
            self.parts.end(block.index)

    def _on_message_delta(self, event: StreamEvent) -> None:
        fields = self._fields()
        delta = fields.get("delta")
        if type(delta) is dict:
            self._stop_reason = delta.get("stop_reason", self._stop_reason)
            if type(delta.get("stop_sequence")) is str:
                self._stop_sequence = delta["stop_sequence"]
            self._add_extras(delta, _DELTA_FIELDS)
        self._add_extras(fields, _MESSAGE_DELTA_FIELDS)
        usage = event.usage
        if self._is_output_provisional and usage is not None and usage.get("output_tokens") is not None:
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
            self.parts.deltas.append(UsageReported(reported))

    def _on_message_stop(self, event: StreamEvent) -> None:
        del event
        self._add_extras(self._fields(), _STOP_FIELDS)
        self._complete()

    def _on_error(self, event: StreamEvent) -> None:
        del event
        self._fail(read_error(self._fields()))

    def _complete(self) -> None:
        for number in list(self._open):
            self._end_block(number)
        stop, stop_extras = read_stop_reason(self._stop_reason, self.parts.of(0))
        extras = self._extras | stop_extras
        native = {FORMAT: extras} if extras else None
        self._end(Finished(stop, self._stop_sequence, native=native, model=self._fallback_model))

    def _on_done(self) -> None:
        self._end_of_stream()

    def _end_of_stream(self) -> None:
        if self._stop_reason is not None:
            self._complete()
        else:
            self._fail(CUT)


_HANDLERS: dict[str, Callable[[StreamReader, StreamEvent], None]] = {
    "message_start": StreamReader._on_message_start,
    "content_block_start": StreamReader._on_start,
    "content_block_delta": StreamReader._on_delta,
    "content_block_stop": StreamReader._on_stop,
    "message_delta": StreamReader._on_message_delta,
    "message_stop": StreamReader._on_message_stop,
    "error": StreamReader._on_error,
}


def _model_after_fallback(block: dict[str, Any]) -> str:
    """The model named in a `fallback` block; "" for other blocks."""
    to = block.get("to") if block.get("type") == "fallback" else None
    model = to.get("model") if type(to) is dict else None
    return model if type(model) is str else ""


def _append_native(block: _OpenBlock, data: GrowingObject, delta: dict[str, Any]) -> None:
    kind = delta.pop("type", None)
    if kind == "citations_delta":
        data.add({"citations": [delta.get("citation")]})
    elif kind != "input_json_delta":
        data.add(delta)
    elif type(delta.get("partial_json")) is str:
        block.pieces.append(delta["partial_json"])


def _complete_native(block: _OpenBlock, data: GrowingObject) -> dict[str, Any]:
    whole, text = data.whole(), "".join(block.pieces)
    if not text:
        return whole
    try:
        value = decode_json(text)
    except NOT_JSON:
        value = {"_raw": text}  # cut off by the token limit
    return {**whole, "input": value}
