"""What a `ToolLoop` tells: the grammar of its events for any script, their truth, their order, and how turns end."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.conversation import (
    AgentSwitched,
    ApprovalNeeded,
    Bounds,
    CompactionNeeded,
    Conversation,
    LoopEvent,
    LoopFinished,
    ModelSwitched,
    RoundStarted,
    RoundUsage,
    TextDelta,
    ThinkingDelta,
    ToolCallFailed,
    ToolCallFinished,
    ToolCallProgress,
    ToolCallStarted,
    ToolLoop,
)
from antiphon.errors import ConversationError
from antiphon.history import ContextEntry, ModelOutputEntry, ToolCallResultsEntry
from antiphon.history.entries import TokenUsage
from antiphon.parts import Refusal, Text, Thinking, ToolCallRequest
from antiphon.providers.call import ProviderCallOptions
from antiphon.providers.scripted import FunctionModel, Item, Said, ScriptedModel, call
from antiphon.tools import ToolContext, tool
from antiphon.wire.delta import Finished, PartDelta, PartEnded, PartStarted
from antiphon.wire.output import ModelOutput, ProviderError
from support.planned_turns import World, calls_in, drained, last_reason, refusals, results_in

LETTERS: dict[type, str] = {
    AgentSwitched: "A",
    RoundStarted: "R",
    CompactionNeeded: "C",
    ModelSwitched: "M",
    TextDelta: "t",
    ThinkingDelta: "h",
    RoundUsage: "U",
    ToolCallStarted: "s",
    ToolCallProgress: "p",
    ToolCallFinished: "f",
    ToolCallFailed: "x",
    ApprovalNeeded: "W",
    LoopFinished: "F",
}
GRAMMAR = re.compile(r"[spfx]*W?(A?RC?M?[th]*U?[spfx]*W?)*F")


def spelled(events: Sequence[LoopEvent]) -> str:
    return "".join(LETTERS[type(event)] for event in events)


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
def test_events_follow_the_grammar_whatever_is_said(script: list[Said], limit: int | None, chunk: int) -> None:
    turns = iter(script)

    def next_answer(context: Sequence[ContextEntry], options: ProviderCallOptions) -> Said:
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
        said = {
            kind: "".join(event.text for event in events if type(event) is kind) for kind in (TextDelta, ThinkingDelta)
        }
        outputs = [entry for entry in chat.history.entries[version:] if isinstance(entry, ModelOutputEntry)]
        assert said[TextDelta] == "".join(entry.response_markdown for entry in outputs)
        assert said[ThinkingDelta] == "".join(entry.plan for entry in outputs)
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
    assert spelled(events) == "RhtUsppfRtUF"
    request = chat.by_role("assistant")[0].tool_calls[0]
    assert [event for event in events if isinstance(event, ToolCallProgress)] == [
        ToolCallProgress(request, "half", 0.5),
        ToolCallProgress(request, "nearly", None),
    ]
    rounds = [event for event in events if isinstance(event, RoundStarted)]
    assert rounds == [RoundStarted(1, "scripted"), RoundStarted(2, "scripted")]
    usages = [event for event in events if isinstance(event, RoundUsage)]
    assert usages[1].turn.total == usages[0].usage.total + usages[1].usage.total == chat.usage.total
    finished = events[-1]
    assert isinstance(finished, LoopFinished)
    assert (finished.reason, finished.text, finished.rounds) == ("answered", "It rains.", 2)
    assert finished.usage.total == chat.usage.total


def test_of_several_candidates_the_one_in_the_log_is_told() -> None:
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


def test_a_switch_of_models_is_told_between_turns_and_within_one() -> None:
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


def test_compaction_is_told_to_whoever_reads_and_to_nobody_afterwards() -> None:
    chat = Conversation(ScriptedModel("One.", "Two."), token_limit=1)
    events = asyncio.run(drained(ToolLoop(chat), "A long question, long enough."))
    assert spelled(events) == "RCtUF"
    assert chat._compaction_callbacks == [], "a loop that is over listens no more"


def test_who_finishes_first_is_told_first_and_results_keep_the_order_of_calls() -> None:
    gates: dict[str, asyncio.Event] = {}

    @tool(effect="read")
    async def wait(name: str, context: ToolContext) -> str:
        "Waits until the one behind it is done."
        context.progress(f"{name} waits")
        await gates[name].wait()
        return name

    names = ["a", "b", "c"]

    async def play() -> tuple[list[LoopEvent], Conversation]:
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

    events, chat = asyncio.run(play())
    finished = [event.result.result_markdown for event in events if isinstance(event, ToolCallFinished)]
    assert finished == ["c", "b", "a"]
    assert list(results_in(chat.history.entries).values()) == names
    assert len(chat.by_role("tool")) == 1, "one inference, one entry of results"


def test_results_of_run_and_run_sync() -> None:
    chat = Conversation(ScriptedModel(call("look"), "It rains.", call("ask")), tools=[*World().tools(), ask])
    result = asyncio.run(ToolLoop(chat).run("Go."))
    assert (result.reason, result.text, str(result), result.rounds) == ("answered", "It rains.", "It rains.", 2)
    assert result.output == chat.recent(1)[0]
    assert result.usage == TokenUsage() + chat.usage
    waiting = ToolLoop(chat).run_sync("Ask.")
    assert waiting.reason == "approval"
    assert [request.tool_name for request in waiting.pending] == ["ask"]


@pytest.mark.parametrize("stop_at", range(6))
def test_whoever_breaks_off_can_ask_again(stop_at: int) -> None:
    async def play() -> Conversation:
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

    chat = asyncio.run(play())
    assert [entry.content for entry in chat.by_role("user")] == [(Text("Go."),), (Text("Again."),)]
    assert set(calls_in(chat.history.entries)) == set(results_in(chat.history.entries))


def test_a_reader_that_dawdles_holds_nothing_up() -> None:
    done: list[int] = []

    @tool
    async def work(context: ToolContext) -> str:
        for number in range(3):
            context.progress(str(number))
            await asyncio.sleep(0)
        done.append(1)
        return "worked"

    async def play() -> bool:
        chat = Conversation(ScriptedModel(call("work"), "Done."), tools=[work])
        stream = ToolLoop(chat).stream("Go.")
        await anext(stream)
        for _ in range(100):
            await asyncio.sleep(0)
        was_done = bool(done)
        assert [event async for event in stream][-1].reason == "answered"  # type: ignore[union-attr]
        return was_done

    assert asyncio.run(play()), "the tool ran while nobody read"


def test_going_on_when_there_is_nothing_to_go_on_with() -> None:
    chat = Conversation(ScriptedModel())
    events = asyncio.run(drained(ToolLoop(chat)))
    assert events == [LoopFinished("answered")]
    assert chat.history.version == 0


def test_a_tool_that_asks_the_model_in_mid_turn_does_not_make_it_endless() -> None:
    chat: Conversation

    @tool
    async def nag() -> str:
        "Says something as if it were the user."
        chat.add("Call nag once more.")
        return "nagged"

    def always(context: Sequence[ContextEntry], options: ProviderCallOptions) -> Said:
        choice = options.settings.tool_choice
        return "I must not." if choice is not None and choice.mode == "none" else call("nag")

    chat = Conversation(FunctionModel(always), tools=[nag])
    events = asyncio.run(drained(ToolLoop(chat), "Go."))
    assert last_reason(events) == "repeated_calls"
    assert refusals(chat.history.snapshot()) == []
    again = Conversation(FunctionModel(always), tools=[nag], history=chat.history)
    assert last_reason(asyncio.run(drained(ToolLoop(again)))) == "repeated_calls", "so says the log to another process"


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"bounds": Bounds(), "max_rounds": 3}, "not both"),
    ({"rounds": 3}, "unknown setting rounds; the bounds are max_rounds"),
    ({"on_interrupt": "ignore"}, "on_interrupt is 'cancel' or 'await'"),
    ({"route": lambda agent, answer: None}, "route= needs agents="),
    ({"max_hand_overs": -1}, "max_hand_overs=-1: must not be negative"),
    ({"max_rounds": 0}, "max_rounds=0: must be at least 1"),
    ({"calls": 0}, "calls=0: must be at least 1"),
    ({"seconds": 0}, "seconds=0: must be above 0"),
]


@pytest.mark.parametrize(("settings", "why"), WRONG, ids=[why for _, why in WRONG])
def test_bad_settings_are_refused(settings: dict[str, Any], why: str) -> None:
    with pytest.raises(ConversationError, match=why):
        ToolLoop(Conversation(ScriptedModel()), **settings)


@pytest.mark.parametrize("content", [5, None, ToolCallRequest("look", "a")])
def test_what_is_no_message_is_refused_and_interrupts_nothing(content: Any) -> None:
    chat = Conversation(ScriptedModel())
    with pytest.raises(ConversationError):
        ToolLoop(chat).run_sync(content)
    assert chat.history.version == 0


def test_embedded_calls_are_found_and_their_words_are_not_shown() -> None:
    said = 'I look. <tool_call>{"name": "look", "arguments": {}}</tool_call>'
    chat = Conversation(ScriptedModel(said, "It rains."), tools=World().tools(), embedded_calls=True)
    events = asyncio.run(drained(ToolLoop(chat), "Go."))
    shown = "".join(event.text for event in events if isinstance(event, TextDelta))
    assert "<tool_call>" not in shown
    assert [event.call.tool_name for event in events if isinstance(event, ToolCallFinished)] == ["look"]
    (results,) = chat.by_role("tool")
    assert isinstance(results, ToolCallResultsEntry)
