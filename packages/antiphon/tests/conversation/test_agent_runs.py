"""`Agent.run`, `run_sync` and `stream`: an agent alone is a whole program."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import antiphon as ap
from antiphon.errors import ConversationError, TransportError
from antiphon.prices import PriceOverride, PriceTable
from antiphon.tools.registry import ToolLike
from antiphon.wire import ModelOutput, ProviderError


@dataclasses.dataclass
class Invoice:
    number: int


@ap.tool(effect="read")
def find(customer: str) -> str:
    "Find the open invoice of a customer."
    return f"invoice 7 of {customer}"


def clerk(*turns: Any, tools: Sequence[ToolLike] = (find,), **options: Any) -> ap.Agent:
    agent: ap.Agent = ap.Agent(
        "clerk", "You look after invoices.", model=ap.ScriptedModel(*turns), tools=tools, **options
    )
    return agent


def test_an_agent_runs_and_continues_its_conversation() -> None:
    agent = clerk(ap.call("find", customer="Ada"), "Invoice 7.", "Number 8.")
    result = agent.run_sync("Which invoice is open?")
    assert (result.text, result.output, result.reason, result.rounds) == ("Invoice 7.", "Invoice 7.", "answered", 2)
    assert result.chat.history.system_instruction == "You look after invoices."
    again = agent.run_sync("And the next?", chat=result.chat)
    assert (again.text, again.rounds, again.chat) == ("Number 8.", 1, result.chat)
    assert [message["role"] for message in result.chat.history.to_messages()][-2:] == ["user", "assistant"]
    assert result.rounds == 2, "a result does not change when its conversation continues"


def test_the_answers_of_an_agent_have_its_output_type() -> None:
    agent = clerk("Seven, I think.", '{"number": 7}', tools=[], output=Invoice)
    result = agent.run_sync("Which invoice is open?")
    assert (result.output, result.rounds) == (Invoice(7), 2)
    with_tools = clerk(ap.call("find", customer="Ada"), ap.call("final_answer", answer={"number": 7}), output=Invoice)
    assert with_tools.run_sync("Which?").output == Invoice(7)


def test_an_agent_as_a_tool_gives_its_typed_answer() -> None:
    agent = clerk('{"number": 7}', tools=[], output=Invoice)
    desk = ap.Agent(
        "desk", model=ap.ScriptedModel(ap.call("ask_clerk", request="Which?"), "7."), tools=[agent.as_tool()]
    )
    result = desk.run_sync("Which?").last_tool_result
    assert result is not None
    assert result.result_markdown == '{"number":7}'


def test_an_agent_streams_into_a_conversation_of_yours(tmp_path: Path) -> None:
    async def events(chat: ap.Conversation) -> list[ap.LoopEvent]:
        return [event async for event in clerk("Invoice 7.").stream("Which?", chat=chat)]

    with ap.Conversation(store=tmp_path / "chats.db") as chat:
        seen = asyncio.run(events(chat))
    assert isinstance(seen[-1], ap.LoopFinished)
    assert "".join(event.text for event in seen if isinstance(event, ap.TextDelta)) == "Invoice 7."
    with ap.Conversation(store=tmp_path / "chats.db", resume="last") as chat:
        assert clerk("Number 8.").run_sync("And the next?", chat=chat).text == "Number 8."
        assert chat.history.version > len(seen[-1:])


def test_the_limits_of_an_agent_hold_in_its_runs_and_as_a_tool() -> None:
    agent = clerk(*[ap.call("find", customer=name) for name in "abcdef"], "Stopped.", max_rounds=2, max_repeats=0)
    assert agent.run_sync("Find all.").reason == "max_rounds"
    assert agent.limits.max_rounds == 2
    with pytest.raises(ConversationError, match="max_cost"):
        clerk("Hi.", max_cost=-1)


def test_agents_given_as_hand_offs_take_part() -> None:
    boss = ap.Agent("boss", model=ap.ScriptedModel("I pay."))
    billing = ap.Agent("billing", model=ap.ScriptedModel(ap.call("hand_off_to_boss")), hand_offs=[boss])
    desk = clerk(ap.call("hand_off_to_billing"), hand_offs=[billing])
    result = desk.run_sync("Pay.")
    assert (result.text, result.totals.hand_offs) == ("I pay.", 2)


def test_a_call_of_an_agent_waits_for_a_person() -> None:
    @ap.tool(needs_approval=True)
    def pay(amount: int) -> str:
        "Pay."
        return f"paid {amount}"

    agent = clerk(ap.call("pay", amount=5), "Done.", tools=[pay])
    waiting = agent.run_sync("Pay 5.")
    assert (waiting.reason, waiting.requires_follow_up) == ("approval", True)
    agent.loop(waiting.chat).approve()
    assert agent.run_sync(chat=waiting.chat).text == "Done."
    with pytest.raises(ConversationError, match="say which call is meant; those that wait for a person: none"):
        agent.loop(waiting.chat).deny()


def test_an_agent_takes_only_a_conversation_as_its_chat() -> None:
    chat: Any = "chats.db"
    with pytest.raises(ConversationError, match=r"expected a Conversation: ToolLoop\(Conversation\('chats.db'\)\)"):
        clerk("Hello.").run_sync("Hello", chat=chat)


def test_a_failed_run_is_raised_or_in_the_result() -> None:
    down = ProviderError("down", "server")
    with pytest.raises(ap.ModelCallFailed):
        clerk(down).run_sync("Hi.")
    result = clerk(down).run_sync("Hi.", check=False)
    assert (result.reason, result.error) == ("failed", down)
    unfit = clerk("no", "no", tools=[], output=Invoice).run_sync("Hi.", check=False, output_retries=1)
    with pytest.raises(ap.InvalidOutput):
        _ = unfit.output


def test_a_run_has_its_cost() -> None:
    prices = PriceTable([PriceOverride(model="known", input=3, output=15)])
    answer = ModelOutput(parts=(ap.Text("Hi."),), usage=ap.TokenUsage(prompt_tokens=100_000))
    chat = ap.Conversation(ap.ScriptedModel(answer, name="known"), prices=prices)
    assert ap.Agent("priced").run_sync("Hi.", chat=chat).cost == Decimal("0.3")
    assert clerk("Hi.").run_sync("Hi.").cost is None


class Shelf:
    """Tools from outside that count how often they were opened and closed."""

    def __init__(self) -> None:
        self.opened = self.closed = 0

    async def tools(self) -> Sequence[ap.Tool]:
        self.opened += 1
        return [find]

    async def aclose(self) -> None:
        self.closed += 1


def test_nothing_stays_open_between_runs_of_an_agent() -> None:
    shelf = Shelf()
    agent = clerk("One.", ap.call("find", customer="Ada"), "Two.", "Three.", tools=[shelf])
    result = agent.run_sync("First.")
    assert shelf.opened == shelf.closed == 1
    assert agent.run_sync("Second.", chat=result.chat).text == "Two."
    assert shelf.opened == shelf.closed == 2
    with ap.Conversation() as chat:
        agent.run_sync("Third.", chat=chat)
        assert shelf.closed == 2, "a conversation of yours is closed by you"
    assert shelf.closed == 3


def test_an_agent_that_raises_leaves_nothing_open() -> None:
    shelf = Shelf()
    agent = clerk(TransportError("gone", "closed"), tools=[shelf])
    with pytest.raises(ap.AntiphonError):
        agent.run_sync("Hi.")
    assert shelf.opened == shelf.closed
