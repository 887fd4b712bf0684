"""`SqliteStore`: conversations in one SQLite file, the default store.

WAL with synchronous=FULL (see `sqlite_file`): what was written is on the disk, whatever is killed afterwards. The key of an
entry's row is `conversation number << 32 | sequence number`: a conversation is one range of one b-tree, an append is a single
insert, and two writers of one conversation meet in the primary key.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any

import msgspec

from antiphon.errors import StoreDamaged
from antiphon.history.codec import (
    EARLIEST,
    LATEST,
    PACK_FROM,
    StoredRow,
    from_microseconds,
    pack,
    row_checksum,
    to_microseconds,
)
from antiphon.history.entries import HistoryEntry
from antiphon.history.sql.dialect import ROWS_AT_ONCE, Dialect, EntryRow
from antiphon.history.sql.lease_clock import LeaseClock
from antiphon.history.sql.runs import FROM_RUNS, IS_WAITING
from antiphon.history.sql.schema import (
    APPLICATION_ID,
    FILE_SCHEMA,
    SCHEMA_V1,
    SEQUENCE,
    SHIFT,
    SQLITE_MIGRATIONS,
    SQLITE_TOUCH_LAST,
    UNTOUCHED,
)
from antiphon.history.sql.search_index import Fts5Index
from antiphon.history.sql.sqlite_file import SqliteDatabase, SqliteFile
from antiphon.history.sql.store import HistoryStore
from antiphon.history.store import ConversationRow

_MINUTE = 60_000_000  # in microseconds
_APPEND = """
INSERT INTO entries (key, at, body, checksum, digest) SELECT ?, ?, ?, ?, ? FROM conversations
WHERE number = ? AND touched BETWEEN ? AND ? AND {may_write} ON CONFLICT DO NOTHING
"""
_APPEND_FREE = _APPEND.format(may_write="held_until <= ?")
_APPEND_LEASED = _APPEND.format(may_write="epoch = ?")

_READ_ENTRIES = f"SELECT key & {SEQUENCE}, {{}}, {{}}, {{}} FROM entries WHERE key BETWEEN ? AND ? ORDER BY key"
_WITHOUT_TEXT = "CASE typeof({0}) WHEN 'text' THEN 0.5 ELSE {0} END"
"""A column of numbers and blobs, with a value of a wrong type where a flipped bit made text of one: it may not be Unicode."""

_decode_tags = msgspec.json.Decoder(tuple[str, ...]).decode


def _key_range(number: int, first: int, last: int | None = None) -> tuple[int, int]:
    return number << SHIFT | first, number << SHIFT | (SEQUENCE if last is None else last)


class SqliteDialect(SqliteDatabase, Dialect):
    """One SQLite file."""

    select_conversations = f"""
SELECT c.number, c.id, c.title, c.created, c.parent, c.forked_at, c.tags, c.imported, last.key & {SEQUENCE},
    CASE WHEN typeof(last.at) = 'integer' AND last.at BETWEEN {EARLIEST} AND {LATEST} THEN last.at END
FROM conversations c LEFT JOIN entries last ON last.key = (
    SELECT max(key) FROM entries WHERE key > c.number << {SHIFT} AND key < (c.number + 1) << {SHIFT})
"""
    version = f"""(SELECT coalesce(max(key), 0) & {SEQUENCE} FROM entries
    WHERE key > c.number << {SHIFT} AND key < (c.number + 1) << {SHIFT})"""
    entries_of = f"key > :number << {SHIFT} AND key < (:number + 1) << {SHIFT}"
    entry_order = "key"
    entry_at = f"key = :number << {SHIFT} | :sequence"
    index_rows_of = f"rowid > :number << {SHIFT} AND rowid < (:number + 1) << {SHIFT}"
    has_tag = "EXISTS (SELECT 1 FROM json_each(c.tags) WHERE value = :tag)"
    recent_since = f"""
SELECT coalesce((SELECT touched FROM conversations c WHERE touched < {UNTOUCHED} AND {{condition}}
    ORDER BY touched DESC LIMIT 1 OFFSET :last) - {_MINUTE}, -{UNTOUCHED})
"""
    touched_since = "c.touched >= :since"
    touch_last = SQLITE_TOUCH_LAST
    copy_entries = f"""
INSERT INTO entries (key, at, body, checksum, digest)
SELECT key + ((:number - :parent) << {SHIFT}), at, body, checksum, digest
FROM entries WHERE key BETWEEN (:parent << {SHIFT}) + 1 AND (:parent << {SHIFT}) + :entries
"""
    next_run = next_run_locked = f"""
