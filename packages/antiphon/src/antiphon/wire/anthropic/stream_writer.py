"""Streams of the Messages API, written from the deltas of any format.

The API has one open block at a time. For other formats a block starts with its first content, so that empty text and hidden
reasoning leave no empty blocks.

Arguments are forwarded as they come; those that do not begin like an object are buffered and end up in `_raw`, and the text of a
freeform call becomes the property `input`. A signature follows its thinking. `message_start` waits for the next delta if that may
be the usage it should have; the usage in `message_delta` is the total.
"""

from __future__ import annotations

from typing import Any

from msgspec import field

from antiphon.parts import Native, NativeExtras, Refusal, Text, Thinking, ToolCallRequest
from antiphon.wire.anthropic import FORMAT
from antiphon.wire.anthropic.content import build_block, report_unsupported
from antiphon.wire.anthropic.errors import write_error
from antiphon.wire.anthropic.response import (
    EMPTY_DETAILS,
    complete_block,
    message_id,
    report_created,
    write_stop_reason,
    write_usage,
)
from antiphon.wire.delta import Finished, Started
from antiphon.wire.loss import own_extras
from antiphon.wire.native_as_text import transcribe
from antiphon.wire.output import ProviderError
from antiphon.wire.streams.writer import EventWriter, OpenPart, encode_line
from antiphon.wire.tools.definitions import EMPTY_ARGUMENTS, report_raw_arguments

_END = b"}}\n\n"
# Extras that belong inside the delta of `message_delta`; the others go beside it.
_DELTA_FIELDS = ("container", "stop_details", "stop_reason", "stop_sequence", "type", "delta", "usage")
_GROWTH = {Text: ("text_delta", "text"), Refusal: ("text_delta", "text"), Thinking: ("thinking_delta", "thinking")}
_INPUT = ("input_json_delta", "partial_json")


class _Block(OpenPart):
    """The block of a part; `before` is set once its text can be written as it comes."""

    opening: dict[str, Any] = field(default_factory=dict)
    number: int = -1  # once it is started
    after: bytes = _END
    signature: str = ""
    is_object: bool | None = None  # of arguments: not known before the first character that is not blank
    has_input: bool = False  # of a freeform call


