"""`HistoryStore`: conversations in a database. What takes several statements (a fork, an import, a delete) is one transaction.

It holds a row of facts about each conversation, and one row for each entry. An append writes one row, and at most once a minute
also the conversation's own, for its place in lists. `open` returns an `AgentHistory` whose journal is the store, so
`history.append` is durable. A process that must be the only writer for a while (a worker, a graph) claims the conversation and
opens it with the `Lease`. `runs` are the turns that workers execute.

Nothing holds a connection while it waits for the caller: an export reads its entries piece by piece.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence

import msgspec

from antiphon.closing import Closable
from antiphon.errors import SequenceError, StoreDamaged, StoreUnreachable
from antiphon.history.agent_history import AgentHistory
from antiphon.history.codec import FIRST_DIGEST, entry_digest, head_of
from antiphon.history.entries import HistoryEntry, ModelInputEntry
from antiphon.history.export import Export, ExportHead, attachment_line, head_line
from antiphon.history.journal import Inbox
from antiphon.history.lease import Lease
from antiphon.history.search_text import default_title, search_excerpt, searchable_text
from antiphon.history.sql.dialect import Dialect
from antiphon.history.sql.leases import Leases
from antiphon.history.sql.log import Log
from antiphon.history.sql.runs import RunTable
from antiphon.history.sql.search_index import SearchIndex
from antiphon.history.store import (
    ConversationInfo,
    ConversationRow,
    SearchHit,
    Tombstone,
    Verification,
    check_not_negative,
    check_tags,
    check_text,
)
from antiphon.threads import STORES

logger = logging.getLogger("antiphon.history")

_POLL_SECONDS = 0.1
_GIVE_UP_SECONDS = 120.0
"""How long a tail waits for a server that is away."""

_DESCRIBE = (
    "UPDATE conversations SET title = coalesce(:title, title), tags = coalesce(:tags, tags) WHERE number = :number"
)
# The copy may use fewer attachments than its parent; one too many costs nothing but a row.
_COPY_USES = "INSERT INTO attachment_uses SELECT :number, name FROM attachment_uses WHERE number = :parent"
_DELETE_UNUSED = """
DELETE FROM attachments WHERE name IN (SELECT name FROM attachment_uses WHERE number = :number) AND NOT EXISTS
(SELECT 1 FROM attachment_uses used WHERE used.name = attachments.name AND used.number <> :number)
"""


class HistoryStore(Closable):
    """Stored conversations, in the database of a dialect."""

    path: str
    """Where the store is, as people may see it: a file, or a server without the password."""
    is_local: bool = False
    """Whether it is on this machine and fast enough to be called in an event loop."""

    def __init__(self, dialect: Dialect, index: SearchIndex) -> None:
        self.path = dialect.location
        self._dialect = dialect
        self._index = index
        self._leases = Leases(dialect)
        self._log = Log(dialect, self._leases)
        self._runs = RunTable(dialect, self._log, self._leases)

    def close(self) -> None:
        self._dialect.close()

    def create(self, title: str = "", *, tags: Sequence[str] = ()) -> AgentHistory:
        """A new, empty conversation."""
        head = ExportHead.new(title, tags)
        with self._dialect.connection() as db:
            number = self._log.insert_conversation(db, head)
        return AgentHistory(journal=self._log.journal(number, head.id, self.fork))

    def open(self, conversation: str, *, lease: Lease | None = None) -> AgentHistory:
        """The history of a conversation: by its id, the beginning or end of it if only one matches, or `last`.

        With a `lease`, appends raise `LeaseLost` once another holder claims the conversation; without one, they raise
        `LeaseHeld` while it is leased.
        """
        return self._open(conversation, lease)

    def append_imported(self, conversation: str, entries: Sequence[HistoryEntry]) -> int:
        """Append those of `entries`, all of a conversation, that it does not have yet, as part of its import.

        Decisions of people among them do not count here (law L11). Gives how many were appended.
        """
        history = self._open(conversation, is_import=True)
        new = entries[history.version :]
        for entry in new:
            history.append(entry)
        return len(new)

    def _open(self, conversation: str, lease: Lease | None = None, *, is_import: bool = False) -> AgentHistory:
        row = self._log.find(conversation)
        journal = self._log.journal(row.number, row.id, self.fork, lease, is_import=is_import)
        entries = journal.read(after=0)
        if len(entries) != row.version:  # something was appended meanwhile, or a key of the table is damaged
            row = self._log.reread(row, len(entries))
        return AgentHistory(entries, journal=journal, imported=row.info.imported)

    def info(self, conversation: str) -> ConversationInfo:
        """The facts about a conversation."""
        (info,) = self._with_default_titles([self._log.find(conversation)])
        return info

    def list(self, *, limit: int = 50, offset: int = 0, tag: str | None = None) -> Sequence[ConversationInfo]:
        """Conversations, the latest changed first."""
        check_not_negative(limit=limit, offset=offset)
        check_text("tag", tag)
        return self._with_default_titles(self._log.latest(limit, offset, tag))

    def count(self, *, tag: str | None = None) -> int:
        """How many conversations there are."""
        check_text("tag", tag)
        counted = f"SELECT count(*) FROM conversations c WHERE {self._log.tag_condition(tag)}"
        ((number,),) = self._dialect.rows(counted, tag=tag)
        return int(number)

    def search(self, query: str, *, limit: int = 20, tag: str | None = None) -> Sequence[SearchHit]:
        """Entries with all the words of `query`, the best first. Words in double quotes must follow each other.

        With a `tag`, only in conversations that have it.
        """
        check_not_negative(limit=limit)
        check_text("tag", tag)
        found = self._index.find(query, limit, tag)
        numbers = [*{hit.number for hit in found}]
        condition = f"WHERE {self._dialect.one_of('c.number', 'numbers')}"
        known = self._log.rows(condition, skip_damaged=True, numbers=numbers) if found else []
        infos = {row.number: info for row, info in zip(known, self._with_default_titles(known), strict=True)}
        return [
            SearchHit(infos[hit.number], hit.entry.sequence_number, hit.entry.kind, search_excerpt(hit.text, query))
            for hit in found
            if hit.number in infos  # else it was deleted meanwhile
        ]

    def describe(
        self, conversation: str, *, title: str | None = None, tags: Sequence[str] | None = None
    ) -> ConversationInfo:
        """Change the title or the tags of a conversation."""
        check_text("title", title)
        tags = None if tags is None else check_tags(tags)
        row = self._log.find(conversation)
        with self._dialect.connection() as db:
            self._dialect.execute(db, _DESCRIBE, title=title, tags=tags, number=row.number)
        return self.info(row.id)

    def fork(self, conversation: str, at: int | None = None) -> AgentHistory:
        """A new conversation that starts with the first `at` entries of this one (all of them by default)."""
        parent = self._log.find(conversation)
        head = ExportHead.of(parent.info).for_fork(at)
        with self._dialect.transaction() as db:
            self._dialect.lock(db, "attachments", shared=True)
            number = self._log.insert_conversation(db, head, imported=min(head.entries, parent.info.imported))
            values = {"number": number, "parent": parent.number, "entries": head.entries}
            self._dialect.execute(db, self._dialect.copy_entries, **values)
            copied = f"SELECT {self._dialect.version} FROM conversations c WHERE c.number = :number"
            if head.entries and self._dialect.execute(db, copied, number=number) == [(0,)]:
                raise self._log.deleted_error(parent.id)
            self._dialect.execute(db, _COPY_USES, number=number, parent=parent.number)
            self._dialect.execute(db, self._dialect.touch_last, number=number)
        return self.open(head.id)

    def delete(self, conversation: str) -> None:
        """Delete a conversation and the attachments no other one uses. Its forks stay. A damaged one can be deleted too."""
        row = self._log.find(conversation)
        try:
            head = self._log.digest_at(row.number, row.id, row.version)
        except StoreDamaged:  # an entry without a stored digest cannot be read: it can be deleted all the same
            head = b""
        with self._dialect.transaction() as db:
            self._dialect.lock(db, "attachments")
            self._dialect.execute(
                db,
                "INSERT INTO tombstones (id, deleted, entries, head) VALUES (:id, :now, :entries, :head)",
                id=row.id,
                entries=row.version,
                head=head,
            )
            for statement in (
                # First the row: an append in progress is waited for, and none follows.
                "DELETE FROM conversations WHERE number = :number",
                f"DELETE FROM entries WHERE {self._dialect.entries_of}",
                f"DELETE FROM said WHERE {self._dialect.index_rows_of}",
                "DELETE FROM runs WHERE number = :number",
                "DELETE FROM inbox WHERE number = :number",
                _DELETE_UNUSED,
                "DELETE FROM attachment_uses WHERE number = :number",
            ):
                self._dialect.execute(db, statement, number=row.number)

    def export_lines(self, conversation: str) -> Iterator[bytes]:
        """A conversation as JSON Lines: a head, its attachments, its entries. Each line ends with a newline."""
        row = self._log.find(conversation)
        head = self._log.digest_at(row.number, row.id, row.version).hex()
        yield head_line(msgspec.structs.replace(ExportHead.of(row.info), head=head))
        used = "SELECT name FROM attachment_uses WHERE number = :number ORDER BY name"
        for (name,) in self._dialect.rows(used, number=row.number):
            yield attachment_line(name, self._log.attachments([name])[name])
        # As many entries as the head states, even if more were appended since.
        yield from (body + b"\n" for body in self._log.bodies(row.number, row.id, row.version))

    def import_lines(
        self, lines: Iterable[bytes], *, source: str = "the export", as_new: bool = False
    ) -> ConversationInfo:
        """Import an export; it is atomic. `as_new` gives it a new id; otherwise its id must be free here."""
        export = Export.read(lines, source, as_new=as_new)  # all of it, before anything is written
        with self._dialect.transaction() as db:
            number = self._log.insert_conversation(db, export.head, imported=len(export.entries))
            self._log.insert_attachments(db, number, export.attachments)
            digested = zip(export.entries, export.digests, strict=True)
            rows = (self._dialect.entry_row(number, line.entry, line.stored, digest) for line, digest in digested)
            self._dialect.insert_entries(db, rows)
            self._dialect.execute(db, self._dialect.touch_last, number=number)
        return self.info(export.head.id)

    def verify(self, conversation: str) -> Verification:
        """Compute the digests of a conversation's entries again and compare them with the stored ones.

        Raises `StoreDamaged` for an entry that cannot be read.
        """
        row = self._log.find(conversation)
        digests = f"SELECT digest FROM entries WHERE {self._dialect.entries_of} ORDER BY {self._dialect.entry_order}"
        stored = self._dialect.rows(digests, number=row.number) if self._dialect.has_digests else []
        head, undigested, problem = FIRST_DIGEST, 0, ""
        for version, body in enumerate(self._log.bodies(row.number, row.id, row.version), 1):
            head = entry_digest(head, body)
            known = stored[version - 1][0] if version <= len(stored) else None
            undigested += known is None
            if known not in (None, head) and not problem:
                problem = f"entry {version} is not the one that was written, or one before it was changed"
        return Verification(
            conversation=row.id, entries=row.version, head=head.hex(), undigested=undigested, problem=problem
        )

    def digest_at(self, conversation: str, version: int) -> str:
        """The digest that a conversation had when it had `version` entries, computed from them, in hexadecimal."""
        row = self._log.find(conversation)
        if not 0 <= version <= row.version:
            raise SequenceError(f"conversation {row.id} has the versions 0 to {row.version}, not {version}")
        return head_of(self._log.bodies(row.number, row.id, version)).hex()

    def tombstones(self) -> Sequence[Tombstone]:
        """What is left of deleted conversations, the last deleted first."""
        if not self._dialect.has_digests:
            return []
        found = self._dialect.rows("SELECT id, deleted, entries, head FROM tombstones ORDER BY deleted DESC, id")
        return [
            Tombstone(id=name, deleted=self._dialect.to_datetime(deleted), entries=entries, head=head.hex())
            for name, deleted, entries, head in found
        ]

    def inbox(self, conversation: str) -> Inbox:
        """What others have for a conversation, until its writer takes it in."""
        return self._log.inbox(self._log.find(conversation).number)

    def claim(self, conversation: str, holder: str, seconds: float = 30.0) -> Lease | None:
        """Become the only writer of a conversation for `seconds`; None if it is leased. Others see `holder`."""
        return self._leases.claim(self._log.find(conversation).number, holder, seconds)

    def renew(self, lease: Lease, seconds: float = 30.0) -> Lease:
        """Extend a lease to `seconds` from now. Raises `LeaseLost` if the conversation was claimed since, or deleted."""
        return self._leases.renew(lease, seconds)

    def release(self, lease: Lease) -> None:
        """Release a lease. One that was lost is not an error."""
        self._leases.release(lease)

    def current_lease(self, conversation: str) -> Lease | None:
        """The lease under which a conversation is held now, if it is."""
        return self._leases.current(self._log.find(conversation).number)

    @property
    def runs(self) -> RunTable:
        """The turns that workers execute."""
        return self._runs

    async def tail(self, conversation: str, after: int = 0) -> AsyncIterator[HistoryEntry]:
        """The entries after number `after`, and then each new one as it is appended, by any process.

        Raises `UnknownConversation` when the conversation is deleted.
        """
        import asyncio  # most users of a store never wait for it

        row = self._log.find(conversation) if self.is_local else await STORES.run(self._log.find, conversation)
        outage = 0.0
        while True:
            try:
                new = self._news(row, after) if self.is_local else await STORES.run(self._news, row, after)
            except StoreUnreachable as error:
                if outage > _GIVE_UP_SECONDS:
                    raise
                if not outage:
                    logger.warning("%s; looking again, from entry %d of %s on", error, after, row.id)
                new, outage = [], outage + _POLL_SECONDS
            else:
                outage = 0.0
            for entry in new:
                yield entry
                after = entry.sequence_number
            await asyncio.sleep(_POLL_SECONDS)

    def _news(self, row: ConversationRow, after: int) -> Sequence[HistoryEntry]:
        version = self._log.version(row.number)
        if version is None:
            raise self._log.deleted_error(row.id)
        return self._log.read(row.number, row.id, after) if version > after else []

    def _with_default_titles(self, found: Sequence[ConversationRow]) -> Sequence[ConversationInfo]:
        """The facts, with the first words of the user where there is no title."""
        untitled = [row.number for row in found if row.version and not row.info.title]
        titles: dict[int, str] = {}
        for number, entry_row in self._dialect.first_inputs(untitled) if untitled else ():
            if number not in titles:
                entry = self._index.entry_at(number, entry_row)
                if isinstance(entry, ModelInputEntry):
                    titles[number] = default_title(searchable_text(entry))
        return [
            msgspec.structs.replace(row.info, title=titles[row.number]) if row.number in titles else row.info
            for row in found
        ]
