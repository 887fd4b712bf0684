"""Server-sent events out of bytes that may be cut anywhere.

Lines end with LF, CRLF or CR; a blank line ends an event; `data` lines join with a newline; comments and unknown fields are
passed over; a byte order mark at the very beginning is passed over too. Bytes stay bytes: a UTF-8 sequence that is cut between
two chunks is whole again when its line is.
"""

from __future__ import annotations

from typing import NamedTuple

MAX_EVENT = 64 * 1024 * 1024
"""An event of more bytes than this is no event but an attack or a fault."""


class SseOverflow(Exception):
    """An event grew past `MAX_EVENT` without ending."""


class SseEvent(NamedTuple):
    """One event: its name (empty if it has none) and its data."""

    event: bytes
    data: bytes


class SseReader:
    """Feed bytes, get the events they complete. `close` gives what a missing last blank line kept back."""

    def __init__(self) -> None:
        self._rest = b""
        self._event = b""
        self._data: list[bytes] = []
        self._size = 0
        self._is_first = True

    def feed(self, data: bytes) -> list[SseEvent]:
        buffer = self._rest + data if self._rest else data
        if self._is_first:
            if len(buffer) < 3 and b"\xef\xbb\xbf".startswith(buffer):
                self._rest = buffer
                return []
            buffer = buffer.removeprefix(b"\xef\xbb\xbf")
            self._is_first = False
        if b"\r" in buffer:
            # A CR at the end may be the first half of a CRLF: it waits for the next chunk.
            held = b"\r" if buffer.endswith(b"\r") else b""
            buffer = buffer[: len(buffer) - len(held)].replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        else:
            held = b""
        *lines, last = buffer.split(b"\n")
        self._rest = last + held
        events = self._events(lines)
        if len(self._rest) + self._size > MAX_EVENT:
            raise SseOverflow
        return events

    def close(self) -> list[SseEvent]:
        """The last event, if the stream ended without the blank line that should follow it."""
        rest, self._rest = self._rest.removesuffix(b"\r"), b""
        return self._events([rest, b""] if rest else [b""])

    def _events(self, lines: list[bytes]) -> list[SseEvent]:
        events: list[SseEvent] = []
        for line in lines:
            if line.startswith(b"data:"):
                value = line[6:] if line[5:6] == b" " else line[5:]
                self._data.append(value)
                self._size += len(value)
            elif not line:
                if self._data:
                    joined = self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
                    events.append(SseEvent(self._event, joined))
                    self._data = []
                    self._size = 0
                self._event = b""
            elif line.startswith(b"event:"):
                self._event = line[6:].strip()
            elif line == b"data":
                self._data.append(b"")
        return events
