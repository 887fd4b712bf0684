"""Tools that say what became of their calls: declared, asked after a crash, and results that come from outside."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from antiphon.conversation import Conversation, Decision, LoopEvent, ToolCallFinished, ToolLoop, decide
from antiphon.errors import ConversationError, InvalidTool, ToolError
from antiphon.history import (
    AgentHistory,
    ModelInputEntry,
    ModelOutputEntry,
    SqliteStore,
    ToolCallFinishedEntry,
    ToolCallResultsEntry,
    ToolCallStartedEntry,
)
from antiphon.parts import Text, ToolCallRequest, ToolCallResult, ToolExecutionStatus
from antiphon.providers.scripted import ScriptedModel, call
from antiphon.tools import Hook, Settled, ToolContext, ToolExecutor, ToolRegistry, tool
from antiphon.tools.call_runner import NOT_COME, UNKNOWN_OUTCOME

CALL = ToolCallRequest("pay", "c1", '{"cents": 5}')


def interrupted(*decided: str, chat: Conversation) -> None:
    """Bring a conversation to where a crash left it: a call was started, and has no result."""
    history = chat.history
    history.append(ModelInputEntry.of("Pay."))
    history.append(ModelOutputEntry((CALL,)))
    for verb in decided:
        decide(history, Decision(tool_call_id="c1", decision=verb))  # type: ignore[arg-type]
    history.append(ToolCallStartedEntry("pay", "c1", f"{chat.key}:c1"))


def paying(settled: Any, seen: list[Any], **settings: Any) -> Any:
    def find(request: ToolCallRequest, context: ToolContext) -> Any:
        seen.append((request.arguments, context.idempotency_key))
        return settled

    @tool(effect="once", reconcile=find, **{"settle_seconds": 0, **settings})
    def pay(cents: int, context: ToolContext) -> str:
        "Pay."
        seen.append(context.idempotency_key)
        return f"paid {cents}"

    return pay


def result_of(chat: Conversation) -> ToolCallResult:
    (entry,) = [entry for entry in chat.history.entries if isinstance(entry, ToolCallResultsEntry)]
    return entry.results[0]


def test_a_reconciled_call_has_its_result_and_the_log_says_how_it_is_known() -> None:
    seen: list[Any] = []
    chat = Conversation(ScriptedModel("Thanks."), tools=[paying(Settled.done("paid, receipt 7"), seen)])
    interrupted(chat=chat)
    events: list[LoopEvent] = []
    asyncio.run(ToolLoop(chat).run(on_event=events.append, check=False))
    assert result_of(chat).result_markdown == "paid, receipt 7"
    assert seen == [('{"cents": 5}', f"{chat.key}:c1")]
    (finished,) = [entry for entry in chat.history.entries if isinstance(entry, ToolCallFinishedEntry)]
    assert finished.extra("reconciled") is True
    assert [event.result.result_markdown for event in events if isinstance(event, ToolCallFinished)] == [
        "paid, receipt 7"
    ]


def test_a_call_reconciled_as_not_done_runs_with_the_same_idempotency_key() -> None:
    seen: list[Any] = []
    chat = Conversation(ScriptedModel("Thanks."), tools=[paying(Settled.not_done(), seen)])
    interrupted("approve", chat=chat)
    ToolLoop(chat).run_sync()
    assert seen == [('{"cents": 5}', f"{chat.key}:c1"), f"{chat.key}:c1"]
    assert result_of(chat).result_markdown == "paid 5"


@pytest.mark.parametrize("settled", [Settled.unknown(), None, "yes"])
def test_without_an_answer_the_outcome_is_unknown(settled: Any, caplog: pytest.LogCaptureFixture) -> None:
    chat = Conversation(ScriptedModel("I see."), tools=[paying(settled, [])])
    interrupted(chat=chat)
    ToolLoop(chat).run_sync()
    assert result_of(chat).result_markdown == UNKNOWN_OUTCOME
    assert ("not Settled" in caplog.text) is not isinstance(settled, Settled)


def test_a_question_that_hangs_ends_with_the_timeout_of_the_tool() -> None:
    async def find(_: ToolCallRequest, __: ToolContext) -> Settled:
        await asyncio.sleep(60)
        return Settled.done()

    @tool(effect="once", reconcile=find, settle_seconds=0, timeout=0.05)
    def pay(cents: int) -> str:
        "Pay."
        return ""

    chat = Conversation(ScriptedModel("I see."), tools=[pay])
    interrupted(chat=chat)
    ToolLoop(chat).run_sync()
    assert result_of(chat).result_markdown == UNKNOWN_OUTCOME


def test_it_is_not_asked_before_its_time_and_not_about_what_was_denied() -> None:
    seen: list[Any] = []
    chat = Conversation(ScriptedModel("Thanks."), tools=[paying(Settled.done(), seen, settle_seconds=0.3)])
    interrupted(chat=chat)
    began = time.monotonic()
    ToolLoop(chat).run_sync()
    assert time.monotonic() - began > 0.2
    other: list[Any] = []
    denied = Conversation(ScriptedModel("I see."), tools=[paying(Settled.done(), other)])
    interrupted("deny", chat=denied)
    ToolLoop(denied).run_sync()
    assert other == []
    assert "a person denied it" in result_of(denied).result_markdown


def test_hooks_see_what_was_found_out() -> None:
    class Withhold(Hook):
        def after_tool(self, call: ToolCallRequest, result: ToolCallResult) -> None:
            raise ToolError("secret")

    chat = Conversation(ScriptedModel("I see."), tools=[paying(Settled.done("card 4711"), [])], hooks=[Withhold()])
    interrupted(chat=chat)
    ToolLoop(chat).run_sync()
    assert "withheld: secret" in result_of(chat).result_markdown


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"effect": "idempotent", "reconcile": print}, "reconcile is for effect='once'"),
        ({"reconcile": "find"}, "expected a function of call and context"),
        ({"settle_seconds": -1}, "settle_seconds=-1: must be a number of seconds"),
    ],
)
def test_declarations_that_cannot_be(settings: Any, problem: str) -> None:
    with pytest.raises(InvalidTool, match=problem):
        tool(name="pay", **settings)(lambda: None)


def ordering() -> Any:
    @tool
    def order(item: str) -> Settled:
        "Order."
        return Settled.later()

    return order


def test_a_result_from_outside_continues_the_run() -> None:
    model = ScriptedModel([call("order", item="a"), call("order", item="b")], "Both are here.")
    chat = Conversation(model, tools=[ordering()])
    loop = ToolLoop(chat)
    assert loop.run_sync("Order both.").reason == "waiting"
    first, second = chat.turn.open_calls
    chat.settle(second, ToolCallResult("", "", ToolExecutionStatus.FAILED, (Text("sold out"),)))
    assert loop.run_sync().reason == "waiting"
    chat.settle(first, {"parcel": 7})
    assert loop.run_sync().text == "Both are here."
    (entry,) = [entry for entry in chat.history.entries if isinstance(entry, ToolCallResultsEntry)]
    assert [(one.tool_call_id, one.status, one.result_markdown) for one in entry.results] == [
        (first, ToolExecutionStatus.SUCCESS, '{"parcel":7}'),
        (second, ToolExecutionStatus.FAILED, "sold out"),
    ]
    with pytest.raises(ConversationError, match="has a result already"):
        chat.settle(first, "again")


def test_a_result_of_a_call_that_is_not_open_is_refused(tmp_path: Path) -> None:
    """It was kept, and dropped with the next run; who brought it never knew."""
    model = ScriptedModel([call("order", item="a"), call("order", item="b")], "Both are here.")
    with SqliteStore(tmp_path / "chats.db") as store:
        chat = Conversation(model, tools=[ordering()], history=store.create())
        elsewhere = Conversation(history=store.open(chat.id))  # a webhook: it does not see what the run appends
        with pytest.raises(ConversationError, match=r"'call-9' is not open.*open calls: none"):
            elsewhere.settle("call-9", "here")
        assert ToolLoop(chat).run_sync("Order both.").reason == "waiting"
        first, second = chat.turn.open_calls
        names = rf"open calls: {first} \(order\), {second} \(order\)"
        with pytest.raises(ConversationError, match=f"call 'call-9' is not open.*{names}"):
            elsewhere.settle("call-9", "here")
        assert elsewhere.history.version == 0
        elsewhere.settle(first, "a is here")
        elsewhere.settle(second, "b is here")
        assert ToolLoop(chat).run_sync().text == "Both are here."
        with pytest.raises(ConversationError, match="has a result already"):
            elsewhere.settle(first, "again")
        assert not chat.history.inbox.items()


def test_a_result_that_is_faster_than_its_tool_is_not_lost() -> None:
    chat: Conversation

    @tool
    def order(context: ToolContext) -> Settled:
        "Order."
        chat.settle(context.tool_call_id, "here already")
        return Settled.later()

    chat = Conversation(ScriptedModel(call("order"), "Fine."), tools=[order])
    assert ToolLoop(chat).run_sync("Order it.").text == "Fine."
    assert result_of(chat).result_markdown == "here already"


def test_a_conversation_that_continues_without_the_result_says_so() -> None:
    chat = Conversation(ScriptedModel(call("order", item="a"), "As you like."), tools=[ordering()])
    ToolLoop(chat).run_sync("Order it.")
    ToolLoop(chat).run_sync("Never mind.")
    assert result_of(chat).result_markdown == NOT_COME


def test_a_tool_may_say_what_became_of_its_own_call() -> None:
    answers = iter([Settled.done("done"), Settled.not_done(), Settled.unknown(), Settled.later()])

    @tool
    def order() -> Settled:
        "Order."
        return next(answers)

    async def ask() -> list[str]:
        executor = ToolExecutor(ToolRegistry([order]))
        return [(await executor.execute([call("order")]))[0].result_markdown for _ in range(4)]

    assert asyncio.run(ask()) == [
        "done",
        "order did nothing.",
        "order cannot tell what it did; its outcome is unknown.",
        "The result of this call comes later.",
    ]


def test_the_log_of_a_waiting_call_is_read_back() -> None:
    chat = Conversation(ScriptedModel(call("order", item="a")), tools=[ordering()])
    ToolLoop(chat).run_sync("Order it.")
    again = Conversation(ScriptedModel("Fine."), tools=[ordering()], history=AgentHistory(chat.history.entries))
    assert ToolLoop(again).run_sync().reason == "waiting"
