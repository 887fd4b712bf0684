"""Parses an HTTP/1.1 response from bytes that may be cut anywhere: `read_head`, then a `MessageBody` for the rest.

A length, chunks or the end of the connection mark the end of a body. A response that marks it in two ways, or in an unknown way,
is a `MalformedResponse`: two readers that disagree about the end would take the rest for the next response. Compressed bodies are
decompressed within limits. No I/O here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec import Struct

from antiphon.providers.transport.decompress import Decompressor, MalformedBody

MAX_HEAD_BYTES = 64 * 1024
_MAX_CHUNK_LINE = 1024
_status = re.compile(rb"HTTP/1\.([01]) ([1-9][0-9][0-9])(?: [^\r\n]*)?\r\n").match
_is_name = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+").fullmatch
_chunk = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\r\n]*)?\r\n").match


class MalformedResponse(Exception):
    """The bytes are not a valid response. The message has the reason, without quoting them."""


class Head(Struct, frozen=True):
    """A response head and its size in bytes. Header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    keep_alive: bool
    """Whether the host accepts another request on the connection."""
    size: int


def read_head(data: bytes) -> Head | None:
    """The head at the start of `data`, after skipping 1xx responses; None if it is incomplete."""
    start = 0
    while True:
        end = data.find(b"\r\n\r\n", start, start + MAX_HEAD_BYTES + 4)
        if end < 0:
            if len(data) - start > MAX_HEAD_BYTES:
                raise MalformedResponse("the headers are too long")
            return None
        found = _status(data, start)
        if found is None:
            raise MalformedResponse("the status line is invalid")
        version, status = found.groups()
        if status >= b"200":
            break
        start = end + 4
    headers: dict[str, str] = {}
    if found.end() < end:
        for line in data[found.end() : end].decode("utf-8", "surrogateescape").split("\r\n"):
            name, colon, value = line.partition(":")
            if not colon or not _is_name(name):
                raise MalformedResponse("a header has an invalid name")
            name = name.lower()
            headers[name] = f"{headers[name]}, {value.strip()}" if name in headers else value.strip()
    connection = headers.get("connection", "").lower()
    return Head(
        int(status), headers, "close" not in connection if version == b"1" else "keep-alive" in connection, end + 4
    )


class MessageBody:
    """The body after a head. `is_over` after its last byte, `is_overfull` if more bytes follow."""

    def __init__(self, head: Head) -> None:
        headers = head.headers
        coding, length = headers.get("transfer-encoding"), headers.get("content-length")
        self.is_over = self.is_overfull = self.ends_with_connection = False
        self._decompressor: Decompressor | None = None
        self._is_chunked = False
        self._left = 0  # of the body, or of a chunk
        self._is_between = False  # after a chunk, before its line break
        self._rest = b""  # not yet parsed
        if (coding_name := headers.get("content-encoding", "").lower()) not in ("", "identity"):
            try:
                self._decompressor = Decompressor(coding_name)
            except MalformedBody as error:
                raise MalformedResponse(str(error)) from None
        if head.status in (204, 304):
            self.is_over = True
        elif coding is not None:
            if coding.lower() != "chunked" or length is not None:
                raise MalformedResponse("the transfer encoding is not supported")
            self._is_chunked = True
        elif length is not None:
            if not (length.isascii() and length.isdecimal()) or len(length) > 15:
                raise MalformedResponse("the content length is invalid")
            self._left = int(length)
            self.is_over = not self._left
        else:
            self.ends_with_connection = True

    def feed(self, data: bytes) -> bytes:
        """The content of these bytes. Raises `MalformedResponse`."""
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
        """The last byte was read, or the connection that ends the body ended. Raises `MalformedResponse`."""
        if self._decompressor is not None:
            try:
                self._decompressor.close()
            except MalformedBody as error:
                raise MalformedResponse(str(error)) from None

    def _decompressed(self, data: bytes, decompressor: Decompressor) -> bytes:
        try:
            data = decompressor.feed(data)
        except MalformedBody as error:
            raise MalformedResponse(str(error)) from None
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
                    raise MalformedResponse("a chunk does not end where it should")
                at += 2
                self._is_between = False
            found = _chunk(data, at)
            if found is None:
                if size - at > _MAX_CHUNK_LINE or data.find(b"\n", at) >= 0:
                    raise MalformedResponse("the size of a chunk is invalid")
                break
            left = int(found[1], 16)
            if not left:
                at = self._end_of_trailers(data, at, found.end())
                break
            at = found.end()
        self._left = left
        self._rest = data[at:]
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _end_of_trailers(self, data: bytes, at: int, start: int) -> int:
        """The position after the last chunk and its trailers; `at` if they are incomplete."""
        end = start if data.startswith(b"\r\n", start) else data.find(b"\r\n\r\n", start) + 2
        if end < start:
            if len(data) - at > MAX_HEAD_BYTES:
                raise MalformedResponse("the trailers are too long")
            return at
        self.is_over, self.is_overfull = True, end + 2 < len(data)
        return len(data)
