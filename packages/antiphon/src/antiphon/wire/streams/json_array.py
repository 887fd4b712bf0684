"""The JSON objects of a stream, from bytes that may be cut anywhere.

With `alt=sse` a stream is server-sent events; without it, one growing JSON array. The first byte that is not white space
decides: `[` or `{` starts JSON, anything else events. In the array an object ends where its braces close: one on several lines
is found by its last line, another complete one by one match, any other string by string. No byte is scanned more than a few
times. An array without its closing bracket was cut.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec

from antiphon.json_text import NOT_JSON
from antiphon.wire.streams.sse import MAX_EVENT, SseEvent, SseOverflow, SseReader

_BOM = b"\xef\xbb\xbf"
_SPACE = b" \t\r\n"
_BETWEEN = re.compile(rb"[\s,]*+")
_TO_BRACE = re.compile(rb'[^"{}]*+(?:"[^"\\]*+(?:\\.[^"\\]*+)*+"[^"{}]*+)*+', re.DOTALL)
_MAX_DEPTH = 8  # levels of an object skipped in one match; text chunks have four


def _object_pattern(levels: int) -> bytes:
    """An object with at most `levels` levels of objects in it; possessive, so that a mismatch is linear too."""
    inner = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"' + (b"|" + _object_pattern(levels - 1) if levels else b"")
    return rb'\{[^"{}]*+(?:(?:' + inner + rb')[^"{}]*+)*+\}'


_NEXT_OBJECT = re.compile(rb"[\s,]*+(" + _object_pattern(_MAX_DEPTH) + rb")", re.DOTALL)
_LAST_LINE = b"\n}"
_skip_value = msgspec.json.Decoder(msgspec.Raw).decode
_TO_QUOTE = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)
_BRACE = re.compile(r'\\.|["{}]', re.DOTALL)
_BROKEN = SseEvent(b"", b"}")
"""What cannot be read: the array holds something else than objects, and nothing more of it is looked at."""
_OPEN, _CLOSE, _QUOTE, _ARRAY, _ARRAY_END = b'{}"[]'


class JsonStreamReader:
    """Feed bytes, get the JSON objects they complete, each as an event."""

    def __init__(self) -> None:
        self._kind: SseReader | _ArrayReader | None = None
        self._held = b""
        self.feed: Callable[[bytes], list[SseEvent]] = self._begin
        """Raises `SseOverflow` if an object exceeds the limit."""

    def _begin(self, data: bytes) -> list[SseEvent]:
        """Decide by the first byte what the stream is; the reader of that gets all others."""
        data = self._held + data
        unmarked = data.removeprefix(_BOM)
        start = unmarked.lstrip(_SPACE)
        if not start or _BOM.startswith(start):
            blanks = unmarked[: len(unmarked) - len(start)]  # the last one is enough
            self._held = data[: len(data) - len(unmarked)] + blanks[-1:] + start
            return []
        is_json = start[0] in (_ARRAY, _OPEN)
        self._kind = _ArrayReader() if is_json else SseReader()
        self.feed = self._kind.feed
        return self.feed(start if is_json else data)

    def close(self) -> list[SseEvent]:
        """The objects that waited for a missing line end."""
        return [] if self._kind is None else self._kind.close()

    @property
    def is_complete(self) -> bool:
        """Whether the stream ended where it may end."""
        return self._kind.is_complete if isinstance(self._kind, _ArrayReader) else True

    @property
    def rest(self) -> bytes:
        """The bare JSON after the last event, which is a failing server's error."""
        return bytes(self._kind.bare) if isinstance(self._kind, SseReader) else b""


