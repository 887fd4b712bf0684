"""What tools did, by tool: calls, failures, time and cache hits, from the logs of a store.

Nothing is counted while tools run. The log of a conversation has a mark for each call that was started, and its result with how
long it took; `ToolMonitor` adds these up. Everything that happened counts, also what was rolled back: the tool ran. A fork
begins with a copy of another conversation's entries, which are counted there.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from msgspec import Struct

from antiphon.errors import StoreDamaged, UnknownConversation
from antiphon.history import (
    HistoryEntry,
    HistoryStore,
    ToolCallFinishedEntry,
    ToolCallResultsEntry,
    ToolCallStartedEntry,
)
from antiphon.history.store import ConversationInfo
from antiphon.parts import ToolCallResult, ToolExecutionStatus

logger = logging.getLogger("antiphon.tools")

_PAGE_SIZE = 500


class ToolStatistics(Struct, kw_only=True):
    """One tool in numbers."""

    tool: str
    calls: int = 0
    failed: int = 0
    skipped: int = 0
    """Calls that never ran: denied by a person, refused by a limit."""
    unfinished: int = 0
    """Calls that were started and have no result: they run now, or their process ended."""
    cached: int = 0
    """Calls that were answered with the result of an equal call."""
    conversations: int = 0
    seconds: float = 0.0
    """The time of all calls whose time is known."""
    timed: int = 0
    """How many calls that is: imported conversations do not have their times."""
    slowest: float | None = None
    last: datetime | None = None

    @property
    def mean_seconds(self) -> float | None:
        """How long a call takes, of those whose time is known."""
        return self.seconds / self.timed if self.timed else None

    @property
    def failure_rate(self) -> float:
        """The part of its calls that failed."""
        return self.failed / self.calls if self.calls else 0.0


class ToolMonitor:
    """Adds up the tool calls of conversations. With `since`, calls that ended before it do not count."""

    def __init__(self, since: datetime | None = None) -> None:
        self._since = since
        self._tools: dict[str, ToolStatistics] = {}

    @property
    def tools(self) -> list[ToolStatistics]:
        """The tools, the most called first."""
        return sorted(self._tools.values(), key=lambda one: (-one.calls, one.tool))

    def add(self, entries: Iterable[HistoryEntry]) -> None:
        """Add the entries of one conversation."""
        started: dict[str, ToolCallStartedEntry] = {}
        finished: dict[str, ToolCallFinishedEntry] = {}
        seen: set[str] = set()
        for entry in entries:
            if isinstance(entry, ToolCallStartedEntry):
                started[entry.tool_call_id] = entry
            elif isinstance(entry, ToolCallFinishedEntry):
                finished[entry.result.tool_call_id] = entry
            elif isinstance(entry, ToolCallResultsEntry):
                durations, cached = _durations(entry), entry.extra("cached") or ()
                for result in entry.results:
                    call_id = result.tool_call_id
                    started.pop(call_id, None)
                    finished.pop(call_id, None)
                    self._count(result, durations.get(call_id), call_id in cached, entry.timestamp, seen)
        for call_id, one in finished.items():  # the others of its round still run
            started.pop(call_id, None)
            duration = one.metadata.duration if one.metadata is not None else None
            self._count(one.result, duration, bool(one.extra("cached")), one.timestamp, seen)
        for mark in started.values():
            if (tool := self._tool(mark.tool_name, mark.timestamp, seen)) is not None:
                tool.unfinished += 1

    def _count(
        self, result: ToolCallResult, seconds: float | None, is_cached: bool, at: datetime | None, seen: set[str]
    ) -> None:
        tool = self._tool(result.tool_name, at, seen)
        if tool is None:
            return
        tool.failed += result.status is ToolExecutionStatus.FAILED
        tool.skipped += result.status is ToolExecutionStatus.SKIPPED
        tool.cached += is_cached
        if seconds is not None:
            tool.seconds += seconds
            tool.timed += 1
            tool.slowest = max(tool.slowest or 0.0, seconds)

    def _tool(self, name: str, at: datetime | None, seen: set[str]) -> ToolStatistics | None:
        """The tool, with one call more; None if the call was before the time that is counted."""
        if self._since is not None and (at is None or at < self._since):
            return None
        tool = self._tools.get(name)
        if tool is None:
            tool = self._tools[name] = ToolStatistics(tool=name)
        tool.calls += 1
        tool.conversations += name not in seen
        seen.add(name)
        if at is not None and (tool.last is None or at > tool.last):
            tool.last = at
        return tool


def tool_statistics(
    store: HistoryStore, conversation: str = "", *, since: datetime | None = None, tag: str | None = None
) -> list[ToolStatistics]:
    """The tools of a conversation, or of all in a store (with a `tag`: of those that have it), the most called first.

    With `since`, only calls that ended from then on.
    """
    monitor = ToolMonitor(since)
    if conversation:
        monitor.add(store.open(conversation).entries)
        return monitor.tools
    found = _all_conversations(store, tag)
    known = {info.id for info in found}
    for info in found:
        if since is None or info.updated >= since:
            copied = info.forked_at or 0 if info.parent in known else 0
            try:
                monitor.add(store.open(info.id).entries[copied:])
            except UnknownConversation:  # deleted meanwhile
                continue
            except StoreDamaged as error:
                logger.warning("the tool calls of conversation %s are not counted: %s", info.id, error)
    return monitor.tools


def _all_conversations(store: HistoryStore, tag: str | None) -> list[ConversationInfo]:
    found: list[ConversationInfo] = []
    while page := store.list(limit=_PAGE_SIZE, offset=len(found), tag=tag):
        found += page
    return found


def _durations(entry: ToolCallResultsEntry) -> dict[str, Any]:
    """How long the calls took, by their ids, as far as that is known."""
    if entry.metadata is None or entry.metadata.duration is None:
        return {}
    by_call: dict[str, Any] = entry.extra("durations") or {}
    if by_call or len(entry.results) != 1:
        return by_call
    return {entry.results[0].tool_call_id: entry.metadata.duration}
