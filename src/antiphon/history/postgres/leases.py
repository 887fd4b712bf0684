"""Leases in the database: three columns of the conversation's row, each change one statement, by the server's clock.

Giving a lease back raises the epoch too, so that whoever had it is fenced off from that moment.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from antiphon.errors import HistoryError, StoreError, UnknownConversation
from antiphon.history.lease import Lease, lease_lost_error, validate_duration, write_refused_error
from antiphon.history.postgres.connections import Connections
from antiphon.history.postgres.rows import plain

if TYPE_CHECKING:
    from antiphon.history.postgres.connections import Database

_TAKE = """
UPDATE conversations SET epoch = epoch + 1, holder = %s, held_until = clock_timestamp() + %s * interval '1 second'
WHERE number = %s AND held_until <= clock_timestamp() RETURNING id, holder, epoch, held_until
"""
_RENEW = """
UPDATE conversations SET held_until = clock_timestamp() + %s * interval '1 second'
WHERE id = %s AND epoch = %s RETURNING id, holder, epoch, held_until
"""
_GIVE_BACK = (
    "UPDATE conversations SET epoch = epoch + 1, holder = '', held_until = 'epoch' WHERE id = %s AND epoch = %s"
)
_HELD = "SELECT id, holder, epoch, held_until, held_until > clock_timestamp() FROM conversations WHERE number = %s"


class PostgresLeases:
    """Who writes which conversation of a database."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    def claim(self, number: int, holder: str, seconds: float) -> Lease | None:
        with self._connections.connection() as db:
            return take(db, number, holder, seconds)

    def renew(self, lease: Lease, seconds: float) -> Lease:
        validate_duration(seconds)
        with self._connections.connection() as db:
            renewed = db.execute(_RENEW, (seconds, lease.conversation, lease.epoch)).fetchone()
        if renewed is None:
            raise lease_lost_error(lease.conversation, lease.epoch)
        return lease_of(*renewed)

    def release(self, lease: Lease) -> None:
        with self._connections.connection() as db:
            give_back(db, lease)

    def leased(self, number: int) -> Lease | None:
        for *held, is_held in self._connections.rows(_HELD, (number,)):
            return lease_of(*held) if is_held else None
        return None


def refusal(db: Database, number: int, epoch: int | None) -> HistoryError | StoreError | None:
    """Why an entry may not be written to a conversation; None if it may."""
    held = db.execute(_HELD, (number,)).fetchone()
    if held is None:
        return UnknownConversation("the conversation was deleted; the entry was not written")
    conversation, holder, current, _, is_held = held
    may_write = not is_held if epoch is None else epoch == current
    return None if may_write else write_refused_error(conversation, holder, current, epoch)


def take(db: Database, number: int, holder: str, seconds: float) -> Lease | None:
    """A lease on a conversation that nobody holds."""
    validate_duration(seconds)
    taken = db.execute(_TAKE, (plain(holder), seconds, number)).fetchone()
    return lease_of(*taken) if taken is not None else None


def give_back(db: Database, lease: Lease) -> bool:
    """End a lease, and say whether it was still that holder's."""
    return db.execute(_GIVE_BACK, (lease.conversation, lease.epoch)).rowcount > 0


def lease_of(conversation: str, holder: str, epoch: int, until: datetime) -> Lease:
    """The lease in a row."""
    return Lease(conversation=conversation, holder=holder, epoch=epoch, expires=until)
