"""`Errand`: an eager task: a coroutine that starts at once and resumes in the same loop turn in which its `Moment` happens.

An asyncio task starts in the next turn of the event loop and resumes one turn after its wakeup. A relay between two sockets would
pay two extra turns, each with a system call. An errand waits for anything other than a `Moment` as a task does. Code inside it
sees it as the current task: timeouts, task groups and cancel scopes cancel only the errand, and context variables stay in it.
(Python 3.12 has eager tasks; this works on all versions.)

One errand or task runs at a time: an errand that would start or resume while another runs does so in the next turn. A cancelled
errand resumes only with the cancellation; its moment then has no waiter.
"""

from __future__ import annotations

import asyncio
from asyncio.tasks import _enter_task, _leave_task
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, copy_context
from typing import Any

from msgspec import Struct, field


class Moment:
    """A wakeup that one coroutine waits for."""

    __slots__ = ("_loop", "_waiter")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiter: Errand | asyncio.Future[None] | None = None

    def happen(self) -> None:
        """Wake the waiter, if there is one."""
        waiter, self._waiter = self._waiter, None
        if isinstance(waiter, Errand):
            waiter.go_on()
        elif waiter is not None and not waiter.done():
            waiter.set_result(None)

    def forget(self) -> None:
        """Drop the waiter."""
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

    Keep a reference: nothing else does.
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
        """Run until it waits again or ends; an `error` is raised where it waits."""
        if not self.is_over:
            self._context.run(self._run, error)

    def ended(self) -> asyncio.Future[None]:
        """A future for its end; cancelling the future does not cancel the errand."""
        future: asyncio.Future[None] = self._loop.create_future()

        def set_ended(_: object = None) -> None:
            if not future.done():
                future.set_result(None)

        if self.is_over:
            set_ended()
        else:
            self._callbacks.append(set_ended)
        return future

    def cancel(self, msg: Any = None) -> bool:
        """Raise `CancelledError` where it waits, or will wait; False if it has ended."""
        if self.is_over:
            return False
        self._cancellations += 1
        self._must_cancel = True
        self._end_waiting(msg)
        return True

    def uncancel(self) -> int:
        """Take back one cancellation; returns how many are left."""
        self._cancellations = max(0, self._cancellations - 1)
        return self._cancellations

    def cancelling(self) -> int:
        """The number of cancellations that were not taken back."""
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
            self._report_error(raised)
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

    def _report_error(self, error: BaseException) -> None:
        """Report an uncaught error, because nothing awaits the errand. Its traceback is dropped afterwards: its frames may
        refer to the errand."""
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
            error = RuntimeError(f"{self.get_name()} awaits {awaited!r}, which does not belong to this event loop")
            self._loop.call_soon(self.go_on, None, error)
        if self._must_cancel:
            self._end_waiting()

    def _end_waiting(self, msg: Any = None) -> None:
        """Resume it with the cancellation, unless it will resume anyway."""
        waiter = self._fut_waiter
        if type(waiter) is Moment:
            waiter.forget()
            self._fut_waiter = None
            self._loop.call_soon(self.go_on)
        elif waiter is not None and waiter.cancel(msg):
            self._must_cancel = False
