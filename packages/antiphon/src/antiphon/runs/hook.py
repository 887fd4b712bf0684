"""`resume_run`: the function for a queue that delivers at least once (Dramatiq, Ray, NATS, a cron job).

A message of the queue names a turn to continue. It may arrive twice, or again after its consumer died. The consumer that gets
the lease continues from the log; a second one gets `LeaseHeld` and should let the queue deliver the message again later. For a
turn that is over, only its reason is returned.
"""

from __future__ import annotations

from datetime import UTC, datetime

from antiphon.closing import run_sync
from antiphon.conversation import RunResult, ToolLoop
from antiphon.history import AgentHistory, HistoryStore, Lease, Run
from antiphon.history.lease import hold_lease
from antiphon.providers.call import ModelCallFailed
from antiphon.runs.client import record_interrupted
from antiphon.runs.registry import LoopFactory, RunRegistry, find_kind
from antiphon.runs.retry import RunOutcome, RunRetryPolicy
from antiphon.runs.run_execution import check_entries
from antiphon.threads import STORES


def resume_run(
    store: HistoryStore,
    run: str | Run,
    build: RunRegistry | LoopFactory,
    *,
    holder: str = "",
    lease_seconds: float = 30.0,
) -> str:
    """Continue a turn until it is over or needs approval, and return which: `answered`, `approval`, `max_rounds`, ….

    `run` is a conversation id, or a run of the store's table, which is settled too; `build` returns the `ToolLoop` for it. Raises
    `LeaseHeld` if another process is running it, `ModelCallFailed` if no provider answered, and `RunConfigError` if a newer
    version is needed: deliver it again later.
    """
    return run_sync(resume_run_async(store, run, build, holder=holder, lease_seconds=lease_seconds))


async def resume_run_async(
    store: HistoryStore,
    run: str | Run,
    build: RunRegistry | LoopFactory,
    *,
    holder: str = "",
    lease_seconds: float = 30.0,
) -> str:
    """`resume_run` for code that awaits. If it is cancelled, the next delivery continues the turn."""
    delivery = _Delivery(store, run, build)
    return await hold_lease(
        store,
        delivery.run.conversation,
        delivery.execute,
        holder=holder,
        seconds=lease_seconds,
        on_renewed=delivery.check_cancelled,
    )


class _Delivery:
    """One delivery of a message."""

    def __init__(self, store: HistoryStore, run: str | Run, build: RunRegistry | LoopFactory) -> None:
        self._store = store
        self._is_in_table = isinstance(run, Run)
        self.run = run if isinstance(run, Run) else _ad_hoc_run(store.info(run).id)
        self._kind = find_kind(build, self.run)
        self._loop: ToolLoop | None = None

    async def execute(self, history: AgentHistory, lease: Lease) -> str:
        if self._is_in_table:
            self.run = self._store.runs.get(self.run.id)  # its state now that we have the lease
            if self.run.is_over:
                return self.run.reason
        check_entries(history)
        async with self._kind.loop(history, self.run) as loop:
            self._loop = loop
            finished = await loop.run(check=False)
            report = loop.chat.report
        reason = self._settle(history, lease, finished) if self._is_in_table else finished.reason
        if reason == "failed" and finished.error is not None:
            raise ModelCallFailed(finished.error, report)
        return reason

    async def check_cancelled(self) -> None:
        """Interrupt the turn if its run was cancelled."""
        if self._is_in_table and self._loop is not None:
            run = await STORES.run(self._store.runs.get, self.run.id)
            if run.is_cancelled:
                await self._loop.interrupt()

    def _settle(self, history: AgentHistory, lease: Lease, finished: RunResult) -> str:
        """Update the run in the table and return the reason."""
        is_unfinished = finished.reason in ("approval", "waiting", "failed", "interrupted")
        is_cancelled = is_unfinished and self._store.runs.get(self.run.id).is_cancelled
        if is_cancelled:
            record_interrupted(history)  # no-op if the loop recorded it
            outcome = RunOutcome("cancelled", "cancelled while it was running")
        else:
            outcome = RunRetryPolicy().outcome(finished, history)
        self._store.runs.settle(self.run.id, lease, outcome.state, outcome.reason, due=outcome.due())
        return "interrupted" if is_cancelled else finished.reason


def _ad_hoc_run(conversation: str) -> Run:
    """A run for a conversation that has none in the table."""
    now = datetime.now(UTC)
    return Run(id="", conversation=conversation, kind="", created=now, updated=now, due=now)
