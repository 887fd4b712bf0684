"""`Journal`: where a history is written down; a store gives one (`sql/log.py`), and `SealedJournal` refuses."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from antiphon.errors import LeaseLost
from antiphon.history.entries import HistoryEntry
from antiphon.history.inbox import Inbox, MemoryInbox

if TYPE_CHECKING:
    from antiphon.history.agent_history import AgentHistory


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
