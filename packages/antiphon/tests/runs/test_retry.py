"""How a run has fared, read off its log."""

from __future__ import annotations

import pytest

from antiphon.history import (
    AgentHistory,
    DebugLogEntry,
    EntryMetadata,
    HistoryEntry,
    HumanDecisionEntry,
    ModelInputEntry,
    ModelOutputEntry,
    RollbackEntry,
    ToolCallFinishedEntry,
    ToolCallResultsEntry,
    ToolCallStartedEntry,
)
from antiphon.parts import Text, ToolCallRequest, ToolCallResult
from antiphon.runs.retry import RunProgress, record_claim, record_note

CALL = ToolCallRequest("look", "call_1", "{}")
ASKED = ModelInputEntry.of("Go.")
CALLED = ModelOutputEntry((CALL,), "tool_calls")
CUT = ModelOutputEntry((Text("I wi"), CALL), "failed")
STARTED = ToolCallStartedEntry("look", "call_1", "key")
RESULT = ToolCallResult.of(CALL, "seen")
RESULTS = ToolCallResultsEntry((RESULT,))
UNANSWERED = DebugLogEntry("model call", "server: down", metadata=EntryMetadata(error="down"))
NO_ANSWER = DebugLogEntry("model call", "interrupted: nothing was said")
CLAIMED = DebugLogEntry("run claimed", "claimed for the 2nd time, by a worker")
LEFT = DebugLogEntry("run", "left by a worker, for another worker to go on with")


@pytest.mark.parametrize(
    ("entries", "claims", "failures"),
    [
        ([ASKED], 0, 0),
        ([ASKED, CLAIMED], 1, 0),
        ([ASKED, CLAIMED, CLAIMED, CLAIMED], 3, 0),
        ([ASKED, CLAIMED, CALLED, CLAIMED], 1, 0),
        # A tool that kills its worker: that it was started again is not progress.
        ([ASKED, CALLED, STARTED, CLAIMED, STARTED, CLAIMED, STARTED], 2, 0),
        ([ASKED, CALLED, STARTED, CLAIMED, STARTED, RESULTS], 0, 0),
        ([ASKED, CALLED, STARTED, CLAIMED, STARTED, ToolCallFinishedEntry(RESULT)], 0, 0),
        ([ASKED, CALLED, CLAIMED, CLAIMED, HumanDecisionEntry("call_1", "approve")], 0, 0),
        ([ASKED, CLAIMED, CLAIMED, LEFT, CLAIMED], 1, 0),
        # A worker that recorded a missing answer was not killed by it.
        ([ASKED, UNANSWERED, CLAIMED, UNANSWERED, CLAIMED, UNANSWERED], 0, 3),
        ([ASKED, CLAIMED, NO_ANSWER, CLAIMED], 2, 0),
        ([ASKED, UNANSWERED, CLAIMED, CALLED, STARTED, RESULTS], 0, 0),
        # An answer that was cut off, the results that close its calls, the rollback that takes it back: not progress.
        ([ASKED, CUT, RESULTS, CLAIMED, RollbackEntry(1), CUT, RESULTS], 0, 2),
        ([ASKED, CUT, RESULTS, CLAIMED, RollbackEntry(1), CALLED, RESULTS], 0, 0),
        ([ASKED, UNANSWERED, UNANSWERED, LEFT], 0, 0),
    ],
)
def test_run_progress_from_log(entries: list[HistoryEntry], claims: int, failures: int) -> None:
    progress = RunProgress.of(entries)
    assert (progress.unproductive_claims, progress.failures) == (claims, failures)


def test_claims_and_notes_are_counted() -> None:
    history = AgentHistory([])
    history.append(ASKED)
    record_claim(history, "a worker", 2)
    record_claim(history, "a worker", 3)
    assert RunProgress.of(history.entries).unproductive_claims == 2
    record_note(history, "left")
    assert RunProgress.of(history.entries).unproductive_claims == 0
