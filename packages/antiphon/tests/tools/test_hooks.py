"""Hooks around model calls and tool calls: they observe, change and refuse; sync or async; composed; kept by agents."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec import structs

import antiphon as ap
from antiphon.history import ModelInputEntry, ToolCallResultsEntry
from antiphon.parts import OutputPart, Text
from antiphon.providers.scripted import ScriptedModel, call
from antiphon.tools import HookedModelCall
from support.planned_turns import refusals


@ap.tool(effect="read")
async def look(word: str) -> str:
    "Look a word up."
    return f"{word} is secret"


class Recorder(ap.Hook):
    """Notes what happens; async where `is_async`."""

    def __init__(self, name: str, notes: list[str], is_async: bool = False) -> None:
        self.name, self.notes, self.is_async = name, notes, is_async

    def _note(self, what: str) -> Any:
        self.notes.append(f"{self.name} {what}")
        return asyncio.sleep(0) if self.is_async else None

    def before_model(self, call: HookedModelCall) -> Any:
        return self._note(f"before model, {len(call.tools)} tools")

    def after_model(self, parts: Any) -> Any:
        return self._note(f"after model, {len(parts)} parts")

    def before_tool(self, call: ap.ToolCallRequest, tool: ap.Tool | None) -> Any:
        return self._note(f"before {call.tool_name} {tool is look}")

    def after_tool(self, call: ap.ToolCallRequest, result: ap.ToolCallResult) -> Any:
        return self._note(f"after {call.tool_name} {result.status.value}")


def test_hooks_observe_in_order_and_back() -> None:
    notes: list[str] = []
    hooks = [Recorder("one", notes), Recorder("two", notes, is_async=True)]
    chat = ap.Conversation(ScriptedModel(call("look", word="x"), "done"), tools=[look], hooks=hooks)
    assert ap.ToolLoop(chat).run_sync("Go.").text == "done"
    assert notes == [
        *("one before model, 1 tools", "two before model, 1 tools"),
        *("two after model, 1 parts", "one after model, 1 parts"),
        *("one before look True", "two before look True", "two after look success", "one after look success"),
        *("one before model, 1 tools", "two before model, 1 tools"),
        *("two after model, 1 parts", "one after model, 1 parts"),
    ]


class Changer(ap.Hook):
    async def before_model(self, call: HookedModelCall) -> None:
        call.settings = structs.replace(call.settings, seed=7)
        call.context = [
            structs.replace(entry, content=(Text("masked"),)) if isinstance(entry, ModelInputEntry) else entry
            for entry in call.context
        ]

    def after_model(self, parts: tuple[OutputPart, ...]) -> tuple[OutputPart, ...]:
        return tuple(Text(part.text.upper()) if isinstance(part, Text) else part for part in parts)

    def before_tool(self, call: ap.ToolCallRequest, tool: ap.Tool | None) -> ap.ToolCallRequest:
        return structs.replace(call, arguments='{"word": "changed"}')

    async def after_tool(self, call: ap.ToolCallRequest, result: ap.ToolCallResult) -> ap.ToolCallResult:
        return structs.replace(result, content=(Text(result.result_markdown.replace("secret", "***")),))


def test_hooks_change_what_is_sent_run_and_recorded() -> None:
    model = ScriptedModel(call("look", word="x"), "done")
    chat = ap.Conversation(model, tools=[look], hooks=[Changer()])
    assert ap.ToolLoop(chat).run_sync("My number is 5.").text == "DONE"
    assert model.calls[0].options.settings.seed == 7
    assert "masked" in str(model.calls[0].context)
    assert "My number" not in str(model.calls[0].context)
    assert "My number is 5." in str(chat.messages[0].content), "the log keeps the message"
    (results,) = [entry for entry in chat.history.entries if isinstance(entry, ToolCallResultsEntry)]
    assert results.results[0].result_markdown == "changed is ***"


@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_refused_model_call_ends_the_turn_with_the_reason(is_streamed: bool) -> None:
    class Stop(ap.Hook):
        def before_model(self, call: HookedModelCall) -> None:
            if call.usage.total:
                raise ap.CallRefused("the budget is used")

    chat = ap.Conversation(model := ScriptedModel(call("look", word="x"), "done"), tools=[look], hooks=[Stop()])

    async def run() -> tuple[str, str]:
        if not is_streamed:
            result = await ap.ToolLoop(chat).run("Go.")
            return result.reason, result.text
        events = [event async for event in ap.ToolLoop(chat).stream("Go.")]
        assert isinstance(events[-1], ap.LoopFinished)
        return events[-1].reason, events[-1].text

    assert asyncio.run(run()) == ("refused", "the budget is used")
    assert model.turns_left == 1
    assert "the budget is used" in str(chat.history.entries[-1])
    assert refusals(chat.history.snapshot()) == []
    chat.executor.hooks = ()
    assert ap.ToolLoop(chat).run_sync("And now?").text == "done"


def test_a_refused_tool_call_is_a_failed_result_and_the_tool_does_not_run() -> None:
    runs: list[str] = []

    @ap.tool
    async def delete(name: str) -> str:
        "Delete."
        runs.append(name)
        return "gone"

    class Allow(ap.Hook):
        def before_tool(self, call: ap.ToolCallRequest, tool: ap.Tool | None) -> None:
            if call.tool_name != "look":
                raise ap.ToolError(f"{call.tool_name} is not on the list")

    chat = ap.Conversation(ScriptedModel(call("delete", name="x"), "ok"), tools=[delete], hooks=[Allow()])
    ap.ToolLoop(chat).run_sync("Go.")
    assert not runs
    assert "delete is not on the list" in str(chat.history.entries)


class Broken(ap.Hook):
    def __init__(self, where: str) -> None:
        self.where = where

    def before_model(self, call: HookedModelCall) -> None:
        self._fail("before_model")

    def before_tool(self, call: ap.ToolCallRequest, tool: ap.Tool | None) -> None:
        self._fail("before_tool")

    def after_tool(self, call: ap.ToolCallRequest, result: ap.ToolCallResult) -> None:
        self._fail("after_tool")

    def _fail(self, where: str) -> None:
        if where == self.where:
            raise ValueError("broken")


def test_a_hook_that_fails_refuses() -> None:
    def play(where: str) -> tuple[str, str]:
        chat = ap.Conversation(ScriptedModel(call("look", word="x"), "done"), tools=[look], hooks=[Broken(where)])
        return ap.ToolLoop(chat).run_sync("Go.").reason, str(chat.history.entries)

    assert play("before_model")[0] == "refused"
    assert "a check failed" in play("before_tool")[1]
    reason, log = play("after_tool")
    assert (reason, "is withheld" in log, "is secret" in log) == ("answered", True, False)


def test_a_hook_cannot_turn_an_approved_call_into_another() -> None:
    class Swap(ap.Hook):
        def before_tool(self, call: ap.ToolCallRequest, tool: ap.Tool | None) -> ap.ToolCallRequest:
            return structs.replace(call, tool_name="other")

    chat = ap.Conversation(ScriptedModel(call("look", word="x"), "done"), tools=[look], hooks=[Swap()])
    ap.ToolLoop(chat).run_sync("Go.")
    assert "may change only its arguments" in str(chat.history.entries)


def test_agents_and_agents_as_tools_keep_the_hooks() -> None:
    notes: list[str] = []
    helper = ap.Agent("helper", "Help.", model=ScriptedModel(call("look", word="x"), "helped"), tools=[look])
    boss = ap.Agent("boss", "Lead.", tools=[helper.as_tool()])
    chat = ap.Conversation(ScriptedModel(call("ask_helper", request="x"), "done"), hooks=[Recorder("one", notes)])
    ap.ToolLoop(chat, agents=[boss]).run_sync("Go.")
    assert "one after look success" in notes
    assert sum(note.startswith("one before model") for note in notes) == 4


def test_model_calls_by_hand_have_hooks_too() -> None:
    class Stop(ap.Hook):
        def before_model(self, call: HookedModelCall) -> None:
            raise ap.CallRefused("no")

    chat = ap.Conversation(ScriptedModel("x"), hooks=[Stop()])
    chat.add("Go.")
    with pytest.raises(ap.CallRefused, match="no"):
        chat.call_model_sync()

    async def stream() -> None:
        async for _ in chat.stream_model():
            pass

    with pytest.raises(ap.CallRefused):
        asyncio.run(stream())
    assert chat.history.version == 1
