"""Processes that a test started and left running: they fail that test, by name, and are ended.

A process left running takes time from every test after it, and its warning appears in one that has nothing to do with it. Those
of fixtures that serve several tests (a database, a browser) are theirs to end. A process that asyncio started belongs to an event
loop: what was not closed before the loop fails its test too, for Python would only warn when it collects it, in a later test.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from asyncio.base_subprocess import BaseSubprocessTransport
from collections.abc import Iterator
from functools import wraps
from pathlib import Path
from typing import Any
from weakref import WeakSet

import pytest

_SECONDS_TO_END = 2.0
"""A process that was ended may take a moment, on a busy machine above all."""

_THREADS = "/proc/self/task"

shared: set[int] = set()
"""Those of fixtures that serve several tests, also when a test stopped and started them again."""

_before: frozenset[int] = frozenset()
"""Those that ran when the test before had ended."""

_transports: WeakSet[BaseSubprocessTransport] = WeakSet()
_open_transport = BaseSubprocessTransport.__init__


@wraps(_open_transport)
def _note_transport(transport: BaseSubprocessTransport, *arguments: Any, **options: Any) -> None:
    _open_transport(transport, *arguments, **options)
    _transports.add(transport)


BaseSubprocessTransport.__init__ = _note_transport  # type: ignore[assignment]


def child_processes() -> frozenset[int]:
    """The processes that this one started and that have not ended; none where the system does not tell."""
    with contextlib.suppress(OSError):
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)  # fails at once where there are none
        return frozenset(_children_of_threads())
    return frozenset()


def _children_of_threads() -> Iterator[int]:
    for thread in os.listdir(_THREADS):
        with contextlib.suppress(OSError), open(f"{_THREADS}/{thread}/children", "rb", buffering=0) as children:
            yield from map(int, children.read().split())


def check() -> None:
    """Called when everything that the test used was closed."""
    global _before
    running = child_processes()
    left = _running(running - _before - shared)
    _before = running
    end = time.monotonic() + _SECONDS_TO_END
    while left and time.monotonic() < end:
        time.sleep(0.02)
        left = _running(left)
    for number in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(number, signal.SIGKILL)
    if left:
        pytest.fail("left running: " + "; ".join(left.values()))
    lost = [one for one in _transports if not one.is_closing() and one._loop.is_closed()]
    _transports.difference_update(lost)
    if lost:
        pytest.fail(f"not closed before their event loop: {lost}")


def _running(numbers: frozenset[int] | dict[int, str]) -> dict[int, str]:
    """Those that run, with their commands; one that ended and was not waited for takes nothing."""
    return {number: command for number in numbers if (command := _command(number)) is not None}


def _command(number: int) -> str | None:
    """What a process runs; None if it has ended. One that is just being started has no command yet."""
    with contextlib.suppress(OSError):
        process = Path(f"/proc/{number}")
        if (process / "stat").read_bytes().rpartition(b")")[2].split()[0] not in (b"Z", b"X"):
            return (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    return None
