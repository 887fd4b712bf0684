"""Request bodies of every format, with a prompt that is long enough to be cached."""

from __future__ import annotations

from typing import Any

RULES = "Answer in one sentence, name the source, and never guess a number that a tool can tell. " * 400
"""About 8,000 tokens."""
MARK = {"type": "ephemeral"}
TOOLS = [
    {"name": name, "description": f"Reads the {name}.", "input_schema": {"type": "object", "properties": {}}}
    for name in ("weather", "calendar", "mail", "news")
]


def anthropic(*texts: str, system: str = RULES, mark: Any = MARK, **more: Any) -> dict[str, Any]:
    """A body with alternating messages; the last block has a breakpoint."""
    messages: list[dict[str, Any]] = [
        {"role": ("user", "assistant")[index % 2], "content": [{"type": "text", "text": text}]}
        for index, text in enumerate(texts)
    ]
    if mark is not None:
        messages[-1]["content"][-1]["cache_control"] = mark
    return {
        "model": "claude-sonnet-5",
        "max_tokens": 100,
        "system": system,
        "tools": TOOLS,
        "messages": messages,
        **more,
    }


def chat(*texts: str, system: str = RULES, **more: Any) -> dict[str, Any]:
    messages = [{"role": ("user", "assistant")[index % 2], "content": text} for index, text in enumerate(texts)]
    return {"model": "gpt-5.5", "messages": [{"role": "system", "content": system}, *messages], **more}


def responses(*texts: str, system: str = RULES, **more: Any) -> dict[str, Any]:
    items = [
        {"type": "message", "role": ("user", "assistant")[index % 2], "content": text}
        for index, text in enumerate(texts)
    ]
    return {"model": "gpt-5.5", "instructions": system, "input": items, **more}


def gemini(*texts: str, system: str = RULES, **more: Any) -> dict[str, Any]:
    contents = [{"role": ("user", "model")[index % 2], "parts": [{"text": text}]} for index, text in enumerate(texts)]
    return {"systemInstruction": {"parts": [{"text": system}]}, "contents": contents, **more}
