"""`Threads`: blocking work in threads of its own kind, so that one kind that hangs stops no other; and `start_task`.

The event loop's default executor resolves host names; work that waits for a file or a database must not fill it. Each kind has a
few threads and a bounded queue for each event loop. A call is refused at once if the queue is full, and after `WAIT_SECONDS` if
no thread took it: then it did not happen. The threads are daemons and end when they are idle, so a call that never returns does
not keep the process.

An error refers to its traceback, that to the frames it passed, and these to all their variables. Where one of those variables
leads back to the error (an asyncio future keeps the error it carried) there is a cycle, and the body of a request stays until the
next garbage collection. So the error does not travel in the future, and the variables of the frames in the thread are cleared;
the traceback still shows their lines.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

from antiphon.errors import StoreBusy

_P = ParamSpec("_P")
_T = TypeVar("_T")

if sys.version_info >= (3, 12):
    start_task = partial(asyncio.Task, eager_start=True)
else:
    start_task = asyncio.Task
"""Starts a task that takes its first step at once, where Python has eager tasks: it may be done when this returns."""

WAIT_SECONDS = 5.0
"""How long a call waits for a thread."""
_IDLE_SECONDS = 10.0


class Threads:
    """Threads for one kind of waiting: at most `workers` calls at once, and `waiting` more that wait for their turn."""

    def __init__(self, name: str, *, workers: int, waiting: int) -> None:
        self.name = name
        self._workers = workers
        self._waiting = waiting
        self._pools: WeakKeyDictionary[asyncio.AbstractEventLoop, _Pool] = WeakKeyDictionary()

    async def run(self, work: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """The result of `work`, or its error. Raises `StoreBusy` if too many calls wait, or no thread takes it in time."""
        loop = asyncio.get_running_loop()
        pool = self._pools.get(loop)
        if pool is None:
            pool = self._pools[loop] = _Pool(self.name, self._workers, self._waiting)
        job = _Job(loop, partial(copy_context().run, partial(work, *args, **kwargs)))
        pool.add(job)
        timer = loop.call_later(WAIT_SECONDS, pool.give_up, job)
        try:
            await job.ended
        finally:
            timer.cancel()
            pool.drop(job)  # if it was cancelled before it began
        if job.errors:
            _clear_frames(job.errors[0])
            raise job.errors.pop()
        result: _T = job.results.pop()
        return result


STORES = Threads("store", workers=8, waiting=128)
"""Conversations in a store, as the chat reads and draws them."""


class _Job:
    """One call. It is taken once: by a thread that makes it, or to give it up."""

    def __init__(self, loop: asyncio.AbstractEventLoop, work: Callable[[], Any]) -> None:
        self.loop = loop
        self.ended: asyncio.Future[None] = loop.create_future()
        self.results: list[Any] = []
        self.errors: list[Exception] = []
        self._work = [work]
        self._is_taken = threading.Lock()

    def take(self) -> bool:
        """Take it. False: it was taken before."""
        return self._is_taken.acquire(blocking=False)

    def run(self) -> None:
        """Do the work, in a thread."""
        try:
            self.results.append(self._work.pop()())  # no variable of this thread may hold the request after its end
        except Exception as error:
            self.errors.append(error)

    def clear(self) -> None:
        """Forget the work, which will not be done."""
        self._work.clear()

    def finish(self) -> None:
        """Wake the caller, in its event loop."""
        if not self.ended.done():
            self.ended.set_result(None)


class _Pool:
    """The threads of one kind for one event loop."""

    def __init__(self, name: str, workers: int, waiting: int) -> None:
        self._name = name
        self._workers = workers
        self._limit = workers + waiting
        self._lock = threading.Lock()
        self._jobs: SimpleQueue[_Job] = SimpleQueue()
        self._open_jobs = 0
        self._threads = 0

    def add(self, job: _Job) -> None:
        """Queue a call. Raises `StoreBusy`."""
        with self._lock:
            if self._open_jobs >= self._limit:
                raise self._busy()
            self._open_jobs += 1
            self._jobs.put(job)
            if self._threads < min(self._workers, self._open_jobs):
                self._threads += 1
                threading.Thread(target=self._work, name=f"antiphon-{self._name}", daemon=True).start()

    def give_up(self, job: _Job) -> None:
        """Refuse a call that no thread took in time."""
        if self.drop(job):
            job.errors.append(self._busy())
            job.finish()

    def drop(self, job: _Job) -> bool:
        """Forget a call that has not begun. Returns whether that was so."""
        if not job.take():
            return False
        job.clear()
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
            if job.take():
                job.run()
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
