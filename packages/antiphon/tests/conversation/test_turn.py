"""`rounds_of`: which entries belong to which round (seed 000's tracing of iterations), read off the log."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from hypothesis import given
from hypothesis import strategies as st

from antiphon.conversation import Conversation, Round, TextDelta, ToolLoop, Turn, rounds_of
from antiphon.history import AgentHistory, HistoryEntry, ModelInputEntry, ModelOutputEntry
from antiphon.parts import Text, TokenUsage
from antiphon.providers.scripted import FunctionModel, Item, ScriptedModel, call
from antiphon.tools import tool
from antiphon.wire.output import ModelOutput
from support.history_strategies import append_any, conversations, entries
from support.planned_turns import World, drained


def outline(rounds: list[Round]) -> list[tuple[int, int, tuple[int, ...]]]:
    return [(one.turn, one.number, one.entries) for one in rounds]


def test_iterations_of_a_search_and_a_plan() -> None:
    """Seed 002's example: search, then plan, then answer; three rounds for one question."""
    usage = TokenUsage(10, 5)
    model = ScriptedModel(
        ModelOutput(parts=(Text("I search."), call("look")), usage=usage),
        [call("put"), call("trip")],
        "Here is your plan.",
        "You are welcome.",
        name="house",
    )
    chat = Conversation(model, tools=World().tools(), system="Be brief.")
    loop = ToolLoop(chat)
    loop.run_sync("Search, then plan.")
    loop.run_sync("Thanks.")
    rounds = rounds_of(chat.history.snapshot())
    assert [(one.turn, one.number, one.calls, one.failed_calls) for one in rounds] == [
        (0, 0, (), 0),
        (1, 0, (), 0),
        (1, 1, ("look",), 0),
        (1, 2, ("put", "trip"), 1),
        (1, 3, (), 0),
        (2, 0, (), 0),
        (2, 1, (), 0),
    ]
    assert [number for one in rounds for number in one.entries] == list(range(1, chat.history.version + 1))
    assert rounds[2].entries == (3, 4, 5), "the output, the mark that the tool started, the results"
    assert {one.model for one in rounds if one.number} == {"house/house"}
    assert rounds[2].usage == usage
    assert rounds[3].seconds > 0


def test_a_screen_belongs_to_the_round_it_was_shown_in() -> None:
    chat = Conversation(ScriptedModel(call("look"), "Done."), tools=World().tools(), live_screen="It is noon.")
    ToolLoop(chat).run_sync("Go.")
    kinds = {entry.sequence_number: entry.kind for entry in chat.history.entries}
    spelled = [[kinds[number] for number in one.entries] for one in rounds_of(chat.history.snapshot())]
    assert spelled == [
        ["model_input"],
        ["live_context_injected", "model_output", "tool_call_started", "tool_call_results"],
        ["live_context_injected", "model_output"],
    ]


def test_rolled_back_rounds_are_left_out_or_shown() -> None:
    chat = Conversation(ScriptedModel("One.", "Two."))
    loop = ToolLoop(chat)
    loop.run_sync("First?")
    chat.history.rollback(0)
    loop.run_sync("Second?")
    assert outline(rounds_of(chat.history.snapshot())) == [(1, 0, (4,)), (1, 1, (5,))]
    everything = rounds_of(chat.history.snapshot(), effective=False)
    assert outline(everything) == [(1, 0, (1,)), (1, 1, (2, 3)), (2, 0, (4,)), (2, 1, (5,))]


def test_a_round_has_the_end_reason_of_its_turn() -> None:
    chat = Conversation(ScriptedModel(call("look"), call("look"), "Enough."), tools=World().tools())
    ToolLoop(chat, max_rounds=1).run_sync("Go.")
    assert [one.ended for one in rounds_of(chat.history.snapshot())] == ["", "", "max_rounds"]


def test_an_interrupted_round_is_marked() -> None:
    async def answer_slowly() -> AsyncIterator[Item]:
        for word in ("A ", "long ", "answer."):
            yield word
            await asyncio.sleep(0)

    async def run() -> Conversation:
        chat = Conversation(FunctionModel(lambda context, options: answer_slowly()))
        loop = ToolLoop(chat)
        async for event in loop.stream("Go."):
            if isinstance(event, TextDelta):
                await loop.interrupt()
        await drained(loop, "Hello?")
        return chat

    rounds = rounds_of(asyncio.run(run()).history.snapshot())
    assert [(one.turn, one.number, one.ended) for one in rounds] == [
        (1, 0, ""),
        (1, 1, "interrupted"),
        (2, 0, ""),
        (2, 1, ""),
    ]


def test_a_message_added_before_the_results_belongs_to_the_round() -> None:
    chat: Conversation

    @tool
    async def nag() -> str:
        chat.add("By the way.")
        return "nagged"

    chat = Conversation(ScriptedModel(call("nag"), "Done."), tools=[nag])
    ToolLoop(chat).run_sync("Go.")
    assert outline(rounds_of(chat.history.snapshot())) == [(1, 0, (1,)), (1, 1, (2, 3, 4, 5)), (1, 2, (6,))]


@given(st.one_of(conversations, st.lists(entries, max_size=20)), st.booleans())
def test_every_entry_is_in_exactly_one_round(log: list[HistoryEntry], effective: bool) -> None:
    history = AgentHistory()
    for entry in log:
        append_any(history, entry)
    rounds = rounds_of(history.snapshot(), effective=effective)
    assert [number for one in rounds for number in one.entries] == list(range(1, history.version + 1))
    places = [(one.turn, one.number) for one in rounds]
    assert places == sorted(set(places)), "rounds are reported in order, each once"
    outputs = sum(isinstance(entry, ModelOutputEntry) for entry in log)
    assert sum(1 for one in rounds if one.number) == outputs, "one inference, one round"
    questions = sum(isinstance(entry, ModelInputEntry) for entry in log)
    assert max((one.turn for one in rounds), default=0) <= questions


def standing(turn: Turn) -> tuple[object, ...]:
    """Everything a turn knows."""
    states_seen = {name: (state.started, state.decision, state.result) for name, state in turn.open_calls.items()}
    counts = (turn.rounds, turn.failed_rounds, turn.repeats, turn.corrections, turn.is_asked_again)
    return turn.input, turn.output, turn.ended, turn.needs_model, turn.has_failed, counts, states_seen


@given(st.one_of(conversations, st.lists(entries, max_size=20)))
def test_turn_state_is_the_same_incrementally_and_from_the_log(log: list[HistoryEntry]) -> None:
    history = AgentHistory()
    followed = Turn()
    for entry in log:
        followed = followed.apply(append_any(history, entry))
        assert standing(followed) == standing(Turn.of(history.snapshot()))
