"""The frame of stream writers: deltas of any format in, the bytes of a stream out, and nothing after its end.

`write` passes each delta to the method that a format has for it. The rules that hold for all are here: an answer begins once, and
if need be by itself; a failure is the end; nothing is written of a candidate that has finished; and a format whose answers have
one candidate reports the others as lost, and ends with the first.

`ItemWriter` is for streams of named events that build one object, item by item: the Responses and the Interactions API. Its
methods emit events, which it joins.
"""

from __future__ import annotations

from typing import Any, Generic, Protocol, TypeVar

import msgspec
from msgspec import structs

from antiphon.parts import NativeExtras, TokenUsage
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
    overlaid,
)
from antiphon.wire.loss import Loss, Losses
from antiphon.wire.output import ModelOutput, ProviderError
from antiphon.wire.streams.reader import CUT
from antiphon.wire.streams.sse import SseReader

_encode = msgspec.json.Encoder().encode


def encode_line(value: Any) -> bytes:
    """JSON on one line, whatever a client takes for the end of a line. Every stream writer encodes with it.

    Arguments are embedded as the model wrote them, and may have line ends between their values. Inside strings JSON allows
    U+2028, U+2029 and U+0085 unescaped, where httpx, `str.splitlines` and the dot of a regular expression end a line.
    """
    data = _encode(value)
    if b"\n" in data or b"\r" in data:
        data = msgspec.json.format(data, indent=-1)
    if data.isascii():
        return data
    return (
        data.replace(b"\xe2\x80\xa8", b"\\u2028").replace(b"\xe2\x80\xa9", b"\\u2029").replace(b"\xc2\x85", b"\\u0085")
    )


class EventWriter:
    """Writes one stream. Formats have a method for each delta, which returns its bytes; there may be none."""

    _single_candidate = ""
    """Why further candidates are lost, in a format whose answers have one."""

    def __init__(self, model: str = "") -> None:
        self.losses = Losses()
        self._model = model
        self._usage: TokenUsage | None = None
        self._is_begun = False
        self._has_ended = False
        self._finished: set[int] = set()
        self._lost_candidates: set[int] = set()

    def write(self, delta: ModelOutputDelta) -> bytes:
        """The bytes of a delta; there may be none."""
        if self._has_ended:
            return b""
        if type(delta) is PartDelta:
            return self._on_text(delta)
        return self._write_other(delta)

    def _write_other(self, delta: ModelOutputDelta) -> bytes:
        if isinstance(delta, UsageReported):
            self._usage = delta.usage
            return self._on_usage()
        if isinstance(delta, Started):
            return self._begin(delta)
        if isinstance(delta, Failed):
            self._has_ended = True
            return self._on_error(delta.error)
        begin = b"" if self._is_begun else self._begin(Started())
        if isinstance(delta, PartStarted):
            return begin + self._on_part(delta) if self._is_open(delta.candidate) else begin
        if isinstance(delta, PartExtended):
            return begin + self._on_extension(delta)
        if isinstance(delta, PartEnded):
            return begin + self._on_part_end(delta.index)
        assert isinstance(delta, Finished)
        if not self._is_open(delta.candidate):
            return begin
        written = self._on_finish(delta)
        self._finished.add(delta.candidate)
        self._has_ended = bool(self._single_candidate)
        return begin + written

    def _begin(self, started: Started) -> bytes:
        """The start of the answer, once."""
        if self._is_begun:
            return b""
        self._is_begun = True
        return self._on_start(started)

    def _is_open(self, candidate: int) -> bool:
        """Whether a candidate is written, and has not finished."""
        if candidate == 0 or not self._single_candidate:
            return candidate not in self._finished
        if candidate not in self._lost_candidates:
            self._lost_candidates.add(candidate)
            reason = f"{self._single_candidate}; dropped"
            self.losses.append(Loss(f"others[{candidate - 1}]", "candidate", reason))
        return False

    def resume(self, first: bytes, last: bytes) -> None:
        """Go on with a stream that the upstream began with the event `first`, up to the events `last`.

        What follows names no answer and has no number in most formats.
        """
        del first, last

    def close(self) -> bytes:
        """The end of the stream; an error if the answer is not complete."""
        if self._has_ended:
            return b""
        self._has_ended = True
        return self._on_close() if self._finished else self._on_error(CUT)

    def _on_start(self, started: Started) -> bytes:
        raise NotImplementedError

    def _on_usage(self) -> bytes:
        """`_usage` is known, or has grown."""
        return b""

    def _on_part(self, started: PartStarted) -> bytes:
        raise NotImplementedError

    def _on_text(self, delta: PartDelta) -> bytes:
        raise NotImplementedError

    def _on_extension(self, extended: PartExtended) -> bytes:
        raise NotImplementedError

    def _on_part_end(self, index: int) -> bytes:
        raise NotImplementedError

    def _on_finish(self, finished: Finished) -> bytes:
        """The end of a candidate."""
        raise NotImplementedError

    def _on_error(self, error: ProviderError) -> bytes:
        raise NotImplementedError

    def _on_close(self) -> bytes:
        """What follows the end of the last candidate."""
        return b""


