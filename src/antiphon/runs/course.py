"""`Course`: how a run has fared so far, read off its log.

A run that was claimed before is claimed again with a note in the log. Notes with nothing behind them are workers that died of
it: a log that ends with several is a run nobody should try again. That a tool was started is nothing new in this sense, for that
may be what kills them. Calls of the model that came to nothing are counted likewise, and say how long to wait before the next.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from antiphon.conversation.model_call import FAILED
from antiphon.history import (
    AgentHistory,
    ApprovalRequestedEntry,
    DebugLogEntry,
    HistoryEntry,
    LiveContextInjectedEntry,
    ModelOutputEntry,
    RollbackEntry,
    ToolCallResultsEntry,
    ToolCallStartedEntry,
)

_CLAIMED = "run claimed"
_NOTED = "run"
_CALL = "model call"


class Course(Struct):
    """`claims`: how often it was claimed since anything came of it; `failures`: how often in a row the model did not answer."""

    claims: int = 0
    failures: int = 0
    is_cut: bool = False
    """Whether the last answer was cut off: the results that close its calls are no step forward."""

    @classmethod
    def of(cls, entries: Iterable[HistoryEntry]) -> Course:
        """The course of a run up to the end of its log."""
        course = cls()
        for entry in entries:
            course._pass(entry)
        return course

    def _pass(self, entry: HistoryEntry) -> None:
        match entry:
            case DebugLogEntry(category=category):
                if category == _CLAIMED:
                    self.claims += 1
                elif category == _NOTED:
                    self.claims = self.failures = 0
                elif category == _CALL and entry.metadata and entry.metadata.error:
                    self._fail()
            case ModelOutputEntry(stop_reason=reason) if reason == FAILED:
                self._fail()
                self.is_cut = True
            case ToolCallStartedEntry() | RollbackEntry() | LiveContextInjectedEntry() | ApprovalRequestedEntry():
                pass
            case ToolCallResultsEntry() if self.is_cut:
                pass
            case _:
                self.claims = self.failures = 0
                self.is_cut = False

    def _fail(self) -> None:
        self.failures += 1
        self.claims = 0


def note_claim(history: AgentHistory, holder: str, attempt: int) -> None:
    """Write down that a run is taken up once more."""
    history.append(DebugLogEntry(_CLAIMED, f"claimed for the {ordinal(attempt)} time, by {holder}"))


def note(history: AgentHistory, message: str) -> None:
    """Write down why a run stands where it does, from where its course is counted anew."""
    history.append(DebugLogEntry(_NOTED, message))


def ordinal(number: int) -> str:
    """1st, 2nd, 3rd, 4th, …"""
    ending = "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"
