"""Outlines of requests and answers of the Messages API (see `codec.typed_reader`)."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import Struct

from antiphon.parts import Part, Thinking
from antiphon.wire.anthropic.plain import Thought
from antiphon.wire.anthropic.usage import read_usage
from antiphon.wire.codec.typed_reader import (
    ANY_TEXT,
    OutlineDecoder,
    TextBlock,
    UsageScanner,
    call_with_id,
    result_with_id,
)
from antiphon.wire.request import Message, ModelRequest


class _Call(Struct, forbid_unknown_fields=True, gc=False, tag_field="type", tag="tool_use"):
    id: str
    name: str
    input: msgspec.Raw
    cache_control: Any = None


class _Result(Struct, forbid_unknown_fields=True, gc=False, tag_field="type", tag="tool_result"):
    tool_use_id: str
    content: str | list[TextBlock] | None = None
    is_error: bool | None = None
    cache_control: Any = None


class _Turn(Struct, forbid_unknown_fields=True, gc=False):
    role: Literal["user", "assistant"]
    content: str | list[TextBlock | Thought | _Call | _Result]


_REQUEST: OutlineDecoder[_Turn] = OutlineDecoder(_Turn)
_ANSWER = UsageScanner("content", "usage", read_usage)
_SAID = {role: Message(role, ANY_TEXT) for role in ("user", "assistant")}
_THOUGHT = Thinking("")

scan_usage = _ANSWER.scan


def read_outline(data: bytes) -> ModelRequest | None:
    """The outline of a request; None if it is not plain."""
    decoded = _REQUEST.decode(data)
    if decoded is None:
        return None
    messages = [
        _SAID[turn.role] if isinstance(turn.content, str) else Message(turn.role, tuple(map(_part, turn.content)))
        for turn in decoded[0]
    ]
    return ModelRequest(messages=tuple(messages), model=decoded[1], stream=decoded[2])


def _part(block: TextBlock | Thought | _Call | _Result) -> Part:
    if type(block) is _Call:
        return call_with_id(block.id)
    if type(block) is _Result:
        return result_with_id(block.tool_use_id)
    return ANY_TEXT[0] if type(block) is TextBlock else _THOUGHT
