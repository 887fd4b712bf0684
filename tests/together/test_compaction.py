"""A summary that replaces everything before the latest turn."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence

import pytest

from antiphon.context.live import SUMMARY_TITLE
from antiphon.context.model_usage import model_calls_of
from antiphon.conversation import Conversation, ToolLoop
from antiphon.conversation.compaction import compact
from antiphon.errors import ConversationError
from antiphon.history import CompactionEntry, ContextEntry
from antiphon.parts import Text, text_of
from antiphon.providers.call import ProviderCallOptions
from antiphon.providers.scripted import FunctionModel, ScriptedAnswer, ScriptedModel, call
from antiphon.tools import tool
from antiphon.wire.output import ProviderError
from antiphon_chat.shared.spending import spending_of


@tool
async def weather(city: str) -> str:
    "Current weather."
    return f"Rain in {city}"


def test_a_summary_is_requested_separately_and_precedes_the_last_question() -> None:
    async def talked() -> None:
        model = ScriptedModel(call("weather", city="Oslo"), "Rain.", "Fine.", "They spoke of rain in Oslo.")
        chat = Conversation(model, tools=[weather])
        with pytest.raises(ConversationError, match="nothing to summarise yet"):
            await compact(chat)
        await ToolLoop(chat).run("Rain in Oslo? " * 50)
        await ToolLoop(chat).run("And Bergen?")
        version, tokens = chat.history.version, chat.tokens
        entry = await compact(chat)
        assert (entry.summary, entry.up_to) == ("They spoke of rain in Oslo.", 5)
        assert chat.history.version == version + 2  # the note of the side call, and the summary
        assert chat.context()[0].content == (Text(f"{SUMMARY_TITLE}\n{entry.summary}"),)
        assert 0 < chat.tokens < tokens
        with pytest.raises(ConversationError, match="nothing to summarise yet"):
            await compact(chat)

    asyncio.run(talked())


@pytest.mark.parametrize("silent", ["", ProviderError("busy", "overloaded")])
def test_where_no_model_writes_one_a_summary_is_an_extract(silent: str | ProviderError) -> None:
    async def talked() -> None:
        chat = Conversation(ScriptedModel("Hello yourself.", "Yes.", silent))
        await ToolLoop(chat).run("Hello there")
        await ToolLoop(chat).run("Are you still there?")
        assert (await compact(chat)).summary == "Person: Hello there\nModel: Hello yourself."

    asyncio.run(talked())


def test_the_entry_is_appended_by_the_given_writer() -> None:
    """A remote store is written in a thread; the summary is not appended before the writer runs."""

    async def talked() -> None:
        chat = Conversation(ScriptedModel("One.", "Two.", "A summary."))
        await ToolLoop(chat).run("First?")
        await ToolLoop(chat).run("Second?")
        version, threads = chat.history.version, list[int]()

        async def write(append: Callable[[], CompactionEntry]) -> CompactionEntry:
            assert chat.history.version == version + 1  # the note of the side call

            def work() -> CompactionEntry:
                threads.append(threading.get_ident())
                return append()

            return await asyncio.to_thread(work)

        entry = await compact(chat, write)
        assert chat.history.entries[-1] == entry
        assert (entry.summary, chat.history.version) == ("A summary.", version + 2)
        assert threads != [threading.get_ident()]
        assert len(threads) == 1

    asyncio.run(talked())


FACT = "The invoice is number 90210."


@pytest.mark.parametrize("size", [10, 200_000])
@pytest.mark.parametrize("has_model", [True, False])
def test_an_earlier_summary_is_carried_over_whole(size: int, has_model: bool) -> None:
    earlier = f"{'They spoke of many things. ' * 20}{FACT}"
    asked_for: list[str] = []

    def answer(context: Sequence[ContextEntry], options: ProviderCallOptions) -> ScriptedAnswer:
        if not str(context[0].content).startswith("(Text(text='Summarise"):
            return "Yes."
        asked_for.append(text_of(context[-1].content))
        return (
            earlier
            if len(asked_for) == 1
            else "A second summary."
            if has_model
            else ProviderError("busy", "overloaded")
        )

    async def talked() -> CompactionEntry:
        chat = Conversation(FunctionModel(answer))
        for number in range(2):
            await ToolLoop(chat).run(f"Question {number}.")
        assert (await compact(chat)).summary == earlier
        await ToolLoop(chat).run("Much text: " + "x" * size)
        await ToolLoop(chat).run("The last question.")
        return await compact(chat)

    entry = asyncio.run(talked())
    assert earlier in asked_for[1]
    assert "Much text" in asked_for[1] or size > 120_000
    assert entry.summary == "A second summary." if has_model else earlier in entry.summary


def test_extracts_of_extracts_stay_bounded() -> None:
    async def talked() -> None:
        chat = Conversation(FunctionModel(lambda *_: "z" * 290))
        await ToolLoop(chat).run(FACT)
        chat.model = "offline/plain"
        for count in (1, 60, 60, 60, 60):
            for number in range(count):
                chat.add(f"Message {number}: " + "y" * 280)
            entry = await compact(chat)
            assert FACT in entry.summary
            assert len(entry.summary) < 13_000

    asyncio.run(talked())


def test_tokens_of_a_summary_are_counted() -> None:
    async def talked() -> None:
        chat = Conversation(ScriptedModel("One.", "Two.", "A summary.", "Three."))
        await ToolLoop(chat).run("First?")
        await ToolLoop(chat).run("Second?")
        before, run = chat.usage.total, chat.totals.usage.total
        entry = await compact(chat)
        note = chat.history.entries[-2]
        assert (entry, entry.metadata) == (chat.history.entries[-1], None)
        (made,) = model_calls_of(note)
        assert made.usage is not None
        assert made.origin.model == "scripted"
        assert made.usage.total > 0
        assert chat.usage.total == before + made.usage.total == spending_of(chat.history.entries).usage.total
        assert chat.totals.usage.total == run + made.usage.total
        assert note.metadata is not None
        assert note.metadata.duration is not None

    asyncio.run(talked())
