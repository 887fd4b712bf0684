"""`UnfinishedAnswers`: the stored objects of answers that have not been completed: queued, in progress, failed or cancelled.

A complete answer is a row of `ResponseStore`. Until then, and for ever if it fails, its object is here, so that every worker can
show it and a client can cancel it at any worker. An answer whose process has died is overdue: it is shown as failed.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from msgspec import Struct

from antiphon.history.sql.sqlite_file import SqliteFile


class UnfinishedAnswer(Struct, frozen=True):
    """The object last stored. `is_overdue`: it was not completed in time, because its process died."""

    body: bytes
    is_running: bool
    is_overdue: bool
    is_cancelled: bool


class UnfinishedAnswers:
    """Objects by owner and id, kept for `seconds`."""

    def __init__(self, file: SqliteFile, *, seconds: float, clock: Callable[[], float] = time.time) -> None:
        self._file = file
        self._seconds = seconds
        self._clock = clock

    def put(self, answer_id: str, owner: str, body: bytes, *, may_take: float) -> None:
        """Store the object of an answer that starts. `may_take` is how many seconds it may need."""
        now = self._clock()
        with self._file.transaction() as db:
            db.execute("DELETE FROM unfinished WHERE kept <= ?", (now - self._seconds,))
            db.execute(
                "INSERT INTO unfinished (owner, id, kept, due, body) VALUES (?, ?, ?, ?, ?)"
                " ON CONFLICT (owner, id) DO UPDATE SET kept = excluded.kept, due = excluded.due, body = excluded.body",
                (owner, answer_id, now, now + may_take, body),
            )

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
        find = "SELECT body, due, is_cancelled FROM unfinished WHERE owner = ? AND id = ? AND kept > ?"
        with self._file.reading() as db:
            row = db.execute(find, (owner, answer_id, now - self._seconds)).fetchone()
        if row is None:
            return None
        body, due, is_cancelled = row
        return UnfinishedAnswer(body, due > now, 0 < due <= now, bool(is_cancelled))

    def request_cancel(self, answer_id: str, owner: str) -> None:
        """Ask the process that runs an answer to cancel it."""
        with self._file.transaction() as db:
            db.execute("UPDATE unfinished SET is_cancelled = 1 WHERE owner = ? AND id = ?", (owner, answer_id))

    def drop(self, answer_id: str, owner: str) -> bool:
        """Forget an answer. Returns whether it was there."""
        with self._file.transaction() as db:
            return db.execute("DELETE FROM unfinished WHERE owner = ? AND id = ?", (owner, answer_id)).rowcount > 0
