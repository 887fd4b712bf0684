"""The frame of stream writers: deltas of any format in, the bytes of a stream out, and nothing after its end.

`ObjectStreamWriter` is for streams of named events that build one object, item by item: the Responses and the Interactions API.
It passes each delta to the method that a format has for it, and joins the events that the methods emit.
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
from antiphon.wire.loss import Losses, lose_candidates
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


class DeltaWriter:
    """Writes one stream, and nothing after its end.

    Subclasses implement `_write`, and set `_has_ended` with an error or the last bytes of an answer; `_close` if that is the end.
    """

    def __init__(self, model: str = "") -> None:
        self.losses = Losses()
        self._model = model
        self._usage: TokenUsage | None = None
        self._has_ended = False

    def write(self, delta: ModelOutputDelta) -> bytes:
        """The bytes of a delta; there may be none."""
        return b"" if self._has_ended else self._write(delta)

    def resume(self, first: bytes, last: bytes) -> None:
        """Go on with a stream that the upstream began with the event `first`, up to the events `last`.

        What follows names no answer and has no number in most formats.
        """
        del first, last

    def close(self) -> bytes:
        """The end of the stream; an error if the answer is not complete."""
        if self._has_ended:
            return b""
        end = self._close()
        self._has_ended = True
        return end

    def _write(self, delta: ModelOutputDelta) -> bytes:
        """The bytes of a delta, before the end."""
        raise NotImplementedError

    def _close(self) -> bytes:
        """The end of a stream that has not ended."""
        return self._write(Failed(CUT))


class OpenPart(Protocol):
    """A part that is being written; `natives` are its extras and those it gained."""

    natives: list[NativeExtras | None]


AnyPart = TypeVar("AnyPart", bound=OpenPart)


class ObjectStreamWriter(DeltaWriter, Generic[AnyPart]):
    """Writes one stream. Subclasses have a method for each delta, which emits events."""

    _single_candidate = ""
    """Why further candidates are lost."""
    _number_field = ""
    """The field of an event that has its number."""

    def __init__(self, model: str = "") -> None:
        super().__init__(model)
        self._started = Started()
        self._is_begun = False
        self._parts: dict[int, AnyPart] = {}
        self._number = 0
        """How many events were emitted."""
        self._out: list[bytes] = []

    def _write(self, delta: ModelOutputDelta) -> bytes:
        """The bytes of this delta."""
        if isinstance(delta, PartDelta):
            self._append_text(delta.index, delta.text)
        elif isinstance(delta, Started):
            self._begin(delta)
        elif isinstance(delta, UsageReported):
            self._usage = delta.usage
        elif isinstance(delta, PartStarted):
            self._begin(Started())
            if delta.candidate == 0:  # others are reported when they finish
                self._start_part(delta)
        elif isinstance(delta, PartExtended):
            part = self._parts.get(delta.index)
            if part is not None:
                part.natives.append(delta.native)
        elif isinstance(delta, PartEnded):
            self._end_part(delta.index)
        elif isinstance(delta, Finished):
            if delta.candidate == 0:
                self._begin(Started())
                self._finish(delta)
            else:
                lose_candidates(self.losses, 1, self._single_candidate)
        else:
            self._fail(delta.error)
        data = b"".join(self._out)
        self._out.clear()
        return data

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

    def _begin(self, started: Started) -> None:
        """Write the start of the object, once."""
        if not self._is_begun:
            self._is_begun = True
            self._write_start(started)

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
    )
