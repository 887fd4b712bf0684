"""`start_task`: an ordinary task that takes its first step at once where Python has eager tasks (3.12 and later)."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine
from typing import Any, TypeVar

_T = TypeVar("_T")

if sys.version_info >= (3, 12):

    def start_task(work: Coroutine[Any, Any, _T], loop: asyncio.AbstractEventLoop) -> asyncio.Task[_T]:
        """Run `work`. It may be done when this returns."""
        return asyncio.Task(work, loop=loop, eager_start=True)

else:

    def start_task(work: Coroutine[Any, Any, _T], loop: asyncio.AbstractEventLoop) -> asyncio.Task[_T]:
        """Run `work`, from the next turn of the event loop on."""
        return loop.create_task(work)
