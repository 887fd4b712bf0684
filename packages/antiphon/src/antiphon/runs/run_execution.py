"""`RunExecution`: one claimed run, executed on one worker as far as it gets.

It ends in one of five ways:

    the turn ended by itself      the `RunOutcome` follows from how the loop finished
    the run was cancelled         the turn is interrupted, and the log records it
    the worker stops              (`hand_back`) the turn stays as it is, and another worker continues it
    the lease was lost            (`on_lease_lost`) the same, and nothing is settled: another worker has the run
    something broke               the store: the run waits until it is back; anything else: the run fails

`on_lease_lost` and `cancel` may be called from any thread, the rest from the event loop.
"""

from __future__ import annotations

import asyncio
import logging

from antiphon.conversation import RunResult, ToolLoop
from antiphon.errors import (
    AntiphonError,
    LeaseLost,
    RunConfigError,
    StoreBusy,
    StoreFull,
    StoreLocked,
    StoreReadOnly,
    StoreUnreachable,
    WriterConflict,
)
from antiphon.history import AgentHistory, HistoryStore, Lease, OpaqueEntry, Run
from antiphon.runs.client import record_interrupted
from antiphon.runs.registry import Kind
from antiphon.runs.retry import RunOutcome, RunProgress, RunRetryPolicy, record_claim, record_note
from antiphon.text import shorten
from antiphon.threads import STORES

logger = logging.getLogger("antiphon.runs")

TRANSIENT_STORE_ERRORS = (StoreUnreachable, StoreBusy, StoreLocked, StoreReadOnly, StoreFull)

_NEWER_WORKER_DELAY = 30.0
_TOOLS_STOP_SECONDS = 2.0
_MAX_REASON_CHARS = 500


