"""`HistoryStore`: the interface of every store, its values, and the checks all stores share.

A store holds conversations: a row of facts about each, and one row for each entry. An append writes one row, and at most once a
minute also the conversation's own, for its place in lists. `open` returns an `AgentHistory` whose journal is the store, so
`history.append` is durable.

A process that must be the only writer for a while (a worker, a graph) claims the conversation and opens it with the `Lease`.
`runs` are the turns that workers execute.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

from msgspec import Struct

from antiphon.closing import Closable
from antiphon.errors import StoreError, UnknownRun
from antiphon.history.agent_history import AgentHistory
from antiphon.history.entries import HistoryEntry
from antiphon.history.inbox import Inbox
from antiphon.history.lease import Lease
from antiphon.ids import ID_LENGTH

if TYPE_CHECKING:
    from antiphon.history.sql.log import Log
    from antiphon.history.sql.runs import RunTable

T = TypeVar("T")

RunState: TypeAlias = Literal["waiting", "suspended", "done", "failed", "cancelled"]
ENDED_STATES: frozenset[str] = frozenset({"done", "failed", "cancelled"})

MIN_ABBREVIATION = 4
"""So many characters of an id are enough, if only one id fits."""


class ConversationInfo(Struct, frozen=True, kw_only=True):
    """The facts about a stored conversation."""

    id: str
    title: str
    created: datetime
    updated: datetime
    version: int
    parent: str | None = None
    forked_at: int | None = None
    tags: tuple[str, ...] = ()
    imported: int = 0
    """How many of its entries, from the first on, came with an import: decisions and permissions among them do not count."""


class ConversationRow(Struct, frozen=True):
    """A conversation, and its number in the store."""

    number: int
    info: ConversationInfo

    @classmethod
    def of(
        cls,
        number: int,
        conversation: str,
        title: str,
        created: datetime,
        parent: str | None,
        forked_at: int | None,
        tags: Iterable[str],
        imported: int,
        version: int | None,
        updated: datetime | None,
    ) -> ConversationRow:
        """From a row: the facts, and the number and time of the last entry, if there is one."""
        info = ConversationInfo(
            id=conversation,
            title=title,
            created=created,
            updated=max(updated or created, created),
            version=version or 0,
            parent=parent,
            forked_at=forked_at,
            tags=tuple(tags),
            imported=imported,
        )
        return cls(number, info)

    @property
    def id(self) -> str:
        return self.info.id

    @property
    def version(self) -> int:
        return self.info.version


class SearchHit(Struct, frozen=True):
    """An entry that matches a search."""

    conversation: ConversationInfo
    sequence_number: int
    kind: str
    excerpt: str


class Run(Struct, frozen=True, kw_only=True):
    """The row of a run, and its lease while a worker executes it."""

    id: str
    conversation: str
    kind: str
    """The name under which workers know its model, tools and limits."""
    code: int = 0
    """The lowest version of that kind's code that may execute it."""
    provider: str = ""
    """The provider whose limit it counts against."""
    options: dict[str, Any] = {}
    """What the submitter passed to the code of its kind."""
    state: RunState = "waiting"
    reason: str = ""
    """The reason for its state: how the turn ended, what failed, who cancelled it."""
    created: datetime
    updated: datetime
    due: datetime
    """Not before this."""
    attempts: int = 0
    """How often it was claimed."""
    is_cancelled: bool = False
    """Whether it was cancelled while a worker executes it."""
    lease: Lease | None = None

    @property
    def is_over(self) -> bool:
        return self.state in ENDED_STATES

    @property
    def display_state(self) -> str:
        """The state in one word; a waiting run that is leased is `running`."""
        return "running" if self.state == "waiting" and self.lease is not None else self.state


class Verification(Struct, frozen=True, kw_only=True):
    """What checking a conversation found. `head` is computed from the entries; `problem` is empty if all is well."""

    conversation: str
    entries: int
    head: str
    undigested: int = 0
    """Entries that were stored without a digest, by an earlier version."""
    problem: str = ""


class Tombstone(Struct, frozen=True, kw_only=True):
    """What is left of a deleted conversation: that it existed, how long it was, and its head. None of its content."""

    id: str
    deleted: datetime
    entries: int
    head: str


