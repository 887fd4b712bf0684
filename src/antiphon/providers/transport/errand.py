"""`Errand`: a coroutine that is run at once, and goes on in the very turn in which what it waits for happens.

A task of asyncio begins in the next turn of the event loop, and goes on in the one after that which brought what it waited for.
Who passes messages on from one socket to another pays for two turns too many, each with a call of the system. An errand begins
when it is told to and, where it waits for a `Moment`, goes on inside the call that says it has come. Whatever else may be waited
for is waited for as a task does.

To whatever runs in it, it is the current task, under the names that libraries know: timeouts, task groups and cancel scopes in
it cancel this and nothing around it, and context variables that are set in it stay in it. (From Python 3.12 on asyncio has eager
tasks too; this is for all versions, made with what asyncio offers to tasks that are not its own.)

Invariants. One errand or task runs at a time: an errand that would begin or go on while another runs does so in the next turn.
An errand that was cancelled goes on only to hear of it; the moment it waited for finds nobody.
"""

from __future__ import annotations

import asyncio
from asyncio.tasks import _enter_task, _leave_task
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, copy_context
from typing import Any

from msgspec import Struct, field


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


class Errand(Struct, eq=False, weakref=True):
    """One run of a coroutine, from the first `go_on` to its end, with a `value` or an `error`.

    Keep hold of it: nobody else does.
    """

    _coroutine: Coroutine[Any, Any, Any]
    _loop: asyncio.AbstractEventLoop
    _context: Context = field(default_factory=copy_context)
    _fut_waiter: Any = None  # a future or a moment
    _must_cancel: bool = False
    _cancellations: int = 0
    _callbacks: list[Callable[[Any], object]] = []
    is_over: bool = False
    value: Any = None
    error: BaseException | None = None

    def go_on(self, _: object = None, error: BaseException | None = None) -> None:
        """Run until it waits again, or ends; it hears of an `error` where it waits."""
        if not self.is_over:
            self._context.run(self._run, error)

    def ended(self) -> asyncio.Future[None]:
        """Its end, to wait for; whoever stops waiting does not stop it."""
        future: asyncio.Future[None] = self._loop.create_future()

        def tell(_: object = None) -> None:
            if not future.done():
                future.set_result(None)

        if self.is_over:
            tell()
        else:
            self._callbacks.append(tell)
        return future

    def cancel(self, msg: Any = None) -> bool:
        """Let it hear a `CancelledError` where it waits, or will; False if it has ended."""
        if self.is_over:
            return False
        self._cancellations += 1
        self._must_cancel = True
        self._end_waiting(msg)
        return True

    def uncancel(self) -> int:
        """Take one back; how many are left."""
        self._cancellations = max(0, self._cancellations - 1)
        return self._cancellations

    def cancelling(self) -> int:
        """How often it was cancelled, and not taken back."""
        return self._cancellations

    def cancelled(self) -> bool:
        return isinstance(self.error, asyncio.CancelledError)

    def done(self) -> bool:
        return self.is_over

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._loop

    def get_coro(self) -> Coroutine[Any, Any, Any]:
        return self._coroutine

    def get_context(self) -> Context:
        return self._context

    def get_name(self) -> str:
        return getattr(self._coroutine, "__qualname__", "errand")

    def add_done_callback(self, callback: Callable[[Any], object], *, context: Context | None = None) -> None:
        if self.is_over:
            self._loop.call_soon(callback, self, context=context)
        else:
            self._callbacks.append(callback)

    def remove_done_callback(self, callback: Callable[[Any], object]) -> int:
        before = len(self._callbacks)
        self._callbacks = [other for other in self._callbacks if other != callback]
        return before - len(self._callbacks)

    def _run(self, error: BaseException | None) -> None:
        loop = self._loop
        this: Any = self  # a task in all but its class
        try:
            _enter_task(loop, this)
        except RuntimeError:  # another runs
            loop.call_soon(self.go_on, None, error)
            return
        if self._must_cancel:
            self._must_cancel, error = False, asyncio.CancelledError()
        self._fut_waiter = None
        try:
            awaited = self._coroutine.send(None) if error is None else self._coroutine.throw(error)
        except StopIteration as returned:
            self.value = returned.value
            self._end()
        except BaseException as raised:
            self.error = raised
            self._end()
            self._tell_of(raised)
            # This frame, the first of the traceback, refers to the errand, and the errand to the error: without it
            # there is no cycle, and what the coroutine's frames hold is freed with the errand.
            raised.__traceback__ = raised.__traceback__ and raised.__traceback__.tb_next
        else:
            self._wait_for(awaited)
        finally:
            _leave_task(loop, this)

    def _end(self) -> None:
        self.is_over = True
        for callback in self._callbacks:
            self._loop.call_soon(callback, self)
        self._callbacks = []

    def _tell_of(self, error: BaseException) -> None:
        """Report an error that was not caught: nobody waits for the errand. Nobody needs its traceback afterwards, and the
        frames in it may refer to the errand."""
        if isinstance(error, Exception):
            self._loop.call_exception_handler({"message": f"{self.get_name()} failed", "exception": error})
        elif not isinstance(error, asyncio.CancelledError):
            raise error
        error.__traceback__ = error.__context__ = error.__cause__ = None

    def _wait_for(self, awaited: Any) -> None:
        if type(awaited) is Moment:
            self._fut_waiter = awaited
        elif getattr(awaited, "_asyncio_future_blocking", None) and awaited.get_loop() is self._loop:
            awaited._asyncio_future_blocking = False
            awaited.add_done_callback(self.go_on)
            self._fut_waiter = awaited
        elif awaited is None:  # for nothing but the next turn
            self._loop.call_soon(self.go_on)
        else:
            error = RuntimeError(
                f"{self.get_name()} waits for {awaited!r}, which cannot be waited for in this event loop"
            )
            self._loop.call_soon(self.go_on, None, error)
        if self._must_cancel:
            self._end_waiting()

    def _end_waiting(self, msg: Any = None) -> None:
        """Let it go on to hear that it is cancelled. Where it does so anyway, there is nothing to be done."""
        waiter = self._fut_waiter
        if type(waiter) is Moment:
            waiter.forget()
            self._fut_waiter = None
            self._loop.call_soon(self.go_on)
        elif waiter is not None and waiter.cancel(msg):
            self._must_cancel = False
