"""Blocks of one format inside messages of another, read by the reader of their own format.

Clients paste Anthropic's `tool_use` and `tool_result` blocks, or Responses' `input_text` parts, into chat messages. Readers keep
such a block as `Native`; here it becomes a neutral part, so that calls find their results. The spec of a format says which of its
blocks are pasted elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import structs

from antiphon.parts import Native, Part, Text, ToolCallResult
from antiphon.repair.action import Action
from antiphon.wire.request import Message
from antiphon.wire.spec import find_pasted, spec_of


def read_foreign_blocks(messages: Sequence[Message], actions: list[Action]) -> Sequence[Message]:
    """The messages with foreign blocks read; the same object if there are none."""
    changed: list[Message] | None = None
    for position, message in enumerate(messages):
        for part in message.parts:
            if type(part) is Native and _read(part) is not part:
                break
        else:
            continue
        changed = list(messages) if changed is None else changed
        parts = tuple([_read(part) if type(part) is Native else part for part in message.parts])
        changed[position] = structs.replace(message, parts=parts)
        actions.append(Action("recognised", position, "blocks of another format"))
    return messages if changed is None else changed


def is_foreign_block(part: Part) -> bool:
    """Whether a part is a block of another format that can be read."""
    return type(part) is Native and _read(part) is not part


def _read(part: Native) -> Part:
    """The part in a foreign block; the block itself if it is none, or malformed."""
    spec, block = spec_of(part.origin), part.data
    if spec is None or not spec.reads_pasted or not isinstance(block, dict):
        return part
    owner = find_pasted(block.get(spec.tag), part.origin)
    read = None if owner is None else owner.read_pasted(block)
    if isinstance(read, ToolCallResult):
        return structs.replace(read, content=tuple(map(_as_neutral, read.content)))
    return part if read is None else read


def _as_neutral(part: Any) -> Any:
    """A block inside a result that has no neutral part as JSON text: no other format accepts it."""
    return Text(msgspec.json.encode(part.data).decode()) if isinstance(part, Native) else part
