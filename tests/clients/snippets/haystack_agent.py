"""An agent of Haystack with one tool; streamed, then whole."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from haystack.components.agents import Agent  # type: ignore[import-not-found]
from haystack.components.generators.chat import OpenAIChatGenerator  # type: ignore[import-not-found]
from haystack.dataclasses import ChatMessage  # type: ignore[import-not-found]
from haystack.tools import tool  # type: ignore[import-not-found]
from haystack.utils import Secret  # type: ignore[import-not-found]

URL, KEY, MODEL, WIRE = (os.environ[name] for name in ("GATEWAY_URL", "GATEWAY_KEY", "GATEWAY_MODEL", "GATEWAY_WIRE"))


@tool  # type: ignore[untyped-decorator]
def read_note() -> str:
    """Read the note of this folder."""
    return Path("note.txt").read_text()


def answer(on_chunk: Any = None) -> str:
    generator = OpenAIChatGenerator(api_key=Secret.from_token(KEY), api_base_url=f"{URL}/v1", model=MODEL)
    agent = Agent(chat_generator=generator, tools=[read_note], streaming_callback=on_chunk)
    agent.warm_up()
    return str(agent.run(messages=[ChatMessage.from_user("What does the note hold?")])["messages"][-1].text)


print(answer(lambda chunk: print(chunk.content, end="")))
print("--\n", answer())
