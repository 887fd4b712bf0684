"""The synchronous API: runs a coroutine to its end from code that does not await.

Inside a running event loop (a notebook, an async framework) the coroutine gets a thread and a loop of its own; the caller waits
for it there as it would have here.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from antiphon.closing import AsyncClosable, Closable

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


class SyncClosable(AsyncClosable, Closable):
    """Closed by `aclose`, and from code that does not await by `close`."""

    def close(self) -> None:
        """`aclose` from code that does not await."""
        run_sync(self.aclose())
