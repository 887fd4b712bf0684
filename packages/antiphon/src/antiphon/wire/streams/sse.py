"""Server-sent events out of bytes that may be cut anywhere.

Lines end with LF, CRLF or CR; a blank line ends an event; `data` lines join with a newline; comments and unknown fields are
ignored; a byte order mark at the very beginning is ignored too. Bytes stay bytes: a UTF-8 sequence that is cut between
two chunks is whole again when its line is.
"""

from __future__ import annotations

from msgspec import Struct

MAX_EVENT = 64 * 1024 * 1024
"""An event of more bytes than this is an attack or a fault."""


MAX_BARE = 64 * 1024


class SseOverflow(Exception):
    """An event grew past `MAX_EVENT` without ending."""


class SseEvent(Struct, frozen=True, gc=False):
    """One event: its name (empty if it has none) and its data."""

    event: bytes
    data: bytes


class SseReader:
    """Feed bytes, get the events they complete. `close` gives what a missing last blank line kept back.

    Bytes are kept until a blank line ends them, and looked through once: a new chunk is searched for that line together
    with the one byte before it.
    """

    def __init__(self) -> None:
        self._pending: list[bytes] = []
        self._size = 0
        self._last = b""  # the last byte of what is pending
        self._held = b""  # a CR that may be half of a CRLF, or the beginning of a byte order mark
        self._is_first = True
        self._is_between = False  # nothing is pending or held
        self.bare = bytearray()
        """JSON without `data:` after the last event: a server that fails may send its error so."""

    def feed(self, data: bytes) -> list[SseEvent]:
        if (
            self._is_between and not self.bare
        ):  # servers mostly send one event, with a line of data and perhaps its name
            name, start = b"", 6
            if data.startswith(b"event: "):
                line = data.find(b"\n")
                name, start = data[7:line].strip(), line + 7
            if data[start - 6 : start] == b"data: ":
                end = data.find(b"\n", start)
                if data[end:] == b"\n\n" and b"\r" not in data:
                    return [SseEvent(name, data[start:end])]
                if data[end - 1 :] == b"\r\n\r\n" and data.find(b"\r") == end - 1:
                    return [SseEvent(name, data[start : end - 1])]
        return self._read_blocks(data)

    def _read_blocks(self, data: bytes) -> list[SseEvent]:
        bare = self.bare
        if self._is_between and data.endswith(b"\n\n") and b"\r" not in data:
            blocks = data[:-2].split(b"\n\n")
        else:
            blocks = self._complete_blocks(data)
        events: list[SseEvent] = []
        for block in blocks:
            if block.startswith(b"data: ") and b"\n" not in block and not bare:
                events.append(SseEvent(b"", block[6:]))
                continue
            name, _, value = block.partition(b"\ndata: ")
            if value and name.startswith(b"event: ") and b"\n" not in value and b"\n" not in name and not bare:
                events.append(SseEvent(name[7:].strip(), value))
            else:
                self._read_block(block, events)
        return events

    def _complete_blocks(self, data: bytes) -> list[bytes]:
        """The blocks that the data completes, together with what is pending."""
        if self._held or self._is_first or b"\r" in data:
            data = self._cleaned(data)
        if not data:
            return []
        if b"\n\n" not in (self._last + data if self._last == b"\n" else data):
            self._is_between = False
            self._pending.append(data)
            self._size += len(data)
            self._last = data[-1:]
            if self._size > MAX_EVENT:
                raise SseOverflow
            return []
        if self._pending:
            data = b"".join([*self._pending, data])
        *blocks, rest = data.split(b"\n\n")
        self._pending = [rest] if rest else []
        self._size = len(rest)
        self._last = rest[-1:] if rest else b""
        self._is_between = not rest and not self._held
        return blocks

    def close(self) -> list[SseEvent]:
        """The last event, if the stream ended without the blank line that should follow it."""
        rest = b"".join(self._pending) + (self._held if self._held != b"\r" else b"")
        self._pending, self._held = [], b""
        events: list[SseEvent] = []
        self._read_block(rest, events)
        return events

    def _read_block(self, block: bytes, events: list[SseEvent]) -> None:
        """The event that the lines of a block make, if they hold data."""
        name, bare = b"", self.bare
        data: list[bytes] = []
        for line in block.split(b"\n"):
            if line.startswith(b"data:"):
                data.append(line[6:] if line[5:6] == b" " else line[5:])
            elif line.startswith(b"event:"):
                name = line[6:].strip()
            elif line == b"data":
                data.append(b"")
            else:
                is_bare = (bare and line[:1] != b":") or line.startswith((b"{", b"["))
                if is_bare and len(bare) < MAX_BARE:
                    bare += line[:MAX_BARE] + b"\n"
                continue
            bare.clear()
        if data:
            events.append(SseEvent(name, data[0] if len(data) == 1 else b"\n".join(data)))

    def _cleaned(self, data: bytes) -> bytes:
        """The data with LF at the end of every line and without a byte order mark."""
        data, self._held = self._held + data, b""
        if self._is_first:
            if len(data) < 3 and _MARK.startswith(data):
                self._held = data
                return b""
            data = data.removeprefix(_MARK)
            self._is_first = False
        if data.endswith(b"\r"):
            self._held = b"\r"
            data = data[:-1]
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n") if b"\r" in data else data


_MARK = b"\xef\xbb\xbf"
