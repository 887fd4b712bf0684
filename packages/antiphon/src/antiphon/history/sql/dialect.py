"""`Dialect`: what differs between SQLite and PostgreSQL. Everything else of a store is written once, in this package.

Shared statements name their values `:name`. Four names are filled in by the dialect: `:now` is the time of the store,
`:lease_now` the time of its leases, `:lease_end` that time plus `seconds`, and `:never` the expiry of a lease that is not held.

Not shared are the append (one statement, one round trip), the range of an entry read (SQLite packs conversation and sequence
number into one key), the next run (PostgreSQL skips locked rows) and the full-text index.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, TypeAlias

from antiphon.history.codec import StoredRow
from antiphon.history.entries import HistoryEntry
from antiphon.history.sql.database import Database
from antiphon.history.store import ConversationRow

EntryRow: TypeAlias = Any
"""Number of the conversation, sequence number, time, body, checksum and digest of an entry, as the dialect inserts them."""

ROWS_AT_ONCE = 256


class Dialect(Database):
    """One database under a store. A `db` is a connection of its driver."""

    has_leases: bool = True
    """False for a file of an early version that is open for reading."""
    has_touched: bool = True
    has_digests: bool = True
    has_imported: bool = True
    has_inbox: bool = True

    # Fragments and statements of SQL; `c` is a conversation.
    select_conversations: str
    version: str
    """The number of the last entry of `c`."""
    entries_of: str
    """The condition that an entry belongs to the conversation `:number`."""
    entry_order: str
    entry_at: str
    """The condition that an entry has the number `:sequence` in the conversation `:number`."""
    index_rows_of: str
    has_tag: str
    recent_since: str
    """The time from which on conversations must be sorted to find the `:last` one, with `{condition}`."""
    touched_since: str
    touch_last: str
    copy_entries: str
    next_run: str
    next_run_locked: str

    @abstractmethod
    def lock_conversation(self, db: Any, conversation: str) -> None:
        """Until the transaction ends, no other one changes or claims that conversation."""

    @abstractmethod
    def entry_row(self, number: int, entry: HistoryEntry, stored: bytes, digest: bytes) -> EntryRow:
        """The row of an entry of the conversation of that number."""

    @abstractmethod
    def append_entry(self, row: EntryRow, epoch: int | None, db: Any = None) -> bool:
        """Insert an entry if its writer may write, its number is free and its conversation was touched in the minute before.

        Without a `db`, it is a transaction of its own.
        """

    @abstractmethod
    def insert_entries(self, db: Any, rows: Iterable[EntryRow]) -> None:
        """Insert the entries of a new conversation."""

    @abstractmethod
    def touch(self, db: Any, row: EntryRow) -> None:
        """Set the time at which the conversation of an entry was changed."""

    @abstractmethod
    def read_entries(self, number: int, first: int, last: int | None = None) -> Sequence[StoredRow]:
        """The rows of a conversation's entries from `first` to `last`, in order."""

    def entry_batches(self, number: int, first: int) -> Iterator[Sequence[StoredRow]]:
        """The rows of a conversation's entries from `first` on, in order and in pieces: what is read is decoded from the
        processor's cache. A connection is held until the last one."""
        rows = self.read_entries(number, first)
        return (rows[start : start + ROWS_AT_ONCE] for start in range(0, len(rows), ROWS_AT_ONCE))

    @abstractmethod
    def first_inputs(self, numbers: Sequence[int]) -> Iterable[tuple[int, StoredRow]]:
        """The first entries of each conversation, among them its first user message."""

    @abstractmethod
    def conversation(self, row: tuple[Any, ...]) -> ConversationRow:
        """A row of `select_conversations`. Raises `StoreDamaged`."""

    @abstractmethod
    def lease_expiry(self, value: Any) -> datetime:
        """A stored end of a lease."""

    @abstractmethod
    def attachment_data(self, text: str) -> object:
        """The data of an attachment as it is stored."""

    @abstractmethod
    def attachment_text(self, data: Any) -> object:
        """The data of an attachment that was stored."""
