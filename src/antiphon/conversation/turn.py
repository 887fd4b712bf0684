"""`Turn`: where a turn stands, read off the log and nothing else.

A turn begins with an input and goes on in rounds: an output, and the results of its calls. Whoever drives a turn, the process
that began it or another one after a crash, asks the `Turn` what is to be done next, does it, and appends what came of it. So
going on is the same as resuming, and resuming twice is resuming once.

A turn is a fold over entries: `after` looks at one entry and costs the same whatever came before. `Turn.of` folds what the
log has since the last turn began, and counts on nothing that is only in memory.

A question begins a turn unless calls are open: what a tool, or somebody else, says before they have their results is part of the
turn that waits for them, so nobody can make a turn endless by asking within it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from antiphon.conversation.parts_tracker import FAILED
from antiphon.history import (
    AgentHistory,
    AgentHistorySnapshot,
    ApprovalRequestedEntry,
    DebugLogEntry,
    HistoryEntry,
    HumanDecisionEntry,
    ModelInputEntry,
    ModelOutputEntry,
    SetSystemInstructionEntry,
    TokenUsage,
    ToolCallFinishedEntry,
    ToolCallResultsEntry,
    ToolCallStartedEntry,
)
from antiphon.parts import ToolCallRequest, ToolExecutionStatus
from antiphon.tools.call_runner import CallState

AGENT_SOURCE = "agent:"
"""How the source of an entry begins that an agent made; its name follows."""


_CALL_MARKS = (ApprovalRequestedEntry, HumanDecisionEntry, ToolCallStartedEntry, ToolCallFinishedEntry)


class Turn:
    """The standing of the turn that is being played."""

    def __init__(self, question: ModelInputEntry | None = None) -> None:
        self.input = question
        self.output: ModelOutputEntry | None = None
        self.rounds = 0
        self.calls = 0
        self.failed_rounds = 0
        """How many rounds in a row brought no call to success."""
        self.repeats = 0
        """How many rounds in a row made the same calls and got the same results as the one before."""
        self.usage = TokenUsage()
        self.has_calls = False
        """Whether the last answer made calls."""
        self.open_calls: dict[str, CallState] = {}
        """The calls of the last output that have no results yet, by their ids."""
        self.ended = ""
        """Why the turn was ended before the model was done, if it was."""
        self._seen: list[tuple[Any, ...]] = []
        self._approval_requested: set[str] = set()  # also of calls whose output is still to come

    @classmethod
    def of(cls, snapshot: AgentHistorySnapshot) -> Turn:
        """The standing of the last turn of a history."""
        turn = cls()
        for entry in snapshot.effective.since(_last_beginning(snapshot.effective)):
            turn = turn.after(entry)
        return turn

    def after(self, entry: HistoryEntry) -> Turn:
        """The standing once `entry` is appended: this turn gone on, or a new one."""
        kind = type(entry)
        said: Any = entry
        if kind is ModelOutputEntry:
            self._answered(said)
        elif kind is ToolCallResultsEntry:
            self._resulted(said)
        elif kind is ToolCallStartedEntry:
            if open_call := self.open_calls.get(said.tool_call_id):
                open_call.started = said
        elif kind is ToolCallFinishedEntry:
            if open_call := self.open_calls.get(said.result.tool_call_id):
                open_call.result = said.result
        elif kind is ApprovalRequestedEntry:
            self._request_approval(said)
        elif kind is HumanDecisionEntry:
            if open_call := self.open_calls.get(said.tool_call_id):
                open_call.decision = said
        elif kind is DebugLogEntry:
            self.ended = why_ended(entry) or self.ended
        elif kind is ModelInputEntry and is_question(entry) and not self.open_calls:
            return Turn(said)
        return self

    @property
    def has_failed(self) -> bool:
        """Whether the last answer was cut off by the provider: it is to be asked for again."""
        return self.output is not None and self.output.stop_reason == FAILED

    @property
    def needs_model(self) -> bool:
        """Whether the next thing to do is to ask the model: after an input, after results, after an answer that was cut."""
        if self.open_calls or self.ended:
            return False
        if self.output is None:
            return self.input is not None
        return self.has_calls or self.output.stop_reason in ("paused", "malformed_call", FAILED)

    def _answered(self, entry: ModelOutputEntry) -> None:
        self.output = entry
        self.rounds += 1
        self.ended = ""
        if (metadata := entry.metadata) is not None:
            if metadata.usage is not None:
                self.usage += metadata.usage
            if metadata.extra is not None:
                self.ended = why_ended(entry)
        calls = entry.tool_calls
        self.open_calls = {call.tool_call_id: CallState(call) for call in calls}
        if self._approval_requested:
            for call_id, state in self.open_calls.items():
                state.approval_requested = call_id in self._approval_requested
        self.calls += len(calls)
        self.has_calls = bool(calls)
        if entry.stop_reason == "malformed_call" and not calls:
            self.failed_rounds += 1

    def _request_approval(self, entry: ApprovalRequestedEntry) -> None:
        self._approval_requested.update(entry.tool_call_ids)
        for call_id in entry.tool_call_ids:
            if open_call := self.open_calls.get(call_id):
                open_call.approval_requested = True

    def _resulted(self, entry: ToolCallResultsEntry) -> None:
        self.ended = why_ended(entry) if entry.metadata is not None else ""
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


def why_ended(entry: HistoryEntry) -> str:
    """Why a turn was ended with this entry, if it was."""
    metadata = entry.metadata
    return str(metadata.extra.get("ended", "")) if metadata is not None and metadata.extra else ""


def is_question(entry: HistoryEntry) -> bool:
    """Whether an entry is an input that begins a turn; what an operator adds in mid-turn does not."""
    return isinstance(entry, ModelInputEntry) and entry.channel not in ("system", "developer")


def state_of(call: ToolCallRequest, entries: Iterable[HistoryEntry]) -> CallState:
    """How a call stands that is not open in the last turn."""
    turn, state = Turn(), CallState(call)
    turn.open_calls[call.tool_call_id] = state
    for entry in entries:
        if isinstance(entry, ToolCallResultsEntry):
            for result in entry.results:
                if result.tool_call_id == call.tool_call_id:
                    state.result, state.is_answered = result, True
        elif isinstance(entry, _CALL_MARKS):
            turn.after(entry)
    return state


def last_own_instruction(history: AgentHistory) -> SetSystemInstructionEntry | None:
    """The last system instruction that was set for the conversation and not for one of its agents."""
    for entry in reversed(history.snapshot().effective):
        if isinstance(entry, SetSystemInstructionEntry):
            source = entry.metadata.source if entry.metadata else ""
            if not source.startswith(AGENT_SOURCE):
                return entry
    return None


def _last_beginning(effective: Sequence[HistoryEntry]) -> int:
    """Where the last question stands that found every call answered."""
    question: int | None = None
    answered: set[str] = set()
    for index in range(len(effective) - 1, -1, -1):
        entry = effective[index]
        if question is None:
            question = index if is_question(entry) else None
        elif isinstance(entry, ToolCallResultsEntry):
            answered.update(result.tool_call_id for result in entry.results)
        elif isinstance(entry, ModelOutputEntry):
            if all(call.tool_call_id in answered for call in entry.tool_calls):
                return question
            question = None
            answered.clear()
    return question or 0
