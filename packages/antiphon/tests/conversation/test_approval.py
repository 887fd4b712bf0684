"""Calls that wait for a person: suspended on disk, decided in another process, and run once."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from antiphon.conversation import ApprovalNeeded, Conversation, LoopEvent, LoopFinished, ToolLoop
from antiphon.errors import ConversationError
from antiphon.history import (
    AgentHistory,
    HumanDecisionEntry,
    ModelInputEntry,
    ModelOutputEntry,
    ToolCallResultsEntry,
    ToolCallStartedEntry,
)
from antiphon.parts import Text, ToolCallRequest, ToolExecutionStatus
from antiphon.providers.scripted import ScriptedAnswer, ScriptedModel, call
from antiphon.tools import Hook, Tool, tool
from antiphon.tools.call_runner import NOT_RUN, UNKNOWN_OUTCOME
from support.planned_turns import Source, drained, last_reason, refusals, results_in


class Office:
    """Tools that pay, and what was paid."""

    def __init__(self) -> None:
        self.paid: list[tuple[str, int]] = []
        self.looked = 0

    def tools(self, approval: bool | Callable[[dict[str, Any]], bool] = True) -> list[Tool]:
        @tool(needs_approval=approval)
        def pay(to: str, amount: int) -> str:
            "Pays a person."
            self.paid.append((to, amount))
            return f"paid {amount} to {to}"

        @tool(effect="read")
        def balance() -> str:
            "What is left."
            self.looked += 1
            return "100 left"

        return [pay, balance]


BATCH: ScriptedAnswer = [
    "I pay them.",
    call("pay", to="Ada", amount=5),
    call("balance"),
    call("pay", to="Bob", amount=7),
]


class Desk:
    """One store, opened again by every process that comes along."""

    def __init__(self, path: Path, office: Office) -> None:
        self._path = path
        self._office = office

    def play(self, model: ScriptedModel, act: Callable[[ToolLoop], Any], words: str = "") -> Any:
        resume = "last" if self._path.exists() else None
        chat = Conversation(model, tools=self._office.tools(), store=self._path, resume=resume)
        with chat:
            loop = ToolLoop(chat)
            if words:
                asyncio.run(drained(loop, words))
            done = act(loop)
            assert refusals(chat.history.snapshot()) == []
            return done


@pytest.fixture
def office() -> Office:
    return Office()


@pytest.fixture
def desk(tmp_path: Path, office: Office) -> Desk:
    """A desk on which a turn waits: two payments are undecided, the balance was looked up."""
    desk = Desk(tmp_path / "chats.db", office)

    def look(loop: ToolLoop) -> None:
        assert [request.tool_name for request in loop.pending] == ["pay", "pay"]
        assert loop.chat.by_role("tool") == ()

    desk.play(ScriptedModel(BATCH), look, "Pay.")
    assert (office.paid, office.looked) == ([], 1), "what needs no approval ran before"
    return desk


def resumed(loop: ToolLoop) -> list[LoopEvent]:
    return asyncio.run(drained(loop))


def test_a_suspended_turn_names_its_pending_calls(office: Office) -> None:
    chat = Conversation(ScriptedModel(BATCH), tools=office.tools())
    events = asyncio.run(drained(ToolLoop(chat), "Pay."))
    needed, finished = events[-2:]
    assert isinstance(needed, ApprovalNeeded)
    assert [request.parse_arguments()["to"] for request in needed.calls] == ["Ada", "Bob"]
    assert isinstance(finished, LoopFinished)
    assert finished.reason == "approval"


def test_another_process_sees_pending_calls_and_asking_again_is_idempotent(desk: Desk, office: Office) -> None:
    def look(loop: ToolLoop) -> None:
        version = loop.chat.history.version
        for _ in range(2):
            events = resumed(loop)
            assert last_reason(events) == "approval"
            assert isinstance(events[0], ApprovalNeeded)
        assert [request.parse_arguments() for request in loop.pending] == [
            {"to": "Ada", "amount": 5},
            {"to": "Bob", "amount": 7},
        ]
        assert loop.chat.history.version == version

    desk.play(ScriptedModel(), look)
    assert office.looked == 1, "what ran is not run again"


def test_approve_deny_and_edit_each_in_a_process_of_its_own(desk: Desk, office: Office) -> None:
    def decide_first(loop: ToolLoop) -> None:
        first, _ = loop.pending
        loop.edit(first.tool_call_id, {"to": "Ada", "amount": 3}, "too much")
        assert last_reason(resumed(loop)) == "approval", "one is still undecided"
        assert len(loop.pending) == 1

    def decide_second(loop: ToolLoop) -> None:
        (second,) = loop.pending
        loop.deny(second.tool_call_id, "Bob left")

    def resume_turn(loop: ToolLoop) -> None:
        assert loop.pending == ()
        assert last_reason(resumed(loop)) == "answered"
        paid, balance, denied = results_in(loop.chat.history.entries).values()
        assert "paid 3 to Ada" in paid
        assert "A person changed the arguments" in paid
        assert '"amount":3' in paid
        assert balance == "100 left"
        assert denied == f"{NOT_RUN}a person denied it: Bob left."
        assert len(loop.chat.by_role("tool")) == 1

    desk.play(ScriptedModel(), decide_first)
    assert office.paid == [("Ada", 3)]
    desk.play(ScriptedModel(), decide_second)
    desk.play(ScriptedModel("Ada has 3, Bob nothing."), resume_turn)
    assert office.paid == [("Ada", 3)]
    assert office.looked == 1


def test_a_crash_between_decision_and_run_and_one_in_the_run(desk: Desk, office: Office) -> None:
    def approve(loop: ToolLoop) -> None:
        for request in loop.pending:
            loop.approve(request.tool_call_id)

    desk.play(ScriptedModel(), approve)
    assert office.paid == []

    def crash_in_first(loop: ToolLoop) -> None:
        first = next(iter(loop.chat.turn.open_calls))
        loop.chat.history.append(ToolCallStartedEntry("pay", first))

    desk.play(ScriptedModel(), crash_in_first)
    events = desk.play(ScriptedModel("One is not sure."), resumed)
    assert last_reason(events) == "answered"
    assert office.paid == [("Bob", 7)], "the one that may have run does not run again; the other does"

    def result_texts(loop: ToolLoop) -> list[str]:
        return list(results_in(loop.chat.history.entries).values())

    assert desk.play(ScriptedModel(), result_texts) == [UNKNOWN_OUTCOME, "100 left", "paid 7 to Bob"]


def test_denying_a_call_that_had_begun_where_it_needed_no_approval() -> None:
    @tool(effect="idempotent", needs_approval=True)
    def put(text: str) -> str:
        "Puts it."
        return "put"

    chat = Conversation(ScriptedModel("It is not known."), tools=[put])
    chat.history.append(ModelInputEntry((Text("Put it."),)))
    chat.history.append(ModelOutputEntry((call("put", text="x"),)))
    (begun,) = chat.turn.open_calls
    chat.history.append(ToolCallStartedEntry("put", begun))
    loop = ToolLoop(chat)
    assert last_reason(resumed(loop)) == "approval", "it may be repeated, and a person must allow that here"
    loop.deny(begun, "not again")
    assert last_reason(resumed(loop)) == "answered"
    (entry,) = [entry for entry in chat.history.entries if isinstance(entry, ToolCallResultsEntry)]
    assert entry.results[0].status is ToolExecutionStatus.FAILED, "the log must not say that it was not run"
    assert entry.results[0].result_markdown == f"{UNKNOWN_OUTCOME} Now a person denied it: not again."


def test_a_new_message_instead_closes_the_calls_honestly(desk: Desk, office: Office) -> None:
    def speak(loop: ToolLoop) -> None:
        first, _ = loop.pending
        loop.deny(first.tool_call_id, "not now")
        events = asyncio.run(drained(loop, "Never mind. Hello!"))
        assert last_reason(events) == "answered"
        ada, balance, bob = results_in(loop.chat.history.entries).values()
        assert ada == f"{NOT_RUN}a person denied it: not now."
        assert balance == "100 left", "the result is reported"
        assert bob == f"{NOT_RUN}the conversation went on without it."
        assert loop.pending == ()

    desk.play(ScriptedModel("Hello."), speak)
    assert office.paid == []


def test_a_wrong_decision_is_refused_and_not_written(desk: Desk) -> None:
    def decide(loop: ToolLoop) -> None:
        first, second = loop.pending
        balance = next(name for name, state in loop.chat.turn.open_calls.items() if state.call.tool_name == "balance")
        version = loop.chat.history.version
        wrong: list[tuple[Callable[[], None], str]] = [
            (lambda: loop.approve("call_of_nobody"), f"pending calls: {first.tool_call_id}, {second.tool_call_id}"),
            (lambda: loop.deny(balance), "is not pending approval"),
            (lambda: loop.edit(first.tool_call_id, "{"), "cannot be given these arguments: .*not valid JSON"),
            (lambda: loop.edit(first.tool_call_id, "[]"), "must be a JSON object"),
            (lambda: loop.edit(first.tool_call_id, {"to": object()}), "cannot be given these arguments"),
        ]
        for act, why in wrong:
            with pytest.raises(ConversationError, match=why):
                act()
        assert loop.chat.history.version == version
        loop.approve(first.tool_call_id, "fine")
        loop.approve(first.tool_call_id)  # a queue delivers twice
        with pytest.raises(ConversationError, match=rf"was decided already \(approve, entry {version + 1}\)"):
            loop.deny(first.tool_call_id)
        assert loop.chat.history.version == version + 1

    desk.play(ScriptedModel(), decide)


def test_a_decision_without_a_pending_call_raises() -> None:
    chat = Conversation(ScriptedModel("Hello."), tools=Office().tools())
    loop = ToolLoop(chat)
    loop.run_sync("Hi.")
    with pytest.raises(ConversationError, match="pending calls: none"):
        loop.approve("call_1")


def test_approval_by_the_arguments(office: Office) -> None:
    model = ScriptedModel([call("pay", to="Ada", amount=5), call("pay", to="Bob", amount=50)], "Done.")
    chat = Conversation(model, tools=office.tools(lambda arguments: bool(arguments["amount"] > 10)))
    loop = ToolLoop(chat)
    result = loop.run_sync("Pay.")
    assert office.paid == [("Ada", 5)]
    assert [request.parse_arguments()["to"] for request in result.pending] == ["Bob"]
    loop.approve(result.pending[0].tool_call_id)
    assert loop.run_sync().reason == "answered"
    assert office.paid == [("Ada", 5), ("Bob", 50)]


def test_a_question_that_fails_is_answered_with_a_person(office: Office) -> None:
    chat = Conversation(
        ScriptedModel(call("pay", to="Ada", amount=5)), tools=office.tools(lambda arguments: arguments["nothing"])
    )
    assert ToolLoop(chat).run_sync("Pay.").reason == "approval"
    assert office.paid == []


NESTED = '{"to": ' + "[" * 100_000 + "]" * 100_000 + "}"

UNREADABLE = [
    ToolCallRequest("pay", "a", "Ada", freeform=True),
    ToolCallRequest("pay", "a", ""),
    ToolCallRequest("pay", "a", '{"to": '),
    ToolCallRequest("pay", "a", "[1]"),
    ToolCallRequest("pay", "a", '{"unknown": 1}'),
    ToolCallRequest("pay", "a", NESTED),
]


def small(arguments: dict[str, Any]) -> bool:
    return bool(arguments["amount"] > 10)


@pytest.mark.parametrize("approval", [True, small])
@pytest.mark.parametrize("request_", UNREADABLE, ids=["freeform", "empty", "cut", "list", "other", "nested"])
def test_no_person_is_asked_about_arguments_that_the_tool_refuses(
    office: Office, request_: ToolCallRequest, approval: bool | Callable[[dict[str, Any]], bool]
) -> None:
    chat = Conversation(ScriptedModel(request_, "Done."), tools=office.tools(approval))
    assert ToolLoop(chat).run_sync("Pay.").reason == "answered"
    assert office.paid == []
    (results,) = [entry for entry in chat.history.entries if isinstance(entry, ToolCallResultsEntry)]
    assert "pay" in results.results[0].result_markdown, "the model reads what is wrong with its arguments"
    assert results.results[0].status is ToolExecutionStatus.FAILED


class Change(Hook):
    """Changes the amount of every payment."""

    def __init__(self, amount: int) -> None:
        self.amount = amount

    def before_tool(self, call: ToolCallRequest, tool: Tool | None) -> ToolCallRequest:
        assert tool is not None
        return structs.replace(call, arguments=json.dumps({**call.parse_arguments(), "amount": self.amount}))


def started(chat: Conversation) -> list[ToolCallStartedEntry]:
    return [entry for entry in chat.history.entries if isinstance(entry, ToolCallStartedEntry)]


@pytest.mark.parametrize("decision", ["approve", "edit"])
def test_a_hook_cannot_change_what_a_person_approved(office: Office, decision: str) -> None:
    chat = Conversation(
        ScriptedModel(call("pay", to="Ada", amount=5), "Done."), tools=office.tools(), hooks=[Change(9999)]
    )
    loop = ToolLoop(chat)
    (waiting,) = loop.run_sync("Pay.").pending
    if decision == "approve":
        loop.approve(waiting.tool_call_id)
    else:
        loop.edit(waiting.tool_call_id, {"to": "Ada", "amount": 6})
    assert loop.run_sync().reason == "answered"
    assert office.paid == []
    (results,) = [entry for entry in chat.history.entries if isinstance(entry, ToolCallResultsEntry)]
    assert "a person approved this call, and a hook changed its arguments" in results.results[0].result_markdown


def test_a_hook_that_leaves_an_approved_call_as_it_is_runs_around_it(office: Office) -> None:
    chat = Conversation(
        ScriptedModel(call("pay", to="Ada", amount=5), "Done."), tools=office.tools(), hooks=[Change(5)]
    )
    loop = ToolLoop(chat)
    loop.approve(loop.run_sync("Pay.").pending[0].tool_call_id)
    assert loop.run_sync().reason == "answered"
    assert office.paid == [("Ada", 5)]


def test_a_hook_cannot_make_a_call_that_needs_approval_of_one_that_does_not(office: Office) -> None:
    model = ScriptedModel(call("pay", to="Ada", amount=5), "Done.")
    chat = Conversation(model, tools=office.tools(small), hooks=[Change(50)])
    assert ToolLoop(chat).run_sync("Pay.").reason == "answered"
    assert office.paid == []


def test_the_log_has_the_arguments_that_a_hook_gave_to_a_call(office: Office) -> None:
    model = ScriptedModel(call("pay", to="Ada", amount=5), call("pay", to="Ada", amount=7), "Done.")
    chat = Conversation(model, tools=office.tools(False), hooks=[Change(7)])
    ToolLoop(chat).run_sync("Pay.")
    assert office.paid == [("Ada", 7), ("Ada", 7)]
    changed, unchanged = started(chat)
    asked = [call for entry in chat.history.entries if isinstance(entry, ModelOutputEntry) for call in entry.tool_calls]
    assert json.loads(changed.arguments or "") == {"to": "Ada", "amount": 7}
    assert unchanged.arguments is None
    for entry, text in ((changed, changed.arguments or ""), (unchanged, asked[1].arguments)):
        assert entry.metadata is not None
        assert entry.metadata.argument_digest == "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def test_a_free_form_call_runs_once_it_is_approved() -> None:
    ran: list[str] = []

    @tool(needs_approval=True)
    def shell(command: str) -> str:
        "Runs a command."
        ran.append(command)
        return "done"

    chat = Conversation(ScriptedModel(ToolCallRequest("shell", "a", "rm -r x", freeform=True), "Ok."), tools=[shell])
    loop = ToolLoop(chat)
    (waiting,) = loop.run_sync("Go.").pending
    assert ran == []
    loop.edit(waiting.tool_call_id, "ls")
    assert loop.run_sync().reason == "answered"
    assert ran == ["ls"]


def test_a_call_written_into_the_text_waits_for_a_person(office: Office) -> None:
    text = '<tool_call>{"name": "pay", "arguments": {"to": "Ada", "amount": 5}}</tool_call>'
    chat = Conversation(ScriptedModel(text, "Done."), tools=office.tools(), embedded_calls=True)
    loop = ToolLoop(chat)
    assert loop.run_sync("Pay.").reason == "approval"
    assert office.paid == []
    loop.approve(loop.pending[0].tool_call_id)
    assert loop.run_sync().reason == "answered"
    assert office.paid == [("Ada", 5)]


def test_arguments_nested_too_deeply_are_refused_as_an_edit(desk: Desk) -> None:
    def decide(loop: ToolLoop) -> None:
        deep: dict[str, Any] = {}
        for _ in range(100_000):
            deep = {"to": deep}
        for arguments in (deep, NESTED):
            with pytest.raises(ConversationError, match="cannot be given these arguments"):
                loop.edit(loop.pending[0].tool_call_id, arguments)

    desk.play(ScriptedModel(), decide)


def test_edited_arguments_are_validated_as_any_others(office: Office) -> None:
    chat = Conversation(ScriptedModel(call("pay", to="Ada", amount=5), "Hm."), tools=office.tools())
    loop = ToolLoop(chat)
    (request,) = loop.run_sync("Pay.").pending
    loop.edit(request.tool_call_id, '{"to": "Ada", "amount": "lots"}')
    assert loop.run_sync().reason == "answered"
    assert office.paid == []
    assert "amount" in results_in(chat.history.entries)[request.tool_call_id]


def test_each_decision_is_in_the_log() -> None:
    history = AgentHistory()
    chat = Conversation(ScriptedModel(call("pay", to="Ada", amount=5)), tools=Office().tools(), history=history)
    loop = ToolLoop(chat)
    (request,) = loop.run_sync("Pay.").pending
    loop.edit(request.tool_call_id, {"to": "Ada", "amount": 1}, "a little")
    decision = history.entries[-1]
    assert isinstance(decision, HumanDecisionEntry)
    assert (decision.decision, decision.reason, decision.arguments) == ("edit", "a little", '{"to":"Ada","amount":1}')


def test_a_suspended_turn_is_not_running(office: Office) -> None:
    async def run() -> None:
        loop = ToolLoop(Conversation(ScriptedModel(BATCH), tools=office.tools()))
        await drained(loop, "Pay.")
        assert not await loop.interrupt()
        assert len(loop.pending) == 2, "so there is nothing to interrupt"

    asyncio.run(run())


def test_tools_of_a_source_wait_for_another_process_too(tmp_path: Path, office: Office) -> None:
    async def run(model: ScriptedModel, *words: str, approve: bool = False) -> str:
        resume = None if words else "last"
        async with Conversation(
            model, tools=[Source(*office.tools())], store=tmp_path / "chats.db", resume=resume
        ) as chat:
            loop = ToolLoop(chat)
            if approve:
                loop.approve(next(iter(chat.turn.open_calls)))
            return last_reason(await drained(loop, *words))

    assert asyncio.run(run(ScriptedModel(call("pay", to="Ada", amount=5)), "Pay.")) == "approval"
    assert asyncio.run(run(ScriptedModel())) == "approval"
    assert asyncio.run(run(ScriptedModel("Paid."), approve=True)) == "answered"
    assert office.paid == [("Ada", 5)]
