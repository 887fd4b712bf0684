"""L8: whatever a model does, a turn ends within its bounds, and leaves a valid history that says why."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.conversation import Bounds, Conversation, RoundStarted, ToolLoop
from antiphon.conversation.events import BOUNDS
from antiphon.conversation.turn import end_reason
from antiphon.history import ContextEntry, LiveContextInjectedEntry
from antiphon.parts import Text, ToolCallRequest
from antiphon.providers.call import ProviderCallOptions
from antiphon.providers.scripted import FunctionModel, ScriptedAnswer, call
from antiphon.wire.output import ModelOutput
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
        Bounds,
        max_rounds=st.integers(1, 6),
        max_failed_rounds=st.integers(1, 3),
        max_repeats=st.integers(1, 3),
        tokens=st.none() | st.integers(1, 400),
        calls=st.none() | st.integers(1, 6),
    ),
)
def test_any_model_is_brought_to_an_end(outputs: list[ModelOutput], bounds: Bounds) -> None:
    asked = 0

    def wild(context: Sequence[ContextEntry], options: ProviderCallOptions) -> ScriptedAnswer:
        nonlocal asked
        asked += 1
        return outputs[asked % len(outputs)]

    world = World()
    chat = Conversation(FunctionModel(wild), tools=world.tools())
    events = asyncio.run(drained(ToolLoop(chat, bounds=bounds), "Go."))
    reason = last_reason(events)
    assert asked <= bounds.max_rounds + 1
    if bounds.calls is not None:
        assert sum(world.began.values()) <= bounds.calls
    assert reason == "answered" or reason in BOUNDS
    if reason in BOUNDS:
        assert [event.is_last for event in events if isinstance(event, RoundStarted)].count(True) == 1
        assert any(end_reason(entry) == reason for entry in chat.history.entries), "the history says why"
        assert any(isinstance(entry, LiveContextInjectedEntry) for entry in chat.history.entries), (
            "and what was injected"
        )
    assert refusals(chat.history.snapshot()) == []
    assert last_reason(asyncio.run(drained(ToolLoop(chat, bounds=bounds)))) == reason, "what is over stays over"


CASES: list[tuple[str, list[list[str]], Bounds]] = [
    ("max_rounds", [["look"], ["put"]] * 9, Bounds()),
    ("failed_rounds", [["trip"]] * 9, Bounds()),
    ("repeated_calls", [["look"]] * 9, Bounds(max_rounds=9)),
    ("call_budget", [["look", "put", "send"]] * 9, Bounds(calls=4)),
    ("token_budget", [["look"], ["put"]] * 9, Bounds(tokens=60)),
    ("time_budget", [["look"], ["put"]] * 9, Bounds(seconds=1e-9)),
    ("answered", [["look"], ["put"]], Bounds()),
]
RUNS = {"max_rounds": 5, "failed_rounds": 2, "repeated_calls": 3, "call_budget": 4, "time_budget": 0, "answered": 2}


@pytest.mark.parametrize(("reason", "plan", "bounds"), CASES, ids=[case[0] for case in CASES])
def test_each_bound_ends_with_an_answer(reason: str, plan: list[list[str]], bounds: Bounds) -> None:
    world = World()
    world.same = reason == "repeated_calls"
    chat = Conversation(planned(plan), tools=world.tools())
    events = asyncio.run(drained(ToolLoop(chat, bounds=bounds), "Go."))
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

    async def play() -> str:
        loop = ToolLoop(chat, seconds=0.05)
        if is_streamed:
            return last_reason(await drained(loop, "Go."))
        return (await loop.run("Go.")).reason

    chat = Conversation(FunctionModel(endless))
    assert asyncio.run(asyncio.wait_for(play(), 30)) == "time_budget"
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
    reason = asyncio.run(asyncio.wait_for(ToolLoop(chat, seconds=0.05).run("Go."), 30)).reason
    assert reason == "time_budget"
    assert not world.began
    assert refusals(chat.history.snapshot()) == []
