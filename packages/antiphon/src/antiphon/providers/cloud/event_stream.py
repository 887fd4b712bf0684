"""`EventStreamDecoder`: the frames of AWS (`application/vnd.amazon.eventstream`), as Bedrock streams them.

A frame is: total length, length of the headers, CRC-32 of both; headers; payload; CRC-32 of everything before. Lengths and CRCs
are 32-bit big-endian. Bytes may be cut anywhere. No I/O here.
"""

from __future__ import annotations

import struct
from zlib import crc32

from msgspec import Struct

from antiphon.errors import TransportError

_PRELUDE = struct.Struct(">III")
_CRC_BYTES = 4
_MAX_HEADER_BYTES = 128 * 1024
_MAX_FRAME_BYTES = 24 * 1024 * 1024
_FIXED_SIZES = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}
"""Bytes of a header value by its type: booleans, integers, a timestamp, a UUID. Types 6 and 7 have a length before."""
_BYTES, _STRING = 6, 7


class EventFrame(Struct, frozen=True):
    """One frame. `headers` has the text headers, which carry the kind of message."""

    headers: dict[str, str]
    payload: bytes


class EventStreamDecoder:
    """Bytes in, frames out."""

    def __init__(self) -> None:
        self._unread = bytearray()

    @property
    def has_partial_frame(self) -> bool:
        """Whether the bytes so far end inside a frame."""
        return bool(self._unread)

    def feed(self, data: bytes) -> list[EventFrame]:
        """The frames that these bytes complete. Raises `TransportError` for bytes that are not frames."""
        unread = self._unread
        unread += data
        frames = []
        while len(unread) >= _PRELUDE.size:
            total, header_bytes, checksum = _PRELUDE.unpack_from(unread)
            if checksum != crc32(unread[:8]):
                raise _damaged("wrong checksum of a frame's start")
            if (
                not _PRELUDE.size + header_bytes + _CRC_BYTES <= total <= _MAX_FRAME_BYTES
                or header_bytes > _MAX_HEADER_BYTES
            ):
                raise _damaged(f"a frame of {total:,} bytes")
            if len(unread) < total:
                break
            frame = bytes(unread[:total])
            del unread[:total]
            if int.from_bytes(frame[-_CRC_BYTES:]) != crc32(frame[:-_CRC_BYTES]):
                raise _damaged("wrong checksum of a frame")
            end = _PRELUDE.size + header_bytes
            frames.append(EventFrame(_headers(frame[_PRELUDE.size : end]), frame[end:-_CRC_BYTES]))
        return frames


def _headers(data: bytes) -> dict[str, str]:
    headers: dict[str, str] = {}
    at = 0
    try:
        while at < len(data):
            size = data[at]
            name = data[at + 1 : at + 1 + size].decode()
            kind = data[at + 1 + size]
            at += 2 + size
            if kind in (_BYTES, _STRING):
                length = int.from_bytes(data[at : at + 2])
                value = data[at + 2 : at + 2 + length]
                if len(value) != length:
                    raise _damaged("a header that is cut off")
                at += 2 + length
                if kind == _STRING:
                    headers[name] = value.decode()
            else:
                at += _FIXED_SIZES[kind]
    except (IndexError, KeyError, UnicodeDecodeError):
        raise _damaged("an unreadable header") from None
    return headers


def _damaged(detail: str) -> TransportError:
    return TransportError(f"malformed event stream: {detail}", "not_http")
