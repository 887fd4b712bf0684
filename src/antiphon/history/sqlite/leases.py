"""Leases in the file: three columns of the conversation's row, each change one statement.

Giving a lease back raises the epoch too, so that whoever had it is fenced off from that moment.
"""

from __future__ import annotations

import sqlite3

from antiphon.errors import HistoryError, LeaseHeld, LeaseLost, StoreError, UnknownConversation
from antiphon.history.lease import Lease
from antiphon.history.sqlite.file import SqliteFile
from antiphon.history.sqlite.rows import ConversationRow, moment, now

_HELD = "SELECT id, holder, epoch, held_until FROM conversations WHERE number = ?"


class SqliteLeases:
    """Who writes which conversation of a file."""

    def __init__(self, file: SqliteFile) -> None:
        self._file = file

    def claim(self, conversation: ConversationRow, holder: str, seconds: float) -> Lease | None:
        with self._file.writing() as db:
            return take(db, conversation.number, holder, seconds)

    def renew(self, lease: Lease, seconds: float) -> Lease:
        until = _until(seconds)
        with self._file.writing() as db:
            renewed = "UPDATE conversations SET held_until = ? WHERE id = ? AND epoch = ?"
            if not db.execute(renewed, (until, lease.conversation, lease.epoch)).rowcount:
                raise lost(lease)
        return _lease(lease.conversation, lease.holder, lease.epoch, until)

    def release(self, lease: Lease) -> None:
        with self._file.writing() as db:
            give_back(db, lease)

    def leased(self, conversation: ConversationRow) -> Lease | None:
        if self._file.schema < 2:  # an older file, opened for reading
            return None
        with self._file.reading() as db:
            held = db.execute(_HELD, (conversation.number,)).fetchone()
        return lease_of(*held) if held else None

    def refusal(self, db: sqlite3.Connection, number: int, epoch: int | None) -> HistoryError | StoreError:
        """Why an entry was not taken."""
        held = db.execute(_HELD, (number,)).fetchone()
        if held is None:
            return UnknownConversation(f"{self._file.path}: the conversation was deleted; the entry was not written")
        conversation, holder, current, _ = held
        if epoch is None:
            return LeaseHeld(
                f"conversation {conversation} is being played by {holder}; nothing was written. Wait until it is done, or "
                "cancel its run"
            )
        return lost(_lease(conversation, "", epoch, 0), f" (epoch {current}, {holder or 'nobody now'})")


def take(db: sqlite3.Connection, number: int, holder: str, seconds: float) -> Lease | None:
    """A lease on a conversation that nobody holds."""
    claimed = (
        "UPDATE conversations SET epoch = epoch + 1, holder = ?, held_until = ? WHERE number = ? AND held_until <= ? "
        "RETURNING id, holder, epoch, held_until"
    )
    taken = db.execute(claimed, (holder, _until(seconds), number, now())).fetchall()
    return _lease(*taken[0]) if taken else None


def give_back(db: sqlite3.Connection, lease: Lease) -> bool:
    """End a lease, and say whether it was still that holder's."""
    given = "UPDATE conversations SET epoch = epoch + 1, holder = '', held_until = 0 WHERE id = ? AND epoch = ?"
    return db.execute(given, (lease.conversation, lease.epoch)).rowcount > 0


def lease_of(conversation: str, holder: str, epoch: int, until: int) -> Lease | None:
    """The lease in a row, if it has not run out."""
    return _lease(conversation, holder, epoch, until) if until > now() else None


def _lease(conversation: str, holder: str, epoch: int, until: int) -> Lease:
    return Lease(conversation=conversation, holder=holder, epoch=epoch, expires=moment(until))


def lost(lease: Lease, to_whom: str = "") -> LeaseLost:
    return LeaseLost(
        f"the lease on conversation {lease.conversation} (epoch {lease.epoch}) is over: somebody else claimed it"
        f"{to_whom}, or it was given back. Nothing was written; stop, and leave the rest to whoever has it now"
    )


def _until(seconds: float) -> int:
    if not seconds > 0:
        raise StoreError(f"a lease lasts some seconds, not {seconds:g}")
    return now() + round(seconds * 1_000_000)
