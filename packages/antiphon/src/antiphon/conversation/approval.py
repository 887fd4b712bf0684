"""Decisions of people on calls: the one place where they are recorded.

The calls that wait for one (`Turn.pending`) and the decisions are in the log and nowhere else, so any process can list and
decide: one that has the tools, and one that has not.

    for call in Turn.of(history.snapshot()).pending:
        decide(history, Decision(tool_call_id=call.tool_call_id, decision="approve"))

The call runs when the turn is resumed.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct, structs

from antiphon.conversation.turn import Turn
from antiphon.errors import ConversationError
from antiphon.history import AgentHistory, HumanDecisionEntry
from antiphon.tools.call_runner import ToolCallState

Verb: TypeAlias = Literal["approve", "deny", "edit"]

_VERBS = ("approve", "deny", "edit")


class Decision(Struct, frozen=True, kw_only=True):
    """What a person decided on a call. `arguments` are the new ones, for `edit` only: an object, or its JSON text."""

    tool_call_id: str
    decision: Verb
    reason: str = ""
    arguments: dict[str, Any] | str | None = None


def decide(history: AgentHistory, *decisions: Decision) -> tuple[HumanDecisionEntry, ...]:
    """Record decisions, all or none, and give the entries that were appended.

    Repeating a recorded decision changes nothing, because queues deliver twice. Contradicting one, deciding a call that is not
    open, or arguments that cannot be used raise `ConversationError`.
    """
    turn = Turn.of(history.snapshot())
    entries: dict[str, HumanDecisionEntry] = {}
    for each in decisions:
        entry = _entry_for(turn, each)
        known = entries.get(each.tool_call_id) or _known_decision(turn, each.tool_call_id)
        if known is None:
            entries[each.tool_call_id] = entry
        elif (known.decision, known.arguments) != (entry.decision, entry.arguments):
            where = f", entry {known.sequence_number}" if known.sequence_number else ""
            raise ConversationError(
                f"call {each.tool_call_id} was decided already ({known.decision}{where}); resume the turn to continue"
            )
    return tuple([history.append(entry) for entry in entries.values()])


def _known_decision(turn: Turn, tool_call_id: str) -> HumanDecisionEntry | None:
    state = turn.open_calls.get(tool_call_id)
    return state.decision if state is not None else None


def _entry_for(turn: Turn, decision: Decision) -> HumanDecisionEntry:
    """The entry of a decision that can be made."""
    if decision.decision not in _VERBS or (decision.decision == "edit") != (decision.arguments is not None):
        raise ConversationError(
            f"call {decision.tool_call_id}: a decision is 'approve', 'deny', or 'edit' with arguments, not "
            f"{decision.decision!r} with {'no ' if decision.arguments is None else ''}arguments"
        )
    state = turn.open_calls.get(decision.tool_call_id)
    if state is None or (state.decision is None and not _can_be_decided(state)):
        pending = ", ".join(call.tool_call_id for call in turn.pending) or "none"
        raise ConversationError(f"call {decision.tool_call_id!r} is not pending approval; pending calls: {pending}")
    arguments = None if decision.arguments is None else _arguments_text(state, decision.arguments)
    return HumanDecisionEntry(decision.tool_call_id, decision.decision, decision.reason, arguments)


def _can_be_decided(state: ToolCallState) -> bool:
    # A call without a recorded request can be decided too: turns that older versions suspended have none.
    return state.needs_approval or (state.started is None and state.result is None)


def _arguments_text(state: ToolCallState, arguments: dict[str, Any] | str) -> str:
    """The new arguments as JSON text (free text for a free-form call). They are validated when the call runs."""
    try:
        text = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()
        if not state.call.freeform:
            structs.replace(state.call, arguments=text).parse_arguments()
    except (TypeError, ValueError, RecursionError) as error:
        raise ConversationError(f"call {state.call.tool_call_id} cannot be given these arguments: {error}") from error
    return text
