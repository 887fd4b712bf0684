"""Calls, an observer and short ways to run tools, for the tests of the executor."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from antiphon.parts import ToolCallRequest, ToolCallResult, ToolExecutionStatus
from antiphon.tools import CallOutcome, Tool, ToolExecutor, ToolRegistry, tool

OK, FAILED = ToolExecutionStatus.SUCCESS, ToolExecutionStatus.FAILED


def call(name: str, arguments: str = "{}", call_id: str = "call_1") -> ToolCallRequest:
    return ToolCallRequest(name, call_id, arguments)


class Watcher:
    """An observer that writes everything down."""

    def __init__(self) -> None:
        self.events: list[tuple[Any, ...]] = []
        self.outcomes: list[CallOutcome] = []

    def started(self, call: ToolCallRequest, tool: Tool | None, idempotency_key: str) -> None:
        self.events.append(("started", call.tool_call_id, tool.name if tool else None, idempotency_key))

    def progress(self, call: ToolCallRequest, message: str, fraction: float | None) -> None:
        self.events.append(("progress", call.tool_call_id, message, fraction))

    def finished(self, call: ToolCallRequest, result: ToolCallResult, outcome: CallOutcome) -> None:
        self.events.append(("finished", call.tool_call_id, result.status))
        self.outcomes.append(outcome)

    def waits(self, call: ToolCallRequest) -> None:
        self.events.append(("waits", call.tool_call_id))


def run(
    tools: Sequence[Tool | Callable[..., Any]], *calls: ToolCallRequest, watcher: Watcher | None = None, **settings: Any
) -> list[ToolCallResult]:
    executor = ToolExecutor(ToolRegistry(tools), **settings)
    return asyncio.run(executor.execute(calls, observer=watcher, conversation_id="talk", round=3))


def one(function: Tool | Callable[..., Any], arguments: str = "{}", **settings: Any) -> tuple[str, CallOutcome]:
    """Run a single call of a single tool."""
    made = function if isinstance(function, Tool) else tool(function)
    watcher = Watcher()
    (result,) = run([made], call(made.name, arguments), watcher=watcher, **settings)
    assert (result.tool_name, result.tool_call_id) == (made.name, "call_1")
    (outcome,) = watcher.outcomes
    assert outcome.status is result.status
    assert outcome.size == len(result.result_markdown)
    assert outcome.error == ("" if result.status is OK else result.result_markdown.partition("\n")[0][:500])
    return result.result_markdown, outcome


@tool
def echo(text: str) -> str:
    return text


async def cancelled(executor: ToolExecutor, *calls: ToolCallRequest, watcher: Watcher | None = None) -> None:
    """Begin, let everything start, cancel, and see that it ends as cancelled."""
    task = asyncio.ensure_future(executor.execute(calls, observer=watcher))
    for _ in range(20):  # turns of the loop, not time: a busy machine has as many
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
