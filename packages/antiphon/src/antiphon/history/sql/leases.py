"""Leases: three columns of the conversation's row, each change one statement, by the lease clock of the store.

A release raises the epoch too, so that the previous holder is fenced off from that moment.
"""

from __future__ import annotations

from typing import Any

from antiphon.errors import HistoryError, StoreError, UnknownConversation
from antiphon.history.lease import Lease, lease_lost_error, validate_duration, write_refused_error
from antiphon.history.sql.dialect import Dialect

_COLUMNS = "id, holder, epoch, held_until"
_CLAIM = f"""
UPDATE conversations SET epoch = epoch + 1, holder = :holder, held_until = :lease_end
WHERE number = :number AND held_until <= :lease_now RETURNING {_COLUMNS}
"""
_RENEW = (
    f"UPDATE conversations SET held_until = :lease_end WHERE id = :conversation AND epoch = :epoch RETURNING {_COLUMNS}"
)
_RELEASE = """
UPDATE conversations SET epoch = epoch + 1, holder = '', held_until = :never
WHERE id = :conversation AND epoch = :epoch RETURNING number
"""
_CURRENT = f"SELECT {_COLUMNS}, held_until > :lease_now FROM conversations WHERE number = :number"


class Leases:
    """Who may write which conversation of a store."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect

    def claim(self, number: int, holder: str, seconds: float) -> Lease | None:
        with self._dialect.connection() as db:
            return self.claim_in(db, number, holder, seconds)

    def renew(self, lease: Lease, seconds: float) -> Lease:
        validate_duration(seconds)
        values = {"conversation": lease.conversation, "epoch": lease.epoch, "seconds": seconds}
        with self._dialect.connection() as db:
            for row in self._dialect.execute(db, _RENEW, **values):
                return self._lease(*row)
        raise lease_lost_error(lease.conversation, lease.epoch)

    def release(self, lease: Lease) -> None:
        with self._dialect.connection() as db:
            self.release_in(db, lease)

    def current(self, number: int) -> Lease | None:
        if self._dialect.has_leases:
            for *row, is_held in self._dialect.rows(_CURRENT, number=number):
                return self._lease(*row) if is_held else None
        return None

    def claim_in(self, db: Any, number: int, holder: str, seconds: float) -> Lease | None:
        """Claim a conversation that is not leased, as part of a transaction."""
        validate_duration(seconds)
        for row in self._dialect.execute(db, _CLAIM, number=number, holder=holder, seconds=seconds):
            return self._lease(*row)
        return None

    def release_in(self, db: Any, lease: Lease) -> bool:
        """End a lease as part of a transaction, and return whether it was still held."""
        return bool(self._dialect.execute(db, _RELEASE, conversation=lease.conversation, epoch=lease.epoch))

    def refusal(self, db: Any, number: int, epoch: int | None) -> HistoryError | StoreError | None:
        """Why an entry may not be written to a conversation; None if it may."""
        for conversation, holder, current, _, is_held in self._dialect.execute(db, _CURRENT, number=number):
            may_write = not is_held if epoch is None else epoch == current
            return None if may_write else write_refused_error(conversation, holder, current, epoch)
        return UnknownConversation(f"{self._dialect.location}: the conversation was deleted; the entry was not written")

    def _lease(self, conversation: str, holder: str, epoch: int, until: Any) -> Lease:
        expires = self._dialect.lease_expiry(until)
        return Lease(conversation=conversation, holder=holder, epoch=epoch, expires=expires)
