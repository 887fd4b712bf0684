"""`Play`: one claimed run, played on one worker as far as it goes.

It ends in one of five ways, and only the first two are known to the log:

    the turn came to an end of its own     the `Verdict` follows from how the loop finished
    somebody cancelled the run             the turn is interrupted as by a person, and the log says so
    the worker must go (`leave`)           nothing is marked: the turn waits as it is, and another worker goes on
    the lease was lost (`lose`)            the same, and there is nothing to settle either: the run is another's
    something broke                        the store: the run waits until it is back; anything else: the run has failed

`lose` and `cancel` may be called from any thread, the rest from the event loop.
"""

from __future__ import annotations

import asyncio
import logging

from antiphon.conversation import LoopFinished, ToolLoop
from antiphon.errors import (
    AntiphonError,
    LeaseLost,
    StoreFull,
    StoreLocked,
    StoreReadOnly,
    StoreUnreachable,
    WriterConflict,
)
from antiphon.history import HistoryStore, Lease, OpaqueEntry, Run
from antiphon.runs.book import Kind
from antiphon.runs.course import Course, note, note_claim
from antiphon.runs.fence import Fence
from antiphon.runs.idle_turn import mark_interrupted
from antiphon.runs.patience import Patience, Verdict

logger = logging.getLogger("antiphon.runs")

PASSING = (StoreUnreachable, StoreLocked, StoreReadOnly, StoreFull)
"""What a store may suffer from for a while and recover."""

_FOR_OTHERS = 30.0
_TOOLS_STOP = 2.0
_LONGEST_REASON = 500


class Play:
    """Plays `run`, which `holder` has a lease for."""

    def __init__(
        self, store: HistoryStore, kind: Kind, run: Run, lease: Lease, holder: str, patience: Patience
    ) -> None:
        self.run = run
        self.lease = lease
        self.is_strange = False
        """Whether the log holds what this version does not understand."""
        self._store = store
        self._kind = kind
        self._holder = holder
        self._patience = patience
        self._event_loop = asyncio.get_running_loop()
        self._ending = ""  # "lost", "left" or "cancelled", if it is to end before its own end
        self._fence: Fence | None = None
        self._loop: ToolLoop | None = None
        self._playing: asyncio.Task[LoopFinished] | None = None
        self._stopping: asyncio.Task[None] | None = None

    @property
    def run_id(self) -> str:
        return self.run.id

    def lose(self) -> None:
        """Stop at once and write nothing: the run is another's."""
        self._end("lost", "the lease is another's by now")

    def leave(self) -> None:
        """Stop, with the turn as it stands; another worker goes on."""
        self._end("left", "the worker left it")

    def cancel(self) -> None:
        """Interrupt the turn for good, and say so in the log."""
        self._end("cancelled")

    async def verdict(self) -> Verdict | None:
        """Play, and say how the run stands then; None if that is no longer ours to say."""
        try:
            return await self._verdict()
        except LeaseLost as error:
            logger.warning("run %s: %s", self.run.id, error)
            return None
        except WriterConflict as error:
            return Verdict("waiting", str(error), self._patience.delay(1))
        except PASSING as error:
            return Verdict("waiting", str(error), self._patience.delay(1))
        except AntiphonError as error:
            return Verdict("failed", _short(str(error)))
        except Exception as error:
            logger.exception("run %s failed", self.run.id)
            return Verdict("failed", _short(f"{type(error).__name__}: {error}"))

    async def _verdict(self) -> Verdict | None:
        history = await asyncio.to_thread(self._store.open, self.run.conversation, lease=self.lease)
        strange = next((entry for entry in history.effective if isinstance(entry, OpaqueEntry)), None)
        if strange is not None:
            self.is_strange = True
            why = f"entry {strange.sequence_number} ({strange.kind}) was written by a newer version"
            return Verdict("waiting", f"{why}; left for a worker that knows it", _FOR_OTHERS)
        course = Course.of(history.entries)
        deaths = course.claims + 1  # the claim under which something last came of it ended likewise, and has no note
        if self.run.attempts > 1 and deaths >= self._patience.max_attempts:
            return Verdict("failed", f"given up: {deaths} workers in a row claimed it, and nothing came of it")
        if self.run.attempts > 1:
            note_claim(history, self._holder, self.run.attempts)
        self._fence = Fence(history)
        finished = await self._played(self._fence)
        if self._ending == "lost":
            return None
        if self._ending == "left" and finished is None:
            note(history, f"left by {self._holder}, for another worker to go on with")
            return Verdict("waiting", "left by a worker that stopped")
        if self._ending == "cancelled" and (finished is None or finished.reason == "interrupted"):
            mark_interrupted(history)  # changes nothing, if the loop came to it itself
            return Verdict("cancelled", self.run.reason or "cancelled while it was played")
        assert finished is not None, "only an ending of ours leaves a loop without its own"
        failures = Course.of(history.entries).failures if finished.reason == "failed" else 0
        return self._patience.verdict(finished, failures)

    async def _played(self, fence: Fence) -> LoopFinished | None:
        """How the loop finished; None if it was stopped before it did."""
        if self._is_ending:
            return None
        self._playing = asyncio.ensure_future(self._resumed(fence))
        try:
            await asyncio.wait([self._playing])
        except asyncio.CancelledError:
            self.leave()
            await asyncio.wait([self._playing])
            self._playing.cancelled() or self._playing.exception()
            raise
        if self._stopping is not None:
            await self._stopping
        if self._playing.cancelled():
            return None
        error = self._playing.exception()
        if isinstance(error, LeaseLost) and self._ending == "left":
            return None
        finished = self._playing.result()
        is_cut = finished.reason == "interrupted" and self._ending == "left"
        return None if is_cut else finished

    async def _resumed(self, fence: Fence) -> LoopFinished:
        async with self._kind.loop(fence.history(), self.run) as loop:
            self._loop = loop
            return await loop.run_to_end()

    def _end(self, ending: str, shut: str = "") -> None:
        if self._ending in ("lost", "left") or self._ending == ending:
            return
        self._ending = ending
        if shut and self._fence is not None:
            self._fence.shut(shut)
        self._event_loop.call_soon_threadsafe(self._stop)

    def _stop(self) -> None:
        if self._playing is not None and not self._playing.done() and self._stopping is None:
            self._stopping = asyncio.ensure_future(self._stopped(self._playing))

    async def _stopped(self, playing: asyncio.Task[LoopFinished]) -> None:
        """Stop the loop where it is. Tools it would wait for are waited for only if a person cancelled the run."""
        interrupts: list[asyncio.Task[bool]] = []
        while not playing.done():
            if self._loop is None or not self._is_streaming:
                playing.cancel()
            elif not interrupts or self._ending != "cancelled":
                interrupts.append(asyncio.ensure_future(self._loop.interrupt()))
            await asyncio.wait([playing], timeout=_TOOLS_STOP)
        await asyncio.gather(*interrupts)

    @property
    def _is_ending(self) -> bool:
        return bool(self._ending)

    @property
    def _is_streaming(self) -> bool:
        return self._loop is not None and self._loop.chat.active_turn is not None


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_REASON else text[: _LONGEST_REASON - 1] + "…"
