"""L8, money: what the model calls of a run cost stays within `max_cost`, while they stream, over every way a run can go on.

The models here report usage by our own count, so "within" is exact: a provider that counts otherwise is off by that much."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.context.tokens import CHARACTERS_PER_TOKEN
from antiphon.conversation import Agent, Conversation, RunLimits, ToolLoop
from antiphon.conversation.compaction import compact_when_needed
from antiphon.errors import CallRefused, ConversationError
from antiphon.history import AgentHistory, ContextEntry, DebugLogEntry, ModelOutputEntry
from antiphon.parts import Text, TokenUsage, ToolCallRequest
from antiphon.prices import PriceOverride, PriceTable, spend_of
from antiphon.providers.call import ProviderCallOptions
from antiphon.providers.scripted import FunctionModel, ScriptedModel, call
from antiphon.wire.delta import Finished, ModelOutputDelta, deltas_from_part
from antiphon.wire.output import ModelOutput
from support.planned_turns import World, refusals

PRICES = PriceTable([PriceOverride(model="*", input=10, output=100)])
"""A thousand tokens cost a cent in a prompt, and ten cents in an answer."""


def priced(
    model: FunctionModel | ScriptedModel, history: AgentHistory | None = None, **options: object
) -> Conversation:
    return Conversation(model, tools=World().tools(), history=history, prices=PRICES, **options)  # type: ignore[arg-type]


def spent(chat: Conversation) -> Decimal:
    return spend_of(chat.history.entries, PRICES).total


def words(count: float) -> str:
    return "word " * int(count * CHARACTERS_PER_TOKEN / 5)


def obedient(answer_tokens: int, *, calls: bool = True) -> FunctionModel:
    """A model that always calls a tool, in a long answer, and keeps to `max_output_tokens`."""

    def answer(context: Sequence[ContextEntry], options: ProviderCallOptions) -> ModelOutput:
        most = options.settings.max_output_tokens or 10**9
        prompt = sum(len(str(entry.content)) for entry in context) // 10
        if most < answer_tokens:
            return ModelOutput(parts=(Text(words(most)),), stop_reason="length", usage=TokenUsage(prompt, most))
        choice = options.settings.tool_choice
        asks = [] if not calls or (choice is not None and choice.mode == "none") else [call("look")]
        return ModelOutput(parts=(Text(words(answer_tokens)), *asks), usage=TokenUsage(prompt, answer_tokens))

    return FunctionModel(answer)


@given(
    max_cost=st.integers(1, 400).map(lambda cents: cents / 100),
    answer_tokens=st.integers(1, 3000),
    steps=st.none() | st.integers(1, 3),
)
def test_a_run_stays_within_its_money(max_cost: float, answer_tokens: int, steps: int | None) -> None:
    limits = RunLimits(max_cost=max_cost, max_rounds=30, max_repeats=0)
    history, question = AgentHistory(), ["Go."]
    while True:  # in one process, or continued in others
        chat = priced(obedient(answer_tokens), AgentHistory(history.entries))
        finished = asyncio.run(ToolLoop(chat, limits=limits).run(*question, steps=steps, check=False))
        history, question = chat.history, []
        if finished.reason != "stepped":
            break
    assert finished.reason in ("cost_budget", "max_rounds")
    assert spent(chat) <= Decimal(str(max_cost)) + prompt_growth(chat), (
        "the last call is priced before its prompt is known"
    )
    assert chat.totals.spend.total == spent(chat), "one truth about money"
    assert refusals(history.snapshot()) == []


def prompt_growth(chat: Conversation) -> Decimal:
    """What the prompts of two calls can cost more than we counted before: the models here count them otherwise."""
    prompts = [
        entry.metadata.usage.prompt_tokens
        for entry in chat.history.entries
        if isinstance(entry, ModelOutputEntry) and entry.metadata and entry.metadata.usage
    ]
    return Decimal(2 * max(prompts, default=0) * 10) / 1_000_000


def test_a_stream_ends_when_the_money_is_used() -> None:
    """A model that ignores `max_output_tokens` and never stops."""
    closed: list[bool] = []

    async def endless(*_: object) -> AsyncIterator[str]:
        try:
            while True:
                yield words(100)
        finally:
            closed.append(True)

    chat = priced(FunctionModel(endless))
    finished = asyncio.run(asyncio.wait_for(ToolLoop(chat, max_cost=0.5).run("Go.", check=False), 60))
    assert (finished.reason, closed) == ("cost_budget", [True])
    assert Decimal("0.2") < spent(chat) <= Decimal("0.52"), "what was not reported is counted"
    assert finished.text.startswith("word")
    assert ToolLoop(chat).run_sync().reason == "cost_budget", "what is over stays over"


def test_usage_that_is_not_reported_counts() -> None:
    def answer(*_: object) -> list[ModelOutputDelta]:
        asked = deltas_from_part(1, ToolCallRequest("look", "", "{}"))
        return [*deltas_from_part(0, Text(words(500))), *asked, Finished("tool_calls")]

    silent = FunctionModel(answer)
    chat = priced(silent)
    limits = RunLimits(max_tokens=1600, max_rounds=99, max_repeats=0, max_failed_rounds=99)
    assert ToolLoop(chat, limits=limits).run_sync("Go.").reason == "token_budget"
    assert 2 <= chat.totals.rounds <= 4
    assert chat.usage.total == 0, "the reported usage is what was reported"


def test_a_last_answer_is_held_back() -> None:
    chat = priced(obedient(1000))
    result = ToolLoop(chat, max_cost=0.45, max_rounds=30, max_repeats=0).run_sync("Go.")
    outputs = [entry for entry in chat.history.entries if isinstance(entry, ModelOutputEntry)]
    assert result.reason == "cost_budget"
    assert len(outputs) == 4
    assert not outputs[-1].tool_calls
    assert spent(chat) <= Decimal("0.46")


def test_a_run_that_cannot_pay_for_an_answer_says_so() -> None:
    chat = priced(obedient(1000))
    result = ToolLoop(chat, max_cost=0.004).run_sync("Go.")
    assert (result.reason, result.text) == (
        "cost_budget",
        "(No answer: the money of the run is used; max_cost= allows more.)",
    )
    assert spent(chat) == 0


def test_a_price_that_is_not_known_is_refused_before_anything_is_written() -> None:
    chat = Conversation(ScriptedModel("Hi.", name="mystery"))
    with pytest.raises(ConversationError, match=r"the price of mystery/mystery is not known.*PriceOverride"):
        ToolLoop(chat, max_cost=1).run_sync("Go.")
    assert chat.history.version == 0
    agents = [Agent("one", model=obedient(9)), Agent("two", model=ScriptedModel("Hi.", name="mystery"))]
    prices = PriceTable([PriceOverride(model="function", input=1, output=1)])
    loop = ToolLoop(Conversation(obedient(9), prices=prices), agents=agents, max_cost=1)
    with pytest.raises(ConversationError, match="the price of mystery"):
        loop.run_sync("Go.")


def test_a_fallback_without_a_price_ends_the_run() -> None:
    """The first call was answered by a model without a price: what cannot be counted may be too much."""
    prices = PriceTable([PriceOverride(model="known", input=1, output=1)])
    history = AgentHistory()
    chat = Conversation(ScriptedModel("One.", "Two.", name="known"), history=history, prices=prices)
    chat.add("Go.")
    history.append(ModelOutputEntry.of(call("look")))
    assert ToolLoop(chat, max_cost=1).run_sync().reason == "cost_budget"


@pytest.mark.parametrize("max_cost", [0.3, 1.0])
def test_money_holds_over_a_route_and_typed_retries(max_cost: float) -> None:
    chat = priced(obedient(400, calls=False))
    loop = ToolLoop(
        chat,
        max_cost=max_cost,
        agents=[Agent("one"), Agent("two")],
        route=lambda agent, _: "two" if agent.name == "one" else "one",
        max_hand_offs=50,
    )
    assert loop.run_sync("Go.").reason == "cost_budget"
    assert spent(chat) <= Decimal(str(max_cost)) + prompt_growth(chat)
    typed = priced(obedient(400, calls=False))
    finished = asyncio.run(
        ToolLoop(typed, max_cost=max_cost, max_rounds=50).run("Go.", output=int, output_retries=50, check=False)
    )
    assert finished.reason == "cost_budget"
    assert spent(typed) <= Decimal(str(max_cost)) + prompt_growth(typed)


@pytest.mark.parametrize("parallel", [1, 4])
def test_money_holds_over_agents_as_tools(parallel: int) -> None:
    """Agents that work at the same time share what is left, while they stream."""

    async def endless(*_: object) -> AsyncIterator[str]:
        while True:
            yield words(20)
            await asyncio.sleep(0)

    def leading(_: object, options: ProviderCallOptions) -> ModelOutput:
        if options.settings.tool_choice:
            return ModelOutput(parts=(Text("Done."),), usage=TokenUsage(100, 2))
        asked = [call("ask_worker", request=f"Work on {number}.") for number in range(parallel)]
        return ModelOutput(parts=tuple(asked), usage=TokenUsage(100, 20))

    worker = Agent("worker", model=FunctionModel(endless, name="worker")).as_tool()
    chat = Conversation(FunctionModel(leading), tools=[worker], prices=PRICES)
    finished = asyncio.run(asyncio.wait_for(ToolLoop(chat, max_cost=1).run("Go.", check=False), 60))
    assert finished.reason == "cost_budget"
    assert spent(chat) <= Decimal("1.02")
    assert chat.totals.spend.total == spent(chat)


def test_side_calls_are_paid_by_the_run() -> None:
    def answer(context: Sequence[ContextEntry], options: ProviderCallOptions) -> ModelOutput:
        if str(context[-1].content).startswith("(Text(text='The conversation has grown"):
            return ModelOutput(parts=(Text("A summary."),), usage=TokenUsage(100, 1000))
        asked = [] if options.settings.tool_choice else [call("look")]
        return ModelOutput(parts=(Text("I look."), *asked), usage=TokenUsage(100, 100))

    chat = priced(FunctionModel(answer), token_limit=700)
    for _ in range(4):
        chat.add("before " * 200)
        chat.history.append(ModelOutputEntry.of("Noted."))  # what was not answered is never summarised
    chat.on_compaction(compact_when_needed)
    result = ToolLoop(chat, max_cost=0.5, max_rounds=50, max_repeats=0).run_sync("Go.")
    notes = [e for e in chat.history.entries if isinstance(e, DebugLogEntry) and e.category == "side call"]
    assert result.reason == "cost_budget"
    assert {note.message for note in notes} == {"summary"}
    assert spent(chat) <= Decimal("0.5")


def test_a_side_call_that_the_run_cannot_pay_is_refused() -> None:
    refused: list[str] = []

    async def try_summary(chat: Conversation, _: object) -> None:
        try:
            await chat.call_aside("Summarise.", purpose="summary")
        except CallRefused as error:
            refused.append(str(error))

    chat = priced(obedient(100), token_limit=1)
    chat.on_compaction(try_summary)
    ToolLoop(chat, max_cost=0.1, max_repeats=0).run_sync("Go.")
    assert refused
    assert all("summary: cost_budget" in text for text in refused)
