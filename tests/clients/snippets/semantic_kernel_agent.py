"""An agent of Semantic Kernel with one tool; whole, then streamed."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from openai import AsyncOpenAI
from semantic_kernel.agents import ChatCompletionAgent  # type: ignore[import-not-found]
from semantic_kernel.connectors.ai.open_ai import OpenAIChatCompletion  # type: ignore[import-not-found]
from semantic_kernel.functions import kernel_function  # type: ignore[import-not-found]

URL, KEY, MODEL, WIRE = (os.environ[name] for name in ("GATEWAY_URL", "GATEWAY_KEY", "GATEWAY_MODEL", "GATEWAY_WIRE"))


class Notes:
    @kernel_function(description="Read the note of this folder.")  # type: ignore[untyped-decorator]
    def read_file(self) -> str:
        return Path("note.txt").read_text()


async def main() -> None:
    client = AsyncOpenAI(base_url=f"{URL}/v1", api_key=KEY)
    service = OpenAIChatCompletion(ai_model_id=MODEL, async_client=client)
    agent = ChatCompletionAgent(service=service, name="reader", plugins=[Notes()])
    print(await agent.get_response("What does the note hold?"))
    async for piece in agent.invoke_stream("What does the note hold?"):
        print(piece, end="")


asyncio.run(main())
