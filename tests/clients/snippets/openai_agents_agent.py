"""An agent of the OpenAI Agents SDK with one tool, on the wire named by WIRE; streamed, then whole."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from agents import Agent, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner, function_tool, set_tracing_disabled
from openai import AsyncOpenAI

URL, KEY, MODEL, WIRE = (os.environ[name] for name in ("GATEWAY_URL", "GATEWAY_KEY", "GATEWAY_MODEL", "GATEWAY_WIRE"))


@function_tool  # type: ignore[untyped-decorator]
def read_note() -> str:
    """Read the note of this folder."""
    return Path("note.txt").read_text()


async def main() -> None:
    set_tracing_disabled(True)
    client = AsyncOpenAI(api_key=KEY, base_url=f"{URL}/v1")
    kind = OpenAIResponsesModel if WIRE == "openai-responses" else OpenAIChatCompletionsModel
    agent = Agent(name="Reader", tools=[read_note], model=kind(MODEL, client))
    streamed = Runner.run_streamed(agent, "What does the note hold?")
    async for _ in streamed.stream_events():
        pass
    print(streamed.final_output)
    print("--\n", (await Runner.run(agent, "What does the note hold?")).final_output)


asyncio.run(main())
