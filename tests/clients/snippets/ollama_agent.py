"""Ollama's Python client with one tool; streamed, then whole; and what it asks for besides."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import ollama

URL, KEY, MODEL, WIRE = (os.environ[name] for name in ("GATEWAY_URL", "GATEWAY_KEY", "GATEWAY_MODEL", "GATEWAY_WIRE"))
CLIENT: Any = ollama.Client(host=URL, headers={"Authorization": f"Bearer {KEY}"})


def read_note() -> str:
    """Read the note of this folder."""
    return Path("note.txt").read_text()


def talk(streams: bool) -> str:
    messages: list[Any] = [{"role": "user", "content": "What does the note hold?"}]
    while True:
        answers = CLIENT.chat(model=MODEL, messages=messages, tools=[read_note], stream=streams)
        pieces = list(answers) if streams else [answers]
        calls = [call for piece in pieces for call in piece.message.tool_calls or ()]
        text = "".join(piece.message.content or "" for piece in pieces)
        if not calls:
            return text
        messages.append({"role": "assistant", "content": text, "tool_calls": calls})
        messages += [{"role": "tool", "tool_name": call.function.name, "content": read_note()} for call in calls]


print(len(CLIENT.list().models), CLIENT.show("to-openai-chat").capabilities)
print(talk(True))
print("--\n", talk(False))
