"""Count what a piece of work does, without a clock: the same on a loaded machine as on an idle one.

`instructions` are the bytecode instructions run in our modules; `calls` are the calls of our functions and those our functions
make, of Python and C; `peak` is the most memory, in KB, that the work holds at once. What the standard library does inside (an
event loop, a regular expression) counts as one call.

The work runs twice before it is counted, so that imports and caches are not in the count. Interpreters of one minor version agree
to a few in a thousand; other versions have other instructions, so a budget belongs to a version.
"""

from __future__ import annotations

import gc
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from msgspec import Struct

import antiphon
import antiphon_gateway

_OURS = tuple(str(Path(package.__path__[0])) for package in (antiphon, antiphon_gateway))


class Counts(Struct, frozen=True, array_like=True):
    """What a piece of work did."""

    instructions: int
    calls: int
    peak: float


def counted(work: Callable[[], object]) -> Counts:
    """Run the work, several times, and count."""
    work()
    work()
    return Counts(instructions_of(work), calls_of(work), peak_of(work))


def instructions_of(work: Callable[[], object]) -> int:
    """How many instructions run in our own code."""
    monitoring = getattr(
        sys, "monitoring", None
    )  # since Python 3.12; the older way is still there, but skips code that ran before
    return _traced(work) if monitoring is None else _monitored(work, monitoring)


def _monitored(work: Callable[[], object], monitoring: Any) -> int:
    instruction, tool = monitoring.events.INSTRUCTION, monitoring.PROFILER_ID
    count = 0

    def ran(code: CodeType, _: int) -> Any:
        nonlocal count
        if not code.co_filename.startswith(_OURS):
            return monitoring.DISABLE
        count += 1
        return None

    monitoring.use_tool_id(tool, "bench")
    monitoring.register_callback(tool, instruction, ran)
    try:
        _undisturbed(work, lambda is_on: monitoring.set_events(tool, instruction if is_on else 0), True)
    finally:
        monitoring.register_callback(tool, instruction, None)
        monitoring.free_tool_id(tool)
        monitoring.restart_events()
    return count


def _traced(work: Callable[[], object]) -> int:
    """By `sys.settrace`, which is all that Python 3.11 has."""
    count = 0

    def inside(_: FrameType, event: str, __: Any) -> Any:
        nonlocal count
        if event == "opcode":
            count += 1
        return inside

    def entered(frame: FrameType, _: str, __: Any) -> Any:
        if not frame.f_code.co_filename.startswith(_OURS):
            return None
        frame.f_trace_lines = False
        frame.f_trace_opcodes = True
        return inside

    _undisturbed(work, sys.settrace, entered)
    return count


def calls_of(work: Callable[[], object]) -> int:
    """How many functions our own code is called as, and calls."""
    count = 0

    def happened(frame: FrameType, event: str, _: Any) -> None:
        nonlocal count
        if event == "c_call":
            count += frame.f_code.co_filename.startswith(_OURS)
        elif event == "call":
            caller = frame.f_back
            count += frame.f_code.co_filename.startswith(_OURS) or (
                caller is not None and caller.f_code.co_filename.startswith(_OURS)
            )

    _undisturbed(work, sys.setprofile, happened)
    return count


def peak_of(work: Callable[[], object]) -> float:
    """The most KB held at once beyond what was held before."""
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        work()
        return round((tracemalloc.get_traced_memory()[1] - before) / 1e3, 1)
    finally:
        tracemalloc.stop()
        gc.enable()


def _undisturbed(work: Callable[[], object], install: Callable[[Any], None], hook: Any) -> None:
    """Run the work with a hook installed, and no collection in the middle of it that would run finalizers."""
    gc.collect()
    gc.disable()
    install(hook)
    try:
        work()
    finally:
        install(None)
        gc.enable()
