"""`LazyTimer`: one timer for a deadline that moves later all the time.

Setting a timer for each byte that arrives is expensive. Here the owner only keeps its deadline; when the timer fires it asks for
the deadline again and waits on if it has moved. `start` is needed when a deadline appears or becomes earlier.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf


class LazyTimer:
    """Calls `on_due` when `deadline()`, in the loop's time, has passed. A deadline of infinity stops it until `start`.

    It refers to its owner by the two callbacks: an owner that ends should cancel it and drop it.
    """

    __slots__ = ("_deadline", "_handle", "_loop", "_on_due", "due")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, deadline: Callable[[], float], on_due: Callable[[], None]
    ) -> None:
        self.due = inf
        """When it looks at the deadline; infinity if it does not run. `start` is needed only for an earlier deadline."""
        self._loop = loop
        self._deadline = deadline
        self._on_due = on_due
        self._handle: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Wait for the deadline, which may have become earlier."""
        due = self._deadline()
        if due < self.due:
            if self._handle is not None:
                self._handle.cancel()
            self._wait_until(due)

    def cancel(self) -> None:
        """Stop."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle, self.due = None, inf

    def _wait_until(self, due: float) -> None:
        self.due = due
        self._handle = self._loop.call_at(due, self._check)

    def _check(self) -> None:
        self._handle, self.due = None, inf
        due = self._deadline()
        if due == inf:
            return
        if due > self._loop.time():
            self._wait_until(due)
        else:
            self._on_due()
