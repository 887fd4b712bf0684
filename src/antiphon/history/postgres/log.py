"""`Log`: conversations and their entries as rows, and the one statement that appends.

- An append is one statement, one round trip: it looks at the conversation's row (is it there, may this writer write), locks it
  against a claim or a delete that comes in between, and inserts the entry. Two writers meet in the primary key: the second
  insert of a number does nothing, and its writer is told (`WriterConflict`).
- The server answers when the entry is on its disk (`synchronous_commit` is never off here).
- If the connection breaks while the answer is awaited, the same statement is sent once more: an entry that stands at its number
  with exactly our bytes is ours, and was written.
- If the conversation was not touched in the minute before (see `rows`), that and the entry are written in one transaction; so is
  an entry with large media.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from antiphon.errors import ConversationExists, StoreDamaged, StoreUnreachable
from antiphon.history.asked import may_be_an_end, the_conversation
from antiphon.history.attachments import MARK, attach, detach, references, verified
from antiphon.history.codec import damaged_entry, microseconds, row_checksum
from antiphon.history.entries import HistoryEntry
from antiphon.history.export import ExportHead
from antiphon.history.journal import conflict
from antiphon.history.postgres.connections import BrokenOff, Connections
from antiphon.history.postgres.leases import refusal
from antiphon.history.postgres.rows import (
    CONVERSATIONS,
    ENTRY_ROWS,
    LAST_SEQUENCE,
    LATEST,
    SINCE,
    StoredRow,
    aware,
    entry_of,
    plain,
    tagged,
)
from antiphon.history.postgres.tables import LOCKS, lock_number
from antiphon.history.store import ConversationRow

if TYPE_CHECKING:
    from antiphon.history.postgres.connections import Database

D = TypeVar("D")

EntryRow: TypeAlias = dict[str, Any]
"""What is written of an entry, and the epoch under which."""

# `FOR SHARE` makes an append and a claim, or a delete, wait for each other, and read the row again then: whoever claimed a
# conversation sees every entry that was written before, and no entry of another comes after.
_APPEND = """
WITH taken AS MATERIALIZED (
    SELECT number, id, watched_until > clock_timestamp() AS is_watched FROM conversations
    WHERE number = %(number)s AND {may_write} AND touched BETWEEN
    coalesce(%(at)s::timestamptz, created) - interval '1 minute' AND coalesce(%(at)s::timestamptz, created) FOR SHARE
), written AS (
    INSERT INTO entries (number, sequence, at, body, checksum)
    SELECT number, %(sequence)s, %(at)s::timestamptz, %(body)s, %(checksum)s FROM taken
    ON CONFLICT DO NOTHING RETURNING sequence
)
SELECT CASE WHEN is_watched THEN pg_notify('antiphon_' || id, sequence::text) END FROM written, taken
"""
_APPEND_FREE = _APPEND.format(may_write="held_until <= clock_timestamp()")
_APPEND_LEASED = _APPEND.format(may_write="epoch = %(epoch)s")
_TOUCH = "UPDATE conversations SET touched = coalesce(%(at)s::timestamptz, created) WHERE number = %(number)s"
TOUCH_LAST = """
UPDATE conversations c SET touched = coalesce(
    (SELECT at FROM entries e WHERE e.number = c.number ORDER BY sequence DESC LIMIT 1), created) WHERE number = %s
