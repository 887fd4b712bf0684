"""The totals of a run, folded from the log: what counts, from where on, and the same in every process."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.conversation import Agent, Conversation, ToolLoop, Turn
from antiphon.conversation.run import RunTotals
from antiphon.conversation.turn import AGENT_CHANNEL, CORRECTION_CHANNEL, is_from_person
from antiphon.history import (
    AgentHistory,
    DebugLogEntry,
    EntryMetadata,
    ModelInputEntry,
    ModelOutputEntry,
    ToolCallResultsEntry,
)
from antiphon.parts import Text, TokenUsage, ToolCallRequest, ToolCallResult
from antiphon.providers.scripted import FunctionModel, ScriptedModel, call

START = datetime(2026, 1, 1, tzinfo=UTC)


def busy(start: float, end: float) -> DebugLogEntry:
    """An entry of a call that ran from `start` to `end`, in seconds."""
    return DebugLogEntry(
        "call",
        "A call.",
        timestamp=START + timedelta(seconds=end),
        metadata=EntryMetadata(duration=round(end - start, 6)),
    )


@pytest.mark.parametrize(
    ("calls", "seconds"),
    [
        ([], 0),
        ([(0, 1), (1, 3)], 3),
        ([(0, 1), (5, 6)], 2),  # a person was waited for
        ([(0, 3), (1, 3.5), (2, 4)], 4),  # in parallel
        ([(1, 2), (3, 4), (0, 10)], 10),  # the longest ended last
        ([(4, 5), (0, 1)], 2),  # the clock was set back
    ],
)
def test_seconds_count_once(calls: list[tuple[float, float]], seconds: float) -> None:
    totals = RunTotals()
    for start, end in calls:
        totals.count([busy(start, end)], 0)
        totals.seconds  # noqa: B018 - asked for in between, it must not count anything twice
    assert totals.seconds == pytest.approx(seconds, abs=1e-3)


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 20)), max_size=20))
def test_seconds_are_the_union_of_all_calls(calls: list[tuple[int, int]]) -> None:
    ended = sorted((start + length, start) for start, length in calls)
    totals = RunTotals()
    for end, start in ended:
        totals.count([busy(start, end)], 0)
    covered = {second for end, start in ended for second in range(start, end)}
    assert totals.seconds == pytest.approx(len(covered), abs=1e-3)


def answer(tokens: int) -> ModelOutputEntry:
    return ModelOutputEntry((Text("Yes."),), metadata=EntryMetadata(usage=TokenUsage(tokens, 0)))


@pytest.mark.parametrize("is_followed", [True, False])
def test_a_run_begins_with_a_message_of_a_person(is_followed: bool) -> None:
    history = AgentHistory()
    chat = Conversation(ScriptedModel(), history=history)
    log = [
        (ModelInputEntry.of("First."), 0),
        (answer(100), 100),
        (ModelInputEntry.of("Second."), 0),
        (answer(10), 10),
        (ModelInputEntry.of("Your turn.", channel=AGENT_CHANNEL), 10),
        (answer(20), 30),
        (ModelInputEntry.of("Again.", channel=CORRECTION_CHANNEL), 30),
        (ModelInputEntry.of("Be brief.", channel="developer"), 30),
        (answer(30), 60),
    ]
    for entry, tokens in log:
        history.append(entry)
        if is_followed:
            assert chat.totals.usage.total == tokens
    totals = Conversation(ScriptedModel(), history=AgentHistory(history.entries)).totals
    assert (totals.usage.total, totals.rounds, totals.start) == (60, 3, 3)


def test_rolled_back_entries_count_in_usage_and_cost() -> None:
    history = AgentHistory()
    chat = Conversation(ScriptedModel("Yes."), history=history)
    for entry in (ModelInputEntry.of("First."), answer(100), ModelInputEntry.of("Second."), answer(10)):
        history.append(entry)
    assert chat.totals.usage.total == 10
    history.rollback(3, "the answer was cut off")
    history.append(answer(20))
    assert chat.totals.usage.total == 30, "of this run"
    history.rollback(2, "the second question is taken back")
    assert chat.totals.usage.total == 100, "the first run continues"
    assert ToolLoop(chat).run_sync("Third.").rounds == 1


def test_a_run_that_was_rolled_back_stays_its_own() -> None:
    history = AgentHistory()
    chat = Conversation(ScriptedModel(), history=history)
    for entry in (ModelInputEntry.of("First."), answer(100), ModelInputEntry.of("Second."), answer(10)):
        history.append(entry)
    history.rollback(2, "back to the first run")
    history.append(ModelInputEntry.of("Go on.", channel=AGENT_CHANNEL))
    history.append(answer(1))
    assert (chat.totals.usage.total, chat.totals.rounds, chat.totals.start) == (101, 2, 1)
    history.rollback(4, "forward to the second run")
    assert (chat.totals.usage.total, chat.totals.rounds, chat.totals.start) == (10, 1, 3)


def test_hand_offs_are_counted_once_each() -> None:
    chat = Conversation(FunctionModel(lambda *_: "Your turn."))
    agents = [Agent("one"), Agent("two")]
    loop = ToolLoop(
        chat, agents=agents, route=lambda agent, _: "two" if agent.name == "one" else "one", max_hand_offs=3
    )
    assert loop.run_sync("Go.").reason == "max_hand_offs"
    assert chat.totals.hand_offs == 3
    model = FunctionModel(
        lambda context, _: call(f"hand_off_to_{'two' if 'one' in str(context[0].content) else 'one'}")
    )
    handed = Conversation(model)
    agents = [Agent("one", "You are one.", hand_offs=["two"]), Agent("two", "You are two.", hand_offs=["one"])]
    ToolLoop(handed, agents=agents, max_hand_offs=3, max_rounds=20, max_failed_rounds=2, max_repeats=0).run_sync("Go.")
    assert handed.totals.hand_offs == 3
    assert "No other agent can take over any more" in str(list(handed.history.entries))


@given(
    st.lists(
        st.one_of(
            st.sampled_from(["person", "agent", "correction", "answer", "call", "results"]),
            st.integers(0, 30),  # a rollback
        ),
        max_size=30,
    ),
    st.booleans(),
)
def test_totals_are_those_of_the_current_run_after_any_rollbacks(steps: list[str | int], is_followed: bool) -> None:
    history = AgentHistory()
    chat = Conversation(ScriptedModel(), history=history)
    for number, step in enumerate(steps):
        if isinstance(step, int):
            if step <= history.version:
                history.rollback(step)
        elif step == "call":
            history.append(ModelOutputEntry.of(ToolCallRequest("look", f"call_{number}", "{}")))
        elif step == "results":
            open_calls = Turn.of(history.snapshot()).open_calls.values()
            if open_calls:
                history.append(ToolCallResultsEntry(tuple(ToolCallResult.of(one.call, "found") for one in open_calls)))
        elif step == "answer":
            history.append(answer(2**number))
        else:
            channel = {"person": "user", "agent": AGENT_CHANNEL, "correction": CORRECTION_CHANNEL}[step]
            history.append(ModelInputEntry.of("Go.", channel=channel))
        if is_followed:
            assert chat.totals.start == run_of(history)
    expected = RunTotals(run_of(history))
    for version in range(1, history.version + 1):
        if run_of(AgentHistory(history.entries[:version])) == expected.start and version != expected.start:
            expected.count([history.entries[version - 1]], version)
    for totals in (chat.totals, RunTotals.of(history.snapshot())):
        assert (totals.start, totals.usage, totals.rounds, totals.calls, totals.hand_offs) == (
            *(expected.start, expected.usage, expected.rounds, expected.calls, expected.hand_offs),
        )


def run_of(history: AgentHistory) -> int:
    """The message that began the current run, found the slow way."""
    start, turn = 0, Turn()
    for entry in history.effective:
        before, turn = turn, turn.apply(entry)
        if turn is not before and is_from_person(entry):
            start = entry.sequence_number
    return start
