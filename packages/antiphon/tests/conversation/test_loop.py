"""What a `ToolLoop` tells: the grammar of its events for any script, their truth, their order, and how turns end."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.conversation import (
    Agent,
    AgentSwitched,
    ApprovalNeeded,
    CompactionNeeded,
    Conversation,
    EntryAppended,
    LoopEvent,
    LoopFinished,
    ModelSwitched,
    RoundStarted,
    RoundUsage,
    RunLimits,
    RunResult,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    ToolCallFailed,
    ToolCallFinished,
    ToolCallProgress,
    ToolCallStarted,
    ToolLoop,
)
from antiphon.errors import ConversationError
from antiphon.history import ContextEntry, ModelOutputEntry, ToolCallResultsEntry
from antiphon.history.transcript import entry_lines
from antiphon.parts import Refusal, Text, Thinking, TokenUsage, ToolCallRequest
from antiphon.providers.call import ModelCallFailed, ProviderCallOptions
from antiphon.providers.scripted import FunctionModel, Item, ScriptedAnswer, ScriptedModel, call
from antiphon.tools import ToolContext, tool
from antiphon.wire.delta import Failed, Finished, PartDelta, PartEnded, PartStarted
from antiphon.wire.output import ModelOutput, ProviderError
from support.planned_turns import World, calls_in, drained, last_reason, refusals, results_in

LETTERS: dict[type, str] = {
    AgentSwitched: "A",
    RoundStarted: "R",
    CompactionNeeded: "C",
    ModelSwitched: "M",
    TextDelta: "t",
    ThinkingDelta: "h",
    ToolCallDelta: "c",
    RoundUsage: "U",
    ToolCallStarted: "s",
    ToolCallProgress: "p",
    ToolCallFinished: "f",
    ToolCallFailed: "x",
    ApprovalNeeded: "W",
    LoopFinished: "F",
}
GRAMMAR = re.compile(r"[spfx]*W?(A?RC?M?[thc]*U?[spfx]*W?)*F")


def spelled(events: Sequence[LoopEvent]) -> str:
    """The events as letters, without the entries: law L6 is about those."""
    return "".join(LETTERS[type(event)] for event in events if not isinstance(event, EntryAppended))


@tool(needs_approval=True)
def ask() -> str:
    "Needs a person."
    return "asked"


@tool(effect="read")
async def slow(context: ToolContext) -> str:
    "Tells how far it is."
    context.progress("half", 0.5)
    await asyncio.sleep(0)
    context.progress("nearly")
    return "slow"


parts = st.one_of(
    st.builds(Text, st.text(max_size=20)),
    st.builds(Thinking, st.text(max_size=20)),
    st.builds(Refusal, st.text(max_size=20)),
    st.builds(call, st.sampled_from(["look", "put", "trip", "nowhere", "slow", "ask"])),
    st.builds(
        ToolCallRequest, st.just("look"), st.sampled_from(["", "a", "b"]), st.sampled_from(["{}", "{", "[]", ""])
    ),
)
answers = st.one_of(
    st.builds(
        lambda parts, stop: ModelOutput(parts=tuple(parts), stop_reason=stop),
        st.lists(parts, max_size=5),
        st.sampled_from(["", "end", "length", "paused", "malformed_call"]),
    ),
    st.lists(parts, max_size=3).map(
        lambda parts: [PartStarted(index, part) for index, part in enumerate(parts)] or "Nothing."
    ),
    st.just(ProviderError("it is down", "overloaded")),
)


@given(st.lists(answers, min_size=1, max_size=6), st.sampled_from([None, 20]), st.integers(1, 30))
def test_events_follow_the_grammar_for_any_answers(script: list[ScriptedAnswer], limit: int | None, chunk: int) -> None:
    turns = iter(script)

    def next_answer(context: Sequence[ContextEntry], options: ProviderCallOptions) -> ScriptedAnswer:
        return next(turns, "The end.")

    chat = Conversation(
        FunctionModel(next_answer, chunk_size=chunk), tools=[*World().tools(), slow, ask], token_limit=limit
    )
    loop = ToolLoop(chat)
    for words in (["Go."], [], ["Again."]):
        version = chat.history.version
        events = asyncio.run(drained(loop, *words))
        assert GRAMMAR.fullmatch(spelled(events)), spelled(events)
        last_reason(events)
        started: set[str] = set()
        for event in events:
            if isinstance(event, ToolCallStarted):
                assert event.call.tool_call_id not in started
                started.add(event.call.tool_call_id)
            elif isinstance(event, ToolCallProgress | ToolCallFinished | ToolCallFailed):
                assert event.call.tool_call_id in started
        answer_text = {
            kind: "".join(event.text for event in events if type(event) is kind) for kind in (TextDelta, ThinkingDelta)
        }
        outputs = [entry for entry in chat.history.entries[version:] if isinstance(entry, ModelOutputEntry)]
        assert answer_text[TextDelta] == "".join(entry.response_markdown for entry in outputs)
        assert answer_text[ThinkingDelta] == "".join(entry.plan for entry in outputs)
        assert [event.round for event in events if isinstance(event, RoundStarted)] == sorted(
            event.round for event in events if isinstance(event, RoundStarted)
        )
        assert refusals(chat.history.snapshot()) == []
    ids = calls_in(chat.history.entries)
    assert len(ids) == len(set(ids)), "every id names one call"


def test_a_whole_turn_event_by_event() -> None:
    first: list[Item] = [Thinking("Hm."), Text("I look."), call("slow")]
    chat = Conversation(ScriptedModel(first, "It rains.", chunk_size=None), tools=[slow])
    events = asyncio.run(drained(ToolLoop(chat), "Go."))
    assert spelled(events) == "RhtccUsppfRtUF"
    request = chat.by_role("assistant")[0].tool_calls[0]
    assert [event for event in events if isinstance(event, ToolCallProgress)] == [
        ToolCallProgress(request, "half", 0.5),
        ToolCallProgress(request, "nearly", None),
    ]
    rounds = [event for event in events if isinstance(event, RoundStarted)]
    assert rounds == [RoundStarted(1, "scripted"), RoundStarted(2, "scripted")]
    usages = [event for event in events if isinstance(event, RoundUsage)]
    assert usages[1].run.total == usages[0].usage.total + usages[1].usage.total == chat.usage.total
    finished = events[-1]
    assert isinstance(finished, LoopFinished)
    assert (finished.reason, finished.text, finished.rounds) == ("answered", "It rains.", 2)
    assert finished.usage.total == chat.usage.total


def test_only_the_logged_candidate_produces_events() -> None:
    deltas: list[Item] = [
        PartStarted(0, Text("")),
        PartStarted(1, Text(""), candidate=1),
        PartDelta(0, "kept"),
        PartDelta(1, "other"),
        PartEnded(0),
        PartEnded(1),
        Finished(),
        Finished(candidate=1),
    ]
    chat = Conversation(ScriptedModel(deltas))
    events = asyncio.run(drained(ToolLoop(chat), "Go."))
    assert [event.text for event in events if isinstance(event, TextDelta)] == ["kept"]
    assert chat.recent(1)[0].content == (Text("kept"),)


def test_a_model_switch_is_reported_between_and_within_turns() -> None:
    chat = Conversation(ScriptedModel("One.", name="first"))
    loop = ToolLoop(chat)
    assert not [e for e in asyncio.run(drained(loop, "Hi.")) if isinstance(e, ModelSwitched)]
    chat.model = ScriptedModel("Two.", name="second")
    events = asyncio.run(drained(loop, "Hi again."))
    assert [e for e in events if isinstance(e, ModelSwitched)] == [ModelSwitched("first/first", "second/second")]

    third = ScriptedModel("Four.", name="third")

    @tool
    def switch() -> str:
        "Changes the model in mid-turn."
        chat.model = third
        return "switched"

    chat.model = ScriptedModel(call("switch"), name="second")
    chat.registry.add(switch)
    events = asyncio.run(drained(loop, "Switch."))
    assert [e for e in events if isinstance(e, ModelSwitched)] == [ModelSwitched("second/second", "third/third")]


def test_an_exceeded_token_limit_is_an_event_of_the_turn() -> None:
    chat = Conversation(ScriptedModel("One.", "Two."), token_limit=1)
    events = asyncio.run(drained(ToolLoop(chat), "A long question, long enough."))
    assert spelled(events) == "RCtUF"


def test_finish_events_follow_completion_and_results_keep_call_order() -> None:
    gates: dict[str, asyncio.Event] = {}

    @tool(effect="read")
    async def wait(name: str, context: ToolContext) -> str:
        "Waits until the next one is done."
        context.progress(f"{name} waits")
        await gates[name].wait()
        return name

    names = ["a", "b", "c"]

    async def run() -> tuple[list[LoopEvent], Conversation]:
        gates.update({name: asyncio.Event() for name in names})
        chat = Conversation(ScriptedModel([call("wait", name=name) for name in names], "Done."), tools=[wait])
        events: list[LoopEvent] = []
        waiting = 0
        async for event in ToolLoop(chat).stream("Go."):
            events.append(event)
            waiting += isinstance(event, ToolCallProgress)
            if waiting == 3 and isinstance(event, ToolCallProgress):
                gates["c"].set()
            elif isinstance(event, ToolCallFinished) and event.result.result_markdown != "a":
                gates[chr(ord(event.result.result_markdown) - 1)].set()
        return events, chat

    events, chat = asyncio.run(run())
    finished = [event.result.result_markdown for event in events if isinstance(event, ToolCallFinished)]
    assert finished == ["c", "b", "a"]
    assert list(results_in(chat.history.entries).values()) == names
    assert len(chat.by_role("tool")) == 1, "one inference, one entry of results"


def test_results_of_run_and_run_sync() -> None:
    chat = Conversation(ScriptedModel(call("look"), "It rains.", call("ask")), tools=[*World().tools(), ask])
    result = asyncio.run(ToolLoop(chat).run("Go."))
    assert (result.reason, result.text, str(result), result.rounds) == ("answered", "It rains.", "It rains.", 2)
    assert (result.output, result.entry) == ("It rains.", chat.recent(1)[0])
    assert (result.chat, result.totals.calls, result.cost) == (chat, 1, None)
    assert result.usage == TokenUsage() + chat.usage
    waiting = ToolLoop(chat).run_sync("Ask.")
    assert waiting.reason == "approval"
    assert [request.tool_name for request in waiting.pending] == ["ask"]


@pytest.mark.parametrize("stop_at", range(6))
def test_an_abandoned_turn_can_be_asked_again(stop_at: int) -> None:
    async def run() -> Conversation:
        chat = Conversation(
            FunctionModel(lambda context, options: [Text("I look now."), call("slow")] if stops() else "Done.", "any"),
            tools=[slow],
        )
        loop = ToolLoop(chat)
        seen = 0
        async for _ in loop.stream("Go."):
            seen += 1
            if seen > stop_at:
                break
        stopped.append(True)
        events = await drained(loop, "Again.")
        assert last_reason(events) == "answered"
        assert refusals(chat.history.snapshot()) == []
        return chat

    stopped: list[bool] = []

    def stops() -> bool:
        return not stopped

    chat = asyncio.run(run())
    assert [entry.content for entry in chat.by_role("user")] == [(Text("Go."),), (Text("Again."),)]
    assert set(calls_in(chat.history.entries)) == set(results_in(chat.history.entries))


def test_a_slow_reader_does_not_block_the_turn() -> None:
    done: list[int] = []

    @tool
    async def work(context: ToolContext) -> str:
        for number in range(3):
            context.progress(str(number))
            await asyncio.sleep(0)
        done.append(1)
        return "worked"

    async def run() -> bool:
        chat = Conversation(ScriptedModel(call("work"), "Done."), tools=[work])
        stream = ToolLoop(chat).stream("Go.")
        await anext(stream)
        for _ in range(100):
            await asyncio.sleep(0)
        was_done = bool(done)
        assert [event async for event in stream][-1].reason == "answered"  # type: ignore[union-attr]
        return was_done

    assert asyncio.run(run()), "the tool ran without a reader"


def test_resuming_without_an_open_turn() -> None:
    chat = Conversation(ScriptedModel())
    events = asyncio.run(drained(ToolLoop(chat)))
    assert events == [LoopFinished("answered")]
    assert chat.history.version == 0


def test_a_tool_that_adds_a_message_does_not_make_the_turn_endless() -> None:
    chat: Conversation

    @tool
    async def nag() -> str:
        "Says something as if it were the user."
        chat.add("Call nag once more.")
        return "nagged"

    def always(context: Sequence[ContextEntry], options: ProviderCallOptions) -> ScriptedAnswer:
        choice = options.settings.tool_choice
        return "I must not." if choice is not None and choice.mode == "none" else call("nag")

    chat = Conversation(FunctionModel(always), tools=[nag])
    events = asyncio.run(drained(ToolLoop(chat), "Go."))
    assert last_reason(events) == "repeated_calls"
    assert refusals(chat.history.snapshot()) == []
    again = Conversation(FunctionModel(always), tools=[nag], history=chat.history)
    assert last_reason(asyncio.run(drained(ToolLoop(again)))) == "repeated_calls", "so says the log to another process"


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"limits": RunLimits(), "max_rounds": 3}, "not both"),
    ({"on_interrupt": "ignore"}, "on_interrupt is 'cancel' or 'await'"),
    ({"route": lambda agent, answer: None}, "route= needs agents="),
    ({"max_hand_offs": -1}, "max_hand_offs=-1: must be at least 0"),
    ({"max_rounds": 0}, "max_rounds=0: must be at least 1"),
    ({"max_calls": 0}, "max_calls=0: must be at least 1"),
    ({"max_seconds": 0}, "max_seconds=0: must be above 0"),
    ({"max_seconds": math.nan}, "max_seconds=nan: must be above 0"),
    ({"max_seconds": "60"}, "max_seconds='60': must be a number"),
    ({"max_cost": 0}, "max_cost=0: must be above 0"),
    ({"max_cost": "5"}, "max_cost='5': must be a number"),
    ({"max_rounds": "5"}, "max_rounds='5': must be a whole number"),
    ({"max_rounds": 2.5}, "max_rounds=2.5: must be a whole number"),
    ({"agents": ["planner"]}, "agents='planner': expected a list of Agent objects"),
    ({"agents": [Agent("planner")], "route": "planner"}, "route='planner': expected a function of agent and answer"),
]


@pytest.mark.parametrize(("settings", "why"), WRONG, ids=[why for _, why in WRONG])
def test_bad_settings_are_refused(settings: dict[str, Any], why: str) -> None:
    with pytest.raises(ConversationError, match=why):
        ToolLoop(Conversation(ScriptedModel()), **settings)


def test_a_loop_runs_a_conversation() -> None:
    model: Any = "openai/gpt-5.5"
    with pytest.raises(
        ConversationError, match=r"expected a Conversation: ToolLoop\(Conversation\('openai/gpt-5.5'\)\)"
    ):
        ToolLoop(model)


def test_an_empty_conversation_has_nothing_to_answer() -> None:
    result = ToolLoop(Conversation(ScriptedModel())).run_sync()
    assert (result.reason, result.text) == ("answered", "(No answer: there is no message to answer.)")


@pytest.mark.parametrize("content", [5, None, ToolCallRequest("look", "a")])
def test_an_invalid_message_is_refused_without_interrupting(content: Any) -> None:
    chat = Conversation(ScriptedModel())
    with pytest.raises(ConversationError):
        ToolLoop(chat).run_sync(content)
    assert chat.history.version == 0


def test_embedded_calls_are_found_and_their_text_is_hidden() -> None:
    answer_text = 'I look. <tool_call>{"name": "look", "arguments": {}}</tool_call>'
    chat = Conversation(ScriptedModel(answer_text, "It rains."), tools=World().tools(), embedded_calls=True)
    events = asyncio.run(drained(ToolLoop(chat), "Go."))
    shown = "".join(event.text for event in events if isinstance(event, TextDelta))
    assert "<tool_call>" not in shown
    assert [event.call.tool_name for event in events if isinstance(event, ToolCallFinished)] == ["look"]
    (results,) = chat.by_role("tool")
    assert isinstance(results, ToolCallResultsEntry)


def test_result_says_why_there_is_no_text() -> None:
    chat = Conversation(ScriptedModel(ModelOutput(parts=(Text(""),))), tools=World().tools())
    result = ToolLoop(chat).run_sync("Hi.")
    assert (result.reason, result.text) == (
        "answered",
        "(No answer: the model's last response has no text (stop reason: end).)",
    )
    assert chat.history.to_messages() == [{"role": "user", "content": "Hi."}]
    assert [entry.role.value for entry in chat.messages] == ["model_input"]
    assert chat.add("Again?") == 2


def test_step_offers_response_follow_up_and_last_result() -> None:
    def look() -> str:
        "Look."
        return "rain"

    async def steps() -> list[RunResult]:
        loop = ToolLoop(Conversation(ScriptedModel(call("look"), "It rains."), tools=[look]))
        return [await loop.step("Look."), await loop.step()]

    first, second = asyncio.run(steps())
    assert (first.requires_follow_up, first.next_prompt) == (True, "rain")
    assert first.last_tool_result is not None
    assert first.last_tool_result.result_markdown == "rain"
    assert (second.text, second.requires_follow_up, second.next_prompt) == ("It rains.", False, "")
    assert second.last_tool_result == first.last_tool_result
    assert (first.rounds, first.next_prompt) == (1, "rain"), "a result stays as it is while its run continues"


def test_results_have_durations_and_tracebacks_in_the_log() -> None:
    def good() -> str:
        "Works."
        return "fine"

    def bad() -> str:
        "Fails."
        raise RuntimeError("out of paper")

    chat = Conversation(ScriptedModel([call("good"), call("bad")], call("good"), "Done."), tools=[good, bad])
    ToolLoop(chat).run_sync("Go.")
    both, one = (entry for entry in chat.history.entries if isinstance(entry, ToolCallResultsEntry))
    assert both.metadata is not None
    assert both.metadata.extra is not None
    ids = [result.tool_call_id for result in both.results]
    assert list(both.metadata.extra["durations"]) == ids
    assert list(both.metadata.extra["tracebacks"]) == ids[1:]
    assert 'raise RuntimeError("out of paper")' in both.metadata.extra["tracebacks"][ids[1]]
    assert one.metadata is not None
    assert one.metadata.duration is not None
    assert "Traceback" not in str(chat.history.to_messages())
    assert any("traceback of" in line for line in entry_lines(both))


def test_failed_model_call_is_logged_as_an_error(caplog: pytest.LogCaptureFixture) -> None:
    chat = Conversation(ScriptedModel(Failed(ProviderError("no such model", "not_found", 404))))
    with pytest.raises(ModelCallFailed):
        ToolLoop(chat).run_sync("Hi.")
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("ERROR", "[memory:2] the model call failed: not_found: no such model")
    ]


def test_failed_turn_is_rolled_back_as_an_option() -> None:
    def look() -> str:
        "Look."
        return "rain"

    error = ProviderError("gone", "server", 500)
    chat = Conversation(ScriptedModel("Hello.", call("look"), error, error), tools=[look])
    ToolLoop(chat).run_sync("Hi.")
    before = chat.history.to_messages()
    with pytest.raises(ModelCallFailed):
        ToolLoop(chat, rolls_back_failures=True).run_sync("Look.")
    assert chat.history.to_messages() == before
    assert any(type(entry).__name__ == "ToolCallResultsEntry" for entry in chat.history.entries)
    with pytest.raises(ModelCallFailed):
        ToolLoop(chat).run_sync("Again.")
    assert chat.history.to_messages()[-1] == {"role": "user", "content": "Again."}


def test_a_turn_that_an_error_of_the_program_ends_is_rolled_back_too() -> None:
    def route(*_: object) -> None:
        raise LookupError("no such agent")

    chat = Conversation(ScriptedModel("Hello.", "Hello."))
    ToolLoop(chat).run_sync("Hi.")
    before = chat.history.to_messages()
    agents = [Agent("first"), Agent("second")]
    with pytest.raises(LookupError, match="no such agent"):
        ToolLoop(chat, agents=agents, route=route, rolls_back_failures=True).run_sync("More.")
    assert chat.history.to_messages() == before


def test_the_arguments_of_calls_come_as_events() -> None:
    model = ScriptedModel(["Look:", call("add", a=1, b=22), call("add", a=3, b=4)], "done", chunk_size=4)

    @tool(effect="read")
    async def add(a: int, b: int) -> int:
        "Add."
        return a + b

    async def run() -> list[LoopEvent]:
        return [event async for event in ToolLoop(Conversation(model, tools=[add])).stream("Go.")]

    events = asyncio.run(run())
    deltas = [event for event in events if isinstance(event, ToolCallDelta)]
    texts: dict[str, str] = {}
    for delta in deltas:
        texts[delta.tool_call_id] = texts.get(delta.tool_call_id, "") + delta.text
    started = [event.call for event in events if isinstance(event, ToolCallStarted)]
    assert texts == {one.tool_call_id: one.arguments for one in started}
    assert len(deltas) > 4
    assert {delta.tool_name for delta in deltas} == {"add"}
    assert events.index(deltas[-1]) < min(events.index(event) for event in events if isinstance(event, ToolCallStarted))
