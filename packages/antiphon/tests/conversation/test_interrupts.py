"""Interrupted at any event, in any way: partial answers are kept and marked, every call is answered, the next turn works."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from antiphon.conversation import (
    CompactionNeeded,
    Conversation,
    LoopEvent,
    LoopFinished,
    TextDelta,
    ToolCallStarted,
    ToolLoop,
)
from antiphon.conversation.turn import end_reason
from antiphon.errors import ConversationError, StoreFull
from antiphon.history import (
    AgentHistory,
    ContextEntry,
    HistoryEntry,
    ModelOutputEntry,
    SqliteStore,
    ToolCallResultsEntry,
)
from antiphon.parts import Text, Thinking, ToolCallRequest
from antiphon.providers.call import ProviderCallOptions
from antiphon.providers.scripted import FunctionModel, Item, ScriptedModel, call
from antiphon.tools import Tool, ToolContext, tool
from antiphon.tools.call_runner import CANCELLED, NOT_RUN
from antiphon.wire.delta import PartDelta, PartStarted
from support.examples import scaled
from support.planned_turns import CheckedJournal, calls_in, drained, last_reason, refusals, results_in
from support.repository import ROOT

Way = Literal["interrupt", "cancel", "aclose", "speak", "speak elsewhere"]
WAYS: list[Way] = ["interrupt", "cancel", "aclose", "speak", "speak elsewhere"]


class Workshop:
    """Tools that take their time, and what became of each call."""

    def __init__(self) -> None:
        self.began: Counter[str] = Counter()
        self.ended: Counter[str] = Counter()
        self.cancelled: Counter[str] = Counter()

    def tools(self) -> list[Tool]:
        @tool
        async def work(context: ToolContext, note: str = "") -> str:
            "Takes a few steps of the event loop."
            return await self._work(context, 3)

        @tool(effect="read")
        async def toil(context: ToolContext) -> str:
            "Takes more."
            return await self._work(context, 9)

        return [work, toil]

    async def _work(self, context: ToolContext, steps: int) -> str:
        name = context.tool_call_id
        self.began[name] += 1
        try:
            for step in range(steps):
                context.progress(f"step {step}")
                await asyncio.sleep(0)
        except asyncio.CancelledError:
            self.cancelled[name] += 1
            raise
        self.ended[name] += 1
        return f"done {name}"


async def stream_answer(context: Sequence[ContextEntry], options: ProviderCallOptions) -> AsyncIterator[Item]:
    """Two rounds of calls and an answer, each streamed in pieces, with a break between them."""
    outputs = sum(isinstance(entry, ModelOutputEntry) for entry in context)
    rounds: list[list[Item]] = [
        [Thinking("Let me see."), "I ", "work.", call("work", note="x" * 5), call("toil")],
        ["And ", "once more.", call("toil")],
        ["It ", "is ", "done."],
    ]
    for item in rounds[outputs] if outputs < len(rounds) else ["Yes?"]:
        await asyncio.sleep(0)
        yield item


def talking() -> FunctionModel:
    return FunctionModel(lambda context, options: stream_answer(context, options))


async def interrupted_at(
    number: int, way: Way, policy: Literal["cancel", "await"]
) -> tuple[Conversation, CheckedJournal, Workshop, list[LoopEvent]]:
    """Play until event `number`, then interrupt; the events received, and what is in the log."""
    workshop, journal = Workshop(), CheckedJournal()
    chat = Conversation(talking(), tools=workshop.tools(), history=AgentHistory(journal=journal))
    loop = ToolLoop(chat, on_interrupt=policy)
    received: list[LoopEvent] = []
    at_the_event = asyncio.Event()

    async def listen() -> None:
        stream = loop.stream("Go.")
        async for event in stream:
            received.append(event)
            if len(received) == number:
                at_the_event.set()
                if way == "aclose":
                    await stream.aclose()
                    return
                await asyncio.sleep(0)

    listening = asyncio.ensure_future(listen())
    reached = asyncio.ensure_future(at_the_event.wait())
    await asyncio.wait([listening, reached], return_when=asyncio.FIRST_COMPLETED)
    reached.cancel()
    if way == "interrupt":
        await loop.interrupt()
    elif way == "cancel":
        listening.cancel()
    elif way.startswith("speak"):
        speaking = loop if way == "speak" else ToolLoop(chat)
        assert last_reason(await drained(speaking, "Something else.")) == "answered"
    await asyncio.wait([listening])
    if not listening.cancelled():
        listening.result()
    return chat, journal, workshop, received


@settings(max_examples=scaled(15))
@given(st.integers(1, 44), st.sampled_from(WAYS), st.sampled_from(["cancel", "await"]))
@example(1, "aclose", "cancel")  # before the turn has taken its first step
def test_an_interruption_leaves_everything_in_order(number: int, way: Way, policy: Any) -> None:
    chat, journal, workshop, received = asyncio.run(interrupted_at(number, way, policy))
    entries = list(chat.history.entries)
    assert journal.refused == [], "every provider takes the history at every instant"

    is_over = any(isinstance(event, LoopFinished) and event.reason == "answered" for event in received)
    if not way.startswith("speak"):  # it may have ended before the event arrived
        is_over = chat.turn.output is not None and chat.turn.output.stop_reason == "end"
    results = results_in(entries)
    assert sorted(calls_in(entries)) == sorted(results), "every call has a result, and only one"
    for call_id, text in results.items():
        if workshop.ended[call_id]:
            # One that was cancelled in the very step in which it returned may count as cancelled.
            assert text == f"done {call_id}" or (text == CANCELLED and policy == "cancel"), (
                "a finished call keeps its result"
            )
        elif workshop.began[call_id]:
            assert text == CANCELLED
            assert workshop.cancelled[call_id], "a running tool is really cancelled"
        else:
            assert text.startswith(NOT_RUN) or text == CANCELLED
    assert sum(workshop.began.values()) == sum(workshop.ended.values()) + sum(workshop.cancelled.values())
    if policy == "await":
        assert not workshop.cancelled
    words = "".join(event.text for event in received if isinstance(event, TextDelta))
    outputs = [entry for entry in entries if isinstance(entry, ModelOutputEntry)]
    assert "".join(entry.response_markdown for entry in outputs).startswith(words), "what was shown is kept"
    if not is_over:
        assert "interrupted" in {end_reason(entry) for entry in entries}, "and marked"
    if way == "interrupt" and not is_over:
        assert last_reason(received) == "interrupted"

    # The turn is over, for this process and for any other; and the next one works.
    again = Conversation(talking(), tools=workshop.tools(), history=AgentHistory(entries))
    expected = "interrupted" if not is_over and not way.startswith("speak") else "answered"
    assert last_reason(asyncio.run(drained(ToolLoop(again)))) == expected
    assert again.history.version == len(entries)
    assert last_reason(asyncio.run(drained(ToolLoop(again), "And now?"))) == "answered"
    assert refusals(again.history.snapshot()) == []


def test_a_result_that_is_awaited_is_kept() -> None:
    """With one call, and with several whose last ends after the interruption."""
    batches: list[list[Item]] = [[call("toil")], [call("work"), call("toil")]]
    for calls in batches:
        workshop = Workshop()

        async def run(calls: list[Item] = calls, workshop: Workshop = workshop) -> Conversation:
            chat = Conversation(ScriptedModel(calls, "Never sent."), tools=workshop.tools())
            loop = ToolLoop(chat, on_interrupt="await")
            received = []
            async for event in loop.stream("Go."):
                received.append(event)
                if isinstance(event, ToolCallStarted):
                    await loop.interrupt()
            assert last_reason(received) == "interrupted"
            return chat

        chat = asyncio.run(run())
        assert list(results_in(chat.history.entries).values()) == [f"done {name}" for name in workshop.began]
        assert len(workshop.ended) == len(calls)


def test_a_second_interruption_does_not_wait() -> None:
    cancelled: list[bool] = []

    @tool
    async def endless() -> str:
        "Never returns."
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(True)
            raise
        return "never"

    async def run() -> Conversation:
        chat = Conversation(ScriptedModel(call("endless")), tools=[endless])
        loop = ToolLoop(chat, on_interrupt="await")
        listening = asyncio.ensure_future(drained(loop, "Go."))
        while not any(state.started for state in chat.turn.open_calls.values()):
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        first = asyncio.ensure_future(loop.interrupt())
        await asyncio.sleep(0)
        assert not first.done(), "it is awaited"
        listening.cancel()
        await asyncio.wait([listening, first])
        assert cancelled, "and then it is not"
        return chat

    chat = asyncio.run(run())
    assert list(results_in(chat.history.entries).values()) == [CANCELLED]


def test_two_concurrent_messages() -> None:
    """The second comes before the first has taken a step: the first is still logged, and both get its end."""

    async def run() -> tuple[Conversation, list[list[LoopEvent]]]:
        chat = Conversation(FunctionModel(lambda context, options: "Hello."))
        loop = ToolLoop(chat)
        return chat, await asyncio.gather(*(drained(loop, words) for words in ("One.", "Two.", "Three.")))

    chat, received = asyncio.run(run())
    assert [last_reason(events) for events in received] == ["interrupted", "interrupted", "answered"]
    assert [entry.content for entry in chat.by_role("user")] == [(Text("One."),), (Text("Two."),), (Text("Three."),)]
    assert [end_reason(entry) for entry in chat.history.entries].count("interrupted") == 2
    assert refusals(chat.history.snapshot()) == []


def test_an_interruption_before_the_model_is_asked_is_in_the_log_too() -> None:
    waiting: list[bool] = []

    async def summarise(chat: Conversation, event: CompactionNeeded) -> None:
        waiting.append(True)
        await asyncio.Event().wait()

    async def run() -> Conversation:
        chat = Conversation(ScriptedModel("Never sent."), token_limit=1)
        chat.on_compaction(summarise)
        loop = ToolLoop(chat)
        listening = asyncio.ensure_future(drained(loop, "A question that is long enough."))
        while not waiting:
            await asyncio.sleep(0)
        assert await loop.interrupt()
        assert last_reason(await listening) == "interrupted"
        assert last_reason(await drained(ToolLoop(chat))) == "interrupted", "it is over, and stays over"
        return chat

    chat = asyncio.run(run())
    assert end_reason(chat.history.entries[-1]) == "interrupted"
    assert chat.by_role("assistant") == ()


def test_interrupting_an_idle_conversation_returns_false() -> None:
    async def run() -> None:
        loop = ToolLoop(Conversation(ScriptedModel("Hello.")))
        assert not await loop.interrupt()
        await drained(loop, "Hi.")
        assert not await loop.interrupt()

    asyncio.run(run())


def test_a_tool_that_stops_its_own_loop() -> None:
    async def run() -> list[LoopEvent]:
        loop: ToolLoop

        @tool
        async def stop() -> str:
            await loop.interrupt()
            return "never"

        loop = ToolLoop(Conversation(ScriptedModel(call("stop")), tools=[stop]))
        return await drained(loop, "Go.")

    assert last_reason(asyncio.run(run())) == "interrupted"


def test_leaving_a_stream_interrupts_it_without_a_running_loop() -> None:
    async def run() -> Conversation:
        chat = Conversation(ScriptedModel(["A long answer, sent in pieces.", call("work")]), tools=Workshop().tools())
        chat.add("Go.")
        deltas = chat.stream_model()
        for _ in range(3):
            await anext(deltas)
        await deltas.aclose()
        return chat

    chat = asyncio.run(run())
    output = chat.recent(1)[0]
    assert isinstance(output, ModelOutputEntry)
    assert output.stop_reason == "interrupted"
    assert output.response_markdown == "A long answe"
    assert refusals(chat.history.snapshot()) == []


def test_half_a_call_is_kept_closed_and_legal() -> None:
    async def half(context: Sequence[ContextEntry], options: ProviderCallOptions) -> AsyncIterator[Item]:
        yield PartStarted(0, ToolCallRequest("work", "a", ""))
        yield PartDelta(0, '{"city": "Os')
        await asyncio.Event().wait()

    async def run() -> Conversation:
        chat = Conversation(FunctionModel(lambda c, o: half(c, o)), tools=Workshop().tools())
        loop = ToolLoop(chat)
        listening = asyncio.ensure_future(drained(loop, "Go."))
        for _ in range(20):
            await asyncio.sleep(0)
        await loop.interrupt()
        assert last_reason(await listening) == "interrupted"
        return chat

    chat = asyncio.run(run())
    output, results = chat.recent(2)
    assert output.tool_calls[0].arguments == '{"city": "Os'
    assert isinstance(results, ToolCallResultsEntry)
    assert results.results[0].result_markdown == f"{NOT_RUN}it was interrupted."
    assert refusals(chat.history.snapshot()) == []


def test_a_full_store_is_reported_when_the_interruption_is_written() -> None:
    class Full(CheckedJournal):
        is_full = False

        def write(self, entry: HistoryEntry, stored: bytes) -> None:
            if self.is_full:
                raise StoreFull("no space left")
            super().write(entry, stored)

    journal = Full()
    chat = Conversation(talking(), tools=Workshop().tools(), history=AgentHistory(journal=journal))

    async def run() -> None:
        loop = ToolLoop(chat)
        async for event in loop.stream("Go."):
            if isinstance(event, TextDelta):
                journal.is_full = True
                await loop.interrupt()

    with pytest.raises(StoreFull):
        asyncio.run(run())
    assert chat.history.version == len(journal.kept), "nothing half-written"


def test_a_turn_running_in_another_thread_is_interrupted_there() -> None:
    async def run() -> None:
        chat = Conversation(talking(), tools=Workshop().tools())
        stream = ToolLoop(chat).stream("Go.")
        await anext(stream)
        with pytest.raises(ConversationError, match="in another event loop"):
            ToolLoop(chat).run_sync("Something else.")  # which, inside of a loop, has a thread of its own
        assert last_reason([event async for event in stream]) == "answered"
        assert [entry.content for entry in chat.by_role("user")] == [(Text("Go."),)]

    asyncio.run(run())


TALKER = """
import sys, time
sys.path.insert(0, sys.argv[2])
from antiphon.conversation import Conversation, ToolLoop
from antiphon.providers.scripted import ScriptedModel, call
from antiphon.tools import tool

