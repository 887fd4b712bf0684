"""`SqliteStore`: how it holds its promises.

- One row an entry; two writers of one conversation meet in the primary key of the row (see `rows`): the second insert of a
  sequence number fails, nothing is interleaved, and the loser is told (`WriterConflict`).
- WAL with synchronous=FULL (see `file`): an insert returns when it is on the disk, whatever is killed afterwards.
- What takes several statements (a fork, an import, a delete) is one transaction: whole or not at all.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from datetime import UTC, datetime

import msgspec

from antiphon.errors import (
    ConversationExists,
    OutOfSequence,
    StoreDamaged,
    WriterConflict,
)
from antiphon.history import words
from antiphon.history.agent_history import AgentHistory
from antiphon.history.asked import check_not_negative, may_be_an_end, the_conversation
from antiphon.history.attachments import attach, detach
from antiphon.history.codec import decode_entry
from antiphon.history.entries import HistoryEntry, ModelInputEntry
from antiphon.history.export import AttachmentLine, EntryLine, ExportHead, attachment_line, head_line, read_export
from antiphon.history.ids import new_id
from antiphon.history.lease import Lease
from antiphon.history.sqlite.file import SqliteFile
from antiphon.history.sqlite.index import SaidIndex
from antiphon.history.sqlite.leases import SqliteLeases
from antiphon.history.sqlite.rows import (
    APPLICATION_ID,
    FILE_SCHEMA,
    LATEST_FIRST,
    MIGRATIONS,
    SEQUENCE,
    SHIFT,
    TABLES,
    ConversationRow,
    bodies,
    keys,
    microseconds,
    now,
    rows,
    tags_json,
)
from antiphon.history.sqlite.runs import SqliteRunTable
from antiphon.history.store import ConversationInfo, HistoryStore, SearchHit

_TITLE_LENGTH = 60
_LOOK_AGAIN = 0.1  # seconds; SQLite tells nobody that there is something new


class SqliteStore(HistoryStore):
    """Conversations in one SQLite file. `:memory:` keeps them until the store is closed."""

    def __init__(
        self, path: str | os.PathLike[str], *, timeout: float = 5.0, read_only: bool = False, create: bool = True
    ) -> None:
        """Open the file, or make it (unless `create` is false). `timeout`: how long to wait for another process's lock."""
        self.path = os.fspath(path)
        self._file = SqliteFile(
            self.path,
            tables=TABLES,
            migrations=MIGRATIONS,
            application_id=APPLICATION_ID,
            schema=FILE_SCHEMA,
            timeout=timeout,
            read_only=read_only,
            create=create,
        )
        self._said = SaidIndex(self._file)
        self._leases = SqliteLeases(self._file)
        self._runs = SqliteRunTable(self._file, self)

    def close(self) -> None:
        self._file.close()

    def create(self, title: str = "", *, tags: Sequence[str] = ()) -> AgentHistory:
        head = ExportHead.begun(title, tags)
        with self._file.transaction() as db:
            number = self._insert_conversation(db, head)
        return AgentHistory(journal=_SqliteJournal(self, number, head.id))

    def open(self, conversation: str, *, lease: Lease | None = None) -> AgentHistory:
        row = self._find(conversation)
        journal = _SqliteJournal(self, row.number, row.id, lease)
        return AgentHistory(journal.read(after=0), journal=journal)

    def info(self, conversation: str) -> ConversationInfo:
        return self._titled(self._find(conversation))

    def list(self, *, limit: int = 50, offset: int = 0, tag: str | None = None) -> Sequence[ConversationInfo]:
        check_not_negative(limit=limit, offset=offset)
        where, given = _tagged(tag)
        with self._file.reading() as db:
            found = rows(db, f"{where} {LATEST_FIRST} LIMIT ? OFFSET ?", (*given, limit, offset))
        return [self._titled(row) for row in found]

    def count(self, *, tag: str | None = None) -> int:
        where, given = _tagged(tag)
        with self._file.reading() as db:
            return int(db.execute(f"SELECT count(*) FROM conversations c {where}", given).fetchone()[0])

    def search(self, query: str, *, limit: int = 20) -> Sequence[SearchHit]:
        check_not_negative(limit=limit)
        return [self._hit(key, query) for key in self._said.find(query, limit)]

    def describe(
        self, conversation: str, *, title: str | None = None, tags: Sequence[str] | None = None
    ) -> ConversationInfo:
        row = self._find(conversation)
        with self._file.transaction() as db:
            if title is not None:
                db.execute("UPDATE conversations SET title = ? WHERE number = ?", (title, row.number))
            if tags is not None:
                db.execute("UPDATE conversations SET tags = ? WHERE number = ?", (tags_json(tuple(tags)), row.number))
        return self.info(row.id)

    def fork(self, conversation: str, at: int | None = None) -> AgentHistory:
        parent = self._find(conversation)
        at = parent.version if at is None else at
        if not 0 <= at <= parent.version:
            raise OutOfSequence(
                f"cannot fork conversation {parent.id} at {at}: it has the versions 0 to {parent.version}"
            )
        head = msgspec.structs.replace(
            parent.head, id=new_id(), created=datetime.now(UTC), entries=at, parent=parent.id, forked_at=at
        )
        with self._file.transaction() as db:
            number = self._insert_conversation(db, head)
            db.execute(
                "INSERT INTO entries SELECT key + ?, at, body FROM entries WHERE key BETWEEN ? AND ?",
                ((number - parent.number) << SHIFT, *keys(parent.number, 1, at)),
            )
            # The copy may use fewer attachments than its parent; one too many costs nothing but a row.
            db.execute(
                "INSERT INTO attachment_uses SELECT ?, name FROM attachment_uses WHERE number = ?",
                (number, parent.number),
            )
        return self.open(head.id)

    def delete(self, conversation: str) -> None:
        number = self._find(conversation).number
        with self._file.transaction() as db:
            db.execute("DELETE FROM said WHERE rowid BETWEEN ? AND ?", keys(number))
            db.execute("DELETE FROM entries WHERE key BETWEEN ? AND ?", keys(number))
            db.execute(
                "DELETE FROM attachments WHERE name IN (SELECT name FROM attachment_uses WHERE number = ?1) AND NOT EXISTS"
                " (SELECT 1 FROM attachment_uses u WHERE u.name = attachments.name AND u.number != ?1)",
                (number,),
            )
            db.execute("DELETE FROM attachment_uses WHERE number = ?", (number,))
            db.execute("DELETE FROM runs WHERE number = ?", (number,))
            db.execute("DELETE FROM conversations WHERE number = ?", (number,))

    def export_lines(self, conversation: str) -> Iterator[bytes]:
        row = self._find(conversation)
        yield head_line(row.head)
        with self._file.reading() as db:
            used = "SELECT name, data FROM attachments JOIN attachment_uses USING (name) WHERE number = ? ORDER BY name"
            for name, data in db.execute(used, (row.number,)):
                yield attachment_line(name, data)
            # As many entries as the head promises, even if more were appended since.
            for _, body in bodies(db, row.number, 1, row.version):
                yield body + b"\n"

    def import_lines(
        self, lines: Iterable[bytes], *, source: str = "the export", as_new: bool = False
    ) -> ConversationInfo:
        head, *rest = read_export(lines, source)  # all of it is read before the file is locked
        assert isinstance(head, ExportHead)
        if as_new:
            head = msgspec.structs.replace(head, id=new_id())
        with self._file.transaction() as db:
            number = self._insert_conversation(db, head)
            for line in rest:
                if isinstance(line, AttachmentLine):
                    self._insert_attachment(db, number, line.attachment, line.data)
                elif isinstance(line, EntryLine):
                    self._insert_entry(db, number, line.entry, line.stored)
        return self.info(head.id)

    def claim(self, conversation: str, holder: str, seconds: float = 30.0) -> Lease | None:
        return self._leases.claim(self._find(conversation), holder, seconds)

    def renew(self, lease: Lease, seconds: float = 30.0) -> Lease:
        return self._leases.renew(lease, seconds)

    def release(self, lease: Lease) -> None:
        self._leases.release(lease)

    def leased(self, conversation: str) -> Lease | None:
        return self._leases.leased(self._find(conversation))

    @property
    def runs(self) -> SqliteRunTable:
        return self._runs

    async def tail(self, conversation: str, after: int = 0) -> AsyncIterator[HistoryEntry]:
        import asyncio  # most who open a store never wait for it

        row = self._find(conversation)
        while True:
            if self._version(row.number) > after:
                for entry in self._read(row.number, row.id, after):
                    yield entry
                    after = entry.sequence_number
            await asyncio.sleep(_LOOK_AGAIN)

    def _append(self, number: int, conversation: str, entry: HistoryEntry, epoch: int | None) -> None:
        """Write one entry; back when it is durable."""
        stored, attachments = detach(entry)
        try:
            # A single insert is its own transaction: one fsync and no more.
            with self._file.transaction() if attachments else self._file.writing() as db:
                for name, data in attachments.items():
                    self._insert_attachment(db, number, name, data)
                self._insert_entry(db, number, entry, stored, epoch)
        except sqlite3.IntegrityError as error:
            raise WriterConflict(
                f"another writer appended to conversation {conversation}: it is at version {self._version(number)}, and "
                f"this entry was meant to be number {entry.sequence_number}. Nothing was written; `refresh()` the "
                "history, look at what is new, and append again"
            ) from error

    def _asked(
        self, db: sqlite3.Connection, conversation: str | None, title: str, question: ModelInputEntry | None
    ) -> int:
        """The number of a conversation, a new one if none is named, in which `question` was just asked."""
        if conversation is not None:
            row = self._find(conversation)
            number, version = row.number, row.version
        else:
            number, version = self._insert_conversation(db, ExportHead.begun(title)), 0
        if question is not None:
            asked = msgspec.structs.replace(
                question, sequence_number=version + 1, timestamp=question.timestamp or datetime.now(UTC)
            )
            stored, attachments = detach(asked)
            for name, data in attachments.items():
                self._insert_attachment(db, number, name, data)
            self._insert_entry(db, number, asked, stored)
        return number

    def _read(self, number: int, conversation: str, after: int) -> Sequence[HistoryEntry]:
        """The entries of a conversation behind number `after`, whole."""
        with self._file.reading() as db:
            stored = bodies(db, number, after + 1)
            has_attachments = db.execute("SELECT 1 FROM attachment_uses WHERE number = ?", (number,)).fetchone()
        key, entries = 0, []
        try:
            for key, body in stored:  # noqa: B007 - the key of the one that fails is what we tell
                entries.append(decode_entry(body))
        except StoreDamaged as error:
            place = f"entry {key & SEQUENCE} of conversation {conversation}"
            raise StoreDamaged(f"{self.path}: {place} is damaged: {error}") from error
        if not has_attachments:
            return entries
        loaded: dict[str, str] = {}
        return [attach(entry, lambda name: self._attachment(name, loaded)) for entry in entries]

    def _attachment(self, name: str, loaded: dict[str, str]) -> str:
        if name not in loaded:
            with self._file.reading() as db:
                found = db.execute("SELECT data FROM attachments WHERE name = ?", (name,)).fetchone()
            if found is None:
                raise StoreDamaged(f"{self.path}: the attachment {name} is missing")
            loaded[name] = found[0]
        return loaded[name]

    def _insert_entry(
        self, db: sqlite3.Connection, number: int, entry: HistoryEntry, stored: bytes, epoch: int | None = None
    ) -> None:
        at = microseconds(entry.timestamp) if entry.timestamp else 0
        may_write, given = ("held_until <= ?", now()) if epoch is None else ("epoch = ?", epoch)
        done = db.execute(
            f"INSERT INTO entries SELECT ?, ?, ? WHERE EXISTS (SELECT 1 FROM conversations WHERE number = ? AND {may_write})",
            (number << SHIFT | entry.sequence_number, at, stored, number, given),
        )
        if not done.rowcount:
            raise self._leases.refusal(db, number, epoch)

    def _insert_attachment(self, db: sqlite3.Connection, number: int, name: str, data: str) -> None:
        db.execute("INSERT OR IGNORE INTO attachments VALUES (?, ?)", (name, data))
        db.execute("INSERT OR IGNORE INTO attachment_uses VALUES (?, ?)", (number, name))

    def _insert_conversation(self, db: sqlite3.Connection, head: ExportHead) -> int:
        try:
            done = db.execute(
                "INSERT INTO conversations (id, title, created, parent, forked_at, tags) VALUES (?, ?, ?, ?, ?, ?)",
                (head.id, head.title, microseconds(head.created), head.parent, head.forked_at, tags_json(head.tags)),
            )
        except sqlite3.IntegrityError as error:
            raise ConversationExists(
                f"{self.path} already has a conversation {head.id}; import it as new to have both"
            ) from error
        assert done.lastrowid is not None
        return done.lastrowid

    def _version(self, number: int) -> int:
        with self._file.reading() as db:
            (key,) = db.execute("SELECT max(key) FROM entries WHERE key BETWEEN ? AND ?", keys(number)).fetchone()
        return int(key or 0) & SEQUENCE

    def _hit(self, key: int, query: str) -> SearchHit:
        with self._file.reading() as db:
            (row,) = rows(db, "WHERE c.number = ?", (key >> SHIFT,))
            ((_, body),) = bodies(db, row.number, key & SEQUENCE, key & SEQUENCE)
        entry = decode_entry(body)
        return SearchHit(self._titled(row), entry.sequence_number, entry.kind, words.excerpt(words.said(entry), query))

    def _find(self, conversation: str) -> ConversationRow:
        """The row of the one conversation that is meant."""
        with self._file.reading() as db:
            found = rows(db, "WHERE c.id = ?", (conversation,))
            if conversation == "last":
                found = rows(db, f"{LATEST_FIRST} LIMIT 1")
            elif not found and may_be_an_end(conversation):
                by_an_end = "WHERE substr(c.id, 1, ?1) = ?2 OR substr(c.id, -?1) = ?2 LIMIT 2"
                found = rows(db, by_an_end, (len(conversation), conversation.lower()))
        return the_conversation(found, conversation, self.path)

    def _titled(self, row: ConversationRow) -> ConversationInfo:
        """The facts, with the first words somebody said where no title was given."""
        if row.title or not row.version:
            return row.info
        with self._file.reading() as db:
            first = bodies(db, row.number, 1, 5)
        inputs = (entry for entry in first if entry[1].startswith(b'{"kind":"model_input"'))
        title = " ".join(next((self._said.words_of(*entry) for entry in inputs), "").split())
        if len(title) > _TITLE_LENGTH:
            title = title[: _TITLE_LENGTH - 1] + "…"
        return msgspec.structs.replace(row.info, title=title)


class _SqliteJournal:
    """One conversation of a store, as its history sees it."""

    def __init__(self, store: SqliteStore, number: int, conversation_id: str, lease: Lease | None = None) -> None:
        self.conversation_id = conversation_id
        self._store = store
        self._number = number
        self._epoch = lease.epoch if lease is not None else None

    def write(self, entry: HistoryEntry) -> None:
        self._store._append(self._number, self.conversation_id, entry, self._epoch)

    def read(self, after: int) -> Sequence[HistoryEntry]:
        return self._store._read(self._number, self.conversation_id, after)

    def fork(self, at: int) -> AgentHistory:
        return self._store.fork(self.conversation_id, at)


def _tagged(tag: str | None) -> tuple[str, tuple[str, ...]]:
    if tag is None:
        return "", ()
    return "WHERE EXISTS (SELECT 1 FROM json_each(c.tags) WHERE value = ?)", (tag,)
