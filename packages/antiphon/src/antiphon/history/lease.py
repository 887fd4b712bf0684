"""`Lease`: the right to be the only writer of a conversation for a while; `LeaseKeeper` and `hold_lease` renew it.

A lease is two columns of the conversation's row: until when it is held, and an epoch that grows with every claim. A holder
appends with its epoch, and the statement that writes the entry also checks that no later claim was made. A process that was
paused or cut off may wake up and try to write, and nothing of it arrives.

Time decides who may claim, never who may write: a holder whose lease expired still writes until another one claims. A writer
without a lease (a person at a terminal, a decision) writes while no lease is held.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
from collections.abc import Awaitable, Callable
from datetime import datetime
from time import monotonic
from typing import TYPE_CHECKING, NoReturn, TypeVar

from msgspec import Struct

from antiphon.errors import HistoryError, LeaseHeld, LeaseLost, StoreError
from antiphon.threads import STORES

if TYPE_CHECKING:
    import asyncio

    from antiphon.history.agent_history import AgentHistory
    from antiphon.history.sql.store import HistoryStore

logger = logging.getLogger("antiphon.history")

T = TypeVar("T")

_LIVENESS_SECONDS = 0.5


class Lease(Struct, frozen=True, kw_only=True):
    """Held by `holder` until `expires`, by the clock of the store. No other lease of the conversation has its `epoch`."""

    conversation: str
    holder: str
    epoch: int
    expires: datetime


class _HeldLease(Struct, eq=False):
    lease: Lease
    on_lost: Callable[[LeaseLost], None]
    on_renewed: Callable[[Lease], None] | None


class LeaseKeeper:
    """Renews leases from one thread, every third of `seconds`. The thread runs only while there are leases.

    A thread of its own, so that a tool that blocks the event loop for a while does not cost the process its leases. But a loop
    that never moves again must not keep its conversations from others: after `watch`, leases are no longer renewed once the loop
    was stuck for `stuck_after` seconds. An unreachable store does not stop it; the store reports a lost lease when it is back.

    Callbacks run in the thread. `on_tick` runs at least every `tick` seconds while there are leases.
    """

    def __init__(
        self,
        store: HistoryStore,
        seconds: float = 30.0,
        *,
        stuck_after: float | None = None,
        on_tick: Callable[[], None] | None = None,
        tick: float = float("inf"),
    ) -> None:
        self._store = store
        self._seconds = seconds
        self._stuck_after = max(60.0, 6 * seconds) if stuck_after is None else stuck_after
        self._on_tick = on_tick
        self._tick = tick
        self._held: dict[tuple[str, int], _HeldLease] = {}
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._is_closed = False
        self._last_sign_of_life = float("inf")
        self._timer: asyncio.TimerHandle | None = None

    def claim(
        self,
        conversation: str,
        holder: str = "",
        *,
        on_lost: Callable[[LeaseLost], None],
        on_renewed: Callable[[Lease], None] | None = None,
    ) -> Lease:
        """Claim a conversation and keep its lease. Raises `LeaseHeld` with the holder and the expiry."""
        lease = self._store.claim(conversation, holder or default_holder(), self._seconds)
        if lease is None:
            raise _lease_held_error(self._store, conversation)
        self.add(lease, on_lost=on_lost, on_renewed=on_renewed)
        return lease

    def add(
        self,
        lease: Lease,
        *,
        on_lost: Callable[[LeaseLost], None],
        on_renewed: Callable[[Lease], None] | None = None,
    ) -> None:
        """Keep a lease that was claimed elsewhere, as the lease of a run is."""
        with self._changed:
            self._held[lease.conversation, lease.epoch] = _HeldLease(lease, on_lost, on_renewed)
            if self._thread is None and not self._is_closed:
                self._thread = threading.Thread(target=self._renew_loop, name="antiphon-leases", daemon=True)
                self._thread.start()

    def remove(self, lease: Lease) -> bool:
        """Stop renewing a lease without releasing it, and return whether it was still kept."""
        with self._changed:
            return self._held.pop((lease.conversation, lease.epoch), None) is not None

    def release(self, lease: Lease) -> None:
        """Stop renewing a lease and release it. A lease that was lost is not an error."""
        self.remove(lease)
        try:
            self._store.release(lease)
        except StoreError as error:  # it expires by itself
            logger.warning("the lease of conversation %s could not be released: %s", lease.conversation, error)

    def watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Renew only while this event loop moves. Call it on the loop, and `close` too."""
        self._last_sign_of_life = monotonic()
        self._timer = loop.call_later(min(_LIVENESS_SECONDS, self._stuck_after / 4), self.watch, loop)

    def close(self, *, wait: bool = True) -> None:
        """Stop renewing. What is still held expires. With `wait`, returns after a renewal that is in progress."""
        if self._timer is not None:
            self._timer.cancel()
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
            thread = self._thread
        if wait and thread is not None and thread is not threading.current_thread():
            thread.join()

    def _renew_loop(self) -> None:
        due = monotonic() + self._seconds / 3
        is_stuck = False
        while True:
            with self._changed:
                wait = max(0.0, min(due - monotonic(), self._tick))
                if self._changed.wait_for(lambda: self._is_closed, wait) or not self._held:
                    self._thread = None
                    return
                held = list(self._held.values())
            if self._on_tick is not None:
                self._guard("the tick of the lease keeper failed", self._on_tick)
            if monotonic() < due:
                continue
            due = monotonic() + self._seconds / 3
            silence = monotonic() - self._last_sign_of_life
            was_stuck, is_stuck = is_stuck, silence > self._stuck_after
            if is_stuck:
                if not was_stuck:
                    logger.error("the event loop is stuck for %.0f s; its leases are left to expire", silence)
                continue
            for one in held:
                if self._is_closed:
                    break
                self._renew(one)

    def _renew(self, held: _HeldLease) -> None:
        try:
            held.lease = self._store.renew(held.lease, self._seconds)
        except LeaseLost as error:
            if self.remove(held.lease):  # else this process released it just now
                lost = error
                self._guard("the callback for a lost lease failed", lambda: held.on_lost(lost))
        except StoreError as error:
            logger.warning("the lease of conversation %s could not be renewed: %s", held.lease.conversation, error)
        except Exception:  # the thread must not die of it: that would cost every lease
            logger.exception("the lease of conversation %s could not be renewed", held.lease.conversation)
        else:
            on_renewed = held.on_renewed
            if on_renewed is not None:
                self._guard("the callback for a renewed lease failed", lambda: on_renewed(held.lease))

    def _guard(self, message: str, callback: Callable[[], None]) -> None:
        try:
            callback()
        except StoreError as error:
            logger.warning("%s: %s", message, error)
        except Exception:
            logger.exception("%s", message)


