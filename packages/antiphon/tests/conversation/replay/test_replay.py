"""Replays: forks that another model answers, with results from the log, and the comparison of both."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, ParamSpec

import pytest

import antiphon as ap
from antiphon.conversation.replay import CallPolicy, Replay, compare, replay
from antiphon.conversation.replay.recorded_results import RecordedResults
from antiphon.errors import ConversationError
from antiphon.history import DebugLogEntry, ToolCallStartedEntry
from antiphon.prices import cost_of
from antiphon.providers.scripted import call
from antiphon.tools import ask_before_changes
from antiphon.wire import ProviderError

P = ParamSpec("P")


def in_event_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """The async test as one that pytest can call."""

    @functools.wraps(test)
    def run(*arguments: P.args, **named: P.kwargs) -> None:
        asyncio.run(test(*arguments, **named))

    return run


class Weather:
    """A tool that counts how often it really ran."""

    def __init__(self) -> None:
        self.cities: list[str] = []

        @ap.tool
        async def weather(city: str, unit: str = "C") -> str:
            "The weather in a city."
            self.cities.append(city)
            return f"{len(self.cities)} degrees {unit} in {city}"

        self.tool = weather


async def recorded(store: ap.SqliteStore, tools: list[ap.Tool]) -> ap.AgentHistory:
    """Three turns with an old model: two with a call of the tool, one without."""
    model = ap.ScriptedModel(
        call("weather", city="Oslo"),
        "Cold in Oslo.",
        call("weather", city="Rome", unit="C"),
        "Warm in Rome.",
        "You are welcome.",
        name="old",
    )
    history = store.create("weather")
    loop = ap.ToolLoop(ap.Conversation(model, tools=tools, history=history, system="Be brief."))
    for question in ("Oslo?", "Rome?", "Thanks!"):
        await loop.run(question)
    return history


@pytest.fixture
def store(tmp_path: Path) -> ap.SqliteStore:
    return ap.SqliteStore(tmp_path / "chats.db")


@in_event_loop
async def test_the_rest_is_answered_by_the_other_model_and_nothing_runs_again(store: ap.SqliteStore) -> None:
    weather = Weather()
    history = await recorded(store, [weather.tool])
    before = list(history.entries)
    # The arguments in another order and with spaces: the same call.
    new = ap.ScriptedModel(
        ap.ToolCallRequest("weather", "", '{ "unit": "C",  "city": "Rome" }'), "26 degrees.", "Any time.", name="new"
    )
    comparison = await replay(history, new, from_step=2, tools=[weather.tool])

    assert weather.cities == ["Oslo", "Rome"]
    assert list(history.entries) == before
    assert [(row.turn, row.round) for row in comparison.steps] == [(2, 1), (2, 2), (3, 1)]
    assert [row.question for row in comparison.steps] == ["Rome?", "Rome?", "Thanks!"]
    answers = [[step.answer for step in row.steps if step] for row in comparison.steps]
    assert answers == [["", ""], ["Warm in Rome.", "26 degrees."], ["You are welcome.", "Any time."]]
    first = comparison.steps[0].steps[1]
    assert first is not None
    assert first.is_same
    assert [(one.tool_name, one.source, one.result) for one in first.calls] == [
        ("weather", "log", "2 degrees C in Rome")
    ]
    assert [branch.stopped for branch in comparison.branches] == ["", ""]
    assert [branch.models for branch in comparison.branches] == [("old/old",), ("new/new",)]
    assert comparison.branches[1].usage is not None
    assert comparison.branches[1].seconds is not None
    assert comparison.branches[1].cost is None, "a model without a price has no known cost"


@in_event_loop
async def test_the_fork_is_stored_with_its_provenance(store: ap.SqliteStore) -> None:
    weather = Weather()
    history = await recorded(store, [weather.tool])
    new = ap.ScriptedModel(call("weather", city="Rome", unit="C"), "26 degrees.", "Any time.", name="new")
    comparison = await replay(history, new, from_step=2, tools=[weather.tool])

    branch = store.open(comparison.branches[1].conversation)
    info = store.info(branch.id)
    assert (info.parent, info.forked_at) == (history.id, comparison.at)
    notes = [entry for entry in branch.entries if isinstance(entry, DebugLogEntry) and entry.category == "replay"]
    assert notes[0].metadata is not None
    assert notes[0].metadata.extra == {
        "replay": {"conversation": history.id, "from": "2.1", "at": comparison.at, "model": "new", "calls": "log"}
    }
    results = next(
        e for e in history.effective if isinstance(e, ap.ToolCallResultsEntry) and e.sequence_number > comparison.at
    )
    assert notes[1].metadata is not None
    assert notes[1].metadata.extra is not None
    assert list(notes[1].metadata.extra["replayed_results"].values()) == [results.sequence_number]
    started = [e for e in branch.entries if isinstance(e, ToolCallStartedEntry) and e.sequence_number > comparison.at]
    assert started == [], "a call that was answered from the log was never started"
    copied = next(e for e in branch.entries if isinstance(e, ap.ModelInputEntry) and e.sequence_number > comparison.at)
    assert copied.metadata is not None
    assert copied.metadata.extra == {
        "replay_of": next(e.sequence_number for e in history.entries if e.kind == "model_input" and "Thanks" in str(e))
    }


@pytest.mark.parametrize("policy", ["log", "ask"])
@in_event_loop
async def test_a_call_that_is_not_in_the_log_stops_the_replay_until_a_person_decides(
    store: ap.SqliteStore, policy: CallPolicy
) -> None:
    weather = Weather()
    history = await recorded(store, [weather.tool])
    new = ap.ScriptedModel(call("weather", city="Paris"), "Mild.", "Any time.", name="new")
    comparison = await replay(history, new, from_step=2, tools=[weather.tool], calls=policy)

    assert weather.cities == ["Oslo", "Rome"]
    assert (comparison.branches[1].stopped, comparison.branches[1].detail) == ("waiting", "weather")
    step = comparison.steps[0].steps[1]
    assert step is not None
    assert not step.is_same
    assert [one.status for one in step.calls] == ["waiting"]
    assert comparison.steps[-1].steps[1] is None

    # Any other surface finds the request in the log and waits as well (law L11).
    branch = store.open(comparison.branches[1].conversation)
    elsewhere = ap.ToolLoop(ap.Conversation(new, tools=[weather.tool], history=branch))
    assert (await elsewhere.run(check=False)).reason == "approval"
    assert weather.cities == ["Oslo", "Rome"]


@in_event_loop
async def test_a_person_who_decides_lets_the_replay_continue(store: ap.SqliteStore) -> None:
    weather = Weather()
    history = await recorded(store, [weather.tool])
    new = ap.ScriptedModel(call("weather", city="Paris"), "Mild.", "Any time.", name="new")
    asked: list[str] = []

    async def approve(wanted: ap.ToolCallRequest) -> ap.Decision:
        asked.append(wanted.arguments)
        return ap.Decision(tool_call_id=wanted.tool_call_id, decision="approve")

    comparison = await replay(history, new, from_step=2, tools=[weather.tool], calls="ask", decide=approve)
    assert asked == ['{"city":"Paris"}']
    assert weather.cities == ["Oslo", "Rome", "Paris"]
    step = comparison.steps[0].steps[1]
    assert step is not None
    assert [(one.source, one.status) for one in step.calls] == [("run", "success")]
    assert comparison.branches[1].stopped == ""
    assert new.turns_left == 0


@in_event_loop
async def test_run_runs_what_the_log_does_not_have_but_not_without_a_required_approval(store: ap.SqliteStore) -> None:
    weather = Weather()
    history = await recorded(store, [weather.tool])

    def script() -> ap.ScriptedModel:
        return ap.ScriptedModel(call("weather", city="Paris"), "Mild.", "Any time.", name="new")

    ran = await replay(history, script(), from_step=2, tools=[weather.tool], calls="run")
    assert weather.cities == ["Oslo", "Rome", "Paris"]
    assert ran.branches[1].stopped == ""

    careful = await replay(
        history, script(), from_step=2, tools=[weather.tool], calls="run", approval=ask_before_changes
    )
    assert weather.cities == ["Oslo", "Rome", "Paris"]
    assert careful.branches[1].stopped == "waiting"


@in_event_loop
async def test_skip_reports_the_missing_result_to_the_model(store: ap.SqliteStore) -> None:
    weather = Weather()
    history = await recorded(store, [weather.tool])
    new = ap.ScriptedModel(call("weather", city="Paris"), "I cannot know.", "Any time.", name="new")
    comparison = await replay(history, new, from_step=2, tools=[weather.tool], calls="skip")
    assert weather.cities == ["Oslo", "Rome"]
    step = comparison.steps[0].steps[1]
    assert step is not None
    assert step.calls[0].status == "skipped"
    assert "no result of this call" in step.calls[0].result
    assert comparison.branches[1].stopped == ""


@in_event_loop
async def test_without_tools_the_log_alone_answers(store: ap.SqliteStore) -> None:
    history = await recorded(store, [Weather().tool])
    new = ap.ScriptedModel(call("weather", city="Rome", unit="C"), "26 degrees.", "Any time.", name="new")
    comparison = await replay(history, new, from_step=2)
    (offered,) = new.calls[0].options.tools
    assert offered.name == "weather"
    assert offered.parameters is not None
    assert sorted(offered.parameters["properties"]) == ["city", "unit"]
    assert offered.parameters["required"] == ["city"]
    assert comparison.branches[1].stopped == ""


@in_event_loop
async def test_several_models_from_a_round_in_the_middle(store: ap.SqliteStore) -> None:
    weather = Weather()
    history = await recorded(store, [weather.tool])
    one = ap.ScriptedModel("Rome is warm.", "Bye.", name="one")
    two = ap.ScriptedModel("Warm, in Rome.", "See you.", name="two")
    comparison = await replay(history, one, two, from_step="2.2")
    assert [(row.turn, row.round) for row in comparison.steps] == [(2, 2), (3, 1)]
    assert [[step.model for step in row.steps if step] for row in comparison.steps] == [
        ["old/old", "one/one", "two/two"]
    ] * 2
    # The other model sees the call and its result that were kept.
    assert any(isinstance(entry, ap.ToolCallResultsEntry) for entry in one.calls[0].context)


@in_event_loop
async def test_a_replay_can_be_replayed(store: ap.SqliteStore) -> None:
    weather = Weather()
    history = await recorded(store, [weather.tool])
    new = ap.ScriptedModel(call("weather", city="Rome", unit="C"), "26 degrees.", "Any time.", name="new")
    first = await replay(history, new, from_step=2)
    newest = ap.ScriptedModel(call("weather", city="Rome", unit="C"), "26.", "Bye.", name="newest")
    again = await replay(store.open(first.branches[1].conversation), newest, from_step=2)
    assert newest.turns_left == 0
    assert [(row.turn, row.round, row.question) for row in again.steps] == [
        (2, 1, "Rome?"),
        (2, 2, "Rome?"),
        (3, 1, "Thanks!"),
    ]
    assert [[step.answer for step in row.steps if step] for row in again.steps][1:] == [
        ["26 degrees.", "26."],
        ["Any time.", "Bye."],
    ]
    three = compare(history, *(store.open(each.branches[1].conversation) for each in (first, again)))
    assert [[step.model for step in row.steps if step] for row in three.steps][-1] == [
        "old/old",
        "new/new",
        "newest/newest",
    ]


@in_event_loop
async def test_a_continued_replay_serves_the_next_recorded_result(store: ap.SqliteStore) -> None:
    history = ap.AgentHistory()
    results = iter(["first", "second"])

    @ap.tool
    async def read() -> str:
        "Read."
        return next(results)

    old = ap.ScriptedModel(call("read"), call("read"), "done", name="old")
    await ap.ToolLoop(ap.Conversation(old, tools=[read], history=history)).run("go")
    one = Replay(history)
    branch = one.start("new")
    for script in (ap.ScriptedModel(call("read")), ap.ScriptedModel(call("read"), "done")):  # two processes
        chat = ap.Conversation(script, tools=[read], history=branch)
        one.equip(chat)
        await ap.ToolLoop(chat).run(steps=2 if script.turns_left == 1 else None, check=False)
    served = [e.results[0].result_markdown for e in branch.entries if isinstance(e, ap.ToolCallResultsEntry)]
    assert served == ["first", "second"]


@in_event_loop
async def test_an_entry_names_the_step_it_is_in(store: ap.SqliteStore) -> None:
    history = await recorded(store, [Weather().tool])
    outputs = [entry.sequence_number for entry in history.effective if isinstance(entry, ap.ModelOutputEntry)]
    assert Replay(history, f"entry:{outputs[3]}").plan == Replay(history, "2.2").plan
    question = next(e.sequence_number for e in history.effective if isinstance(e, ap.ModelInputEntry))
    assert Replay(history, f"entry:{question}").plan == Replay(history, 1).plan


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        (4, "no turn 4 in this conversation; it has the turns 1 to 3"),
        ("2.3", "no step 2.3: turn 2 has 2 rounds"),
        ("entry:900", "no entry 900 to replay from"),
        ("two", "invalid step 'two': expected a turn"),
        ("2.", "invalid step"),
        (0, "invalid step"),
    ],
)
@in_event_loop
async def test_a_step_that_does_not_exist_is_an_error(store: ap.SqliteStore, step: int | str, reason: str) -> None:
    history = await recorded(store, [Weather().tool])
    with pytest.raises(ConversationError, match=reason.replace(".", r"\.")):
        Replay(history, step)
    assert len(store.list()) == 1, "nothing was forked"


@in_event_loop
async def test_wrong_arguments_are_errors(store: ap.SqliteStore) -> None:
    history = await recorded(store, [Weather().tool])
    with pytest.raises(ConversationError, match="no model to replay with"):
        await replay(history)
    with pytest.raises(ConversationError, match="expected one of log, ask, run, skip"):
        Replay(history, calls="all")  # type: ignore[arg-type]
    with pytest.raises(ConversationError, match="max_turns=0"):
        Replay(history, max_turns=0)
    with pytest.raises(ConversationError, match="at least one other"):
        compare(history)
    with pytest.raises(ConversationError, match="nothing in common"):
        compare(history, ap.AgentHistory([]))


@in_event_loop
async def test_a_failed_model_call_is_reported_and_ends_the_branch(store: ap.SqliteStore) -> None:
    history = await recorded(store, [Weather().tool])
    broken = ap.ScriptedModel(ProviderError("the model is overloaded", "overloaded"), name="broken")
    comparison = await replay(history, broken, from_step=2)
    assert (comparison.branches[1].stopped, comparison.branches[1].detail) == ("failed", "the model is overloaded")
    assert all(row.steps[1] is None for row in comparison.steps)


@in_event_loop
async def test_max_turns_limits_the_replay(store: ap.SqliteStore) -> None:
    history = await recorded(store, [Weather().tool])
    new = ap.ScriptedModel("Warm.", name="new")
    comparison = await replay(history, new, from_step=2, max_turns=1)
    assert new.turns_left == 0
    assert comparison.branches[1].rounds == 1


@in_event_loop
async def test_changes_by_people_between_turns_are_made_again_in_a_replay() -> None:
    history = ap.AgentHistory()
    chat = ap.Conversation(ap.ScriptedModel("one", "two", "three", name="old"), history=history)
    loop = ap.ToolLoop(chat)
    await loop.run("first")
    history.set_system_instruction("Speak French.")
    await loop.run("second")
    history.set_memory_notebook("The user is Ada.")
    history.rollback(history.version - 1)  # and this was taken back
    await loop.run("third")

    new = ap.ScriptedModel("un", "deux", "trois", name="new")
    comparison = await replay(history, new)
    texts = ["\n".join(str(entry) for entry in one.context) for one in new.calls]
    assert ["French" in text for text in texts] == [False, True, True]
    assert not any("Ada" in text for text in texts)
    assert [(row.turn, row.question) for row in comparison.steps] == [(1, "first"), (2, "second"), (3, "third")]


@in_event_loop
async def test_a_message_added_in_the_middle_of_a_turn_does_not_shift_the_turns() -> None:
    history = ap.AgentHistory()

    @ap.tool
    async def look() -> str:
        "Look."
        history.append(ap.ModelInputEntry.of("And hurry.", channel="user"))
        return "seen"

    old = ap.ScriptedModel(call("look"), "done", "later", name="old")
    loop = ap.ToolLoop(ap.Conversation(old, tools=[look], history=history))
    await loop.run("first")
    await loop.run("second")
    new = ap.ScriptedModel(call("look"), "finished", "afterwards", name="new")
    comparison = await replay(history, new)
    assert [(row.turn, row.round) for row in comparison.steps] == [(1, 1), (1, 2), (2, 1)]
    assert [[step.answer for step in row.steps if step] for row in comparison.steps] == [
        ["", ""],
        ["done", "finished"],
        ["later", "afterwards"],
    ]


@in_event_loop
async def test_repeated_calls_get_their_results_in_order_and_failures_stay_failures() -> None:
    history = ap.AgentHistory()
    results: Iterator[str | Exception] = iter(["first", "second", ap.ToolError("broken")])

    @ap.tool
    async def read() -> str:
        "Read."
        result = next(results)
        if isinstance(result, Exception):
            raise result
        return result

    old = ap.ScriptedModel(call("read"), call("read"), call("read"), "done", name="old")
    await ap.ToolLoop(ap.Conversation(old, tools=[read], history=history)).run("go")
    new = ap.ScriptedModel(call("read"), call("read"), call("read"), call("read"), "done", name="new")
    comparison = await replay(history, new, limits=ap.RunLimits(max_failed_rounds=5, max_repeats=0))
    calls = [row.steps[1].calls[0] for row in comparison.steps[:4] if row.steps[1]]
    assert [(one.result, one.status) for one in calls] == [
        ("first", "success"),
        ("second", "success"),
        ("broken", "failed"),
        ("broken", "failed"),
    ]


@in_event_loop
async def test_the_notebook_of_the_fork_is_edited_and_not_only_answered() -> None:
    from antiphon.tools.builtin.memory import memory_tools

    history = ap.AgentHistory()
    edit = call("edit_memory", action="append", text="likes tea")
    old = ap.ScriptedModel(edit, "noted", name="old")
    await ap.ToolLoop(ap.Conversation(old, tools=memory_tools(history), history=history)).run("I like tea")
    one = Replay(history)
    branch = one.start("new")
    assert branch.memory_notebook == ""
    chat = ap.Conversation(ap.ScriptedModel(edit, "noted"), tools=memory_tools(branch), history=branch)
    one.equip(chat)
    await one.run(ap.ToolLoop(chat))
    assert branch.memory_notebook == "likes tea"


@in_event_loop
async def test_denied_calls_are_not_results(store: ap.SqliteStore) -> None:
    weather = Weather()
    history = ap.AgentHistory()
    old = ap.ScriptedModel(call("weather", city="Oslo"), "denied", name="old")
    loop = ap.ToolLoop(ap.Conversation(old, tools=[weather.tool], history=history, approval=ask_before_changes))
    await loop.run("Oslo?")
    loop.deny(loop.pending[0].tool_call_id)
    await loop.run(check=False)
    assert call("weather", city="Oslo") not in RecordedResults(history.snapshot())


@in_event_loop
async def test_costs_are_added_up_where_all_prices_are_known() -> None:
    history = ap.AgentHistory()
    origin = ap.Origin("openai", "openai-chat", "gpt-4o")
    usage = ap.TokenUsage(prompt_tokens=1_000_000, completion_tokens=0)
    history.append(ap.ModelInputEntry.of("hello"))
    branch = history.fork()
    for one in (history, branch):
        metadata = ap.EntryMetadata(usage=usage, duration=1.5)
        one.append(ap.ModelOutputEntry((ap.Text("hi"),), origin=origin, metadata=metadata))
    comparison = compare(history, branch)
    expected = cost_of(usage, "gpt-4o", "openai")
    assert expected is not None
    assert comparison.branches[1].cost == expected.total > Decimal(0)
    assert comparison.branches[1].seconds == 1.5
