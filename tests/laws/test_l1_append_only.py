"""L1: no entry ever changes or disappears, whatever is done to a history.

A state machine does everything that can be done, in any order, beside the simplest model there is: a list of all entries and,
for every version, the list of what was effective then.
"""

from __future__ import annotations

import tempfile
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from antiphon.errors import SequenceError
from antiphon.history import (
    AgentHistory,
    AgentHistorySnapshot,
    HistoryEntry,
    SetMemoryNotebookEntry,
    SetSystemInstructionEntry,
    SqliteStore,
)
from antiphon.history.location import open_store
from support.examples import scaled
from support.history_strategies import any_text, append_any, entries


class AppendOnly(RuleBasedStateMachine):
    def new_history(self) -> AgentHistory:
        return AgentHistory()

    @initialize()
    def start(self) -> None:
        self.history = self.new_history()
        self.log: list[HistoryEntry] = []
        self.views: list[list[HistoryEntry]] = [[]]
        self.held: list[tuple[AgentHistorySnapshot, int]] = []

    def record(self, entry: HistoryEntry, view: list[HistoryEntry]) -> None:
        assert entry.sequence_number == len(self.log) + 1
        assert entry.timestamp is not None
        self.log.append(entry)
        self.views.append(view)

    @rule(entry=entries)
    def append(self, entry: HistoryEntry) -> None:
        before = entry
        stored = append_any(self.history, entry)
        assert entry == before
        assert entry.sequence_number == 0, "the caller's value was changed"
        self.record(stored, [*self.views[-1], stored])

    @rule(text=any_text)
    def set_system(self, text: str) -> None:
        stored = self.history.set_system_instruction(text)
        self.record(stored, [*self.views[-1], stored])

    @rule(text=any_text)
    def set_notebook(self, text: str) -> None:
        stored = self.history.set_memory_notebook(text)
        self.record(stored, [*self.views[-1], stored])

    @rule(data=st.data())
    def rollback(self, data: st.DataObject) -> None:
        to = data.draw(st.integers(0, len(self.log)))
        self.record(self.history.rollback(to), self.views[to])

    @rule(data=st.data())
    def rollback_that_keeps_entries(self, data: st.DataObject) -> None:
        to = data.draw(st.integers(0, len(self.log)))
        kept = [entry for entry in self.views[-1] if entry.sequence_number > to and data.draw(st.booleans())]
        stored = self.history.rollback(to, kept=[entry.sequence_number for entry in kept])
        self.record(stored, [*self.views[to], *kept])

    @precondition(lambda self: self.log)
    @rule(data=st.data())
    def compact(self, data: st.DataObject) -> None:
        stored = self.history.compact("so far", data.draw(st.integers(0, len(self.log))))
        self.record(stored, [*self.views[-1], stored])

    @rule()
    def hold_a_snapshot(self) -> None:
        self.held.append((self.history.snapshot(), len(self.log)))

    @rule(data=st.data())
    def fork(self, data: st.DataObject) -> None:
        at = data.draw(st.integers(0, len(self.log)))
        fork = self.history.fork(at)
        assert fork.entries == self.log[:at]
        assert fork.effective == self.views[at]
        fork.append(SetSystemInstructionEntry("elsewhere"))
        assert self.history.version == len(self.log)

    @rule(data=st.data())
    def refuse_what_does_not_fit(self, data: st.DataObject) -> None:
        outside = data.draw(st.sampled_from([-1, len(self.log) + 1, len(self.log) + 7]))
        with pytest.raises(SequenceError):
            self.history.rollback(outside)
        hidden = {entry.sequence_number for entry in self.log} - {entry.sequence_number for entry in self.views[-1]}
        for number in [0, len(self.log) + 1, *sorted(hidden)[:3]]:
            with pytest.raises(SequenceError):
                self.history.rollback(0, kept=[number])
        with pytest.raises(SequenceError):
            self.history.fork(outside)
        with pytest.raises(SequenceError):
            self.history.append(SetSystemInstructionEntry("x", sequence_number=len(self.log) + 2))

    @invariant()
    def everything_is_still_there(self) -> None:
        if not hasattr(self, "history"):
            return
        history = self.history
        assert history.version == history.sequence_number == len(history) == len(self.log)
        assert history.entries == self.log
        assert history.effective == self.views[-1]
        self.check_state(history, self.views[-1])

    @invariant()
    def snapshots_stand_still(self) -> None:
        for snapshot, version in getattr(self, "held", []):
            assert snapshot.version == version
            assert snapshot.entries == self.log[:version]
            assert snapshot.effective == self.views[version]
            self.check_state(snapshot, self.views[version])

    def check_state(self, history: AgentHistory | AgentHistorySnapshot, view: list[HistoryEntry]) -> None:
        systems = [entry.text for entry in view if isinstance(entry, SetSystemInstructionEntry)]
        notebooks = [entry.content for entry in view if isinstance(entry, SetMemoryNotebookEntry)]
        assert history.system_instruction == (systems[-1] if systems else "")
        assert history.memory_notebook == (notebooks[-1] if notebooks else "")


class AppendOnlyStored(AppendOnly):
    """The same with a file under it, which is reopened now and then."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.place = self.new_place()
        self.store = open_store(self.place)

    def new_place(self) -> str:
        return f"{self.folder.name}/chats.db"

    def new_history(self) -> AgentHistory:
        return self.store.create()

    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.store = open_store(self.place)
        self.history = self.store.open(self.history.id)

    @rule()
    def export_and_import(self) -> None:
        lines = list(self.store.export_lines(self.history.id))
        with SqliteStore(":memory:") as other:
            other.import_lines(lines)
            assert list(other.export_lines(self.history.id)) == lines
            assert other.open(self.history.id).entries == self.log
            copy = self.store.import_lines(other.export_lines(self.history.id), as_new=True)
        assert list(self.store.export_lines(copy.id))[1:] == lines[1:]

    def teardown(self) -> None:
        self.store.close()
        self.folder.cleanup()


TestAppendOnly: Any = AppendOnly.TestCase
TestAppendOnlyStored: Any = AppendOnlyStored.TestCase


def test_append_only_on_a_server(postgres: str) -> None:
    class AppendOnlyOnAServer(AppendOnlyStored):
        def new_place(self) -> str:
            return postgres

    run_state_machine_as_test(AppendOnlyOnAServer, settings=settings(max_examples=scaled(4)))
