"""`SqliteLog`: conversations and their entries as rows, and the one statement that appends.

- Two writers of one conversation meet in the primary key of the entry's row (see `rows`): the second insert of a sequence number
  fails, nothing is interleaved, and the loser is told (`WriterConflict`).
- The insert looks at the conversation's row, too: may this writer write, and was the conversation touched in the minute before?
  If so, that is all. If not, entry and `touched` are written in one transaction; so is an entry with large media.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias, TypeVar

from antiphon.errors import ConversationExists, StoreDamaged
from antiphon.history.asked import may_be_an_end, the_conversation, whole
from antiphon.history.attachments import attach, detach, verified
from antiphon.history.codec import damaged_entry, microseconds, row_checksum
from antiphon.history.entries import HistoryEntry
from antiphon.history.export import ExportHead
from antiphon.history.journal import conflict
from antiphon.history.sqlite.body import entry_of, packed
from antiphon.history.sqlite.file import SqliteFile
from antiphon.history.sqlite.lease_clock import LeaseClock
from antiphon.history.sqlite.leases import refusal
from antiphon.history.sqlite.rows import (
    LATEST_FIRST,
    MINUTE,
    SEQUENCE,
    SHIFT,
    TOUCHED,
    StoredRow,
    entry_rows,
    keys,
    rows,
    tagged,
    tags_json,
)
from antiphon.history.store import ConversationRow

D = TypeVar("D")

EntryRow: TypeAlias = tuple[int, int, bytes, int]
"""Key, time, body and checksum."""

_APPEND = """
INSERT INTO entries (key, at, body, checksum) SELECT ?, ?, ?, ? WHERE EXISTS
(SELECT 1 FROM conversations WHERE number = ? AND {may_write} AND touched BETWEEN ? AND ?)
"""
_APPEND_FREE = _APPEND.format(may_write="held_until <= ?")
_APPEND_LEASED = _APPEND.format(may_write="epoch = ?")


class SqliteLog:
    """The log of every conversation of a file."""

    def __init__(self, file: SqliteFile, clock: LeaseClock) -> None:
        self._file = file
        self._clock = clock
        self.path = file.path

    def append(self, number: int, conversation: str, entry: HistoryEntry, epoch: int | None) -> None:
        """Write one entry; back when it is durable."""
        stored, attachments = detach(entry)
        row = row_of(number, entry, stored)
        now = self._clock.settled_now() if epoch is None else 0
        try:
            if not attachments:
                with self._file.writing() as db:  # a single insert is its own transaction: one fsync and no more
                    if _insert(db, row, epoch, now):
                        return
            with self._file.transaction() as db:
                self._insert_all(db, row, attachments, epoch, now)
        except sqlite3.IntegrityError as error:
            raise conflict(conversation, self.version(number), entry.sequence_number) from error

    def read(self, number: int, conversation: str, after: int) -> Sequence[HistoryEntry]:
        """The entries of a conversation behind number `after`, whole."""
        with self._file.reading() as db:
            stored = entry_rows(db, number, after + 1)
            has_attachments = db.execute("SELECT 1 FROM attachment_uses WHERE number = ?", (number,)).fetchone()
        entries = [
            self.decoded(entry_of, row, expected, conversation) for expected, row in enumerate(stored, after + 1)
        ]
        if not has_attachments:
            return entries
        loaded: dict[str, str] = {}
        return [attach(entry, lambda name: self._attachment(name, loaded)) for entry in entries]

    def find(self, conversation: str) -> ConversationRow:
        """The row of the one conversation that is meant."""
        wanted = whole(conversation)
        with self._file.reading() as db:
            found = rows(db, "WHERE c.id = ?", (wanted,))
            if wanted == "last":
                found = self.latest(1)
            elif not found and may_be_an_end(wanted):
                by_an_end = "WHERE substr(c.id, 1, :size) = :end OR substr(c.id, -:size) = :end LIMIT 2"
                found = rows(db, by_an_end, {"size": len(wanted), "end": wanted.lower()})
        return the_conversation(found, conversation, self.path)

    def latest(self, limit: int, offset: int = 0, tag: str | None = None) -> Sequence[ConversationRow]:
        """The conversations that were changed last, in that order."""
        which = tagged(tag)
        given = {"tag": tag, "limit": limit, "offset": offset, "last": max(0, limit + offset - 1)}
        touched = (
            TOUCHED.format(which=which) if self._file.schema >= 3 else "true"
        )  # else an older file, opened for reading
        with self._file.reading() as db:
            page = f"WHERE {which} AND {touched} {LATEST_FIRST} LIMIT :limit OFFSET :offset"
            return rows(db, page, given, skips_damaged=True)

    def decoded(self, decode: Callable[[StoredRow], D], row: StoredRow, expected: int, conversation: str) -> D:
        """What `decode` makes of the row of entry `expected`. Raises `StoreDamaged`, naming the entry and the conversation."""
        if row[0] & SEQUENCE != expected:
            raise damaged_entry(self.path, expected, conversation, "its row is missing")
        try:
            return decode(row)
        except StoreDamaged as error:
            raise damaged_entry(self.path, expected, conversation, error) from error

    def version(self, number: int) -> int:
        """How many entries a conversation has."""
        with self._file.reading() as db:
            (key,) = db.execute("SELECT max(key) FROM entries WHERE key BETWEEN ? AND ?", keys(number)).fetchone()
        return int(key or 0) & SEQUENCE

    def insert_conversation(self, db: sqlite3.Connection, head: ExportHead) -> int:
        """The number of a new conversation."""
        inserted = """
            INSERT INTO conversations (id, title, created, parent, forked_at, tags, touched)
            VALUES (?, ?, ?, ?, ?, ?, ?)
        """
        created = microseconds(head.created)
        try:
            done = db.execute(
                inserted, (head.id, head.title, created, head.parent, head.forked_at, tags_json(head.tags), created)
            )
        except sqlite3.IntegrityError as error:
            raise ConversationExists(
                f"{self.path} already has a conversation {head.id}; import it as new to have both"
            ) from error
        assert done.lastrowid is not None
        return done.lastrowid

    def insert_entry(self, db: sqlite3.Connection, number: int, entry: HistoryEntry) -> None:
        """Write an entry and its attachments as part of a transaction. Raises `LeaseHeld` if somebody holds the conversation."""
        stored, attachments = detach(entry)
        self._insert_all(db, row_of(number, entry, stored), attachments, None, self._clock.now())

    def insert_attachment(self, db: sqlite3.Connection, number: int, name: str, data: str) -> None:
        """Keep an attachment, once, and say that a conversation uses it."""
        db.execute("INSERT OR IGNORE INTO attachments VALUES (?, ?)", (name, data))
        db.execute("INSERT OR IGNORE INTO attachment_uses VALUES (?, ?)", (number, name))

    def _insert_all(
        self, db: sqlite3.Connection, row: EntryRow, attachments: Mapping[str, str], epoch: int | None, now: int
    ) -> None:
        key, at, _, _ = row
        number = key >> SHIFT
        for name, data in attachments.items():
            self.insert_attachment(db, number, name, data)
        db.execute("UPDATE conversations SET touched = ? WHERE number = ?", (at, number))
        if not _insert(db, row, epoch, now):
            raise refusal(db, number, epoch, self.path)

    def _attachment(self, name: str, loaded: dict[str, str]) -> str:
        if name not in loaded:
            with self._file.reading() as db:
                found = db.execute("SELECT data FROM attachments WHERE name = ?", (name,)).fetchone()
            if found is None:
                raise StoreDamaged(f"{self.path}: the attachment {name} is missing")
            loaded[name] = verified(name, found[0], self.path)
        return loaded[name]


def row_of(number: int, entry: HistoryEntry, stored: bytes) -> EntryRow:
    """The row of an entry of the conversation of that number."""
    at = microseconds(entry.timestamp)
    body = packed(stored)
    return number << SHIFT | entry.sequence_number, at, body, row_checksum(entry.sequence_number, at, body)


def _insert(db: sqlite3.Connection, row: EntryRow, epoch: int | None, now: int) -> bool:
    """Write an entry, if its writer may and its conversation was touched in the minute before; whether it was so."""
    key, at, body, checksum = row
    append, given = (_APPEND_FREE, now) if epoch is None else (_APPEND_LEASED, epoch)
    return db.execute(append, (key, at, body, checksum, key >> SHIFT, given, at - MINUTE, at)).rowcount > 0
