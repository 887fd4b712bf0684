"""`PostgresStore`: the whole of a store over the tables of a PostgreSQL database.

The log itself, and what an append promises, is in `log`; leases, runs, the index and the tail are beside it. What takes several
statements here (a fork, an import, a delete) is one transaction: whole or not at all. Nothing holds a connection while it waits
for somebody else: an export reads its entries piece by piece, which is safe because what is there never changes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence

import msgspec

from antiphon.errors import UnknownConversation
from antiphon.history import search_text
from antiphon.history.agent_history import AgentHistory
from antiphon.history.asked import check_not_negative, check_text
from antiphon.history.entries import HistoryEntry
from antiphon.history.export import Export, ExportHead, attachment_line, head_line
from antiphon.history.journal import StoreJournal
from antiphon.history.lease import Lease
from antiphon.history.postgres.address import Address
from antiphon.history.postgres.connections import Connections
from antiphon.history.postgres.index import SaidIndex
from antiphon.history.postgres.leases import PostgresLeases
from antiphon.history.postgres.log import INSERT_ENTRY, TOUCH_LAST, Log, row_of
from antiphon.history.postgres.rows import ENTRY_ROW, ENTRY_ROWS, body_of, plain, tagged
from antiphon.history.postgres.runs import PostgresRunTable
from antiphon.history.postgres.tables import migrate
from antiphon.history.postgres.tail import tail
from antiphon.history.store import ConversationInfo, ConversationRow, HistoryStore, SearchHit

_BATCH = 500


class PostgresStore(HistoryStore):
    """Conversations in a schema of a PostgreSQL database. Many processes on many machines may have it open."""

    _log: Log

    def __init__(
        self,
        address: str,
        *,
        schema: str | None = None,
        max_connections: int = 8,
        timeout: float = 10.0,
        statement_timeout: float = 60.0,
        read_only: bool = False,
        create: bool = True,
    ) -> None:
        """Open `postgresql://user:password@host:port/database?schema=…`; make the tables if need be (unless `create` is false).

        `timeout`: how many seconds to wait for the server, for a connection that is free, for somebody else's lock.
        `statement_timeout`: how long the server may take over one statement.
        """
        self._connections = Connections(
            Address.of(address, schema),
            max_connections=max_connections,
            timeout=timeout,
            statement_timeout=statement_timeout,
            read_only=read_only,
        )
        self.path = self._connections.place
        self._said = SaidIndex(self._connections)
        self._leases = PostgresLeases(self._connections)
        self._log = Log(self._connections)
        self._runs = PostgresRunTable(self._connections, self._log)
        try:
            migrate(self._connections, create=create)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._connections.close()

    def create(self, title: str = "", *, tags: Sequence[str] = ()) -> AgentHistory:
        head = ExportHead.begun(title, tags)
        with self._connections.connection() as db:
            number = self._log.insert_conversation(db, head)
        return AgentHistory(journal=StoreJournal(self._log, self.fork, number, head.id))

    def count(self, *, tag: str | None = None) -> int:
        check_text("tag", tag)
        counted = f"SELECT count(*) FROM conversations c WHERE {tagged(tag)}"
        ((number,),) = self._connections.rows(counted, {"tags": [plain(tag or "")]})
        return int(number)

    def search(self, query: str, *, limit: int = 20, tag: str | None = None) -> Sequence[SearchHit]:
        check_not_negative(limit=limit)
        check_text("tag", tag)
        found = self._said.find(query, limit, tag)
        known = self._log.rows("WHERE c.number = ANY(%s)", ([*{hit.number for hit in found}],)) if found else []
        infos = {row.number: info for row, info in zip(known, self._titled(known), strict=True)}
        return [
            SearchHit(
                infos[hit.number], hit.entry.sequence_number, hit.entry.kind, search_text.excerpt(hit.text, query)
            )
            for hit in found
            if hit.number in infos  # else it was deleted meanwhile
        ]

    def describe(
        self, conversation: str, *, title: str | None = None, tags: Sequence[str] | None = None
    ) -> ConversationInfo:
        check_text("title", title)
        check_text("tag", *(tags or ()))
        row = self._log.find(conversation)
        given = (
            None if title is None else plain(title),
            None if tags is None else [plain(tag) for tag in tags],
            row.number,
        )
        described = "UPDATE conversations SET title = coalesce(%s, title), tags = coalesce(%s, tags) WHERE number = %s"
        with self._connections.connection() as db:
            db.execute(described, given)
        return self.info(row.id)

    def fork(self, conversation: str, at: int | None = None) -> AgentHistory:
        parent = self._log.find(conversation)
        head = ExportHead.of(parent.info).forked(at)
        with self._connections.transaction() as db:
            self._log.keep_attachments(db)
            number = self._log.insert_conversation(db, head)
            copied = """
                INSERT INTO entries (number, sequence, at, body, checksum)
                SELECT %s, sequence, at, body, checksum FROM entries WHERE number = %s AND sequence <= %s
            """
            if db.execute(copied, (number, parent.number, head.entries)).rowcount != head.entries:
                raise UnknownConversation(
                    f"{self.path}: conversation {parent.id} was deleted; there is nothing to fork"
                )
            # The copy may use fewer attachments than its parent; one too many costs nothing but a row.
            uses = "INSERT INTO attachment_uses SELECT %s, name FROM attachment_uses WHERE number = %s"
            db.execute(uses, (number, parent.number))
            db.execute(TOUCH_LAST, (number,))
        return self.open(head.id)

    def delete(self, conversation: str) -> None:
        row = self._log.find(conversation)
        with self._connections.transaction() as db:
            db.execute("SELECT pg_advisory_xact_lock(%s, %s)", self._log.attachments_lock)
            # The row goes first: an append that is under way is waited for, and none comes after.
            db.execute("DELETE FROM conversations WHERE number = %s", (row.number,))
            for table in ("entries", "said", "runs"):
                db.execute(f"DELETE FROM {table} WHERE number = %s", (row.number,))
            unused = """
                WITH gone AS (DELETE FROM attachment_uses WHERE number = %(number)s RETURNING name)
                DELETE FROM attachments USING gone WHERE attachments.name = gone.name AND NOT EXISTS
                (SELECT 1 FROM attachment_uses used WHERE used.name = gone.name AND used.number <> %(number)s)
            """
            db.execute(unused, {"number": row.number})
            db.execute("SELECT pg_notify('antiphon_' || %s, '')", (row.id,))  # whoever listens finds that it is gone

    def export_lines(self, conversation: str) -> Iterator[bytes]:
        row = self._log.find(conversation)
        yield head_line(ExportHead.of(row.info))
        names = "SELECT name FROM attachment_uses WHERE number = %s ORDER BY name"
        for (name,) in self._connections.rows(names, (row.number,)):
            yield attachment_line(name, self._log.attachments([name])[name])
        for first in range(1, row.version + 1, _BATCH):
            # As many entries as the head promises, even if more were appended since.
            last = min(first + _BATCH - 1, row.version)
            stored = self._connections.rows(ENTRY_ROWS, (row.number, first, last))
            if not stored:
                raise UnknownConversation(f"{self.path}: conversation {row.id} was deleted while it was exported")
            for expected, entry_row in enumerate(stored, first):
                yield self._log.decoded(body_of, entry_row, expected, row.id) + b"\n"

    def import_lines(
        self, lines: Iterable[bytes], *, source: str = "the export", as_new: bool = False
    ) -> ConversationInfo:
        export = Export.read(lines, source, as_new=as_new)  # all of it, before anything is written
        with self._connections.transaction() as db:
            number = self._log.insert_conversation(db, export.head)
            self._log.insert_attachments(db, number, export.attachments)
            rows = (row_of(number, line.entry, line.stored) for line in export.entries)
            with db.cursor() as cursor:
                cursor.executemany(INSERT_ENTRY, rows)
            db.execute(TOUCH_LAST, (number,))
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
    def runs(self) -> PostgresRunTable:
        return self._runs

    def tail(self, conversation: str, after: int = 0) -> AsyncIterator[HistoryEntry]:
        return tail(self._connections, self._log, conversation, after)

    def _titled(self, found: Sequence[ConversationRow]) -> Sequence[ConversationInfo]:
        untitled = [row.number for row in found if row.version and not row.info.title]
        titles: dict[int, str] = {}
        if untitled:
            first = f"""
                SELECT number, {ENTRY_ROW} FROM entries WHERE number = ANY(%s) AND sequence <= 5
                AND substring(body FOR 21) = '{{"kind":"model_input"' ORDER BY number, sequence DESC
            """
            for number, *entry_row in self._connections.rows(first, (untitled,)):
                titles[number] = search_text.default_title(self._said.words_of(number, tuple(entry_row)))
        return [
            msgspec.structs.replace(row.info, title=titles[row.number]) if row.number in titles else row.info
            for row in found
        ]
