"""`PostgresStore`: conversations in a schema of a PostgreSQL database, for many processes on many machines.

The server answers an append when the entry is on its disk (`synchronous_commit` is never off here). `FOR SHARE` makes an append
and a claim, or a delete, wait for each other and read the row again: the new holder sees every entry written before its claim,
and no entry of the previous one follows. Of a run and its conversation, the conversation's row is always locked first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from antiphon.errors import UnknownConversation
from antiphon.history.codec import StoredRow, row_checksum, to_microseconds
from antiphon.history.entries import HistoryEntry
from antiphon.history.sql.dialect import Dialect, EntryRow
from antiphon.history.sql.postgres_connections import Address, Connections, PostgresDatabase, with_zone
from antiphon.history.sql.runs import FROM_RUNS, IS_WAITING
from antiphon.history.sql.schema import migrate
from antiphon.history.sql.search_index import TsvectorIndex
from antiphon.history.sql.store import HistoryStore
from antiphon.history.store import ConversationRow

if TYPE_CHECKING:
    from antiphon.history.sql.postgres_connections import PostgresConnection

_IS_DATE = (
    "at BETWEEN '0001-01-01 00:00:00+00' AND '9999-12-31 23:59:59.999999+00'"  # else Python has no datetime for it
)
_ENTRY_ROW = (
    f"sequence, CASE WHEN {_IS_DATE} THEN (extract(epoch FROM at) * 1000000)::bigint ELSE 0 END, body, checksum"
)
"""The columns of an entry that make a `StoredRow`."""

_APPEND = """
WITH taken AS MATERIALIZED (
    SELECT number FROM conversations WHERE number = %(number)s AND {may_write} AND touched BETWEEN
    coalesce(%(at)s::timestamptz, created) - interval '1 minute' AND coalesce(%(at)s::timestamptz, created) FOR SHARE
)
INSERT INTO entries (number, sequence, at, body, checksum, digest)
SELECT number, %(sequence)s, %(at)s::timestamptz, %(body)s, %(checksum)s, %(digest)s FROM taken ON CONFLICT DO NOTHING
"""
_APPEND_FREE = _APPEND.format(may_write="held_until <= clock_timestamp()")
_APPEND_LEASED = _APPEND.format(may_write="epoch = %(epoch)s")
_TOUCH = "UPDATE conversations SET touched = coalesce(%(at)s::timestamptz, created) WHERE number = %(number)s"
_INSERT_ENTRY = """
INSERT INTO entries (number, sequence, at, body, checksum, digest)
VALUES (%(number)s, %(sequence)s, %(at)s, %(body)s, %(checksum)s, %(digest)s)
"""
_READ_ENTRIES = f"SELECT {_ENTRY_ROW} FROM entries WHERE number = %s AND sequence BETWEEN %s AND %s ORDER BY sequence"
_FIRST_INPUTS = f"""
SELECT number, {_ENTRY_ROW} FROM entries WHERE number = ANY(%s) AND sequence <= 5
AND substring(body FOR 21) = '{{"kind":"model_input"' ORDER BY number, sequence
"""
_LAST_SEQUENCE = (1 << 31) - 1


class PostgresDialect(PostgresDatabase, Dialect):
    """One schema of a PostgreSQL database."""

    select_conversations = f"""
SELECT c.number, c.id, c.title, c.created, c.parent, c.forked_at, c.tags, c.imported,
    last.sequence, CASE WHEN {_IS_DATE} THEN last.at END
FROM conversations c LEFT JOIN LATERAL (
    SELECT sequence, at FROM entries WHERE entries.number = c.number ORDER BY sequence DESC LIMIT 1) last ON true
"""
    entry_columns = _ENTRY_ROW
    version = "(SELECT coalesce(max(sequence), 0) FROM entries e WHERE e.number = c.number)"
    entries_of = index_rows_of = "number = :number"
    entry_order = "sequence"
    entry_at = "number = :number AND sequence = :sequence"
    has_tag = "c.tags @> ARRAY[CAST(:tag AS text)]"
    recent_since = """