class RunExecution:
    """Executes `run`, which `holder` has a lease for."""

    def __init__(
        self, store: HistoryStore, kind: Kind, run: Run, lease: Lease, holder: str, policy: RunRetryPolicy
    ) -> None:
        self.run = run
        self.lease = lease
        self.has_unknown_entries = False
        """Whether the log has entries that this version does not know."""
        self._store = store
        self._kind = kind
        self._holder = holder
        self._policy = policy
        self._event_loop = asyncio.get_running_loop()
        self._stop_reason = ""  # "lost", "handed back" or "cancelled", if it stops before its own end
        self._history: AgentHistory | None = None
        self._loop: ToolLoop | None = None
        self._running: asyncio.Task[RunResult] | None = None
        self._stopping: asyncio.Task[None] | None = None

    def on_lease_lost(self) -> None:
        """Stop at once and write nothing: another worker has the run."""
        self._stop("lost", "another worker has the lease now")

    def hand_back(self) -> None:
        """Stop and leave the turn as it is, for another worker."""
        self._stop("handed back", "the worker handed the run back")

    def cancel(self) -> None:
        """Interrupt the turn for good, and record it."""
        self._stop("cancelled")

    async def execute(self) -> RunOutcome | None:
        """Execute the run and return its outcome; None if another worker has it now."""
        try:
            return await self._execute()
        except LeaseLost as error:
            logger.warning("run %s: %s", self.run.id, error)
            return None
        except (WriterConflict, *TRANSIENT_STORE_ERRORS) as error:
            return RunOutcome("waiting", str(error), self._policy.delay(1))
        except AntiphonError as error:
            return RunOutcome("failed", shorten(str(error), _MAX_REASON_CHARS))
        except Exception as error:
            logger.exception("run %s failed", self.run.id)
            return RunOutcome("failed", shorten(f"{type(error).__name__}: {error}", _MAX_REASON_CHARS))

    async def _execute(self) -> RunOutcome | None:
        history = await self._open()
        if unknown := unknown_entry(history):
            self.has_unknown_entries = True
            return RunOutcome("waiting", f"{unknown}; waiting for a worker of that version", _NEWER_WORKER_DELAY)
        if self.run.attempts > 1:
            # One more than the notes: the first claim after the last progress has none.
            claims = RunProgress.of(history.entries).unproductive_claims + 1
            if claims >= self._policy.max_attempts:
                return RunOutcome("failed", f"gave up: {claims} workers in a row claimed it and made no progress")
            record_claim(history, self._holder, self.run.attempts)
        self._history = history
        finished = await self._run_loop(history)
        if self._stop_reason == "lost":
            return None
        if self._stop_reason == "handed back" and finished is None:
            record_note(await self._open(), f"handed back by {self._holder}")  # the other history is sealed
            return RunOutcome("waiting", "handed back by a worker that stopped")
        if self._stop_reason == "cancelled" and (finished is None or finished.reason == "interrupted"):
            record_interrupted(history)  # no-op if the loop recorded it
            return RunOutcome("cancelled", self.run.reason or "cancelled while it was running")
        assert finished is not None, "a loop that was not stopped finishes"
        return self._policy.outcome(finished, history)

    async def _open(self) -> AgentHistory:
        return await STORES.run(self._store.open, self.run.conversation, lease=self.lease)

    async def _run_loop(self, history: AgentHistory) -> RunResult | None:
        """How the loop finished; None if it was stopped before."""
        if self._is_stopped:
            return None
        self._running = asyncio.ensure_future(self._resume(history))
        try:
            await asyncio.wait([self._running])
        except asyncio.CancelledError:
            self.hand_back()
            await asyncio.wait([self._running])
            self._running.cancelled() or self._running.exception()
            raise
        if self._stopping is not None:
            await self._stopping
        if self._running.cancelled():
            return None
        if isinstance(self._running.exception(), LeaseLost) and self._stop_reason == "handed back":
            return None
        finished = self._running.result()
        is_cut_off = finished.reason == "interrupted" and self._stop_reason == "handed back"
        return None if is_cut_off else finished

    async def _resume(self, history: AgentHistory) -> RunResult:
        async with self._kind.loop(history, self.run) as loop:
            self._loop = loop
            return await loop.run(check=False)

    def _stop(self, reason: str, seal: str = "") -> None:
        if self._stop_reason in ("lost", "handed back") or self._stop_reason == reason:
            return
        self._stop_reason = reason
        if seal and self._history is not None:
            self._history.seal(seal)  # before the task is cancelled: its last entries must not reach the log
        self._event_loop.call_soon_threadsafe(self._start_stopping)

    def _start_stopping(self) -> None:
        if self._running is not None and not self._running.done() and self._stopping is None:
            self._stopping = asyncio.ensure_future(self._stop_loop(self._running))

    async def _stop_loop(self, running: asyncio.Task[RunResult]) -> None:
        """Stop the loop. Tools that must not be cancelled are awaited only if a person cancelled the run."""
        interrupts: list[asyncio.Task[bool]] = []
        while not running.done():
            if self._loop is None or not self._is_streaming:
                running.cancel()
            elif not interrupts or self._stop_reason != "cancelled":
                interrupts.append(asyncio.ensure_future(self._loop.interrupt()))
            await asyncio.wait([running], timeout=_TOOLS_STOP_SECONDS)
        await asyncio.gather(*interrupts)

    @property
    def _is_stopped(self) -> bool:
        return bool(self._stop_reason)

    @property
    def _is_streaming(self) -> bool:
        return self._loop is not None and self._loop.chat.active_turn is not None


def check_entries(history: AgentHistory) -> None:
    """Raise `RunConfigError` if this version does not know all entries: the run is for a newer one."""
    if unknown := unknown_entry(history):
        raise RunConfigError(f"{unknown}; a worker of that version is needed")


def unknown_entry(history: AgentHistory) -> str:
    """Which effective entry a newer version wrote and this one does not know; empty if there is none."""
    unknown = (entry for entry in history.effective if isinstance(entry, OpaqueEntry))
    return next((f"entry {one.sequence_number} ({one.kind}) was written by a newer version" for one in unknown), "")
