"""Which part of a long history fits the window.

History is cut only between groups: a model output with calls and everything up to the last of their results is one group, any
other entry is a group of its own. When the groups exceed the limit, the oldest are dropped until `shrink_to` of the limit is
left. So the window moves in steps and stays put between them, which keeps the provider's prompt cache valid, and its position
depends on the history alone. The latest input and the last group are never dropped.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import pairwise

from msgspec import Struct

from antiphon.history import ContextEntry, ModelInputEntry
from antiphon.parts import ToolCallResult


class MessageGroup(Struct, frozen=True):
    """Entries `start` up to `stop` (indexes, `stop` excluded) that stay together."""

    start: int
    stop: int


def group_messages(entries: Sequence[ContextEntry]) -> list[MessageGroup]:
    """Group entries in one pass: a result joins everything back to its call into one group."""
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
    return [MessageGroup(start, stop) for start, stop in pairwise([*starts, len(entries)])]


def fit_window(
    entries: Sequence[ContextEntry],
    groups: Sequence[MessageGroup],
    weigh: Callable[[ContextEntry], int],
    *,
    limit: int,
    shrink_to: float,
) -> set[MessageGroup]:
    """The groups that fit `limit`; `weigh` gives the weight of an entry."""
    kept: deque[tuple[MessageGroup, int]] = deque()
    total = 0
    latest_input: MessageGroup | None = None
    for group in groups:
        weight = sum(weigh(entry) for entry in entries[group.start : group.stop])
        kept.append((group, weight))
        total += weight
        if any(isinstance(entry, ModelInputEntry) for entry in entries[group.start : group.stop]):
            latest_input = group
        if total > limit:
            total = _shrink(kept, total, limit * shrink_to, latest_input)
    return {group for group, _ in kept}


def _shrink(kept: deque[tuple[MessageGroup, int]], total: int, target: float, latest_input: MessageGroup | None) -> int:
    kept_input: tuple[MessageGroup, int] | None = None
    while total > target and len(kept) > 1:
        oldest, weight = kept.popleft()
        if oldest == latest_input:
            kept_input = (oldest, weight)
        else:
            total -= weight
    if kept_input:
        kept.appendleft(kept_input)
    return total
