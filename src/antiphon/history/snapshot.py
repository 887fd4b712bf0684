"""A history at one version, to hold and to read while the history goes on.

Taking a snapshot copies nothing. The log only ever grows, so its first n entries are the same list for everyone: a snapshot
is a reference to that list and the number n. The same goes for the effective view, which grows too until a rollback, and
a rollback starts a new list instead of cutting the old one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import overload

from msgspec import Struct, structs

from antiphon.history.entries import CompactionEntry, HistoryEntry, SetMemoryNotebookEntry, SetSystemInstructionEntry

SETTING = frozenset({SetSystemInstructionEntry, SetMemoryNotebookEntry, CompactionEntry})
"""The entries that set something."""


class InForce(Struct, frozen=True):
    """What the last entry of its kind set: the state a history holds beside its entries."""

    system_instruction: str = ""
    memory_notebook: str = ""
    compaction: CompactionEntry | None = None

    def after(self, entry: HistoryEntry) -> InForce:
        """The state once `entry` is appended."""
        if type(entry) is SetSystemInstructionEntry:
            return structs.replace(self, system_instruction=entry.text)
        if type(entry) is SetMemoryNotebookEntry:
            return structs.replace(self, memory_notebook=entry.content)
        if type(entry) is CompactionEntry:
            return structs.replace(self, compaction=entry)
        return self


class EntriesView(Sequence[HistoryEntry]):
    """The first entries of a log, unchangeable, whatever is appended behind them."""

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
        """The entries behind the first `start`, at the cost of those alone."""
        return self._log[start : self._length]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    __hash__ = None  # type: ignore[assignment]  # compared by value, as lists are

    def __repr__(self) -> str:
        return f"EntriesView({list(self)!r})"


class AgentHistorySnapshot(Struct, frozen=True, eq=False):
    """What a history held when `snapshot()` was called. Its lists may have grown since; it knows how much of them is its own."""

    version: int
    in_force: InForce
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
        """What was appended behind `version`, at the cost of that alone."""
        return self._log[version : self.version]

    def effective_since(self, earlier: AgentHistorySnapshot) -> list[HistoryEntry] | None:
        """What `effective` has more than that of an `earlier` snapshot; None if something was rolled back in between."""
        if self._effective is not earlier._effective or self._effective_length < earlier._effective_length:
            return None
        return self._effective[earlier._effective_length : self._effective_length]

    @property
    def sequence_number(self) -> int:
        """The sequence number of the last entry; the version by another name."""
        return self.version

    @property
    def system_instruction(self) -> str:
        """The system instruction in force, or an empty string."""
        return self.in_force.system_instruction

    @property
    def memory_notebook(self) -> str:
        """What the memory notebook says, or an empty string."""
        return self.in_force.memory_notebook

    @property
    def compaction(self) -> CompactionEntry | None:
        """The compaction the view starts from, if there is one."""
        return self.in_force.compaction

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
