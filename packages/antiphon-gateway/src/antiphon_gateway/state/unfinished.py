"""`UnfinishedAnswers`: the stored objects of answers that have not been completed: queued, in progress, failed or cancelled.

A complete answer is a row of `ResponseStore`. Until then, and forever if it fails, its object is here, so that every worker can
show it and a client can cancel it at any worker. An answer whose process has died is overdue: it is shown as failed. The request
is here too, for its input items, and so are the events of the stream, for clients that follow it at another worker.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from msgspec import Struct

from antiphon.history.sql.sqlite_file import SqliteFile
from antiphon_gateway.state.size_limit import SizeLimit

EVENT_SECONDS = 3600.0
"""How long an event of an answer can be followed."""


class UnfinishedAnswer(Struct, frozen=True):
    """The object last stored, and the body of its request. `is_overdue`: it was not completed in time, because its process
    died."""

    body: bytes
    is_running: bool
    is_overdue: bool
    is_cancelled: bool
    request: bytes = b""


class UnfinishedAnswers:
    """Objects by owner and id, kept for `seconds`."""

    def __init__(
        self,
        file: SqliteFile,
        *,
        seconds: float,
        sizes: SizeLimit | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._file = file
        self._sizes = sizes or SizeLimit()
        self._seconds = seconds
        self._clock = clock

    def put(self, answer_id: str, owner: str, body: bytes, *, may_take: float, request: bytes = b"") -> None:
        """Store the object of an answer that starts, and its request. `may_take` is how many seconds it may need.

        Raises `StateLimitReached`.
        """
        now = self._clock()
        with self._file.transaction() as db:
            db.execute("DELETE FROM unfinished WHERE kept <= ?", (now - self._seconds,))
            db.execute("DELETE FROM unfinished_events WHERE kept <= ?", (now - EVENT_SECONDS,))
            db.execute(
                "INSERT INTO unfinished (owner, id, kept, due, body, request) VALUES (?, ?, ?, ?, ?, ?)"
                " ON CONFLICT (owner, id) DO UPDATE SET kept = excluded.kept, due = excluded.due, body = excluded.body,"
                " request = excluded.request",
                (owner, answer_id, now, now + may_take, body, request),
            )
            self._sizes.make_room(db, owner)

    def add_events(self, answer_id: str, owner: str, first: int, events: Sequence[bytes]) -> None:
        """Store events of an answer; `first` is the index of the first of them."""
        now = self._clock()
        with self._file.transaction() as db:
            db.executemany(
                "INSERT OR IGNORE INTO unfinished_events VALUES (?, ?, ?, ?, ?)",
                [(owner, answer_id, number, now, event) for number, event in enumerate(events, first)],
            )

    def events(self, answer_id: str, owner: str, after: int) -> list[bytes]:
        """The stored events of an answer after the one with index `after`."""
        find = (
            "SELECT event FROM unfinished_events WHERE owner = ? AND id = ? AND number > ? AND kept > ? ORDER BY number"
        )
        with self._file.reading() as db:
            rows = db.execute(find, (owner, answer_id, after, self._clock() - EVENT_SECONDS)).fetchall()
        return [bytes(event) for (event,) in rows]

    def end(self, answer_id: str, owner: str, body: bytes) -> None:
        """Store the last object of an answer that has ended, unless it was deleted."""
        with self._file.transaction() as db:
            end = "UPDATE unfinished SET due = 0, body = ? WHERE owner = ? AND id = ?"
            db.execute(end, (body, owner, answer_id))

    @property
    def is_shared(self) -> bool:
        """Whether other processes may use the same file."""
        return self._file.path != ":memory:"

    def get(self, answer_id: str, owner: str) -> UnfinishedAnswer | None:
        """The object of an answer; None if there is none, or it expired."""
        now = self._clock()
        find = "SELECT body, due, is_cancelled, request FROM unfinished WHERE owner = ? AND id = ? AND kept > ?"
        with self._file.reading() as db:
            row = db.execute(find, (owner, answer_id, now - self._seconds)).fetchone()
        if row is None:
            return None
        body, due, is_cancelled, request = row
        return UnfinishedAnswer(body, due > now, 0 < due <= now, bool(is_cancelled), request or b"")

    def request_cancel(self, answer_id: str, owner: str) -> None:
        """Ask the process that runs an answer to cancel it."""
        with self._file.transaction() as db:
            db.execute("UPDATE unfinished SET is_cancelled = 1 WHERE owner = ? AND id = ?", (owner, answer_id))

    def drop(self, answer_id: str, owner: str, *, keeps_events: bool = False) -> bool:
        """Forget an answer. Returns whether it was there. `keeps_events`: it is complete, and can still be followed."""
        with self._file.transaction() as db:
            if not keeps_events:
                db.execute("DELETE FROM unfinished_events WHERE owner = ? AND id = ?", (owner, answer_id))
            return db.execute("DELETE FROM unfinished WHERE owner = ? AND id = ?", (owner, answer_id)).rowcount > 0
