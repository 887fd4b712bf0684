"""`antiphon.testing`: each assertion holds where it should, and fails where it should, with the reason."""

from __future__ import annotations

import pytest

import antiphon as ap
from antiphon import testing


@ap.tool(effect="read")
async def weather(city: str) -> str:
    "Current weather in a city."
    return f"Rain in {city}"


@pytest.fixture
def played() -> tuple[ap.Conversation, testing.ScriptedModel]:
    model = testing.ScriptedModel(testing.call("weather", city="Oslo"), "It rains.")
    chat = ap.Conversation(model, tools=[weather], system="Be brief.")
    ap.ToolLoop(chat).run_sync("Is it raining in Oslo?")
    return chat, model


def test_assertions_that_hold(played: tuple[ap.Conversation, testing.ScriptedModel]) -> None:
    chat, model = played
    testing.assert_sent(model, "Be brief.", "Is it raining", "weather", "Rain in Oslo")
    testing.assert_sent(model, "Is it raining", number=0)
    testing.assert_offered(model, "weather")
    testing.assert_called(chat, "weather", city="Oslo")
    testing.assert_called(chat, "weather")
    testing.assert_not_called(chat, "delete")
    testing.assert_accepted(chat)
    assert testing.calls_of(chat, "weather") == [{"city": "Oslo"}]
    system = testing.provider_body(chat, "anthropic", "claude-sonnet-4-5")["system"]
    assert system == [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]


def test_assertions_that_fail_say_why(played: tuple[ap.Conversation, testing.ScriptedModel]) -> None:
    chat, model = played
    with pytest.raises(AssertionError, match=r"(?s)was not sent \['Bergen'\]; it was sent:.*Oslo"):
        testing.assert_sent(model, "Bergen")
    with pytest.raises(AssertionError, match="called 2 times, not 6"):
        testing.assert_sent(model, "Oslo", number=5)
    with pytest.raises(AssertionError, match="never called"):
        testing.sent_text(testing.ScriptedModel())
    with pytest.raises(AssertionError, match="offered"):
        testing.assert_offered(model)
    with pytest.raises(AssertionError, match="never called"):
        testing.assert_offered(testing.ScriptedModel(), "weather")
    with pytest.raises(AssertionError, match=r"but with \[\{'city': 'Oslo'\}\]"):
        testing.assert_called(chat, "weather", city="Bergen")
    with pytest.raises(AssertionError, match="was not called"):
        testing.assert_called(chat, "delete")
    with pytest.raises(AssertionError, match="was called with"):
        testing.assert_not_called(chat, "weather")


def test_a_call_whose_arguments_are_not_json_is_a_call() -> None:
    model = testing.ScriptedModel(ap.ToolCallRequest("weather", "c1", '{"city": '), "Sorry.")
    ap.ToolLoop(chat := ap.Conversation(model)).run_sync("Is it raining?")
    assert testing.calls_of(chat, "weather") == [{"input": '{"city": '}]
    with pytest.raises(AssertionError, match="was called with"):
        testing.assert_not_called(chat, "weather")
