"""`Conversation.call_aside`: a model call beside the conversation, which is a call like every other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

import antiphon as ap
from antiphon.context.model_usage import model_calls_of
from antiphon.conversation import SideAnswer
from antiphon.errors import CallRefused, ConversationError
from antiphon.history import ContextEntryRole, DebugLogEntry, HistoryEntry
from antiphon.parts import OutputPart, Text, TokenUsage
from antiphon.providers.scripted import call
from antiphon.tools.hooks import HookedModelCall
from antiphon.wire.output import ModelOutput, ProviderError


@ap.tool
def look() -> str:
    """Look around."""
    return "A room."


def aside(chat: ap.Conversation, **options: Any) -> SideAnswer:
    return asyncio.run(chat.call_aside("Which language?", **{"purpose": "probe", **options}))


def notes(chat: ap.Conversation) -> list[DebugLogEntry]:
    return [e for e in chat.history.entries if isinstance(e, DebugLogEntry) and e.category == "side call"]


def test_neither_question_nor_answer_is_part_of_the_conversation() -> None:
    reply = ModelOutput(parts=(Text("English."),), usage=TokenUsage(50, 5))
    model = ap.ScriptedModel(reply, "Yes.")
    chat = ap.Conversation(model, tools=[look], system="Be brief.", settings={"tool_choice": "required"})
    chat.add("Is it raining?")
    answer = aside(chat, system="You know languages.")
    assert (answer.text, answer.usage, answer.stop_reason) == ("English.", TokenUsage(50, 5), "end")
    (sent,) = model.calls
    assert [(entry.role, entry.content[0]) for entry in sent.context] == [
        (ContextEntryRole.SYSTEM, Text("You know languages.")),
        (ContextEntryRole.MODEL_INPUT, Text("Which language?")),
    ]
    assert (sent.options.tools, sent.options.settings.tool_choice) == ((), None), "nothing but what was asked"
    (note,) = notes(chat)
    assert (note.message, [used.usage for used in model_calls_of(note)]) == ("probe", [TokenUsage(50, 5)])
    assert chat.usage.total == 55
    assert chat.totals.usage.total == 55
    assert len(chat.messages) == len([e for e in chat.messages if "language" not in str(e)])
    assert ap.ToolLoop(chat).run_sync().text == "Yes."


def test_with_the_context_the_request_begins_like_the_conversations_own() -> None:
    model = ap.ScriptedModel(call("look"), "A room.", "It is English.")
    chat = ap.Conversation(model, tools=[look], system="Be brief.", settings={"temperature": 0})
    ap.ToolLoop(chat).run_sync("Look around.")
    aside(chat, context=chat.context())
    own, beside = model.calls[1], model.calls[2]
    assert beside.context[: len(own.context)] == own.context
    assert (beside.options.tools, beside.options.settings) == (own.options.tools, own.options.settings)
    assert beside.context[-1].content == (Text("Which language?"),)


class Masking(ap.Hook):
    """Leaves out a secret and notes the purposes."""

    def __init__(self) -> None:
        self.purposes: list[str] = []

    def before_model(self, call: HookedModelCall) -> None:
        self.purposes.append(call.purpose)
        call.context = [entry for entry in call.context if "secret" not in str(entry.content)]

    def after_model(self, parts: tuple[OutputPart, ...]) -> tuple[OutputPart, ...]:
        return (Text("masked"),)


def test_hooks_see_side_calls() -> None:
    hook = Masking()
    model = ap.ScriptedModel("The secret is out.")
    chat = ap.Conversation(model, hooks=[hook])
    chat.add("A secret.")
    assert aside(chat, context=chat.context()).text == "masked"
    assert hook.purposes == ["probe"]
    assert "secret" not in str(model.calls[0].context)


class Refusing(ap.Hook):
    def after_model(self, parts: tuple[OutputPart, ...]) -> tuple[OutputPart, ...]:
        raise ValueError("it cannot be checked")


def test_an_answer_that_a_hook_refuses_is_withheld_and_paid() -> None:
    chat = ap.Conversation(ap.ScriptedModel("A secret."), hooks=[Refusing()])
    with pytest.raises(CallRefused, match=r"Refusing.after_model failed: ValueError: it cannot be checked"):
        aside(chat)
    (note,) = notes(chat)
    assert note.metadata is not None
    assert "it cannot be checked" in note.metadata.error
    assert "A secret." not in str(list(chat.history.entries))
    assert chat.usage.total > 0


def test_a_provider_that_fails_is_an_error_and_a_note() -> None:
    chat = ap.Conversation(ap.ScriptedModel(ProviderError("it is down", "server")))
    with pytest.raises(ap.ModelCallFailed, match="it is down"):
        aside(chat)
    (note,) = notes(chat)
    assert note.metadata is not None
    assert note.metadata.error == "it is down"
    with pytest.raises(ConversationError, match="say what the side call is for"):
        aside(chat, purpose="")


def test_a_side_call_has_the_time_of_the_run() -> None:
    async def endless(*_: object) -> AsyncIterator[str]:
        yield "It is"
        await asyncio.Event().wait()

    refused: list[str] = []

    async def ask(chat: ap.Conversation, _: object) -> None:
        try:
            await chat.call_aside("Anything?", purpose="probe", model=ap.FunctionModel(endless))
        except CallRefused as error:
            refused.append(str(error))

    chat = ap.Conversation(ap.FunctionModel(lambda *_: "Done."), token_limit=1)
    chat.on_compaction(ask)
    assert chat.tokens == 0  # loads the tokenizer
    result = asyncio.run(asyncio.wait_for(ap.ToolLoop(chat, max_seconds=2.0).run("Go."), 30))
    assert (result.reason, refused) == ("time_budget", ["no probe: time_budget ended the call"])


class Holding(ap.Hook):
    """Checks an answer before anybody sees it."""

    holds_text = True

    def after_model(self, parts: tuple[OutputPart, ...]) -> tuple[OutputPart, ...]:
        return tuple(Text(part.text.replace("secret", "…")) if isinstance(part, Text) else part for part in parts)


def test_a_hook_that_holds_text_comes_before_every_listener() -> None:
    received: list[ap.LoopEvent] = []

    async def run(chat: ap.Conversation) -> None:
        received.extend([event async for event in ap.ToolLoop(chat).stream("Go.")])
        deltas = [str(delta) async for delta in chat.stream_model()]
        assert "secret" not in "".join(deltas)
        assert "Again …." in "".join(deltas)

    chat = ap.Conversation(ap.ScriptedModel("The secret word.", "Again secret."), hooks=[Holding()])
    asyncio.run(run(chat))
    texts = [event.text for event in received if isinstance(event, ap.TextDelta)]
    assert texts == ["The … word."]
    appended: list[HistoryEntry] = [event.entry for event in received if isinstance(event, ap.EntryAppended)]
    assert "secret" not in str(appended)
