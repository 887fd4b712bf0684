"""The inbox of a conversation: what others have for it, until the process that writes its log takes it in.

A log has one writer. Who wants to steer a run from elsewhere, or brings the result of a call from outside, puts an item here,
under a key of its own. The writer appends it at its next round, with the key, and removes it. If it dies in between, the next
one finds the key in the log and only removes it: an item is taken in exactly once, however often it was put.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct

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
