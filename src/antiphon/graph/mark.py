"""`StepMark`: the note a step of a graph leaves in the log before it does anything.

It says which task began, from which checkpoint, on which thread, and which version of the log its state spoke of. What follows
it, up to the next mark, is the work of that task. So whoever comes with a state that is behind the log can see whose work it
does not know of. No model sees a mark.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
from msgspec import Struct

from antiphon.graph.place import Place
from antiphon.history import AgentHistory, DebugLogEntry, EntryMetadata, HistoryEntry

CATEGORY = "graph"


class StepMark(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A step that began. `number` is where the mark stands in the log, `state` the version its graph knew."""

    task: str
    checkpoint: str = ""
    thread: str = ""
    node: str = ""
    state: int = 0
    number: int = 0


def append_mark(history: AgentHistory, place: Place, state: int) -> StepMark:
    """Write down that a step begins."""
    mark = StepMark(task=place.task, checkpoint=place.checkpoint, thread=place.thread, node=place.node, state=state)
    metadata = EntryMetadata(source=f"graph:{place.node}", extra={CATEGORY: msgspec.to_builtins(mark)})
    text = f"The node {place.node or '(none)'} is at work."
    entry = history.append(DebugLogEntry(CATEGORY, text, metadata=metadata))
    return msgspec.structs.replace(mark, number=entry.sequence_number)


def marks_after(history: AgentHistory, version: int) -> list[StepMark]:
    """The steps that began behind `version`, rolled back or not, the oldest first."""
    return list(_marks(history.entries.since(version)))


def last_mark(history: AgentHistory) -> StepMark | None:
    """The last step that began, if any did."""
    entries = history.entries
    return next(_marks(entries[index] for index in range(len(entries) - 1, -1, -1)), None)


def _marks(entries: Iterator[HistoryEntry] | Sequence[HistoryEntry]) -> Iterator[StepMark]:
    for entry in entries:
        if isinstance(entry, DebugLogEntry) and entry.category == CATEGORY and entry.metadata and entry.metadata.extra:
            said = entry.metadata.extra.get(CATEGORY)
            if isinstance(said, dict):
                yield msgspec.convert({**said, "number": entry.sequence_number}, StepMark)
