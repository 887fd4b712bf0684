"""Wait for a condition, with a limit that no working machine reaches, and a free port."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import time
from collections.abc import Callable
from typing import Any

SECONDS = 60.0

_given: set[int] = set()
_chance = random.SystemRandom()  # the others are seeded: two processes would choose the same


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
    """A port of this machine that nothing listens on, below those that the system gives to connections: one of them may be taken
    before a server that a test starts again has it back."""
    while True:
        port = _chance.randrange(12_000, 32_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            if port not in _given:
                probe.bind(("127.0.0.1", port))
                _given.add(port)
                return port
