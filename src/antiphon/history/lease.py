"""`Lease`: the right to be the one writer of a conversation for a while, with an epoch that fences off whoever had it before.

A lease is two columns of the conversation's row: until when it is held, and an epoch that grows by one with every claim. A holder
appends with its epoch, and the store takes the entry only if no later claim was made: checked in the very statement that
writes it. So a process that was paused, cut off or declared dead may wake up and try, and nothing of it arrives.

Time decides only who may claim, never who may write: whose lease ran out, and was claimed by nobody, still writes. Somebody
without a lease (a person at a terminal, a decision) writes while none is held.
"""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from antiphon.errors import HistoryError, LeaseHeld, LeaseLost, StoreError


class Lease(Struct, frozen=True, kw_only=True):
    """Held by `holder` until `expires`, by the clock of the store. No other lease of the conversation has its `epoch`."""

    conversation: str
    holder: str
    epoch: int
    expires: datetime


def lost(conversation: str, epoch: int, to_whom: str = "") -> LeaseLost:
    """What a holder is told whose lease is another's by now."""
    return LeaseLost(
        f"the lease on conversation {conversation} (epoch {epoch}) is over: somebody else claimed it{to_whom}, or it was given "
        "back. Nothing was written; stop, and leave the rest to whoever has it now"
    )


def refused(conversation: str, holder: str, current: int, epoch: int | None) -> HistoryError:
    """What a writer is told, with a lease of that epoch or without one, while `holder` holds the conversation."""
    if epoch is not None:
        return lost(conversation, epoch, f" (epoch {current}, {holder or 'nobody now'})")
    return LeaseHeld(
        f"conversation {conversation} is being played by {holder}; nothing was written. Wait until it is done, or cancel its run"
    )


def check_seconds(seconds: float) -> None:
    """Refuse a lease that would last no time, or for ever."""
    if not 0 < seconds < float("inf"):
        raise StoreError(f"a lease lasts some seconds, not {seconds:g}")
