"""Models and tools that never wait for anything: readers get events as they happen, and other tasks are not blocked for long."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from antiphon.conversation import Conversation, LoopEvent, LoopFinished, RoundStarted, ToolCallFinished, ToolLoop
from antiphon.history import ContextEntry, HistoryEntry
from antiphon.providers.call import ProviderCallOptions
from antiphon.providers.scripted import FunctionModel, ScriptedAnswer, call
from antiphon.tools import tool


@tool
async def look(at: int) -> str:
    "Looks at something, at once."
    return f"seen {at}"


class Busy:
    """A model that makes so many calls, one after the other, and never waits."""

    def __init__(self, rounds: int) -> None:
        self.asked = 0
        self._rounds = rounds

    def answer(self, _: Sequence[ContextEntry], __: ProviderCallOptions) -> ScriptedAnswer:
        self.asked += 1
        return call("look", at=self.asked) if self.asked <= self._rounds else "done"

    def loop(self) -> ToolLoop:
        return ToolLoop(Conversation(FunctionModel(self.answer), tools=[look]), max_rounds=self._rounds + 1)


def test_events_arrive_in_the_round_in_which_they_happen() -> None:
    busy = Busy(20)

    async def run() -> None:
        async for event in busy.loop().stream("Go."):
            if isinstance(event, RoundStarted):
                assert busy.asked <= event.round + 1
            elif isinstance(event, ToolCallFinished):
                assert event.result.result_markdown in (f"seen {busy.asked}", f"seen {busy.asked - 1}")

    asyncio.run(run())


def test_other_tasks_run_during_a_long_turn_and_may_interrupt_it() -> None:
    busy = Busy(1_000_000)

    async def run() -> str:
        loop = busy.loop()
        running = asyncio.ensure_future(loop.run("Go."))
        while busy.asked < 100:
            await asyncio.sleep(0)
        assert await loop.interrupt()
        return (await running).reason

    assert asyncio.run(run()) == "interrupted"
    assert busy.asked < 1_000_000


@pytest.mark.parametrize("rounds", [0, 1, 4])
def test_a_turn_without_a_reader_writes_the_same_log(rounds: int) -> None:
    """What is run and what is streamed leave the same log and end alike."""

    def plain(entries: Sequence[HistoryEntry]) -> list[tuple[str, str]]:
        return [(entry.kind, str(getattr(entry, "content", ""))) for entry in entries]

    async def play() -> None:
        run, streamed = Busy(rounds).loop(), Busy(rounds).loop()
        result = await run.run("Go.")
        events: list[LoopEvent] = [event async for event in streamed.stream("Go.")]
        finished = events[-1]
        assert isinstance(finished, LoopFinished)
        assert (finished.reason, finished.text, finished.rounds, finished.usage) == (
            result.reason,
            result.text,
            result.rounds,
            result.usage,
        )
        assert plain(run.chat.history.entries) == plain(streamed.chat.history.entries)

    asyncio.run(play())
