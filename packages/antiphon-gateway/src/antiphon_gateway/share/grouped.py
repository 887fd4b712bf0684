"""`GroupedExchange`: questions to what processes share, one exchange at a time; who asks meanwhile shares the next one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Generic, TypeVar

from antiphon.errors import SharedStoreUnavailable

T = TypeVar("T")
logger = logging.getLogger("antiphon.gateway")

_MAX_BATCH = 256


class GroupedExchange(Generic[T]):
    """`exchange` is called with what is asked about. It raises `SharedStoreUnavailable`."""

    def __init__(self, exchange: Callable[[list[T]], Awaitable[None]]) -> None:
        self._exchange = exchange
        self._turn = asyncio.Lock()  # two exchanges at once would report the same usage twice
        self._waiting: dict[T, None] = {}
        self._answer: asyncio.Future[bool] | None = None
        self._task: asyncio.Task[None] | None = None

    async def ask(self, asked: Iterable[T]) -> bool:
        """Wait for an exchange about these; whether it was answered."""
        self._waiting.update(dict.fromkeys(asked))
        if self._answer is None:
            self._answer = asyncio.get_running_loop().create_future()
        answer = self._answer
        if self._task is None:
            # A task of its own: a client that disconnects must not cancel an exchange that others wait for.
            self._task = asyncio.create_task(self._run())
        return await asyncio.shield(answer)

    async def report(self, asked: Iterable[T]) -> None:
        """Exchange these now. Raises `SharedStoreUnavailable`."""
        every = list(asked)
        for start in range(0, len(every), _MAX_BATCH):
            async with self._turn:
                await self._exchange(every[start : start + _MAX_BATCH])

    async def aclose(self) -> None:
        """Wait for the exchange in progress."""
        if self._task is not None:
            await self._task

    async def _run(self) -> None:
        while self._answer is not None:
            waiting, answer = self._waiting, self._answer
            self._waiting, self._answer = {}, None
            is_answered = False
            try:
                await self.report(waiting)
                is_answered = True
            except SharedStoreUnavailable:
                pass  # those who wait continue without it
            except Exception:  # an error of ours must not block them
                logger.exception("an exchange with the shared state failed")
            answer.set_result(is_answered)
        self._task = None
