"""Which part of a long history fits: whole units, the newest, and always the question that is being answered.

A unit is what cannot be cut: a model's output with calls, and everything up to the last of their results; any other entry by
itself. When the units outgrow the limit, the oldest go, all at once until `shrink_to` of the limit is left. So the window
moves in steps and stands still between them, and what stands still is found in the provider's prompt cache again. Where it
stands follows from the history alone: the same history always gives the same window.

The latest input and the last unit are never left out, even if they alone are too much.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import pairwise

from msgspec import Struct

from antiphon.history import ContextEntry, ModelInputEntry
from antiphon.parts import ToolCallResult


class Unit(Struct, frozen=True):
    """Entries `start` up to `stop` (indexes, `stop` excluded) that stay together."""

    start: int
    stop: int


def units_of(entries: Sequence[ContextEntry]) -> list[Unit]:
    """The entries in units, in one pass: a result pulls everything back to its call into one unit."""
    starts: list[int] = []
    open_calls: dict[str, int] = {}
    for index, entry in enumerate(entries):
        starts.append(index)
        for call in entry.tool_calls:
            open_calls[call.tool_call_id] = index
        for part in entry.content:
            if isinstance(part, ToolCallResult) and part.tool_call_id in open_calls:
                while starts[-1] > open_calls[part.tool_call_id]:
                    starts.pop()
    return [Unit(start, stop) for start, stop in pairwise([*starts, len(entries)])]


def window(
    entries: Sequence[ContextEntry],
    units: Sequence[Unit],
    weigh: Callable[[ContextEntry], int],
    *,
    limit: int,
    shrink_to: float,
) -> set[Unit]:
    """The units that are kept under `limit`, weighing entries with `weigh`."""
    kept: deque[tuple[Unit, int]] = deque()
    total = 0
    latest_input: Unit | None = None
    for unit in units:
        weight = sum(weigh(entry) for entry in entries[unit.start : unit.stop])
        kept.append((unit, weight))
        total += weight
        if any(isinstance(entry, ModelInputEntry) for entry in entries[unit.start : unit.stop]):
            latest_input = unit
        if total > limit:
            total = _shrink(kept, total, limit * shrink_to, latest_input)
    return {unit for unit, _ in kept}


def _shrink(kept: deque[tuple[Unit, int]], total: int, target: float, latest_input: Unit | None) -> int:
    spared: tuple[Unit, int] | None = None
    while total > target and len(kept) > 1:
        oldest, weight = kept.popleft()
        if oldest == latest_input:
            spared = (oldest, weight)
        else:
            total -= weight
    if spared:
        kept.appendleft(spared)
    return total
