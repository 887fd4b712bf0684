"""Typed output: a support mail becomes a ticket, checked, with a mistake of the model corrected on the way.

The model is scripted, so that the example runs without a key; give `Conversation` the name of a real one instead.
"""

from __future__ import annotations

import asyncio
from typing import Literal

from msgspec import Struct

import antiphon as ap
from antiphon.conversation import PartialOutput


class Ticket(Struct):
    title: str
    priority: Literal["low", "high"]
    products: list[str] = []


@ap.tool(effect="read")
async def find_product(name: str) -> str:
    "Find the exact name of a product."
    return f"{name.title()} Pro"


MODEL = ap.ScriptedModel(
    ap.call("find_product", name="toaster"),
    ap.call("final_answer", answer={"title": "Toaster burns", "priority": "urgent"}),
    ap.call("final_answer", answer={"title": "Toaster burns", "priority": "high", "products": ["Toaster Pro"]}),
    chunk_size=24,
)


async def main() -> None:
    chat = ap.Conversation(MODEL, tools=[find_product], system="Turn mails into tickets.")
    async for event in ap.ToolLoop(chat).stream("My toaster is on fire!", output=Ticket):
        match event:
            case PartialOutput(value):
                print("so far:", value)
            case ap.ToolCallFailed(failed, result):
                print(f"{failed.tool_name}:", result.result_markdown.splitlines()[1])
            case ap.LoopFinished():
                print("ticket:", event.output)


if __name__ == "__main__":
    asyncio.run(main())
