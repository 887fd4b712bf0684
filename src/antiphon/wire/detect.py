"""Guess the format of a request body, to name it in an error."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_ANTHROPIC_BLOCKS = frozenset({"tool_use", "tool_result", "thinking", "redacted_thinking", "document", "image"})
_CHAT_PARTS = frozenset({"image_url", "input_audio", "file"})


def detect_format(body: Any) -> str | None:
    """The only format a request body can be in; None if several fit, or none."""
    if not isinstance(body, dict):
        return None
    if "contents" in body:
        return "gemini"
    if "messages" not in body:
        return "openai-responses" if "input" in body else None
    signs = set(_signs(body))
    return signs.pop() if len(signs) == 1 else None


def _signs(body: dict[str, Any]) -> Iterator[str]:
    """The formats that features of a body with `messages` belong to."""
    if "system" in body or "anthropic_version" in body or "stop_sequences" in body:
        yield "anthropic"
    if "max_completion_tokens" in body or "response_format" in body or "stream_options" in body:
        yield "openai-chat"
    for tool in _objects(body.get("tools")):
        if "input_schema" in tool:
            yield "anthropic"
        elif "function" in tool:
            yield "openai-chat"
    for message in _objects(body["messages"]):
        if message.get("role") in ("tool", "developer", "function") or "tool_calls" in message:
            yield "openai-chat"
        for part in _objects(message.get("content")):
            kind = part.get("type")
            if isinstance(kind, str) and kind in _ANTHROPIC_BLOCKS:
                yield "anthropic"
            elif isinstance(kind, str) and kind in _CHAT_PARTS:
                yield "openai-chat"


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    return (item for item in value if isinstance(item, dict)) if isinstance(value, list) else iter(())
