"""Wait for a condition, with a limit that no working machine reaches, and a free port."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable
from typing import Any

SECONDS = 60.0


def until(wanted: Callable[..., Any], what: str = "") -> Any:
    """What `wanted` returns as soon as that is true."""
    deadline = time.monotonic() + SECONDS
    while not (found := wanted()):
        assert time.monotonic() < deadline, f"not within {SECONDS:g} s: {what or 'the condition'}"
        time.sleep(0.02)
    return found


async def until_async(wanted: Callable[[], Any], what: str = "") -> Any:
    """The same in an event loop."""
    deadline = time.monotonic() + SECONDS
    while not (found := wanted()):
        assert time.monotonic() < deadline, f"not within {SECONDS:g} s: {what or 'the condition'}"
        await asyncio.sleep(0.005)
    return found


def free_port() -> int:
    """A port of this machine that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
