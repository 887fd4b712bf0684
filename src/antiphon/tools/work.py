"""`Work`: a coroutine as a task of its own that begins at once.

To whatever runs in it, it is the current task: timeouts, task groups and cancel scopes inside of a tool cancel this and nothing
around it, and context variables that are set in it stay in it. Unlike a task of asyncio it takes its first step where it is
begun, without the event loop, and what is done with that step has cost no more than a call. (From Python 3.12 on asyncio has
eager tasks too; this one is for all versions, made with what asyncio offers to tasks that are not its own.)

It never fails: how it came to its end, be it by `SystemExit` or by being closed, is an `Ending`.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Literal

from msgspec import Struct, field

logger = logging.getLogger("antiphon.tools")


class Ending(Struct, frozen=True):
    """How the work ended: with a value, with an error, or `stopped` at its deadline."""

    kind: Literal["done", "raised", "stopped"]
    value: Any = None
    error: BaseException | None = None
    is_late: bool = False
    """Whether it gave its value only after it had been told to stop."""


class Work(Struct, eq=False, weakref=True):
    """A coroutine at work. What libraries ask of the current task is here under the names they know."""

    _coroutine: Coroutine[Any, Any, Any]
    _loop: asyncio.AbstractEventLoop
    _context: contextvars.Context = field(default_factory=contextvars.copy_context)
    _ending: Ending | None = None
    _callbacks: list[Callable[[Any], object]] = []
    _cancellations: int = 0
    _must_cancel: bool = False
    _fut_waiter: asyncio.Future[Any] | None = None

    def begin(self) -> Ending | None:
        """Take the first step, within the task that calls this; how the work ended, if that was all of it."""
        loop = self._loop
        caller = asyncio.current_task(loop)
        if caller is not None:
            asyncio._leave_task(loop, caller)
        try:
            self._context.run(self._wake)
        finally:
            if caller is not None:
                asyncio._enter_task(loop, caller)
        return self._ending

    def ended(self) -> asyncio.Future[Ending]:
        """How the work ended, to wait for; whoever stops waiting does not stop the work."""
        future: asyncio.Future[Ending] = self._loop.create_future()

        def tell(_: object) -> None:
            if self._ending is not None and not future.done():
                future.set_result(self._ending)

        self.add_done_callback(tell)
        return future

    def close(self) -> None:
        """End work that did not end when it was told to: it is never woken again."""
        if self._ending is not None:
            return
        if self._fut_waiter is not None:
            self._fut_waiter.remove_done_callback(self._wake)
            self._fut_waiter.cancel()
        try:
            self._coroutine.close()
        except RuntimeError as error:  # it ignored even that
            logger.debug("%r: %s", self._coroutine, error)
        self._end(Ending("raised", error=asyncio.CancelledError()))

    def cancel(self, msg: Any = None) -> bool:
        """Have the work hear of a cancellation where it waits, or will."""
        if self._ending is not None:
            return False
        self._cancellations += 1
        self._must_cancel = self._fut_waiter is None or not self._fut_waiter.cancel(msg)
        return True

    def uncancel(self) -> int:
        self._cancellations = max(0, self._cancellations - 1)
        return self._cancellations

    def cancelling(self) -> int:
        return self._cancellations

    def done(self) -> bool:
        return self._ending is not None

    def cancelled(self) -> bool:
        return self._ending is not None and isinstance(self._ending.error, asyncio.CancelledError)

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._loop

    def get_coro(self) -> Coroutine[Any, Any, Any]:
        return self._coroutine

    def get_context(self) -> contextvars.Context:
        return self._context

    def get_name(self) -> str:
        return getattr(self._coroutine, "__qualname__", "work")

    def add_done_callback(
        self, callback: Callable[[Any], object], *, context: contextvars.Context | None = None
    ) -> None:
        if self._ending is not None:
            self._loop.call_soon(callback, self, context=context)
        else:
            self._callbacks.append(callback)

    def remove_done_callback(self, callback: Callable[[Any], object]) -> int:
        before = len(self._callbacks)
        self._callbacks = [other for other in self._callbacks if other != callback]
        return before - len(self._callbacks)

    def _wake(self, _: object = None, error: BaseException | None = None) -> None:
        """Go on up to the next thing to wait for."""
        if self._ending is not None:
            return
        if self._must_cancel:
            self._must_cancel, error = False, asyncio.CancelledError()
        self._fut_waiter = None
        loop = self._loop
        this: Any = self  # a task in all but its class
        asyncio._enter_task(loop, this)
        try:
            awaited = self._coroutine.send(None) if error is None else self._coroutine.throw(error)
        except StopIteration as returned:
            self._end(Ending("done", returned.value))
        except BaseException as raised:  # sys.exit in a tool ends the call, not the process
            self._end(Ending("raised", error=raised))
        else:
            self._wait_for(awaited)
        finally:
            asyncio._leave_task(loop, this)

    def _wait_for(self, awaited: Any) -> None:
        error: BaseException | None = None
        if getattr(awaited, "_asyncio_future_blocking", None):
            if awaited.get_loop() is self._loop:
                awaited._asyncio_future_blocking = False
                awaited.add_done_callback(self._wake, context=self._context)
                self._fut_waiter = awaited
                if self._must_cancel:
                    self._must_cancel = not awaited.cancel()
                return
            error = RuntimeError(f"{self.get_name()} waits for {awaited!r} of another event loop")
        elif awaited is not None:
            error = RuntimeError(f"{self.get_name()} waits for {awaited!r}, which is nothing to wait for")
        self._loop.call_soon(self._wake, None, error, context=self._context)

    def _end(self, ending: Ending) -> None:
        self._ending = ending
        for callback in self._callbacks:
            self._loop.call_soon(callback, self)
        self._callbacks = []
