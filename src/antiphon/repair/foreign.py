"""Blocks of one format inside messages of another, read as what they are.

Clients paste Anthropic's `tool_use` and `tool_result` blocks, or Responses' `input_text` parts, into chat messages. A reader
keeps such a block as it came (`Native`); here it becomes the part it means, so that calls find their results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec import structs

from antiphon.parts import (
    Image,
    Native,
    Part,
    ResultPart,
    Text,
    Thinking,
    ToolCallRequest,
    ToolCallResult,
    ToolExecutionStatus,
)
from antiphon.repair.action import Action
from antiphon.wire.request import Message


def recognised(messages: Sequence[Message], actions: list[Action]) -> Sequence[Message]:
    """The messages with foreign blocks read; the same object if there are none."""
    changed: list[Message] | None = None
    for position, message in enumerate(messages):
        for part in message.parts:
            if type(part) is Native and is_foreign(part):
                break
        else:
            continue
        changed = list(messages) if changed is None else changed
        parts = tuple(_read(part) if type(part) is Native and is_foreign(part) else part for part in message.parts)
        changed[position] = structs.replace(message, parts=parts)
        actions.append(Action("recognised", position, "blocks of another format"))
    return messages if changed is None else changed


def is_foreign(part: Part) -> bool:
    """Whether a part is a block of another format that can be read as what it is."""
    if type(part) is not Native or not isinstance(part.data, dict) or part.origin not in _FOREIGN:
        return False
    kind = part.data.get("type")
    return isinstance(kind, str) and kind in _FOREIGN[part.origin] and _read(part) is not part


def _read(part: Native) -> Part:
    """The part a foreign block means, or the block itself if it is not what it seems."""
    try:
        return _READERS[part.data["type"]](part.data) or part
    except (KeyError, TypeError, ValueError):
        return part


def _read_call(block: dict[str, Any]) -> Part | None:
    if not isinstance(block["id"], str) or not isinstance(block["name"], str):
        return None
    return ToolCallRequest(block["name"], block["id"], msgspec.json.encode(block.get("input", {})).decode())


def _read_result(block: dict[str, Any]) -> Part | None:
    if not isinstance(block["tool_use_id"], str):
        return None
    status = ToolExecutionStatus.FAILED if block.get("is_error") else ToolExecutionStatus.SUCCESS
    content = block.get("content") or ()
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return ToolCallResult("", block["tool_use_id"], status, tuple(_read_result_part(inner) for inner in blocks))


def _read_result_part(block: Any) -> ResultPart:
    kind = block.get("type") if isinstance(block, dict) else None
    if kind == "text" and isinstance(block.get("text"), str):
        return Text(block["text"])
    image = _read_image(block) if kind == "image" else None
    return image or Text(msgspec.json.encode(block).decode())


def _read_image(block: dict[str, Any]) -> Image | None:
    source = block["source"]
    if source.get("type") == "base64":
        return Image(str(source["media_type"]), str(source["data"]))
    return Image(url=str(source["url"])) if source.get("type") == "url" else None


def _read_text(block: dict[str, Any]) -> Part | None:
    return Text(block["text"]) if isinstance(block["text"], str) else None


def _read_thinking(block: dict[str, Any]) -> Part | None:
    proof = {"anthropic": {"signature": block["signature"]}} if isinstance(block.get("signature"), str) else None
    return Thinking(block["thinking"], native=proof) if isinstance(block["thinking"], str) else None


_READERS: dict[str, Callable[[dict[str, Any]], Part | None]] = {
    "tool_use": _read_call,
    "tool_result": _read_result,
    "image": _read_image,
    "thinking": _read_thinking,
    "input_text": _read_text,
    "output_text": _read_text,
}

_ANTHROPIC = frozenset({"tool_use", "tool_result", "image", "thinking"})
_RESPONSES = frozenset({"input_text", "output_text"})
_FOREIGN: dict[str, frozenset[str]] = {
    "openai-chat": _ANTHROPIC | _RESPONSES,
    "openai-responses": _ANTHROPIC,
    "anthropic": _RESPONSES,
    "gemini": frozenset(),
}
