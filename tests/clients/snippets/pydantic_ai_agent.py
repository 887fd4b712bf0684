"""An agent of pydantic-ai with one tool, on the wire named by WIRE; streamed, then whole."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

from pydantic_ai import Agent

URL, KEY, MODEL, WIRE = (os.environ[name] for name in ("GATEWAY_URL", "GATEWAY_KEY", "GATEWAY_MODEL", "GATEWAY_WIRE"))


def model() -> Any:
    if WIRE == "anthropic":
        from pydantic_ai.models.anthropic import AnthropicModel
        from pydantic_ai.providers.anthropic import AnthropicProvider

        return AnthropicModel(MODEL, provider=AnthropicProvider(api_key=KEY, base_url=URL))
    if WIRE == "gemini":
        from pydantic_ai.models.google import GoogleModel
        from pydantic_ai.providers.google import GoogleProvider

        return GoogleModel(MODEL, provider=GoogleProvider(api_key=KEY, base_url=URL))
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider

    kind = OpenAIResponsesModel if WIRE == "openai-responses" else OpenAIChatModel
    return kind(MODEL, provider=OpenAIProvider(api_key=KEY, base_url=f"{URL}/v1"))


agent = Agent(model())


@agent.tool_plain  # type: ignore[untyped-decorator]
def read_note() -> str:
    """Read the note of this folder."""
    return Path("note.txt").read_text()


async def print_events(_: Any, events: Any) -> None:
    """With an event handler, the answers are streamed."""
    async for event in events:
        print(type(event).__name__)


async def main() -> None:
    print((await agent.run("What does the note hold?", event_stream_handler=print_events)).output)
    print("--\n", (await agent.run("What does the note hold?")).output)


asyncio.run(main())
