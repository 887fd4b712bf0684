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


class Lease(Struct, frozen=True, kw_only=True):
    """Held by `holder` until `expires`, by the clock of the store. No other lease of the conversation has its `epoch`."""

    conversation: str
    holder: str
    epoch: int
    expires: datetime
