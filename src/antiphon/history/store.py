"""What a store of histories does, whatever it is made of.

A store holds conversations; a conversation is a row of facts about it and its entries, one row an entry. Appending writes one row
and changes no other; once a minute at the most also the conversation's own, for its place in lists. `open` gives an
`AgentHistory` whose journal is the store, so `history.append` is durable.

Whoever must be the only writer for a while (a worker that plays a turn, a graph) claims the conversation and opens it with the
`Lease` it got. `runs` are the turns that workers are to play.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from datetime import datetime
from types import TracebackType
from typing import Self

from msgspec import Struct

from antiphon.history.agent_history import AgentHistory
from antiphon.history.asked import check_not_negative, check_text
from antiphon.history.entries import HistoryEntry
from antiphon.history.journal import StoreJournal, StoreLog
from antiphon.history.lease import Lease
from antiphon.history.run_table import RunTable


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


class ConversationRow(Struct, frozen=True):
    """A conversation, and the number it goes by in its store."""

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
        version: int | None,
        updated: datetime | None,
    ) -> ConversationRow:
        """What a store found: the facts, and the number and time of the last entry, if there is one."""
        info = ConversationInfo(
            id=conversation,
            title=title,
            created=created,
            updated=max(updated or created, created),
            version=version or 0,
            parent=parent,
            forked_at=forked_at,
            tags=tuple(tags),
        )
        return cls(number, info)

    @property
    def id(self) -> str:
        return self.info.id

    @property
    def version(self) -> int:
        return self.info.version


class SearchHit(Struct, frozen=True):
    """An entry in which a search found its words."""

    conversation: ConversationInfo
    sequence_number: int
    kind: str
    excerpt: str


class HistoryStore(ABC):
    """Conversations, kept."""

    path: str
    """Where they are, as people may see it: a file, or a server without the password."""
    is_local: bool = False
    """Whether it is on this machine, and answers so soon that it may be asked in an event loop."""
    _log: StoreLog

    @abstractmethod
    def create(self, title: str = "", *, tags: Sequence[str] = ()) -> AgentHistory:
        """A new, empty conversation."""

    def open(self, conversation: str, *, lease: Lease | None = None) -> AgentHistory:
        """The history of a conversation: by its id, or the beginning or end of it if only one fits, or `last`.

        With a `lease`, its appends are refused (`LeaseLost`) from the moment somebody else claims the conversation; without
        one, they are refused (`LeaseHeld`) while somebody holds it.
        """
        row = self._log.find(conversation)
        journal = StoreJournal(self._log, self.fork, row.number, row.id, lease)
        return AgentHistory(journal.read(after=0), journal=journal)

    def info(self, conversation: str) -> ConversationInfo:
        """The facts about a conversation."""
        (info,) = self._titled([self._log.find(conversation)])
        return info

    def list(self, *, limit: int = 50, offset: int = 0, tag: str | None = None) -> Sequence[ConversationInfo]:
        """Conversations, the latest changed first."""
        check_not_negative(limit=limit, offset=offset)
        check_text("tag", tag)
        return self._titled(self._log.latest(limit, offset, tag))

    @abstractmethod
    def count(self, *, tag: str | None = None) -> int:
        """How many conversations there are."""

    @abstractmethod
    def search(self, query: str, *, limit: int = 20, tag: str | None = None) -> Sequence[SearchHit]:
        """Entries that say all the words of `query`, the best first. Words in double quotes must follow each other.

        With a `tag`, only in conversations that have it.
        """

    @abstractmethod
    def describe(
        self, conversation: str, *, title: str | None = None, tags: Sequence[str] | None = None
    ) -> ConversationInfo:
        """Give a conversation another title or other tags."""

    @abstractmethod
    def fork(self, conversation: str, at: int | None = None) -> AgentHistory:
        """A new conversation that starts with the first `at` entries of this one (all of them by default)."""

    @abstractmethod
    def delete(self, conversation: str) -> None:
        """Remove a whole conversation, and the attachments nobody else uses. Its forks stay."""

    @abstractmethod
    def export_lines(self, conversation: str) -> Iterator[bytes]:
        """A conversation as JSON Lines: what it is, its attachments, its entries. Each line ends with a newline."""

    @abstractmethod
    def import_lines(
        self, lines: Iterable[bytes], *, source: str = "the export", as_new: bool = False
    ) -> ConversationInfo:
        """Take in an export, whole or not at all. `as_new` gives it a new id; otherwise its id must be free here."""

    @abstractmethod
    def claim(self, conversation: str, holder: str, seconds: float = 30.0) -> Lease | None:
        """Become the one writer of a conversation for `seconds`; None if somebody holds it. `holder` is told to those who ask."""

    @abstractmethod
    def renew(self, lease: Lease, seconds: float = 30.0) -> Lease:
        """Hold a lease for `seconds` more from now. Raises `LeaseLost` if the conversation was claimed since, or is gone."""

    @abstractmethod
    def release(self, lease: Lease) -> None:
        """Give a lease back. One that was lost meanwhile is nobody's loss."""

    @abstractmethod
    def current_lease(self, conversation: str) -> Lease | None:
        """The lease under which a conversation is held now, if it is."""

    def leased(self, conversation: str) -> Lease | None:
        """The earlier name of `current_lease`."""
        return self.current_lease(conversation)

    @property
    @abstractmethod
    def runs(self) -> RunTable:
        """The turns that workers are to play."""

    @abstractmethod
    def tail(self, conversation: str, after: int = 0) -> AsyncIterator[HistoryEntry]:
        """The entries behind number `after`, and then each new one as it is appended, by whomever, for as long as you listen."""

    @abstractmethod
    def close(self) -> None:
        """Let go of the store."""

    @abstractmethod
    def _titled(self, found: Sequence[ConversationRow]) -> Sequence[ConversationInfo]:
        """The facts, with the first words somebody said where no title was given."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
