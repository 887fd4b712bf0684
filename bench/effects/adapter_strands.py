"""Strands: a `FileSessionManager`; resumed by an agent with the same session, asked to go on.

Documentation: strandsagents.com/docs/user-guide/concepts/agents/session-management
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from typing import Any

from strands import Agent, ToolContext, tool
from strands.models import Model
from strands.session import FileSessionManager

from bench.effects.payment import FOLDER, QUESTION, decide, pay


@tool(context=True)
async def pay_invoice(cents: int, tool_context: ToolContext) -> str:
    """Pay an invoice."""
    return await asyncio.to_thread(pay, cents, str(tool_context.tool_use["toolUseId"]))


class Script(Model):
    def update_config(self, **_: Any) -> None: ...

    def get_config(self) -> Any:
        return {}

    def structured_output(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError

    async def stream(self, messages: Any, *_: Any, **__: Any) -> AsyncIterator[Any]:
        blocks = [block["toolResult"] for one in messages for block in one["content"] if "toolResult" in block]
        call = decide(str(blocks[-1]["content"][0].get("text")) if blocks else None)
        yield {"messageStart": {"role": "assistant"}}
        use = {"toolUse": {"name": "pay_invoice", "toolUseId": call}}
        yield {"contentBlockStart": {"start": use if call else {}}}
        delta = {"toolUse": {"input": '{"cents": 500}'}} if call else {"text": "Done."}
        yield {"contentBlockDelta": {"delta": delta}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "tool_use" if call else "end_turn"}}


def main(step: str) -> None:
    session = FileSessionManager(session_id="one", storage_dir=str(FOLDER))
    agent = Agent(Script(), tools=[pay_invoice], session_manager=session, agent_id="payer", callback_handler=None)
    is_stored = bool(agent.messages)
    agent(QUESTION if step == "start" or not is_stored else "Go on.")


if __name__ == "__main__":
    main(sys.argv[1])
