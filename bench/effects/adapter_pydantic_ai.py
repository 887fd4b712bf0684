"""pydantic-ai with `StepPersistence` of its harness in SQLite; resumed from its last snapshot, after a look at open effects.

Documentation: the README of `pydantic_ai_harness.step_persistence`, "Failure recovery". Without any snapshot the question is
asked again, unless an effect is unresolved: then it "may or may not have run", and the program decides; this one stops.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from pydantic_ai import Agent, RunContext
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai_harness import StepPersistence
from pydantic_ai_harness.step_persistence import SqliteStepStore, annotate_tool_effect, continue_run

from bench.effects.payment import FOLDER, QUESTION, decide, pay


def answer(messages: Any, _: Any) -> ModelResponse:
    results = [part for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]
    call = decide(str(results[-1].content) if results else None)
    return ModelResponse(parts=[ToolCallPart("pay_invoice", {"cents": 500}, call) if call else TextPart("Done.")])


async def main(step: str) -> None:
    store = SqliteStepStore(database=FOLDER / "steps.db")
    agent: Any = Agent(FunctionModel(answer), capabilities=[StepPersistence(store=store, agent_name="payer")])

    @agent.tool
    async def pay_invoice(context: RunContext[Any], cents: int) -> str:
        """Pay an invoice."""
        key = str(context.tool_call_id)
        await annotate_tool_effect(store, context, idempotency_key=key)
        return await asyncio.to_thread(pay, cents, key)

    history = []
    if step == "resume":
        run = (await store.list_runs(conversation_id="one"))[-1].run_id
        try:
            history = await continue_run(store, run_id=run, include_interrupted=True)
        except LookupError:
            if await store.list_unresolved_tool_effects(run_id=run):
                return
    await agent.run(None if history else QUESTION, message_history=history, conversation_id="one")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
