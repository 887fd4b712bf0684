"""Tools that a person always allows: recorded in the log, one tool at a time, withdrawn by a rollback."""

from __future__ import annotations

import antiphon as ap
from antiphon.providers.scripted import call
from antiphon_chat.shared.permissions import allow_always, always_allowed, approval_policy


@ap.tool(needs_approval=True)
def book(to: str) -> str:
    "Book a flight."
    return f"booked: {to}"


@ap.tool(needs_approval=True)
def pay(sum: int) -> str:  # noqa: A002 - the name of an argument
    "Pay."
    return f"paid: {sum}"


def test_an_allowed_tool_runs_without_a_question_and_no_other_does() -> None:
    history = ap.AgentHistory()
    model = ap.ScriptedModel([call("book", to="Oslo"), call("pay", sum=3)], "Done.", call("book", to="Rome"))
    policy = approval_policy(history, asks_before_changes=False)
    chat = ap.Conversation(model, tools=[book, pay], history=history, approval=policy)
    version = history.version
    allow_always(history, "book")
    allow_always(history, "book")
    assert history.version == version + 1
    loop = ap.ToolLoop(chat)
    reply = loop.run_sync("Go.")
    assert reply.reason == "approval"
    assert [waiting.tool_name for waiting in loop.pending] == ["pay"]
    loop.approve(loop.pending[0].tool_call_id)
    assert loop.run_sync().reason == "answered"
    history.rollback(version)
    assert always_allowed(history.snapshot()) == frozenset()
    loop.run_sync("Again.")
    assert [waiting.tool_name for waiting in loop.pending] == ["book"]
