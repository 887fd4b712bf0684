"""`ResponseParser`: one HTTP/1.1 response from bytes that may be cut anywhere, on httptools. No I/O here.

httptools refuses what two readers could understand differently: a length beside chunks, two lengths, signs, spaces before a
colon, bare line feeds, folded headers. It does not limit sizes, accepts other transfer encodings and versions, and cannot report
the end of a connection; that is done here. Compressed content is decompressed within limits. Interim (1xx) responses are
skipped. The parser refers to this object by its callbacks, so it is dropped as soon as the response is complete (`close`).
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from antiphon.http.decompress import Decompressor, Malformed
from antiphon.http.messages import BODILESS, MAX_HEAD_BYTES, VERSIONS, read_fields

_find_timeout = re.compile(r"(?:^|[,;\s])timeout\s*=\s*\"?(\d{1,9})", re.IGNORECASE).search


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
    _unfinished = 0
    """Bytes since the head was complete, or since the last content: of a head, of chunk sizes, of trailers."""

    def __init__(self, *, is_for_head: bool = False, decompresses: bool = True) -> None:
        self.headers: dict[str, str] = {}
        self._is_for_head = is_for_head  # the answer to a HEAD request has no body, whatever its headers
        self._decompresses = decompresses
        self._pieces: list[bytes] = []
        self.on_body = self._pieces.append
        self._fields: list[tuple[bytes, bytes]] = []  # of the head, then of the trailers
        self._parser: Any = _httptools().HttpResponseParser(self)

    def feed(self, data: bytes) -> bytes:
        """The content in these bytes. Raises `Malformed`."""
        if self._parser is None:
            self.is_overfull |= bool(data)
            return b""
        had_head = self.has_head
        if not had_head and not self._unfinished and data[:1] != b"H":  # httptools also reads RTSP
            raise Malformed("the status line is invalid")
        self._unfinished += len(data)
        try:
            self._parser.feed_data(data)
        except (_httptools().HttpParserError, _httptools().HttpParserUpgrade) as error:
            if not self.is_complete:
                raise Malformed(_reason(error)) from None
            self.is_overfull = True
        if self._problem:
            raise Malformed(self._problem)
        pieces = self._pieces
        if pieces or had_head is not self.has_head:
            self._unfinished = 0
        elif self._unfinished > MAX_HEAD_BYTES:  # without content: a head or trailers without end would fill the memory
            raise Malformed("the trailers are too long" if had_head else "the headers are too long")
        if self.is_complete:
            self._parser = None  # it refers to this object
            if len(pieces) > self._last_piece:
                self.is_overfull = True
                del pieces[self._last_piece :]
        if not pieces and self._decompressor is None:
            return b""
        content = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.clear()
        if self._decompressor is not None:
            content = self._decompressor.feed(content)
            if self.is_complete:
                self._decompressor.close()
        return content

    def end(self) -> bool:
        """The connection ended; True if the response is complete by that. Raises `Malformed`."""
        if self.is_complete or not self.ends_with_connection:
            return self.is_complete
        self.is_complete = True
        self.close()
        if self._decompressor is not None:
            self._decompressor.close()
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
        if self._unfinished > MAX_HEAD_BYTES:
            self._check_size("headers")
        fields, self._fields = self._fields, []
        parser = self._parser
        status, version = parser.get_status_code(), parser.get_http_version()
        if version not in VERSIONS or not 100 <= status <= 999:
            self._problem = self._problem or "the status line is invalid"
        if status < 200:
            return
        self.headers = headers = read_fields(fields)
        self.status, self.has_head = status, True
        connection = headers.get("connection", "").lower()
        self.keeps_alive = "close" not in connection if version == "1.1" else "keep-alive" in connection
        coding = headers.get("transfer-encoding")
        if status in BODILESS or self._is_for_head:
            self.is_complete = True
            self.keeps_alive &= not self._is_for_head
        elif coding is not None and coding.lower() != "chunked":
            self._problem = self._problem or "the transfer encoding is not supported"
        elif coding is None and "content-length" not in headers:
            self.ends_with_connection, self.keeps_alive = True, False
        if "content-encoding" in headers and self._decompresses and not self.is_complete:
            try:
                self._decompressor = Decompressor(headers["content-encoding"].lower())
            except Malformed as error:
                self._problem = self._problem or str(error)

    def on_message_complete(self) -> None:
        if self._fields and self._unfinished > MAX_HEAD_BYTES:
            self._check_size("trailers")
        if self.has_head and not self.is_complete:
            self.is_complete = True
            self._last_piece = len(self._pieces)

    def _check_size(self, what: str) -> None:
        """Limit the fields of a head or of the trailers; what came in a few bytes need not be counted."""
        if sum(len(name) + len(value) + 4 for name, value in self._fields) > MAX_HEAD_BYTES:
            self._problem = self._problem or f"the {what} are too long"


@cache
def _httptools() -> Any:
    """Imported with the first response: commands that make no request need not load it."""
    import httptools

    return httptools


def _reason(error: Exception) -> str:
    """What is wrong, in httptools' fixed words, which quote nothing of the response."""
    if isinstance(error, _httptools().HttpParserUpgrade):
        return "unexpected switch to another protocol"
    text = str(error)
    return text[:1].lower() + text[1:]
