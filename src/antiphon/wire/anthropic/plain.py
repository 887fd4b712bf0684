"""Requests of the Messages API with plain messages, read as they are decoded (see `codec.typed_reader`).

Plain is: text, thinking, calls and results, each with a cache mark or without. What is in a result is read block by block.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import Struct

from antiphon.parts import NativeExtras, Part, ResultPart, Text, Thinking, ToolCallRequest, ToolCallResult
from antiphon.wire.anthropic.content import FAILED, SUCCESS, read_result_part
from antiphon.wire.anthropic.native import FORMAT
from antiphon.wire.anthropic.parameters import HOST_PARAMETERS
from antiphon.wire.anthropic.request import build_model_request
from antiphon.wire.codec.typed_reader import PlainReader
from antiphon.wire.request import Message, ModelRequest


class _Text(Struct, forbid_unknown_fields=True, gc=False, tag_field="type", tag="text"):
    text: str
    cache_control: Any = None


class Thought(Struct, forbid_unknown_fields=True, gc=False, tag_field="type", tag="thinking"):
    """A block of thinking, with its proof."""

    thinking: str
    signature: str = ""


class _Call(Struct, forbid_unknown_fields=True, gc=False, tag_field="type", tag="tool_use"):
    id: str
    name: str
    input: dict[str, Any]
    cache_control: Any = None


class _Result(Struct, forbid_unknown_fields=True, gc=False, tag_field="type", tag="tool_result"):
    tool_use_id: str
    content: str | list[Any] | None = None
    is_error: bool | None = None
    cache_control: Any = None


class _Turn(Struct, forbid_unknown_fields=True, gc=False):
    role: Literal["user", "assistant"]
    content: str | list[_Text | Thought | _Call | _Result]


_encode = msgspec.json.Encoder().encode


def _request(turns: list[_Turn], rest: dict[str, Any]) -> ModelRequest:
    messages: list[Message] = []
    names: dict[str, str] = {}  # of the tools called so far, by the id of the call
    for turn in turns:
        content = turn.content
        if isinstance(content, str):
            messages.append(Message(turn.role, (Text(content),)))
            continue
        parts: list[Part] = []
        for block in content:
            if type(block) is _Result:
                given = block.content
                said: tuple[ResultPart, ...]
                if type(given) is str:
                    said = (Text(given),)
                else:
                    said = () if given is None else tuple([read_result_part(part) for part in given])
                call_id, mark = block.tool_use_id, block.cache_control
                status = FAILED if block.is_error else SUCCESS
                parts.append(ToolCallResult(names.get(call_id, ""), call_id, status, said, native=_marked(mark)))
            elif type(block) is _Call:
                name, call_id, mark = block.name, block.id, block.cache_control
                names[call_id] = name
                parts.append(ToolCallRequest(name, call_id, _encode(block.input).decode(), native=_marked(mark)))
            elif type(block) is _Text:
                parts.append(Text(block.text, native=_marked(block.cache_control)))
            elif type(block) is Thought:
                proof = {FORMAT: {"signature": block.signature}} if block.signature else None
                parts.append(Thinking(block.thinking, native=proof))
        messages.append(Message(turn.role, tuple(parts)))
    return build_model_request(messages, rest)


def _marked(mark: Any) -> NativeExtras | None:
    return None if mark is None else {FORMAT: {"cache_control": mark}}


read_plain = PlainReader("messages", _Turn, HOST_PARAMETERS, _request).read
