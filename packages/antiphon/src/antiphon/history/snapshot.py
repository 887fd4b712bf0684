"""A history at one version, to hold and to read while the history grows.

Taking a snapshot copies nothing. The log only ever grows, so its first n entries are the same list for everyone: a snapshot
is a reference to that list and the number n. The same goes for the effective view, which grows too until a rollback, and
a rollback starts a new list instead of cutting the old one.

A log without rollbacks is effective as a whole: one span. A rollback to version `to` closes the current span and opens one after
the spans that were effective at that version. Spans are linked backwards and never changed, so a rollback costs one span (and
one for each entry it keeps), and a rollback over a rollback (a redo) needs no special case.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import overload

from msgspec import Struct, structs

from antiphon.history.entries import (
    CompactionEntry,
    HistoryEntry,
    SetMemoryNotebookEntry,
    SetSystemInstructionEntry,
    ShortenedResultsEntry,
)

SETTING_KINDS = frozenset({SetSystemInstructionEntry, SetMemoryNotebookEntry, CompactionEntry, ShortenedResultsEntry})
"""The entries that set something."""


class ActiveSettings(Struct, frozen=True):
    """What the last entry of its kind set, and how many entries were imported: the state a history holds beside its entries."""

    system_instruction: str = ""
    memory_notebook: str = ""
    compaction: CompactionEntry | None = None
    shortened: ShortenedResultsEntry | None = None
    imported: int = 0
    has_native: bool = False
    """Whether a provider compacted the conversation itself, so that what is shown depends on the model."""

    def after(self, entry: HistoryEntry) -> ActiveSettings:
        """The state once `entry` is appended."""
        if type(entry) is SetSystemInstructionEntry:
            return structs.replace(self, system_instruction=entry.text)
        if type(entry) is SetMemoryNotebookEntry:
            return structs.replace(self, memory_notebook=entry.content)
        if type(entry) is CompactionEntry:
            return structs.replace(self, compaction=entry, has_native=self.has_native or entry.native is not None)
        if type(entry) is ShortenedResultsEntry:
            return structs.replace(self, shortened=entry)
        return self


class EntriesView(Sequence[HistoryEntry]):
    """The first entries of a log, immutable, whatever is appended after them."""

    __slots__ = ("_length", "_log")

    def __init__(self, log: list[HistoryEntry], length: int) -> None:
        self._log = log
        self._length = length

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[HistoryEntry]:
        return islice(self._log, self._length)

    @overload
    def __getitem__(self, index: int) -> HistoryEntry: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[HistoryEntry]: ...
    def __getitem__(self, index: int | slice) -> HistoryEntry | Sequence[HistoryEntry]:
        if isinstance(index, slice):
            return tuple(self._log[i] for i in range(*index.indices(self._length)))
        if not -self._length <= index < self._length:
            raise IndexError(f"there is no entry at index {index} among {self._length}")
        return self._log[index if index >= 0 else index + self._length]

    def since(self, start: int) -> list[HistoryEntry]:
        """The entries after the first `start`, at the cost of those alone."""
        return self._log[start : self._length]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    __hash__ = None  # type: ignore[assignment]  # compared by value, as lists are

    def __repr__(self) -> str:
        return f"EntriesView({list(self)!r})"


class AgentHistorySnapshot(Struct, frozen=True, eq=False):
    """What a history held when `snapshot()` was called. Its lists may have grown since; it knows how much of them is its own."""

    version: int
    in_force: ActiveSettings
    _log: list[HistoryEntry]
    _effective: list[HistoryEntry]
    _effective_length: int

    @property
    def entries(self) -> EntriesView:
        """Everything that was appended."""
        return EntriesView(self._log, self.version)

    @property
    def effective(self) -> EntriesView:
        """Everything that was appended, without what was rolled back and the rollbacks."""
        return EntriesView(self._effective, self._effective_length)

    def since(self, version: int) -> list[HistoryEntry]:
        """The entries appended after `version`, at the cost of those alone."""
        return self._log[version : self.version]

    def effective_since(self, earlier: AgentHistorySnapshot | None) -> list[HistoryEntry] | None:
        """What `effective` has more than that of an `earlier` snapshot, if any; None if something was rolled back in between."""
        if earlier is None:
            return self._effective[: self._effective_length]
        if self._effective is not earlier._effective or self._effective_length < earlier._effective_length:
            return None
        return self._effective[earlier._effective_length : self._effective_length]

    @property
    def sequence_number(self) -> int:
        """The sequence number of the last entry; the version by another name."""
        return self.version

    @property
    def imported(self) -> int:
        """How many entries, from the first on, were imported. What people decided in them permits nothing here (law L11)."""
        return self.in_force.imported

    @property
    def system_instruction(self) -> str:
        """The system instruction in force, or an empty string."""
        return self.in_force.system_instruction

    @property
    def memory_notebook(self) -> str:
        """The text of the memory notebook, or an empty string."""
        return self.in_force.memory_notebook

    @property
    def compaction(self) -> CompactionEntry | None:
        """The last compaction in force, if there is one."""
        return self.in_force.compaction

    @property
    def last_change(self) -> int:
        """The sequence number of the last entry that changed what the model sees of earlier ones; 0 if there is none."""
        changes = (self.in_force.compaction, self.in_force.shortened)
        return max([entry.sequence_number for entry in changes if entry is not None], default=0)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, AgentHistorySnapshot)
            and self.in_force == other.in_force
            and self.entries == other.entries
            and self.effective == other.effective
        )

    __hash__ = None  # type: ignore[assignment]  # compared by value, as lists are

    def __repr__(self) -> str:
        return f"<AgentHistorySnapshot at version {self.version}>"


class Span(Struct, frozen=True, gc=False):
    """Effective entries `start` to `end` (sequence numbers, `end` open for the current one), after those of `before`."""

    start: int
    end: int | None = None
    before: Span | None = None

    def truncated(self, version: int) -> Span | None:
        """The part of this view that lies at or before `version`."""
        span: Span | None = self
        while span is not None and span.start > version:
            span = span.before
        if span is None:
            return None
        end = version if span.end is None else min(span.end, version)
        return Span(span.start, end, span.before)


class EffectiveSpans:
    """The spans of a growing log, by version."""

    __slots__ = ("_opened", "_spans")

    def __init__(self) -> None:
        self._opened = [0]
        self._spans = [Span(1)]

    @property
    def current(self) -> Span:
        return self._spans[-1]

    def at(self, version: int) -> Span | None:
        """What was effective when the log had `version` entries."""
        return self._spans[bisect_right(self._opened, version) - 1].truncated(version)

    def roll_back(self, sequence_number: int, to: int, kept: Sequence[int] = ()) -> None:
        """The entry `sequence_number` rolls the log back to version `to`; the entries `kept` stay effective."""
        before = self.at(to)
        for number in kept:
            before = Span(number, number, before)
        self._spans.append(Span(sequence_number + 1, before=before))
        self._opened.append(sequence_number)


def effective_entries(log: Sequence[HistoryEntry], span: Span | None) -> list[HistoryEntry]:
    """The entries of a view, oldest first."""
    spans: list[Span] = []
    while span is not None:
        spans.append(span)
        span = span.before
    entries: list[HistoryEntry] = []
    for part in reversed(spans):
        entries.extend(log[part.start - 1 : part.end])
    return entries
