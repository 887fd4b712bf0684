"""Entries to bytes and back.

An entry is stored as one JSON object, its `kind` first. Reading is strict, because a field that is skipped is lost when
the entry is written again: whatever this version does not fully understand (an unknown kind, an unknown field,
a value of another type) becomes an `OpaqueEntry`, which keeps its bytes and gives them back when it is encoded. So that nothing
written here comes back like that, `check_readable` reads an entry before it is appended, and `register_entry` adds kinds of an
application.

`SCHEMA` is the version of the stored form, in the head of every database and export. It grows only when old
readers would misread new files; new kinds and fields do not need it, thanks to the rule above.

A store keeps a checksum of each row beside it, so a bit flipped on the disk is an error and never a different text. In SQLite a
body of `PACK_FROM` bytes or more is stored as a zlib stream where that is smaller. The first byte distinguishes the two: JSON
begins with a brace or white space, a stream with `PACKED_MARK`. The checksum covers the body as it is stored.

Each entry's digest covers its stored bytes and the digest of the entry before it. So the last digest, the head, covers the whole
log: if it was noted elsewhere, it shows later whether an entry was changed, inserted or removed. A fork has the digests of its
parent up to the fork. Large media are covered through the hash by which an entry names them. The chain is the same in every store
and in an export. A program that can write to the store can also write a new chain; only a head kept elsewhere proves more than an
accident.
"""

from __future__ import annotations

import logging
import reprlib
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import reduce
from hashlib import sha256
from operator import attrgetter, or_
from typing import Any, TypeAlias, TypeVar
from zlib import crc32

import msgspec
from msgspec import Struct

from antiphon.errors import InvalidEntry, StoreDamaged
from antiphon.history.entries import HistoryEntry, HistoryEntryKind, KnownEntry, OpaqueEntry
from antiphon.json_text import NOT_JSON

logger = logging.getLogger("antiphon.history")

E = TypeVar("E", bound=HistoryEntry)

SCHEMA = 1

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[HistoryEntry] = msgspec.json.Decoder(KnownEntry)

_encode, _decode_known = _encoder.encode, _decoder.decode

_short = reprlib.Repr()
_short.maxother = 200

_KINDS = frozenset(HistoryEntryKind)
_registered: dict[str, type[HistoryEntry]] = {}
_warned: set[str] = set()


class _Head(Struct):
    kind: str
    sequence_number: int
    timestamp: datetime | None = None


_head_decoder = msgspec.json.Decoder(_Head)

sequence_number_of: Callable[[HistoryEntry], int] = attrgetter("sequence_number")

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
EARLIEST, LATEST = -62_135_596_800_000_000, 253_402_300_799_999_999
"""The first and the last microsecond that is a date: the years 1 to 9999."""

StoredRow: TypeAlias = tuple[int, object, object, object]
"""Sequence number, time (an integer), body (bytes) and checksum (an integer, or None) of an entry. A flipped bit may change the
type of a value: nothing is decoded before the types are checked."""

PACK_FROM = 512
MAX_BODY = 1_000_000_000
"""SQLite stores no more bytes than this in a row; so no stored body has more."""
PACKED_MARK = b"H"
"""The first byte of a zlib stream with this window, and of no JSON."""
_PACKED_BYTE = PACKED_MARK[0]
_SIGN = 1 << 31

# Level 6 saves two bytes in a hundred more and takes half as long again. A window of 4 KiB and small tables cost nothing in
# size at these lengths; `zlib.compress` with its own takes more than twice as long for a KiB.
_LEVEL, _WINDOW, _MEMORY = 1, 12, 5


def encode_entry(entry: HistoryEntry) -> bytes:
    """The stored form of an entry, without a line end."""
    if type(entry) is OpaqueEntry:
        return entry.raw
    try:
        return _encoder.encode(entry)
    except UnicodeEncodeError as error:
        # A lone surrogate cannot be stored, nor sent to any provider; the caller must decide what it should have been.
        raise InvalidEntry(
            f"a {entry.kind} entry holds text that is not Unicode (a lone surrogate at character {error.start} of a "
            "string); replace it before appending"
        ) from error
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidEntry(f"a {entry.kind} entry holds a value that JSON cannot: {error}") from error


def register_entry(kind: type[E]) -> type[E]:
    """Register a kind of entry of your own, so that it is read back as itself: `@register_entry` above the class.

    The class is a frozen subclass of `HistoryEntry`. Its tag has a dot (`tag="acme.directive"`), so that it never meets a kind of
    Antiphon. Every process that reads such entries registers the class. No model sees them. Raises `InvalidEntry`.
    """
    global _decoder
    given: Any = kind
    if not (isinstance(given, type) and issubclass(given, HistoryEntry) and given.__struct_config__.frozen):
        raise InvalidEntry(f"{kind!r} cannot be registered: expected a subclass of HistoryEntry with frozen=True")
    tag = kind.__struct_config__.tag
    if not isinstance(tag, str) or "." not in tag:
        raise InvalidEntry(
            f'{kind.__name__} cannot be registered: its tag {tag!r} has no dot; give it one of your own, tag="acme.{tag}"'
        )
    known = _registered.get(tag)
    if known is not None and (known.__module__, known.__qualname__) != (kind.__module__, kind.__qualname__):
        raise InvalidEntry(f"{kind.__name__} cannot be registered: {known.__qualname__} has the tag {tag!r} already")
    union = reduce(or_, {**_registered, tag: kind}.values(), KnownEntry)
    _decoder = msgspec.json.Decoder(union)
    _registered[tag] = kind
    return kind


