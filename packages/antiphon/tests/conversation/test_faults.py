"""Faults of providers, models, tools and stores: each is reported where it can be fixed, and none breaks the history."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from antiphon.conversation import Conversation, LoopFinished, ToolCallFailed, ToolCallStarted, ToolLoop
from antiphon.errors import ConversationError, StoreFull
from antiphon.history import (
    AgentHistory,
    ContextEntry,
    DebugLogEntry,
    HistoryEntry,
    ModelInputEntry,
    ModelOutputEntry,
    RollbackEntry,
)
from antiphon.parts import Text, TokenUsage, ToolCallRequest, ToolExecutionStatus
from antiphon.providers.call import ModelCallFailed, ProviderCallOptions, ProviderClient
from antiphon.providers.scripted import FunctionModel, Item, ScriptedAnswer, ScriptedModel, call
from antiphon.tools import Tool, tool
from antiphon.tools.call_runner import NOT_RUN, UNKNOWN_OUTCOME
from antiphon.wire.delta import Failed, ModelOutputDelta, PartDelta, PartEnded, PartStarted, UsageReported
from antiphon.wire.output import ModelOutput, ProviderError
from support.planned_turns import (
    Killed,
    MortalJournal,
    World,
    calls_in,
    drained,
    last_reason,
    planned,
    refusals,
    results_in,
)

DOWN = ProviderError("the model is overloaded", "overloaded", status=529)
HALF_A_TEXT: list[Item] = [PartStarted(0, Text("")), PartDelta(0, "It is ra"), Failed(DOWN)]
HALF_A_CALL: list[Item] = [
    PartStarted(0, Text("I look.")),
    PartEnded(0),
    PartStarted(1, ToolCallRequest("look", "a", "")),
    PartDelta(1, '{"cit'),
    Failed(DOWN),
]


def talk(*turns: ScriptedAnswer, world: World | None = None) -> tuple[Conversation, ScriptedModel]:
    model = ScriptedModel(*turns)
    return Conversation(model, tools=(world or World()).tools()), model


def context_kinds(entries: Sequence[ContextEntry]) -> list[str]:
    return [entry.role.value for entry in entries]


# Providers.


def test_a_provider_that_fails_before_anything() -> None:
    chat, model = talk(DOWN, DOWN, "It rains.")
    with pytest.raises(ModelCallFailed, match=r"did not answer \(overloaded\): the model is overloaded") as raised:
        ToolLoop(chat).run_sync("Is it raining?")
    assert raised.value.error == DOWN
    note = chat.history.entries[-1]
    assert isinstance(note, DebugLogEntry)
    assert "overloaded" in note.message
    assert note.metadata is not None
    assert note.metadata.error == "the model is overloaded"

    events = asyncio.run(drained(ToolLoop(chat)))
    assert events[-1] == LoopFinished("failed", error=DOWN)
    assert ToolLoop(chat).run_sync().text == "It rains."
    assert context_kinds(model.calls[-1].context) == ["model_input"], "the question was asked once"


def test_half_an_answer_is_kept_and_asked_for_again() -> None:
    chat, model = talk(HALF_A_TEXT, "It is raining.")
    events = asyncio.run(drained(ToolLoop(chat), "Is it raining?"))
    assert last_reason(events) == "failed"
    assert events[-1].text == "It is ra"  # type: ignore[union-attr]
    partial = chat.recent(1)[0]
    assert isinstance(partial, ModelOutputEntry)
    assert partial.stop_reason == "failed"
    assert refusals(chat.history.snapshot()) == []

    assert ToolLoop(chat).run_sync().text == "It is raining."
    assert context_kinds(model.calls[-1].context) == ["model_input"], "the model does not see what was cut"
    assert [message.content for message in chat.by_role("assistant")] == [(Text("It is raining."),)]
    assert partial in list(chat.history.entries), "the log keeps it"
    assert any(isinstance(entry, RollbackEntry) and "cut off" in entry.reason for entry in chat.history.entries)


def test_settings_changed_after_half_an_answer_stay_when_it_is_asked_for_again() -> None:
    chat, model = talk(HALF_A_CALL, "It is raining.")
    chat.history.set_system_instruction("Be kind.")
    asyncio.run(drained(ToolLoop(chat), "Is it raining?"))
    chat.history.set_system_instruction("Be brief.")
    chat.history.set_memory_notebook("The user lives in Oslo.")
    chat.history.append(ModelInputEntry.of("Use Celsius.", channel="system"))
    assert ToolLoop(chat).run_sync().text == "It is raining."
    assert chat.history.system_instruction == "Be brief."
    assert chat.history.memory_notebook == "The user lives in Oslo."
    seen = model.calls[-1].context
    assert context_kinds(seen) == ["system", "model_input", "model_input"], "of the answer nothing is left"
    assert "Be brief." in str(seen[0].content)
    assert "Oslo" in str(seen[0].content)
    assert seen[-1].content == (Text("Use Celsius."),)
    assert refusals(chat.history.snapshot()) == []


def test_a_new_instruction_holds_for_a_turn_that_is_resumed(tmp_path: Path) -> None:
    place = tmp_path / "chats.db"
    with Conversation(ScriptedModel(HALF_A_TEXT), store=place, system="Be kind.") as chat:
        asyncio.run(drained(ToolLoop(chat), "Is it raining?"))
    model = ScriptedModel("It is raining.")
    with Conversation(model, store=place, resume="last", system="Be brief.") as chat:
        assert ToolLoop(chat).run_sync().text == "It is raining."
        assert chat.history.system_instruction == "Be brief."
    assert "Be brief." in str(model.calls[0].context[0].content)


@pytest.mark.parametrize("kept", range(3, 8))
def test_a_crash_while_half_an_answer_is_asked_for_again_loses_no_setting(kept: int) -> None:
    journal = MortalJournal(kept)
    chat = Conversation(ScriptedModel(HALF_A_TEXT, "It is raining."), history=AgentHistory(journal=journal))
    with contextlib.suppress(Killed):
        asyncio.run(drained(ToolLoop(chat), "Is it raining?"))
        chat.history.set_memory_notebook("The user lives in Oslo.")
        asyncio.run(drained(ToolLoop(chat)))
    again = Conversation(ScriptedModel("It is raining."), history=AgentHistory(journal.kept))
    asyncio.run(drained(ToolLoop(again)))
    assert again.history.memory_notebook == "The user lives in Oslo."


def test_a_new_message_instead_keeps_half_an_answer() -> None:
    chat, model = talk(HALF_A_TEXT, "Where was I?")
    asyncio.run(drained(ToolLoop(chat), "Is it raining?"))
    assert ToolLoop(chat).run_sync("Go on.").text == "Where was I?"
    assert context_kinds(model.calls[-1].context) == ["model_input", "model_output", "model_input"]


@pytest.mark.parametrize("next_words", [(), ("Never mind.",)])
def test_a_call_that_was_cut_is_not_run(next_words: tuple[str, ...]) -> None:
    world = World()
    chat, model = talk(HALF_A_CALL, "Never mind then.", world=world)
    events = asyncio.run(drained(ToolLoop(chat), "Is it raining?"))
    assert last_reason(events) == "failed"
    assert not any(isinstance(event, ToolCallStarted) for event in events)
    assert results_in(chat.history.entries)["a"] == f"{NOT_RUN}the answer that asked for it was cut off."
    assert refusals(chat.history.snapshot()) == []
    assert last_reason(asyncio.run(drained(ToolLoop(chat), *next_words))) == "answered"
    seen = context_kinds(model.calls[-1].context)
    assert seen == (["model_input", "model_output", "tool_result", "model_input"] if next_words else ["model_input"])
    assert not world.began
    assert refusals(chat.history.snapshot()) == []


def test_the_last_answer_after_a_bound_may_fail_and_be_retried() -> None:
    chat, model = talk(call("look"), HALF_A_TEXT, "That is all I have.")
    loop = ToolLoop(chat, max_rounds=1)
    assert last_reason(asyncio.run(drained(loop, "Go."))) == "failed"
    events = asyncio.run(drained(loop))
    assert last_reason(events) == "max_rounds"
    assert events[-1].text == "That is all I have."  # type: ignore[union-attr]
    choice = model.calls[-1].options.settings.tool_choice
    assert choice is not None
    assert choice.mode == "none"


def test_the_usage_of_a_failed_model_call_is_counted() -> None:
    chat, _ = talk([UsageReported(TokenUsage(100, 3)), Failed(DOWN)])
    asyncio.run(drained(ToolLoop(chat), "Go."))
    assert chat.usage.total == 103


class Broken(ProviderClient):
    """A client that does not keep its promise: it raises, or ends without a terminal event."""

    name = "broken"

    def __init__(self, deltas: Sequence[ModelOutputDelta], error: Exception | None) -> None:
        self._deltas = deltas
        self._error = error

    async def call_model(
        self, context: Sequence[ContextEntry], options: ProviderCallOptions
    ) -> AsyncIterator[ModelOutputDelta]:
        for delta in self._deltas:
            yield delta
        if self._error is not None:
            raise self._error


SOME_TEXT: list[ModelOutputDelta] = [PartStarted(0, Text("It is ra"))]
SOME_CALL: list[ModelOutputDelta] = [PartStarted(0, ToolCallRequest("look", "a", "{}")), PartEnded(0)]
BROKEN: list[tuple[Sequence[ModelOutputDelta], Exception | None, type[Exception], str]] = [
    ([], RuntimeError("socket is gone"), RuntimeError, "socket is gone"),
    (SOME_TEXT, RuntimeError("socket is gone"), RuntimeError, "socket is gone"),
    (SOME_CALL, RuntimeError("socket is gone"), RuntimeError, "socket is gone"),
    ([], None, ConversationError, "'broken' ended its stream without a terminal event"),
    (SOME_TEXT, None, ConversationError, "without a terminal event"),
    (SOME_CALL, None, ConversationError, "without a terminal event"),
]


@pytest.mark.parametrize(("deltas", "error", "kind", "why"), BROKEN)
def test_a_client_that_breaks_the_stream_protocol(
    deltas: Sequence[ModelOutputDelta], error: Exception | None, kind: type[Exception], why: str
) -> None:
    world = World()
    chat = Conversation(Broken(deltas, error), tools=world.tools())
    with pytest.raises(kind, match=why):
        ToolLoop(chat).run_sync("Go.")
    assert refusals(chat.history.snapshot()) == []
    chat.model = ScriptedModel("Here I am.", "And again.")
    assert ToolLoop(chat).run_sync().text == "Here I am.", "it is asked for again"
    assert ToolLoop(chat).run_sync("More.").text == "And again."
    assert not world.began
    assert refusals(chat.history.snapshot()) == []


def test_an_empty_answer_is_an_answer() -> None:
    chat, _ = talk(ModelOutput(), "Hello.")
    result = ToolLoop(chat).run_sync("Hi.")
    assert (result.reason, result.text) == (
        "answered",
        "(No answer: the model's last response has no text (stop reason: end).)",
    )
    assert refusals(chat.history.snapshot()) == []
    assert ToolLoop(chat).run_sync("Are you there?").text == "Hello."
    assert refusals(chat.history.snapshot()) == []


# Models.

WRONG_CALLS = ["{", "[]", '"text"', "nonsense", '{"city": "Os', '{"city": 5}', '{"town": "Oslo"}']


@pytest.mark.parametrize("arguments", WRONG_CALLS)
@pytest.mark.parametrize("stop", ["tool_calls", "length"])
def test_invalid_arguments_are_reported_and_corrected(arguments: str, stop: str) -> None:
    @tool
    def weather(city: str) -> str:
        "Current weather in a city."
        return f"rain in {city}"

    wrong = ModelOutput(parts=(ToolCallRequest("weather", "a", arguments),), stop_reason=stop)  # type: ignore[arg-type]
    model = ScriptedModel(wrong, call("weather", city="Oslo"), "It rains.")
    chat = Conversation(model, tools=[weather])
    events = asyncio.run(drained(ToolLoop(chat), "Is it raining in Oslo?"))
    assert last_reason(events) == "answered"
    (failed,) = (event for event in events if isinstance(event, ToolCallFailed))
    assert "weather" in failed.result.result_markdown
    refused_result, corrected = results_in(chat.history.entries).values()
    assert refused_result == failed.result.result_markdown
    assert corrected == "rain in Oslo"
    assert refusals(chat.history.snapshot()) == []


class NoIds(ScriptedModel):
    """A provider that gives calls no ids of its own making."""

    async def call_model(
        self, context: Sequence[ContextEntry], options: ProviderCallOptions
    ) -> AsyncIterator[ModelOutputDelta]:
        async for delta in super().call_model(context, options):
            if isinstance(delta, PartStarted) and isinstance(delta.part, ToolCallRequest):
                name = delta.part.tool_call_id
                bare = ToolCallRequest(delta.part.tool_name, "" if name.startswith("call_") else name, "")
                yield PartStarted(delta.index, bare)
            else:
                yield delta


def test_ids_are_made_unique_within_an_answer_and_over_the_history() -> None:
    world = World()
    same = [ToolCallRequest("look", "a"), ToolCallRequest("look", "a"), ToolCallRequest("put", "")]
    model = NoIds(same, ToolCallRequest("look", "a"), "Done.", ToolCallRequest("look", "a_2"), "Done.")
    chat = Conversation(model, tools=world.tools())
    ToolLoop(chat).run_sync("Go.")
    ToolLoop(chat).run_sync("Again.")
    ids = calls_in(chat.history.entries)
    assert len(ids) == len(set(ids)) == 5
    assert all(ids)
    assert set(ids) == set(results_in(chat.history.entries)) == set(world.ended)
    assert refusals(chat.history.snapshot()) == []


# Tools.


def test_a_tool_that_was_renamed_between_runs() -> None:
    """A started call of a tool that is gone may have run; one that was not started gets an unknown-tool error."""
    for limit, expected in ((3, UNKNOWN_OUTCOME), (2, "Unknown tool")):
        journal = MortalJournal(limit)
        chat = Conversation(planned([["send"]]), tools=World().tools(), history=AgentHistory(journal=journal))
        with pytest.raises(Killed):
            ToolLoop(chat).run_sync("Go.")
        world = World()
        renamed = [one for one in world.tools() if one.name != "send"]
        again = Conversation(planned([["send"]]), tools=renamed, history=AgentHistory(journal.kept))
        assert ToolLoop(again).run_sync().reason == "answered"
        (refused_result,) = results_in(again.history.entries).values()
        assert refused_result.startswith(expected)
        assert refusals(again.history.snapshot()) == []


def test_a_new_message_after_a_crash_closes_what_may_have_run() -> None:
    journal = MortalJournal(3)
    chat = Conversation(planned([["send"]]), tools=World().tools(), history=AgentHistory(journal=journal))
    with pytest.raises(Killed):
        ToolLoop(chat).run_sync("Go.")
    again = Conversation(ScriptedModel("Hello."), tools=World().tools(), history=AgentHistory(journal.kept))
    assert ToolLoop(again).run_sync("Never mind. Hello!").text == "Hello."
    assert list(results_in(again.history.entries).values()) == [UNKNOWN_OUTCOME]
    assert refusals(again.history.snapshot()) == []


def test_a_tool_that_appends_to_the_history_itself() -> None:
    chat: Conversation

    @tool
    async def remember() -> str:
        "Writes into the log it is called from."
        chat.history.set_memory_notebook("They like rain.")
        chat.add(DebugLogEntry("tool", "remembered"))
        chat.add(ModelInputEntry.of("Be brief from here on.", channel="system"))
        chat.add("By the way: hello.")
        return "remembered"

    chat = Conversation(ScriptedModel([call("remember"), call("remember")], "Noted."), tools=[remember])
    result = ToolLoop(chat).run_sync("Remember.")
    assert (result.reason, result.rounds) == ("answered", 2)
    assert chat.history.memory_notebook == "They like rain."
    assert list(results_in(chat.history.entries).values()) == ["remembered", "remembered"]
    assert refusals(chat.history.snapshot()) == []


def odd_tools() -> list[Tool]:
    @tool
    def raises() -> str:
        raise KeyError("nowhere")

    @tool
    def leaves() -> str:
        sys.exit(3)

    @tool
    async def leaves_at_once() -> str:
        raise SystemExit(4)

    @tool
    def floods() -> str:
        return "x" * 50_000_000

    @tool
    def gives_bytes() -> bytes:
        return b"\xff\x00"

    @tool(timeout=0.05)
    async def hangs() -> str:
        await asyncio.Event().wait()
        return "never"

    @tool(timeout=0.05)
    def blocks() -> str:
        time.sleep(0.3)
        return "late"

    @tool
    def gives_something_odd() -> object:
        return object()

    return [raises, leaves, leaves_at_once, floods, gives_bytes, hangs, blocks, gives_something_odd]


@pytest.mark.parametrize("name", [one.name for one in odd_tools()])
def test_the_turn_continues_after_any_tool_behaviour(name: str) -> None:
    chat = Conversation(ScriptedModel([call(name), call("look")], "I see."), tools=[*odd_tools(), *World().tools()])
    assert ToolLoop(chat).run_sync("Go.").text == "I see."
    odd, good = chat.by_role("tool")[0].content
    assert good.status is ToolExecutionStatus.SUCCESS  # type: ignore[union-attr]
    if name not in ("floods", "gives_bytes", "gives_something_odd"):
        assert odd.status is ToolExecutionStatus.FAILED  # type: ignore[union-attr]
    assert odd.content, "the model gets an answer"  # type: ignore[union-attr]
    assert len(odd.result_markdown) < 200_000  # type: ignore[union-attr]
    assert refusals(chat.history.snapshot()) == []


# Subscribers and stores.


def test_a_subscriber_that_raises_does_not_end_the_turn(caplog: pytest.LogCaptureFixture) -> None:
    def fail(chat: Conversation, event: object) -> None:
        raise RuntimeError("no summary")

    chat = Conversation(ScriptedModel("Hello."), token_limit=1)
    chat.on_compaction(fail)
    with caplog.at_level(logging.ERROR):
        assert ToolLoop(chat).run_sync("A question that is long enough.").text == "Hello."
    assert "no summary" in caplog.text


class FullJournal(MortalJournal):
    """Has no room for entry `full_at`, until room is made."""

    def __init__(self, full_at: int) -> None:
        super().__init__(limit=10_000)
        self.full_at = full_at

    def write(self, entry: HistoryEntry, stored: bytes) -> None:
        if len(self.kept) + 1 == self.full_at:
            raise StoreFull("chats.db: no space left; nothing was written")
        super().write(entry, stored)


@pytest.mark.parametrize("full_at", range(1, 11))
def test_a_store_that_is_full_in_mid_turn(full_at: int) -> None:
    world = World()
    plan = [["look", "send"], ["send"]]
    journal = FullJournal(full_at)
    chat = Conversation(planned(plan), tools=world.tools(), history=AgentHistory(journal=journal))
    with pytest.raises(StoreFull, match="no space left"):
        ToolLoop(chat).run_sync("Go.")
    assert chat.history.version == len(journal.kept) == full_at - 1, "nothing is half-written"
    assert refusals(chat.history.snapshot()) == []

    journal.full_at = 0
    result = ToolLoop(chat).run_sync(*(["Go."] if full_at == 1 else []))
    assert (result.reason, result.text) == ("answered", "That is all.")
    outputs = [entry for entry in chat.history.entries if isinstance(entry, ModelOutputEntry)]
    sent = [one.tool_call_id for entry in outputs for one in entry.tool_calls if one.tool_name == "send"]
    assert [world.began[call_id] for call_id in sent if world.began[call_id] > 1] == [], "nothing is sent twice"
    assert set(calls_in(chat.history.effective)) == set(results_in(chat.history.effective))
    assert refusals(chat.history.snapshot()) == []


def test_a_failing_screen_raises_to_the_caller() -> None:
    def broken() -> str:
        raise RuntimeError("no screen")

    chat = Conversation(FunctionModel(lambda context, options: "Hello."), live_screen=broken)
    with pytest.raises(RuntimeError, match="no screen"):
        ToolLoop(chat).run_sync("Hi.")
    chat.live_screen = None
    assert ToolLoop(chat).run_sync().text == "Hello."
