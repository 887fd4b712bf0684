"""`Errand`: a coroutine that is run at once, and goes on in the very turn in which what it waits for happens.

A task of asyncio begins in the next turn of the event loop, and goes on in the one after that which brought what it waited for.
Who passes messages on from one socket to another pays for two turns too many, each with a call of the system. An errand begins
when it is told to and, where it waits for a `Moment`, goes on inside the call that says it has come. Whatever else may be waited
for is waited for as a task does.

To those who ask for the current task an errand is one, as far as `asyncio.timeout` and its like need it: it can be cancelled, and
that can be taken back. It has a context of its own.

Invariants. One errand or task runs at a time: an errand that would begin or go on while another runs does so in the next turn.
An errand that was cancelled goes on only to hear of it; the moment it waited for finds nobody.
"""

from __future__ import annotations

import asyncio
from asyncio.tasks import _enter_task, _leave_task
from collections.abc import Coroutine, Generator
from contextvars import copy_context
from typing import Any


class Moment:
    """What one coroutine waits for, until it happens."""

    __slots__ = ("_loop", "_waiter")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiter: Errand | asyncio.Future[None] | None = None

    def happen(self) -> None:
        """It is now; unless it was before, or nobody waits any more."""
        waiter, self._waiter = self._waiter, None
        if isinstance(waiter, Errand):
            waiter.go_on()
        elif waiter is not None and not waiter.done():
            waiter.set_result(None)

    def forget(self) -> None:
        """Nobody waits any more."""
        self._waiter = None

    def __await__(self) -> Generator[Any, None, None]:
        task: object = asyncio.current_task(self._loop)
        if isinstance(task, Errand):
            self._waiter = task
            yield self
        else:
            self._waiter = waiter = self._loop.create_future()
            yield from waiter


class Errand:
    """One run of a coroutine, from the first `go_on` to its end. Keep hold of it: nobody else does."""

    __slots__ = (
        "__weakref__",
        "_cancels",
        "_context",
        "_coroutine",
        "_ended",
        "_is_to_end",
        "_loop",
        "_waits_for",
        "is_over",
    )

    def __init__(self, coroutine: Coroutine[Any, Any, None], loop: asyncio.AbstractEventLoop) -> None:
        self.is_over = False
        self._coroutine = coroutine
        self._loop = loop
        self._context = copy_context()
        self._waits_for: asyncio.Future[Any] | Moment | None = None
        self._cancels = 0
        self._is_to_end = False
        self._ended: asyncio.Future[None] | None = None

    def go_on(self, _: object = None) -> None:
        """Run until it waits again, or ends."""
        self._context.run(self._run)

    async def ended(self) -> None:
        """Wait until it has ended. For one that waits."""
        if not self.is_over:
            self._ended = self._loop.create_future()
            await self._ended

    def cancel(self, msg: object = None) -> bool:
        """Let it hear a `CancelledError` where it waits; False if it has ended."""
        del msg
        if self.is_over:
            return False
        self._cancels += 1
        self._is_to_end = True
        self._end_waiting()
        return True

    def cancelling(self) -> int:
        """How often it was cancelled, and not taken back."""
        return self._cancels

    def uncancel(self) -> int:
        """Take one back; how many are left."""
        self._cancels = max(0, self._cancels - 1)
        return self._cancels

    def _run(self) -> None:
        loop = self._loop
        try:
            _enter_task(loop, self)  # type: ignore[arg-type]
        except RuntimeError:  # another runs
            loop.call_soon(self.go_on)
            return
        self._waits_for = None
        try:
            if self._is_to_end:
                self._is_to_end = False
                waits_for = self._coroutine.throw(asyncio.CancelledError())
            else:
                waits_for = self._coroutine.send(None)
        except (StopIteration, asyncio.CancelledError):
            self._end()
        except BaseException as error:
            self._end()
            if not isinstance(error, Exception):
                raise
            loop.call_exception_handler({"message": "an errand failed", "exception": error})
        else:
            self._wait(waits_for)
        finally:
            _leave_task(loop, self)  # type: ignore[arg-type]

    def _end(self) -> None:
        self.is_over = True
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(None)

    def _wait(self, waits_for: asyncio.Future[Any] | Moment | None) -> None:
        self._waits_for = waits_for
        if waits_for is None:  # for nothing but the next turn
            self._loop.call_soon(self.go_on)
        elif type(waits_for) is not Moment:
            waits_for._asyncio_future_blocking = False  # type: ignore[union-attr]
            waits_for.add_done_callback(self.go_on)  # type: ignore[union-attr]
        if self._is_to_end:
            self._end_waiting()

    def _end_waiting(self) -> None:
        """Let it go on to hear that it is cancelled. Where it does so anyway, there is nothing to be done."""
        waits_for = self._waits_for
        if isinstance(waits_for, Moment):
            waits_for.forget()
            self._waits_for = None
            self._loop.call_soon(self.go_on)
        elif waits_for is not None and waits_for.cancel():
            self._is_to_end = False
