"""Stores whose process dies at a chosen append, and which report every entry that was stored.

`CrashingSqlite` and `CrashingPostgres` are the real stores; only the histories they open are watched. One `Crash` is one process:
once it has happened, every task that still holds a history of that process is refused too, as if it were gone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from antiphon.history import AgentHistory, HistoryEntry, HistoryStore, Lease, SqliteStore
from antiphon.history.sql.postgres import PostgresStore
from support.planned_turns import Killed

Observer: TypeAlias = Callable[[str, HistoryEntry], None]


class Crash:
    """The death of one process: at the n-th append from when it was armed, before the entry is stored or right after."""

    def __init__(self) -> None:
        self.has_happened = False
        self._appends_left: int | None = None
        self._is_stored = False

    def arm(self, appends: int, *, is_stored: bool) -> None:
        self._appends_left, self._is_stored = appends, is_stored

    def disarm(self) -> None:
        self._appends_left = None

    def before(self) -> bool:
        """Whether the process dies with this append, after it. Raises `Killed` if it dies before it, or is dead."""
        if self.has_happened:
            raise Killed
        if self._appends_left is None:
            return False
        self._appends_left -= 1
        if self._appends_left > 0:
            return False
        self.has_happened = True
        if not self._is_stored:
            raise Killed
        return True


class CrashingJournal:
    """Writes to a stored history, on behalf of one process."""

    def __init__(self, store: CrashingStore, history: AgentHistory) -> None:
        self._store = store
        self._history = history
        self._crash = store.crash

    @property
    def conversation_id(self) -> str:
        return self._history.id

    def write(self, entry: HistoryEntry, stored: bytes) -> None:
        is_last = self._crash.before()
        self._history.append(entry)
        self._store.observe(self.conversation_id, entry)
        if is_last:
            raise Killed

    def read(self, after: int) -> Sequence[HistoryEntry]:
        self._history.refresh()
        return self._history.entries[after:]

    def fork(self, at: int) -> AgentHistory:
        return self._store.fork(self.conversation_id, at)


class CrashingStore(HistoryStore):
    """Mixed into a store: its histories are written by the process that `crash` ends."""

    crash: Crash
    observe: Observer

    def open(self, conversation: str, *, lease: Lease | None = None) -> AgentHistory:
        history = super().open(conversation, lease=lease)
        return AgentHistory(history.entries, journal=CrashingJournal(self, history))

    def create(self, title: str = "", *, tags: Sequence[str] = ()) -> AgentHistory:
        return self.open(super().create(title, tags=tags).id)

    def fork(self, conversation: str, at: int | None = None) -> AgentHistory:
        return self.open(super().fork(conversation, at).id)


class CrashingSqlite(CrashingStore, SqliteStore):
    """A SQLite file, or `:memory:`."""


class CrashingPostgres(CrashingStore, PostgresStore):
    """A PostgreSQL server."""


class Home:
    """Where a test keeps its conversations: a file, a server, or `:memory:`, which only a new process object is given."""

    def __init__(self, address: str, observe: Observer) -> None:
        self._address = address
        self._observe = observe
        self.store = self._opened()

    def _opened(self) -> CrashingStore:
        kind: Any = CrashingPostgres if self._address.startswith("postgresql:") else CrashingSqlite
        store: CrashingStore = kind(self._address)
        store.crash, store.observe = Crash(), self._observe
        return store

    def restart(self) -> None:
        """Continue in another process. The leases of the previous one have expired."""
        if self._address == ":memory:":
            self.store.crash.has_happened = True
            self.store.crash = Crash()
        else:
            self.store.close()
            self.store = self._opened()

    def expire_lease(self, conversation: str) -> None:
        """Let the time pass for which a dead process held the conversation."""
        if (lease := self.store.current_lease(conversation)) is not None:
            self.store.release(lease)
