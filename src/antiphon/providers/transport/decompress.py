"""`Decompressor`: removes the content encoding of a response body, piece by piece and with limits.

Responses are requested uncompressed; some hosts and proxies compress them anyway. A gzip body may have several members. The
size is limited per piece and in total, and a body that ends inside a member is malformed.
"""

from __future__ import annotations

import zlib

MAX_PIECE = 64 * 1024 * 1024
MAX_TOTAL = 256 * 1024 * 1024
_GZIP_OR_ZLIB, _GZIP = 47, 31  # zlib's codes for the header of a member


class MalformedBody(Exception):
    """The bytes do not match their content encoding, or are too many. The message has the reason."""


class BodyTooLarge(MalformedBody):
    """The content is larger than allowed."""


class Decompressor:
    """Compressed bytes in, content out. Raises `MalformedBody`."""

    def __init__(self, coding: str, max_total: int = MAX_TOTAL) -> None:
        self._is_identity = coding in ("", "identity")
        if not self._is_identity and coding not in ("gzip", "x-gzip", "deflate"):
            raise MalformedBody(f"content encoding {coding[:40]!r} is not supported")
        self._is_gzip = coding != "deflate"
        self._member: zlib._Decompress | None = None
        self._has_members = False
        self._left = max_total

    def feed(self, data: bytes) -> bytes:
        """The content of these bytes."""
        if self._is_identity:
            return data
        pieces: list[bytes] = []
        room = min(MAX_PIECE, self._left)
        while data:
            if self._member is None:
                data = data.lstrip(b"\0") if self._has_members else data  # padding between members
                if not data:
                    break
                if self._has_members and not self._is_gzip:
                    raise MalformedBody("unexpected bytes after the compressed body")
                self._member = zlib.decompressobj(_GZIP if self._has_members else _GZIP_OR_ZLIB)
            try:
                piece = self._member.decompress(data, room + 1)
            except zlib.error:
                raise MalformedBody("the compressed body is damaged") from None
            room -= len(piece)
            if room < 0 or self._member.unconsumed_tail:
                raise BodyTooLarge("the decompressed body is too large")
            self._left -= len(piece)
            pieces.append(piece)
            data = self._member.unused_data
            if self._member.eof:
                self._member, self._has_members = None, True
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def close(self) -> None:
        """The body ended."""
        if self._member is not None:
            raise MalformedBody("the compressed body is truncated")
