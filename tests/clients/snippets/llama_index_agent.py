"""LlamaIndex with OpenAILike: an agent with one tool, or plain completions, which are its default."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from llama_index.core.agent.workflow import FunctionAgent  # type: ignore[import-not-found]
from llama_index.llms.openai_like import OpenAILike  # type: ignore[import-not-found]

URL, KEY, MODEL, WIRE = (os.environ[name] for name in ("GATEWAY_URL", "GATEWAY_KEY", "GATEWAY_MODEL", "GATEWAY_WIRE"))


def read_note() -> str:
    """Read the note of this folder."""
    return Path("note.txt").read_text()


async def agent() -> None:
    llm = OpenAILike(model=MODEL, api_base=f"{URL}/v1", api_key=KEY, is_chat_model=True, is_function_calling_model=True)
    print(await FunctionAgent(tools=[read_note], llm=llm, streaming=True).run("What does the note hold?"))
    print("--\n", await FunctionAgent(tools=[read_note], llm=llm, streaming=False).run("What does the note hold?"))


def completions() -> None:
    llm = OpenAILike(model=MODEL, api_base=f"{URL}/v1", api_key=KEY)
    print(llm.complete("Read note.txt."))
    print("--\n", llm.complete(f"note.txt:\n{read_note()}"))
    print("--\n", "".join(piece.delta for piece in llm.stream_complete(f"note.txt:\n{read_note()}")))


if WIRE == "openai-chat":
    asyncio.run(agent())
else:
    completions()
