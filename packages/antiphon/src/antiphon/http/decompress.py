"""`Decompressor`: removes the content encoding of a body, piece by piece and with limits.

Clients may send gzip, deflate or zstd. Responses are requested uncompressed; some hosts and proxies compress them anyway. A body
of gzip or zstd may have several members (zstd: frames). The size is limited per piece and in total, and a body that ends inside
a member is malformed. zstd is in Python's library from 3.14 on; before, its backport is the extra `zstd`.
"""

from __future__ import annotations

import importlib
import zlib
from functools import cache
from typing import Any, Protocol

MAX_PIECE = 64 * 1024 * 1024
MAX_TOTAL = 256 * 1024 * 1024
_GZIP_OR_ZLIB, _GZIP = 47, 31  # zlib's codes for the header of a member
_ZSTD_WINDOW_LOG = 23
"""8 MiB: what every decoder of HTTP content must have at most (RFC 9659)."""


class Malformed(Exception):
    """The bytes are not a valid message, or not of their content encoding. The message has the reason, without quoting them."""


class BodyTooLarge(Malformed):
    """The content is larger than allowed."""


class _Member(Protocol):
    """One compressed stream. `unused_data` is what follows its end."""

    def decompress(self, data: bytes, max_length: int) -> bytes: ...
    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...


class Decompressor:
    """Compressed bytes in, content out. Raises `Malformed`."""

    def __init__(self, coding: str, max_total: int = MAX_TOTAL) -> None:
        self._is_identity = coding in ("", "identity")
        if not self._is_identity and coding not in ("gzip", "x-gzip", "deflate", "zstd"):
            raise Malformed(f"content encoding {coding[:40]!r} is not supported")
        self._has_several = coding != "deflate"
        self._zstd = _load_zstd() if coding == "zstd" else None
        self._error: type[Exception] = zlib.error if self._zstd is None else self._zstd.ZstdError
        self._member: _Member | None = None
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
                if self._has_members and not self._has_several:
                    raise Malformed("unexpected bytes after the compressed body")
                self._member = self._open_member()
            try:
                piece = self._member.decompress(data, room + 1)
            except self._error:
                raise Malformed("the compressed body is damaged") from None
            room -= len(piece)
            if room < 0:
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
            raise Malformed("the compressed body is truncated")

    def _open_member(self) -> _Member:
        if self._zstd is None:
            return zlib.decompressobj(_GZIP if self._has_members else _GZIP_OR_ZLIB)
        limit = {self._zstd.DecompressionParameter.window_log_max: _ZSTD_WINDOW_LOG}
        member: _Member = self._zstd.ZstdDecompressor(options=limit)
        return member


@cache
def _load_zstd() -> Any:
    for name in ("compression.zstd", "backports.zstd"):
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    raise Malformed("content encoding 'zstd' needs a package: pip install 'antiphon[zstd]'")