class _ArrayReader:
    """The objects of a JSON array, or a single object."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._at = 0
        self._depth = 0
        self._is_in_string = False
        self._is_array: bool | None = None
        self._is_closed = False
        self._is_broken = False

    @property
    def is_complete(self) -> bool:
        return self._depth == 0 and (self._is_closed or not self._is_array)

    def feed(self, data: bytes) -> list[SseEvent]:
        has_ended = self._is_closed or self._is_broken
        if has_ended:
            return []
        buffer = self._buffer
        buffer += data
        if self._is_array is None:
            self._is_array = buffer[0] == _ARRAY
            self._at = 1 if self._is_array else 0
        found: list[SseEvent] = []
        start, has_lines = 0, True
        while True:
            if not self._depth:
                if has_lines:  # once: an array is written in one way
                    self._take_by_lines(found)
                    start, has_lines = self._at, False
                whole = _NEXT_OBJECT.match(buffer, self._at)
                if whole is not None:
                    found.append(SseEvent(b"", whole[1]))
                    start = self._at = whole.end()
                    continue
                if not self._next_object():
                    break
                start = self._at
            if not self._scan_to_end():
                break
            found.append(SseEvent(b"", bytes(buffer[start : self._at])))
            start = self._at
        del buffer[:start]
        self._at -= start
        if len(buffer) > MAX_EVENT:
            raise SseOverflow
        if self._is_broken:
            found.append(_BROKEN)
        return found

    def close(self) -> list[SseEvent]:
        """Nothing: an object ends with its brace."""
        return []

    def _take_by_lines(self, found: list[SseEvent]) -> None:
        """Take the next objects as long as they are on several lines, as Google writes them: up to a line of one brace."""
        *pieces, _ = bytes(self._buffer[self._at :]).split(_LAST_LINE)
        for piece in pieces:
            whole = piece.lstrip(b" \t\r\n,") + _LAST_LINE
            try:
                _skip_value(whole)
            except NOT_JSON:
                return
            found.append(SseEvent(b"", whole))
            self._at += len(piece) + len(_LAST_LINE)

    def _next_object(self) -> bool:
        """Move to the next object; False if it has not arrived."""
        buffer = self._buffer
        match = _BETWEEN.match(buffer, self._at)
        at = self._at = match.end() if match else self._at
        if at == len(buffer) or self._is_closed or self._is_broken:
            return False
        if buffer[at] == _ARRAY_END and self._is_array:
            self._is_closed = True
            self._at = len(buffer)
            return False
        self._is_broken = buffer[at] != _OPEN
        return not self._is_broken

    def _scan_to_end(self) -> bool:
        """Move past the brace that closes the object; False if it has not arrived."""
        buffer, at, size = self._buffer, self._at, len(self._buffer)
        while at < size:
            if self._is_in_string:
                at = _end(_TO_QUOTE, buffer, at)
                if at == size or buffer[at] != _QUOTE:
                    break  # the string or an escape was cut
                at += 1
                self._is_in_string = False
            at = _end(_TO_BRACE, buffer, at)
            if at == size:
                break
            byte = buffer[at]
            at += 1
            if byte == _QUOTE:
                self._is_in_string = True
            elif byte == _OPEN:
                self._depth += 1
            else:
                self._depth -= 1
                if self._depth == 0:
                    self._at = at
                    return True
        self._at = at
        return False


def _end(pattern: re.Pattern[bytes], buffer: bytearray, at: int) -> int:
    match = pattern.match(buffer, at)
    return match.end() if match else at


class ObjectBraces(msgspec.Struct):
    """The braces of an object that comes in pieces of text; each piece is looked at once."""

    read: int = 0
    depth: int = 0
    is_in_string: bool = False
    is_escaped: bool = False

    def are_closed(self, pieces: list[str]) -> bool:
        """Whether the first brace is closed, or can never be."""
        while self.read < len(pieces):
            self.read += 1
            if self._are_closed_in(pieces[self.read - 1]):
                return True
        return False

    def _are_closed_in(self, piece: str) -> bool:
        start = 1 if self.is_escaped else 0
        for match in _BRACE.finditer(piece, start):
            found = match[0]
            if found == '"':
                self.is_in_string = not self.is_in_string
            elif found[0] != "\\" and not self.is_in_string:
                self.depth += 1 if found == "{" else -1
                if self.depth <= 0:
                    return True
        rest = piece[start:]
        self.is_escaped = (len(rest) - len(rest.rstrip("\\"))) % 2 == 1
        return False