SELECT CAST(coalesce((SELECT touched FROM conversations c WHERE touched < 'infinity' AND {condition}
    ORDER BY touched DESC LIMIT 1 OFFSET :last) - interval '1 minute', '-infinity') AS text)
"""
    touched_since = "c.touched >= CAST(:since AS timestamptz)"
    touch_last = """
UPDATE conversations c SET touched = coalesce(
    (SELECT at FROM entries e WHERE e.number = c.number ORDER BY sequence DESC LIMIT 1), created) WHERE number = :number
"""
    copy_entries = """
INSERT INTO entries (number, sequence, at, body, checksum, digest)
SELECT CAST(:number AS bigint), sequence, at, body, checksum, digest FROM entries WHERE number = :parent AND sequence <= :entries
"""
    next_run = f"""
SELECT r.id, r.number, r.provider {FROM_RUNS}
WHERE {IS_WAITING} AND r.due <= :now AND r.code <= CAST(CAST(:kinds AS jsonb) ->> r.kind AS bigint)
    AND r.provider <> ALL (CAST(:full AS text[]))
ORDER BY r.due, r.id LIMIT 1
"""
    next_run_locked = f"{next_run} FOR UPDATE OF c SKIP LOCKED"

    def lock_conversation(self, db: PostgresConnection, conversation: str) -> None:
        if db.execute("SELECT 1 FROM conversations WHERE id = %s FOR UPDATE", (conversation,)).fetchone() is None:
            raise UnknownConversation(f"{self.location}: conversation {conversation} was deleted")

    def entry_row(self, number: int, entry: HistoryEntry, stored: bytes, digest: bytes) -> EntryRow:
        return {
            "number": number,
            "sequence": entry.sequence_number,
            "at": with_zone(entry.timestamp),
            "body": stored,
            "checksum": row_checksum(entry.sequence_number, to_microseconds(entry.timestamp), stored),
            "digest": digest,
        }

    def append_entry(self, row: EntryRow, epoch: int | None, db: PostgresConnection | None = None) -> bool:
        if db is None:
            with self.connection() as own:
                return self.append_entry(row, epoch, own)
        if epoch is None:
            return db.execute(_APPEND_FREE, row).rowcount > 0
        return db.execute(_APPEND_LEASED, {**row, "epoch": epoch}).rowcount > 0

    def insert_entries(self, db: PostgresConnection, rows: Iterable[EntryRow]) -> None:
        with db.cursor() as cursor:
            cursor.executemany(_INSERT_ENTRY, rows)

    def touch(self, db: PostgresConnection, row: EntryRow) -> None:
        db.execute(_TOUCH, row)

    def read_entries(self, number: int, first: int, last: int | None = None) -> Sequence[StoredRow]:
        return self.connections.rows(_READ_ENTRIES, (number, first, _LAST_SEQUENCE if last is None else last))

    def first_inputs(self, numbers: Sequence[int]) -> Iterator[tuple[int, StoredRow]]:
        for number, *row in self.connections.rows(_FIRST_INPUTS, ([*numbers],)):
            yield number, tuple(row)

    def conversation(self, row: tuple[Any, ...]) -> ConversationRow:
        return ConversationRow.of(*row)

    def lease_expiry(self, value: Any) -> datetime:
        return self.to_datetime(value)

    def attachment_data(self, text: str) -> object:
        return text.encode()

    def attachment_text(self, data: Any) -> object:
        return data.decode(errors="replace")


class PostgresStore(HistoryStore):
    """Conversations in a schema of a PostgreSQL database. Many processes on many machines may have it open."""

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
        """Open `postgresql://user:password@host:port/database?schema=…`; create the tables unless `create` is false.

        `timeout`: how many seconds to wait for the server, for a free connection, for a lock. `statement_timeout`: how long
        the server may take for one statement.
        """
        self._connections = Connections(
            Address.of(address, schema),
            max_connections=max_connections,
            timeout=timeout,
            statement_timeout=statement_timeout,
            read_only=read_only,
        )
        dialect = PostgresDialect(self._connections)
        super().__init__(dialect, TsvectorIndex(dialect))
        try:
            migrate(self._connections, create=create)
        except BaseException:
            self.close()
            raise
