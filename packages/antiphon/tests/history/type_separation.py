"""What a model must not see is no `ContextEntry`, and the type checker says so.

`make types` reads this file: strict mypy reports each line without the error that its comment names, and each error without one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antiphon.history import (
    AgentHistory,
    CompactionEntry,
    ContextEntry,
    DebugLogEntry,
    HumanDecisionEntry,
    LiveContextInjectedEntry,
    ModelInputEntry,
    ModelOutputEntry,
    RollbackEntry,
    SetMemoryNotebookEntry,
    SetSystemInstructionEntry,
    ToolCallFinishedEntry,
    ToolCallResultsEntry,
    ToolCallStartedEntry,
)
from antiphon.parts import Text, ToolCallResult


def send(context: list[ContextEntry]) -> None: ...


def show(entry: ContextEntry) -> None: ...


if TYPE_CHECKING:
    history = AgentHistory()
    asked = ModelInputEntry((Text("hi"),))
    show(asked)
    show(asked.with_live_screen("12:00"))
    show(ModelOutputEntry.of("hello"))
    show(ToolCallResultsEntry(()))
    history.append(asked)
    history.append(DebugLogEntry("a", "b"))

    show(DebugLogEntry("a", "b"))  # type: ignore[arg-type]
    show(SetSystemInstructionEntry("x"))  # type: ignore[arg-type]
    show(SetMemoryNotebookEntry("x"))  # type: ignore[arg-type]
    show(RollbackEntry(1))  # type: ignore[arg-type]
    show(CompactionEntry("s", 1))  # type: ignore[arg-type]
    show(ToolCallStartedEntry("t", "c"))  # type: ignore[arg-type]
    show(ToolCallFinishedEntry(ToolCallResult("t", "c")))  # type: ignore[arg-type]
    show(LiveContextInjectedEntry("s", 1))  # type: ignore[arg-type]
    show(HumanDecisionEntry("c", "approve"))  # type: ignore[arg-type]
    send(list(history.entries))  # type: ignore[arg-type]
    history.append(asked.with_live_screen("12:00"))  # type: ignore[type-var]
    asked.content = ()  # type: ignore[misc]
