"""`Log`: conversations and their entries as rows.

- An append is one statement: it checks the conversation's row (does it exist, may this writer write, was it touched in the minute
  before) and inserts the entry. Two writers of one conversation meet in the primary key: the second insert of a number does
  nothing, and its writer gets a `WriterConflict`.
- If the conversation was not touched in the minute before (see `schema`), or the entry has large media, all is written in one
  transaction.
- If the connection breaks before the answer, the same statement is sent once more: an entry with exactly our bytes at its number
  is ours, and was written.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from msgspec import Struct

from antiphon.errors import ConversationExists, StoreDamaged, StoreUnreachable, UnknownConversation, WriterConflict
from antiphon.history.attachments import (
    INLINE_LIMIT,
    REFERENCE,
    extract_media,
    references,
    restore_media,
    verify_attachment,
)
from antiphon.history.codec import (
    FIRST_DIGEST,
    StoredRow,
    damaged_entry,
    decode_row,
    decode_rows,
    entry_digest,
    head_of,
    row_body,
)
from antiphon.history.entries import HistoryEntry
from antiphon.history.export import ExportHead
from antiphon.history.journal import InboxItem
from antiphon.history.lease import Lease
from antiphon.history.sql.database import ConnectionBroken
from antiphon.history.sql.dialect import Dialect, EntryRow
from antiphon.history.sql.leases import Leases
from antiphon.history.store import ConversationRow, is_id_abbreviation, single_match
from antiphon.ids import ID_LENGTH

if TYPE_CHECKING:
    from antiphon.history.agent_history import AgentHistory

    Forking: TypeAlias = Callable[[str, int], AgentHistory]

logger = logging.getLogger("antiphon.history")

D = TypeVar("D")

_INSERT_CONVERSATION = """
INSERT INTO conversations (id, title, created, parent, forked_at, tags, imported, touched)
VALUES (:id, :title, :created, :parent, :forked_at, :tags, :imported, :created) ON CONFLICT DO NOTHING RETURNING number
"""
_SET_IMPORTED = "UPDATE conversations SET imported = :imported WHERE number = :number"
_PUT = """
INSERT INTO inbox (number, key, kind, body, at) SELECT number, :key, :kind, :body, :now FROM conversations WHERE number = :number
ON CONFLICT DO NOTHING RETURNING key
"""
_ITEMS = "SELECT key, kind, body FROM inbox WHERE number = :number ORDER BY at, key LIMIT 100"
_NO_ATTACHMENTS: Mapping[str, str] = {}
_BATCH = 500


def _body_and_entry(row: StoredRow) -> tuple[bytes, HistoryEntry]:
    body = row_body(row, decodes_unchecked=False)
    return body, decode_row(row[0], body)


class _NotAppended(Exception):
    """Rolls a transaction back."""


class _Append(Struct, frozen=True):
    """An entry to write, under the epoch of a lease if there is one."""

    number: int
    conversation: str
    sequence: int
    row: EntryRow
    attachments: Mapping[str, str]
    epoch: int | None
    is_import: bool = False


class Log:
    """The log of every conversation of a store."""

    def __init__(self, dialect: Dialect, leases: Leases) -> None:
        self._dialect = dialect
        self._leases = leases
        self.path = dialect.location

    def inbox(self, number: int) -> SqlInbox:
        """What waits for the conversation of that number."""
        return SqlInbox(self._dialect, number)

    def journal(
        self, number: int, conversation: str, fork: Forking, lease: Lease | None = None, *, is_import: bool = False
    ) -> StoreJournal:
        """The journal of the conversation of that number and id, under a lease if there is one."""
        return StoreJournal(self, self._dialect, number, conversation, fork, lease, is_import=is_import)

    def append(self, new: _Append, sent_before: bytes | None = None) -> None:
        """Write an entry in a transaction, or raise why it may not be written. `sent_before`: a body that may have arrived."""
        number, sequence = new.number, new.sequence
        while not self._write(new):
            found = self._dialect.read_entries(number, sequence, sequence)
            if found and sent_before is not None and row_body(found[0]) == sent_before:
                return  # the first attempt arrived; only its acknowledgement was lost
            with self._dialect.connection() as db:
                refusal = self._leases.refusal(db, number, new.epoch)
            if refusal is not None:
                raise refusal
            if found:
                raise self._conflict(new.conversation, number, sequence)
            # The holder released the conversation just now: try again.

    def _write(self, new: _Append) -> bool:
        try:
            with self._dialect.transaction() as db:
                if not self._write_in(db, new):
                    raise _NotAppended  # noqa: TRY301 - it rolls back
        except _NotAppended:
            return False
        return True

    def _write_in(self, db: Any, new: _Append) -> bool:
        self.insert_attachments(db, new.number, new.attachments)
        self._dialect.touch(db, new.row)
        if new.is_import:
            self._dialect.execute(db, _SET_IMPORTED, number=new.number, imported=new.sequence)
        return self._dialect.append_entry(new.row, new.epoch, db)

    def insert_entry(self, db: Any, number: int, conversation: str, entry: HistoryEntry) -> None:
        """Write an entry and its attachments as part of a transaction. Raises `LeaseHeld` if the conversation is leased."""
        stored, attachments = extract_media(entry)
        digest = entry_digest(self.digest_at(number, conversation, entry.sequence_number - 1), stored)
        row = self._dialect.entry_row(number, entry, stored, digest)
        new = _Append(number, conversation, entry.sequence_number, row, attachments, None)
        if not self._write_in(db, new):
            raise self._leases.refusal(db, number, None) or self._conflict(conversation, number, new.sequence)

    def digest_at(self, number: int, conversation: str, sequence: int) -> bytes:
        """The digest of an entry, as it is stored; computed if an earlier version stored the entry."""
        if not sequence:
            return FIRST_DIGEST
        if self._dialect.has_digests:
            statement = f"SELECT digest FROM entries WHERE {self._dialect.entry_at}"
            for (digest,) in self._dialect.rows(statement, number=number, sequence=sequence):
                if isinstance(digest, bytes):
                    return digest
        return head_of(self.bodies(number, conversation, sequence))

    def bodies(self, number: int, conversation: str, last: int) -> Iterator[bytes]:
        """The first `last` entries of a conversation as they are stored, read piece by piece: stored entries never change.

        Raises `StoreDamaged` with the entry and the conversation, and `UnknownConversation` if it is deleted meanwhile.
        """
        for first in range(1, last + 1, _BATCH):
            end = min(first + _BATCH - 1, last)
            rows = self._dialect.read_entries(number, first, end)
            if not rows:
                raise self.deleted_error(conversation)
            for expected, row in enumerate(rows, first):
                yield self.decode(row_body, row, expected, conversation)
            if first + len(rows) <= end:
                raise damaged_entry(self.path, first + len(rows), conversation, "its row is missing")

    def insert_conversation(self, db: Any, head: ExportHead, *, imported: int = 0) -> int:
        """Insert a new conversation and return its number."""
        values = {"id": head.id, "title": head.title, "created": head.created, "parent": head.parent}
        for (number,) in self._dialect.execute(
            db, _INSERT_CONVERSATION, **values, forked_at=head.forked_at, tags=tuple(head.tags), imported=imported
        ):
            return int(number)
        raise ConversationExists(
            f"{self.path} already has a conversation {head.id}; import it as new to have both (--as-new)"
        )

    def insert_attachments(self, db: Any, number: int, attachments: Mapping[str, str]) -> None:
        """Store attachments, each once, and that a conversation uses them."""
        if attachments:
            self._dialect.lock(db, "attachments", shared=True)  # no delete removes one that seems to be unused
        for name in sorted(attachments):  # in one order, so that two writers of the same do not wait in a circle
            data = self._dialect.attachment_data(attachments[name])
            inserted = "INSERT INTO attachments VALUES (:name, :data) ON CONFLICT DO NOTHING"
            self._dialect.execute(db, inserted, name=name, data=data)
            used = "INSERT INTO attachment_uses VALUES (:number, :name) ON CONFLICT DO NOTHING"
            self._dialect.execute(db, used, number=number, name=name)

    def attachments(self, names: Sequence[str]) -> dict[str, str]:
        """Attachments by name."""
        wanted = f"SELECT name, data FROM attachments WHERE {self._dialect.one_of('name', 'names')}"
        found = self._dialect.rows(wanted, names=list(names))
        loaded = {name: verify_attachment(name, self._dialect.attachment_text(data), self.path) for name, data in found}
        if missing := [name for name in names if name not in loaded]:
            raise StoreDamaged(f"{self.path}: the attachment {missing[0]} is missing")
        return loaded

    def read(self, number: int, conversation: str, after: int) -> Sequence[HistoryEntry]:
        """The entries of a conversation after number `after`, with their media."""
        entries: list[HistoryEntry] = []
        places: list[int] = []
        for rows in self._dialect.entry_batches(number, after + 1):
            first = after + len(entries) + 1
            bodies, decoded = decode_rows(rows, first) or self._decode_each(rows, first, conversation)
            if REFERENCE in b"".join(bodies):  # one search, as most conversations have none
                places += [place for place, body in enumerate(bodies, len(entries)) if REFERENCE in body]
            entries += decoded
        if places:
            loaded = self.attachments(sorted({name for place in places for name in references(entries[place])}))
            for place in places:
                entries[place] = restore_media(entries[place], loaded.__getitem__)
        return entries

    def _decode_each(
        self, rows: Sequence[StoredRow], first: int, conversation: str
    ) -> tuple[Sequence[bytes], Sequence[HistoryEntry]]:
        """`decode_rows`, row by row. Raises `StoreDamaged` with the first entry that is."""
        numbered = enumerate(rows, first)
        decoded = [self.decode(_body_and_entry, row, expected, conversation) for expected, row in numbered]
        return [body for body, _ in decoded], [entry for _, entry in decoded]

    def decode(self, decode: Callable[[StoredRow], D], row: StoredRow, expected: int, conversation: str) -> D:
        """Apply `decode` to the row of entry `expected`. Raises `StoreDamaged` with the entry and the conversation."""
        if row[0] != expected:
            raise damaged_entry(self.path, expected, conversation, "its row is missing")
        try:
            return decode(row)
        except StoreDamaged as error:
            raise damaged_entry(self.path, expected, conversation, error) from error

    def find(self, conversation: str) -> ConversationRow:
        """The conversation with that id, or the only one whose id begins or ends like that, or the `last` one."""
        if conversation == "last":
            found = self.latest(1)
        else:
            found = self.rows("WHERE c.id = :id", id=conversation)
            if not found and is_id_abbreviation(conversation):
                size = len(conversation)
                found = self.rows(
                    "WHERE substr(c.id, 1, :size) = :part OR substr(c.id, :start) = :part LIMIT 2",
                    part=conversation.lower(),
                    size=size,
                    start=ID_LENGTH + 1 - size,
                )
        return single_match(found, UnknownConversation, conversation, self.path)

    def reread(self, row: ConversationRow, count: int) -> ConversationRow:
        """The row again, after `count` entries were read.

        Raises `StoreDamaged` if that are too few, or more than the row's own look-up finds: the next append would collide.
        """
        now = self.find(row.id)
        if row.version <= count <= now.version:
            return now
        raise StoreDamaged(
            f"{self.path}: conversation {row.id} is damaged: {count} of its entries can be read, and the last one has the "
            f"number {now.version}. Nothing was written; check it with `antiphon history verify {row.id}`, and restore a backup"
        )

    def latest(self, limit: int, offset: int = 0, tag: str | None = None) -> Sequence[ConversationRow]:
        """The conversations that were changed last, in that order."""
        condition, since = self.tag_condition(tag), None
        if self._dialect.has_touched:
            # The plan of the page depends on this time, so it is read by itself.
            recent = self._dialect.recent_since.format(condition=condition)
            ((since,),) = self._dialect.rows(recent, tag=tag, last=max(0, limit + offset - 1))
            condition += f" AND {self._dialect.touched_since}"
        page = (
            f"WHERE {condition} ORDER BY coalesce(last.at, c.created) DESC, c.number DESC LIMIT :limit OFFSET :offset"
        )
        return self.rows(page, skip_damaged=True, replan=True, tag=tag, since=since, limit=limit, offset=offset)

    def rows(
        self, rest: str, *, skip_damaged: bool = False, replan: bool = False, **values: Any
    ) -> Sequence[ConversationRow]:
        """Conversations; `rest` is the rest of the query. A damaged row raises `StoreDamaged`, or is skipped with a warning."""
        found = []
        for row in self._dialect.rows(f"{self._dialect.select_conversations} {rest}", replan=replan, **values):
            try:
                found.append(self._dialect.conversation(row))
            except StoreDamaged as error:
                if not skip_damaged:
                    raise
                logger.warning("%s", error)
        return found

    def tag_condition(self, tag: str | None) -> str:
        """The condition that a conversation has the tag `:tag`; without a tag, all match."""
        return "true" if tag is None else self._dialect.has_tag

    def version(self, number: int) -> int | None:
        """How many entries a conversation has; None if it was deleted."""
        statement = f"SELECT {self._dialect.version} FROM conversations c WHERE c.number = :number"
        for (version,) in self._dialect.rows(statement, number=number):
            return int(version)
        return None

    def deleted_error(self, conversation: str) -> UnknownConversation:
        """The error for a conversation that was deleted meanwhile."""
        return UnknownConversation(f"{self.path}: conversation {conversation} was deleted")

    def _conflict(self, conversation: str, number: int, sequence_number: int) -> WriterConflict:
        return WriterConflict(
            f"another writer appended to conversation {conversation}: it is at version {self.version(number) or 0}, and this "
            f"entry was meant to be number {sequence_number}. Nothing was written; `refresh()` the history, look at what is new, "
            "and append again"
        )


class StoreJournal:
    """Writes to one conversation, under a lease if there is one. `is_import`: what it writes was imported."""

    def __init__(
        self,
        log: Log,
        dialect: Dialect,
        number: int,
        conversation_id: str,
        fork: Forking,
        lease: Lease | None = None,
        *,
        is_import: bool = False,
    ) -> None:
        self.conversation_id = conversation_id
        self.inbox = log.inbox(number)
        self._is_import = is_import
        self._log = log
        self._dialect = dialect
        self._fork = fork
        self._number = number
        self._epoch = lease.epoch if lease is not None else None
        self._next = 0
        self._digest = FIRST_DIGEST
        """The digest of the entry before `_next`, if this journal wrote it."""

    def write(self, entry: HistoryEntry, stored: bytes) -> None:
        number, sequence, attachments = self._number, entry.sequence_number, _NO_ATTACHMENTS
        if len(stored) > INLINE_LIMIT or stored.find(REFERENCE) >= 0:  # `in` first tries whether it is a number
            stored, attachments = extract_media(entry, stored)
        previous = self._digest
        if self._next != sequence:
            previous = self._log.digest_at(number, self.conversation_id, sequence - 1)
        digest = entry_digest(previous, stored)
        row = self._dialect.entry_row(number, entry, stored, digest)
        is_alone = (
            not attachments and not self._is_import
        )  # a single insert is its own transaction: one fsync and no more
        new = None
        try:
            if not is_alone or not self._dialect.append_entry(row, self._epoch):
                new = self._new(sequence, row, attachments)
                self._log.append(new)
        except ConnectionBroken:
            try:
                self._log.append(new or self._new(sequence, row, attachments), stored)
            except StoreUnreachable as error:
                raise StoreUnreachable(
                    f"the connection to {self._log.path} broke while entry {sequence} of conversation {self.conversation_id} "
                    f"was written: whether it arrived is not known. Call `refresh()` when the server is back ({error})"
                ) from error
        self._digest, self._next = digest, sequence + 1

    def _new(self, sequence: int, row: EntryRow, attachments: Mapping[str, str]) -> _Append:
        return _Append(self._number, self.conversation_id, sequence, row, attachments, self._epoch, self._is_import)

    def read(self, after: int) -> Sequence[HistoryEntry]:
        return self._log.read(self._number, self.conversation_id, after)

    @property
    def imported(self) -> int:
        """How many entries of the conversation were imported."""
        return self._log.find(self.conversation_id).info.imported

    def fork(self, at: int) -> AgentHistory:
        return self._fork(self.conversation_id, at)


class SqlInbox:
    """The inbox of the conversation of that number, one row for each item."""

    def __init__(self, dialect: Dialect, number: int) -> None:
        self._dialect = dialect
        self._number = number

    def put(self, item: InboxItem) -> bool:
        with self._dialect.connection() as db:
            put = self._dialect.execute(db, _PUT, key=item.key, kind=item.kind, body=item.body, number=self._number)
        return bool(put)

    def items(self) -> Sequence[InboxItem]:
        if not self._dialect.has_inbox:
            return ()
        rows = self._dialect.rows(_ITEMS, number=self._number)
        return [InboxItem(key, kind, bytes(body)) for key, kind, body in rows] if rows else ()

    def remove(self, keys: Iterable[str]) -> None:
        statement = f"DELETE FROM inbox WHERE number = :number AND {self._dialect.one_of('key', 'keys')}"
        with self._dialect.connection() as db:
            self._dialect.execute(db, statement, number=self._number, keys=list(keys))
