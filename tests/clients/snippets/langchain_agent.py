"""An agent of LangChain with one tool, on the wire named by WIRE; streamed, then whole."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from langchain.agents import create_agent

URL, KEY, MODEL, WIRE = (os.environ[name] for name in ("GATEWAY_URL", "GATEWAY_KEY", "GATEWAY_MODEL", "GATEWAY_WIRE"))


def read_note() -> str:
    """Read the note of this folder."""
    return Path("note.txt").read_text()


def model() -> Any:
    if WIRE == "anthropic":
        from langchain_anthropic import ChatAnthropic

        return ChatAnthropic(model=MODEL, api_key=KEY, base_url=URL, max_tokens=1000)
    if WIRE == "gemini":
        from langchain_google_genai import ChatGoogleGenerativeAI  # type: ignore[import-not-found]

        return ChatGoogleGenerativeAI(model=MODEL, api_key=KEY, base_url=URL)
    from langchain_openai import ChatOpenAI  # type: ignore[import-not-found]

    return ChatOpenAI(model=MODEL, api_key=KEY, base_url=f"{URL}/v1", use_responses_api=WIRE == "openai-responses")


agent = create_agent(model(), tools=[read_note])
asked = {"messages": [{"role": "user", "content": "What does the note hold?"}]}
for piece, _ in agent.stream(asked, stream_mode="messages"):
    print(piece.text, end="", flush=True)
print("\n--\n", agent.invoke(asked)["messages"][-1].text)
