"""`Work`: what a tool does, as a task of its own that begins at once (an `Errand`).

What is done with its first step has cost no more than a call. It never fails: how it came to its end, be it by `SystemExit` or by
being closed, is an `Ending`.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Literal

from msgspec import Struct

from antiphon.providers.transport.errand import Errand, Moment

logger = logging.getLogger("antiphon.tools")


class Ending(Struct, frozen=True):
    """How the work ended: with a value, with an error, or `stopped` at its deadline."""

    kind: Literal["done", "raised", "stopped"]
    value: Any = None
    error: BaseException | None = None
    is_late: bool = False
    """Whether it gave its value only after it had been told to stop."""


class Work(Errand, eq=False, weakref=True):
    """A coroutine at work."""

    def begin(self) -> Ending | None:
        """Take the first step, within the task that calls this; how the work ended, if that was all of it."""
        loop = self._loop
        caller = asyncio.current_task(loop)
        if caller is not None:
            asyncio._leave_task(loop, caller)
        try:
            self.go_on()
        finally:
            if caller is not None:
                asyncio._enter_task(loop, caller)
        return self.ending if self.is_over else None

    @property
    def ending(self) -> Ending:
        """How it ended."""
        return Ending("done", self.value) if self.error is None else Ending("raised", error=self.error)

    def close(self) -> None:
        """End work that did not end when it was told to: it is never woken again."""
        if self.is_over:
            return
        waiter, self._fut_waiter = self._fut_waiter, None
        if type(waiter) is Moment:
            waiter.forget()
        elif waiter is not None:
            waiter.remove_done_callback(self.go_on)
            waiter.cancel()
        try:
            self._coroutine.close()
        except RuntimeError as error:  # it ignored even that
            logger.debug("%r: %s", self._coroutine, error)
        self.error = asyncio.CancelledError()
        self._end()

    def _tell_of(self, error: BaseException) -> None:
        """Nothing: the ending tells, and `sys.exit` in a tool ends the call, not the process."""
