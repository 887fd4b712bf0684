"""Settings of model calls: for a conversation, a loop, a run and one call; mistakes say what to write."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import antiphon as ap
from antiphon.conversation.model_settings import read_settings
from antiphon.errors import ConversationError
from antiphon.wire import ModelRequest, OutputFormat, PromptCaching, Reasoning, ToolChoice


def sent(model: ap.ScriptedModel) -> list[ModelRequest]:
    return [call.options.settings for call in model.calls]


def test_the_narrower_settings_go_first() -> None:
    model = ap.ScriptedModel("1", "2", "3", "4")
    chat = ap.Conversation(model, settings={"temperature": 0, "seed": 1})
    loop = ap.ToolLoop(chat, settings=ap.ModelSettings(temperature=0.5))
    loop.run_sync("a")
    loop.run_sync("b", settings=ap.ModelSettings(temperature=1.0, max_output_tokens=9))
    chat.add("c")
    chat.call_model_sync(settings={"seed": 2})

    async def stream() -> None:
        async for _ in loop.stream("d", settings={"top_k": 3}):
            pass

    asyncio.run(stream())
    assert sent(model) == [
        ModelRequest(temperature=0.5, seed=1),
        ModelRequest(temperature=1.0, seed=1, max_output_tokens=9),
        ModelRequest(temperature=0, seed=2),
        ModelRequest(temperature=0.5, seed=1, top_k=3),
    ]


def test_short_forms() -> None:
    settings = ap.ModelSettings(stop="END", reasoning="high", tool_choice="weather")
    assert settings.as_request() == ModelRequest(
        stop=("END",), reasoning=Reasoning(effort="high"), tool_choice=ToolChoice("tool", ("weather",))
    )
    assert ap.ModelSettings(cache_prompt="1h").as_request() == ModelRequest(cache_prompt=PromptCaching("always", "1h"))
    assert ap.ModelSettings(cache_prompt=False).as_request() == ModelRequest(cache_prompt=PromptCaching("off"))
    assert ap.ModelSettings(tool_choice="required").as_request() == ModelRequest(tool_choice=ToolChoice("required"))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"temprature": 0}, "did you mean temperature"),
        ({"max_tokens": 5}, "did you mean max_output_tokens"),
        ({"nothing_like_it": 5}, "use max_output_tokens, temperature"),
        ({"temperature": "hot"}, "temperature='hot': must be a number"),
        ({"max_output_tokens": 0}, "at least 1"),
        ({"cache_prompt": "2h"}, r'cache_prompt=.2h.: must be True \(5 minutes\), "5m", "1h", "auto" or False'),
        ({"cache_control": True}, "did you mean cache_prompt"),
        ({"output_format": {"type": "json_object"}}, r"OutputFormat\('json_schema', schema\)"),
        ({"output_format": OutputFormat("json")}, "kind='json': use one of text"),  # type: ignore[arg-type]
        ({"output_format": OutputFormat("json_schema")}, "schema is missing"),
        (ModelRequest(model="gpt"), "settings cannot set model"),
        (0.5, r"use ModelSettings\(temperature=0\)"),
    ],
)
def test_mistakes_say_what_to_write(settings: Any, message: str) -> None:
    with pytest.raises(ConversationError, match=message):
        read_settings(settings)
    with pytest.raises(ConversationError, match=message):
        ap.Conversation(ap.ScriptedModel("x"), settings=settings)
