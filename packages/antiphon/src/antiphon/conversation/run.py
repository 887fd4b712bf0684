"""`RunTotals`: what a run has used, folded from the log; and `RunMeter`, which compares that with the limits (law L8).

A run is everything since the last message of a person: the turns of all agents, requests for a typed answer again, side calls
such as a summary, agents that work as tools, in whatever process. What was rolled back counts too, for it was paid for.

Seconds are those in which a model or a tool was busy, as the entries record them: parallel calls count once, waiting for a
person or for a worker not at all. A crash loses the calls that were in flight, and no more.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextvars import ContextVar
from time import monotonic
from typing import Self, TypeVar

from antiphon.conversation.events import EndReason
from antiphon.conversation.turn import Bounds, Turn, find_run_start, is_from_person
from antiphon.history import AgentHistorySnapshot, DebugLogEntry, HistoryEntry, ModelOutputEntry
from antiphon.parts import TokenUsage, ToolCallRequest

TOOL_CALLS = "tool_calls"
"""Where the note about an agent that worked as a tool has how many calls it made."""


class RunTotals:
    """What a run has used so far. `start` is the sequence number of the message that began it; 0 if there was none."""

    __slots__ = ("_busy", "_intervals", "_seconds", "calls", "rounds", "start", "usage")

    def __init__(self, start: int = 0) -> None:
        self.start = start
        self.rounds = 0
        self.calls = 0
        self.usage = TokenUsage()
        self._seconds = 0.0
        self._busy: list[HistoryEntry] = []  # of calls that are not yet in the seconds
        self._intervals: list[tuple[float, float]] = []  # apart from each other, the latest last

    @classmethod
    def of(cls, snapshot: AgentHistorySnapshot) -> RunTotals:
        """The totals of the last run that is effective."""
        effective = snapshot.effective
        index = find_run_start(effective)
        totals = cls(run_start(snapshot))
        for entry in effective.since(index):
            totals.apply(entry)
        return totals

    def apply(self, entry: HistoryEntry) -> None:
        """Count an entry of the run."""
        if type(entry) is ModelOutputEntry:
            self.rounds += 1
            for part in entry.content:
                if type(part) is ToolCallRequest:
                    self.calls += 1
        metadata = entry.metadata
        if metadata is None:
            return
        if metadata.usage is not None:
            self.usage += metadata.usage
        if metadata.duration:
            self._busy.append(entry)
        if metadata.extra is not None and type(entry) is DebugLogEntry:
            self.calls += metadata.extra.get(TOOL_CALLS, 0)

    @property
    def seconds(self) -> float:
        """How long models and tools were busy; what overlaps counts once."""
        intervals = self._intervals
        for entry in self._busy:
            if entry.timestamp is None or entry.metadata is None or entry.metadata.duration is None:
                continue
            end = entry.timestamp.timestamp()
            start = end - entry.metadata.duration
            while intervals and intervals[-1][1] >= start and intervals[-1][0] <= end:
                before_start, before_end = intervals.pop()
                self._seconds -= before_end - before_start
                start, end = min(start, before_start), max(end, before_end)
            self._seconds += end - start
            intervals.append((start, end))
        self._busy.clear()
        return self._seconds


def run_start(snapshot: AgentHistorySnapshot) -> int:
    """The sequence number of the message that began the last effective run; 0 if there was none."""
    effective = snapshot.effective
    index = find_run_start(effective)
    return effective[index].sequence_number if index < len(effective) and is_from_person(effective[index]) else 0


class RunMeter:
    """Compares what a run uses with its limits. `caller` is the meter of the run in which an agent works as a tool.

    Such an agent has its own limits and what is left of its caller's. While it works, what it uses is not yet in its caller's
    log: `children` are the meters of those agents.
    """

    def __init__(self, bounds: Bounds, totals: Callable[[], RunTotals], caller: RunMeter | None = None) -> None:
        self.bounds = bounds
        self.children: set[RunMeter] = set()
        self.seconds = bounds.seconds
        """The time budget: the shortest that applies, or None."""
        self.limits_calls = bounds.calls is not None
        if caller is not None:
            self.seconds = _least(self.seconds, caller.seconds)
            self.limits_calls = self.limits_calls or caller.limits_calls
        self._has_budget = caller is not None or (bounds.tokens, bounds.calls, bounds.seconds) != (None, None, None)
        self._totals = totals
        self._caller = caller
        self._started = math.inf

    def __enter__(self) -> Self:
        """From now on, count for the caller's run."""
        if self._caller is not None:
            self._caller.children.add(self)
        return self

    def __exit__(self, *_: object) -> None:
        """The caller's log has what was used."""
        if self._caller is not None:
            self._caller.children.discard(self)

    def start(self) -> None:
        """Start the clock, at what the log has of the run."""
        if self._started == math.inf:
            self._started = monotonic() - (self._totals().seconds if self.bounds.seconds is not None else 0.0)

    @property
    def tokens(self) -> int:
        """The tokens of the run so far."""
        return self._totals().usage.total + sum(child.tokens for child in self.children)

    @property
    def calls(self) -> int:
        """The tool calls of the run so far."""
        return self._totals().calls + sum(child.calls for child in self.children)

    @property
    def seconds_left(self) -> float | None:
        """What is left of the time budget; None if there is none."""
        own = self.bounds.seconds
        left = None if own is None else self._started + own - monotonic()
        return left if self._caller is None else _least(left, self._caller.seconds_left)

    @property
    def calls_left(self) -> int | None:
        """What is left of the budget of calls, below 0 if too many were made; None if there is no budget."""
        own = self.bounds.calls
        left = None if own is None else own - self.calls
        return left if self._caller is None else _least(left, self._caller.calls_left)

    def exceeded(self, turn: Turn) -> tuple[EndReason, str] | None:
        """The limit that is reached, if any, and the text about it that the model sees."""
        reason = self.bounds.exceeded(turn)
        if reason is not None:
            return reason, self.bounds.notice(reason, turn)
        return self._exceeded_budget(turn) if self._has_budget else None

    def _exceeded_budget(self, turn: Turn) -> tuple[EndReason, str] | None:
        bounds = self.bounds
        reason: EndReason | None = None
        if bounds.tokens is not None and self.tokens >= bounds.tokens:
            reason = "token_budget"
        elif bounds.calls is not None and self.calls >= bounds.calls:
            reason = "call_budget"
        elif bounds.seconds is not None and monotonic() - self._started >= bounds.seconds:
            reason = "time_budget"
        if reason is not None:
            return reason, bounds.notice(reason, turn)
        return None if self._caller is None else self._caller._exceeded_budget(turn)


N = TypeVar("N", int, float)


def _least(one: N | None, other: N | None) -> N | None:
    """The smaller of two limits, where None means that there is none."""
    return other if one is None else one if other is None else min(one, other)


current_meter: ContextVar[RunMeter | None] = ContextVar("current_meter", default=None)
"""The meter of the run whose tools are running here."""