async def hold_lease(
    store: HistoryStore,
    conversation: str,
    work: Callable[[AgentHistory, Lease], Awaitable[T]],
    *,
    holder: str = "",
    seconds: float = 30.0,
    on_renewed: Callable[[], Awaitable[None]] | None = None,
    on_cancel: Callable[[], Awaitable[bool]] | None = None,
) -> T:
    """Claim a conversation, open it, return what `work` returns, and release it.

    Raises `LeaseHeld` if another holder has it, `LeaseLost` if one claims it meanwhile, and what `on_renewed` raises. On loss or
    cancellation the history is sealed before the work is cancelled: the log looks as it would after `kill -9`, and the next
    holder continues. If `on_cancel` returns true, the work ends by itself, and that is awaited instead.

    The work is a task of its own, because a cancellation would reach it before a context manager could seal the history.
    """
    import asyncio  # most users of a store never wait for a lease

    loop = asyncio.get_running_loop()
    news: asyncio.Queue[LeaseLost | None] = asyncio.Queue()
    opened: list[AgentHistory] = []

    def report(lost: LeaseLost | None) -> None:
        with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
            loop.call_soon_threadsafe(news.put_nowait, lost)

    def lose(error: LeaseLost) -> None:
        for history in opened:
            history.seal("another holder has the lease now")
        report(error)

    async def follow() -> NoReturn:
        while True:
            lost = await news.get()
            if lost is not None:
                raise lost
            if on_renewed is not None:
                await on_renewed()

    keeper = LeaseKeeper(store, seconds)
    lease = keeper.claim(conversation, holder, on_lost=lose, on_renewed=lambda _: report(None))
    try:
        keeper.watch(loop)
        history = await STORES.run(store.open, conversation, lease=lease)
        opened.append(history)
        working = asyncio.ensure_future(work(history, lease))
        following = asyncio.ensure_future(follow())
        try:
            await asyncio.wait([working, following], return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            if on_cancel is not None and await on_cancel():
                return await working
            raise
        finally:
            history.seal("the lease was released")
            is_done = working.done()
            for task in (working, following):
                task.cancel()
            await asyncio.wait([working, following])
            for task in (working, following):
                task.cancelled() or task.exception()  # retrieved: of two errors one is raised, and none is reported as lost
        return working.result() if is_done else following.result()
    finally:
        keeper.close(wait=False)
        keeper.release(lease)


def default_holder() -> str:
    """The name of this machine and process."""
    return f"{socket.gethostname()}:{os.getpid()}"


def lease_lost_error(conversation: str, epoch: int, new_holder: str = "") -> LeaseLost:
    """The error for a holder whose lease ended."""
    return LeaseLost(
        f"the lease on conversation {conversation} (epoch {epoch}) is over: it was claimed by another holder{new_holder} or "
        "released. Nothing was written; stop, and leave the conversation to its present holder"
    )


def write_refused_error(conversation: str, holder: str, current: int, epoch: int | None) -> HistoryError:
    """The error for a writer, with a lease of that epoch or without one, while `holder` holds the conversation."""
    if epoch is not None:
        return lease_lost_error(conversation, epoch, f" (epoch {current}, {holder or 'not held now'})")
    return LeaseHeld(
        f"conversation {conversation} is leased by {holder}; nothing was written. Wait for it to finish or cancel its run"
    )


def validate_duration(seconds: float) -> None:
    """Raise `StoreError` for a lease that would last no time, or forever."""
    if not 0 < seconds < float("inf"):
        raise StoreError(f"invalid lease duration {seconds:g}: expected a positive number of seconds")


def _lease_held_error(store: HistoryStore, conversation: str) -> LeaseHeld:
    lease = store.current_lease(conversation)
    if lease is None:
        return LeaseHeld(f"conversation {conversation} was leased a moment ago. Try again")
    return LeaseHeld(
        f"conversation {conversation} is leased by {lease.holder} until {lease.expires:%H:%M:%S} UTC. Try again later"
    )
