"""Work that may hang: `Threads`, for what blocks, each kind in threads of its own; `run_attempt`, for what waits, in a task.

The event loop's default executor resolves host names; work that waits for a file or a database must not fill it. Each kind has a
few threads and a bounded queue for each event loop. A call is refused at once if the queue is full, and after `WAIT_SECONDS` if
no thread took it: then it did not happen. A kind without a number of `workers` (the tools) has a thread for every call, shared by
all event loops: a call that hangs keeps its thread to itself. The threads are daemons and end when they are idle, so a call that
never returns does not keep the process, nor the closing of a loop (asyncio joins the threads of its own executor).

An error refers to its traceback, that to the frames it passed, and these to all their variables. Where one of those variables
leads back to the error (an asyncio future keeps the error it carried) there is a cycle, and the body of a request stays until the
next garbage collection. So the error does not travel in the future, and the variables of the frames in the thread are cleared;
the traceback still shows their lines.

An attempt has a task of its own, and is left if it ignores its cancellation.
"""

from __future__ import annotations

import asyncio
import atexit
import contextvars
import logging
import math
import os
import threading
import time
import traceback
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Literal, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

from msgspec import Struct, structs

from antiphon.errors import StoreBusy

logger = logging.getLogger(__name__)

_P = ParamSpec("_P")
_T = TypeVar("_T")

WAIT_SECONDS = 5.0
"""How long a call waits for a thread."""
_IDLE_SECONDS = 10.0
_EXIT_SECONDS = 0.5


