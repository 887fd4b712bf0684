"""The tokens of an agent that works as a tool count for the conversation that called it."""

from __future__ import annotations

import asyncio
from decimal import Decimal

import pytest

from antiphon.context.model_usage import model_calls_of
from antiphon.conversation import Agent, Conversation, ToolLoop
from antiphon.conversation.turn import rounds_of
from antiphon.parts import Text, TokenUsage
from antiphon.prices import spend_of
from antiphon.providers.scripted import ScriptedModel, call
from antiphon.tools import tool
from antiphon.wire.output import ModelOutput


def answer(*parts: object, tokens: int) -> ModelOutput:
    return ModelOutput(
        parts=tuple(Text(part) if isinstance(part, str) else part for part in parts),  # type: ignore[misc]
        usage=TokenUsage(tokens, 0),
    )


def asked(tokens: int, *agents: Agent) -> Conversation:
    model = ScriptedModel(
        answer(*(call(f"ask_{agent.name}", request="Go.") for agent in agents), tokens=10), answer("Done.", tokens=20)
    )
    return Conversation(model, tools=[agent.as_tool(max_tokens=tokens) for agent in agents])


def test_tokens_of_agents_count_in_the_turn_the_round_and_the_conversation() -> None:
    agents = [Agent(name, model=ScriptedModel(answer("Found.", tokens=100))) for name in ("one", "two")]
    chat = asked(1000, *agents)
    result = ToolLoop(chat).run_sync("Go.")
    assert (result.text, result.usage.total, chat.usage.total) == ("Done.", 230, 230)
    rounds = [one for one in rounds_of(chat.history.snapshot()) if one.number]
    assert [one.usage.total for one in rounds] == [210, 20]


def test_tokens_of_an_agent_of_an_agent_count_once() -> None:
    inner = Agent("inner", model=ScriptedModel(answer("Found.", tokens=100)))
    working = ScriptedModel(answer(call("ask_inner", request="Go."), tokens=3), answer("Here.", tokens=4))
    chat = asked(1000, Agent("outer", model=working, tools=[inner.as_tool()]))
    assert ToolLoop(chat).run_sync("Go.").usage.total == 137


def test_tokens_of_agents_count_for_the_limit_of_the_turn() -> None:
    chat = asked(1000, Agent("one", model=ScriptedModel(answer("Found.", tokens=100))))
    result = ToolLoop(chat, max_tokens=50).run_sync("Go.")
    assert result.reason == "token_budget"


def test_tokens_of_an_agent_that_was_interrupted_are_kept() -> None:
    async def run() -> int:
        started = asyncio.Event()

        @tool(effect="read")
        async def wait() -> str:
            "Waits."
            started.set()
            await asyncio.Event().wait()
            return "never"

        agent = Agent("one", model=ScriptedModel(answer(call("wait"), tokens=100)), tools=[wait])
        chat = asked(1000, agent)
        turn = asyncio.create_task(ToolLoop(chat).run("Go."))
        await asyncio.wait_for(started.wait(), 30)
        turn.cancel()
        with pytest.raises(asyncio.CancelledError):
            await turn
        return chat.usage.total

    assert asyncio.run(run()) == 110


def test_the_cost_of_an_agent_is_that_of_its_own_model() -> None:
    """Each call is priced by itself: the tier of a price depends on the size of one call."""
    provider = ScriptedModel(answer("Found.", tokens=1_000_000), name="anthropic")
    asking = ScriptedModel(answer(call("ask_one", request="Go."), tokens=10), answer("Done.", tokens=20))
    agent_tool = Agent("one", model="claude-haiku-4-5").as_tool(provider=provider)
    chat = Conversation(asking, tools=[agent_tool])
    ToolLoop(chat).run_sync("Go.")
    spend = spend_of(chat.history.entries)
    assert spend.by_model == {"anthropic/claude-haiku-4-5": Decimal(1)}
    assert spend.unpriced_calls == 2, "the scripted model has no price"
    calls = [one for entry in chat.history.entries for one in model_calls_of(entry)]
    assert [one.usage.total for one in calls if one.usage] == [10, 1_000_000, 20]
