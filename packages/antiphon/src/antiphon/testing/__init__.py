"""Test an agent without a network: models that play a script, and assertions on what a provider was sent.

`ScriptedModel` plays turns, `FunctionModel` calls a function. Both see what a provider would: context, tools and settings.

    model = ScriptedModel(call("weather", city="Oslo"), "It rains.")
    chat = Conversation(model, tools=[weather])
    ToolLoop(chat).run_sync("Is it raining in Oslo?")
    assert_sent(model, "Is it raining")
    assert_called(chat, "weather", city="Oslo")
    assert_accepted(chat)
"""

from __future__ import annotations

from typing import Any

import msgspec

from antiphon.conversation import Conversation
from antiphon.history import ModelOutputEntry, Origin
from antiphon.parts import ToolCallRequest
from antiphon.providers.call import ProviderCallOptions
from antiphon.providers.rendering import render_call
from antiphon.providers.scripted import FunctionModel, ScriptedCall, ScriptedModel, call
from antiphon.testing.compaction_probe import CompactionReport, probe_compaction
from antiphon.wire import formats

__all__ = [
    "CompactionReport",
    "FunctionModel",
    "ScriptedCall",
    "ScriptedModel",
    "assert_accepted",
    "assert_called",
    "assert_not_called",
    "assert_offered",
    "assert_sent",
    "call",
    "calls_of",
    "probe_compaction",
    "provider_body",
    "sent_text",
]


def sent_text(model: ScriptedModel, number: int = -1) -> str:
    """All text that the model was sent in its call `number` (by default the last), one message a line."""
    return "\n".join(
        " ".join(filter(None, (_text(part) for part in entry.content)))
        for entry in _call_at(model, number).context
        if entry.content
    )


def _call_at(model: ScriptedModel, number: int) -> ScriptedCall:
    if not model.calls:
        raise AssertionError(f"{model.name} was never called")
    try:
        return model.calls[number]
    except IndexError:
        raise AssertionError(f"{model.name} was called {len(model.calls)} times, not {number + 1}") from None


def assert_sent(model: ScriptedModel, *texts: str, number: int = -1) -> None:
    """Assert that each text is in what the model was sent in its call `number` (by default the last)."""
    sent = sent_text(model, number)
    missing = [text for text in texts if text not in sent]
    assert not missing, f"the model was not sent {missing}; it was sent:\n{sent}"


def assert_offered(model: ScriptedModel, *names: str, number: int = -1) -> None:
    """Assert that the model was offered exactly these tools."""
    offered = [tool.name for tool in _call_at(model, number).options.tools]
    assert sorted(offered) == sorted(names), f"the model was offered {offered}, not {list(names)}"


def calls_of(chat: Conversation, name: str) -> list[dict[str, Any]]:
    """The arguments of all calls of a tool in the conversation, oldest first; text that is not a JSON object under `input`."""
    return [
        _arguments(one)
        for entry in chat.history.effective
        if isinstance(entry, ModelOutputEntry)
        for one in entry.content
        if isinstance(one, ToolCallRequest) and one.tool_name == name
    ]


def assert_called(chat: Conversation, name: str, /, **arguments: object) -> None:
    """Assert that the model called a tool, at least once with these arguments."""
    calls = calls_of(chat, name)
    assert calls, f"{name} was not called"
    matching = any(arguments.items() <= made.items() for made in calls)
    assert matching, f"{name} was not called with {arguments}, but with {calls}"


def assert_not_called(chat: Conversation, name: str) -> None:
    """Assert that the model did not call a tool."""
    calls = calls_of(chat, name)
    assert not calls, f"{name} was called with {calls}"


def provider_body(chat: Conversation, format_name: str = "openai-chat", model: str = "") -> dict[str, Any]:
    """The request body that a provider of this format would be sent now."""
    options = ProviderCallOptions(model=model, tools=chat.registry.definitions, settings=chat.settings)
    rendered = render_call(chat.context(), options, Origin("", format_name, model))
    body: dict[str, Any] = msgspec.json.decode(b"".join(rendered.chunks))
    return body


_MODELS = {
    "openai-chat": "gpt-4o",
    "openai-responses": "gpt-4o",
    "anthropic": "claude-sonnet-4-5",
    "gemini": "gemini-2.5-pro",
    "gemini-interactions": "gemini-2.5-pro",
}


def assert_accepted(chat: Conversation) -> None:
    """Assert that every provider format accepts the conversation as it is now."""
    for name, format_ in formats.items():
        violations = format_.check_request(provider_body(chat, name, _MODELS[name]))
        assert not violations, f"{name} would refuse the conversation: {'; '.join(map(str, violations))}"


def _arguments(one: ToolCallRequest) -> dict[str, Any]:
    try:
        return one.arguments_object()
    except ValueError:
        return {"input": one.arguments}


def _text(part: Any) -> str:
    if isinstance(part, ToolCallRequest):
        return f"{part.tool_name}({part.arguments})"
    return str(getattr(part, "text", "") or getattr(part, "result_markdown", ""))
