"""The token check of a `Conversation`: what a thread costs and takes, and the event that asks for compaction."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Sequence

import pytest

from antiphon.context.tokens import CHARACTERS_PER_TOKEN
from antiphon.conversation import CompactionNeeded, Conversation
from antiphon.history import ContextEntry
from antiphon.parts import Text, TokenUsage
from antiphon.providers.call import ProviderCallOptions
from antiphon.providers.scripted import FunctionModel, ScriptedAnswer, ScriptedModel
from antiphon.wire.output import ModelOutput


def test_usage_adds_up_and_keeps_the_providers_figures() -> None:
    raw = {"prompt_tokens": 10, "prompt_cache_hit_tokens": 4}
    turns = [
        ModelOutput(parts=(Text("One."),), usage=TokenUsage(10, 5, 4, raw=raw, format="openai-chat")),
        ModelOutput(parts=(Text("Two."),), usage=TokenUsage(20, 7, reasoning_tokens=3)),
    ]
    chat = Conversation(ScriptedModel(*turns))
    for question in ("First?", "Second?"):
        chat.add(question)
        asyncio.run(chat.call_model())
    usage = chat.usage
    assert (usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens) == (30, 12, 4)
    assert (usage.reasoning_tokens, usage.total) == (3, 42)
    metadata = chat.by_role("assistant")[0].metadata  # type: ignore[attr-defined]
    assert metadata.usage.raw == raw
    chat.clear()
    assert chat.usage.total == 42, "what was paid stays paid"


class Hundred:
    """A local counter that says 100 of everything, or fails."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error

    def count(self, entry: ContextEntry) -> int | None:
        if self.error is not None:
            raise self.error
        return 100


def test_tokens_are_as_reported_else_counted_else_guessed(caplog: pytest.LogCaptureFixture) -> None:
    question = "x" * 250
    chat = Conversation(ScriptedModel(ModelOutput(parts=(Text("y"),), usage=TokenUsage(1000, 1))), counter=Hundred())
    chat.add(question)
    assert chat.tokens == 100, "no usage reported yet: counted here"
    asyncio.run(chat.call_model())
    assert chat.tokens == 1001, "as the API reported"
    chat.add(question)
    assert chat.tokens == 1001 + math.ceil(100 * 3 / 0.95), "and what came since, as that API would count it"
    guessing = Conversation(ScriptedModel(), counter=Hundred(RuntimeError("no tokenizer")))
    guessing.add(question)
    with caplog.at_level(logging.WARNING):
        assert guessing.tokens == 250 / CHARACTERS_PER_TOKEN
    assert "token counter" in caplog.text


def echo(context: Sequence[ContextEntry], options: ProviderCallOptions) -> ScriptedAnswer:
    """Says how much it was shown."""
    return f"I see {len(context)} entries."


def test_compaction_is_requested_above_the_limit_and_takes_effect_immediately() -> None:
    received: list[CompactionNeeded] = []

    def compact(chat: Conversation, event: CompactionNeeded) -> None:
        received.append(event)
        chat.history.compact("They counted.", chat.history.version - 1)

    chat = Conversation(FunctionModel(echo), counter=Hundred(), token_limit=300)
    chat.on_compaction(compact)
    for question in ("One?", "Two?", "Three?"):
        chat.add(question)
    assert asyncio.run(chat.check_tokens()) is None, "at the limit is not above it"
    chat.add("Four?")
    output = asyncio.run(chat.call_model())
    assert received == [CompactionNeeded(400, 300)]
    assert output.response_markdown == "I see 2 entries.", "the summary and the last question, in this very call"


def test_async_subscribers_are_awaited_and_a_failing_one_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    received: list[str] = []

    async def slow(chat: Conversation, event: CompactionNeeded) -> None:
        await asyncio.sleep(0)
        received.append("slow")

    def failing(chat: Conversation, event: CompactionNeeded) -> None:
        raise RuntimeError("no summary today")

    async def failing_later(chat: Conversation, event: CompactionNeeded) -> None:
        await asyncio.sleep(0)
        raise RuntimeError("no summary tonight")

    chat = Conversation(FunctionModel(echo), counter=Hundred(), token_limit=50)
    chat.add("One?")
    stop = [chat.on_compaction(subscriber) for subscriber in (failing, failing_later, slow)]
    with caplog.at_level(logging.ERROR):
        assert asyncio.run(chat.call_model()).response_markdown == "I see 1 entries."
    assert received == ["slow"]
    assert "no summary today" in caplog.text
    assert "no summary tonight" in caplog.text
    for unsubscribe in (*stop, *stop):  # twice is as good as once
        unsubscribe()
    asyncio.run(chat.call_model())
    assert received == ["slow"]
