"""`ToolContext`: what a running tool can know: state, history, usage, model, and whether its call was given up."""

from __future__ import annotations

import threading
import time
from typing import Any

from antiphon.conversation import Conversation, ToolLoop
from antiphon.errors import ToolError
from antiphon.providers.scripted import ScriptedModel, call
from antiphon.tools import ToolContext, tool


class _Account:
    def __init__(self) -> None:
        self.paid = 0


def test_a_tool_gets_typed_state_history_usage_and_model() -> None:
    seen: dict[str, Any] = {}

    @tool
    async def pay(amount: int, context: ToolContext[_Account]) -> str:
        "Pay."
        context.state.paid += amount
        seen.update(
            history=[entry.kind for entry in context.history.entries],
            usage=context.usage,
            model=context.model,
            call=context.tool_call_id,
            cancelled=context.is_cancelled,
        )
        return "paid"

    assert list(pay.parameters["properties"]) == ["amount"]
    model = ScriptedModel(call("pay", amount=3), "done")
    chat = Conversation(model, tools=[pay], state=_Account())
    ToolLoop(chat).run_sync("Go.")
    assert chat.state.paid == 3
    assert seen["history"] == ["model_input", "model_output", "tool_call_started"]
    assert seen["usage"].total > 0
    assert seen["model"] is model
    assert (seen["call"], seen["cancelled"]) == ("call_1_1_1", False)
    assert ToolContext().history.version == 0


def test_a_function_in_a_thread_can_see_that_it_was_given_up() -> None:
    started, ended = threading.Event(), threading.Event()
    problems: list[BaseException] = []

    @tool(timeout=0.05)
    def work(context: ToolContext) -> str:
        "Work."
        started.set()
        deadline = time.monotonic() + 30
        try:
            while time.monotonic() < deadline:
                context.raise_if_cancelled()
                time.sleep(0.005)
        except ToolError as error:
            problems.append(error)
        ended.set()
        return "too late"

    chat = Conversation(ScriptedModel(call("work"), "done"), tools=[work])
    ToolLoop(chat).run_sync("Go.")
    assert started.is_set()
    assert ended.wait(20), "the function did not see the cancellation"
    assert problems
