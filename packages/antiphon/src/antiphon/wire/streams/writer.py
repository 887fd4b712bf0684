"""The frame of stream writers: deltas of any format in, the bytes of a stream out, and nothing after its end.

A format has a method for each thing that happens to a part; it adds bytes to `_out`, and `write` takes them. The rules for all
are here: an answer begins once, and if need be by itself; a failure is the end; the end of a candidate ends its parts, and
nothing more is written of it; a format whose answers have one candidate reports the others as lost, and ends with the first.

A part starts without its text, which is its first piece. A part that does not grow (an image, a native block) is written when it
is complete. In a sequential format a part waits for the end of the one before it, and is then written with all it got meanwhile.

`ItemWriter` is for streams of named events that build one object, item by item: the Responses and the Interactions API.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import structs

from antiphon.json_text import NOT_JSON, decode_json
from antiphon.parts import Native, NativeExtras, Refusal, Text, Thinking, TokenUsage, ToolCallRequest
from antiphon.wire.delta import (
    Failed,
    Finished,
    GrowingPart,
    ModelOutputDelta,
    PartDelta,
    PartEnded,
    PartExtended,
    PartStarted,
    Started,
    UsageReported,
    merged,
    overlaid,
)
from antiphon.wire.loss import Loss, Losses
from antiphon.wire.output import ModelOutput, ProviderError
from antiphon.wire.streams.reader import CUT
from antiphon.wire.streams.sse import SseReader

_encode = msgspec.json.Encoder().encode
_GROWING = (Text, Thinking, Refusal, ToolCallRequest)


def encode_line(value: Any) -> bytes:
    """JSON on one line, whatever a client takes for the end of a line. Every stream writer encodes with it.

    Arguments are embedded as the model wrote them, and may have line ends between their values. Inside strings JSON allows
    U+2028, U+2029 and U+0085 unescaped, where httpx, `str.splitlines` and the dot of a regular expression end a line.
    """
    data = _encode(value)
    if b"\n" in data or b"\r" in data:
        data = msgspec.json.format(data, indent=-1)
    return data if data.isascii() else _escape_line_ends(data)


def _escape_line_ends(data: bytes) -> bytes:
    return (
        data.replace(b"\xe2\x80\xa8", b"\\u2028").replace(b"\xe2\x80\xa9", b"\\u2029").replace(b"\xc2\x85", b"\\u0085")
    )


class OpenPart(GrowingPart, kw_only=True):
    """A part that has not ended. Formats add what they need to write more of it.

    `pieces` has the text that is kept: of a part that waits, and of one whose format needs it at the end.
    """

    index: int
    before: bytes = b""
    after: bytes = b""
    """The bytes around each text, where a format writes nothing else of it."""
    has_text: bool = False
    is_waiting: bool = False
    has_ended: bool = False

    @property
    def text(self) -> str:
        return "".join(self.pieces)


AnyPart = TypeVar("AnyPart", bound=OpenPart)


class EventWriter(Generic[AnyPart]):
    """Writes one stream. `model` is the name the client asked for."""

    _part_type: type[AnyPart]
    _single_candidate = ""
    """Why further candidates are lost, in a format whose answers have one."""
    _is_sequential = False
    """Whether clients append what comes to the last part."""

    def __init__(self, model: str = "") -> None:
        self.losses = Losses()
        self._model = model
        self._usage: TokenUsage | None = None
        self._is_begun = False
        self._has_ended = False
        self._finished: set[int] = set()
        self._lost_candidates: set[int] = set()
        self._parts: dict[int, AnyPart] = {}
        self._queues: dict[int, deque[AnyPart]] = {}
        self._out: list[bytes] = []

    def write(self, delta: ModelOutputDelta) -> bytes:
        """The bytes of a delta; there may be none."""
        return self.write_all((delta,))

    def write_all(self, deltas: Iterable[ModelOutputDelta]) -> bytes:
        """The bytes of some deltas."""
        out, parts = self._out, self._parts
        for delta in deltas:
            if self._has_ended:
                break
            if type(delta) is not PartDelta:
                self._write_other(delta)
                continue
            part, text = parts.get(delta.index), delta.text
            if part is None or not text:
                continue
            if part.is_waiting:
                part.pieces.append(text)
                continue
            part.has_text = True
            if part.before:  # nearly all deltas
                data = _encode(text)
                out.append(part.before + (data if data.isascii() else _escape_line_ends(data)) + part.after)
            else:
                self._on_text(part, text)
        return out.pop() if len(out) == 1 else self._take()

    def close(self) -> bytes:
        """The end of the stream; an error if the answer is not complete."""
        if self._has_ended:
            return b""
        self._has_ended = True
        if self._finished:
            self._on_close()
        else:
            self._on_error(CUT)
        return self._take()

    def resume(self, first: bytes, last: bytes) -> None:
        """Go on with a stream that the upstream began with the event `first`, up to the events `last`.

        What follows names no answer and has no number in most formats.
        """
        del first, last

    def _take(self) -> bytes:
        """What was written since the last time."""
        data = b"".join(self._out)
        self._out.clear()
        return data

    def _write_other(self, delta: ModelOutputDelta) -> None:
        if isinstance(delta, UsageReported):
            self._usage = delta.usage
            self._on_usage()
        elif isinstance(delta, Failed):
            self._has_ended = True
            self._on_error(delta.error)
        elif isinstance(delta, Started):
            self._begin(delta)
        elif not isinstance(delta, PartDelta):
            if not self._is_begun:
                self._begin(Started())
            self._write_part(delta)

    def _write_part(self, delta: PartStarted | PartExtended | PartEnded | Finished) -> None:
        if isinstance(delta, PartExtended | PartEnded):
            part = self._parts.get(delta.index)
            if part is None:
                return
            if isinstance(delta, PartExtended):
                self._extend_part(part, delta.native)
            else:
                self._end_part(part)
        elif self._is_open(delta.candidate):
            if isinstance(delta, PartStarted):
                self._start_part(delta)
            else:
                self._finish(delta)

    def _begin(self, started: Started) -> None:
        """Begin the answer, once."""
        if not self._is_begun:
            self._is_begun = True
            self._on_start(started)

    def _is_open(self, candidate: int) -> bool:
        """Whether a candidate is written, and has not finished."""
        if candidate == 0 or not self._single_candidate:
            return candidate not in self._finished
        if candidate not in self._lost_candidates:
            self._lost_candidates.add(candidate)
            reason = f"{self._single_candidate}; dropped"
            self.losses.append(Loss(f"others[{candidate - 1}]", "candidate", reason))
        return False

    def _start_part(self, started: PartStarted) -> None:
        part: Any = started.part
        field = "arguments" if type(part) is ToolCallRequest else "text"
        grows = isinstance(part, _GROWING)
        pieces = [getattr(part, field)] if grows and getattr(part, field) else []
        if pieces:
            part = structs.replace(part, **{field: ""})
        opened = self._part_type(part, started.candidate, pieces, index=started.index, is_waiting=True)
        self._parts[started.index] = opened
        if self._is_sequential:
            queue = self._queues.setdefault(started.candidate, deque())
            queue.append(opened)
            grows = grows and queue[0] is opened
        if grows:
            self._open_part(opened)

    def _open_part(self, part: AnyPart) -> None:
        """Write the start of a part, and what it got while it waited."""
        self.losses.part = part.index
        part.is_waiting = False
        if part.gained:
            part.part = structs.replace(part.part, native=merged(part.part.native, *part.gained))
            part.gained = []
        text, part.pieces = part.text, []
        self._on_part(part)
        if text:
            part.has_text = True
            self._on_text(part, text)
        self.losses.part = -1

    def _extend_part(self, part: AnyPart, native: NativeExtras) -> None:
        self.losses.part = part.index
        if type(part.part) is Native:
            self.losses.report_extras(native)
        elif part.is_waiting:
            part.gained.append(native)
        else:
            self._on_extension(part, native)
        self.losses.part = -1

    def _end_part(self, part: AnyPart) -> None:
        del self._parts[part.index]
        part.has_ended = True
        if not self._is_sequential:
            self._close_part(part)
            return
        queue = self._queues[part.candidate]
        while queue and queue[0].has_ended:
            self._close_part(queue.popleft())
        if queue and queue[0].is_waiting and isinstance(queue[0].part, _GROWING):
            self._open_part(queue[0])

    def _close_part(self, part: AnyPart) -> None:
        grows = isinstance(part.part, _GROWING)
        if grows and part.is_waiting:
            self._open_part(part)
        self.losses.part = part.index
        if grows:
            self._on_part_end(part)
        else:
            self._on_whole(part)
        self.losses.part = -1

    def _finish(self, finished: Finished) -> None:
        for part in [part for part in self._parts.values() if part.candidate == finished.candidate]:
            self._end_part(part)
        self._on_finish(finished)
        self._finished.add(finished.candidate)
        self._has_ended = bool(self._single_candidate)

    def _on_start(self, started: Started) -> None:
        raise NotImplementedError

    def _on_usage(self) -> None:
        """`_usage` is known, or has grown."""

    def _on_part(self, part: AnyPart) -> None:
        """The start of a part that grows, without its text."""
        raise NotImplementedError

    def _on_text(self, part: AnyPart, text: str) -> None:
        """More text of a part."""
        self._out.append(part.before + encode_line(text) + part.after)

    def _on_extension(self, part: AnyPart, native: NativeExtras) -> None:
        part.gained.append(native)

    def _on_part_end(self, part: AnyPart) -> None:
        raise NotImplementedError

    def _on_whole(self, part: AnyPart) -> None:
        """A part that does not grow."""
        raise NotImplementedError

    def _on_finish(self, finished: Finished) -> None:
        """The end of a candidate, all whose parts have ended."""
        raise NotImplementedError

    def _on_error(self, error: ProviderError) -> None:
        raise NotImplementedError

    def _on_close(self) -> None:
        """What follows the end of the last candidate."""


class ItemWriter(EventWriter[AnyPart]):
    """Writes a stream that builds one object, item by item."""

    _number_field = ""
    """The field of an event that has its number."""

    def __init__(self, model: str = "") -> None:
        super().__init__(model)
        self._id = ""
        self._started = Started()
        self._number = 0
        """How many events were emitted."""

    def resume(self, first: bytes, last: bytes) -> None:
        """Go on with the object that the upstream began, and with its count of events."""
        for event in decoded_events(first):
            self._resume_object(event)
        numbers = [event[self._number_field] for event in decoded_events(last) if self._number_field in event]
        if numbers and str(numbers[-1]).isdecimal():
            self._number = int(numbers[-1]) + 1

    def _resume_object(self, event: dict[str, Any]) -> None:
        """Take over the object of the event that began it."""

    def _send(self, kind: str, event: dict[str, Any]) -> None:
        """Add an event to what is written."""
        self._number += 1
        self._out.append(b"event: %b\ndata: %b\n\n" % (kind.encode(), encode_line(event)))

    def _object(self, finished: Finished) -> ModelOutput:
        """The output without its parts: what the start, the usage and the end of the stream state."""
        started = self._started
        return ModelOutput(
            stop_reason=finished.stop_reason,
            stop_sequence=finished.stop_sequence,
            model=self._model or finished.model or started.model,
            created=started.created,
            format=started.format,
            usage=self._usage,
            native=overlaid(started.native, finished.native),
            source=finished.source,
        )


def decoded_events(data: bytes) -> list[dict[str, Any]]:
    """The JSON objects of whole events; what is none is left out."""
    found: list[dict[str, Any]] = []
    for event in SseReader().feed(data):
        try:
            value = decode_json(event.data)
        except NOT_JSON:
            continue
        if type(value) is dict:
            found.append(value)
    return found
