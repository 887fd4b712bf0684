"""The body of an entry in its row: the JSON itself, or the same deflated where that is smaller.

Rows of some hundred bytes fill the pages of a file badly, and people and models say much more than once. So a body of `SMALLEST`
bytes or more is kept as a zlib stream. Its first byte tells the two apart: JSON begins with a brace or with white space, and a
stream with `MARK`. A checksum in the row covers the body as it is stored, so a changed bit is noticed before anything reads it
as text.

A window of 4 KiB instead of 32 and small tables cost nothing in size at these lengths, and are set up in no time: `zlib.compress`
with its own takes more than twice as long for a KiB.
"""

from __future__ import annotations

import zlib

from antiphon.errors import StoreDamaged
from antiphon.history.codec import check_row, decode_row
from antiphon.history.entries import HistoryEntry
from antiphon.history.sqlite.rows import EARLIEST, LATEST, SEQUENCE, StoredRow

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


def body_of(row: StoredRow) -> bytes:
    """The body that was stored. Raises `StoreDamaged` if the row is not what was written."""
    body = _verified(row)
    if row[-1] is None:  # without a checksum, a body that can be decoded is all that can be asked for
        decode_row(row[0] & SEQUENCE, body)
    return body


def entry_of(row: StoredRow) -> HistoryEntry:
    """The entry that was stored. Raises `StoreDamaged` if the row is not what was written."""
    return decode_row(row[0] & SEQUENCE, _verified(row))


def _verified(row: StoredRow) -> bytes:
    key, at, stored, checksum = row
    if stored is None:
        raise StoreDamaged("its body is not a blob")
    if at is None or not EARLIEST <= at <= LATEST:
        raise StoreDamaged(f"its time is {'not an integer' if at is None else f'out of range: {at}'}")
    check_row(key & SEQUENCE, at, stored, checksum)
    return inflated(stored) if stored[:1] == MARK else stored


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
