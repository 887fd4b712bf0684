"""The body of an entry in its row: the JSON itself, or the same deflated where that is smaller.

Rows of some hundred bytes fill the pages of a file badly, and people and models say much more than once. So a body of `SMALLEST`
bytes or more is kept as a zlib stream. Its first byte tells the two apart: JSON begins with a brace or with white space, and a
stream with `MARK`. The stream ends with a checksum, so a byte that was changed on the disk is noticed before anybody reads it
as words.

A window of 4 KiB instead of 32 and small tables cost nothing in size at these lengths, and are set up in no time: `zlib.compress`
with its own takes more than twice as long for a KiB.
"""

from __future__ import annotations

import zlib

from antiphon.errors import StoreDamaged
from antiphon.history.codec import decode_entry
from antiphon.history.entries import HistoryEntry

SMALLEST = 512
LARGEST = 1_000_000_000
"""SQLite holds no more bytes than this in a row; so no body that was ever stored has more."""
MARK = b"H"
"""The first byte of a zlib stream with this window, and of no JSON."""

_LEVEL = 1  # level 6 saves two bytes in a hundred more, and takes half as long again
_WINDOW = 12
_TABLES = 5


def packed(body: bytes) -> bytes:
    """The body as it is stored."""
    if not SMALLEST <= len(body) <= LARGEST:
        return body
    deflating = zlib.compressobj(_LEVEL, zlib.DEFLATED, _WINDOW, _TABLES)
    deflated = deflating.compress(body) + deflating.flush()
    return deflated if len(deflated) < len(body) else body


def unpacked(stored: bytes) -> bytes:
    """The body that was stored. Raises `StoreDamaged` if it cannot be had."""
    return inflated(stored) if stored[:1] == MARK else stored


def entry_of(stored: bytes) -> HistoryEntry:
    """The entry whose body was stored. Raises `StoreDamaged` if it is none."""
    return decode_entry(inflated(stored) if stored[:1] == MARK else stored)


def inflated(stream: bytes, largest: int = LARGEST) -> bytes:
    """What was deflated. Raises `StoreDamaged` if it is not whole, or would be larger than any body is."""
    inflating = zlib.decompressobj(_WINDOW)
    try:
        body = inflating.decompress(stream, largest)
    except zlib.error as error:
        raise StoreDamaged(f"it cannot be inflated: {error}") from error
    if not inflating.eof or inflating.unused_data:
        raise StoreDamaged(f"it does not end where a body of at most {largest:,} bytes must")
    return body
