"""`Worker`: takes runs from a store and plays them, several at once, until it is told to stop.

Workers know nothing of each other; the store is all they share. A worker claims a run when it has a free slot, opens the
conversation with the lease, plays `resume()`, and settles how the run stands then. If it dies anywhere in between, its leases run
out and the runs are there for the next. A store that is away is waited for: nothing but being stopped ends a worker.

Asked to stop, it takes no more and lets what it plays come to its end for `grace` seconds; what is not done by then is left as it
stands and given back at once, for another to go on with. Asked again, it does not wait.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from random import uniform
from time import monotonic
from typing import TypeVar

from antiphon.errors import LeaseLost, RunBookRefused, UnknownRun
from antiphon.history import HistoryStore, Lease, Run
from antiphon.runs.book import RunBook
from antiphon.runs.heartbeat import Heartbeat
from antiphon.runs.idle_turn import interrupt_turn, undecided
from antiphon.runs.patience import Patience, Verdict
from antiphon.runs.play import PASSING, Play

logger = logging.getLogger("antiphon.runs")

T = TypeVar("T")

_SHORTEST_POLL = 0.2
_LONGEST_POLL = 1.0
_LONGEST_OUTAGE_WAIT = 3.0
_LOOK_FOR_STRANGERS = 15.0
_LEAVING = 5.0


class Worker:
    """Plays the runs of `store` whose kinds are in `book`.

    `slots` runs at once, each under a lease of `lease_seconds`, which is how long the runs of a worker that died wait for
    another. `limits` say how many runs of a provider all workers together may play at once. `holder` is what others are told of
    who plays a run: the name of this machine and process, if nothing else is said.
    """

    def __init__(
        self,
        store: HistoryStore,
        book: RunBook,
        *,
        slots: int = 8,
        lease_seconds: float = 10.0,
        limits: Mapping[str, int] | None = None,
        holder: str = "",
        grace: float = 30.0,
        patience: Patience | None = None,
        stuck_seconds: float | None = None,
    ) -> None:
        if slots < 1:
            raise RunBookRefused(f"a worker has at least 1 slot, and this one is to have {slots}")
        if not lease_seconds > 0 or grace < 0:
            raise RunBookRefused(f"lease_seconds must be above 0 and grace not below: {lease_seconds:g}, {grace:g}")
        if not len(book):
            raise RunBookRefused("a worker needs a book with at least one kind of run")
        self.holder = holder or f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(2)}"
        self.played = 0
        """How many runs were settled here."""
        self._store = store
        self._book = book
        self._slots = slots
        self._seconds = lease_seconds
        self._limits = dict(limits or {})
        self._grace = grace
        self._patience = patience or Patience()
        self._stuck_seconds = stuck_seconds
        self._plays: dict[asyncio.Task[None], Play] = {}
        self._told: set[tuple[str, int]] = set()
        self._looked = 0.0
        self._is_away = False
        self._is_stopping = self._is_hurried = False
        self._moved = asyncio.Event()
        self._ahead = timedelta()  # of our clock, that of the store

    def stop(self) -> None:
        """Take no more runs and end when those that are played are over, or after the grace. Once more: at once."""
        self._is_hurried = self._is_stopping
        self._is_stopping = True
        self._moved.set()

    async def run(self, *, once: bool = False) -> None:
        """Work until stopped; with `once`, until there is nothing more to do now."""
        heartbeat = Heartbeat(self._store, self._seconds, self._stuck_seconds)
        heartbeat.start()
        logger.info("worker %s plays %s, %d at once", self.holder, ", ".join(self._book.codes), self._slots)
        poll = _SHORTEST_POLL
        try:
            while not self._is_stopping:
                self._moved.clear()
                if len(self._plays) >= self._slots:
                    await self._moved.wait()
                    continue
                run = await self._patiently(self._claim, is_owed=False)
                if run is not None:
                    poll = _SHORTEST_POLL
                    self._begin(run, heartbeat)
                elif once and not self._plays:
                    break
                else:
                    await self._pause(uniform(poll / 2, poll))
                    poll = min(poll * 1.5, _LONGEST_POLL)
            await self._ended()
        finally:
            await self._leave()
            for task in list(self._plays):  # which do not even let themselves be left
                task.cancel()
            heartbeat.stop()
        logger.info("worker %s ended; it played %d runs", self.holder, self.played)

    async def _claim(self) -> Run | None:
        kinds = self._book.codes
        run = await asyncio.to_thread(
            self._store.runs.claim, self.holder, self._seconds, kinds=kinds, limits=self._limits
        )
        if run is None and monotonic() - self._looked > _LOOK_FOR_STRANGERS:
            self._looked = monotonic()
            for waiting in await asyncio.to_thread(self._store.runs.list, state="waiting"):
                if waiting.lease is None and waiting.code > kinds.get(waiting.kind, -1):
                    self._tell_of_stranger(waiting)
        return run

    def _tell_of_stranger(self, run: Run) -> None:
        if (run.kind, run.code) not in self._told:
            self._told.add((run.kind, run.code))
            kind = self._book.get(run.kind)
            ours = f"this worker has {kind.code}" if kind is not None else "this worker does not know that kind"
            logger.warning("runs of kind %r, code %d, are left for others: %s", run.kind, run.code, ours)

    def _begin(self, run: Run, heartbeat: Heartbeat) -> None:
        kind, lease = self._book.get(run.kind), run.lease
        assert kind is not None
        assert lease is not None
        self._ahead = lease.expires - timedelta(seconds=self._seconds) - datetime.now(UTC)
        play = Play(self._store, kind, run, lease, self.holder, self._patience)
        task = asyncio.ensure_future(self._played(play, heartbeat))
        self._plays[task] = play
        task.add_done_callback(self._put_away)

    def _put_away(self, task: asyncio.Task[None]) -> None:
        play = self._plays.pop(task)
        self._moved.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("run %s was dropped", play.run.id, exc_info=error)

    async def _played(self, play: Play, heartbeat: Heartbeat) -> None:
        run = play.run
        logger.debug("run %s (%s) begins", run.id, run.kind)
        heartbeat.keep(play)
        try:
            verdict = await play.verdict()
        finally:
            heartbeat.let_go(play)
        if play.is_strange and verdict is not None and ("", run.code) not in self._told:
            self._told.add(("", run.code))
            logger.warning("run %s: %s", run.id, verdict.reason)
        if verdict is not None:
            await self._settle(run, play.lease, verdict)

    async def _settle(self, run: Run, lease: Lease, verdict: Verdict) -> None:
        async def settle() -> Run:
            due = datetime.now(UTC) + self._ahead + timedelta(seconds=verdict.delay) if verdict.delay else None
            return await asyncio.to_thread(
                self._store.runs.settle, run.id, lease, verdict.state, verdict.reason, due=due
            )

        try:
            settled = await self._patiently(settle)
        except (LeaseLost, UnknownRun) as error:
            logger.warning("run %s: %s", run.id, error)
            return
        if settled is None:
            return
        self.played += 1
        logger.log(
            logging.WARNING if settled.state == "failed" else logging.INFO,
            "run %s (%s): %s, %s",
            run.id,
            run.kind,
            settled.standing,
            verdict.reason,
        )
        if settled.state in ("suspended", "cancelled"):
            await self._patiently(lambda: asyncio.to_thread(self._look_again, settled, verdict))

    def _look_again(self, run: Run, verdict: Verdict) -> None:
        """See to what may have happened between the last entry and the settling."""
        if run.state == "suspended" and not undecided(self._store.open(run.conversation)):
            self._store.runs.wake(run.id)
        if run.state == "cancelled" and verdict.state != "cancelled":
            interrupt_turn(self._store, run.conversation, self.holder)

    async def _patiently(self, work: Callable[[], Awaitable[T]], *, is_owed: bool = True) -> T | None:
        """What `work` gives, tried again for as long as the store is away; None if we are to stop meanwhile.

        Work that is owed to a run is still tried while the grace lasts.
        """
        wait = _SHORTEST_POLL
        while True:
            try:
                done = await work()
            except PASSING as error:
                if not self._is_away:
                    logger.warning("the store is away, and waited for: %s", error)
                self._is_away = True
                if self._is_hurried or (self._is_stopping and not is_owed):
                    return None
                await asyncio.sleep(uniform(wait / 2, wait))
                wait = min(wait * 2, _LONGEST_OUTAGE_WAIT)
                continue
            if self._is_away:
                self._is_away = False
                logger.info("the store is back")
            return done

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._moved.wait(), seconds)

    async def _ended(self) -> None:
        """Wait for what is being played, for as long as the grace lasts."""
        deadline = monotonic() + self._grace
        while self._plays and not self._is_hurried and (left := deadline - monotonic()) > 0:
            self._moved.clear()
            await self._pause(left)

    async def _leave(self) -> None:
        """Stop what is still played, and give it back as it stands."""
        self._is_hurried = self._is_stopping = True
        for play in self._plays.values():
            play.leave()
        if self._plays:
            logger.info("%d runs are left for other workers", len(self._plays))
            await asyncio.wait(list(self._plays), timeout=_LEAVING)
