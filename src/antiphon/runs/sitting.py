"""`sit`: something done in a conversation that is ours meanwhile: claimed, the lease renewed as long as it takes, and given back.

For engines that hand out single pieces of work, be it a step or a message of a queue, and count on each to be over when it
returns. Whoever is cancelled in a sitting leaves it as a `kill -9` would: the fence is shut first, so nothing is marked, and
another goes on from the log. The lease lost is the same, and raised. A store that is away for a moment is no reason to stop:
whether the lease was lost meanwhile is for the store to say.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Awaitable, Callable
from typing import NoReturn, TypeVar

from antiphon.errors import LeaseHeld, LeaseLost, StoreError
from antiphon.history import AgentHistory, HistoryStore, Lease
from antiphon.runs.fence import Fence

logger = logging.getLogger("antiphon.runs")

T = TypeVar("T")


async def sit(
    store: HistoryStore,
    conversation: str,
    work: Callable[[AgentHistory, Lease], Awaitable[T]],
    *,
    holder: str = "",
    seconds: float = 30.0,
    beat: Callable[[], Awaitable[None]] | None = None,
    halt: Callable[[], Awaitable[bool]] | None = None,
) -> T:
    """What `work` gives. Raises `LeaseHeld` if somebody else has the conversation, and `LeaseLost` if they take it meanwhile.

    `beat` is called with every renewal. Cancelled, it asks `halt` first: where that brings the work to an end of its own and
    says so, that is waited for.
    """
    lease = store.claim(conversation, holder or f"{socket.gethostname()}:{os.getpid()}", seconds)
    if lease is None:
        _refuse(store, conversation)
    try:
        fence = Fence(await asyncio.to_thread(store.open, conversation, lease=lease))
        working = asyncio.ensure_future(work(fence.history(), lease))
        keeping = asyncio.ensure_future(_keep(store, lease, seconds, beat))
        try:
            await asyncio.wait([working, keeping], return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            if halt is not None and await halt():
                return await working
            raise
        finally:
            fence.shut("the conversation is left to others")
            is_done = working.done()
            for task in (working, keeping):
                task.cancel()
            await asyncio.wait([working, keeping])
            for task in (working, keeping):
                task.cancelled() or task.exception()  # looked at: of two errors one is raised, and none is missed
        return working.result() if is_done else keeping.result()
    finally:
        store.release(lease)


async def _keep(
    store: HistoryStore, lease: Lease, seconds: float, beat: Callable[[], Awaitable[None]] | None
) -> NoReturn:
    """Renew the lease for ever; ends with `LeaseLost`, or whatever `beat` raises."""
    while True:
        await asyncio.sleep(seconds / 3)
        try:
            await asyncio.to_thread(store.renew, lease, seconds)
        except LeaseLost:
            raise
        except StoreError as error:
            logger.warning("the lease of conversation %s could not be renewed: %s", lease.conversation, error)
        if beat is not None:
            await beat()


def _refuse(store: HistoryStore, conversation: str) -> NoReturn:
    lease = store.leased(conversation)
    whom = f"{lease.holder} until {lease.expires:%H:%M:%S} UTC" if lease is not None else "somebody a moment ago"
    raise LeaseHeld(f"conversation {conversation} is held by {whom}, who plays it. Try again later")
