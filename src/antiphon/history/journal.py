"""`StoreJournal`: one conversation of a store, as its history sees it; and what its writer hears when another was faster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from antiphon.errors import WriterConflict
from antiphon.history.agent_history import AgentHistory
from antiphon.history.entries import HistoryEntry
from antiphon.history.lease import Lease

if TYPE_CHECKING:
    from antiphon.history.store import ConversationRow


class StoreLog(Protocol):
    """The conversations of a store, and their entries."""

    def find(self, conversation: str) -> ConversationRow:
        """The one conversation that is meant."""

    def latest(self, limit: int, offset: int = 0, tag: str | None = None) -> Sequence[ConversationRow]:
        """The conversations that were changed last, in that order."""

    def append(self, number: int, conversation: str, entry: HistoryEntry, epoch: int | None) -> None:
        """Write one entry, under the epoch of a lease if there is one; back when it is durable."""

    def read(self, number: int, conversation: str, after: int) -> Sequence[HistoryEntry]:
        """The entries of a conversation behind number `after`, whole."""


class StoreJournal:
    """Writes to the conversation of that number and id, under a lease if there is one."""

    def __init__(
        self,
        log: StoreLog,
        fork: Callable[[str, int], AgentHistory],
        number: int,
        conversation_id: str,
        lease: Lease | None = None,
    ) -> None:
        self.conversation_id = conversation_id
        self._log = log
        self._fork = fork
        self._number = number
        self._epoch = lease.epoch if lease is not None else None

    def write(self, entry: HistoryEntry) -> None:
        self._log.append(self._number, self.conversation_id, entry, self._epoch)

    def read(self, after: int) -> Sequence[HistoryEntry]:
        return self._log.read(self._number, self.conversation_id, after)

    def fork(self, at: int) -> AgentHistory:
        return self._fork(self.conversation_id, at)


def conflict(conversation: str, version: int, sequence_number: int) -> WriterConflict:
    """What a writer is told whose entry has a number that is taken."""
    return WriterConflict(
        f"another writer appended to conversation {conversation}: it is at version {version}, and this entry was meant to be "
        f"number {sequence_number}. Nothing was written; `refresh()` the history, look at what is new, and append again"
    )
