"""How a tool's work is run: in a task with a timeout, at once, or in a thread; whatever it does, it comes to an end.

**Tasks.** An attempt has a task of its own, and is left if it ignores its cancellation. Python 3.12 has eager tasks, which start
at once; on 3.11 a task starts in the next turn of the event loop. An async function without `await` needs none (`Tool.can_wait`).

**Threads.** A plain function runs in a thread, so that it does not block the event loop. A thread cannot be killed. So these are
daemon threads of our own and not asyncio's: a call that hangs keeps its thread to itself, while closing the loop waits for
nothing (asyncio joins the threads of its executor), and the end of the interpreter only for a moment. A thread that is done waits
a while for the next call, then ends. There is no limit here; the executor limits how many calls run at once.
"""

from __future__ import annotations

import asyncio
import atexit
import contextvars
import inspect
import itertools
import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, Literal, TypeAlias

from msgspec import Struct, structs

from antiphon.threads import start_task

logger = logging.getLogger("antiphon.tools")


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
    task = start_task(_outcome_of(work), loop=asyncio.get_running_loop())
    if task.done():
        return task.result()
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
        contextvars.copy_context().run(_outcome_of(work).send, None)
    except StopIteration as end:
        outcome: AttemptOutcome = end.value
        return outcome
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


IDLE_SECONDS = 10.0
EXIT_SECONDS = 0.5

_Job: TypeAlias = tuple[contextvars.Context, Callable[[], Any], asyncio.AbstractEventLoop, asyncio.Future[Any]]

_idle: list[_Worker] = []
_busy: set[_Worker] = set()
_idle_lock = threading.Lock()
_numbers = itertools.count(1)


async def run_in_daemon_thread(function: Callable[[], Any]) -> Any:
    """What `function` gives, called in a thread with the caller's context variables; an awaitable is awaited here.

    Cancelled, it returns at once.
    """
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
    return await returned if inspect.isawaitable(returned) else returned


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
