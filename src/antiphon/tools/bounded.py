"""`bounded`: wait for a piece of work, but not for longer than it may take, whatever it does.

The work runs in a task of its own, and the waiting is for a future beside it. At its deadline the work is cancelled; if it does
not stop (it catches the cancellation and goes on), it is closed from outside after a while of grace. A closed coroutine is never
woken again, so that ends it, whatever it catches.

Nothing the work raises passes through: not `SystemExit`, which would end the event loop, and no cancellation of its own
making. Only being cancelled oneself does, and then the work was ended first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Literal

from msgspec import Struct


class Ending(Struct, frozen=True):
    """How the work ended: with a value, with an error, or `stopped` at its deadline."""

    kind: Literal["done", "raised", "stopped"]
    value: Any = None
    error: BaseException | None = None
    is_late: bool = False
    """Whether it gave its value only after it had been told to stop."""


async def bounded(work: Coroutine[Any, Any, Any], timeout: float | None, grace: float) -> Ending:
    """Do the work, for at most `timeout` seconds and then `grace` more to clean up."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[Ending] = loop.create_future()
    task = loop.create_task(_guarded(work, ended))
    timers: list[asyncio.TimerHandle] = []

    def stop() -> None:
        task.cancel()
        timers.append(loop.call_later(grace, _close, task))

    if timeout is not None:
        timers.append(loop.call_later(timeout, stop))
    try:
        ending = await ended
    except asyncio.CancelledError:
        task.cancel()
        await asyncio.wait((task,), timeout=grace)
        _close(task)
        raise
    finally:
        for timer in timers:
            timer.cancel()
    if len(timers) < 2:
        return ending
    # The second timer is there because the first has fired: what was raised then was the answer to being stopped.
    return Ending("stopped") if ending.kind == "raised" else Ending("done", ending.value, is_late=True)


async def _guarded(work: Coroutine[Any, Any, Any], ended: asyncio.Future[Ending]) -> None:
    try:
        ending = Ending("done", await work)
    except BaseException as error:  # sys.exit in a tool ends the call, not the process
        ending = Ending("raised", error=error)
    if not ended.done():
        ended.set_result(ending)


def _close(task: asyncio.Task[None]) -> None:
    """End work that did not stop when it was told to."""
    coroutine = task.get_coro()
    if task.done() or coroutine is None:
        return
    coroutine.close()
    # Woken, the task finds that there is nothing left to do, which is an error to it and none to us.
    task.add_done_callback(lambda task: task.cancelled() or task.exception())
    task.cancel()
