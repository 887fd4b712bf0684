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
from antiphon.runs.course import Course, note, note_claim, ordinal

CALL = ToolCallRequest("look", "call_1", "{}")
ASKED = ModelInputEntry.of("Go.")
CALLED = ModelOutputEntry((CALL,), "tool_calls")
CUT = ModelOutputEntry((Text("I wi"), CALL), "failed")
STARTED = ToolCallStartedEntry("look", "call_1", "key")
RESULT = ToolCallResult.of(CALL, "seen")
RESULTS = ToolCallResultsEntry((RESULT,))
UNANSWERED = DebugLogEntry("model call", "server: down", metadata=EntryMetadata(error="down"))
NOTHING_SAID = DebugLogEntry("model call", "interrupted: nothing was said")
CLAIMED = DebugLogEntry("run claimed", "claimed for the 2nd time, by a worker")
LEFT = DebugLogEntry("run", "left by a worker, for another worker to go on with")


@pytest.mark.parametrize(
    ("entries", "claims", "failures"),
    [
        ([ASKED], 0, 0),
        ([ASKED, CLAIMED], 1, 0),
        ([ASKED, CLAIMED, CLAIMED, CLAIMED], 3, 0),
        ([ASKED, CLAIMED, CALLED, CLAIMED], 1, 0),
        # A tool that kills whoever runs it: that it was started again is nothing new.
        ([ASKED, CALLED, STARTED, CLAIMED, STARTED, CLAIMED, STARTED], 2, 0),
        ([ASKED, CALLED, STARTED, CLAIMED, STARTED, RESULTS], 0, 0),
        ([ASKED, CALLED, STARTED, CLAIMED, STARTED, ToolCallFinishedEntry(RESULT)], 0, 0),
        ([ASKED, CALLED, CLAIMED, CLAIMED, HumanDecisionEntry("call_1", "approve")], 0, 0),
        ([ASKED, CLAIMED, CLAIMED, LEFT, CLAIMED], 1, 0),
        # Whoever wrote down that the model did not answer did not die of it.
        ([ASKED, UNANSWERED, CLAIMED, UNANSWERED, CLAIMED, UNANSWERED], 0, 3),
        ([ASKED, CLAIMED, NOTHING_SAID, CLAIMED], 2, 0),
        ([ASKED, UNANSWERED, CLAIMED, CALLED, STARTED, RESULTS], 0, 0),
        # An answer that was cut off, the results that close its calls, the rollback that takes it back: no step forward.
        ([ASKED, CUT, RESULTS, CLAIMED, RollbackEntry(1), CUT, RESULTS], 0, 2),
        ([ASKED, CUT, RESULTS, CLAIMED, RollbackEntry(1), CALLED, RESULTS], 0, 0),
        ([ASKED, UNANSWERED, UNANSWERED, LEFT], 0, 0),
    ],
)
def test_what_came_of_a_run(entries: list[HistoryEntry], claims: int, failures: int) -> None:
    course = Course.of(entries)
    assert (course.claims, course.failures) == (claims, failures)


def test_what_is_noted_is_counted() -> None:
    history = AgentHistory([])
    history.append(ASKED)
    note_claim(history, "a worker", 2)
    note_claim(history, "a worker", 3)
    assert Course.of(history.entries).claims == 2
    note(history, "left")
    assert Course.of(history.entries).claims == 0


def test_numbers_are_said_as_people_say_them() -> None:
    assert [ordinal(number) for number in (1, 2, 3, 4, 11, 12, 13, 21, 102, 111)] == [
        "1st",
        "2nd",
        "3rd",
        "4th",
        "11th",
        "12th",
        "13th",
        "21st",
        "102nd",
        "111th",
    ]
