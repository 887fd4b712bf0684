"""`Journal`: where a history is written down, and the two there are: of a store, and one that refuses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

from antiphon.errors import LeaseLost
from antiphon.history.entries import HistoryEntry
from antiphon.history.inbox import Inbox, MemoryInbox

if TYPE_CHECKING:
    from antiphon.history.agent_history import AgentHistory
    from antiphon.history.lease import Lease
    from antiphon.history.sql.log import Log


class Journal(Protocol):
    """Where a history is written down. A store gives one for each conversation."""

    @property
    def conversation_id(self) -> str: ...

    def write(self, entry: HistoryEntry, stored: bytes) -> None:
        """Make `entry` durable, or raise and leave everything as it was. `stored` is the entry as one line of JSON."""

    def read(self, after: int) -> Iterable[HistoryEntry]:
        """The entries after number `after`."""

    def fork(self, at: int) -> AgentHistory:
        """A new conversation that starts with the first `at` entries of this one."""


class SealedJournal:
    """A journal that refuses to write. It takes the place of the other, so that an append pays nothing for the check."""

    def __init__(self, journal: Journal, reason: str) -> None:
        self.conversation_id = journal.conversation_id
        self.inbox = inbox_of(journal)
        self.read = journal.read
        self.fork = journal.fork
        self._reason = reason

    def write(self, entry: HistoryEntry, stored: bytes) -> None:  # noqa: ARG002 - the protocol
        raise LeaseLost(f"conversation {self.conversation_id}: {self._reason}. Nothing was written")


def inbox_of(journal: Journal | None) -> Inbox:
    """The inbox of a journal that has one; else one in memory."""
    inbox: Inbox | None = getattr(journal, "inbox", None)
    return MemoryInbox() if inbox is None else inbox


class StoreJournal:
    """Writes to the conversation of that number and id, under a lease if there is one."""

    def __init__(
        self,
        log: Log,
        fork: Callable[[str, int], AgentHistory],
        number: int,
        conversation_id: str,
        lease: Lease | None = None,
        *,
        is_import: bool = False,
    ) -> None:
        self.conversation_id = conversation_id
        self.inbox = log.inbox(number)
        self._is_import = is_import
        self._log = log
        self._fork = fork
        self._number = number
        self._epoch = lease.epoch if lease is not None else None
        self._next = 0
        self._digest: bytes | None = None
        """The digest of the entry before `_next`, if this journal wrote it."""

    def write(self, entry: HistoryEntry, stored: bytes) -> None:
        number = entry.sequence_number
        previous = self._digest if self._next == number else None
        self._digest = self._log.append(
            self._number, self.conversation_id, entry, stored, self._epoch, previous, is_import=self._is_import
        )
        self._next = number + 1

    def read(self, after: int) -> Sequence[HistoryEntry]:
        return self._log.read(self._number, self.conversation_id, after)

    @property
    def imported(self) -> int:
        """How many entries of the conversation were imported."""
        return self._log.find(self.conversation_id).info.imported

    def fork(self, at: int) -> AgentHistory:
        return self._fork(self.conversation_id, at)
