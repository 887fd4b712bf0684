"""`Turn`: the state of a turn, folded from the log; and its rounds.

A turn starts with an input and continues in rounds: an output, then the results of its calls. `Turn.apply` takes one entry, at
constant cost; `Turn.of` folds what the log has since the last turn started. Nothing depends on memory, so continuing a turn and
resuming it after a crash are the same.

An input starts a turn only if no calls are open: anything added before they have results belongs to the turn that waits for
them. So does a message that requests a typed answer again, and one that steers a turn that is running.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from msgspec import Struct

from antiphon.history import (
    AgentHistory,
    AgentHistorySnapshot,
    ApprovalRequestedEntry,
    DebugLogEntry,
    HistoryEntry,
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
from antiphon.history.snapshot import EffectiveSpans, effective_entries
from antiphon.parts import TokenUsage, ToolCallRequest, ToolExecutionStatus
from antiphon.tools.call_runner import AWAITS, ToolCallState

AGENT_PREFIX = "agent:"
"""Prefix of the source of entries made by an agent; its name follows."""

AGENT_CHANNEL = "agent"
"""The channel of messages that a route or a graph sends to an agent."""

CORRECTION_CHANNEL = "output"
"""The channel of messages that request an answer again, because it does not have the requested type."""

STEERING_CHANNEL = "steering"
"""The channel of messages to a turn that is running: they are answered in it, and begin no run."""

CONTINUE_PROMPT = "Continue from here."
"""The message to an agent that gets no other."""


FAILED = "failed"
"""The stop reason of an answer that the provider cut off."""
INTERRUPTED = "interrupted"

_ADDED_CHANNELS = frozenset({"system", "developer", CORRECTION_CHANNEL, STEERING_CHANNEL})
"""The channels of what an operator adds, and of messages to a turn that is running."""
_CALL_MARKS = (ApprovalRequestedEntry, HumanDecisionEntry, ToolCallStartedEntry, ToolCallFinishedEntry)


class Turn:
    """The state of one turn."""

    def __init__(self, question: ModelInputEntry | None = None, imported: int = 0) -> None:
        self.input = question
        self.imported = imported
        """How many entries of the log were imported: a decision among them is not one that a person made here (law L11)."""
        self.output: ModelOutputEntry | None = None
        self.rounds = 0
        self.failed_rounds = 0
        """How many rounds in a row had no successful call."""
        self.repeats = 0
        """How many rounds in a row made the same calls and got the same results as the one before."""
        self.has_calls = False
        """Whether the last answer made calls."""
        self.corrections = 0
        """How often an answer was requested again because it did not have the requested type."""
        self.is_asked_again = False
        """Whether another answer is requested: the last one did not fit, or a message steers the turn."""
        self.open_calls: dict[str, ToolCallState] = {}
        """The calls of the last output that have no results yet, by their ids."""
        self.ended = ""
        """Why the turn was ended before the model was done, if it was."""
        self.refusal = ""
        """Why a hook refused a model call of the turn, if that ended it."""
        self._seen: list[tuple[Any, ...]] = []
        self._approval_requested: set[str] = set()  # also of calls whose output is still to come

    @classmethod
    def of(cls, snapshot: AgentHistorySnapshot) -> Turn:
        """The last turn of a history."""
        turn = cls(imported=snapshot.imported)
        for entry in snapshot.effective.since(_find_turn_start(snapshot.effective)):
            turn = turn.apply(entry)
        return turn

    def apply(self, entry: HistoryEntry) -> Turn:
        """The turn after `entry`: this one, updated, or a new one."""
        kind = type(entry)
        current: Any = entry
        if kind is ModelOutputEntry:
            self._apply_output(current)
        elif kind is ToolCallResultsEntry:
            self._apply_results(current)
        elif kind is ToolCallStartedEntry:
            if open_call := self.open_calls.get(current.tool_call_id):
                open_call.started = current
        elif kind is ToolCallFinishedEntry:
            if open_call := self.open_calls.get(current.result.tool_call_id):
                open_call.result = current.result
                if current.metadata is not None:  # of a call that finished before a crash
                    open_call.seconds = current.metadata.duration
                    open_call.is_cached = bool(current.extra("cached"))
                    open_call.traceback = current.extra("traceback") or ""
        elif kind is ApprovalRequestedEntry:
            self._request_approval(current)
        elif kind is HumanDecisionEntry:
            open_call = self.open_calls.get(current.tool_call_id)
            if open_call is not None and current.sequence_number > self.imported:
                open_call.decision = current
        elif kind is DebugLogEntry:
            if ended := end_reason(entry):
                self.ended, self.refusal = ended, str(entry.extra(REFUSAL) or "")
            elif (awaited := entry.extra(AWAITS)) and (open_call := self.open_calls.get(awaited)):
                open_call.is_later = True
        elif kind is ModelInputEntry:
            if starts_turn(entry) and not self.open_calls:
                return Turn(current, self.imported)
            if current.channel in (CORRECTION_CHANNEL, STEERING_CHANNEL):
                self.corrections += current.channel == CORRECTION_CHANNEL
                self.is_asked_again = True
        return self

    @property
    def answer(self) -> str:
        """The text of the last output; empty if there is none."""
        return self.output.response_markdown if self.output is not None else ""

    @property
    def has_failed(self) -> bool:
        """Whether the provider cut the last answer off: the model must be called again."""
        return self.output is not None and self.output.stop_reason == FAILED

    @property
    def needs_model(self) -> bool:
        """Whether the model must be called next: after an input, after results, after an answer that was cut off."""
        if self.open_calls or self.ended:
            return False
        if self.output is None:
            return self.input is not None
        return self.has_calls or self.is_asked_again or self.output.stop_reason in ("paused", "malformed_call", FAILED)

    @property
    def pending(self) -> tuple[ToolCallRequest, ...]:
        """The calls that wait for a person: the log has a request for approval and no decision."""
        if self.ended or self.has_failed:
            return ()  # they are closed, not run, when the turn is resumed
        return tuple([state.call for state in self.open_calls.values() if state.needs_approval])

    def _apply_output(self, entry: ModelOutputEntry) -> None:
        self.output = entry
        self.rounds += 1
        self.is_asked_again = False
        self.ended = self.refusal = ""
        if (metadata := entry.metadata) is not None and metadata.extra:
            self.ended = end_reason(entry)
        self.open_calls = {
            part.tool_call_id: ToolCallState(part) for part in entry.content if type(part) is ToolCallRequest
        }
        if self._approval_requested:
            for call_id, state in self.open_calls.items():
                state.approval_requested = call_id in self._approval_requested
        self.has_calls = bool(self.open_calls)
        if entry.stop_reason == "malformed_call" and not self.has_calls:
            self.failed_rounds += 1

    def _request_approval(self, entry: ApprovalRequestedEntry) -> None:
        self._approval_requested.update(entry.tool_call_ids)
        for call_id in entry.tool_call_ids:
            if open_call := self.open_calls.get(call_id):
                open_call.approval_requested = True

    def _apply_results(self, entry: ToolCallResultsEntry) -> None:
        self.ended = ""
        if (metadata := entry.metadata) is not None and metadata.extra:
            self.ended = end_reason(entry)
        succeeded = False
        seen: list[tuple[Any, ...]] = []
        for result in entry.results:
            if open_call := self.open_calls.pop(result.tool_call_id, None):
                call = open_call.call
                seen.append((call.tool_name, call.arguments, result.status, result.content))
                succeeded = succeeded or result.status is ToolExecutionStatus.SUCCESS
        if self._approval_requested:
            self._approval_requested.difference_update([result.tool_call_id for result in entry.results])
        if seen:
            self.failed_rounds = 0 if succeeded else self.failed_rounds + 1
            self.repeats = self.repeats + 1 if seen == self._seen else 0
            self._seen = seen


REFUSAL = "refusal"
"""Where the metadata of the end of a turn have the reason of the hook that refused."""


def end_reason(entry: HistoryEntry) -> str:
    """Why a turn was ended with this entry, if it was."""
    reason = str(entry.extra("ended") or "")
    return "max_hand_offs" if reason == "max_hand_overs" else reason  # as it was stored before


def starts_turn(entry: HistoryEntry) -> bool:
    """Whether an entry is an input that begins a turn; what is added to a turn that runs does not."""
    return isinstance(entry, ModelInputEntry) and entry.channel not in _ADDED_CHANNELS


def is_from_person(entry: HistoryEntry) -> bool:
    """Whether an entry is a message of a person: if it begins a turn, a run begins with it."""
    return starts_turn(entry) and entry.channel != AGENT_CHANNEL  # type: ignore[attr-defined]  # an input


def find_call_state(call: ToolCallRequest, snapshot: AgentHistorySnapshot) -> ToolCallState:
    """The state of a call that is not open in the last turn."""
    turn, state = Turn(imported=snapshot.imported), ToolCallState(call)
    turn.open_calls[call.tool_call_id] = state
    for entry in snapshot.effective:
        if isinstance(entry, ToolCallResultsEntry):
            for result in entry.results:
                if result.tool_call_id == call.tool_call_id:
                    state.result, state.is_answered = result, True
        elif isinstance(entry, _CALL_MARKS):
            turn.apply(entry)
    return state


def last_own_instruction(history: AgentHistory) -> SetSystemInstructionEntry | None:
    """The last system instruction that was set for the conversation and not for one of its agents."""
    for entry in reversed(history.snapshot().effective):
        if isinstance(entry, SetSystemInstructionEntry):
            source = entry.metadata.source if entry.metadata else ""
            if not source.startswith(AGENT_PREFIX):
                return entry
    return None


def kept_settings(history: AgentHistory, *, keep_notebook: bool) -> list[int]:
    """The entries that still count after a conversation is cleared: its own instruction, and its notebook if wanted."""
    kept: list[HistoryEntry | None] = [last_own_instruction(history)]
    if keep_notebook:
        kept.append(next((e for e in reversed(history.effective) if isinstance(e, SetMemoryNotebookEntry)), None))
    return sorted(entry.sequence_number for entry in kept if entry is not None)


def _find_turn_start(effective: Sequence[HistoryEntry]) -> int:
    """The index of the last question that came when no call was open."""
    question: int | None = None
    answered: set[str] = set()
    for index in range(len(effective) - 1, -1, -1):
        entry = effective[index]
        if question is None:
            question = index if starts_turn(entry) else None
        elif isinstance(entry, ToolCallResultsEntry):
            answered.update(result.tool_call_id for result in entry.results)
        elif isinstance(entry, ModelOutputEntry):
            if all(call.tool_call_id in answered for call in entry.tool_calls):
                return question
            question = None
            answered.clear()
    return question or 0


class Round(Struct, frozen=True, kw_only=True):
    """One round of one turn. `entries` are sequence numbers; `ended` is why the turn ended here, if not by an answer."""

    turn: int
    number: int
    entries: tuple[int, ...]
    model: str = ""
    agent: str = ""
    calls: tuple[str, ...] = ()
    failed_calls: int = 0
    seconds: float = 0.0
    usage: TokenUsage = TokenUsage()
    ended: str = ""


class EntryPosition(NamedTuple):
    """The turn and round of an entry. Both count from 1; round 0 is before the first output, turn 0 before the first question."""

    turn: int
    round: int


class _Positions:
    """Assigns a position to one entry after the other."""

    def __init__(self) -> None:
        self.current = EntryPosition(0, 0)
        self._turn = Turn()

    def add(self, entry: HistoryEntry) -> EntryPosition:
        turn = self._turn
        self._turn = turn.apply(entry)
        if self._turn is not turn:
            self.current = EntryPosition(self.current.turn + 1, 0)
        elif isinstance(entry, ModelOutputEntry):
            self.current = EntryPosition(self.current.turn, self.current.round + 1)
        elif isinstance(entry, LiveContextInjectedEntry) or (
            isinstance(entry, ApprovalRequestedEntry) and not turn.open_calls
        ):  # it is written for the output that follows
            return EntryPosition(self.current.turn, self.current.round + 1)
        return self.current


class TurnIndex:
    """The position of every entry of a growing log. What was rolled back keeps the position it had."""

    def __init__(self) -> None:
        self._entries: list[EntryPosition] = []
        self._spans = EffectiveSpans()
        self._positions = _Positions()

    @property
    def turn(self) -> int:
        """The number of the current turn."""
        return self._positions.current.turn

    def __getitem__(self, sequence_number: int) -> EntryPosition:
        return self._entries[sequence_number - 1]

    def __len__(self) -> int:
        return len(self._entries)

    def update(
        self, snapshot: AgentHistorySnapshot, up_to: int | None = None
    ) -> list[tuple[HistoryEntry, EntryPosition]]:
        """Add the entries appended since the last update, or those of them up to entry `up_to`, and return them."""
        added = snapshot.since(len(self._entries))[: None if up_to is None else max(0, up_to - len(self._entries))]
        for entry in added:
            if isinstance(entry, RollbackEntry):
                self._spans.roll_back(entry.sequence_number, entry.to, entry.kept)
                self._positions = _Positions()
                for kept in effective_entries(snapshot.entries, self._spans.at(entry.sequence_number)):
                    self._positions.add(kept)
                self._entries.append(self._positions.current)
            else:
                self._entries.append(self._positions.add(entry))
        return list(zip(added, self._entries[len(self._entries) - len(added) :], strict=True))


def rounds_of(snapshot: AgentHistorySnapshot, *, effective: bool = True) -> list[Round]:
    """The rounds of a history, oldest first; with `effective=False`, rounds that were rolled back too."""
    positions = _Positions()
    current = positions.current
    rounds: list[Round] = []
    entries: list[HistoryEntry] = []
    early: list[HistoryEntry] = []
    for entry in snapshot.effective if effective else snapshot.entries:
        position = positions.add(entry)
        if position != positions.current:
            early.append(entry)  # belongs to the next output if that follows directly
            continue
        if position.round == 0 or position == current:
            entries += early
            early = []
        if position != current:
            if entries:
                rounds.append(_round(current, entries))
            current, entries = position, early
        entries.append(entry)
        early = []
    entries += early
    if entries:
        rounds.append(_round(current, entries))
    return rounds


def _round(position: EntryPosition, entries: Iterable[HistoryEntry]) -> Round:
    model = agent = ended = ""
    calls: tuple[str, ...] = ()
    failed = 0
    seconds = 0.0
    usage: TokenUsage | None = None
    numbers: list[int] = []
    for entry in entries:
        numbers.append(entry.sequence_number)
        if entry.metadata is not None and entry.metadata.duration:
            seconds += entry.metadata.duration
        ended = end_reason(entry) or ended
        if entry.metadata is not None and (used := entry.metadata.usage) is not None:
            usage = used if usage is None else usage + used
        if isinstance(entry, ModelOutputEntry):
            calls = tuple(call.tool_name for call in entry.tool_calls)
            if entry.origin:
                model = entry.origin.name
            if entry.metadata:
                agent = entry.metadata.source.removeprefix(AGENT_PREFIX)
        elif isinstance(entry, ToolCallResultsEntry):
            failed += sum(result.status is not ToolExecutionStatus.SUCCESS for result in entry.results)
    return Round(
        turn=position.turn,
        number=position.round,
        entries=tuple(numbers),
        model=model,
        agent=agent,
        calls=calls,
        failed_calls=failed,
        seconds=seconds,
        usage=usage or TokenUsage(),
        ended=ended,
    )
