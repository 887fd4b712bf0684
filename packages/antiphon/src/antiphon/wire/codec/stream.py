"""The frames of stream readers and writers: each stream has exactly one end.

A reader of a format decodes events and appends deltas to `_out`. After a failure or the end of the answer, further bytes are
ignored. An event that cannot be decoded is malformed; after the last byte it is the piece of an event that was cut off.
A writer turns deltas of any format into the bytes of its stream.
"""

from __future__ import annotations

from typing import Any, Generic, Protocol, TypeVar

import msgspec

from antiphon.parts import TokenUsage
from antiphon.wire.delta import Failed, ModelOutputDelta
from antiphon.wire.loss import Losses
from antiphon.wire.output import NOT_AN_ANSWER, STREAM_CUT, ProviderError
from antiphon.wire.sse import SseOverflow

Event = TypeVar("Event")

CUT = ProviderError(STREAM_CUT, "stream_cut")


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


class EventSource(Protocol[Event]):
    """Splits bytes into events."""

    def feed(self, data: bytes) -> list[Event]: ...
    def close(self) -> list[Event]: ...


class DeltaReader(Generic[Event]):
    """Reads one stream. Subclasses implement `_read_events`, and `_end_of_stream` if a stream may end without a last event."""

    def __init__(self, source: EventSource[Event]) -> None:
        self._source = source
        self._out: list[ModelOutputDelta] = []
        self._is_over = False
        self._is_closing = False

    def feed(self, data: bytes) -> list[ModelOutputDelta]:
        """The deltas that these bytes complete."""
        if self._is_over:
            return []
        try:
            self._read_events(self._source.feed(data))
        except SseOverflow:
            self._fail(self._malformed("event too long"))
        return self._take()

    def close(self) -> list[ModelOutputDelta]:
        """The stream ended: the deltas still pending, and `Failed` if it was not complete."""
        if not self._is_over:
            self._is_closing = True
            self._read_events(self._source.close())
        if not self._is_over:
            self._end_of_stream()
        return self._take()

    def _read_events(self, events: list[Event]) -> None:
        """Append the deltas of events; nothing after `_is_over`."""
        raise NotImplementedError

    def _end_of_stream(self) -> None:
        """The bytes ended before the answer."""
        self._fail(CUT)

    def _malformed(self, problem: str) -> ProviderError:
        """The error for an event that cannot be read."""
        return CUT if self._is_closing else ProviderError(f"invalid stream: {problem}", "server", code=NOT_AN_ANSWER)

    def _fail(self, error: ProviderError) -> None:
        if not self._is_over:
            self._is_over = True
            self._out.append(Failed(error))

    def _take(self) -> list[ModelOutputDelta]:
        taken, self._out = self._out, []
        return taken


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
