"""Leases in the file: three columns of the conversation's row, each change one statement.

Giving a lease back raises the epoch too, so that whoever had it is fenced off from that moment.
"""

from __future__ import annotations

import sqlite3

from antiphon.errors import HistoryError, StoreError, UnknownConversation
from antiphon.history.asked import whole
from antiphon.history.lease import Lease, lease_lost_error, validate_duration, write_refused_error
from antiphon.history.sqlite.file import SqliteFile
from antiphon.history.sqlite.lease_clock import LeaseClock

_HELD = "SELECT id, holder, epoch, held_until FROM conversations WHERE number = ?"


class SqliteLeases:
    """Who writes which conversation of a file."""

    def __init__(self, file: SqliteFile, clock: LeaseClock) -> None:
        self._file = file
        self._clock = clock

    def claim(self, number: int, holder: str, seconds: float) -> Lease | None:
        self._clock.settle()
        with self._file.writing() as db:
            return take(db, self._clock, number, holder, seconds)

    def renew(self, lease: Lease, seconds: float) -> Lease:
        self._clock.settle()
        with self._file.writing() as db:
            until = _until(self._clock, seconds)
            renewed = "UPDATE conversations SET held_until = ? WHERE id = ? AND epoch = ?"
            if not db.execute(renewed, (until, lease.conversation, lease.epoch)).rowcount:
                raise lease_lost_error(lease.conversation, lease.epoch)
        return _lease(self._clock, lease.conversation, lease.holder, lease.epoch, until)

    def release(self, lease: Lease) -> None:
        with self._file.writing() as db:
            give_back(db, lease)

    def leased(self, number: int) -> Lease | None:
        if self._file.schema < 2:  # an older file, opened for reading
            return None
        with self._file.reading() as db:
            held = db.execute(_HELD, (number,)).fetchone()
        return _lease(self._clock, *held) if held and held[-1] > self._clock.now() else None


def refusal(db: sqlite3.Connection, number: int, epoch: int | None, path: str) -> HistoryError | StoreError:
    """Why an entry was not taken."""
    held = db.execute(_HELD, (number,)).fetchone()
    if held is None:
        return UnknownConversation(f"{path}: the conversation was deleted; the entry was not written")
    conversation, holder, current, _ = held
    return write_refused_error(conversation, holder, current, epoch)


def take(db: sqlite3.Connection, clock: LeaseClock, number: int, holder: str, seconds: float) -> Lease | None:
    """A lease on a conversation that nobody holds."""
    claimed = (
        "UPDATE conversations SET epoch = epoch + 1, holder = ?, held_until = ? WHERE number = ? AND held_until <= ? "
        "RETURNING id, holder, epoch, held_until"
    )
    taken = db.execute(claimed, (whole(holder), _until(clock, seconds), number, clock.now())).fetchall()
    return _lease(clock, *taken[0]) if taken else None


def give_back(db: sqlite3.Connection, lease: Lease) -> bool:
    """End a lease, and say whether it was still that holder's."""
    given = "UPDATE conversations SET epoch = epoch + 1, holder = '', held_until = 0 WHERE id = ? AND epoch = ?"
    return db.execute(given, (lease.conversation, lease.epoch)).rowcount > 0


def _lease(clock: LeaseClock, conversation: str, holder: str, epoch: int, until: int) -> Lease:
    return Lease(conversation=conversation, holder=holder, epoch=epoch, expires=clock.shown(until))


def _until(clock: LeaseClock, seconds: float) -> int:
    validate_duration(seconds)
    return clock.now() + round(seconds * 1_000_000)
