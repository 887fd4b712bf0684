"""Several agents over one history: hand-offs and routes; the active agent follows from the log (as tools: test_agent_as_tool)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from antiphon.conversation import (
    Agent,
    AgentSwitched,
    Conversation,
    LoopEvent,
    RoundStarted,
    ToolLoop,
    hand_offs,
    rounds_of,
)
from antiphon.conversation.turn import end_reason
from antiphon.errors import ConversationError
from antiphon.history import AgentHistory, ContextEntry, ContextEntryRole, ModelOutputEntry
from antiphon.history.transcript import entry_lines
from antiphon.parts import text_of
from antiphon.providers.call import ProviderCallOptions
from antiphon.providers.scripted import FunctionModel, ScriptedAnswer, ScriptedModel, call
from antiphon.tools import tool
from support.planned_turns import Killed, MortalJournal, Source, World, drained, last_reason, refusals, results_in


def system_of(context: Sequence[ContextEntry]) -> str:
    return "".join(text_of(entry.content) for entry in context if entry.role is ContextEntryRole.SYSTEM)


def tool_names(options: ProviderCallOptions) -> list[str]:
    return [definition.name for definition in options.tools]


@tool(effect="read")
def dig() -> str:
    "Finds something."
    return "a bone"


@tool(effect="read")
def sing() -> str:
    "Sings."
    return "la la"


def switches(events: Sequence[LoopEvent]) -> list[tuple[str, str]]:
    return [(event.before, event.after) for event in events if isinstance(event, AgentSwitched)]


def test_hand_offs_are_agents_or_their_names() -> None:
    billing = Agent("billing", "You know invoices.")
    assert Agent("desk", hand_offs=[billing, "travel"]).hand_offs == ("billing", "travel")
    model = ScriptedModel(call("hand_off_to_billing", reason="an invoice"), "Paid.")
    loop = ToolLoop(Conversation(model), agents=[Agent("desk", hand_offs=[billing])])
    assert loop.run_sync("Is it paid?").text == "Paid."
    for wrong in ("billing", [5]):
        with pytest.raises(ConversationError, match="expected a list of agents or of their names"):
            Agent("desk", hand_offs=wrong)  # type: ignore[arg-type]
    with pytest.raises(ConversationError, match="desk may hand off to travel, which is not among the agents"):
        ToolLoop(Conversation(model), agents=[Agent("desk", hand_offs=[billing, "travel"])])
    with pytest.raises(ConversationError, match="two agents have the same name"):
        ToolLoop(Conversation(model), agents=[Agent("desk", hand_offs=[billing]), Agent("billing")])


def test_a_hand_off_switches_instructions_model_and_tools() -> None:
    digger_model = ScriptedModel(call("hand_off_to_singer", reason="it wants a song"), name="digger-model")
    singer_model = ScriptedModel(call("sing"), "La la.", name="singer-model")
    digger = Agent("digger", "You dig.", model=digger_model, tools=[dig], hand_offs=["singer"])
    singer = Agent("singer", "You sing.", model=singer_model, tools=[sing], description="Knows songs.")
    chat = Conversation(ScriptedModel(name="default"), tools=World().tools()[:1])
    events = asyncio.run(drained(ToolLoop(chat, agents=[digger, singer]), "Sing!"))
    assert last_reason(events) == "answered"
    assert switches(events) == [("digger", "singer")]
    assert [event.model for event in events if isinstance(event, RoundStarted)] == [
        "digger-model",
        "singer-model",
        "singer-model",
    ]
    first, (second, third) = digger_model.calls[0], singer_model.calls
    assert (system_of(first.context), system_of(second.context)) == ("You dig.", "You sing.")
    assert tool_names(first.options) == ["look", "dig", "hand_off_to_singer"]
    assert tool_names(second.options) == tool_names(third.options) == ["look", "sing"]
    assert "it wants a song" in next(iter(results_in(chat.history.entries).values()))
    (hand_off,) = hand_offs(chat.history)
    assert (hand_off.before, hand_off.after, hand_off.reason) == ("digger", "singer", "it wants a song")
    entry = chat.history.entries[hand_off.sequence_number - 1]
    assert list(entry_lines(entry)) == ["digger handed off to singer: it wants a song", "You sing."]
    assert (chat.model, chat.client.name) == ("default", "default"), "the conversation's own model is as it was"
    assert refusals(chat.history.snapshot()) == []


def test_the_model_may_be_switched_where_agents_have_none() -> None:
    chat = Conversation(ScriptedModel("One.", name="first"))
    agents = [Agent("only", "You are alone.")]
    assert ToolLoop(chat, agents=agents).run_sync("Hi.").text == "One."
    loop = ToolLoop(chat, agents=agents)
    chat.model = ScriptedModel("Two.", name="second")
    assert loop.run_sync("Hi.").text == "Two."


def test_an_agent_without_a_model_uses_the_conversations_model() -> None:
    bold = Agent("bold", model=ScriptedModel(call("hand_off_to_meek"), name="bold-model"), hand_offs=["meek"])
    meek = Agent("meek")
    chat = Conversation(ScriptedModel("I am meek.", "Still meek.", name="own"))
    assert ToolLoop(chat, agents=[bold, meek]).run_sync("Go.").text == "I am meek."
    assert ToolLoop(chat, agents=[bold, meek]).run_sync("Go.").text == "Still meek."


def pair(*digger_turns: ScriptedAnswer, singer_turns: Sequence[ScriptedAnswer] = ()) -> list[Agent]:
    digger = Agent("digger", "You dig.", model=ScriptedModel(*digger_turns), tools=[dig], hand_offs=["singer"])
    singer = Agent("singer", "You sing.", model=ScriptedModel(*singer_turns), tools=[sing], hand_offs=["digger"])
    return [digger, singer]


def test_another_process_continues_with_the_right_agent(tmp_path: Path) -> None:
    path = tmp_path / "chats.db"
    with Conversation(ScriptedModel(), store=path) as chat:
        ToolLoop(chat, agents=pair(call("hand_off_to_singer"), singer_turns=["La."])).run_sync("Sing!")
    with Conversation(ScriptedModel(), store=path, resume="last") as chat:
        events = asyncio.run(drained(ToolLoop(chat, agents=pair(singer_turns=["La la."])), "More!"))
        assert events[-1].text == "La la."  # type: ignore[union-attr]
        assert switches(events) == []
        assert chat.history.system_instruction == "You sing."
        assert [entry.kind for entry in chat.history.entries].count("set_system_instruction") == 2


def test_a_hand_off_continues_after_a_kill_at_any_entry() -> None:
    """The calls of an answer are run by the agent that gave it, even if another has taken over before the kill."""
    batch: ScriptedAnswer = [call("dig"), call("hand_off_to_singer"), call("dig")]

    def play(history: AgentHistory) -> Conversation:
        spoken = sum(entry.kind == "model_output" for entry in history.effective)
        agents = pair(*([batch] if spoken == 0 else []), singer_turns=["La."] if spoken < 2 else [])
        chat = Conversation(ScriptedModel(), history=history)
        asyncio.run(drained(ToolLoop(chat, agents=agents), *([] if history.version else ["Go."])))
        return chat

    whole = MortalJournal(10_000)
    play(AgentHistory(journal=whole))
    for limit in range(1, len(whole.kept)):
        journal = MortalJournal(limit)
        with pytest.raises(Killed):
            play(AgentHistory(journal=journal))
        if not any(entry.kind == "model_input" for entry in journal.kept):
            continue
        chat = play(AgentHistory(journal.kept))
        assert chat.turn.output is not None
        assert chat.turn.output.response_markdown == "La."
        assert list(results_in(chat.history.effective).values()) == ["a bone", "singer takes over.", "a bone"]
        assert refusals(chat.history.snapshot()) == []


def test_an_agent_cannot_call_the_tools_of_another() -> None:
    agents = pair(call("sing"), "I cannot sing.")
    chat = Conversation(ScriptedModel())
    ToolLoop(chat, agents=agents).run_sync("Sing!")
    assert "Unknown tool" in next(iter(results_in(chat.history.entries).values()))


def test_a_rollback_past_a_hand_off_restores_the_earlier_agent() -> None:
    chat = Conversation(ScriptedModel())
    agents = pair("I dig.", call("hand_off_to_singer"), "I dig again.", singer_turns=["La."])
    loop = ToolLoop(chat, agents=agents)
    loop.run_sync("Hi.")
    version = chat.history.version
    loop.run_sync("Sing!")
    chat.history.rollback(version)
    events = asyncio.run(drained(loop, "Dig!"))
    assert events[-1].text == "I dig again."  # type: ignore[union-attr]
    assert chat.history.system_instruction == "You dig."


def test_a_missing_agent_is_replaced_by_the_first() -> None:
    chat = Conversation(ScriptedModel())
    ToolLoop(chat, agents=pair(call("hand_off_to_singer"), singer_turns=["La."])).run_sync("Sing!")
    only = Agent("baker", "You bake.", model=ScriptedModel("Bread."))
    assert ToolLoop(chat, agents=[only]).run_sync("And now?").text == "Bread."
    assert chat.history.system_instruction == "You bake."


def test_an_approval_is_matched_with_the_agent_that_asked() -> None:
    asked: list[str] = []

    @tool(needs_approval=True)
    def blast() -> str:
        asked.append("blast")
        return "boom"

    miner = Agent(
        "miner", model=ScriptedModel([call("blast"), call("hand_off_to_poet")]), tools=[blast], hand_offs=["poet"]
    )
    poet = Agent("poet", model=ScriptedModel("Boom, it said."))
    chat = Conversation(ScriptedModel())
    loop = ToolLoop(chat, agents=[miner, poet])
    (request,) = loop.run_sync("Go.").pending
    loop.approve(request.tool_call_id)
    assert loop.run_sync().text == "Boom, it said."
    assert asked == ["blast"]


def test_tools_of_a_source_are_the_agents_too() -> None:
    async def run() -> Conversation:
        async with Conversation(ScriptedModel(), tools=[Source(dig)]) as chat:
            await ToolLoop(chat, agents=[Agent("digger", model=ScriptedModel(call("dig"), "A bone."))]).run("Dig!")
            return chat

    assert list(results_in(asyncio.run(run()).history.entries).values()) == ["a bone"]


# Routes.


def test_planner_executor_and_reviewer_in_one_history() -> None:
    planner = Agent("planner", "Plan.", model=ScriptedModel("1. Dig.", name="plan-model"))
    executor = Agent("executor", "Do it.", model=ScriptedModel(call("dig"), "Dug: a bone.", "Dug twice."), tools=[dig])
    reviewer = Agent("reviewer", "Judge.", model=ScriptedModel("Dig once more.", "Good.", name="review-model"))
    asked: list[tuple[str, str]] = []

    def route(agent: Agent, answer: str) -> str | tuple[str, str] | None:
        asked.append((agent.name, answer))
        if agent.name == "planner":
            return "executor", "Do what the plan says."
        if agent.name == "executor":
            return "reviewer"
        return None if answer == "Good." else ("executor", answer)

    chat = Conversation(ScriptedModel())
    loop = ToolLoop(chat, agents=[planner, executor, reviewer], route=route)
    events = asyncio.run(drained(loop, "Find a bone."))
    assert last_reason(events) == "answered"
    assert asked == [
        ("planner", "1. Dig."),
        ("executor", "Dug: a bone."),
        ("reviewer", "Dig once more."),
        ("executor", "Dug twice."),
        ("reviewer", "Good."),
    ]
    assert switches(events) == [
        ("planner", "executor"),
        ("executor", "reviewer"),
        ("reviewer", "executor"),
        ("executor", "reviewer"),
    ]
    assert [(one.before, one.after) for one in hand_offs(chat.history)] == switches(events)
    spoke = [one.agent for one in rounds_of(chat.history.snapshot()) if one.number]
    assert spoke == ["planner", "executor", "executor", "reviewer", "executor", "reviewer"]
    inputs = [text_of(entry.content) for entry in chat.by_role("user")]
    assert inputs == [
        "Find a bone.",
        "Do what the plan says.",
        "Continue from here.",
        "Dig once more.",
        "Continue from here.",
    ]
    assert refusals(chat.history.snapshot()) == []


def endless(context: Sequence[ContextEntry], options: ProviderCallOptions) -> ScriptedAnswer:
    return "You go."


@pytest.mark.parametrize("most", [0, 1, 4])
def test_an_endless_route_is_bounded_and_reported(most: int) -> None:
    def agents() -> list[Agent]:
        return [Agent(name, model=FunctionModel(endless)) for name in ("ping", "pong")]

    def route(agent: Agent, answer: str) -> str:
        return "pong" if agent.name == "ping" else "ping"

    chat = Conversation(ScriptedModel())
    events = asyncio.run(drained(ToolLoop(chat, agents=agents(), route=route, max_hand_offs=most), "Go."))
    assert last_reason(events) == "max_hand_offs"
    assert len(switches(events)) == most
    assert len(chat.by_role("assistant")) == most + 1
    assert any(end_reason(entry) == "max_hand_offs" for entry in chat.history.entries), "the history says why"
    version = chat.history.version
    again = ToolLoop(chat, agents=agents(), route=route, max_hand_offs=most)
    assert last_reason(asyncio.run(drained(again))) == "max_hand_offs", "what is over stays over"
    assert chat.history.version == version
    assert last_reason(asyncio.run(drained(again, "Again."))) == "max_hand_offs", "a new question has its own bound"
    assert len(chat.by_role("assistant")) == 2 * (most + 1)


def test_a_route_hands_off_no_more_when_the_run_has_come_to_its_limit() -> None:
    chat = Conversation(ScriptedModel(*["word " * 50] * 10))
    agents = [Agent("one", "Write."), Agent("two", "Write.")]
    other = {"one": "two", "two": "one"}
    loop = ToolLoop(chat, agents=agents, route=lambda agent, answer: other[agent.name], max_tokens=150)
    result = loop.run_sync("Go.")
    assert (result.reason, result.text) == ("token_budget", "word " * 50), "the answer that is there is the result"
    outputs = [entry for entry in chat.history.entries if isinstance(entry, ModelOutputEntry)]
    used = [entry.metadata.usage.total for entry in outputs if entry.metadata and entry.metadata.usage]
    assert sum(used[:-1]) < 150 <= sum(used), "only the call that crossed the limit is over it"


def test_a_route_to_an_unknown_agent_raises() -> None:
    chat = Conversation(ScriptedModel())
    agents = [Agent("only", model=ScriptedModel("Done."))]
    with pytest.raises(ConversationError, match="the route returned 'unknown'; the agents are only"):
        ToolLoop(chat, agents=agents, route=lambda agent, answer: "unknown").run_sync("Go.")

    def wrong(agent: Agent, answer: str) -> Any:
        return 5

    with pytest.raises(ConversationError, match="the route returned 5; the agents are only"):
        ToolLoop(chat, agents=agents, route=wrong).run_sync()
    assert refusals(chat.history.snapshot()) == []
    assert ToolLoop(chat, agents=agents, route=lambda agent, answer: None).run_sync().text == "Done."


def test_a_route_continues_after_a_kill_at_any_entry() -> None:
    def play(history: AgentHistory) -> Conversation:
        def introduce(context: Sequence[ContextEntry], options: ProviderCallOptions) -> ScriptedAnswer:
            return f"I am the {system_of(context)}."

        agents = [Agent(name, name, model=FunctionModel(introduce)) for name in ("planner", "executor", "reviewer")]
        following = {"planner": "executor", "executor": "reviewer"}
        chat = Conversation(ScriptedModel(), history=history)
        loop = ToolLoop(chat, agents=agents, route=lambda agent, answer: following.get(agent.name))
        asyncio.run(drained(loop, *([] if history.version else ["Go."])))
        return chat

    whole = MortalJournal(10_000)
    expected = [text_of(entry.content) for entry in play(AgentHistory(journal=whole)).by_role("assistant")]
    assert expected == ["I am the planner.", "I am the executor.", "I am the reviewer."]
    for limit in range(1, len(whole.kept)):
        journal = MortalJournal(limit)
        with pytest.raises(Killed):
            play(AgentHistory(journal=journal))
        chat = play(AgentHistory(journal.kept))
        assert [text_of(entry.content) for entry in chat.by_role("assistant")] == expected


# Mistakes.


def test_wrong_agents_are_refused() -> None:
    chat = Conversation(ScriptedModel())
    for name in ("", "two words", "a/b"):
        with pytest.raises(ConversationError, match="use letters, digits, _ and -"):
            Agent(name)
    with pytest.raises(ConversationError, match="two agents have the same name"):
        ToolLoop(chat, agents=[Agent("twin"), Agent("twin")])
    with pytest.raises(ConversationError, match="agent a may hand off to b, which is not among the agents"):
        ToolLoop(chat, agents=[Agent("a", hand_offs=["b"])])
    assert chat.history.version == 0


def test_the_sources_of_agents_are_closed_with_the_conversation() -> None:
    digging, singing = Source(dig), Source(sing)

    async def main() -> None:
        model = FunctionModel(lambda *_: "Nothing to do.")
        agents = [Agent("digger", tools=[digging]), Agent("singer", tools=[singing, digging])]
        async with Conversation(model) as chat:
            for name in ("digger", "singer"):
                loop = ToolLoop(chat, agents=agents, route=lambda _, __, name=name: name, max_hand_offs=1)  # type: ignore[misc]
                await loop.run("Do something.")
            assert (digging.is_open, singing.is_open) == (True, True)

    asyncio.run(main())
    assert (digging.is_open, singing.is_open) == (False, False)


def test_hand_off_result_follows_the_language_of_the_conversation() -> None:
    singer = Agent("singer", "Sing.", model=ScriptedModel("啦", "la"))
    dog = Agent("dog", "Bark.", model=ScriptedModel(call("hand_off_to_singer", reason="唱歌")), hand_offs=[singer])
    chat = Conversation()
    ToolLoop(chat, agents=[dog, singer]).run_sync("请唱歌")
    assert list(results_in(chat.history.effective).values()) == ["由 singer 接手。原因：唱歌"]
