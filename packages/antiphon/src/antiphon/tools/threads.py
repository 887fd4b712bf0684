"""`run_in_daemon_thread`: runs plain functions in threads, so that they do not block the event loop.

A thread cannot be killed. So these are daemon threads of our own and not asyncio's: a call that hangs keeps its thread to
itself, while closing the loop waits for nothing (asyncio joins the threads of its executor), and the end of the interpreter
only for a moment. A thread that is done waits a while for the next call, then ends.

There is no bound here; the executor bounds how many calls run at once. A call that is abandoned after a timeout does not count:
if it ever ends, its result is dropped.
"""

from __future__ import annotations

import asyncio
import atexit
import contextvars
import itertools
import logging
import os
import queue
import threading
import time
from collections.abc import Callable
from typing import Any, TypeAlias

logger = logging.getLogger("antiphon.tools")

IDLE_SECONDS = 10.0
EXIT_SECONDS = 0.5

_Job: TypeAlias = tuple[contextvars.Context, Callable[[], Any], asyncio.AbstractEventLoop, asyncio.Future[Any]]

_idle: list[_Worker] = []
_busy: set[_Worker] = set()
_idle_lock = threading.Lock()
_numbers = itertools.count(1)


async def run_in_daemon_thread(function: Callable[[], Any]) -> Any:
    """What `function` gives, called in a thread with the caller's context variables. Cancelled, it returns at once."""
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[Any] = loop.create_future()
    job = (contextvars.copy_context(), function, loop, outcome)
    with _idle_lock:
        worker = _idle.pop() if _idle else None
    if worker is None:
        worker = _Worker()
        worker.start()
    worker.inbox.put(job)
    returned, error = await outcome
    if error is not None:
        raise error
    return returned


class _Worker(threading.Thread):
    def __init__(self) -> None:
        super().__init__(name=f"antiphon-tool-{next(_numbers)}", daemon=True)
        self.inbox: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        self._is_free = threading.Event()

    def join_call(self, seconds: float) -> None:
        """Wait until the call that runs here is done, for at most so long."""
        self._is_free.wait(seconds)

    def run(self) -> None:
        while (job := self._next_job()) is not None:
            context, function, loop, outcome = job
            returned = error = None
            self._is_free.clear()
            _busy.add(self)
            try:
                returned = context.run(function)
            except BaseException as raised:  # even sys.exit in a tool ends only the call
                error = raised
            _busy.discard(self)
            self._is_free.set()
            with _idle_lock:
                _idle.append(self)
            try:
                loop.call_soon_threadsafe(_settle, outcome, (returned, error))
            except RuntimeError:
                logger.debug("%s finished after its event loop was closed; the result is dropped", self.name)
            # Nothing of this call may live on while the thread waits for the next.
            del job, context, function, loop, outcome, returned, error

    def _next_job(self) -> _Job | None:
        try:
            return self.inbox.get(timeout=IDLE_SECONDS)
        except queue.Empty:
            with _idle_lock:
                if self in _idle:
                    _idle.remove(self)
                    return None
            # Another caller took this thread in the instant it stopped waiting.
            return self.inbox.get()


def _wait_for_busy_workers() -> None:
    """Wait a moment for running calls when the interpreter ends: a thread that is stopped inside a library's native code may
    crash the process."""
    deadline = time.monotonic() + EXIT_SECONDS
    for worker in list(_busy):
        worker.join_call(max(0.0, deadline - time.monotonic()))


def _settle(outcome: asyncio.Future[Any], result: tuple[Any, BaseException | None]) -> None:
    if not outcome.done():
        outcome.set_result(result)


def _reset_after_fork() -> None:
    """Threads do not survive a fork, and a lock may have been held by one: a child begins without either."""
    global _idle_lock
    _idle_lock = threading.Lock()
    _idle.clear()
    _busy.clear()


atexit.register(_wait_for_busy_workers)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_after_fork)
