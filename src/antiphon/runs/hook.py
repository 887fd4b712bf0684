"""`resume_run`: the one function for a queue that delivers at least once (Dramatiq, Ray, NATS, a cron job).

A message of such a queue says only which turn is to be gone on with. It may arrive twice, at once or late, and whoever took it
may die in the middle and have it delivered again. All of that is the same here: whoever has the lease goes on from the log,
whoever has not is told so (`LeaseHeld`, to be delivered again later), and what is over is only said to be.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

from antiphon.conversation import LoopFinished, ToolLoop
from antiphon.conversation.sync import run_sync
from antiphon.errors import RunBookRefused
from antiphon.history import AgentHistory, HistoryStore, Lease, Run
from antiphon.history.store import RunState
from antiphon.providers.call import ModelCallFailed
from antiphon.providers.retry import may_retry
from antiphon.runs.book import Build, Kind, RunBook
from antiphon.runs.idle_turn import mark_interrupted
from antiphon.runs.sitting import sit


def resume_run(
    store: HistoryStore, run: str | Run, build: RunBook | Build, *, holder: str = "", lease_seconds: float = 30.0
) -> str:
    """Go on with a turn until it is over or waits for a person, and say which: `answered`, `approval`, `max_rounds`, ….

    `run` is a conversation or a run of the store's table, which is settled too; `build` gives the `ToolLoop` for it. Raises
    `LeaseHeld` if somebody plays it right now, and `ModelCallFailed` if no provider answered: deliver it again later.
    """
    return run_sync(resume_run_async(store, run, build, holder=holder, lease_seconds=lease_seconds))


async def resume_run_async(
    store: HistoryStore, run: str | Run, build: RunBook | Build, *, holder: str = "", lease_seconds: float = 30.0
) -> str:
    """`resume_run` for code that awaits. Cancelled, it leaves the turn for whoever is given it next."""
    turn = _Delivered(store, run, build)
    return await sit(
        store,
        turn.run.conversation,
        turn.played,
        holder=holder,
        seconds=lease_seconds,
        beat=turn.look_whether_cancelled,
    )


class _Delivered:
    """One delivery of a message."""

    def __init__(self, store: HistoryStore, run: str | Run, build: RunBook | Build) -> None:
        self._store = store
        self._is_listed = isinstance(run, Run)
        self.run = run if isinstance(run, Run) else _unlisted(store.info(run).id)
        self._kind = kind_for(build, self.run)
        self._loop: ToolLoop | None = None

    async def played(self, history: AgentHistory, lease: Lease) -> str:
        if self._is_listed:
            self.run = self._store.runs.get(self.run.id)  # as it is now that nobody else has it
            if self.run.is_over:
                return self.run.reason
        async with self._kind.loop(history, self.run) as loop:
            self._loop = loop
            finished = await loop.run_to_end()
            report = loop.chat.report
        reason = self._settled(history, lease, finished) if self._is_listed else finished.reason
        if reason == "failed" and finished.error is not None:
            raise ModelCallFailed(finished.error, report)
        return reason

    async def look_whether_cancelled(self) -> None:
        """Interrupt the turn if somebody asked for the end of its run."""
        if self._is_listed and self._loop is not None:
            known = await asyncio.to_thread(self._store.runs.get, self.run.id)
            if known.is_cancelled:
                await self._loop.interrupt()

    def _settled(self, history: AgentHistory, lease: Lease, finished: LoopFinished) -> str:
        """Say in the table how the run stands, and give the reason."""
        error, said, due = finished.error, str(finished.reason), None
        state: RunState = "done"
        is_unfinished = finished.reason in ("approval", "failed", "interrupted")
        if is_unfinished and self._store.runs.get(self.run.id).is_cancelled:
            mark_interrupted(history)  # changes nothing, if the loop came to it itself
            self._store.runs.settle(self.run.id, lease, "cancelled", "cancelled while it was played")
            return "interrupted"
        if finished.reason == "approval":
            state = "suspended"
        elif error is not None:
            state, said = ("waiting" if may_retry(error) else "failed"), f"{error.kind}: {error.message}"
            due = datetime.now(UTC) + timedelta(seconds=error.retry_after or 0.0)
        self._store.runs.settle(self.run.id, lease, state, said, due=due)
        return finished.reason


def kind_for(build: RunBook | Build, run: Run) -> Kind:
    """The kind that plays a run: the one in the book that it names, or the only one there is."""
    if not isinstance(build, RunBook):
        return Kind(name=run.kind or "turn", code=run.code, provider="", build=build)
    kind = build.get(run.kind)
    if kind is None:
        known = ", ".join(build.codes)
        raise RunBookRefused(f"a run of kind {run.kind!r} cannot be played here; the kinds of this book are {known}")
    if kind.code < run.code:
        raise RunBookRefused(f"a run of kind {run.kind!r} needs code {run.code}, and here it is {kind.code}")
    return kind


def _unlisted(conversation: str) -> Run:
    """A conversation without a run in the table, as the code that builds its loop is told of it."""
    now = datetime.now(UTC)
    return Run(id="", conversation=conversation, kind="", created=now, updated=now, due=now)