class OpenPart(Protocol):
    """A part that is being written; `natives` are its extras and those it gained."""

    natives: list[NativeExtras | None]


AnyPart = TypeVar("AnyPart", bound=OpenPart)


class ItemWriter(EventWriter, Generic[AnyPart]):
    """Writes a stream that builds one object, item by item."""

    _number_field = ""
    """The field of an event that has its number."""

    def __init__(self, model: str = "") -> None:
        super().__init__(model)
        self._started = Started()
        self._parts: dict[int, AnyPart] = {}
        self._number = 0
        """How many events were emitted."""
        self._out: list[bytes] = []

    def _take(self) -> bytes:
        data = b"".join(self._out)
        self._out.clear()
        return data

    def _on_start(self, started: Started) -> bytes:
        self._write_start(started)
        return self._take()

    def _on_part(self, started: PartStarted) -> bytes:
        self._start_part(started)
        return self._take()

    def _on_text(self, delta: PartDelta) -> bytes:
        self._append_text(delta.index, delta.text)
        out = self._out
        return out.pop() if len(out) == 1 else self._take()

    def _on_extension(self, extended: PartExtended) -> bytes:
        part = self._parts.get(extended.index)
        if part is not None:
            part.natives.append(extended.native)
        return b""

    def _on_part_end(self, index: int) -> bytes:
        self._end_part(index)
        return self._take()

    def _on_finish(self, finished: Finished) -> bytes:
        self._finish(finished)
        return self._take()

    def _on_error(self, error: ProviderError) -> bytes:
        self._fail(error)
        return self._take()

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

    def _complete(self, output: ModelOutput) -> ModelOutput:
        """The output with what the start of the stream and the usage have stated."""
        started = self._started
        return structs.replace(
            output,
            model=self._model or output.model or started.model,
            created=started.created,
            format=started.format,
            usage=self._usage,
            native=overlaid(started.native, output.native),
        )

    def _write_start(self, started: Started) -> None:
        raise NotImplementedError

    def _start_part(self, started: PartStarted) -> None:
        raise NotImplementedError

    def _append_text(self, index: int, text: str) -> None:
        raise NotImplementedError

    def _end_part(self, index: int) -> None:
        raise NotImplementedError

    def _finish(self, finished: Finished) -> None:
        """Write the end of the object."""
        raise NotImplementedError

    def _fail(self, error: ProviderError) -> None:
        raise NotImplementedError


def decoded_events(data: bytes) -> list[dict[str, Any]]:
    """The JSON objects of whole events; what is none is left out."""
    found: list[dict[str, Any]] = []
    for event in SseReader().feed(data):
        try:
            found.append(msgspec.json.decode(event.data, type=dict[str, Any]))
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            continue
    return found


def finished_output(finished: Finished) -> ModelOutput:
    """What the end of a stream states about the output."""
    return ModelOutput(
        stop_reason=finished.stop_reason,
        stop_sequence=finished.stop_sequence,
        model=finished.model,
        native=finished.native,
        source=finished.source,
    )
