"""Agents as tools: whose model, instructions and settings they use, and that several work at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from antiphon.conversation import (
    Agent,
    Conversation,
    ToolLoop,
)
from antiphon.errors import CallRefused
from antiphon.history import ContextEntry, ContextEntryRole, ToolCallResultsEntry
from antiphon.parts import ToolCallRequest, ToolExecutionStatus, text_of
from antiphon.providers.call import ProviderCallOptions
from antiphon.providers.scripted import FunctionModel, ScriptedAnswer, ScriptedModel, call
from antiphon.tools import Hook, HookedModelCall, Settled, Tool, ToolContext, ToolExecutor, ToolRegistry, tool
from antiphon.wire.delta import Finished
from support.planned_turns import results_in


def system_of(context: Sequence[ContextEntry]) -> str:
    return "".join(text_of(entry.content) for entry in context if entry.role is ContextEntryRole.SYSTEM)


@tool(effect="read")
def dig() -> str:
    "Finds something."
    return "a bone"


def test_an_agent_as_a_tool() -> None:
    helper_model = ScriptedModel(call("dig"), "I found a bone.")
    helper = Agent("helper", "You dig for others.", model=helper_model, tools=[dig], description="Digs for you.")
    chat = Conversation(
        ScriptedModel(call("ask_helper", request="Find something."), "Here it is."), tools=[helper.as_tool()]
    )
    assert ToolLoop(chat).run_sync("Find something.").text == "Here it is."
    assert list(results_in(chat.history.entries).values()) == ["I found a bone."]
    assert system_of(helper_model.calls[0].context) == "You dig for others."
    assert chat.registry.definitions[0].description == "Digs for you."
    assert len(chat.messages) == 4, "its own thread is its own"


def test_an_agent_without_instructions_keeps_those_of_the_conversation() -> None:
    seen: list[tuple[str, str]] = []

    def answer(context: Sequence[ContextEntry], options: ProviderCallOptions) -> ScriptedAnswer:
        seen.append((options.model, system_of(context)))
        calls = {"first": "hand_off_to_second", "second": "hand_off_to_third"}
        return call(calls[options.model]) if options.model in calls else "Done."

    names = ["first", "second", "third"]
    texts = {"second": "You sing."}
    agents = [
        Agent(name, texts.get(name, ""), model=FunctionModel(answer, name=name), hand_offs=names[index + 1 :][:1])
        for index, name in enumerate(names)
    ]
    chat = Conversation(ScriptedModel(), system="Be kind.")
    assert ToolLoop(chat, agents=agents).run_sync("Go.").reason == "answered"
    assert seen == [("first", "Be kind."), ("second", "You sing."), ("third", "Be kind.")]
    chat.history.set_system_instruction("Be brief.")
    assert ToolLoop(chat, agents=agents).run_sync("Again.").reason == "answered"
    assert seen[-1] == ("third", "Be brief.")
    chat.clear()
    assert chat.history.system_instruction == "Be brief."


def test_an_agent_runs_its_calls_under_the_settings_of_the_conversation() -> None:
    outcomes: list[str] = []
    states: list[object] = []

    @tool
    def shout(context: ToolContext) -> str:
        "Shouts."
        states.append(context.state)
        return "a" * 1_000

    registry = ToolRegistry()
    executor = ToolExecutor(
        registry,
        state={"user": "Ada"},
        max_result_chars=200,
        on_call=lambda outcome: outcomes.append(outcome.tool_name),
        approval=lambda _, call: call.tool_name == "whisper",
    )

    @tool
    def whisper() -> str:
        "Whispers."
        return "psst"

    helper = Agent("helper", model=ScriptedModel(call("shout"), "I shouted."), tools=[shout])
    agent = Agent(
        "singer",
        model=ScriptedModel([call("shout"), call("ask_helper", request="Shout.")], call("whisper"), "Done."),
        tools=[shout, whisper, helper.as_tool()],
    )
    chat = Conversation(ScriptedModel(), tools=registry, executor=executor)
    loop = ToolLoop(chat, agents=[agent])
    result = loop.run_sync("Sing.")
    assert [pending.tool_name for pending in result.pending] == ["whisper"], "the policy holds for agents too"
    assert states == [{"user": "Ada"}] * 2
    assert sorted(outcomes) == ["ask_helper", "shout", "shout"]
    shouted = next(iter(results_in(chat.history.entries).values()))
    assert len(shouted) <= 200


@pytest.mark.parametrize("is_named", [True, False])
def test_an_agent_as_a_tool_asks_the_model_of_the_conversation(is_named: bool) -> None:
    asked: list[tuple[str, str]] = []

    def answer(context: Sequence[ContextEntry], options: ProviderCallOptions) -> ScriptedAnswer:
        asked.append((options.model, system_of(context)))
        is_helper = system_of(context) == "You help."
        has_results = any(entry.role is ContextEntryRole.TOOL_RESULT for entry in context)
        return "42" if is_helper else "It is 42." if has_results else call("ask_helper", request="How many?")

    model = FunctionModel(answer, name="ours")
    helper = Agent("helper", "You help.").as_tool()
    chat = (
        Conversation("some/model", provider=model, tools=[helper]) if is_named else Conversation(model, tools=[helper])
    )
    assert ToolLoop(chat).run_sync("How many?").text == "It is 42."
    name = "some/model" if is_named else "ours"
    assert asked == [(name, ""), (name, "You help."), (name, "")]


def test_an_agent_as_a_tool_reports_failures_and_pending_approvals() -> None:
    @tool(needs_approval=True)
    def blast() -> str:
        return "boom"

    miner = Agent("miner", model=ScriptedModel(call("blast")), tools=[blast])
    broken = Agent("broken", model=ScriptedModel())
    chat = Conversation(
        ScriptedModel([call("ask_miner", request="Go."), call("ask_broken", request="Go.")], "Neither worked."),
        tools=[miner.as_tool(), broken.as_tool()],
    )
    assert ToolLoop(chat).run_sync("Go.").reason == "answered"
    mined, was_broken = results_in(chat.history.entries).values()
    assert "blast needs a person's approval" in mined
    assert "ask_broken failed" in was_broken


def test_an_agent_as_a_tool_whose_model_call_is_refused_is_a_failed_call() -> None:
    class OnlyOuter(Hook):
        def before_model(self, call: HookedModelCall) -> None:
            if "helper" in call.model:
                raise CallRefused("no helpers today")

    helper = Agent("helper", model=ScriptedModel("42", name="helper-model"))
    model = ScriptedModel(call("ask_helper", request="How many?"), "I do not know.")
    chat = Conversation(model, tools=[helper.as_tool()], hooks=[OnlyOuter()])
    assert ToolLoop(chat).run_sync("How many?").text == "I do not know."
    (entry,) = [entry for entry in chat.history.entries if isinstance(entry, ToolCallResultsEntry)]
    assert entry.results[0].status is ToolExecutionStatus.FAILED
    assert entry.results[0].result_markdown == "helper stopped: no helpers today"


@tool
def later() -> Settled:
    "Comes from outside."
    return Settled.later()


@pytest.mark.parametrize(
    ("answers", "tools", "limits", "found"),
    [
        ([call("dig"), call("dig")], [dig], {"max_calls": 2}, "the tool calls of the run are used"),
        ([call("dig"), call("dig")], [dig], {"max_rounds": 1}, "all rounds of the turn are used"),
        ([[Finished("end")]], [], {}, "the model's last response has no text"),
        ([call("later")], [later], {}, "it waits for a result from outside"),
    ],
    ids=["calls", "rounds", "silent", "later"],
)
def test_an_agent_as_a_tool_that_gives_no_answer_is_a_failed_call(
    answers: list[Any], tools: list[Tool], limits: dict[str, int], found: str
) -> None:
    helper = Agent("helper", model=ScriptedModel(*answers), tools=tools)
    model = ScriptedModel(call("ask_helper", request="How many?"), "I do not know.")
    chat = Conversation(model, tools=[helper.as_tool(max_rounds=limits.get("max_rounds"))])
    assert ToolLoop(chat, max_calls=limits.get("max_calls")).run_sync("How many?").text == "I do not know."
    (entry,) = [entry for entry in chat.history.entries if isinstance(entry, ToolCallResultsEntry)]
    assert entry.results[0].status is ToolExecutionStatus.FAILED
    assert entry.results[0].result_markdown.startswith("helper stopped: ")
    assert found in entry.results[0].result_markdown


def meeting(places: int) -> Callable[[], Awaitable[None]]:
    """Waits until so many are there at the same time; fails after ten seconds."""
    there, all_there = 0, asyncio.Event()

    async def arrive() -> None:
        nonlocal there
        there += 1
        if there == places:
            all_there.set()
        await asyncio.wait_for(all_there.wait(), 10)

    return arrive


def test_agents_as_tools_work_at_the_same_time() -> None:
    arrive, seen = meeting(3), list[str]()

    class Seen(Hook):
        def before_tool(self, call: ToolCallRequest, tool: Tool | None) -> None:
            seen.append(call.tool_name)

    @tool(effect="read")
    async def meet(context: ToolContext[list[int]]) -> str:
        "Waits for the others."
        await arrive()
        context.state.append(context.round)
        return "met"

    names = ("one", "two", "three")
    workers = [Agent(name, model=ScriptedModel(call("meet"), f"{name} is done."), tools=[meet]) for name in names]
    model = ScriptedModel([call(f"ask_{name}", request="Go.") for name in names], "All are done.")
    state: list[int] = []
    chat = Conversation(model, tools=[worker.as_tool(max_rounds=2) for worker in workers], state=state, hooks=[Seen()])
    assert ToolLoop(chat).run_sync("Go.").text == "All are done."
    assert list(results_in(chat.history.entries).values()) == [f"{name} is done." for name in names]
    assert state == [1, 1, 1], "the agents share the state of the conversation"
    assert sorted(seen) == ["ask_one", "ask_three", "ask_two", "meet", "meet", "meet"], "and its hooks"


def test_loops_of_several_conversations_run_at_the_same_time(tmp_path: Path) -> None:
    async def run_all() -> list[str]:
        arrive = meeting(3)

        @tool(effect="read")
        async def meet() -> str:
            "Waits for the others."
            await arrive()
            return "met"

        chats = [
            Conversation(ScriptedModel(call("meet"), f"{number} is done."), tools=[meet], store=tmp_path / "chats.db")
            for number in range(3)
        ]
        results = await asyncio.gather(*(ToolLoop(chat).run("Go.") for chat in chats))
        for chat in chats:
            await chat.aclose()
        return [result.text for result in results]

    assert asyncio.run(run_all()) == ["0 is done.", "1 is done.", "2 is done."]
