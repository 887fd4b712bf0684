"""`Worker`: claims runs from a store and executes several at once, until it is stopped.

Workers share nothing but the store. A worker with a free slot claims a run, opens the conversation with the lease, resumes the
turn and settles the outcome. If it dies in between, its leases expire and other workers take the runs. It waits for a store that
is unavailable.

On `stop` it claims no more runs and lets the running ones finish for `grace` seconds; then it hands the rest back at once, for
other workers. A second `stop` skips the wait.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from random import uniform
from time import monotonic
from typing import TypeVar

from antiphon.errors import LeaseLost, RunConfigError, UnknownRun
from antiphon.history import HistoryStore, Lease, Run
from antiphon.history.lease import LeaseKeeper, default_holder
from antiphon.runs.client import can_continue, continue_steered, interrupt_turn
from antiphon.runs.registry import RunRegistry
from antiphon.runs.retry import RunOutcome, RunRetryPolicy
from antiphon.runs.run_execution import TRANSIENT_STORE_ERRORS, RunExecution
from antiphon.threads import STORES

logger = logging.getLogger("antiphon.runs")

T = TypeVar("T")

_SHORTEST_POLL = 0.2
_LONGEST_POLL = 1.0
_LONGEST_OUTAGE_WAIT = 3.0
_UNKNOWN_KINDS_SECONDS = 15.0
_HAND_BACK_SECONDS = 5.0


class Worker:
    """Executes the runs of `store` whose kinds are in `registry`.

    It executes `slots` runs at once, each under a lease of `lease_seconds`: the time until another worker takes over the runs of
    one that died. `limits` is the maximum number of concurrent runs per provider, for all workers together. `holder` is the name
    shown for its leases (default: host, process and a random suffix).
    """

    def __init__(
        self,
        store: HistoryStore,
        registry: RunRegistry,
        *,
        slots: int = 8,
        lease_seconds: float = 10.0,
        limits: Mapping[str, int] | None = None,
        holder: str = "",
        grace: float = 30.0,
        retry_policy: RunRetryPolicy | None = None,
        stuck_seconds: float | None = None,
    ) -> None:
        if slots < 1:
            raise RunConfigError(f"slots={slots}: must be at least 1")
        if not lease_seconds > 0 or grace < 0:
            raise RunConfigError(f"lease_seconds={lease_seconds:g} must be above 0 and grace={grace:g} at least 0")
        if not len(registry):
            raise RunConfigError("the registry has no kinds of runs; register at least one")
        self.holder = holder or f"{default_holder()}:{secrets.token_hex(2)}"
        self.settled_count = 0
        """How many runs this worker settled."""
        self._store = store
        self._registry = registry
        self._slots = slots
        self._seconds = lease_seconds
        self._limits = dict(limits or {})
        self._grace = grace
        self._policy = retry_policy or RunRetryPolicy()
        self._stuck_seconds = stuck_seconds
        self._running: dict[asyncio.Task[None], RunExecution] = {}
        self._warned: set[tuple[str, int]] = set()
        self._last_kind_check = 0.0
        self._is_store_away = False
        self._is_stopping = self._stop_now = False
        self._changed = asyncio.Event()
        self._clock_offset = timedelta()  # how far the store's clock is ahead of ours

    def stop(self) -> None:
        """Claim no more runs, and end when the running ones are over or after the grace period. Call again to end at once."""
        self._stop_now = self._is_stopping
        self._is_stopping = True
        self._changed.set()

    async def run(self, *, once: bool = False) -> None:
        """Work until stopped; with `once`, until no run is left to execute now."""
        keeper = LeaseKeeper(self._store, self._seconds, stuck_after=self._stuck_seconds)
        keeper.watch(asyncio.get_running_loop())
        logger.info("worker %s started: kinds %s, %d slots", self.holder, ", ".join(self._registry.codes), self._slots)
        poll = _SHORTEST_POLL
        try:
            while not self._is_stopping:
                self._changed.clear()
                if len(self._running) >= self._slots:
                    await self._changed.wait()
                    continue
                was_working = bool(self._running)  # what ends while the claim looks may leave a run that it did not see
                run = await self._retry_store(self._claim, is_owed=False)
                if run is not None:
                    poll = _SHORTEST_POLL
                    self._start(run, keeper)
                elif once and not was_working and not self._running:
                    break
                else:
                    await self._pause(uniform(poll / 2, poll))
                    poll = min(poll * 1.5, _LONGEST_POLL)
            await self._drain()
        finally:
            await self._hand_back()
            for task in list(self._running):  # runs that did not stop in time
                task.cancel()
            keeper.close()
        logger.info("worker %s stopped; it settled %d runs", self.holder, self.settled_count)

    async def _claim(self) -> Run | None:
        kinds = self._registry.codes
        run = await STORES.run(self._store.runs.claim, self.holder, self._seconds, kinds=kinds, limits=self._limits)
        if run is None and monotonic() - self._last_kind_check > _UNKNOWN_KINDS_SECONDS:
            self._last_kind_check = monotonic()
            for waiting in await STORES.run(self._store.runs.list, state="waiting"):
                if waiting.lease is None and waiting.code > kinds.get(waiting.kind, -1):
                    self._warn_unknown_kind(waiting)
        return run

    def _warn_unknown_kind(self, run: Run) -> None:
        if (run.kind, run.code) not in self._warned:
            self._warned.add((run.kind, run.code))
            kind = self._registry.get(run.kind)
            ours = f"this worker has code {kind.code}" if kind is not None else "this worker does not have this kind"
            logger.warning("runs of kind %r, code %d, are left to other workers: %s", run.kind, run.code, ours)

    def _start(self, run: Run, keeper: LeaseKeeper) -> None:
        kind, lease = self._registry.get(run.kind), run.lease
        assert kind is not None
        assert lease is not None
        self._clock_offset = lease.expires - timedelta(seconds=self._seconds) - datetime.now(UTC)
        execution = RunExecution(self._store, kind, run, lease, self.holder, self._policy)
        task = asyncio.ensure_future(self._execute(execution, keeper))
        self._running[task] = execution
        task.add_done_callback(self._on_done)

    def _on_done(self, task: asyncio.Task[None]) -> None:
        execution = self._running.pop(task)
        self._changed.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("run %s was dropped", execution.run.id, exc_info=error)

    async def _execute(self, execution: RunExecution, keeper: LeaseKeeper) -> None:
        run = execution.run
        logger.debug("run %s (%s) started", run.id, run.kind)
        keeper.add(
            execution.lease,
            on_lost=lambda _: execution.on_lease_lost(),
            on_renewed=lambda _: self._check_cancelled(execution),
        )
        try:
            outcome = await execution.execute()
        finally:
            keeper.remove(execution.lease)
        if execution.has_unknown_entries and outcome is not None and ("", run.code) not in self._warned:
            self._warned.add(("", run.code))
            logger.warning("run %s: %s", run.id, outcome.reason)
        if outcome is not None:
            await self._settle(run, execution.lease, outcome)

    def _check_cancelled(self, execution: RunExecution) -> None:
        try:
            if self._store.runs.get(execution.run.id).is_cancelled:
                execution.cancel()
        except UnknownRun:  # it was deleted with its conversation
            execution.on_lease_lost()

    async def _settle(self, run: Run, lease: Lease, outcome: RunOutcome) -> None:
        async def settle() -> Run:
            return await STORES.run(
                self._store.runs.settle,
                run.id,
                lease,
                outcome.state,
                outcome.reason,
                due=outcome.due(self._clock_offset),
            )

        try:
            settled = await self._retry_store(settle)
        except (LeaseLost, UnknownRun) as error:
            logger.warning("run %s: %s", run.id, error)
            return
        if settled is None:
            return
        self.settled_count += 1
        logger.log(
            logging.WARNING if settled.state == "failed" else logging.INFO,
            "run %s (%s): %s, %s",
            run.id,
            run.kind,
            settled.display_state,
            outcome.reason,
        )
        if settled.state in ("suspended", "cancelled", "done"):
            await self._retry_store(lambda: STORES.run(self._recheck, settled, outcome))

    def _recheck(self, run: Run, outcome: RunOutcome) -> None:
        """Handle what arrived between the last entry and the settling: a decision, a result, a message, a cancellation."""
        if run.state == "done":
            continue_steered(self._store, run)
        if run.state == "suspended" and can_continue(self._store, run.conversation):
            self._store.runs.wake(run.id)
        if run.state == "cancelled" and outcome.state != "cancelled":
            interrupt_turn(self._store, run.conversation, self.holder)

    async def _retry_store(self, work: Callable[[], Awaitable[T]], *, is_owed: bool = True) -> T | None:
        """The result of `work`, retried while the store is unavailable; None if the worker must stop meanwhile.

        Work that is owed to a run is retried until the grace period is over.
        """
        wait = _SHORTEST_POLL
        while True:
            try:
                result = await work()
            except TRANSIENT_STORE_ERRORS as error:
                if not self._is_store_away:
                    logger.warning("the store is unavailable, retrying: %s", error)
                self._is_store_away = True
                if self._stop_now or (self._is_stopping and not is_owed):
                    return None
                await asyncio.sleep(uniform(wait / 2, wait))
                wait = min(wait * 2, _LONGEST_OUTAGE_WAIT)
                continue
            if self._is_store_away:
                self._is_store_away = False
                logger.info("the store is back")
            return result

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), seconds)

    async def _drain(self) -> None:
        """Wait for the running runs until the grace period is over."""
        deadline = monotonic() + self._grace
        while self._running and not self._stop_now and (left := deadline - monotonic()) > 0:
            self._changed.clear()
            await self._pause(left)

    async def _hand_back(self) -> None:
        """Stop the runs that are still running, and leave their turns as they are."""
        self._stop_now = self._is_stopping = True
        for execution in self._running.values():
            execution.hand_back()
        if self._running:
            logger.info("%d runs are handed back to other workers", len(self._running))
            await asyncio.wait(list(self._running), timeout=_HAND_BACK_SECONDS)
