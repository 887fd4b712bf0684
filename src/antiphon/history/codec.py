"""Entries to bytes and back.

An entry is stored as one JSON object, its `kind` first. Reading is strict, because a field that is read past is a field that
is lost when the entry is written again: whatever this version does not fully understand (an unknown kind, an unknown field,
a value of another type) becomes an `OpaqueEntry`, which keeps its bytes and gives them back when it is encoded.

`SCHEMA` is the version of the stored form: it stands in the head of every database and export. It grows only when old
readers would misread new files; new kinds and fields do not need it, thanks to the rule above.
"""

from __future__ import annotations

from datetime import datetime

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
