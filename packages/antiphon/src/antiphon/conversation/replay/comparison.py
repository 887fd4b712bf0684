"""`compare`: conversations that begin the same and then differ, step by step beside each other.

A step is one call of a model and the tool calls it made. Steps of one turn and round are in one row; the first conversation is
the original. Everything is read from the logs: answers, calls, tokens, how long the model took, and the cost by the price table.
What a log does not have is None, never 0. `replay_run.py` makes such conversations; a branch or a fork can be compared as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import takewhile
from typing import Literal, TypeAlias

from msgspec import Struct, structs

from antiphon.conversation.replay.recorded_results import call_key, served_calls
from antiphon.conversation.turn import Turn, TurnIndex, end_reason, rounds_of, starts_turn
from antiphon.errors import ConversationError
from antiphon.history import (
    AgentHistory,
    AgentHistorySnapshot,
    DebugLogEntry,
    HistoryEntry,
    ModelInputEntry,
    ModelOutputEntry,
    ToolCallResultsEntry,
)
from antiphon.parts import TokenUsage, ToolCallRequest, ToolCallResult, text_of
from antiphon.prices import spend_of

REPLAY_NOTE = "replay"
"""In the metadata of the note at the start of a replay: which conversation it is of, from which step, with which model."""
REPLAY_OF = "replay_of"
"""In the metadata of an input that was sent again: the number of the entry it is a copy of."""

CallSource: TypeAlias = Literal["run", "log", ""]
"""Where the result of a call is from; empty as long as there is none."""


class StepCall(Struct, frozen=True, kw_only=True):
    """One tool call of a step. `status` is that of its result, `waiting` for a person, or `open`."""

    tool_name: str
    arguments: str
    status: str
    source: CallSource = ""
    result: str = ""


class Step(Struct, frozen=True, kw_only=True):
    """One call of a model. `seconds` is how long it took, `cost` in US dollars; None if that is not known.

    `is_same` is whether its calls are those of the original's step.
    """

    entry: int
    model: str
    answer: str
    calls: tuple[StepCall, ...] = ()
    usage: TokenUsage | None = None
    cost: Decimal | None = None
    seconds: float | None = None
    ended: str = ""
    is_same: bool = True


class Branch(Struct, frozen=True, kw_only=True):
    """One of the compared conversations, after the point where they differ: its totals, and why it stopped, if it did.

    `stopped` is `waiting` (calls need a person), `failed`, `unfinished`, or empty. A total is None if a part of it is unknown.
    """

    conversation: str
    models: tuple[str, ...]
    rounds: int
    calls: int
    usage: TokenUsage | None = None
    cost: Decimal | None = None
    seconds: float | None = None
    stopped: Literal["", "waiting", "failed", "unfinished"] = ""
    detail: str = ""


class ComparedStep(Struct, frozen=True, kw_only=True):
    """The steps of one round, one for each branch; None where a branch has none. `question` is the message of the turn."""

    turn: int
    round: int
    question: str
    steps: tuple[Step | None, ...]


class Comparison(Struct, frozen=True, kw_only=True):
    """Conversations beside each other: `at` is the last entry they share, `branches` has the original first."""

    at: int
    branches: tuple[Branch, ...]
    steps: tuple[ComparedStep, ...]


def compare(*histories: AgentHistory) -> Comparison:
    """The conversations, step by step after the point where they differ; the original is the first one.

    Raises `ConversationError` if there are fewer than two, or if they do not begin the same.
    """
    if len(histories) < 2:
        raise ConversationError("nothing to compare: give the original and at least one other conversation")
    snapshots = [history.snapshot() for history in histories]
    at = min(_shared_length(snapshots[0], other) for other in snapshots[1:])
    if not at:
        raise ConversationError("these conversations have nothing in common: compare a conversation and a fork of it")
    places = TurnIndex()
    places.update(snapshots[0])
    found = [
        _steps_of(snapshot, at, places if replayed_conversation(snapshot, at) == histories[0].id else None)
        for snapshot in snapshots
    ]
    questions = [_questions(snapshot, places if index == 0 else None) for index, snapshot in enumerate(snapshots)]
    rows = []
    for turn, round_number in sorted({place for steps in found for place in steps}):
        original = found[0].get((turn, round_number))
        rows.append(
            ComparedStep(
                turn=turn,
                round=round_number,
                question=next((known[turn] for known in questions if turn in known), ""),
                steps=tuple(_mark_difference(steps.get((turn, round_number)), original) for steps in found),
            )
        )
    branches = tuple(
        _branch(history.id, snapshot, at, list(steps.values()))
        for history, snapshot, steps in zip(histories, snapshots, found, strict=True)
    )
    return Comparison(at=at, branches=branches, steps=tuple(rows))


def _shared_length(one: AgentHistorySnapshot, other: AgentHistorySnapshot) -> int:
    """How many entries both logs begin with. A copy keeps number and time, so these decide."""
    pairs = zip(one.entries, other.entries, strict=False)
    return sum(1 for _ in takewhile(lambda pair: _is_copy(*pair), pairs))


def _is_copy(first: HistoryEntry, second: HistoryEntry) -> bool:
    return first.timestamp == second.timestamp and type(first) is type(second)


_Places: TypeAlias = "dict[tuple[int, int], Step]"


def replayed_conversation(snapshot: AgentHistorySnapshot, at: int = 0) -> str | None:
    """The conversation that the last replay after entry `at` is of; None if there is none."""
    for entry in reversed(snapshot.entries.since(at)):
        if isinstance(facts := entry.extra(REPLAY_NOTE), dict):
            return str(facts.get("conversation", ""))
    return None


def _steps_of(snapshot: AgentHistorySnapshot, at: int, original: TurnIndex | None) -> _Places:
    """The steps after entry `at` by turn and round; of a replay of `original`, in the numbers that has."""
    entries = {entry.sequence_number: entry for entry in snapshot.effective}
    served = served_calls(snapshot.entries.since(at))
    waiting = {call.tool_call_id for call in Turn.of(snapshot).pending}
    turns: dict[int, int] = {}
    steps: _Places = {}
    for each in rounds_of(snapshot):
        members = [entries[number] for number in each.entries]
        for entry in members:
            if entry.sequence_number > at and original is not None and (copied := copied_from(entry)) is not None:
                turns[each.turn] = original[copied].turn
        output = next((entry for entry in members if isinstance(entry, ModelOutputEntry)), None)
        if output is None or output.sequence_number <= at:
            continue
        turn = turns.get(each.turn, each.turn)
        number = each.number
        while (turn, number) in steps:  # a message that was added in the middle of a turn started one of its own
            number += 1
        steps[turn, number] = _step(output, members, served, waiting)
    return steps


def copied_from(entry: HistoryEntry) -> int | None:
    """The number of the entry that a replay sent again as this one, if it is such a copy."""
    copied = entry.extra(REPLAY_OF)
    return copied if isinstance(copied, int) else None


def _step(
    output: ModelOutputEntry, members: Sequence[HistoryEntry], served: Mapping[str, int], waiting: set[str]
) -> Step:
    results = {
        result.tool_call_id: result
        for entry in members
        if isinstance(entry, ToolCallResultsEntry)
        for result in entry.results
    }
    metadata = output.metadata
    spend = spend_of(members)
    origin = output.origin
    return Step(
        entry=output.sequence_number,
        model=origin.name if origin else "",
        answer=output.response_markdown,
        calls=tuple(
            _call(call, results.get(call.tool_call_id), served, is_waiting=call.tool_call_id in waiting)
            for call in output.tool_calls
        ),
        usage=metadata.usage if metadata else None,
        cost=None if spend.unpriced_calls else spend.total,
        seconds=metadata.duration if metadata else None,
        ended=next((reason for entry in members if (reason := end_reason(entry))), ""),
    )


def _call(
    call: ToolCallRequest, result: ToolCallResult | None, served: Mapping[str, int], *, is_waiting: bool
) -> StepCall:
    if result is None:
        return StepCall(tool_name=call.tool_name, arguments=call.arguments, status="waiting" if is_waiting else "open")
    return StepCall(
        tool_name=call.tool_name,
        arguments=call.arguments,
        status=str(result.status),
        source="log" if call.tool_call_id in served else "run",
        result=result.result_markdown,
    )


def _mark_difference(step: Step | None, original: Step | None) -> Step | None:
    """The step with whether its calls are those of the original."""
    if step is None or step is original:
        return step
    same = original is not None and sorted(_keys(step.calls)) == sorted(_keys(original.calls))
    return step if same else structs.replace(step, is_same=False)


def _keys(calls: Iterable[StepCall]) -> Iterator[tuple[str, bytes]]:
    return (call_key(ToolCallRequest(call.tool_name, "", call.arguments)) for call in calls)


def _questions(snapshot: AgentHistorySnapshot, places: TurnIndex | None) -> dict[int, str]:
    """The text of the message that began each turn."""
    if places is None:
        places = TurnIndex()
        places.update(snapshot)
    found: dict[int, str] = {}
    for entry in snapshot.effective:
        if isinstance(entry, ModelInputEntry) and starts_turn(entry):
            found.setdefault(places[entry.sequence_number].turn, text_of(entry.content))
    return found


def _branch(conversation: str, snapshot: AgentHistorySnapshot, at: int, steps: Sequence[Step]) -> Branch:
    turn = Turn.of(snapshot)
    stopped: Literal["", "waiting", "failed", "unfinished"] = ""
    detail = ""
    if waiting := turn.pending:
        stopped, detail = "waiting", ", ".join(dict.fromkeys(call.tool_name for call in waiting))
    elif turn.open_calls or turn.needs_model:
        detail = _last_failure(snapshot, at)
        stopped = "failed" if detail else "unfinished"
    costs = [step.cost for step in steps]
    times = [step.seconds for step in steps]
    usages = [step.usage for step in steps]
    return Branch(
        conversation=conversation,
        models=tuple(dict.fromkeys(step.model for step in steps if step.model)),
        rounds=len(steps),
        calls=sum(len(step.calls) for step in steps),
        usage=None if None in usages or not steps else sum((one for one in usages if one), TokenUsage()),
        cost=None if None in costs or not steps else sum((one for one in costs if one), Decimal(0)),
        seconds=None if None in times or not steps else sum(one for one in times if one),
        stopped=stopped,
        detail=detail,
    )


def _last_failure(snapshot: AgentHistorySnapshot, at: int) -> str:
    """The error of the last model call, if it failed."""
    for entry in reversed(snapshot.entries.since(at)):
        if isinstance(entry, ModelOutputEntry | DebugLogEntry) and entry.metadata is not None and entry.metadata.error:
            return entry.metadata.error
        if isinstance(entry, ModelOutputEntry | ModelInputEntry):
            return ""
    return ""
