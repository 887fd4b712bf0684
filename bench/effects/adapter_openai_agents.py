"""OpenAI Agents SDK: an `SQLiteSession`; resumed by running again with the session.

Documentation: openai.github.io/openai-agents-python/sessions
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from agents import Agent, Model, ModelResponse, Runner, SQLiteSession, Usage, function_tool, set_tracing_disabled
from agents.tool_context import ToolContext
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

from bench.effects.payment import FOLDER, QUESTION, decide, pay


@function_tool(failure_error_function=None)
async def pay_invoice(context: ToolContext[Any], cents: int) -> str:
    """Pay an invoice."""
    return await asyncio.to_thread(pay, cents, str(context.tool_call_id))


class Script(Model):
    async def get_response(self, system_instructions: Any, input: Any, *_: Any, **__: Any) -> ModelResponse:  # noqa: A002, ARG002
        items = input if isinstance(input, list) else []
        results = [item["output"] for item in items if item.get("type") == "function_call_output"]
        call = decide(str(results[-1]) if results else None)
        text = ResponseOutputText(text="Done.", type="output_text", annotations=[])
        output: Any = (
            ResponseFunctionToolCall(call_id=call, name="pay_invoice", arguments='{"cents": 500}', type="function_call")
            if call
            else ResponseOutputMessage(id="m", content=[text], role="assistant", status="completed", type="message")
        )
        return ModelResponse(output=[output], usage=Usage(), response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError


async def main(step: str) -> None:
    set_tracing_disabled(True)
    session = SQLiteSession("one", FOLDER / "session.db")
    agent = Agent("payer", model=Script(), tools=[pay_invoice])
    is_stored = bool(await session.get_items())
    await Runner.run(agent, QUESTION if step == "start" or not is_stored else [], session=session)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
