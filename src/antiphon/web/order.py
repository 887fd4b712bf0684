"""`InOrder`: the events of a turn and the entries of its log, told in the order in which they happened.

A turn is played by a task of its own: when one of its events is heard, the log may be entries ahead. Told as found, an answer
would be in the log before its first word was heard. But events and entries come in a fixed grammar (see `conversation.events`):
the words of round n come before the output of round n, and that before the events of its calls, and those before the results.
So every entry has an event that is told right behind it: the usage of a round behind its output, the beginning of a call behind
the mark that it has begun, and so on. Where there is no such event (no usage was reported), the count of rounds says how many
outputs were told by then; and everything else is told at the latest when the model speaks again.
"""

from __future__ import annotations

from collections.abc import Callable

from antiphon.conversation.events import (
    AgentSwitched,
    CompactionNeeded,
    LoopEvent,
    LoopFinished,
    ModelSwitched,
    RoundStarted,
    TextDelta,
    ThinkingDelta,
    ToolCallFailed,
    ToolCallFinished,
    ToolCallStarted,
)
from antiphon.history import (
    AgentHistory,
    HistoryEntry,
    ModelOutputEntry,
    ToolCallFinishedEntry,
    ToolCallStartedEntry,
)

_SPEAKING = (RoundStarted, ModelSwitched, TextDelta, ThinkingDelta, CompactionNeeded, AgentSwitched)
"""The events that come before the output of their round."""


class InOrder:
    """Tells the entries of `history` and the events it is given. `told` is the version up to which entries were told."""

    def __init__(
        self,
        history: AgentHistory,
        tell_entry: Callable[[HistoryEntry], None],
        tell_event: Callable[[LoopEvent], None],
    ) -> None:
        self.told = 0
        self._history = history
        self._tell_entry = tell_entry
        self._tell_event = tell_event
        self._rounds = self._outputs = 0

    def begin(self) -> None:
        """Another stream of events begins."""
        self.rest()
        self._rounds = self._outputs = 0

    def event(self, event: LoopEvent) -> None:
        """Tell an event, and before it what happened before it."""
        if isinstance(event, LoopFinished):
            self.rest()
        else:
            self._rounds += isinstance(event, RoundStarted)
            self._before(event)
        self._tell_event(event)

    def rest(self) -> None:
        """Tell all entries that were not told yet."""
        for entry in self._history.entries.since(self.told):
            self._told(entry)

    def _before(self, event: LoopEvent) -> None:
        # The outputs that are told before this event: one for each round, but for that whose words are still coming.
        outputs = self._rounds - isinstance(event, _SPEAKING)
        news = self._history.entries.since(self.told)
        if isinstance(event, _SPEAKING):
            last = len(news)
        else:
            last = next((index for index, entry in enumerate(news, 1) if _is_told_by(entry, event)), 0)
        for index, entry in enumerate(news):
            if self._outputs >= outputs and (index >= last or isinstance(entry, ModelOutputEntry)):
                return
            self._told(entry)

    def _told(self, entry: HistoryEntry) -> None:
        self._outputs += isinstance(entry, ModelOutputEntry)
        self.told = entry.sequence_number
        self._tell_entry(entry)


def _is_told_by(entry: HistoryEntry, event: LoopEvent) -> bool:
    """Whether an event is the one that comes right behind an entry."""
    match event:
        case ToolCallStarted():
            return isinstance(entry, ToolCallStartedEntry) and entry.tool_call_id == event.call.tool_call_id
        case ToolCallFinished() | ToolCallFailed():
            return isinstance(entry, ToolCallFinishedEntry) and entry.result.tool_call_id == event.call.tool_call_id
        case _:
            return False
