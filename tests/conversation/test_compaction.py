"""A summary that replaces everything before the latest turn."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from antiphon.context.live import SUMMARY_TITLE
from antiphon.conversation import Conversation, ToolLoop
from antiphon.conversation.compaction import compact
from antiphon.errors import ConversationError
from antiphon.history import CompactionEntry
from antiphon.parts import Text
from antiphon.providers.scripted import ScriptedModel, call
from antiphon.tools import tool
from antiphon.wire.output import ProviderError


@tool
async def weather(city: str) -> str:
    "Current weather."
    return f"Rain in {city}"


def test_a_summary_is_requested_separately_and_precedes_the_last_question() -> None:
    async def talked() -> None:
        model = ScriptedModel(call("weather", city="Oslo"), "Rain.", "Fine.", "They spoke of rain in Oslo.")
        chat = Conversation(model, tools=[weather])
        with pytest.raises(ConversationError, match="nothing to sum up yet"):
            await compact(chat)
        await ToolLoop(chat).run("Rain in Oslo? " * 50)
        await ToolLoop(chat).run("And Bergen?")
        version, tokens = chat.history.version, chat.tokens
        entry = await compact(chat)
        assert (entry.summary, entry.up_to) == ("They spoke of rain in Oslo.", 5)
        assert chat.history.version == version + 1  # the question for a summary is not part of the conversation
        assert chat.context()[0].content == (Text(f"{SUMMARY_TITLE}\n{entry.summary}"),)
        assert 0 < chat.tokens < tokens
        with pytest.raises(ConversationError, match="nothing to sum up yet"):
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
    """A remote store is written in a thread; nothing is appended before the writer runs."""

    async def talked() -> None:
        chat = Conversation(ScriptedModel("One.", "Two.", "A summary."))
        await ToolLoop(chat).run("First?")
        await ToolLoop(chat).run("Second?")
        version, threads = chat.history.version, list[int]()

        async def write(append: Callable[[], CompactionEntry]) -> CompactionEntry:
            assert chat.history.version == version

            def work() -> CompactionEntry:
                threads.append(threading.get_ident())
                return append()

            return await asyncio.to_thread(work)

        entry = await compact(chat, write)
        assert chat.history.entries[-1] == entry
        assert (entry.summary, chat.history.version) == ("A summary.", version + 1)
        assert threads != [threading.get_ident()]
        assert len(threads) == 1

    asyncio.run(talked())