class Threads:
    """Threads for one kind of waiting: at most `workers` calls at once, and `waiting` more that wait for their turn.

    Without `workers`, every call has its thread, whichever event loop it comes from; calls that still run when the interpreter
    ends are waited for a moment, because a thread that is stopped inside a library's native code may crash the process.
    """

    def __init__(self, name: str, *, workers: int | None = None, waiting: int = 0) -> None:
        self.name = name
        self._workers = workers
        self._waiting = waiting
        self._pools: WeakKeyDictionary[asyncio.AbstractEventLoop, _Pool] = WeakKeyDictionary()
        self._shared: _Pool | None = None
        if workers is None:
            self._share()
            atexit.register(self._wait)
            if hasattr(os, "register_at_fork"):  # threads do not survive a fork, and a lock may have been held by one
                os.register_at_fork(after_in_child=self._share)

    async def run(self, work: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """The result of `work`, or its error. Raises `StoreBusy` if too many calls wait, or no thread takes it in time.

        Cancelled, it returns at once.
        """
        loop = asyncio.get_running_loop()
        pool = self._shared or self._pools.get(loop)
        if pool is None:
            pool = self._pools[loop] = _Pool(self.name, self._workers or 0, self._waiting)
        job = _Job(loop, partial(contextvars.copy_context().run, partial(work, *args, **kwargs)))
        pool.add(job)
        timer = None if pool is self._shared else loop.call_later(WAIT_SECONDS, pool.give_up, job)
        try:
            await job.ended
        except BaseException:
            pool.drop(job)  # it was cancelled, perhaps before it began
            raise
        finally:
            if timer is not None:
                timer.cancel()
        if job.errors:
            if timer is not None:  # a tool's error keeps its variables, for who looks into it
                _clear_frames(job.errors[0])
            raise job.errors.pop()
        result: _T = job.results.pop()
        return result

    def _share(self) -> None:
        self._shared = _Pool(self.name, math.inf, 0)

    def _wait(self) -> None:
        deadline = time.monotonic() + _EXIT_SECONDS
        while self._shared is not None and self._shared.is_busy and time.monotonic() < deadline:
            time.sleep(0.01)


class _Job:
    """One call. Its work is taken once: by a thread that does it, or to give it up."""

    def __init__(self, loop: asyncio.AbstractEventLoop, work: Callable[[], Any]) -> None:
        self.loop = loop
        self.ended: asyncio.Future[None] = loop.create_future()
        self.results: list[Any] = []
        self.errors: list[BaseException] = []
        self._work = [work]

    def take(self) -> Callable[[], Any] | None:
        """The work, which is forgotten here; None: it was taken before."""
        try:
            return self._work.pop()  # atomic
        except IndexError:
            return None

    def run(self) -> bool:
        """Do the work, in a thread. Returns whether it was not given up before."""
        work = self.take()
        if work is None:
            return False
        try:
            self.results.append(work())
        except BaseException as error:  # even sys.exit ends only the call
            self.errors.append(error)
        return True

    def finish(self) -> None:
        """Wake the caller, in its event loop."""
        if not self.ended.done():
            self.ended.set_result(None)


class _Pool:
    """The threads of one kind for one event loop."""

    def __init__(self, name: str, workers: float, waiting: int) -> None:
        self._name = name
        self._workers = workers
        self._limit = workers + waiting
        self._lock = threading.Lock()
        self._jobs: SimpleQueue[_Job] = SimpleQueue()
        self._open_jobs = 0
        self._threads = 0

    @property
    def is_busy(self) -> bool:
        """Whether a call runs or waits."""
        return self._open_jobs > 0

    def add(self, job: _Job) -> None:
        """Queue a call. Raises `StoreBusy`."""
        with self._lock:
            if self._open_jobs >= self._limit:
                raise self._busy()
            self._open_jobs += 1
            self._jobs.put(job)
            if self._threads < min(self._workers, self._open_jobs):
                self._threads += 1
                name = f"antiphon-{self._name}-{self._threads}"
                threading.Thread(target=self._work, name=name, daemon=True).start()

    def give_up(self, job: _Job) -> None:
        """Refuse a call that no thread took in time."""
        if self.drop(job):
            job.errors.append(self._busy())
            job.finish()

    def drop(self, job: _Job) -> bool:
        """Forget a call that has not begun. Returns whether that was so."""
        if job.take() is None:
            return False
        self._release()
        return True

    def _busy(self) -> StoreBusy:
        return StoreBusy(f"too many calls wait for the {self._name}, or it does not answer; try again later")

    def _release(self) -> None:
        with self._lock:
            self._open_jobs -= 1

    def _work(self) -> None:
        while True:
            try:
                job = self._jobs.get(timeout=_IDLE_SECONDS)
            except Empty:
                with self._lock:
                    if self._jobs.empty():
                        self._threads -= 1
                        return
                continue
            if job.run():
                self._release()
                with suppress(RuntimeError):  # the event loop was closed meanwhile
                    job.loop.call_soon_threadsafe(job.finish)
            del job


def _clear_frames(error: BaseException) -> None:
    """Clear the variables of all frames that the error, or one that it came from, passed."""
    chain: list[BaseException | None] = [error]
    seen: set[int] = set()
    while chain:
        link = chain.pop()
        if link is not None and id(link) not in seen:
            seen.add(id(link))
            traceback.clear_frames(link.__traceback__)
            chain += link.__cause__, link.__context__


STORES = Threads("store", workers=8, waiting=128)
"""Conversations in a store, as the chat reads and draws them."""
TOOLS = Threads("tool")
"""Tools that are plain functions: a thread cannot be killed, so a call that hangs keeps its own. The executor limits them."""


class AttemptOutcome(Struct, frozen=True):
    """How an attempt ended: with a value, with an error, or `stopped` at its deadline."""

    kind: Literal["done", "raised", "stopped"]
    value: Any = None
    error: BaseException | None = None
    is_late: bool = False
    """Whether it returned its value only after it was cancelled."""


async def run_attempt(work: Coroutine[Any, Any, Any], timeout: float | None, grace: float) -> AttemptOutcome:
    """How `work` ends: after at most `timeout` seconds and `grace` more to clean up.

    It runs in a task of its own, so that its scopes and cancellations stay in it and it can be left if it ignores them.
    """
    task = asyncio.get_running_loop().create_task(_outcome_of(work))
    try:
        await asyncio.wait((task,), timeout=timeout)
        if task.done():
            return task.result()
        task.cancel()
        await asyncio.wait((task,), timeout=grace)
    except asyncio.CancelledError:
        task.cancel()
        try:
            await asyncio.wait((task,), timeout=grace)
        finally:
            _abandon(task)
        raise
    if task.done() and (late := task.result()).kind == "done":
        return structs.replace(late, is_late=True)
    _abandon(task)
    return AttemptOutcome("stopped")  # what it raised came from the cancellation


def run_at_once(work: Coroutine[Any, Any, Any]) -> AttemptOutcome:
    """How `work` ends that never waits: nothing could stop it, so it needs no task and no turn of the event loop."""
    try:
        contextvars.copy_context().run(work.send, None)
    except StopIteration as end:
        return AttemptOutcome("done", end.value)
    except BaseException as error:  # as in `_outcome_of`
        return AttemptOutcome("raised", error=error)
    raise RuntimeError(f"{work!r} waits although it contains no await")


async def _outcome_of(work: Coroutine[Any, Any, Any]) -> AttemptOutcome:
    # Every exception, because `sys.exit` in a tool ends the call and not the process.
    try:
        return AttemptOutcome("done", await work)
    except BaseException as error:
        return AttemptOutcome("raised", error=error)


def _abandon(task: asyncio.Task[AttemptOutcome]) -> None:
    """Close the coroutine of a task that ignores its cancellation: it is never resumed."""
    if task.done():
        return
    task.add_done_callback(_ignore_end)
    coroutine: Any = task.get_coro()
    try:
        coroutine.close()
    except RuntimeError as error:  # it ignored even that
        logger.debug("%r: %s", coroutine, error)
    task.cancel()  # wakes the task, which then ends


def _ignore_end(task: asyncio.Task[AttemptOutcome]) -> None:
    if not task.cancelled():
        task.exception()  # retrieved: the call has its result already