SELECT r.id, r.number, r.provider {FROM_RUNS} JOIN json_each(:kinds) known ON known.key = r.kind
WHERE {IS_WAITING} AND r.due <= :now AND r.code <= known.value AND r.provider NOT IN (SELECT value FROM json_each(:full))
ORDER BY r.due, r.id LIMIT 1
"""

    def __init__(self, file: SqliteFile) -> None:
        super().__init__(file)
        self.clock = LeaseClock(file)
        self._is_settled = False
        self._lease_time = 0
        """The lease time of the last transaction. A lease that was over then is over."""
        self.has_leases = file.schema >= 2
        self.has_touched = file.schema >= 3
        self.has_digests = file.schema >= 5
        self.has_imported = file.schema >= 6
        self.has_inbox = file.schema >= 7
        if not self.has_imported:
            self.select_conversations = self.select_conversations.replace("c.imported", "0")
        columns = ("at", "body", "checksum" if file.schema >= 4 else "NULL")
        self._read_entries = _READ_ENTRIES.format(*columns)
        self._read_damaged_entries = _READ_ENTRIES.format(*map(_WITHOUT_TEXT.format, columns))

    def connection(self) -> AbstractContextManager[sqlite3.Connection]:
        if not self._is_settled:
            self._settle()
        return self.file.writing()

    def _settle(self) -> None:
        self.clock.settle()
        self._is_settled = True

    def transaction(self) -> AbstractContextManager[sqlite3.Connection]:
        self.clock.settle()
        self._lease_time = self.clock.now()
        return self.file.transaction()

    def time(self, name: str, values: Mapping[str, Any]) -> int:
        if name == "now":
            return super().time(name, values)
        if name == "never":
            return 0
        return self.clock.now() + (round(values["seconds"] * 1_000_000) if name == "lease_end" else 0)

    def lock_conversation(self, db: sqlite3.Connection, conversation: str) -> None:
        pass

    def entry_row(self, number: int, entry: HistoryEntry, stored: bytes, digest: bytes) -> EntryRow:
        sequence, at = entry.sequence_number, to_microseconds(entry.timestamp)
        body = pack(stored) if len(stored) >= PACK_FROM else stored
        checksum = row_checksum(sequence, at, body)
        # For `bytes` the driver looks for an adapter every time, which takes longer than to copy them into a `bytearray`.
        return number << SHIFT | sequence, at, bytearray(body), checksum, bytearray(digest)

    def append_entry(self, row: EntryRow, epoch: int | None, db: sqlite3.Connection | None = None) -> bool:
        append, given = (_APPEND_FREE, self._lease_time) if epoch is None else (_APPEND_LEASED, epoch)
        key, at = row[:2]
        values = (*row, key >> SHIFT, at - _MINUTE, at, given)
        if db is not None:
            return db.execute(append, values).rowcount > 0
        if not self._is_settled:
            self._settle()
        return self.file.write(append, values) > 0

    def insert_entries(self, db: sqlite3.Connection, rows: Iterable[EntryRow]) -> None:
        db.executemany("INSERT INTO entries (key, at, body, checksum, digest) VALUES (?, ?, ?, ?, ?)", rows)

    def touch(self, db: sqlite3.Connection, row: EntryRow) -> None:
        db.execute("UPDATE conversations SET touched = ? WHERE number = ?", (row[1], row[0] >> SHIFT))

    def read_entries(self, number: int, first: int, last: int | None = None) -> Sequence[StoredRow]:
        with self.file.reading() as db:
            return self.read_entries_in(db, number, first, last)

    def read_entries_in(
        self, db: sqlite3.Connection, number: int, first: int, last: int | None = None
    ) -> list[StoredRow]:
        """`read_entries` as part of a transaction."""
        keys = _key_range(number, first, last)
        try:
            return db.execute(self._read_entries, keys).fetchall()
        except (sqlite3.OperationalError, UnicodeDecodeError):
            return db.execute(self._read_damaged_entries, keys).fetchall()

    def entry_batches(self, number: int, first: int) -> Iterator[Sequence[StoredRow]]:
        with self.file.reading() as db:
            cursor = db.execute(self._read_entries, _key_range(number, first))
            try:
                while rows := cursor.fetchmany(ROWS_AT_ONCE):
                    yield rows
                    first += len(rows)
            except (sqlite3.OperationalError, UnicodeDecodeError):
                yield self.read_entries_in(db, number, first)

    def first_inputs(self, numbers: Sequence[int]) -> Iterator[tuple[int, StoredRow]]:
        for number in numbers:
            for row in self.read_entries(number, 1, 5):
                yield number, row

    def conversation(self, row: tuple[Any, ...]) -> ConversationRow:
        number, conversation, title, created, parent, forked_at, tags, imported, last, at = row
        texts = (conversation, title, "" if parent is None else parent)
        try:
            is_whole = isinstance(forked_at, int | None) and isinstance(imported, int)
            if not is_whole or not all(isinstance(text, str) for text in texts):
                raise TypeError("a column has a value of a wrong type")  # noqa: TRY301 - one place words the error
            return ConversationRow.of(
                number,
                *texts[:2],
                from_microseconds(created),
                parent,
                forked_at,
                _decode_tags(tags),
                imported,
                last,
                from_microseconds(at or 0),
            )
        except (msgspec.MsgspecError, TypeError, ValueError, OverflowError) as error:
            raise StoreDamaged(
                f"the row of conversation {conversation!r} (number {number}) is damaged: {error}"
            ) from error

    def lease_expiry(self, value: Any) -> datetime:
        return self.clock.shown(value)

    def attachment_data(self, text: str) -> object:
        return text

    def attachment_text(self, data: Any) -> object:
        return data


class SqliteStore(HistoryStore):
    """Conversations in one SQLite file. `:memory:` keeps them until the store is closed."""

    is_local = True

    def __init__(
        self, path: str | os.PathLike[str], *, timeout: float = 5.0, read_only: bool = False, create: bool = True
    ) -> None:
        """Open the file, or create it (unless `create` is false). `timeout`: how long to wait for another process's lock."""
        self._file = SqliteFile(
            os.fspath(path),
            tables=SCHEMA_V1,
            migrations=SQLITE_MIGRATIONS,
            application_id=APPLICATION_ID,
            schema=FILE_SCHEMA,
            timeout=timeout,
            read_only=read_only,
            create=create,
        )
        dialect = SqliteDialect(self._file)
        super().__init__(dialect, Fts5Index(dialect))
