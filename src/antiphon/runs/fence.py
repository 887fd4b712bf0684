"""`Fence`: the journal of a history that can be shut while somebody still writes.

A turn that is cancelled marks what it leaves: a person interrupted it, and it is over. A worker that must go, or lost its lease,
interrupts nothing; the turn is to be gone on with, just as after a `kill -9`. So the fence is shut before the playing task is
cancelled: its last words are refused, and the log stays as if the process had died at that instant.

The store refuses a lost lease by itself. The fence only makes it sooner, and makes leaving on purpose the same thing.
"""

from __future__ import annotations

from collections.abc import Sequence

from antiphon.errors import LeaseLost
from antiphon.history import AgentHistory, HistoryEntry


class Fence:
    """Stands between a history (`inside`) that a store keeps, and the one that a loop is given."""

    def __init__(self, inside: AgentHistory) -> None:
        self.inside = inside
        self._why = ""

    def history(self) -> AgentHistory:
        """The history for the loop: the same entries, written through the fence."""
        return AgentHistory(self.inside.entries, journal=self)

    def shut(self, why: str) -> None:
        """Let nothing through any more. Callable from any thread."""
        self._why = self._why or why

    @property
    def conversation_id(self) -> str:
        return self.inside.id

    def write(self, entry: HistoryEntry) -> None:
        if self._why:
            raise LeaseLost(f"conversation {self.conversation_id}: {self._why}. Nothing was written")
        self.inside.append(entry)

    def read(self, after: int) -> Sequence[HistoryEntry]:
        self.inside.refresh()
        return self.inside.entries[after:]

    def fork(self, at: int) -> AgentHistory:
        return self.inside.fork(at)