"""
INSERT_ENTRY = """
INSERT INTO entries (number, sequence, at, body, checksum)
VALUES (%(number)s, %(sequence)s, %(at)s, %(body)s, %(checksum)s)
"""
_BODY = "SELECT body FROM entries WHERE number = %s AND sequence = %s"
_REFERENCE = f'"{MARK}'.encode()


class Log:
    """The log of every conversation of a database."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self.path = connections.place

    def append(self, number: int, conversation: str, entry: HistoryEntry, epoch: int | None) -> None:
        """Write one entry; back when it is durable."""
        stored, attachments = detach(entry)
        row = row_of(number, entry, stored, epoch)
        try:
            self._append(row, conversation, attachments)
        except BrokenOff:
            try:
                self._append(row, conversation, attachments, is_second=True)
            except StoreUnreachable as error:
                raise StoreUnreachable(
                    f"the connection to {self.path} broke while entry {entry.sequence_number} of conversation {conversation} "
                    f"was on its way: whether it was written is not known. `refresh()` tells when the server is back ({error})"
                ) from error

    def _append(
        self, row: EntryRow, conversation: str, attachments: Mapping[str, str], *, is_second: bool = False
    ) -> None:
        number, sequence = row["number"], row["sequence"]
        while not self._write(row, attachments):
            found = self._connections.rows(_BODY, (number, sequence))
            if is_second and found == [(row["body"],)]:
                return  # the first time it arrived; only its acknowledgement was lost
            with self._connections.connection() as db:
                refused = refusal(db, number, row["epoch"])
            if refused is not None:
                raise refused
            if found:
                raise conflict(conversation, self._version(number), sequence)
            # Whoever held the conversation gave it back just now.

    def read(self, number: int, conversation: str, after: int) -> Sequence[HistoryEntry]:
        """The entries of a conversation behind number `after`, whole."""
        stored = self._connections.rows(ENTRY_ROWS, (number, after + 1, LAST_SEQUENCE))
        entries = [
            self.decoded(entry_of, row, expected, conversation) for expected, row in enumerate(stored, after + 1)
        ]
        places = [place for place, (_, _, body, _) in enumerate(stored) if _REFERENCE in body]
        if places:
            loaded = self.attachments(sorted({name for place in places for name in references(entries[place])}))
            for place in places:
                entries[place] = attach(entries[place], loaded.__getitem__)
        return entries

    def decoded(self, decode: Callable[[StoredRow], D], row: StoredRow, expected: int, conversation: str) -> D:
        """What `decode` makes of the row of entry `expected`. Raises `StoreDamaged`, naming the entry and the conversation."""
        if row[0] != expected:
            raise damaged_entry(self.path, expected, conversation, "its row is missing")
        try:
            return decode(row)
        except StoreDamaged as error:
            raise damaged_entry(self.path, expected, conversation, error) from error

    def find(self, conversation: str) -> ConversationRow:
        """The row of the one conversation that is meant."""
        wanted = plain(conversation)
        found = self.rows("WHERE c.id = %s", (wanted,))
        if conversation == "last":
            found = self.latest(1)
        elif not found and may_be_an_end(wanted):
            size, end = len(wanted), wanted.lower()
            found = self.rows("WHERE left(c.id, %s) = %s OR right(c.id, %s) = %s LIMIT 2", (size, end, size, end))
        return the_conversation(found, conversation, self.path)

    def insert_conversation(self, db: Database, head: ExportHead) -> int:
        """The number of a new conversation."""
        tags = [plain(tag) for tag in head.tags]
        row = (head.id, plain(head.title), head.created, head.parent, head.forked_at, tags, head.created)
        inserted = """
            INSERT INTO conversations (id, title, created, parent, forked_at, tags, touched)
            VALUES (%s, %s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING RETURNING number
        """
        made = db.execute(inserted, row).fetchone()
        if made is None:
            raise ConversationExists(f"{self.path} already has a conversation {head.id}; import it as new to have both")
        return int(made[0])

    def insert_entry(self, db: Database, number: int, entry: HistoryEntry) -> None:
        """Write an entry and its attachments as part of a transaction. Raises `LeaseHeld` if somebody holds the conversation."""
        stored, attachments = detach(entry)
        if not self._insert_all(db, row_of(number, entry, stored, None), attachments) and (
            refused := refusal(db, number, None)
        ):
            raise refused

    def _write(self, row: EntryRow, attachments: Mapping[str, str]) -> bool:
        if not attachments:
            with self._connections.connection() as db:
                if _insert(db, row):
                    return True
        with self._connections.transaction() as db:
            if not (is_taken := self._insert_all(db, row, attachments)):
                self._connections.undo()
        return is_taken

    def _insert_all(self, db: Database, row: EntryRow, attachments: Mapping[str, str]) -> bool:
        """Write an entry with its attachments, and that its conversation was touched, as part of a transaction."""
        self.insert_attachments(db, row["number"], attachments)
        db.execute(_TOUCH, row)
        return _insert(db, row)

    def insert_attachments(self, db: Database, number: int, attachments: Mapping[str, str]) -> None:
        """Keep attachments, each once, and say that a conversation uses them."""
        if attachments:
            self.keep_attachments(db)
        for name in sorted(attachments):  # in one order, so that two who write the same wait for each other and no more
            data = attachments[name].encode()
            db.execute("INSERT INTO attachments VALUES (%s, %s) ON CONFLICT DO NOTHING", (name, data))
            db.execute("INSERT INTO attachment_uses VALUES (%s, %s) ON CONFLICT DO NOTHING", (number, name))

    def keep_attachments(self, db: Database) -> None:
        """Until the transaction ends, no delete removes an attachment that seems to be used no more."""
        db.execute("SELECT pg_advisory_xact_lock_shared(%s, %s)", self.attachments_lock)

    @property
    def attachments_lock(self) -> tuple[int, int]:
        """The key of the lock that attachments are kept, and removed, under."""
        return LOCKS, lock_number(self._connections.address.schema, "attachments")

    def attachments(self, names: Sequence[str]) -> dict[str, str]:
        """Attachments by name."""
        found = self._connections.rows("SELECT name, data FROM attachments WHERE name = ANY(%s)", ([*names],))
        loaded = {name: verified(name, data.decode(errors="replace"), self.path) for name, data in found}
        if missing := [name for name in names if name not in loaded]:
            raise StoreDamaged(f"{self.path}: the attachment {missing[0]} is missing")
        return loaded

    def _version(self, number: int) -> int:
        ((version,),) = self._connections.rows(
            "SELECT coalesce(max(sequence), 0) FROM entries WHERE number = %s", (number,)
        )
        return int(version)

    def latest(self, limit: int, offset: int = 0, tag: str | None = None) -> Sequence[ConversationRow]:
        """The conversations that were changed last, in that order."""
        which, tags = tagged(tag), [plain(tag or "")]
        last = {"tags": tags, "last": max(0, limit + offset - 1)}
        ((since,),) = self._connections.rows(SINCE.format(which=which), last)
        page = {"tags": tags, "since": since, "limit": limit, "offset": offset}
        found = self._connections.rows(LATEST.format(which=which), page, is_planned_anew=True)
        return [ConversationRow.of(*row) for row in found]

    def rows(self, rest: str, given: Sequence[object] = ()) -> Sequence[ConversationRow]:
        """Conversations; `rest` is the rest of the query."""
        return [ConversationRow.of(*row) for row in self._connections.rows(f"{CONVERSATIONS} {rest}", given)]


def row_of(number: int, entry: HistoryEntry, stored: bytes, epoch: int | None = None) -> EntryRow:
    """The row of an entry of the conversation of that number."""
    return {
        "number": number,
        "sequence": entry.sequence_number,
        "at": aware(entry.timestamp),
        "body": stored,
        "checksum": row_checksum(entry.sequence_number, microseconds(entry.timestamp), stored),
        "epoch": epoch,
    }


def _insert(db: Database, row: EntryRow) -> bool:
    """Write an entry, if its writer may and its conversation was touched in the minute before; whether it was so."""
    return db.execute(_APPEND_FREE if row["epoch"] is None else _APPEND_LEASED, row).rowcount > 0
