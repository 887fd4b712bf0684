"""A turn that nobody plays: which of its calls wait for a person, and how it is closed if it is not to be gone on with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from antiphon.conversation import Bounds, Conversation, Turn, pending_calls
from antiphon.conversation.turn_runner import Participants, TurnRunner
from antiphon.history import AgentHistory, HistoryStore
from antiphon.parts import ToolCallRequest

_SECONDS = 10.0


def mark_interrupted(history: AgentHistory) -> None:
    """Write down that the turn was interrupted, if it is not over."""
    _runner(history).finish_interrupted()


def interrupt_turn(store: HistoryStore, conversation: str, holder: str) -> None:
    """The same for a stored conversation, if it is nobody's business any more."""
    with _nobodys(store, conversation, holder) as history:
        if history is not None:
            mark_interrupted(history)


def close_open_calls(store: HistoryStore, conversation: str, holder: str) -> None:
    """Give calls that nobody will run any more a result that says so, before something new is asked."""
    if not Turn.of(store.open(conversation).snapshot()).open_calls:
        return
    with _nobodys(store, conversation, holder) as history:
        if history is not None:
            _runner(history).close_calls("the conversation went on without it")


@contextmanager
def _nobodys(store: HistoryStore, conversation: str, holder: str) -> Iterator[AgentHistory | None]:
    """The history of a conversation that nobody holds and that has no run which is not over; else None.

    It is held meanwhile, so nothing can be asked in it before we are done.
    """
    lease = store.claim(conversation, holder, _SECONDS)
    if lease is None:
        yield None
        return
    try:
        is_ours = all(run.is_over for run in store.runs.list(conversation=conversation, limit=1))
        yield store.open(conversation, lease=lease) if is_ours else None
    finally:
        store.release(lease)


def undecided(history: AgentHistory) -> tuple[ToolCallRequest, ...]:
    """The calls of a suspended turn that wait for a person."""
    turn = Turn.of(history.snapshot())
    if any(state.approval_requested for state in turn.open_calls.values()):
        return pending_calls(turn)
    # A turn that an older version suspended has no requests in its log; all that can run without a person have run.
    return tuple(
        state.call
        for state in turn.open_calls.values()
        if state.result is None and state.decision is None and state.started is None
    )


def _runner(history: AgentHistory) -> TurnRunner:
    return TurnRunner(Participants(Conversation(history=history)), Bounds(), lambda _: None)
