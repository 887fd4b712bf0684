"""The registry that workers of the tests use, in their own processes: tools that leave a line in a file when they begin and end.

work     makes the calls of the option `plan`, round by round, and answers
trip     books a flight that a person must allow
away     its provider is away until the file `back` is there
poison   kills its worker
"""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

from antiphon.conversation import Conversation, RunLimits, ToolLoop
from antiphon.history import AgentHistory, Run
from antiphon.providers.scripted import FunctionModel, ScriptedModel, call
from antiphon.runs import RunRegistry
from antiphon.tools import ToolContext, tool
from antiphon.wire.output import ProviderError
from support.planned_turns import planned

FOLDER = Path(os.environ.get("RUNS_FOLDER", "."))
LIMIT_REASONS = RunLimits(max_rounds=20, max_failed_rounds=20, max_repeats=20)

registry = RunRegistry()


def trace(what: str, context: ToolContext, name: str) -> None:
    """One line in the file, written in one piece."""
    line = f"{what} {name} {context.idempotency_key} {os.getpid()}\n"
    file = os.open(FOLDER / "trace", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, line.encode())
    finally:
        os.close(file)


async def work(context: ToolContext, name: str) -> str:
    trace("began", context, name)
    await asyncio.sleep(0.02)
    trace("ended", context, name)
    return f"done {context.tool_call_id}"


async def hold(context: ToolContext, name: str) -> str:
    """Work that is not done before the file `go` is there."""
    trace("began", context, name)
    while not (FOLDER / "go").exists():
        await asyncio.sleep(0.01)
    trace("ended", context, name)
    return f"done {context.tool_call_id}"


@tool(effect="read")
async def look(context: ToolContext) -> str:
    """Reads."""
    return await work(context, "look")


@tool(effect="idempotent")
async def put(context: ToolContext) -> str:
    """Writes, and may be done twice."""
    return await work(context, "put")


@tool(effect="once")
async def send(context: ToolContext) -> str:
    """Does something that must not be done twice."""
    return await work(context, "send")


@tool(effect="idempotent", timeout=None)
async def hold_put(context: ToolContext) -> str:
    """Takes as long as the test says."""
    return await hold(context, "hold_put")


@tool(effect="once", timeout=None)
async def hold_send(context: ToolContext) -> str:
    """Takes as long as the test says, and must not be done twice."""
    return await hold(context, "hold_send")


@tool(needs_approval=True)
async def book_flight(to: str, context: ToolContext) -> str:
    """Book a flight."""
    trace("began", context, "book_flight")
    return f"booked: {to}"


@registry.kind("work", code=2)
def work_kind(history: AgentHistory, run: Run) -> ToolLoop:
    tools = [look, put, send, hold_put, hold_send]
    return ToolLoop(Conversation(planned(run.options["plan"]), tools=tools, history=history), limits=LIMIT_REASONS)


@registry.kind("trip", provider="airline")
def trip(history: AgentHistory, run: Run) -> ToolLoop:
    def answer(context: object, options: object) -> object:
        results = [entry for entry in history.entries if entry.kind == "tool_call_results"]
        return "Your flight is booked." if results else [call("book_flight", to=run.options.get("to", "Oslo"))]

    return ToolLoop(Conversation(FunctionModel(answer), tools=[book_flight], history=history))  # type: ignore[arg-type]


@registry.kind("away")
async def away(history: AgentHistory, run: Run) -> ToolLoop:
    is_back = (FOLDER / "back").exists()
    next_turn = "Back again." if is_back else ProviderError("too many requests", "rate_limit", 429, retry_after=0.3)
    return ToolLoop(Conversation(ScriptedModel(next_turn), history=history))


@registry.kind("poison")
def poison(history: AgentHistory, run: Run) -> ToolLoop:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("unreachable")
