"""L8: whatever a model does, a turn ends within its limits, and leaves a valid history that says why.

Budgets hold for the run, which is everything since the last message of a person: hand-offs, typed answers requested again,
resumes in other processes, agents that work as tools, and summaries."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.context.model_usage import model_calls_of
from antiphon.conversation import Agent, Conversation, RoundStarted, RunLimits, RunResult, ToolLoop
from antiphon.conversation.compaction import compact_when_needed
from antiphon.conversation.events import LIMIT_REASONS
from antiphon.conversation.turn import end_reason
from antiphon.history import AgentHistory, CompactionEntry, ContextEntry, LiveContextInjectedEntry
from antiphon.parts import Text, TokenUsage, ToolCallRequest
from antiphon.providers.call import ProviderCallOptions
from antiphon.providers.scripted import FunctionModel, ScriptedAnswer, call
from antiphon.wire.output import ModelOutput
from antiphon_chat.shared.spending import spending_of
from support.planned_turns import World, drained, last_reason, planned, refusals

wild_calls = st.one_of(
    st.builds(
        ToolCallRequest,
        st.sampled_from(["look", "send", "trip", "no_such_tool", "Look!"]),
        st.sampled_from(["", "a", "a", "b"]),
        st.sampled_from(["{}", "", "{", "[]", '{"x": 1}', '{"x": ']),
    ),
    st.sampled_from([call("look"), call("trip")]),
)
wild_outputs = st.builds(
    lambda parts, stop: ModelOutput(parts=tuple(parts), stop_reason=stop),
    st.lists(st.one_of(wild_calls, st.builds(Text, st.sampled_from(["", "hm", " "]))), max_size=4),
    st.sampled_from(["", "end", "tool_calls", "length", "paused", "malformed_call", "refusal"]),
)


@given(
    st.lists(wild_outputs, min_size=1, max_size=6),
    st.builds(
        RunLimits,
        max_rounds=st.integers(1, 6),
        max_failed_rounds=st.integers(1, 3),
        max_repeats=st.integers(1, 3),
        max_tokens=st.none() | st.integers(1, 400),
        max_calls=st.none() | st.integers(1, 6),
    ),
)
def test_any_model_is_brought_to_an_end(outputs: list[ModelOutput], limits: RunLimits) -> None:
    asked = 0

    def wild(context: Sequence[ContextEntry], options: ProviderCallOptions) -> ScriptedAnswer:
        nonlocal asked
        asked += 1
        return outputs[asked % len(outputs)]

    world = World()
    chat = Conversation(FunctionModel(wild), tools=world.tools())
    events = asyncio.run(drained(ToolLoop(chat, limits=limits), "Go."))
    reason = last_reason(events)
    assert asked <= limits.max_rounds + 1
    if limits.max_calls is not None:
        assert sum(world.began.values()) <= limits.max_calls
    assert reason == "answered" or reason in LIMIT_REASONS
    if reason in LIMIT_REASONS:
        assert [event.is_last for event in events if isinstance(event, RoundStarted)].count(True) == 1
        assert any(end_reason(entry) == reason for entry in chat.history.entries), "the history says why"
        assert any(isinstance(entry, LiveContextInjectedEntry) for entry in chat.history.entries), (
            "and what was injected"
        )
    assert refusals(chat.history.snapshot()) == []
    assert last_reason(asyncio.run(drained(ToolLoop(chat, limits=limits)))) == reason, "what is over stays over"


CASES: list[tuple[str, list[list[str]], RunLimits]] = [
    ("max_rounds", [["look"], ["put"]] * 9, RunLimits()),
    ("failed_rounds", [["trip"]] * 9, RunLimits()),
    ("repeated_calls", [["look"]] * 9, RunLimits(max_rounds=9)),
    ("call_budget", [["look", "put", "send"]] * 9, RunLimits(max_calls=4)),
    ("token_budget", [["look"], ["put"]] * 9, RunLimits(max_tokens=60)),
    ("time_budget", [["look"], ["put"]] * 9, RunLimits(max_seconds=1e-9)),
    ("answered", [["look"], ["put"]], RunLimits()),
]
RUNS = {"max_rounds": 5, "failed_rounds": 2, "repeated_calls": 3, "call_budget": 4, "time_budget": 0, "answered": 2}


@pytest.mark.parametrize(("reason", "plan", "limits"), CASES, ids=[case[0] for case in CASES])
def test_each_bound_ends_with_an_answer(reason: str, plan: list[list[str]], limits: RunLimits) -> None:
    world = World()
    world.same = reason == "repeated_calls"
    chat = Conversation(planned(plan), tools=world.tools())
    events = asyncio.run(drained(ToolLoop(chat, limits=limits), "Go."))
    assert last_reason(events) == reason
    assert chat.turn.output is not None
    assert chat.turn.output.response_markdown == "That is all."
    assert sum(world.began.values()) == RUNS.get(reason, sum(world.began.values()))


@pytest.mark.parametrize("partial_text", ["", "It is ra"])
@pytest.mark.parametrize("is_streamed", [True, False])
def test_the_time_budget_ends_a_stream(partial_text: str, is_streamed: bool) -> None:
    closed: list[bool] = []

    async def endless(*_: object) -> AsyncIterator[str]:
        try:
            yield partial_text
            await asyncio.Event().wait()  # a model that never ends
        finally:
            closed.append(True)

    async def run() -> str:
        loop = ToolLoop(chat, max_seconds=0.05)
        if is_streamed:
            return last_reason(await drained(loop, "Go."))
        return (await loop.run("Go.")).reason

    chat = Conversation(FunctionModel(endless))
    assert asyncio.run(asyncio.wait_for(run(), 30)) == "time_budget"
    assert closed == [True], "the provider's stream is closed"
    assert chat.turn.ended == "time_budget"
    assert (chat.turn.output.response_markdown if chat.turn.output else "") == partial_text, "the partial text is kept"
    assert refusals(chat.history.snapshot()) == []
    assert last_reason(asyncio.run(drained(ToolLoop(chat)))) == "time_budget", "what is over stays over"


def test_calls_of_an_answer_that_the_time_budget_ended_are_not_run() -> None:
    async def endless(*_: object) -> AsyncIterator[ToolCallRequest]:
        yield ToolCallRequest("send", "call_1", "{}")
        await asyncio.Event().wait()

    world = World()
    chat = Conversation(FunctionModel(endless), tools=world.tools())
    reason = asyncio.run(asyncio.wait_for(ToolLoop(chat, max_seconds=0.05).run("Go."), 30)).reason
    assert reason == "time_budget"
    assert not world.began
    assert refusals(chat.history.snapshot()) == []


# The run.


COST = TokenUsage(100, 10)


def costly(*parts: Text | ToolCallRequest) -> ModelOutput:
    """An answer whose call used 110 tokens."""
    return ModelOutput(parts=parts, usage=COST)


def used(chat: Conversation) -> list[int]:
    """The tokens of each model call that the log records, in order."""
    calls = (call for entry in chat.history.entries for call in model_calls_of(entry))
    return [call.usage.total for call in calls if call.usage is not None]


def check_run(chat: Conversation, finished: RunResult, limit: int, last_calls: int = 1) -> None:
    """The budget was crossed by one call, and only last calls followed; the result reports the run."""
    calls = used(chat)
    crossing = next(number for number in range(1, len(calls) + 1) if sum(calls[:number]) >= limit)
    assert len(calls) <= crossing + last_calls, f"{calls} used of {limit}"
    assert finished.reason == "token_budget"
    assert finished.usage.total == chat.usage.total == spending_of(chat.history.entries).usage.total == sum(calls)
    assert refusals(chat.history.snapshot()) == []


@pytest.mark.parametrize("limit", [1, 150, 700])
def test_budgets_hold_over_a_route(limit: int) -> None:
    chat = Conversation(FunctionModel(lambda *_: costly(Text("Your turn."))))
    loop = ToolLoop(
        chat,
        max_tokens=limit,
        agents=[Agent("one"), Agent("two")],
        route=lambda agent, _: "two" if agent.name == "one" else "one",
        max_hand_offs=50,
    )
    finished = asyncio.run(loop.run("Go.", check=False))
    check_run(chat, finished, limit)
    assert finished.rounds == len(used(chat))
    again = asyncio.run(loop.run("A person writes again.", check=False))
    assert again.rounds == finished.rounds, "a new run has a new budget"


@pytest.mark.parametrize("limit", [1, 150, 300])
@pytest.mark.parametrize("is_native", [True, False])
def test_budgets_hold_over_typed_retries(limit: int, is_native: bool) -> None:
    model = FunctionModel(lambda *_: costly(Text("not a number")))
    model.has_structured_output = lambda *_, **__: is_native  # type: ignore[method-assign]
    chat = Conversation(model)
    finished = asyncio.run(ToolLoop(chat, max_tokens=limit).run("Go.", output=int, output_retries=50, check=False))
    check_run(chat, finished, limit)
    assert finished.rounds == len(used(chat))


def test_typed_retries_count_as_rounds_of_the_turn_in_every_process() -> None:
    history = AgentHistory()
    while True:
        chat = Conversation(FunctionModel(lambda *_: costly(Text("no"))), history=AgentHistory(history.entries))
        question = () if history.entries else ("Go.",)
        finished = asyncio.run(ToolLoop(chat).run(*question, output=int, output_retries=3, steps=1, check=False))
        history = chat.history
        if finished.reason != "stepped":
            break
        assert len(used(chat)) < 9
    assert (len(used(chat)), finished.rounds, finished.reason) == (4, 4, "answered")


@pytest.mark.parametrize("parallel", [1, 3])
@pytest.mark.parametrize("limit", [150, 500])
def test_budgets_hold_over_agents_as_tools(parallel: int, limit: int) -> None:
    def working(_: object, options: ProviderCallOptions) -> ModelOutput:
        return costly(Text("Done.") if options.settings.tool_choice else call("look"))

    def leading(_: object, options: ProviderCallOptions) -> ModelOutput:
        if options.settings.tool_choice:
            return costly(Text("Done."))
        return costly(*(call("ask_worker", request=f"Work on {number}.") for number in range(parallel)))

    worker = Agent("worker", model=FunctionModel(working), tools=World().tools()).as_tool(max_rounds=50)
    chat = Conversation(FunctionModel(leading), tools=[worker])
    finished = asyncio.run(ToolLoop(chat, max_tokens=limit, max_rounds=50).run("Go.", check=False))
    check_run(chat, finished, limit, last_calls=2 * parallel)  # those in flight, and the last of each


def test_calls_of_agents_as_tools_count() -> None:
    world = World()
    working = FunctionModel(lambda _, options: "Done." if options.settings.tool_choice else call("look"))
    leading = FunctionModel(
        lambda _, options: "Done." if options.settings.tool_choice else call("ask_worker", request="Work.")
    )
    worker = Agent("worker", model=working, tools=world.tools()).as_tool(max_rounds=50)
    chat = Conversation(leading, tools=[worker])
    finished = asyncio.run(ToolLoop(chat, max_calls=4, max_rounds=50).run("Go.", check=False))
    assert finished.reason == "call_budget"
    assert sum(world.began.values()) == 3, "with the call of the agent itself, four"


def test_time_budget_holds_over_agents_as_tools() -> None:
    async def endless(*_: object) -> AsyncIterator[str]:
        yield "It is"
        await asyncio.Event().wait()

    leading = FunctionModel(
        lambda _, options: "Done." if options.settings.tool_choice else call("ask_worker", request="Work.")
    )
    chat = Conversation(leading, tools=[Agent("worker", model=FunctionModel(endless)).as_tool()])
    finished = asyncio.run(asyncio.wait_for(ToolLoop(chat, max_seconds=0.2).run("Go.", check=False), 30))
    assert (finished.reason, finished.text) == ("time_budget", "Done.")


def test_summaries_count_for_the_budget() -> None:
    def answer(context: Sequence[ContextEntry], options: ProviderCallOptions) -> ScriptedAnswer:
        if options.settings.tool_choice or not options.tools:
            return ModelOutput(parts=(Text("A summary."),), usage=TokenUsage(400, 100))
        return costly(call("look"))

    chat = Conversation(FunctionModel(answer), tools=World().tools(), token_limit=10)
    chat.add("Before.")
    chat.add("Before that.")
    chat.on_compaction(compact_when_needed)
    finished = asyncio.run(ToolLoop(chat, max_tokens=600, max_rounds=50, max_repeats=0).run("Go.", check=False))
    assert any(isinstance(entry, CompactionEntry) for entry in chat.history.entries)
    check_run(chat, finished, 600)


@pytest.mark.parametrize(("max_rounds", "hand_overs"), [(1, 0), (2, 3), (5, 10)])
def test_rounds_of_a_run_are_bounded(max_rounds: int, hand_overs: int) -> None:
    """Each agent has its rounds and one last call; hand-offs are counted from the last message of a person."""
    chat = Conversation(FunctionModel(lambda *_: costly(Text("Your turn."))), tools=World().tools())
    loop = ToolLoop(
        chat,
        max_rounds=max_rounds,
        agents=[Agent("one"), Agent("two")],
        route=lambda agent, _: "two" if agent.name == "one" else "one",
        max_hand_offs=hand_overs,
    )
    finished = asyncio.run(loop.run("Go.", check=False))
    assert finished.reason == "max_hand_offs"
    assert finished.rounds == len(used(chat)) == hand_overs + 1
    retried = Conversation(FunctionModel(lambda *_: costly(Text("no"))))
    finished = asyncio.run(
        ToolLoop(retried, max_rounds=max_rounds).run("Go.", output=int, output_retries=99, check=False)
    )
    assert (finished.reason, finished.rounds, len(used(retried))) == ("max_rounds", max_rounds + 1, max_rounds + 1)
