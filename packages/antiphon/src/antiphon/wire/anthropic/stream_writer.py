"""Streams of the Messages API, written from the deltas of any format.

The API has one open block at a time: parts that start while one is open wait with their deltas and follow in order. For other
formats a block starts with its first content, so that empty text and hidden reasoning leave no empty blocks.

Arguments are forwarded as they come; those that do not begin like an object are buffered and end up in `_raw`, and the text of a
freeform call becomes the property `input`. A signature follows its thinking. `message_start` waits for the next delta if that may
be the usage it should have; the usage in `message_delta` is the total.
"""

from __future__ import annotations

from typing import Any

from antiphon.parts import Native, OutputPart, Refusal, Text, Thinking, ToolCallRequest
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
from antiphon.wire.delta import Finished, ModelOutputDelta, PartDelta, PartEnded, PartExtended, PartStarted, Started
from antiphon.wire.loss import Loss, own_extras
from antiphon.wire.native_as_text import transcribe
from antiphon.wire.output import ProviderError
from antiphon.wire.streams.writer import EventWriter, encode_line
from antiphon.wire.tools.call_arguments import EMPTY_ARGUMENTS, report_raw_arguments

_END = b"}}\n\n"
# Extras that belong inside the delta of `message_delta`; the others go beside it.
_DELTA_FIELDS = ("container", "stop_details", "stop_reason", "stop_sequence", "type", "delta", "usage")


def _event(kind: str, **fields: Any) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), encode_line({"type": kind, **fields}))


class _Block:
    """The open block. `start` it with its first content, `append` to it, then `end` it."""

    _delta = ""
    _field = ""
    _prefix = b""
    is_started = False

    def __init__(self, opening: dict[str, Any], number: int, path: str, losses: list[Loss]) -> None:
        self._opening = opening
        self._number = number
        self.path = path
        self.losses = losses
        self.out: list[bytes] = []

    def take(self) -> bytes:
        """What was written since the last time."""
        data = b"".join(self.out)
        self.out.clear()
        return data

    def start(self) -> None:
        if not self.is_started:
            self.is_started = True
            self.out.append(_event("content_block_start", index=self._number, content_block=self._opening))
            self._prefix = self._delta_prefix(self._delta, self._field)

    def _delta_prefix(self, kind: str, field: str) -> bytes:
        start = f'{{"type":"content_block_delta","index":{self._number},"delta":{{"type":"{kind}","{field}":'
        return b"event: content_block_delta\ndata: " + start.encode()

    def append(self, text: str) -> None:
        if text:
            if not self.is_started:
                self.start()
            self.out.append(self._prefix + encode_line(text) + _END)

    def _append_delta(self, kind: str, field: str, value: Any) -> None:
        self.start()
        self.out.append(self._delta_prefix(kind, field) + encode_line(value) + _END)

    def extend(self, extras: dict[str, Any]) -> None:
        """Add extras while the block is open."""
        reason = "a block cannot change after its start; dropped"
        self.losses.extend(Loss(f"{self.path}.{name}", name, reason) for name in extras)

    def end(self) -> None:
        if self.is_started:
            self.out.append(_event("content_block_stop", index=self._number))


class _TextBlock(_Block):
    _delta, _field = "text_delta", "text"

    def extend(self, extras: dict[str, Any]) -> None:
        other = dict(extras)
        if isinstance(other.get("citations"), list):
            for citation in other.pop("citations"):
                self._append_delta("citations_delta", "citation", citation)
        super().extend(other)


class _ThinkingBlock(_Block):
    _delta, _field = "thinking_delta", "thinking"
    _signature = ""

    def extend(self, extras: dict[str, Any]) -> None:
        other = dict(extras)
        self._signature = other.pop("signature", self._signature)
        super().extend(other)

    def end(self) -> None:
        if self._signature:
            self._append_delta("signature_delta", "signature", self._signature)
        super().end()


class _CallBlock(_Block):
    _delta, _field = "input_json_delta", "partial_json"
    _is_object: bool | None = None  # not known before the first character that is not blank

    def __init__(self, opening: dict[str, Any], number: int, path: str, losses: list[Loss]) -> None:
        super().__init__(opening, number, path, losses)
        self._buffered: list[str] = []

    def append(self, text: str) -> None:
        if self._is_object:
            super().append(text)
            return
        self._buffered.append(text)
        if self._is_object is None and (start := text.lstrip()):
            self._is_object = start.startswith("{")
            if self._is_object:
                super().append("".join(self._buffered))

    def end(self) -> None:
        if not self._is_object and (buffered := "".join(self._buffered)).strip() not in EMPTY_ARGUMENTS:
            report_raw_arguments(self.losses, self.path, "AN-12")
            super().append(encode_line({"_raw": buffered}).decode())
        super().end()


class _FreeformBlock(_Block):
    _delta, _field = "input_json_delta", "partial_json"
    _has_text = False

    def append(self, text: str) -> None:
        quoted = encode_line(text).decode()[1:-1]
        super().append(quoted if self._has_text else '{"input":"' + quoted)
        self._has_text = True

    def end(self) -> None:
        super().append('"}' if self._has_text else '{"input":""}')
        super().end()