def encode_readable(entry: HistoryEntry) -> bytes | None:
    """The stored form of an entry of our own kinds that is read back as what it is; else None, and `check_readable` says why."""
    try:
        stored = _encode(entry)
        return stored if _decode_known(stored) == entry else None
    except Exception:  # whatever is wrong with it, `check_readable` finds it again
        return None


def check_readable(entry: E) -> E:
    """The entry, if it is read back as what it is. Raises `InvalidEntry` for a value of a wrong type.

    A list where a tuple belongs is accepted: the entry that is returned has the tuple. An entry of a kind that is not registered
    passes with a warning.
    """
    if type(entry) is OpaqueEntry:  # it is written as the bytes it came in
        return entry
    stored = encode_entry(entry)
    try:
        read = _decoder.decode(stored)
    except NOT_JSON as error:
        if entry.kind not in _KINDS and entry.kind not in _registered:
            _warn_of_unregistered(entry.kind)
            return entry
        raise _wrong_type(entry, error) from error
    if read == entry:
        return entry
    if type(read) is not type(entry):
        raise InvalidEntry(
            f"{type(entry).__name__} cannot be appended: entries of the kind {entry.kind!r} are read as {type(read).__name__}"
        )
    if problem := _difference(entry, read, ""):
        raise _wrong_type(entry, problem)
    return read


def _wrong_type(entry: HistoryEntry, problem: object) -> InvalidEntry:
    shown = _short.repr(entry)
    return InvalidEntry(f"a {entry.kind} entry has a value of a wrong type: {problem}. Nothing was written: {shown}")


def _difference(given: Any, read: Any, path: str) -> str:
    """Where a value would be read back as another one. Free-form JSON (a dict) is not looked into."""
    if isinstance(given, Struct) and type(given) is type(read):
        names = given.__struct_fields__
        found = (_difference(getattr(given, name), getattr(read, name), f"{path}.{name}") for name in names)
    elif isinstance(given, list | tuple) and isinstance(read, tuple):
        pairs = enumerate(zip(given, read, strict=True))
        found = (_difference(one, other, f"{path}[{index}]") for index, (one, other) in pairs)
    elif given == read or (isinstance(given, dict) and isinstance(read, dict)):
        return ""
    else:
        hint = "; media are base64 text: base64.b64encode(data).decode()" if isinstance(given, bytes) else ""
        expected, got = type(read).__name__, type(given).__name__
        return f"{path.removeprefix('.')} is {got} and would be read back as {expected}{hint}"
    return next(filter(None, found), "")


def _warn_of_unregistered(kind: str) -> None:
    if kind not in _warned:
        _warned.add(kind)
        logger.warning(
            "entries of the kind %r are read back as OpaqueEntry, and no model sees them: register the class with "
            "antiphon.history.register_entry, or upgrade if a newer version wrote them",
            kind,
        )


def decode_entry(stored: bytes) -> HistoryEntry:
    """The entry `stored` holds; an `OpaqueEntry` if a newer version wrote it. Raises `StoreDamaged` if it is not an entry."""
    try:
        return _decoder.decode(stored)
    except NOT_JSON as error:
        return _decode_opaque(stored, error)


def _decode_opaque(stored: bytes, problem: Exception) -> OpaqueEntry:
    try:
        head = _head_decoder.decode(stored)
    except NOT_JSON as error:
        raise StoreDamaged(f"not an entry: {error}") from error
    if head.kind not in _KINDS:
        _warn_of_unregistered(head.kind)
    return OpaqueEntry(
        head.kind,
        bytes(stored),
        str(problem),
        sequence_number=head.sequence_number,
        timestamp=head.timestamp,
    )


_NOTHING_HASHED = sha256()
FIRST_DIGEST = bytes(32)
"""The digest before the first entry."""


def entry_digest(previous: bytes, stored: bytes) -> bytes:
    """The digest of an entry with these stored bytes, after the one with the digest `previous`."""
    digest = _NOTHING_HASHED.copy()  # a third less than a new one, for which OpenSSL looks the algorithm up
    digest.update(previous + stored)
    return digest.digest()


def chain(bodies: Iterable[bytes], previous: bytes = FIRST_DIGEST) -> Iterator[bytes]:
    """The digests of entries that follow each other."""
    for body in bodies:
        previous = entry_digest(previous, body)
        yield previous


def head_of(bodies: Iterable[bytes]) -> bytes:
    """The digest of the last of a conversation's entries."""
    head = FIRST_DIGEST
    for digest in chain(bodies):
        head = digest
    return head


