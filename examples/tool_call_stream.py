"""Tool calls as they stream: a letter is shown while the model still writes it into the arguments of a call."""

from __future__ import annotations

import asyncio

import antiphon as ap
from antiphon.conversation import ToolCallDelta

LETTER = "Dear Ada,\nthe engine is ready.\nCharles"


@ap.tool
async def send_letter(to: str, text: str) -> str:
    "Send a letter."
    return f"sent to {to}, {len(text)} characters"


async def main() -> None:
    model = ap.ScriptedModel(ap.call("send_letter", to="Ada", text=LETTER), "It is on its way.", chunk_size=16)
    async for event in ap.ToolLoop(ap.Conversation(model, tools=[send_letter])).stream("Write to Ada."):
        match event:
            case ToolCallDelta():
                print("arguments:", event.text)
            case ap.ToolCallFinished():
                print("result:", event.result.result_markdown)
            case ap.TextDelta():
                print(event.text)


if __name__ == "__main__":
    asyncio.run(main())