class StreamWriter(EventWriter):
    """Deltas of any format in, the bytes of a stream out. `model` is the name the client asked for."""

    _single_candidate = "Anthropic returns one candidate"

    def __init__(self, model: str = "") -> None:
        super().__init__(model)
        self._started: Started | None = None
        self._is_same_format = False
        self._has_refusal = False
        self._block: _Block | None = None
        self._part = -1  # the part of the open block
        self._number = 0  # of the next block
        self._waiting: dict[int, list[ModelOutputDelta]] = {}

    def _on_text(self, delta: PartDelta) -> bytes:
        block = self._block
        if block is None or delta.index != self._part:
            return self._write_part(delta)
        block.append(delta.text)
        out = block.out
        if len(out) == 1:
            return out.pop()
        return block.take()

    def _on_start(self, started: Started) -> bytes:
        self._started = started
        self._is_same_format = started.format == FORMAT
        return b"" if self._is_same_format else self._message_start()

    def _on_usage(self) -> bytes:
        return self._message_start() if self._is_begun else b""

    def _on_error(self, error: ProviderError) -> bytes:
        return _event("error", error=write_error(error)["error"])

    def _on_part(self, started: PartStarted) -> bytes:
        return self._write_part(started)

    def _on_extension(self, extended: PartExtended) -> bytes:
        return self._write_part(extended)

    def _on_part_end(self, index: int) -> bytes:
        return self._write_part(PartEnded(index))

    def _message_start(self) -> bytes:
        """The event `message_start`, once."""
        started, self._started = self._started, None
        if started is None:
            return b""
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
        return _event("message_start", message=message)

    def _write_part(self, delta: PartStarted | PartDelta | PartExtended | PartEnded) -> bytes:
        """What a delta adds to the open block, and to those that waited for its end."""
        out = [self._message_start()]
        index = delta.index
        if type(delta) is PartStarted:
            if self._block is None:
                self._open(delta, out)
            else:
                self._waiting[index] = [delta]
        elif index == self._part:
            self._continue_block(delta, out)
            self._open_waiting(out)
        elif index in self._waiting:
            self._waiting[index].append(delta)
        return b"".join(out)

    def _continue_block(self, delta: ModelOutputDelta, out: list[bytes]) -> None:
        block = self._block
        if block is None:
            return  # the part was dropped
        if type(delta) is PartDelta:
            block.append(delta.text)
        elif type(delta) is PartExtended:
            extras = own_extras(delta.native, self.losses, block.path, FORMAT)
            if extras:
                block.extend(extras)
        elif type(delta) is PartEnded:
            self._end_block(block, out)
            return
        out += block.out
        block.out.clear()

    def _end_block(self, block: _Block, out: list[bytes]) -> None:
        block.end()
        out += block.out
        self._number += block.is_started
        self._block = None
        self._part = -1

    def _open_waiting(self, out: list[bytes]) -> None:
        """Write the waiting parts until one stays open."""
        while self._waiting and self._block is None:
            index = next(iter(self._waiting))
            for delta in self._waiting.pop(index):
                if type(delta) is PartStarted:
                    self._open(delta, out)
                else:
                    self._continue_block(delta, out)

    def _open(self, delta: PartStarted, out: list[bytes]) -> None:
        block = self._new_block(delta.part, f"parts[{delta.index}]")
        if block is None:
            return
        self._block, self._part = block, delta.index
        out += block.out
        block.out.clear()

    def _new_block(self, part: OutputPart, path: str) -> _Block | None:
        if isinstance(part, Native) and part.origin == FORMAT and type(part.data) is dict:
            return self._new_native_block(part.data, path)
        part = transcribe(part, self.losses, path)
        if not isinstance(part, Text | Refusal | Thinking | ToolCallRequest):
            self.losses.part = int(path[6:-1])
            report_unsupported(part, self.losses)
            self.losses.part = -1
            return None
        extras = own_extras(part.native, self.losses, path, FORMAT)
        if isinstance(part, ToolCallRequest):
            kind = _FreeformBlock if part.freeform else _CallBlock
            opening = complete_block(build_block(part, {}), self._is_same_format)
            call = kind({**opening, **extras}, self._number, path, self.losses)
            call.start()
            if part.arguments:
                call.append(part.arguments)
            return call
        late_field = "signature" if isinstance(part, Thinking) else "citations"
        late = {late_field: extras.pop(late_field)} if late_field in extras else None
        self._has_refusal = self._has_refusal or isinstance(part, Refusal)
        block_type = _ThinkingBlock if isinstance(part, Thinking) else _TextBlock
        opening = complete_block(build_block(part, ""), self._is_same_format)
        block = block_type({**opening, **extras}, self._number, path, self.losses)
        if self._is_same_format:
            block.start()
        block.append(part.text)
        if late is not None:
            block.extend(late)
        return block

    def _new_native_block(self, data: dict[str, Any], path: str) -> _Block:
        call_input = data.get("input")
        if type(call_input) is dict and call_input and str(data.get("type")).endswith("_tool_use"):
            block: _Block = _CallBlock({**data, "input": {}}, self._number, path, self.losses)
            block.start()
            block.append(encode_line(call_input).decode())
        else:
            block = _Block(data, self._number, path, self.losses)
            block.start()
        return block

    def _on_finish(self, finished: Finished) -> bytes:
        out = [self._message_start()]
        while self._block is not None or self._waiting:
            if self._block is not None:
                self._end_block(self._block, out)
            self._open_waiting(out)
        extras = own_extras(finished.native, self.losses, "native", FORMAT)
        delta = {
            "stop_reason": write_stop_reason(
                finished.stop_reason, self._has_refusal, self._is_same_format, self.losses
            ),
            "stop_sequence": finished.stop_sequence,
            **({} if self._is_same_format else EMPTY_DETAILS),
            **{name: value for name, value in extras.items() if name in _DELTA_FIELDS},
        }
        event_extras = {name: value for name, value in extras.items() if name not in _DELTA_FIELDS}
        out.append(
            _event(
                "message_delta",
                delta=delta,
                usage=write_usage(self._usage, self._is_same_format, is_total=True),
                **event_extras,
            )
        )
        out.append(_event("message_stop"))
        return b"".join(out)
