"""`SqliteStore`: the whole of a store over one SQLite file.

The log itself, and what an append promises, is in `log`; leases, runs and the index are beside it. WAL with synchronous=FULL (see
`file`): what was written is on the disk, whatever is killed afterwards. What takes several statements here (a fork, an import, a
delete) is one transaction: whole or not at all.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence

import msgspec

from antiphon.history import search_text
from antiphon.history.agent_history import AgentHistory
from antiphon.history.asked import check_not_negative, check_text
from antiphon.history.attachments import verified
from antiphon.history.entries import HistoryEntry, ModelInputEntry
from antiphon.history.export import Export, ExportHead, attachment_line, head_line
from antiphon.history.journal import StoreJournal
from antiphon.history.lease import Lease
from antiphon.history.sqlite.body import body_of
from antiphon.history.sqlite.file import SqliteFile
from antiphon.history.sqlite.index import SaidIndex
from antiphon.history.sqlite.lease_clock import LeaseClock
from antiphon.history.sqlite.leases import SqliteLeases
from antiphon.history.sqlite.log import SqliteLog, row_of
from antiphon.history.sqlite.rows import (
    APPLICATION_ID,
    FILE_SCHEMA,
    MIGRATIONS,
    SEQUENCE,
    SHIFT,
    TABLES,
    UPDATED,
    entry_rows,
    keys,
    rows,
    tagged,
    tags_json,
)
from antiphon.history.sqlite.runs import SqliteRunTable
from antiphon.history.store import ConversationInfo, ConversationRow, HistoryStore, SearchHit

_TOUCH = f"UPDATE conversations SET touched = {UPDATED} WHERE number = ?"
_LOOK_AGAIN = 0.1  # seconds; SQLite tells nobody that there is something new


class SqliteStore(HistoryStore):
    """Conversations in one SQLite file. `:memory:` keeps them until the store is closed."""

    is_local = True
    _log: SqliteLog

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
        clock = LeaseClock(self._file)
        self._leases = SqliteLeases(self._file, clock)
        self._log = SqliteLog(self._file, clock)
        self._runs = SqliteRunTable(self._file, self._log, clock)

    def close(self) -> None:
        self._file.close()

    def create(self, title: str = "", *, tags: Sequence[str] = ()) -> AgentHistory:
        head = ExportHead.begun(title, tags)
        with self._file.transaction() as db:
            number = self._log.insert_conversation(db, head)
        return AgentHistory(journal=StoreJournal(self._log, self.fork, number, head.id))

    def count(self, *, tag: str | None = None) -> int:
        check_text("tag", tag)
        counted = f"SELECT count(*) FROM conversations c WHERE {tagged(tag)}"
        with self._file.reading() as db:
            return int(db.execute(counted, {"tag": tag}).fetchone()[0])

    def search(self, query: str, *, limit: int = 20, tag: str | None = None) -> Sequence[SearchHit]:
        check_not_negative(limit=limit)
        check_text("tag", tag)
        hits = (self._hit(key, query) for key in self._said.find(query, limit, tag))
        return [hit for hit in hits if hit is not None]

    def describe(
        self, conversation: str, *, title: str | None = None, tags: Sequence[str] | None = None
    ) -> ConversationInfo:
        check_text("title", title)
        check_text("tag", *(tags or ()))
        row = self._log.find(conversation)
        with self._file.transaction() as db:
            if title is not None:
                db.execute("UPDATE conversations SET title = ? WHERE number = ?", (title, row.number))
            if tags is not None:
                db.execute("UPDATE conversations SET tags = ? WHERE number = ?", (tags_json(tuple(tags)), row.number))
        return self.info(row.id)

    def fork(self, conversation: str, at: int | None = None) -> AgentHistory:
        parent = self._log.find(conversation)
        head = ExportHead.of(parent.info).forked(at)
        with self._file.transaction() as db:
            number = self._log.insert_conversation(db, head)
            db.execute(
                "INSERT INTO entries SELECT key + ?, at, body, checksum FROM entries WHERE key BETWEEN ? AND ?",
                ((number - parent.number) << SHIFT, *keys(parent.number, 1, head.entries)),
            )
            db.execute(_TOUCH, (number,))
            # The copy may use fewer attachments than its parent; one too many costs nothing but a row.
            db.execute(
                "INSERT INTO attachment_uses SELECT ?, name FROM attachment_uses WHERE number = ?",
                (number, parent.number),
            )
        return self.open(head.id)

    def delete(self, conversation: str) -> None:
        number = self._log.find(conversation).number
        with self._file.transaction() as db:
            db.execute("DELETE FROM said WHERE rowid BETWEEN ? AND ?", keys(number))
            db.execute("DELETE FROM entries WHERE key BETWEEN ? AND ?", keys(number))
            db.execute(
                "DELETE FROM attachments WHERE name IN (SELECT name FROM attachment_uses WHERE number = ?) AND NOT EXISTS"
                " (SELECT 1 FROM attachment_uses u WHERE u.name = attachments.name AND u.number != ?)",
                (number, number),
            )
            db.execute("DELETE FROM attachment_uses WHERE number = ?", (number,))
            db.execute("DELETE FROM runs WHERE number = ?", (number,))
            db.execute("DELETE FROM conversations WHERE number = ?", (number,))

    def export_lines(self, conversation: str) -> Iterator[bytes]:
        row = self._log.find(conversation)
        yield head_line(ExportHead.of(row.info))
        with self._file.reading() as db:
            used = "SELECT name, data FROM attachments JOIN attachment_uses USING (name) WHERE number = ? ORDER BY name"
            for name, data in db.execute(used, (row.number,)):
                yield attachment_line(name, verified(name, data, self.path))
            # As many entries as the head promises, even if more were appended since.
            for expected, stored in enumerate(entry_rows(db, row.number, 1, row.version), 1):
                yield self._log.decoded(body_of, stored, expected, row.id) + b"\n"

    def import_lines(
        self, lines: Iterable[bytes], *, source: str = "the export", as_new: bool = False
    ) -> ConversationInfo:
        export = Export.read(lines, source, as_new=as_new)  # all of it, before the file is locked
        with self._file.transaction() as db:
            number = self._log.insert_conversation(db, export.head)
            for name, data in export.attachments.items():
                self._log.insert_attachment(db, number, name, data)
            rows = (row_of(number, line.entry, line.stored) for line in export.entries)
            db.executemany("INSERT INTO entries VALUES (?, ?, ?, ?)", rows)
            db.execute(_TOUCH, (number,))
        return self.info(export.head.id)

    def claim(self, conversation: str, holder: str, seconds: float = 30.0) -> Lease | None:
        return self._leases.claim(self._log.find(conversation).number, holder, seconds)

    def renew(self, lease: Lease, seconds: float = 30.0) -> Lease:
        return self._leases.renew(lease, seconds)

    def release(self, lease: Lease) -> None:
        self._leases.release(lease)

    def current_lease(self, conversation: str) -> Lease | None:
        return self._leases.leased(self._log.find(conversation).number)

    @property
    def runs(self) -> SqliteRunTable:
        return self._runs

    async def tail(self, conversation: str, after: int = 0) -> AsyncIterator[HistoryEntry]:
        import asyncio  # most who open a store never wait for it

        row = self._log.find(conversation)
        while True:
            if self._log.version(row.number) > after:
                for entry in self._log.read(row.number, row.id, after):
                    yield entry
                    after = entry.sequence_number
            await asyncio.sleep(_LOOK_AGAIN)

    def _hit(self, key: int, query: str) -> SearchHit | None:
        """The entry of a key in the index; None if it was deleted meanwhile, or is damaged."""
        with self._file.reading() as db:
            found = rows(db, "WHERE c.number = ?", (key >> SHIFT,), skips_damaged=True)
            stored = entry_rows(db, key >> SHIFT, key & SEQUENCE, key & SEQUENCE)[:1]
        entry = self._said.entry_at(stored[0]) if stored else None
        if entry is None or not found:
            return None
        (info,) = self._titled(found[:1])
        return SearchHit(
            info, entry.sequence_number, entry.kind, search_text.excerpt(search_text.searchable_text(entry), query)
        )

    def _titled(self, found: Sequence[ConversationRow]) -> Sequence[ConversationInfo]:
        return [row.info if row.info.title or not row.version else self._by_first_words(row) for row in found]

    def _by_first_words(self, row: ConversationRow) -> ConversationInfo:
        with self._file.reading() as db:
            first = entry_rows(db, row.number, 1, 5)
        entries = (self._said.entry_at(one) for one in first)
        title = next(
            (
                search_text.default_title(search_text.searchable_text(one))
                for one in entries
                if isinstance(one, ModelInputEntry)
            ),
            "",
        )
        return msgspec.structs.replace(row.info, title=title)
