"""Guards fail closed: a hook, an approval policy or a listener that raises stops what it guards.

What could not be checked is not made, not run, not recorded for a model and not sent again; the history stays valid for every
provider; and the reason can be read where the caller looks: in the result of the turn and in the log, also after a resume."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from msgspec import structs

from antiphon.context.model_usage import model_calls_of
from antiphon.conversation import Conversation, LoopEvent, TextDelta, ToolCallStarted, ToolLoop
from antiphon.conversation.compaction import compact
from antiphon.errors import CallRefused, ConversationError, ToolError
from antiphon.history import AgentHistory, CompactionEntry, DebugLogEntry, ModelOutputEntry
from antiphon.parts import Text
from antiphon.providers.scripted import FunctionModel, ScriptedModel, call
from antiphon.tools import Hook, ToolExecutor, ToolRegistry, tool
from support.planned_turns import refusals, results_in

SECRET = "the code is 4711"


def boom(*_: object) -> Any:
    raise ValueError("the guard broke")


async def boom_later(*_: object) -> Any:
    await asyncio.sleep(0)
    raise ValueError("the guard broke")


def refuse_model(*_: object) -> Any:
    raise CallRefused("not today")


def guard(**methods: Callable[..., Any]) -> Hook:
    """A hook with these methods."""
    made: Hook = type("Guard", (Hook,), {name: staticmethod(method) for name, method in methods.items()})()
    return made


FAILURES: dict[str, tuple[Callable[..., Any], str]] = {
    "fails": (boom, "Guard"),
    "fails later": (boom_later, "Guard"),
    "refuses": (refuse_model, "not today"),
}


def seen_by(model: ScriptedModel) -> str:
    """All that the model was ever sent."""
    return str([entry.content for one in model.calls for entry in one.context])


@pytest.mark.parametrize("method", ["before_model", "after_model"])
@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("is_streamed", [True, False])
def test_model_hooks(method: str, failure: str, is_streamed: bool) -> None:
    raising, reason = FAILURES[failure]
    model = ScriptedModel(SECRET, "Second.")
    chat = Conversation(model, hooks=[guard(**{method: raising})])

    async def run() -> Any:
        loop = ToolLoop(chat)
        return await (loop.run("Go.", on_event=lambda _: None, check=False) if is_streamed else loop.run("Go."))

    result = asyncio.run(run())
    assert result.reason == "refused"
    assert reason in result.text
    if failure != "refuses":
        assert method in result.text
        assert "the guard broke" in result.text
    assert not any(isinstance(entry, ModelOutputEntry) for entry in chat.history.entries)
    assert SECRET not in str(chat.history.entries)
    assert refusals(chat.history.snapshot()) == []
    assert len(model.calls) == (method == "after_model")
    assert chat.usage.total == sum(
        one.usage.total for entry in chat.history.entries for one in model_calls_of(entry) if one.usage
    )
    assert bool(chat.usage.total) == (method == "after_model"), "a call that was made is counted, withheld or not"

    resumed = Conversation(model, history=AgentHistory(chat.history.entries))
    again = asyncio.run(ToolLoop(resumed).run())
    assert (again.reason, again.text) == ("refused", result.text), "a resume knows the reason"
    asyncio.run(ToolLoop(resumed).run("Another question."))
    assert SECRET not in seen_by(model), "what was withheld is not sent"


@pytest.mark.parametrize("method", ["before_model", "after_model"])
@pytest.mark.parametrize("way", ["call_model", "stream_model"])
def test_model_hooks_without_a_loop(method: str, way: str) -> None:
    chat = Conversation(ScriptedModel(SECRET), hooks=[guard(**{method: boom})])
    chat.add("Go.")

    async def run() -> None:
        if way == "call_model":
            await chat.call_model()
        else:
            async for _ in chat.stream_model():
                pass

    with pytest.raises(CallRefused, match=f"Guard.{method} failed: ValueError: the guard broke"):
        asyncio.run(run())
    assert SECRET not in str(chat.history.entries)
    assert refusals(chat.history.snapshot()) == []


@pytest.mark.parametrize("returned", ["text", [5], 5, ("a", Text("b"))])
def test_an_after_model_hook_that_returns_no_parts(returned: object) -> None:
    chat = Conversation(ScriptedModel(SECRET), hooks=[guard(after_model=lambda _: returned)])
    result = ToolLoop(chat).run_sync("Go.")
    assert result.reason == "refused"
    assert "Guard.after_model" in result.text
    assert SECRET not in str(chat.history.entries)


@pytest.mark.parametrize("ending", ["interrupted", "cut off", "reader gone"])
def test_an_answer_that_could_not_be_checked_is_withheld(ending: str) -> None:
    async def unfinished(*_: object) -> AsyncIterator[str]:
        yield SECRET
        if ending == "cut off":
            raise OSError("connection lost")
        await asyncio.Event().wait()

    class Check(Hook):
        def after_model(self, parts: object) -> None:
            raise AssertionError("the answer is not complete")

    model = FunctionModel(unfinished)
    chat = Conversation(model, hooks=[Check()])

    async def run() -> None:
        stream = ToolLoop(chat).stream("Go.")
        try:
            async for event in stream:
                if isinstance(event, TextDelta) and ending == "interrupted":
                    asyncio.get_running_loop().call_soon(asyncio.ensure_future, ToolLoop(chat).interrupt())
                if isinstance(event, TextDelta) and ending == "reader gone":
                    break
        except OSError:
            assert ending == "cut off"
        finally:
            await stream.aclose()

    asyncio.run(asyncio.wait_for(run(), 30))
    assert SECRET not in str(chat.history.entries)
    assert refusals(chat.history.snapshot()) == []


@pytest.mark.parametrize("method", ["before_tool", "after_tool"])
@pytest.mark.parametrize(
    "raising",
    [boom, boom_later, lambda *_: (_ for _ in ()).throw(ToolError("not today")), lambda *_: "no call, no result"],
)
def test_tool_hooks(method: str, raising: Callable[..., Any]) -> None:
    ran: list[str] = []

    @tool
    async def reveal() -> str:
        "Reveals."
        ran.append("once")
        return SECRET

    model = ScriptedModel(call("reveal"), "I may not.")
    chat = Conversation(model, tools=[reveal], hooks=[guard(**{method: raising})])
    assert ToolLoop(chat).run_sync("Go.").text == "I may not."
    (result,) = results_in(chat.history.entries).values()
    assert "not today" in result or "Guard" in result
    assert ran == (["once"] if method == "after_tool" else [])
    assert SECRET not in str(chat.history.entries) + seen_by(model)
    assert refusals(chat.history.snapshot()) == []


def test_approval_policy() -> None:
    @tool(effect="read")
    async def reveal() -> str:
        "Reveals."
        raise AssertionError("no person allowed it")

    chat = Conversation(ScriptedModel(call("reveal"), "Done."), tools=[reveal], approval=boom)
    result = ToolLoop(chat).run_sync("Go.")
    assert (result.reason, [one.tool_name for one in result.pending]) == ("approval", ["reveal"])
    assert refusals(chat.history.snapshot()) == []
    (waiting,) = result.pending
    loop = ToolLoop(chat)
    loop.deny(waiting.tool_call_id, "no")
    assert loop.run_sync().text == "Done."


def test_needs_approval_function() -> None:
    @tool(needs_approval=boom)
    async def reveal() -> str:
        "Reveals."
        raise AssertionError("no person allowed it")

    chat = Conversation(ScriptedModel(call("reveal")), tools=[reveal])
    assert ToolLoop(chat).run_sync("Go.").reason == "approval"


def test_listener_that_raises_stops_the_turn() -> None:
    @tool
    async def act() -> str:
        "Acts until it is stopped."
        await asyncio.Event().wait()
        return "done"

    def listen(event: LoopEvent) -> None:
        if type(event) is ToolCallStarted:
            boom()

    model = ScriptedModel(call("act"), "Done.")
    chat = Conversation(model, tools=[act])
    running = ToolLoop(chat).run("Go.", on_event=listen, check=False)
    with pytest.raises(ValueError, match="the guard broke"):
        asyncio.run(asyncio.wait_for(running, 30))
    assert (len(model.calls), chat.turn.ended) == (1, "interrupted")
    assert refusals(chat.history.snapshot()) == []


def test_measuring_guards_nothing() -> None:
    """`on_call` gets measures of what has run: if it fails, that is logged, and the result stays."""

    @tool
    async def act() -> str:
        "Acts."
        return "done"

    executor = ToolExecutor(ToolRegistry([act]), on_call=boom)
    chat = Conversation(ScriptedModel(call("act"), "Done."), executor=executor)
    assert ToolLoop(chat).run_sync("Go.").text == "Done."
    assert list(results_in(chat.history.entries).values()) == ["done"]


# Summaries are model calls too.


def talked(model: ScriptedModel, *hooks: Hook) -> Conversation:
    chat = Conversation(model, hooks=hooks)
    ToolLoop(chat).run_sync(f"Remember: {SECRET}.")
    ToolLoop(chat).run_sync("And then?")
    return chat


def test_hooks_mask_what_is_summarised() -> None:
    purposes: list[str] = []

    class Mask(Hook):
        def before_model(self, call: Any) -> None:
            purposes.append(call.purpose)
            call.context = [
                structs.replace(
                    entry, content=tuple(Text(part.text.replace("4711", "[code]")) for part in entry.content)
                )
                if getattr(entry, "content", None)
                else entry
                for entry in call.context
            ]

        def after_model(self, parts: Any) -> Any:
            return [Text(part.text.replace("1147", "[code]")) for part in parts]

    model = ScriptedModel("Yes.", "Then this.", "A summary with 1147.")
    chat = talked(model, Mask())
    entry = asyncio.run(compact(chat))
    assert "4711" not in seen_by(model)
    assert "[code]" in str([one.content for one in model.calls[-1].context])
    assert entry.summary == "A summary with [code]."
    assert purposes == ["", "", "summary"]


@pytest.mark.parametrize("method", ["before_model", "after_model"])
@pytest.mark.parametrize("raising", [boom, refuse_model])
def test_a_summary_that_was_refused_is_not_kept(method: str, raising: Callable[..., Any]) -> None:
    switched: list[bool] = []
    failing = guard(**{method: lambda *_: raising() if switched else None})
    model = ScriptedModel("Yes.", "Then this.", "A summary of the model.")
    chat = talked(model, failing)
    switched.append(True)
    with pytest.raises(ConversationError, match=r"not today|Guard"):
        asyncio.run(compact(chat))
    assert "A summary of the model" not in str(chat.history.entries)
    assert not any(isinstance(entry, CompactionEntry) for entry in chat.history.entries)
    assert len(model.calls) == (2 if method == "before_model" else 3)
    notes = [entry for entry in chat.history.entries if model_calls_of(entry) and isinstance(entry, DebugLogEntry)]
    assert len(notes) == (method == "after_model"), "what was paid is counted"
