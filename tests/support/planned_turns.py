"""Turns as tests play them: a model that makes the calls a plan says, tools that note that they ran, and a log that can be
killed at any entry."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from antiphon.context import LiveContextRenderer
from antiphon.conversation import LoopEvent, LoopFinished, ToolLoop
from antiphon.history import (
    AgentHistory,
    AgentHistorySnapshot,
    ContextEntry,
    DebugLogEntry,
    HistoryEntry,
    ModelInputEntry,
    ModelOutputEntry,
    Origin,
    ToolCallResultsEntry,
    ToolCallStartedEntry,
)
from antiphon.providers.call import ProviderCallOptions
from antiphon.providers.rendering import render_call
from antiphon.providers.scripted import FunctionModel, ScriptedAnswer, call
from antiphon.tools import Tool, ToolContext, ToolError, tool
from antiphon.wire import FORMATS, formats

Plan = Sequence[Sequence[str]]
"""For each round the names of the tools that are called in it; after the last, the model answers."""

MODELS = {
    "openai-chat": "gpt-4o",
    "openai-responses": "gpt-4o",
    "anthropic": "claude-sonnet-4-5",
    "gemini": "gemini-2.5-pro",
    "gemini-interactions": "gemini-2.5-pro",
}


class Killed(BaseException):
    """The process is gone: nothing after this was written."""


class MortalJournal:
    """Keeps `limit` entries and then kills the writer."""

    conversation_id = "mortal"

    def __init__(self, limit: int) -> None:
        self.kept: list[HistoryEntry] = []
        self._limit = limit

    def write(self, entry: HistoryEntry, stored: bytes) -> None:
        if len(self.kept) >= self._limit:
            raise Killed
        self.kept.append(entry)

    def read(self, after: int) -> Iterable[HistoryEntry]:
        return self.kept[after:]

    def fork(self, at: int) -> AgentHistory:
        return AgentHistory(self.kept[:at])


class CheckedJournal(MortalJournal):
    """Keeps everything, and looks after every entry whether each provider would take the history as it stands."""

    def __init__(self) -> None:
        super().__init__(limit=10_000)
        self.refused: list[str] = []

    def write(self, entry: HistoryEntry, stored: bytes) -> None:
        super().write(entry, stored)
        if not isinstance(entry, ToolCallStartedEntry | DebugLogEntry):  # which no model sees
            self.refused += refusals(AgentHistory(self.kept).snapshot())


class World:
    """Where tools leave their traces: how often each call began and came to its end. `same` makes them all say the same."""

    def __init__(self) -> None:
        self.began: Counter[str] = Counter()
        self.ended: Counter[str] = Counter()
        self.same = False

    def tools(self) -> list[Tool]:
        @tool(effect="read")
        async def look(context: ToolContext) -> str:
            "Reads."
            return await self._work(context)

        @tool(effect="idempotent")
        async def put(context: ToolContext) -> str:
            "Writes, and may be done twice."
            return await self._work(context)

        @tool(effect="once")
        async def send(context: ToolContext) -> str:
            "Does something that must not be done twice."
            return await self._work(context)

        @tool(effect="once")
        async def trip(context: ToolContext) -> str:
            "Fails."
            await self._work(context)
            raise ToolError("it tripped")

        return [look, put, send, trip]

    async def _work(self, context: ToolContext) -> str:
        self.began[context.tool_call_id] += 1
        await asyncio.sleep(0)
        self.ended[context.tool_call_id] += 1
        return "done" if self.same else f"done {context.tool_call_id}"


class Source:
    """Tools that must be asked for, as those of a server are."""

    def __init__(self, *offered: Tool) -> None:
        self._offered = offered
        self.is_open = False

    async def tools(self) -> Sequence[Tool]:
        self.is_open = True
        return self._offered

    async def aclose(self) -> None:
        self.is_open = False


def planned(plan: Plan) -> FunctionModel:
    """A model that makes the calls of `plan`, round by round, as far as the context says it has come."""

    def answer(context: Sequence[ContextEntry], options: ProviderCallOptions) -> ScriptedAnswer:
        outputs = 0
        for entry in reversed(context):
            if isinstance(entry, ModelInputEntry):
                break
            outputs += isinstance(entry, ModelOutputEntry)
        choice = options.settings.tool_choice
        if outputs < len(plan) and plan[outputs] and (choice is None or choice.mode != "none"):
            return [f"Round {outputs + 1}.", *(call(name) for name in plan[outputs])]
        return "That is all."

    return FunctionModel(answer, chunk_size=None)


async def drained(loop: ToolLoop, *content: str) -> list[LoopEvent]:
    """Everything a loop tells of a turn."""
    return [event async for event in loop.stream(*content)]


def results_in(entries: Iterable[HistoryEntry]) -> dict[str, str]:
    """What every call came to, by its id."""
    return {
        result.tool_call_id: result.result_markdown
        for entry in entries
        if isinstance(entry, ToolCallResultsEntry)
        for result in entry.results
    }


def calls_in(entries: Iterable[HistoryEntry]) -> list[str]:
    """The ids of all calls, in order."""
    return [call.tool_call_id for entry in entries if isinstance(entry, ModelOutputEntry) for call in entry.tool_calls]


def last_reason(events: Sequence[LoopEvent]) -> str:
    *before, last = events
    assert isinstance(last, LoopFinished)
    assert not any(isinstance(event, LoopFinished) for event in before), "exactly one end"
    return last.reason


def refusals(snapshot: AgentHistorySnapshot) -> list[str]:
    """What the four providers would refuse of a history as it stands: nothing, whatever happened to it."""
    found: list[str] = []
    for name in FORMATS:
        target = Origin("any", name, MODELS[name])
        rendered = render_call(LiveContextRenderer().render(snapshot), ProviderCallOptions(), target)
        body = b"".join(rendered.chunks)
        options: dict[str, Any] = {"model": MODELS[name]} if name == "gemini" else {}
        found += (f"{name}: {broken}" for broken in formats[name].check_request(msgspec.json.decode(body), **options))
    return found
