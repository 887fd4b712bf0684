"""`UsageScanner`: find usage and the end in a stream that is passed on unchanged.

Most events only add text. Usage, finish reasons and errors come under a few markers that hardly occur elsewhere, so the bytes
are searched for the markers, and the format's reader gets the stream only from the first event that contains one. A marker
inside text costs some reading and changes nothing. A scanner takes over from the reader at an event boundary, after the first
output.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from antiphon.errors import TransportError
from antiphon.providers.engine.reply import OutputReader
from antiphon.wire.delta import ModelOutputDelta, PartDelta
from antiphon.wire.sse import MAX_EVENT

_BLANK_LINES = (b"\n\n", b"\n\r\n", b"\r\r")
"""The separator of two events."""
_MARKERS: Mapping[str, tuple[bytes, ...]] = {
    "openai-chat": (b"[DONE]", b"error", b'"finish_reason":"', b'"finish_reason": "', b'"usage":{', b'"usage": {'),
    "anthropic": (b"message_delta", b"message_stop", b"error", b"[DONE]"),
}
_DIALECT_MARKERS: Mapping[str, tuple[bytes, ...]] = {
    "openai-chat": (b'"finish_reason":null', b'"finish_reason": null'),
    "anthropic": (b"event: message_start",),
}
"""How hosts that use these markers write: their streams contain one of these near the beginning."""


class EventBuffer:
    """Bytes of events in, whole events out: a partial one is held until the rest arrives."""

    def __init__(self) -> None:
        self._partial: list[bytes] = []

    def feed(self, piece: bytes) -> bytes:
        """The events that these bytes complete."""
        if not self._partial and piece.endswith(b"\n\n"):
            return piece
        overlap = self._partial[-1][-2:] if self._partial else b""  # the blank line may be cut in two
        joined = overlap + piece
        end = max(joined.rfind(blank) + len(blank) if blank in joined else 0 for blank in _BLANK_LINES) - len(overlap)
        if end <= 0:
            self._partial += [piece] if piece else []
            return b""
        events = b"".join([*self._partial, piece[:end]])
        self._partial = [piece[end:]] if end < len(piece) else []
        return events

    def close(self) -> bytes:
        """The partial event that is left."""
        partial, self._partial = self._partial, []
        return b"".join(partial)


class UsageScanner:
    """Continues for a reader. `is_finished` after the terminal delta."""

    def __init__(
        self, reader: OutputReader, markers: tuple[bytes, ...], *, at_event_boundary: bool, frame_bytes: int = 0
    ) -> None:
        self._reader = reader
        self._frame_bytes = frame_bytes  # of an event, without its text
        self._skipped_bytes = self._skipped_events = 0
        self._markers = markers
        self._at_event_boundary = at_event_boundary  # whether the bytes the reader has seen end with an event
        self._events = EventBuffer()
        self._size = 0

    @classmethod
    def create(
        cls, reader: OutputReader, format_name: str, seen: bytes, deltas: Sequence[ModelOutputDelta] = ()
    ) -> OutputReader:
        """A scanner for a stream that began with `seen`, read as `deltas`; the reader itself if the host writes differently."""
        if not any(marker in seen for marker in _DIALECT_MARKERS.get(format_name, ())):
            return reader
        last_event = seen.rstrip().rpartition(b"\n\n")[2]
        texts = [len(delta.text.encode("utf-8", "replace")) for delta in deltas if isinstance(delta, PartDelta)]
        frame_bytes = len(last_event) - (texts[-1] if texts else 0)
        return cls(reader, _MARKERS[format_name], at_event_boundary=seen.endswith(b"\n\n"), frame_bytes=frame_bytes)

    @property
    def skipped_text_bytes(self) -> int:
        """About how much text was in the events that were not read: all events of a stream have the same frame."""
        return max(0, self._skipped_bytes - self._skipped_events * (self._frame_bytes + 2))

    @property
    def is_finished(self) -> bool:
        return self._reader.is_finished

    def feed(self, data: bytes) -> list[ModelOutputDelta]:
        """The usage, end and errors in these bytes."""
        if not self._at_event_boundary:
            self._at_event_boundary = data.endswith(b"\n\n")
            return self._reader.feed(data)
        self._size += len(data)
        whole = self._events.feed(data)
        if not whole:
            if self._size < MAX_EVENT:
                return []
            whole = self._events.close()  # no event is that long: the reader reports it
        self._size = 0
        first = min([at for marker in self._markers if (at := whole.find(marker)) >= 0], default=-1)
        skipped = len(whole) if first < 0 else max(0, whole.rfind(b"\n\n", 0, first))
        self._skipped_bytes += skipped
        self._skipped_events += whole.count(b"\n\n", 0, skipped)
        return self._reader.feed(whole[skipped:]) if first >= 0 else []

    def close(self, trouble: TransportError | None = None) -> list[ModelOutputDelta]:
        """The stream ended, or `trouble` ended it: the terminal delta."""
        partial = self._events.close()
        deltas = self._reader.feed(partial) if partial else []
        return deltas if self._reader.is_finished else [*deltas, *self._reader.close(trouble)]
