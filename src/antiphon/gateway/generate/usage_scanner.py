"""`Skimmer`: of a stream that is passed on as it came, only what tells how it ends is read.

Most events of a stream say a few more words, and nobody here wants to know them. What matters is usage, a finish, an error; the
formats write these under a few words that stand in no other event, or seldom. So the bytes are searched for the words, and only
from the first event that holds one are they given to the reader of the format, which decides. A word that stands in the text of
an answer costs a little reading and changes nothing.

The reader begins with the stream, and has seen the first thing that it shows: it is left to a skimmer where an event ends.
"""

from __future__ import annotations

from collections.abc import Mapping

from antiphon.errors import TransportError
from antiphon.gateway.generate.upstream import Reader
from antiphon.wire.delta import ModelOutputDelta
from antiphon.wire.sse import MAX_EVENT

_BLANK_LINES = (b"\n\n", b"\n\r\n", b"\r\r")
"""What stands between two events."""
_WORDS: Mapping[str, tuple[bytes, ...]] = {
    "openai-chat": (b"[DONE]", b"error", b'"finish_reason":"', b'"finish_reason": "', b'"usage":{', b'"usage": {'),
    "anthropic": (b"message_delta", b"message_stop", b"error", b"[DONE]"),
}
_HABITS: Mapping[str, tuple[bytes, ...]] = {
    "openai-chat": (b'"finish_reason":null', b'"finish_reason": null'),
    "anthropic": (b"event: message_start",),
}
"""How a host writes whose words are those above: one of these stands in the beginning of its streams."""


class WholeEvents:
    """Bytes of events in, whole events out: half of one is held until the rest comes."""

    def __init__(self) -> None:
        self._half: list[bytes] = []

    def feed(self, piece: bytes) -> bytes:
        """The events that these bytes complete."""
        if not self._half and piece.endswith(b"\n\n"):
            return piece
        seam = self._half[-1][-2:] if self._half else b""  # the blank line may be cut in two
        joined = seam + piece
        end = max(joined.rfind(blank) + len(blank) if blank in joined else 0 for blank in _BLANK_LINES) - len(seam)
        if end <= 0:
            self._half += [piece] if piece else []
            return b""
        said = b"".join([*self._half, piece[:end]])
        self._half = [piece[end:]] if end < len(piece) else []
        return said

    def close(self) -> bytes:
        """The half that is left."""
        half, self._half = self._half, []
        return b"".join(half)


class Skimmer:
    """Goes on for a reader. `is_finished` when the terminal delta was given."""

    def __init__(self, reader: Reader, words: tuple[bytes, ...], *, is_between: bool) -> None:
        self._reader = reader
        self._words = words
        self._is_between = is_between  # whether what the reader has seen ends with an event
        self._events = WholeEvents()
        self._size = 0

    @classmethod
    def of(cls, reader: Reader, format_name: str, seen: bytes) -> Reader:
        """A skimmer for a stream that began with `seen`; the reader itself where the host writes in a way of its own."""
        if not any(habit in seen for habit in _HABITS.get(format_name, ())):
            return reader
        return cls(reader, _WORDS[format_name], is_between=seen.endswith(b"\n\n"))

    @property
    def is_finished(self) -> bool:
        return self._reader.is_finished

    def feed(self, data: bytes) -> list[ModelOutputDelta]:
        """What these bytes tell of the end."""
        if not self._is_between:
            self._is_between = data.endswith(b"\n\n")
            return self._reader.feed(data)
        self._size += len(data)
        whole = self._events.feed(data)
        if not whole:
            if self._size < MAX_EVENT:
                return []
            whole = self._events.close()  # no event is as long as that: the reader says so
        self._size = 0
        first = min([at for word in self._words if (at := whole.find(word)) >= 0], default=-1)
        return self._reader.feed(whole[max(0, whole.rfind(b"\n\n", 0, first)) :]) if first >= 0 else []

    def close(self, trouble: TransportError | None = None) -> list[ModelOutputDelta]:
        """The stream ended, or `trouble` ended it: the terminal delta."""
        half = self._events.close()
        deltas = self._reader.feed(half) if half else []
        return deltas if self._reader.is_finished else [*deltas, *self._reader.close(trouble)]