def to_microseconds(at: datetime | None) -> int:
    """A time in microseconds since 1970; one without a zone is UTC, and 0 means none."""
    if at is None:
        return 0
    since = (at if at.tzinfo is not None else at.replace(tzinfo=UTC)) - EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def from_microseconds(microseconds: int) -> datetime:
    return EPOCH + microseconds * MICROSECOND


def pack(body: bytes) -> bytes:
    """The body as SQLite stores it."""
    if not PACK_FROM <= len(body) <= MAX_BODY:
        return body
    deflating = zlib.compressobj(_LEVEL, zlib.DEFLATED, _WINDOW, _MEMORY)
    deflated = deflating.compress(body) + deflating.flush()
    return deflated if len(deflated) < len(body) else body


def unpack(stream: bytes, largest: int = MAX_BODY) -> bytes:
    """The body in a zlib stream. Raises `StoreDamaged` if the stream is incomplete, or larger than any body."""
    inflating = zlib.decompressobj(_WINDOW)
    try:
        body = inflating.decompress(stream, largest)
    except zlib.error as error:
        raise StoreDamaged(f"it cannot be inflated: {error}") from error
    if not inflating.eof or inflating.unused_data:
        raise StoreDamaged(f"it does not end where a body of at most {largest:,} bytes must")
    return body


def row_checksum(sequence_number: int, at: int, stored: bytes) -> int:
    """The CRC-32 of a body as it is stored, begun with the row's sequence number and time in microseconds.

    A bit of either that flips changes where the CRC begins, and so where it ends. Shifted to a signed integer of 32 bits,
    which both databases store in four bytes.
    """
    return crc32(stored, (sequence_number ^ at ^ at >> 32) & 0xFFFFFFFF) - _SIGN


def row_body(row: StoredRow, *, decodes_unchecked: bool = True) -> bytes:
    """The body that was stored. Raises `StoreDamaged` if the row is not what was written.

    A body without a checksum (an earlier version wrote it) must at least be an entry; `decodes_unchecked` checks that.
    """
    sequence_number, at, stored, checksum = row
    if not isinstance(stored, bytes):
        raise StoreDamaged("its body is not a blob")
    if not isinstance(at, int):
        raise StoreDamaged("its time is not an integer")
    if not EARLIEST <= at <= LATEST:
        raise StoreDamaged(f"its time is out of range: {at}")
    if checksum is not None and (
        not isinstance(checksum, int) or checksum != row_checksum(sequence_number, at, stored)
    ):
        raise StoreDamaged("it does not match its checksum")
    body = unpack(stored) if stored[:1] == PACKED_MARK else stored
    if checksum is None and decodes_unchecked:
        decode_row(sequence_number, body)
    return body


def row_entry(row: StoredRow) -> HistoryEntry:
    """The entry that was stored. Raises `StoreDamaged` if the row is not what was written."""
    return decode_row(row[0], row_body(row, decodes_unchecked=False))


def decode_row(sequence_number: int, body: bytes) -> HistoryEntry:
    """The entry in the row of that number. Raises `StoreDamaged` if it is not an entry, or another one."""
    try:
        entry: HistoryEntry = _decoder.decode(body)
    except NOT_JSON as error:
        entry = _decode_opaque(body, error)
    if entry.sequence_number != sequence_number:
        raise StoreDamaged(f"its body is that of entry {entry.sequence_number}")
    return entry


def decode_rows(rows: Sequence[StoredRow], first: int) -> tuple[Sequence[bytes], Sequence[HistoryEntry]] | None:
    """The bodies and the entries of the rows from number `first` on; None if something is wrong with one of them.

    These are the checks of `row_body` and `decode_row`, on whole columns: half the time for a long conversation. Those find
    out what is wrong, and also read rows without a checksum and entries of a newer version.
    """
    numbers, times, stored, checksums = zip(*rows, strict=True)
    if numbers != tuple(range(first, first + len(rows))):
        return None
    try:
        if min(times) < EARLIEST or max(times) > LATEST:
            return None
        # As `row_checksum`: `crc32` takes its second argument modulo 2**32, and neither it nor `>>` takes a wrong type.
        expected = tuple([crc32(body, number ^ at ^ at >> 32) - _SIGN for number, at, body, _ in rows])  # type: ignore[operator, arg-type]
        if checksums != expected or {*map(type, checksums)} != {int}:
            return None
        bodies = [unpack(body) if body[0] == _PACKED_BYTE else body for body in stored]
        entries: list[HistoryEntry] = [*map(_decoder.decode, bodies)]
    except (StoreDamaged, TypeError, IndexError, *NOT_JSON):
        return None
    return (bodies, entries) if tuple(map(sequence_number_of, entries)) == numbers else None


def damaged_entry(place: str, sequence_number: int, conversation: str, problem: object) -> StoreDamaged:
    """The error for an entry that cannot be read: it names the store, the entry and the conversation."""
    return StoreDamaged(f"{place}: entry {sequence_number} of conversation {conversation} is damaged: {problem}")