@tool
def hang() -> str:
    "Hangs in a thread."
    print("hanging\\n", end="", flush=True)  # one write: two threads print
    time.sleep(60)
    return "never"

with Conversation(ScriptedModel(["I begin.", call("hang"), call("hang")], "Never."), tools=[hang], store=sys.argv[1]) as chat:
    try:
        ToolLoop(chat).run_sync("Go.")
    except KeyboardInterrupt:
        print("interrupted", flush=True)
"""


def test_ctrl_c_in_run_sync(tmp_path: Path) -> None:
    script = tmp_path / "talker.py"
    script.write_text(TALKER)
    command = [sys.executable, str(script), str(tmp_path / "chats.db"), str(ROOT / "tests")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ}) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "hanging\n"
        assert process.stdout.readline() == "hanging\n"
        process.send_signal(signal.SIGINT)
        assert process.stdout.read() == "interrupted\n"
        assert process.wait() == 0
    with SqliteStore(tmp_path / "chats.db") as store:
        history = store.open("last")
        assert list(results_in(history.entries).values()) == [CANCELLED, CANCELLED]
        assert end_reason(history.entries[-1]) == "interrupted"
        assert refusals(history.snapshot()) == []
        with Conversation(ScriptedModel("Yes?"), store=store, resume="last") as chat:
            assert ToolLoop(chat).run_sync("And now?").text == "Yes?"


def test_leaving_a_turn_of_a_sealed_history_is_silent_in_the_event_loop(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A worker seals the history before it cancels the turn; the turn's failure to write is not reported."""
    started = asyncio.Event()

    @tool
    async def wait() -> str:
        "Wait."
        started.set()
        await asyncio.sleep(60)
        return "done"

    async def leave() -> None:
        chat = Conversation(ScriptedModel(call("wait"), "over"), tools=[wait], store=str(tmp_path / "chats.db"))
        turn = asyncio.ensure_future(ToolLoop(chat).run("Go."))
        await started.wait()
        chat.history.seal("the lease was released")
        turn.cancel()
        with pytest.raises(asyncio.CancelledError):
            await turn

    asyncio.run(leave())
    gc.collect()
    assert "never retrieved" not in caplog.text
