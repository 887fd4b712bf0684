"""`ResponseParser`: one HTTP/1.1 response from bytes that may be cut anywhere, on httptools. No I/O here.

httptools refuses what two readers could understand differently: a length beside chunks, two lengths, signs, spaces before a
colon, bare line feeds, folded headers. It does not limit sizes, accepts other transfer encodings and versions, and cannot report
the end of a connection; that is done here. Compressed content is decompressed within limits. Interim (1xx) responses are
skipped. The parser refers to this object by its callbacks, so it is dropped as soon as the response is complete (`close`).
"""

from __future__ import annotations

import re
from typing import Any

from antiphon.http.decompress import Decompressor, MalformedBody
from antiphon.http.messages import read_fields

MAX_HEAD_BYTES = 64 * 1024
_VERSIONS = ("1.1", "1.0")
_BODILESS = (204, 304)
_find_timeout = re.compile(r"(?:^|[,;\s])timeout\s*=\s*\"?(\d{1,9})", re.IGNORECASE).search


class MalformedResponse(Exception):
    """The bytes are not a valid response. The message has the reason, without quoting them."""


class ResponseParser:
    """Feed it the bytes of one response. `headers` has names in lower case and is complete once `has_head`."""

    status = 0
    has_head = False
    is_complete: bool = False
    is_overfull = False
    """Whether bytes followed the response."""
    keeps_alive = False
    """Whether the host accepts another request on the connection."""
    ends_with_connection = False
    _last_piece = 0
    """How many pieces of content this read had when the response was complete; those after it belong to another."""
    _decompressor: Decompressor | None = None
    _problem = ""
    _unchecked = 0
    """Bytes since the last content, this read included."""
    _overhead = 0
    """Bytes since the last content: chunk sizes, trailers."""

    def __init__(self, *, is_for_head: bool = False, decompresses: bool = True) -> None:
        self.headers: dict[str, str] = {}
        self._is_for_head = is_for_head  # the answer to a HEAD request has no body, whatever its headers
        self._decompresses = decompresses
        self._pieces: list[bytes] = []
        self.on_body = self._pieces.append
        self._fields: list[tuple[bytes, bytes]] = []  # of the head, then of the trailers
        self._parser: Any = (_cached_class or _parser_class())(self)

    def feed(self, data: bytes) -> bytes:
        """The content in these bytes. Raises `MalformedResponse`."""
        if self._parser is None:
            self.is_overfull |= bool(data)
            return b""
        if not self._overhead and not self.has_head and data[:1] != b"H":  # httptools also reads RTSP
            raise MalformedResponse("the status line is invalid")
        had_head = self.has_head
        self._unchecked = self._overhead + len(data)
        try:
            self._parser.feed_data(data)
        except _cached_errors as error:
            if not self.is_complete:
                raise MalformedResponse(_reason(error)) from None
            self.is_overfull = True
        if self._problem:
            raise MalformedResponse(self._problem)
        pieces = self._pieces
        if not pieces:
            self._count_overhead(len(data), had_head=had_head)
        elif self._overhead:
            self._overhead = 0
        if self.is_complete:
            self._parser = None  # it refers to this object
            if len(pieces) > self._last_piece:
                self.is_overfull = True
                del pieces[self._last_piece :]
        if not pieces and self._decompressor is None:
            return b""
        content = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.clear()
        return content if self._decompressor is None else self._decompressed(content, self._decompressor)

    def end(self) -> bool:
        """The connection ended; True if the response is complete by that. Raises `MalformedResponse`."""
        if self.is_complete or not self.ends_with_connection:
            return self.is_complete
        self.is_complete = True
        self.close()
        if self._decompressor is not None:
            self._end_decompression(self._decompressor)
        return True

    def close(self) -> None:
        """Drop the parser, which refers to this object."""
        self._parser = None

    @property
    def idle_seconds(self) -> float | None:
        """How long the host keeps the idle connection (`Keep-Alive: timeout`); None if it does not state it."""
        found = _find_timeout(self.headers.get("keep-alive", ""))
        return float(found[1]) if found is not None else None

    # Callbacks of the parser. They must not raise: they record a problem, which `feed` raises.

    def on_message_begin(self) -> None:
        if self.is_complete:
            self.is_overfull = True

    def on_header(self, name: bytes, value: bytes) -> None:
        self._fields.append((name, value))

    def on_headers_complete(self) -> None:
        if self.is_complete:
            return  # bytes after the response
        if self._unchecked > MAX_HEAD_BYTES:
            self._check_size("headers")
        fields, self._fields = self._fields, []
        parser = self._parser
        status, version = parser.get_status_code(), parser.get_http_version()
        if version not in _VERSIONS or not 100 <= status <= 999:
            self._problem = self._problem or "the status line is invalid"
        if status < 200:
            return
        self.headers = headers = read_fields(fields)
        self.status, self.has_head = status, True
        connection = headers.get("connection", "").lower()
        self.keeps_alive = "close" not in connection if version == "1.1" else "keep-alive" in connection
        coding = headers.get("transfer-encoding")
        if status in _BODILESS or self._is_for_head:
            self.is_complete = True
            self.keeps_alive &= not self._is_for_head
        elif coding is not None and coding.lower() != "chunked":
            self._problem = self._problem or "the transfer encoding is not supported"
        elif coding is None and "content-length" not in headers:
            self.ends_with_connection, self.keeps_alive = True, False
        if "content-encoding" in headers and self._decompresses and not self.is_complete:
            packing = headers["content-encoding"].lower()
            try:
                self._decompressor = Decompressor(packing) if packing not in ("", "identity") else None
            except MalformedBody as error:
                self._problem = self._problem or str(error)

    def on_message_complete(self) -> None:
        if self._fields and self._unchecked > MAX_HEAD_BYTES:
            self._check_size("trailers")
        if self.has_head and not self.is_complete:
            self.is_complete = True
            self._last_piece = len(self._pieces)

    def _check_size(self, what: str) -> None:
        """Limit the fields of a head or of the trailers; what came in a few bytes need not be counted."""
        if sum(len(name) + len(value) + 4 for name, value in self._fields) > MAX_HEAD_BYTES:
            self._problem = self._problem or f"the {what} are too long"

    def _count_overhead(self, size: int, *, had_head: bool) -> None:
        """Bytes without content: limited, or a head or a trailer without end would fill the memory."""
        if had_head == self.has_head:
            self._overhead += size
        if self._overhead > MAX_HEAD_BYTES:
            raise MalformedResponse("the trailers are too long" if self.has_head else "the headers are too long")

    def _decompressed(self, data: bytes, decompressor: Decompressor) -> bytes:
        try:
            content = decompressor.feed(data)
        except MalformedBody as error:
            raise MalformedResponse(str(error)) from None
        if self.is_complete:
            self._end_decompression(decompressor)
        return content

    def _end_decompression(self, decompressor: Decompressor) -> None:
        try:
            decompressor.close()
        except MalformedBody as error:
            raise MalformedResponse(str(error)) from None


_cached_class: Any = None
_cached_errors: tuple[type[Exception], ...] = ()


def _parser_class() -> Any:
    """httptools' parser, imported with the first response: commands that make no request need not load it."""
    global _cached_class, _cached_errors
    if _cached_class is None:
        import httptools

        _cached_errors = (httptools.HttpParserError, httptools.HttpParserUpgrade)
        _cached_class = httptools.HttpResponseParser
    return _cached_class


def _reason(error: Exception) -> str:
    """What is wrong, in httptools' fixed words, which quote nothing of the response."""
    if not isinstance(error, _cached_errors[0]):
        return "unexpected switch to another protocol"
    text = str(error)
    return text[:1].lower() + text[1:]
