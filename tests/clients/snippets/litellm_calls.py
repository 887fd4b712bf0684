"""LiteLLM with one tool, on the wire named by WIRE; streamed, then whole. The loop of calls is written out."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import litellm

URL, KEY, MODEL, WIRE = (os.environ[name] for name in ("GATEWAY_URL", "GATEWAY_KEY", "GATEWAY_MODEL", "GATEWAY_WIRE"))
PREFIXES = {"openai-chat": "openai", "openai-responses": "openai", "ollama": "ollama_chat"}
NOTE = Path("note.txt").read_text()
SCHEMA = {"type": "object", "properties": {}}
QUESTION = "What does the note hold?"


def completions(streams: bool) -> str:
    messages: list[Any] = [{"role": "user", "content": QUESTION}]
    tool = {"name": "read_note", "description": "Read the note of this folder.", "parameters": SCHEMA}
    while True:
        answer = litellm.completion(
            model=f"{PREFIXES.get(WIRE, WIRE)}/{MODEL}",
            api_base=f"{URL}/v1" if WIRE == "openai-chat" else URL,
            api_key=KEY,
            messages=messages,
            tools=[{"type": "function", "function": tool}],
            stream=streams,
            extra_headers={"Authorization": f"Bearer {KEY}"} if WIRE == "ollama" else None,
        )
        if streams:
            answer = litellm.stream_chunk_builder(list(answer), messages=messages)
        message = answer.choices[0].message
        if not message.tool_calls:
            return str(message.content)
        messages.append(message.model_dump(exclude_none=True))
        messages += [{"role": "tool", "tool_call_id": call.id, "content": NOTE} for call in message.tool_calls]


def responses(streams: bool) -> str:
    given: list[Any] = [{"role": "user", "content": QUESTION}]
    tool = {"type": "function", "name": "read_note", "parameters": SCHEMA}
    while True:
        answer = litellm.responses(
            model=f"openai/{MODEL}", api_base=f"{URL}/v1", api_key=KEY, input=given, tools=[tool], stream=streams
        )
        if streams:
            answer = list(answer)[-1].response
        items = [item if isinstance(item, dict) else item.model_dump(exclude_none=True) for item in answer.output]
        calls = [item for item in items if item["type"] == "function_call"]
        if not calls:
            return "".join(part["text"] for item in items for part in item.get("content") or ())
        given += items
        given += [{"type": "function_call_output", "call_id": call["call_id"], "output": NOTE} for call in calls]


talk = responses if WIRE == "openai-responses" else completions
print(talk(True))
print("--\n", talk(False))
