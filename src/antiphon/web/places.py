"""`Places`: the turn and the round of every entry, followed as the log grows.

The same as `rounds_of` says of the effective history, but an entry at a time. What was rolled back keeps the place it had.
"""

from __future__ import annotations

from typing import NamedTuple

from antiphon.conversation.turn import Turn
from antiphon.history import (
    AgentHistorySnapshot,
    ApprovalRequestedEntry,
    HistoryEntry,
    LiveContextInjectedEntry,
    ModelOutputEntry,
    RollbackEntry,
)
from antiphon.history.snapshot import EffectiveSpans, effective_entries


class Place(NamedTuple):
    """Where an entry stands: turns and rounds count from 1; 0 is before the first."""

    turn: int
    round: int


class Places:
    """The places of the entries of one log, by sequence number."""

    def __init__(self) -> None:
        self._places: list[Place] = []
        self._spans = EffectiveSpans()
        self._start()

    def _start(self) -> None:
        self._standing = Turn()
        self._now = Place(0, 0)

    @property
    def turn(self) -> int:
        """The number of the turn the log is in."""
        return self._now.turn

    def __getitem__(self, sequence_number: int) -> Place:
        return self._places[sequence_number - 1]

    def follow(self, snapshot: AgentHistorySnapshot) -> None:
        """Take in what was appended since."""
        for entry in snapshot.entries.since(len(self._places)):
            if isinstance(entry, RollbackEntry):
                self._roll_back(snapshot, entry)
                self._places.append(self._now)
            else:
                self._places.append(self._placed(entry))

    def _placed(self, entry: HistoryEntry) -> Place:
        before, self._standing = self._standing, self._standing.after(entry)
        if self._standing is not before:
            self._now = Place(self._now.turn + 1, 0)
        elif isinstance(entry, ModelOutputEntry):
            self._now = Place(self._now.turn, self._now.round + 1)
        elif isinstance(entry, LiveContextInjectedEntry) or (
            isinstance(entry, ApprovalRequestedEntry) and not self._standing.open_calls
        ):  # it is written for the output that follows
            return Place(self._now.turn, self._now.round + 1)
        return self._now

    def _roll_back(self, snapshot: AgentHistorySnapshot, rollback: RollbackEntry) -> None:
        self._spans.roll_back(rollback.sequence_number, rollback.to, rollback.kept)
        self._start()
        for entry in effective_entries(snapshot.entries, self._spans.at(rollback.sequence_number)):
            self._placed(entry)
