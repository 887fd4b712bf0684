"""Turns as neutral messages, for the formats that are lists of messages.

A turn has all its results or is the last one, so each is repaired by itself: repairs and losses are reported by turn.
The system text comes before the first message, and again before the answer that first saw another one.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from antiphon.history import ModelOutputEntry, Origin
from antiphon.parts import Text, ToolCallResult
from antiphon.providers.rendering import messages_of
from antiphon.repair import repair
from antiphon.wire.loss import Loss
from antiphon.wire.request import Message, ModelRequest
from antiphon_devtools.trajectories.selection import Trajectory, TrajectoryTurn

_TARGET = Origin(format="openai-chat")


class TurnMessages(Struct, frozen=True):
    """The messages of one turn, legal in sequence, and the reports about them."""

    turn: TrajectoryTurn
    messages: tuple[Message, ...]
    notes: tuple[str, ...]


def messages_by_turn(trajectory: Trajectory) -> Iterator[TurnMessages]:
    """The messages of a trajectory, turn by turn. The last one ends with what the model wrote."""
    system = ""
    for index, turn in enumerate(trajectory.turns):
        messages: list[Message] = []
        losses: list[Loss] = []
        for position, step in enumerate(turn.steps):
            if step.system != system and (position == 0 or isinstance(step.entry, ModelOutputEntry)):
                system = step.system
                messages.append(Message("system", (Text(system),)))
            written, lost = messages_of(step.entry, _TARGET, len(messages))
            messages += written
            losses += lost
        repaired, actions = repair(ModelRequest(messages=tuple(messages)), _TARGET.format, is_logged=False)
        kept = repaired.messages
        notes = [*turn.notes, *(f"repaired {action}" for action in actions), *(f"lost {loss}" for loss in losses)]
        notes += _changed_calls(turn)
        if index == len(trajectory.turns) - 1:
            kept = _until_last_answer(kept)
            if omitted := repaired.messages[len(kept) :]:
                notes += _omitted(omitted)
        yield TurnMessages(turn, kept, tuple(notes))


def _until_last_answer(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    end = next((index + 1 for index in range(len(messages) - 1, -1, -1) if messages[index].role == "assistant"), 0)
    return messages[:end]


def _omitted(messages: tuple[Message, ...]) -> Iterator[str]:
    for message in messages:
        is_result = any(isinstance(part, ToolCallResult) for part in message.parts)
        what = "results" if is_result else f"{message.role} message"
        yield f"left out the last {what}: an example ends with what the model wrote"


def _changed_calls(turn: TrajectoryTurn) -> Iterator[str]:
    for call_id, decision in turn.decisions.items():
        if decision.decision == "edit":
            yield f"lost the arguments a person gave call {call_id}: exported as the model wrote it"
