"""Blocks of one format inside messages of another, read by the reader of their own format.

Clients paste Anthropic's `tool_use` and `tool_result` blocks, or Responses' `input_text` parts, into chat messages. Readers keep
such a block as `Native`; here it becomes a neutral part, so that calls find their results.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import structs

from antiphon.parts import Native, Part, Text, ToolCallResult
from antiphon.repair.action import Action
from antiphon.wire.request import Message

_ANTHROPIC_TYPES = frozenset({"tool_use", "tool_result", "image", "thinking"})
_RESPONSES_TYPES = frozenset({"input_text", "output_text"})
_FOREIGN_TYPES: dict[str, frozenset[str]] = {
    "openai-chat": _ANTHROPIC_TYPES | _RESPONSES_TYPES,
    "openai-responses": _ANTHROPIC_TYPES,
    "anthropic": _RESPONSES_TYPES,
}


def read_foreign_blocks(messages: Sequence[Message], actions: list[Action]) -> Sequence[Message]:
    """The messages with foreign blocks read; the same object if there are none."""
    changed: list[Message] | None = None
    for position, message in enumerate(messages):
        for part in message.parts:
            if type(part) is Native and is_foreign_block(part):
                break
        else:
            continue
        changed = list(messages) if changed is None else changed
        parts = tuple(_read(part) if is_foreign_block(part) else part for part in message.parts)
        changed[position] = structs.replace(message, parts=parts)
        actions.append(Action("recognised", position, "blocks of another format"))
    return messages if changed is None else changed


def is_foreign_block(part: Part) -> bool:
    """Whether a part is a block of another format that can be read."""
    if type(part) is not Native or not isinstance(part.data, dict) or part.origin not in _FOREIGN_TYPES:
        return False
    kind = part.data.get("type")
    return isinstance(kind, str) and kind in _FOREIGN_TYPES[part.origin] and _read(part) is not part


def _read(part: Part) -> Part:
    """The part in a foreign block; the block itself if it is malformed."""
    if not isinstance(part, Native):
        return part
    if part.data["type"] in _RESPONSES_TYPES:
        text = part.data.get("text")
        return Text(text) if isinstance(text, str) else part
    from antiphon.wire.anthropic.content import read_value

    read = read_value(part.data)
    if isinstance(read, Native):
        return part
    if isinstance(read, ToolCallResult):
        return structs.replace(read, content=tuple(map(_as_neutral, read.content)))
    return read


def _as_neutral(part: Any) -> Any:
    """A block inside a result that has no neutral part as JSON text: no other format accepts it."""
    return Text(msgspec.json.encode(part.data).decode()) if isinstance(part, Native) else part
