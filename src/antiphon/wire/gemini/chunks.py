"""The JSON objects of a stream, out of bytes that may be cut anywhere.

With `alt=sse` a stream is server-sent events; without it, one JSON array that grows. The first byte that is not white space
tells which: `[` or `{` begins JSON, anything else events. In the array, an object ends where its braces close. One written on
several lines is told by its last line, one that is there from end to end by one match, and any other is followed string by
string; no byte is looked at more than a few times. An array that was not closed was cut.

Between events a server that fails writes its error as bare JSON, without `data:`; `rest` gives what followed the last event.
"""

from __future__ import annotations

import re

import msgspec

from antiphon.wire.sse import MAX_EVENT, SseOverflow, SseReader

_BOM = b"\xef\xbb\xbf"
_SPACE = b" \t\r\n"
_BETWEEN = re.compile(rb"[\s,]*+")
_TO_BRACE = re.compile(rb'[^"{}]*+(?:"[^"\\]*+(?:\\.[^"\\]*+)*+"[^"{}]*+)*+', re.DOTALL)
_DEEPEST = 8  # of the objects that are passed over in one match: chunks of text have four levels


def _object_pattern(levels: int) -> bytes:
    """An object with at most so many levels of objects in it. Nothing is tried twice, so what does not match costs no more."""
    inner = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"' + (b"|" + _object_pattern(levels - 1) if levels else b"")
    return rb'\{[^"{}]*+(?:(?:' + inner + rb')[^"{}]*+)*+\}'


_LAST_LINE = b"\n}"
_BEFORE = b" \t\r\n,"
_pass_over = msgspec.json.Decoder(msgspec.Raw).decode
_OBJECT = re.compile(_object_pattern(_DEEPEST), re.DOTALL)
_TO_QUOTE = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)
_MARGIN = 8  # bytes before a chunk that tell whether it begins a line
_OPEN, _CLOSE, _QUOTE, _ARRAY, _ARRAY_END = b'{}"[]'


class ChunkReader:
    """Feed bytes, get the bytes of the JSON objects they complete."""

    def __init__(self) -> None:
        self._kind: SseReader | _ArrayReader | None = None
        self._held = b""
        self._behind: list[bytes] = [b"\n"]
        self._tail = b"\n"
        self._is_between = False

    def feed(self, data: bytes) -> list[bytes]:
        """Raises `SseOverflow` if an object grows past all bounds."""
        if self._is_between:
            event = _single_event(data)
            if event is not None:
                self._behind = [data]
                self._tail = b"\n"
                return [event]
        reader = self._kind
        if reader is None:
            data = self._held = self._held + data
            start = data.removeprefix(_BOM).lstrip(_SPACE)
            if not start or _BOM.startswith(start):
                return []
            self._held = b""
            reader = self._kind = _ArrayReader() if start[0] in (_ARRAY, _OPEN) else SseReader()
            if isinstance(reader, _ArrayReader):
                data = start
        if isinstance(reader, _ArrayReader):
            return reader.feed(data)
        events = reader.feed(data)
        if events:
            self._behind = [self._tail]
        self._behind.append(data)
        self._tail = data[-_MARGIN:] if len(data) >= _MARGIN else (self._tail + data)[-_MARGIN:]
        self._is_between = self._tail.endswith((b"\n\n", b"\n\r\n"))
        return [event.data for event in events]

    def close(self) -> list[bytes]:
        """What a missing line kept back."""
        if isinstance(self._kind, SseReader):
            return [event.data for event in self._kind.close()]
        return [] if self._kind is None else self._kind.feed(b"", is_last=True)

    @property
    def is_whole(self) -> bool:
        """Whether the stream ended where it may end."""
        return self._kind.is_whole if isinstance(self._kind, _ArrayReader) else True

    @property
    def is_broken(self) -> bool:
        """Whether something stands where an object should, so that nothing more can be read."""
        return isinstance(self._kind, _ArrayReader) and self._kind.is_broken

    @property
    def rest(self) -> bytes:
        """What stands behind the last event, and is none."""
        behind = b"".join(self._behind).replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        start = behind.rfind(b"\n{")
        return behind[start + 1 :] if start >= 0 and behind.rfind(b"\ndata:") < start else b""


def _single_event(data: bytes) -> bytes | None:
    """The event that `data` is, if it is one and no more, as servers send them: nothing to put together."""
    if data[:6] == b"data: ":
        line = data.find(b"\n")
        if line == len(data) - 3 and data.endswith(b"\r\n\r\n") and data.find(b"\r") == line - 1:
            return data[6:-4]
        if line == len(data) - 2 and data.endswith(b"\n\n") and data.find(b"\r") < 0:
            return data[6:-2]
    return None


class _ArrayReader:
    """The objects of a JSON array, or one that stands alone."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._at = 0
        self._depth = 0
        self._is_in_string = False
        self._is_array: bool | None = None
        self._is_closed = False
        self.is_broken = False

    @property
    def is_whole(self) -> bool:
        return self._depth == 0 and (self._is_closed or not self._is_array)

    def feed(self, data: bytes, *, is_last: bool = False) -> list[bytes]:
        buffer = self._buffer
        buffer += data
        if self._is_array is None:
            self._is_array = buffer[0] == _ARRAY
            self._at = 1 if self._is_array else 0
        found: list[bytes] = []
        start = 0
        has_lines = False if is_last else None  # None: it is not known yet
        while self._depth or self._next_object():
            if not self._depth:
                start = self._at
                if has_lines is None:
                    has_lines = self._take_lines(found)
                    if self._at > start:
                        start = self._at
                        continue
                whole = _OBJECT.match(buffer, start)
                if whole is not None:
                    found.append(whole[0])
                    start = self._at = whole.end()
                    continue
                if has_lines:
                    break  # the last line of this one is still to come, and will tell where it ends
            if not self._to_end():
                break
            found.append(bytes(buffer[start : self._at]))
            start = self._at
        del buffer[:start]
        self._at -= start
        if len(buffer) > MAX_EVENT:
            raise SseOverflow
        return found

    def _take_lines(self, found: list[bytes]) -> bool:
        """Take the objects that are written on several lines, as Google writes them: the last line is a brace alone.

        That it is the last is a guess until the text is known to be JSON; a beginning of an object never is. Returns whether
        there were some, and nothing else.
        """
        *pieces, _ = bytes(self._buffer[self._at :]).split(_LAST_LINE)
        for piece in pieces:
            whole = piece.lstrip(_BEFORE) + _LAST_LINE
            try:
                _pass_over(whole)
            except (msgspec.DecodeError, RecursionError):
                return False
            found.append(whole)
            self._at += len(piece) + len(_LAST_LINE)
        return bool(pieces)

    def _next_object(self) -> bool:
        """Go to the next object; False if it is not there yet."""
        buffer = self._buffer
        match = _BETWEEN.match(buffer, self._at)
        at = self._at = match.end() if match else self._at
        if at == len(buffer) or self._is_closed or self.is_broken:
            return False
        if buffer[at] == _ARRAY_END and self._is_array:
            self._is_closed = True
            self._at = len(buffer)
            return False
        self.is_broken = buffer[at] != _OPEN
        return not self.is_broken

    def _to_end(self) -> bool:
        """Go behind the brace that closes the object; False if it is not there yet."""
        buffer, at, size = self._buffer, self._at, len(self._buffer)
        while at < size:
            if self._is_in_string:
                at = _end(_TO_QUOTE, buffer, at)
                if at == size or buffer[at] != _QUOTE:
                    break  # the string goes on, or an escape was cut
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
