"""What becomes of a run after its turn stopped: `RunOutcome`, from how the loop finished and from the log.

An unavailable provider is retried: after the time it asked for, else with exponential backoff. Delays are randomised, so that
runs that an outage stopped together do not come back together. Errors that a retry cannot change (a rejected key, an invalid
request) fail the run at once.

`RunProgress` counts from the log. Each claim after the first leaves a note; claims with nothing after them are workers that
died. A started tool does not count as progress, because it may be what kills them.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from random import uniform

from msgspec import Struct

from antiphon.conversation import RunResult
from antiphon.conversation.turn import FAILED
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
from antiphon.history.store import RunState
from antiphon.providers.retry import may_retry

_CLAIM_CATEGORY = "run claimed"
_NOTE_CATEGORY = "run"
_CALL_CATEGORY = "model call"


class RunOutcome(Struct, frozen=True):
    """The new state of a run, the reason, and the seconds until it is due again if it waits."""

    state: RunState
    reason: str
    delay: float = 0.0

    def due(self, clock_offset: timedelta = timedelta()) -> datetime | None:
        """When the run is due, by the clock of the store, which is ahead of ours by `clock_offset`."""
        return datetime.now(UTC) + clock_offset + timedelta(seconds=self.delay) if self.delay else None


class RunRetryPolicy(Struct, frozen=True, kw_only=True):
    """How often a run is retried.

    A run fails after `max_attempts` claims without progress or `max_failures` failed model calls in a row. The backoff between
    failed calls starts at `first_delay` seconds and doubles up to `longest_delay`.
    """

    max_attempts: int = 5
    max_failures: int = 50
    first_delay: float = 1.0
    longest_delay: float = 300.0

    def outcome(self, finished: RunResult, history: AgentHistory) -> RunOutcome:
        """The outcome of a run whose loop finished; `history` is its log."""
        if finished.reason == "approval":
            return RunOutcome("suspended", "pending approval")
        if finished.reason == "waiting":
            return RunOutcome("suspended", "waiting for a result from outside")
        if finished.reason != "failed":
            return RunOutcome("done", finished.reason)
        error = finished.error
        if error is None:
            return RunOutcome("failed", "the provider did not answer")
        reason = str(error)
        if not may_retry(error):
            return RunOutcome("failed", reason)
        failures = RunProgress.of(history.entries).failures
        if failures >= self.max_failures:
            return RunOutcome("failed", f"gave up after {failures} failed model calls; the last: {reason}")
        return RunOutcome("waiting", reason, self.delay(failures, error.retry_after))

    def delay(self, failures: int, retry_after: float | None = None) -> float:
        """The seconds until the next attempt."""
        bound = min(self.longest_delay, self.first_delay * 2.0 ** min(max(failures - 1, 0), 32))
        if retry_after is not None:
            return retry_after + uniform(0, bound)
        return uniform(bound / 2, bound)


class RunProgress(Struct):
    """`unproductive_claims` since the last progress, and `failures`: failed model calls in a row."""

    unproductive_claims: int = 0
    failures: int = 0
    is_cut_off: bool = False
    """Whether the last answer was cut off: the results that close its calls are not progress."""

    @classmethod
    def of(cls, entries: Iterable[HistoryEntry]) -> RunProgress:
        """The progress at the end of a log."""
        progress = cls()
        for entry in entries:
            progress._apply(entry)
        return progress

    def _apply(self, entry: HistoryEntry) -> None:
        match entry:
            case DebugLogEntry(category=category):
                if category == _CLAIM_CATEGORY:
                    self.unproductive_claims += 1
                elif category == _NOTE_CATEGORY:
                    self.unproductive_claims = self.failures = 0
                elif category == _CALL_CATEGORY and entry.metadata and entry.metadata.error:
                    self._fail()
            case ModelOutputEntry(stop_reason=reason) if reason == FAILED:
                self._fail()
                self.is_cut_off = True
            case ToolCallStartedEntry() | RollbackEntry() | LiveContextInjectedEntry() | ApprovalRequestedEntry():
                pass
            case ToolCallResultsEntry() if self.is_cut_off:
                pass
            case _:
                self.unproductive_claims = self.failures = 0
                self.is_cut_off = False

    def _fail(self) -> None:
        self.failures += 1
        self.unproductive_claims = 0


def record_claim(history: AgentHistory, holder: str, attempt: int) -> None:
    """Record that a run was claimed again."""
    history.append(DebugLogEntry(_CLAIM_CATEGORY, f"attempt {attempt}, claimed by {holder}"))


def record_note(history: AgentHistory, message: str) -> None:
    """Record a note. The progress of the run is counted from here."""
    history.append(DebugLogEntry(_NOTE_CATEGORY, message))
