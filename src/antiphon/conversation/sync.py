"""The synchronous API: runs a coroutine to its end from code that does not await.

Inside a running event loop (a notebook, an async framework) the coroutine gets a thread and a loop of its own; the caller waits
for it there as it would have here.
"""

from __future__ import annotations

import asyncio
import contextvars
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self, TypeVar

T = TypeVar("T")


def run_sync(coroutine: Coroutine[Any, Any, T]) -> T:
    """What the coroutine returns. Ctrl-C cancels it, lets it put its things in order, and is raised."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    context = contextvars.copy_context()
    with ThreadPoolExecutor(1, "antiphon-blocking") as thread:
        return thread.submit(context.run, asyncio.run, coroutine).result()


class Closable(ABC):
    """Something to close: with `async with` or `with`, with `aclose` or `close`."""

    @abstractmethod
    async def aclose(self) -> None:
        """Close it."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def close(self) -> None:
        """`aclose` from code that does not await."""
        run_sync(self.aclose())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
