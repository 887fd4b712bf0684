"""Processes that a test started and left running: they fail that test, by name, and are ended.

A process left running takes time from every test after it, and its warning appears in one that has nothing to do with it. Those
of fixtures that serve several tests (a database, a browser) are theirs to end.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

import pytest

_SECONDS_TO_END = 2.0
"""A process that was ended may take a moment, on a busy machine above all."""

shared: set[int] = set()
"""Those of fixtures that serve several tests, also when a test stopped and started them again."""

_before: dict[str, frozenset[int]] = {}


def child_processes() -> frozenset[int]:
    """The processes that this one started and that have not ended; none where the system does not tell."""
    found: set[int] = set()
    for children in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found.update(map(int, children.read_text().split()))
    return frozenset(found)


def begin(item: pytest.Item) -> None:
    _before[item.nodeid] = child_processes()


def check(item: pytest.Item) -> None:
    """Called when everything that the test used was closed."""
    left = _running(child_processes() - _before.pop(item.nodeid, frozenset()) - shared)
    end = time.monotonic() + _SECONDS_TO_END
    while left and time.monotonic() < end:
        time.sleep(0.02)
        left = _running(left)
    for number in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(number, signal.SIGKILL)
    if left:
        pytest.fail("left running: " + "; ".join(left.values()))


def _running(numbers: frozenset[int] | dict[int, str]) -> dict[int, str]:
    """Those that run, with their commands; one that ended and was not waited for takes nothing."""
    commands = {number: _command(number) for number in numbers}
    return {number: command for number, command in commands.items() if command}


def _command(number: int) -> str:
    try:
        return Path(f"/proc/{number}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""
