"""Entries to bytes and back.

An entry is stored as one JSON object, its `kind` first. Reading is strict, because a field that is read past is a field that
is lost when the entry is written again: whatever this version does not fully understand (an unknown kind, an unknown field,
a value of another type) becomes an `OpaqueEntry`, which keeps its bytes and gives them back when it is encoded.

`SCHEMA` is the version of the stored form: it stands in the head of every database and export. It grows only when old
readers would misread new files; new kinds and fields do not need it, thanks to the rule above.

A store keeps a checksum of each row beside it, so a bit that flipped on the disk is an error and never another text.
"""

from __future__ import annotations

import zlib
from datetime import UTC, datetime, timedelta

import msgspec
from msgspec import Struct

from antiphon.errors import NotAppendable, StoreDamaged
from antiphon.history.entries import HistoryEntry, KnownEntry, OpaqueEntry

SCHEMA = 1

_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[KnownEntry] = msgspec.json.Decoder(KnownEntry)


class _Head(Struct):
    kind: str
    sequence_number: int
    timestamp: datetime | None = None


_head_decoder = msgspec.json.Decoder(_Head)

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)


def encode_entry(entry: HistoryEntry) -> bytes:
    """The stored form of an entry, without a line end."""
    if type(entry) is OpaqueEntry:
        return entry.raw
    try:
        return _encoder.encode(entry)
    except UnicodeEncodeError as error:
        # A lone surrogate cannot be stored, nor sent to any provider; the caller must decide what it should have been.
        raise NotAppendable(
            f"a {entry.kind} entry holds text that is not Unicode (a lone surrogate at character {error.start} of a "
            "string); replace it before appending"
        ) from error
    except (TypeError, ValueError, RecursionError) as error:
        raise NotAppendable(f"a {entry.kind} entry holds a value that JSON cannot: {error}") from error


def decode_entry(stored: bytes) -> HistoryEntry:
    """The entry `stored` holds; an `OpaqueEntry` if a newer version wrote it. Raises `StoreDamaged` if it is no entry."""
    try:
        return _decoder.decode(stored)
    except _UNREADABLE as error:
        return _decode_opaque(stored, error)


def _decode_opaque(stored: bytes, problem: Exception) -> OpaqueEntry:
    try:
        head = _head_decoder.decode(stored)
    except _UNREADABLE as error:
        raise StoreDamaged(f"not an entry: {error}") from error
    return OpaqueEntry(
        head.kind,
        bytes(stored),
        str(problem),
        sequence_number=head.sequence_number,
        timestamp=head.timestamp,
    )


def microseconds(at: datetime | None) -> int:
    """A time in microseconds since 1970; one without a zone is UTC, and 0 stands for none."""
    return 0 if at is None else ((at if at.tzinfo else at.replace(tzinfo=UTC)) - EPOCH) // MICROSECOND


def row_checksum(sequence_number: int, at: int, stored: bytes) -> int:
    """The CRC-32 of a body as it is stored, begun with the row's sequence number and time in microseconds.

    A bit of either that flips changes where the CRC begins, and so where it ends. Shifted to a signed integer of 32 bits,
    which both databases store in four bytes.
    """
    return zlib.crc32(stored, (sequence_number ^ at ^ at >> 32) & 0xFFFFFFFF) - (1 << 31)


def check_row(sequence_number: int, at: int, stored: bytes, checksum: int | None) -> None:
    """Raise `StoreDamaged` if a row is not what was written. Rows of earlier versions have no checksum (None)."""
    if checksum is not None and checksum != row_checksum(sequence_number, at, stored):
        raise StoreDamaged("it does not match its checksum")


def decode_row(sequence_number: int, body: bytes) -> HistoryEntry:
    """The entry in the row of that number. Raises `StoreDamaged` if it is not an entry, or another one."""
    entry = decode_entry(body)
    if entry.sequence_number != sequence_number:
        raise StoreDamaged(f"its body is that of entry {entry.sequence_number}")
    return entry


def damaged_entry(place: str, sequence_number: int, conversation: str, problem: object) -> StoreDamaged:
    """The error for an entry that cannot be read: it names the store, the entry and the conversation."""
    return StoreDamaged(f"{place}: entry {sequence_number} of conversation {conversation} is damaged: {problem}")
