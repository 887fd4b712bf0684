"""A turn played step by step, each by another process, is the turn played at once: same entries, same end, same limits."""

from __future__ import annotations

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.conversation import Agent, ApprovalNeeded, Conversation, LoopEvent, LoopFinished, RunLimits, ToolLoop
from antiphon.history import AgentHistory, ModelOutputEntry, ToolCallResultsEntry
from antiphon.providers.scripted import FunctionModel, ScriptedModel, call
from antiphon.tools import tool
from antiphon.wire.output import ProviderError
from support.examples import scaled
from support.planned_turns import Plan, World, drained, last_reason, planned, refusals, results_in

plans = st.lists(
    st.lists(st.sampled_from(["look", "put", "send", "trip"]), min_size=1, max_size=3), min_size=0, max_size=4
)


async def stepped(loop: ToolLoop, steps: int = 1) -> list[LoopEvent]:
    return [event async for event in loop.stream(steps=steps)]


def asked(question: str = "Go.") -> AgentHistory:
    chat = Conversation(ScriptedModel())
    chat.add(question)
    return chat.history


@settings(max_examples=scaled(15))
@given(
    plans,
    st.sampled_from([RunLimits(), RunLimits(max_rounds=2), RunLimits(max_calls=3), RunLimits(max_failed_rounds=1)]),
)
def test_steps_write_what_the_whole_turn_writes(plan: Plan, limits: RunLimits) -> None:
    at_once = Conversation(planned(plan), tools=World().tools(), history=asked())
    reason = last_reason(asyncio.run(drained(ToolLoop(at_once, limits=limits))))
    world, history, reasons, model = World(), asked(), [""], planned(plan)
    while reasons[-1] in ("", "stepped"):
        chat = Conversation(model, tools=world.tools(), history=AgentHistory(history.entries))
        version = chat.history.version
        reasons.append(last_reason(asyncio.run(stepped(ToolLoop(chat, limits=limits)))))
        new = chat.history.entries[version:]
        assert sum(isinstance(entry, ModelOutputEntry | ToolCallResultsEntry) for entry in new) <= 2
        assert sum(isinstance(entry, ModelOutputEntry) for entry in new) <= 1, "a step asks once at most"
        assert refusals(chat.history.snapshot()) == []
        history = chat.history
    assert reasons[-1] == reason
    assert [entry.kind for entry in history.entries] == [entry.kind for entry in at_once.history.entries]
    assert sorted(results_in(history.entries).values()) == sorted(results_in(at_once.history.entries).values())
    assert all(count == 1 for count in world.began.values())


def test_zero_steps_only_report_the_turn_state() -> None:
    chat = Conversation(planned([["look"]]), tools=World().tools(), history=asked())
    assert last_reason(asyncio.run(stepped(ToolLoop(chat), steps=0))) == "stepped"
    assert chat.history.version == 1
    asyncio.run(drained(ToolLoop(chat)))
    assert last_reason(asyncio.run(stepped(ToolLoop(chat), steps=0))) == "answered"


def test_seconds_of_other_processes_count() -> None:
    @tool(effect="read")
    async def slow() -> str:
        "Slow."
        await asyncio.sleep(0.2)
        return "done"

    model = FunctionModel(lambda _, options: "Enough." if options.settings.tool_choice else call("slow"))
    limits, history, reasons = RunLimits(max_seconds=0.5, max_rounds=50, max_repeats=0), asked(), [""]
    while reasons[-1] in ("", "stepped"):
        chat = Conversation(model, tools=[slow], history=AgentHistory(history.entries))
        reasons.append(last_reason(asyncio.run(stepped(ToolLoop(chat, limits=limits)))))
        history = chat.history
    assert reasons[-1] == "time_budget"
    assert sum(isinstance(entry, ToolCallResultsEntry) for entry in history.entries) <= 3


def test_a_step_ends_where_a_person_must_decide() -> None:
    @tool(needs_approval=True)
    def book() -> str:
        "Book."
        return "booked"

    model = ScriptedModel(call("book"), "Done.")
    chat = Conversation(model, tools=[book], history=asked())
    loop = ToolLoop(chat)
    assert last_reason(asyncio.run(stepped(loop))) == "stepped"
    for _ in range(2):
        events = asyncio.run(stepped(loop))
        assert isinstance(events[0], ApprovalNeeded)
        assert last_reason(events) == "approval"
    loop.approve(loop.pending[0].tool_call_id)
    assert last_reason(asyncio.run(stepped(loop))) == "stepped"
    assert list(results_in(chat.history.entries).values()) == ["booked"]
    assert last_reason(asyncio.run(stepped(loop))) == "answered"


def test_a_route_continues_between_steps() -> None:
    agents = [Agent("first", model=ScriptedModel("One.")), Agent("second", model=ScriptedModel("Two."))]
    chat = Conversation(history=asked())
    loop = ToolLoop(chat, agents=agents, route=lambda agent, _: "second" if agent.name == "first" else None)
    assert last_reason(asyncio.run(stepped(loop))) == "stepped"
    events = asyncio.run(stepped(loop))
    assert isinstance(events[-1], LoopFinished)
    assert (events[-1].reason, events[-1].text) == ("answered", "Two.")


def test_a_failed_step_is_repeated() -> None:
    model = ScriptedModel(ProviderError("busy", "overloaded", retry_after=3.0), "Here.")
    chat = Conversation(model, history=asked())
    events = asyncio.run(stepped(ToolLoop(chat)))
    assert isinstance(events[-1], LoopFinished)
    assert events[-1].error is not None
    assert (events[-1].reason, events[-1].error.retry_after) == ("failed", 3.0)
    assert last_reason(asyncio.run(stepped(ToolLoop(chat)))) == "answered"
