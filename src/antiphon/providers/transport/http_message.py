"""An answer of HTTP/1.1 out of bytes that may be cut anywhere: `read_head`, then a `MessageBody` for the rest.

Where an answer ends is told by a length, by chunks, or by the end of the connection. One that tells it in two ways, or in a way
that is not understood, is no answer (`NotHttp`): who cannot agree on where an answer ends would read the rest of it as the
next one. A body that is compressed is unpacked, as far as is reasonable. Nothing here opens a socket.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec import Struct

from antiphon.providers.transport.decompress import Decompressor, MalformedBody

LONGEST_HEAD = 64 * 1024
_LONGEST_SIZE = 1024
_status = re.compile(rb"HTTP/1\.([01]) ([1-9][0-9][0-9])(?: [^\r\n]*)?\r\n").match
_is_name = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+").fullmatch
_chunk = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\r\n]*)?\r\n").match


class NotHttp(Exception):
    """The bytes are not a well-formed answer. The message says what is wrong, without quoting them."""


class Head(Struct, frozen=True):
    """The head of an answer, and how many bytes it took. Names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    keeps: bool
    """Whether the host will take another request on the same connection."""
    size: int


def read_head(data: bytes) -> Head | None:
    """The head that `data` begins with, those that only say that another will come passed over; None if it is not whole."""
    start = 0
    while True:
        end = data.find(b"\r\n\r\n", start, start + LONGEST_HEAD + 4)
        if end < 0:
            if len(data) - start > LONGEST_HEAD:
                raise NotHttp("the headers are too long")
            return None
        found = _status(data, start)
        if found is None:
            raise NotHttp("the status line is invalid")
        version, status = found.groups()
        if status >= b"200":
            break
        start = end + 4
    headers: dict[str, str] = {}
    if found.end() < end:
        for line in data[found.end() : end].decode("utf-8", "surrogateescape").split("\r\n"):
            name, colon, value = line.partition(":")
            if not colon or not _is_name(name):
                raise NotHttp("a header has an invalid name")
            name = name.lower()
            headers[name] = f"{headers[name]}, {value.strip()}" if name in headers else value.strip()
    wish = headers.get("connection", "").lower()
    return Head(int(status), headers, "close" not in wish if version == b"1" else "keep-alive" in wish, end + 4)


class MessageBody:
    """The body behind a head. Feed it bytes; `is_over` when the last was read, `is_overfull` if there are more behind it."""

    def __init__(self, head: Head) -> None:
        headers = head.headers
        coding, length = headers.get("transfer-encoding"), headers.get("content-length")
        self.is_over = self.is_overfull = self.ends_with_connection = False
        self._decompressor: Decompressor | None = None
        self._is_chunked = False
        self._left = 0  # of the body, or of a chunk
        self._is_between = False  # behind a chunk, where a line ends
        self._rest = b""  # what cannot be read yet
        if (coding_name := headers.get("content-encoding", "").lower()) not in ("", "identity"):
            try:
                self._decompressor = Decompressor(coding_name)
            except MalformedBody as error:
                raise NotHttp(str(error)) from None
        if head.status in (204, 304):
            self.is_over = True
        elif coding is not None:
            if coding.lower() != "chunked" or length is not None:
                raise NotHttp("the transfer encoding is not understood")
            self._is_chunked = True
        elif length is not None:
            if not (length.isascii() and length.isdecimal()) or len(length) > 15:
                raise NotHttp("the content length is invalid")
            self._left = int(length)
            self.is_over = not self._left
        else:
            self.ends_with_connection = True

    def feed(self, data: bytes) -> bytes:
        """What these bytes say. Raises `NotHttp`."""
        if self.is_over:
            self.is_overfull |= bool(data)
            return b""
        if self._is_chunked:
            data = self._dechunked(data)
        elif not self.ends_with_connection:
            if len(data) > self._left:
                data, self.is_overfull = data[: self._left], True
            self._left -= len(data)
            self.is_over = not self._left
        return data if self._decompressor is None else self._decompressed(data, self._decompressor)

    def end(self) -> None:
        """The last byte was read, or the connection that ends the body ended. Raises `NotHttp`."""
        if self._decompressor is not None:
            try:
                self._decompressor.close()
            except MalformedBody as error:
                raise NotHttp(str(error)) from None

    def _decompressed(self, data: bytes, decompressor: Decompressor) -> bytes:
        try:
            data = decompressor.feed(data)
        except MalformedBody as error:
            raise NotHttp(str(error)) from None
        if self.is_over:
            self.end()
        return data

    def _dechunked(self, data: bytes) -> bytes:
        data = self._rest + data if self._rest else data
        pieces: list[bytes] = []
        at, size, left = 0, len(data), self._left
        while True:
            if left:
                piece = data[at : at + left]
                pieces.append(piece)
                at += len(piece)
                left -= len(piece)
                if left:
                    break
                self._is_between = True
            if self._is_between:
                if size - at < 2:
                    break
                if data[at : at + 2] != b"\r\n":
                    raise NotHttp("a chunk does not end where it should")
                at += 2
                self._is_between = False
            found = _chunk(data, at)
            if found is None:
                if size - at > _LONGEST_SIZE or data.find(b"\n", at) >= 0:
                    raise NotHttp("the size of a chunk is invalid")
                break
            left = int(found[1], 16)
            if not left:
                at = self._ended(data, at, found.end())
                break
            at = found.end()
        self._left = left
        self._rest = data[at:]
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _ended(self, data: bytes, at: int, behind: int) -> int:
        """Behind the last chunk, and the fields there may be; the same place again if they are not all there."""
        end = behind if data.startswith(b"\r\n", behind) else data.find(b"\r\n\r\n", behind) + 2
        if end < behind:
            if len(data) - at > LONGEST_HEAD:
                raise NotHttp("the trailers are too long")
            return at
        self.is_over, self.is_overfull = True, end + 2 < len(data)
        return len(data)
