"""`bounded`: wait for a piece of work, but for no longer than it may take, whatever it does.

At its deadline the work is cancelled; if it does not stop (it catches the cancellation and goes on), it is closed from outside
after a while of grace. A closed coroutine is never woken again, so that ends it, whatever it catches.

Nothing the work raises passes through: not `SystemExit`, which would end the event loop, and no cancellation of its own
making. Only being cancelled oneself does, and then the work was ended first.
"""

from __future__ import annotations

import asyncio

from antiphon.tools.work import Ending, Work


async def bounded(work: Work, timeout: float | None, grace: float) -> Ending:
    """How `work`, which has begun and waits for something, ends: after at most `timeout` seconds and `grace` more to clean up."""
    loop = work.get_loop()
    timers: list[asyncio.TimerHandle] = []

    def stop() -> None:
        work.cancel()
        timers.append(loop.call_later(grace, work.close))

    if timeout is not None:
        timers.append(loop.call_later(timeout, stop))
    try:
        await work.ended()
    except asyncio.CancelledError:
        work.cancel()
        try:
            await asyncio.wait((work.ended(),), timeout=grace)
        finally:
            work.close()
        raise
    finally:
        for timer in timers:
            timer.cancel()
    ending = work.ending
    if len(timers) < 2:
        return ending
    # The second timer is there because the first has fired: what was raised then was the answer to being stopped.
    return Ending("stopped") if ending.kind == "raised" else Ending("done", ending.value, is_late=True)
