"""`Decompressor`: the body of a response without its content encoding, piece by piece and bounded.

Answers are asked for uncompressed; some hosts and proxies compress them all the same. A gzip body may have several members, one
after the other; all of them are read. How far a body may grow is bounded for each piece and for the whole, and one that ends in
the middle of a member is malformed.
"""

from __future__ import annotations

import zlib

MAX_PIECE = 64 * 1024 * 1024
MAX_TOTAL = 256 * 1024 * 1024
_GZIP_OR_ZLIB, _GZIP = 47, 31  # zlib's numbers for how a member begins


class MalformedBody(Exception):
    """The bytes are not what their content encoding says, or too many. The message says which."""


class Decompressor:
    """Compressed bytes in, bytes out. Raises `MalformedBody`."""

    def __init__(self, coding: str, max_total: int = MAX_TOTAL) -> None:
        self._is_identity = coding in ("", "identity")
        if not self._is_identity and coding not in ("gzip", "x-gzip", "deflate"):
            raise MalformedBody(f"content encoding {coding[:40]!r} is not supported")
        self._is_gzip = coding != "deflate"
        self._member: zlib._Decompress | None = None
        self._has_members = False
        self._left = max_total

    def feed(self, data: bytes) -> bytes:
        """What these bytes hold."""
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
                    raise MalformedBody("there are bytes after the compressed body")
                self._member = zlib.decompressobj(_GZIP if self._has_members else _GZIP_OR_ZLIB)
            try:
                piece = self._member.decompress(data, room + 1)
            except zlib.error:
                raise MalformedBody("the compressed body is damaged") from None
            room -= len(piece)
            if room < 0 or self._member.unconsumed_tail:
                raise MalformedBody("the compressed body grows beyond all bounds")
            self._left -= len(piece)
            pieces.append(piece)
            data = self._member.unused_data
            if self._member.eof:
                self._member, self._has_members = None, True
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def close(self) -> None:
        """The body ended."""
        if self._member is not None:
            raise MalformedBody("the compressed body is cut off")
