"""Which entries belong to which round, derived from the log (seed 000's tracing of iterations).

A turn begins with a question, a round with the model's output and what was written for it before: the live screen that was
shown, the calls that need approval. What else stands before
the first output of a turn belongs to round 0 of that turn; what stands before the first question belongs to turn 0.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from antiphon.conversation.turn import Turn, why_ended
from antiphon.history import (
    AgentHistorySnapshot,
    ApprovalRequestedEntry,
    HistoryEntry,
    LiveContextInjectedEntry,
    ModelOutputEntry,
    TokenUsage,
    ToolCallResultsEntry,
)
from antiphon.parts import ToolExecutionStatus


class Round(Struct, frozen=True, kw_only=True):
    """One round of one turn. `entries` are sequence numbers; `ended` says why the turn ended here, if not by an answer."""

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


def rounds_of(snapshot: AgentHistorySnapshot, *, effective: bool = True) -> list[Round]:
    """The rounds of a history, oldest first; with `effective=False`, those that were rolled back too."""
    rounds: list[Round] = []
    gathered: list[HistoryEntry] = []
    standing = Turn()
    turn = number = 0
    for entry in snapshot.effective if effective else snapshot.entries:
        before, standing = standing, standing.after(entry)
        is_new_turn = standing is not before
        if is_new_turn or isinstance(entry, ModelOutputEntry):
            shown_to_it = _shown_to(entry, gathered)
            if gathered:
                rounds.append(_round(turn, number, gathered))
            turn, number = (turn + 1, 0) if is_new_turn else (turn, number + 1)
            gathered = shown_to_it
        gathered.append(entry)
    if gathered:
        rounds.append(_round(turn, number, gathered))
    return rounds


def _shown_to(entry: HistoryEntry, gathered: list[HistoryEntry]) -> list[HistoryEntry]:
    """What was written for this very output stands before it, and belongs to it."""
    belonging: list[HistoryEntry] = []
    if isinstance(entry, ModelOutputEntry):
        calls = {call.tool_call_id for call in entry.tool_calls}
        while len(gathered) > 1 and _belongs_to(gathered[-1], calls):
            belonging.insert(0, gathered.pop())
    return belonging


def _belongs_to(entry: HistoryEntry, calls: set[str]) -> bool:
    if isinstance(entry, ApprovalRequestedEntry):
        return not calls.isdisjoint(entry.tool_call_ids)
    return isinstance(entry, LiveContextInjectedEntry)


def _round(turn: int, number: int, entries: Iterable[HistoryEntry]) -> Round:
    model = agent = ended = ""
    calls: tuple[str, ...] = ()
    failed = 0
    seconds = 0.0
    usage = TokenUsage()
    numbers: list[int] = []
    for entry in entries:
        numbers.append(entry.sequence_number)
        if entry.metadata is not None and entry.metadata.duration:
            seconds += entry.metadata.duration
        ended = why_ended(entry) or ended
        if isinstance(entry, ModelOutputEntry):
            calls = tuple(call.tool_name for call in entry.tool_calls)
            if entry.origin:
                model = "/".join(filter(None, (entry.origin.provider, entry.origin.model)))
            if entry.metadata:
                agent = entry.metadata.source.removeprefix("agent:")
                usage = entry.metadata.usage or usage
        elif isinstance(entry, ToolCallResultsEntry):
            failed += sum(result.status is not ToolExecutionStatus.SUCCESS for result in entry.results)
    return Round(
        turn=turn,
        number=number,
        entries=tuple(numbers),
        model=model,
        agent=agent,
        calls=calls,
        failed_calls=failed,
        seconds=seconds,
        usage=usage,
        ended=ended,
    )
