"""The function that `run(on_event=…)` calls: it gets what a reader of `stream` gets, and may write to the log or end the turn."""

from __future__ import annotations

import asyncio

import pytest

import antiphon as ap
from antiphon.conversation.events import EntryAppended, LoopEvent, LoopFinished, ToolCallStarted
from antiphon.history import DebugLogEntry


@ap.tool
def weather(city: str) -> str:
    """Current weather."""
    return f"Rain in {city}"


def scripted() -> ap.Conversation:
    call = ap.ToolCallRequest("weather", "c1", '{"city": "Oslo"}')
    return ap.Conversation(ap.ScriptedModel(call, "It rains."), tools=[weather])


def names(events: list[LoopEvent]) -> list[str]:
    return [type(event).__name__ for event in events]


def test_a_listener_gets_what_a_reader_gets() -> None:
    async def run() -> None:
        events: list[LoopEvent] = []
        await ap.ToolLoop(scripted()).run("Rain?", on_event=events.append)
        read = [event async for event in ap.ToolLoop(scripted()).stream("Rain?")]
        assert names(events) == names(read)
        assert isinstance(events[-1], LoopFinished)

    asyncio.run(run())


def test_a_listener_may_append_to_the_log() -> None:
    async def run() -> None:
        chat = scripted()

        def note(event: LoopEvent) -> None:
            if isinstance(event, EntryAppended) and isinstance(event.entry, ap.ModelOutputEntry):
                chat.history.append(DebugLogEntry("seen", str(event.entry.sequence_number)))

        result = await ap.ToolLoop(chat).run("Rain?", on_event=note)
        assert result.output == "It rains."
        assert sum(isinstance(entry, DebugLogEntry) for entry in chat.history.entries) == 2

    asyncio.run(run())


def test_a_listener_that_raises_ends_the_turn_and_is_called_no_more() -> None:
    async def run() -> None:
        chat, events = scripted(), list[LoopEvent]()

        def listen(event: LoopEvent) -> None:
            events.append(event)
            if isinstance(event, ToolCallStarted):
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await ap.ToolLoop(chat).run("Rain?", on_event=listen)
        assert isinstance(events[-1], ToolCallStarted)
        assert not chat.turn.open_calls
        assert (await ap.ToolLoop(chat).run("And now?")).output == "It rains."

    asyncio.run(run())


def test_no_listener_is_called_after_a_run_that_was_cancelled() -> None:
    async def run() -> None:
        events: list[LoopEvent] = []
        running = asyncio.ensure_future(ap.ToolLoop(scripted()).run("Rain?", on_event=events.append))
        while not events:
            await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        count = len(events)
        await asyncio.sleep(0.01)
        assert len(events) == count

    asyncio.run(run())
