"""`Journal`: where a history is written down; a store gives one (`sql/log.py`), and `SealedJournal` refuses.

`Inbox`: what others have for a conversation, until the process that writes its log takes it in. A log has one writer. Who wants
to steer a run from elsewhere, or brings the result of a call from outside, puts an item here, under a key of its own. The writer
appends it at its next round, with the key, and removes it. If it dies in between, the next one finds the key in the log and only
removes it: an item is taken in exactly once, however often it was put.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from msgspec import Struct

from antiphon.errors import LeaseLost
from antiphon.history.entries import HistoryEntry

if TYPE_CHECKING:
    from antiphon.history.agent_history import AgentHistory

ItemKind: TypeAlias = Literal["steering", "result"]

INBOX_KEY = "inbox"
"""Where the metadata of an entry have the key of the item it was made of."""


class InboxItem(Struct, frozen=True):
    """Something for a conversation: a message (`steering`), or the result of the call that `key` names. `body` is its JSON."""

    key: str
    kind: ItemKind
    body: bytes


class Inbox(Protocol):
    """What waits for one conversation. All methods may be called from any thread and process."""

    def put(self, item: InboxItem) -> bool:
        """Keep an item, durably where the conversation is; False if one of its key is there."""

    def items(self) -> Sequence[InboxItem]:
        """What waits, the oldest first."""

    def remove(self, keys: Iterable[str]) -> None:
        """Remove what was taken in."""


class MemoryInbox:
    """The inbox of a conversation in memory."""

    def __init__(self) -> None:
        self._items: dict[str, InboxItem] = {}
        self._lock = threading.Lock()

    def put(self, item: InboxItem) -> bool:
        with self._lock:
            return self._items.setdefault(item.key, item) is item

    def items(self) -> Sequence[InboxItem]:
        return tuple(self._items.values()) if self._items else ()

    def remove(self, keys: Iterable[str]) -> None:
        with self._lock:
            for key in keys:
                self._items.pop(key, None)


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
