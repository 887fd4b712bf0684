"""Asking the model of a conversation once, and running the calls of its answer."""

from __future__ import annotations

import asyncio

import pytest

from antiphon.conversation import Conversation, Decision, decide
from antiphon.errors import ApprovalPending
from antiphon.history import (
    ToolCallFinishedEntry,
    ToolCallStartedEntry,
)
from antiphon.parts import ToolCallRequest, ToolCallResult, ToolExecutionStatus
from antiphon.providers.call import ModelCallFailed
from antiphon.providers.scripted import ScriptedModel, call
from antiphon.tools import tool
from antiphon.tools.call_runner import UNKNOWN_OUTCOME
from antiphon.wire.delta import Failed, PartStarted
from antiphon.wire.output import ProviderError
from support.planned_turns import Source, World, refusals

CALL = ToolCallRequest("look", "call_1")


def test_one_call_of_a_model_appends_one_entry() -> None:
    model = ScriptedModel(["I look.", call("look")], "It rains.")
    chat = Conversation(model, tools=World().tools())
    chat.add("What is the weather?")
    first = asyncio.run(chat.call_model())
    assert first.sequence_number == chat.history.version == 2
    assert [request.tool_name for request in first.tool_calls] == ["look"]
    assert [definition.name for definition in model.calls[0].options.tools] == ["look", "put", "send", "trip"]
    results = asyncio.run(chat.execute_tool_calls())
    assert [result.status for result in results] == [ToolExecutionStatus.SUCCESS]
    second = asyncio.run(chat.call_model())
    assert second.response_markdown == "It rains."
    assert [entry.kind for entry in chat.history.entries] == [
        "model_input",
        "model_output",
        "tool_call_started",
        "tool_call_results",
        "model_output",
    ]


def test_calls_are_run_together_and_one_by_one() -> None:
    async def run() -> None:
        world = World()
        chat = Conversation(ScriptedModel([call("look"), call("trip"), call("nowhere")]), tools=world.tools())
        chat.add("Go.")
        first, *others = (await chat.call_model()).tool_calls
        assert (await chat.execute_tool_call(first)).result_markdown == f"done {first.tool_call_id}"
        assert list(chat.turn.open_calls) == [other.tool_call_id for other in others]
        tripped, unknown = await chat.execute_tool_calls()
        assert tripped.status is unknown.status is ToolExecutionStatus.FAILED
        assert "it tripped" in tripped.result_markdown
        assert "Unknown tool" in unknown.result_markdown
        assert await chat.execute_tool_calls() == [], "nothing is left to run"
        kinds = [entry.kind for entry in chat.history.entries]
        assert kinds.count("tool_call_results") == 2
        assert refusals(chat.history.snapshot()) == []

    asyncio.run(run())


def test_a_tool_call_that_finished_before_a_crash_is_not_run_again() -> None:
    world = World()
    chat = Conversation(ScriptedModel([call("look"), call("put")]), tools=world.tools())
    chat.add("Go.")
    first, second = asyncio.run(chat.call_model()).tool_calls
    chat.add(ToolCallFinishedEntry(ToolCallResult.of(first, "done before")))
    results = asyncio.run(chat.execute_tool_calls())
    assert [result.result_markdown for result in results] == ["done before", f"done {second.tool_call_id}"]
    assert list(world.began) == [second.tool_call_id]


def test_a_started_call_that_must_not_run_twice_is_not_run_again() -> None:
    world = World()
    chat = Conversation(ScriptedModel([call("send"), call("put")]), tools=world.tools())
    chat.add("Go.")
    send, put = asyncio.run(chat.call_model()).tool_calls
    for started in (send, put):
        chat.history.append(ToolCallStartedEntry(started.tool_name, started.tool_call_id))
    results = asyncio.run(chat.execute_tool_calls())
    assert [result.result_markdown for result in results] == [UNKNOWN_OUTCOME, f"done {put.tool_call_id}"]
    assert list(world.began) == [put.tool_call_id]
    assert refusals(chat.history.snapshot()) == []


def test_a_call_that_has_its_result_is_not_run_again() -> None:
    world = World()
    chat = Conversation(ScriptedModel([call("send"), call("look")], "Sent."), tools=world.tools())
    chat.add("Go.")
    calls = asyncio.run(chat.call_model()).tool_calls
    results = asyncio.run(chat.execute_tool_calls(calls))
    asyncio.run(chat.call_model())
    version = chat.history.version
    assert asyncio.run(chat.execute_tool_calls(calls)) == results
    assert chat.history.version == version
    assert world.began[calls[0].tool_call_id] == 1


def test_calls_of_an_answer_that_was_cut_off_are_not_run() -> None:
    world = World()
    model = ScriptedModel(
        [PartStarted(0, ToolCallRequest("send", "a", "{}")), Failed(ProviderError("away", "overloaded"))]
    )
    chat = Conversation(model, tools=world.tools())
    chat.add("Go.")
    with pytest.raises(ModelCallFailed):
        asyncio.run(chat.call_model())
    (result,) = asyncio.run(chat.execute_tool_calls())
    assert "was cut off" in result.result_markdown
    assert not world.began


def test_calls_that_need_a_person_wait_and_the_others_run() -> None:
    ran: list[str] = []

    @tool(needs_approval=True)
    def pay(to: str) -> str:
        "Pays a person."
        ran.append(to)
        return f"paid {to}"

    world = World()
    model = ScriptedModel([call("pay", to="Ada"), call("look"), call("pay", to="Bob")])
    chat = Conversation(model, tools=[pay, *world.tools()])
    chat.add("Go.")
    ada, look, bob = asyncio.run(chat.call_model()).tool_calls
    for _ in range(2):
        with pytest.raises(ApprovalPending, match=r"were not run: \S+ \(pay\), \S+ \(pay\); decide each") as raised:
            asyncio.run(chat.execute_tool_calls())
        assert raised.value.tool_call_ids == (ada.tool_call_id, bob.tool_call_id)
    assert (ran, list(world.began)) == ([], [look.tool_call_id])
    assert chat.by_role("tool") == ()
    decide(chat.history, Decision(tool_call_id=ada.tool_call_id, decision="edit", arguments={"to": "Eve"}))
    decide(chat.history, Decision(tool_call_id=bob.tool_call_id, decision="deny", reason="he left"))
    paid, seen, denied = asyncio.run(chat.execute_tool_calls())
    assert ran == ["Eve"]
    assert paid.result_markdown.endswith("paid Eve")
    assert "A person changed the arguments" in paid.result_markdown
    assert seen.result_markdown == f"done {look.tool_call_id}"
    assert "a person denied it: he left" in denied.result_markdown
    assert world.began[look.tool_call_id] == 1
    assert refusals(chat.history.snapshot()) == []


def test_tools_of_a_source_are_there_for_calls_that_came_before() -> None:
    async def run() -> ToolCallResult:
        async with Conversation(ScriptedModel(), tools=[Source(*World().tools())]) as chat:
            chat.add("Go.")
            chat.add(ToolCallRequest("look", "call_1"), role="assistant")
            (result,) = await chat.execute_tool_calls()
            return result

    assert asyncio.run(run()).result_markdown == "done call_1"


def test_calling_a_model_with_an_empty_history_is_allowed() -> None:
    chat = Conversation(ScriptedModel("Hello, who is there?"))
    assert asyncio.run(chat.call_model()).response_markdown == "Hello, who is there?"
