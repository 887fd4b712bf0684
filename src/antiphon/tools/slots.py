"""`Slots`: so many at a time, in each event loop.

An asyncio semaphore belongs to the loop it first waited in, and a tool outlives loops (each `run_sync` makes one). So there is
a semaphore for each loop, forgotten with it.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from weakref import WeakKeyDictionary


class Slots:
    """`async with slots:` waits until fewer than `limit` others are inside."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._semaphores: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()

    def _semaphore(self) -> asyncio.Semaphore:
        loop = asyncio.get_running_loop()
        semaphore = self._semaphores.get(loop)
        if semaphore is None:
            semaphore = self._semaphores[loop] = asyncio.Semaphore(self.limit)
        return semaphore

    async def __aenter__(self) -> None:
        await self._semaphore().acquire()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._semaphore().release()
