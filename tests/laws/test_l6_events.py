"""L6 for a listener of a turn: the events are the log as it grows, and the deltas are its outputs.

Every entry is reported once, in order, where it was appended: the question before the first round; an output after all deltas of
its round and before its calls start; the mark of a call before its `ToolCallStarted`; `LoopFinished` after everything."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import antiphon as ap
from antiphon.conversation import ToolCallStarted
from antiphon.history import (
    ApprovalRequestedEntry,
    HistoryEntry,
    ModelInputEntry,
    ModelOutputEntry,
    SqliteStore,
    ToolCallFinishedEntry,
    ToolCallStartedEntry,
)
from antiphon.parts import Text, Thinking, ToolCallRequest
from antiphon.providers.scripted import call
from antiphon.wire.output import ModelOutput, ProviderError
from support.planned_turns import World

calls = st.sampled_from(["look", "put", "send", "trip", "no_such_tool", "ask"]).map(lambda name: call(name))
parts = st.one_of(
    st.builds(Text, st.sampled_from(["I look around here.", "hm", ""])), st.builds(Thinking, st.just("Why?")), calls
)
answers = st.one_of(
    st.lists(parts, min_size=1, max_size=4).map(lambda content: ModelOutput(parts=tuple(content))),
    st.just(ProviderError("it is down", "server")),
)


def entries_in(events: Sequence[ap.LoopEvent]) -> list[HistoryEntry]:
    return [event.entry for event in events if isinstance(event, ap.EntryAppended)]


def ids_of(output: ModelOutputEntry) -> set[str]:
    return {part.tool_call_id for part in output.content if isinstance(part, ToolCallRequest)}


def check_order(events: Sequence[ap.LoopEvent], history: ap.AgentHistory, before: int) -> None:
    assert entries_in(events) == history.entries.since(before), "each entry once, in the order of the log"
    assert [isinstance(event, ap.LoopFinished) for event in events].count(True) == 1
    assert isinstance(events[-1], ap.LoopFinished)
    text = thinking = ""
    marked: list[str] = []
    outputs = [entry for entry in history.entries[:before] if isinstance(entry, ModelOutputEntry)]
    asked = ids_of(outputs[-1]) if outputs else set()
    for event in events:
        match event:
            case ap.RoundStarted():
                text = thinking = ""
            case ap.TextDelta():
                text += event.text
            case ap.ThinkingDelta():
                thinking += event.text
            case ap.EntryAppended(entry=ModelOutputEntry() as output):
                assert output.response_markdown == text, "all deltas of a round come before its output"
                assert output.plan == thinking
                text = thinking = ""
                asked = ids_of(output)
            case ap.EntryAppended(entry=ToolCallStartedEntry() as mark):
                marked.append(mark.tool_call_id)
            case ToolCallStarted():
                assert event.call.tool_call_id in asked, "a call starts after the output that makes it"
                is_known = event.call.tool_name not in ("no_such_tool",)
                assert not is_known or marked[-1] == event.call.tool_call_id, "and after its mark"


@pytest.mark.parametrize("place", ["memory", "file"])
@given(script=st.lists(answers, min_size=1, max_size=5))
def test_events_are_the_log_as_it_grows(place: str, script: list[ModelOutput]) -> None:
    async def run(history: ap.AgentHistory) -> None:
        world = World()

        @ap.tool(needs_approval=True)
        def ask() -> str:
            """Ask a person."""
            return "asked"

        model = ap.ScriptedModel(*script, *["Done."] * 9)
        chat = ap.Conversation(model, tools=[*world.tools(), ask], history=history)
        loop = ap.ToolLoop(chat, max_repeats=0)
        question: tuple[str, ...] = ("Go.",)
        for _ in range(4):
            before = history.version
            events = [event async for event in loop.stream(*question)]
            check_order(events, history, before)
            question = ()
            for waiting in loop.pending:
                loop.approve(waiting.tool_call_id)
        assert isinstance(history.entries[0], ModelInputEntry)

    if place == "memory":
        asyncio.run(run(ap.AgentHistory()))
    else:
        with SqliteStore(":memory:") as store:
            asyncio.run(run(store.create()))


def test_entries_of_two_calls_are_reported_while_they_run() -> None:
    chat = ap.Conversation(ap.ScriptedModel([call("look"), call("put")], "Done."), tools=World().tools())

    async def run() -> list[ap.LoopEvent]:
        return [event async for event in ap.ToolLoop(chat).stream("Go.")]

    kinds = [type(entry) for entry in entries_in(asyncio.run(run()))]
    assert kinds.index(ToolCallStartedEntry) < kinds.index(ToolCallFinishedEntry)
    assert ApprovalRequestedEntry not in kinds


def test_entries_of_a_tool_in_a_thread_are_reported() -> None:
    @ap.tool
    def remember(text: str, context: ap.ToolContext) -> str:
        """Write into the notebook, from the thread of a plain function."""
        assert context.log is not None
        context.log.set_memory_notebook(text)
        return "noted"

    chat = ap.Conversation(ap.ScriptedModel(call("remember", text="milk"), "Done."), tools=[remember])

    async def run() -> list[ap.LoopEvent]:
        return [event async for event in ap.ToolLoop(chat).stream("Go.")]

    events = asyncio.run(run())
    check_order(events, chat.history, 0)


def test_a_reader_that_stops_gets_no_more(tmp_path: Path) -> None:
    received: list[ap.LoopEvent] = []

    async def run() -> None:
        loop = ap.ToolLoop(chat)
        stream = loop.stream("Go.")
        async for event in stream:
            received.append(event)
            if isinstance(event, ap.TextDelta):
                break
        await stream.aclose()
        await loop.run("Again.")

    with ap.open_store(tmp_path / "chats.db") as store:
        chat = ap.Conversation(ap.ScriptedModel("One two three.", "Yes."), history=store.create())
        asyncio.run(run())
        assert isinstance(received[-1], ap.TextDelta)
        assert chat.history.version > len(entries_in(received))
