"""What has to be closed: base classes for `with` and `async with`; and `run_sync`, for code that does not await.

Inside a running event loop (a notebook, an application) `run_sync` runs the coroutine in a thread with a loop of its own.
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
    """What the coroutine returns. Ctrl-C cancels it, waits until it has closed what it opened, and is raised."""
    if not _is_loop_running():  # asked outside of an `except`, so that no traceback begins with the answer
        return asyncio.run(coroutine)
    context = contextvars.copy_context()
    with ThreadPoolExecutor(1, "antiphon-blocking") as thread:
        return thread.submit(context.run, asyncio.run, coroutine).result()


def _is_loop_running() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class Closable(ABC):
    """Closed by `close`, or at the end of a `with` block."""

    @abstractmethod
    def close(self) -> None:
        """Close it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncClosable(ABC):
    """Closed by `aclose`, or at the end of an `async with` block."""

    @abstractmethod
    async def aclose(self) -> None:
        """Close it."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


class SyncClosable(AsyncClosable, Closable):
    """Closed by `aclose`, and from code that does not await by `close`."""

    def close(self) -> None:
        """`aclose` from code that does not await."""
        run_sync(self.aclose())