class HistoryStore(Closable):
    """Stored conversations."""

    path: str
    """Where the store is, as people may see it: a file, or a server without the password."""
    is_local: bool = False
    """Whether it is on this machine and fast enough to be called in an event loop."""
    _log: Log

    @abstractmethod
    def create(self, title: str = "", *, tags: Sequence[str] = ()) -> AgentHistory:
        """A new, empty conversation."""

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

    @abstractmethod
    def count(self, *, tag: str | None = None) -> int:
        """How many conversations there are."""

    @abstractmethod
    def search(self, query: str, *, limit: int = 20, tag: str | None = None) -> Sequence[SearchHit]:
        """Entries with all the words of `query`, the best first. Words in double quotes must follow each other.

        With a `tag`, only in conversations that have it.
        """

    @abstractmethod
    def describe(
        self, conversation: str, *, title: str | None = None, tags: Sequence[str] | None = None
    ) -> ConversationInfo:
        """Change the title or the tags of a conversation."""

    @abstractmethod
    def fork(self, conversation: str, at: int | None = None) -> AgentHistory:
        """A new conversation that starts with the first `at` entries of this one (all of them by default)."""

    @abstractmethod
    def delete(self, conversation: str) -> None:
        """Delete a conversation and the attachments no other one uses. Its forks stay. A damaged one can be deleted too."""

    @abstractmethod
    def export_lines(self, conversation: str) -> Iterator[bytes]:
        """A conversation as JSON Lines: a head, its attachments, its entries. Each line ends with a newline."""

    @abstractmethod
    def import_lines(
        self, lines: Iterable[bytes], *, source: str = "the export", as_new: bool = False
    ) -> ConversationInfo:
        """Import an export; it is atomic. `as_new` gives it a new id; otherwise its id must be free here."""

    @abstractmethod
    def verify(self, conversation: str) -> Verification:
        """Compute the digests of a conversation's entries again and compare them with the stored ones.

        Raises `StoreDamaged` for an entry that cannot be read.
        """

    @abstractmethod
    def digest_at(self, conversation: str, version: int) -> str:
        """The digest that a conversation had when it had `version` entries, computed from them, in hexadecimal."""

    @abstractmethod
    def tombstones(self) -> Sequence[Tombstone]:
        """What is left of deleted conversations, the last deleted first."""

    @abstractmethod
    def claim(self, conversation: str, holder: str, seconds: float = 30.0) -> Lease | None:
        """Become the only writer of a conversation for `seconds`; None if it is leased. Others see `holder`."""

    @abstractmethod
    def renew(self, lease: Lease, seconds: float = 30.0) -> Lease:
        """Extend a lease to `seconds` from now. Raises `LeaseLost` if the conversation was claimed since, or deleted."""

    @abstractmethod
    def release(self, lease: Lease) -> None:
        """Release a lease. One that was lost is not an error."""

    @abstractmethod
    def current_lease(self, conversation: str) -> Lease | None:
        """The lease under which a conversation is held now, if it is."""

    @property
    @abstractmethod
    def runs(self) -> RunTable:
        """The turns that workers execute."""

    @abstractmethod
    def inbox(self, conversation: str) -> Inbox:
        """What others have for a conversation, until its writer takes it in."""

    @abstractmethod
    def tail(self, conversation: str, after: int = 0) -> AsyncIterator[HistoryEntry]:
        """The entries after number `after`, and then each new one as it is appended, by any process.

        Raises `UnknownConversation` when the conversation is deleted.
        """

    @abstractmethod
    def _with_default_titles(self, found: Sequence[ConversationRow]) -> Sequence[ConversationInfo]:
        """The facts, with the first words of the user where there is no title."""


def is_id_abbreviation(name: str) -> bool:
    """Whether a name is long enough to be the beginning or the end of an id, and too short for a whole one."""
    return MIN_ABBREVIATION <= len(name) < ID_LENGTH


def single_match(found: Sequence[T], error: type[StoreError], name: str, location: str) -> T:
    """The one conversation or run that was found. Raises `error` if there is none, or more than one."""
    noun, command = ("run", "runs") if error is UnknownRun else ("conversation", "history")
    if not found:
        raise error(f"{location} has no {noun} {name!r}; list them with `antiphon {command} list`")
    if len(found) > 1:
        raise error(f"{location} has several {noun}s that match {name!r}; give more of the id")
    return found[0]


def check_not_negative(**numbers: int) -> None:
    """Raise `StoreError` for a negative limit or offset."""
    for name, number in numbers.items():
        if number < 0:
            raise StoreError(f"{name}={number}: must not be negative")


def check_tags(tags: Iterable[str]) -> tuple[str, ...]:
    """The tags of a conversation. Raises `StoreError` if they are not texts, or one text instead of a list."""
    if isinstance(tags, str):
        raise StoreError(f"tags={tags!r}: expected a list of texts. Nothing was written")
    tags = tuple(tags)
    check_text("tag", *tags)
    return tags


def check_text(name: str, *texts: str | None) -> None:
    """Raise `StoreError` for what is not text, or has a lone surrogate and cannot be stored. `name` is what it would be."""
    for text in texts:
        if not isinstance(text, str | None):
            raise StoreError(f"the {name} must be text, not {type(text).__name__}. Nothing was written")
        try:
            (text or "").encode()
        except UnicodeEncodeError as error:
            raise StoreError(
                f"the {name} is not Unicode (a lone surrogate at character {error.start}); replace it. Nothing was written"
            ) from error