class StreamWriter(EventWriter[_Block]):
    """Deltas of any format in, the bytes of a stream out. `model` is the name the client asked for."""

    _part_type = _Block
    _single_candidate = "Anthropic returns one candidate"
    _is_sequential = True

    def __init__(self, model: str = "") -> None:
        super().__init__(model)
        self._started: Started | None = None
        self._is_same_format = False
        self._has_refusal = False
        self._blocks = 0  # how many have started

    def _emit(self, kind: str, /, **fields: Any) -> None:
        self._out.append(b"event: %b\ndata: %b\n\n" % (kind.encode(), encode_line({"type": kind, **fields})))

    def _on_start(self, started: Started) -> None:
        self._started = started
        self._is_same_format = started.format == FORMAT
        if not self._is_same_format:
            self._start_message()

    def _on_usage(self) -> None:
        self._start_message()

    def _on_error(self, error: ProviderError) -> None:
        self._emit("error", error=write_error(error)["error"])

    def _start_message(self) -> None:
        """Emit `message_start`, once."""
        started, self._started = self._started, None
        if started is None:
            return
        report_created(started.created, self.losses)
        message = {
            "id": message_id(started.id, self._is_same_format),
            "type": "message",
            "role": "assistant",
            "model": self._model or started.model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            **({} if self._is_same_format else EMPTY_DETAILS),
            "usage": write_usage(self._usage, self._is_same_format),
            **own_extras(started.native, self.losses, "native", FORMAT),
        }
        self._emit("message_start", message=message)

    def _on_part(self, part: _Block) -> None:
        self._start_message()
        given = part.part
        self._has_refusal = self._has_refusal or type(given) is Refusal
        is_call = type(given) is ToolCallRequest
        opening = complete_block(build_block(given, {} if is_call else ""), self._is_same_format)
        extras = self.losses.take_extras(given.native, FORMAT)
        late_field = "" if is_call else "signature" if type(given) is Thinking else "citations"
        late = {late_field: extras.pop(late_field)} if late_field in extras else {}
        part.opening = {**opening, **extras}
        if is_call or self._is_same_format:
            self._start_block(part)
        self._extend(part, late)

    def _start_block(self, part: _Block) -> None:
        if part.number < 0:
            part.number = self._blocks
            self._blocks += 1
            self._emit("content_block_start", index=part.number, content_block=part.opening)
            if type(part.part) in _GROWTH:
                part.before = self._before_delta(part, *_GROWTH[type(part.part)])

    def _before_delta(self, part: _Block, kind: str, name: str) -> bytes:
        start = f'{{"type":"content_block_delta","index":{part.number},"delta":{{"type":"{kind}","{name}":'
        return b"event: content_block_delta\ndata: " + start.encode()

    def _emit_delta(self, part: _Block, kind: str, name: str, value: Any) -> None:
        self._start_block(part)
        self._out.append(self._before_delta(part, kind, name) + encode_line(value) + _END)

    def _on_text(self, part: _Block, text: str) -> None:
        given = part.part
        if part.before:
            super()._on_text(part, text)
        elif type(given) is not ToolCallRequest:
            self._emit_delta(part, *_GROWTH[type(given)], text)
        elif given.freeform:
            quoted = encode_line(text).decode()[1:-1]
            self._emit_delta(part, *_INPUT, quoted if part.has_input else '{"input":"' + quoted)
            part.has_input = True
        else:
            part.pieces.append(text)
            if part.is_object is None and (start := text.lstrip()):
                part.is_object = start.startswith("{")
                if part.is_object:
                    part.before = self._before_delta(part, *_INPUT)
                    super()._on_text(part, part.text)

    def _on_extension(self, part: _Block, native: NativeExtras) -> None:
        self._extend(part, self.losses.take_extras(native, FORMAT))

    def _extend(self, part: _Block, extras: dict[str, Any]) -> None:
        for name, value in extras.items():
            if name == "citations" and type(part.part) in (Text, Refusal) and isinstance(value, list):
                for citation in value:
                    self._emit_delta(part, "citations_delta", "citation", citation)
            elif name == "signature" and type(part.part) is Thinking:
                part.signature = value
            else:
                self.losses.add(name, "a block cannot change after its start; dropped", name)

    def _on_part_end(self, part: _Block) -> None:
        if type(part.part) is ToolCallRequest:
            self._end_input(part)
        elif part.signature:
            self._emit_delta(part, "signature_delta", "signature", part.signature)
        if part.number >= 0:
            self._emit("content_block_stop", index=part.number)

    def _end_input(self, part: _Block) -> None:
        if part.part.freeform:
            self._emit_delta(part, *_INPUT, '"}' if part.has_input else '{"input":""}')
        elif not part.is_object and part.text.strip() not in EMPTY_ARGUMENTS:
            report_raw_arguments(self.losses, self.losses.path(), "AN-12")
            self._emit_delta(part, *_INPUT, encode_line({"_raw": part.text}).decode())

    def _on_whole(self, part: _Block) -> None:
        self._start_message()
        given = part.part
        if isinstance(given, Native) and given.origin == FORMAT and type(given.data) is dict:
            self._write_native(part, given.data)
            return
        given = transcribe(part.whole(), self.losses)
        if isinstance(given, Text):
            text = _Block(Text(""), index=part.index)
            self._on_part(text)
            self._on_text(text, given.text)
            self._on_part_end(text)
        else:
            report_unsupported(given, self.losses)

    def _write_native(self, part: _Block, data: dict[str, Any]) -> None:
        """Write a block of the provider's own; the input of its calls is streamed."""
        call_input = data.get("input")
        streams_input = type(call_input) is dict and call_input and str(data.get("type")).endswith("_tool_use")
        part.opening = {**data, "input": {}} if streams_input else data
        self._start_block(part)
        if streams_input:
            self._emit_delta(part, *_INPUT, encode_line(call_input).decode())
        self._emit("content_block_stop", index=part.number)

    def _on_finish(self, finished: Finished) -> None:
        self._start_message()
        extras = own_extras(finished.native, self.losses, "native", FORMAT)
        delta = {
            "stop_reason": write_stop_reason(
                finished.stop_reason, self._has_refusal, self._is_same_format, self.losses
            ),
            "stop_sequence": finished.stop_sequence,
            **({} if self._is_same_format else EMPTY_DETAILS),
            **{name: value for name, value in extras.items() if name in _DELTA_FIELDS},
        }
        beside = {name: value for name, value in extras.items() if name not in _DELTA_FIELDS}
        usage = write_usage(self._usage, self._is_same_format, is_total=True)
        self._emit("message_delta", delta=delta, usage=usage, **beside)
        self._emit("message_stop")
