"""Responses requests of plain items, read as they are decoded (see `codec.typed_reader`).

Plain is: messages, calls of functions and their outputs, with no other field. Items need not say what they are, so all kinds are
decoded as one; a field that belongs to another kind makes an item odd.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

from antiphon.parts import InputPart, Text, ToolCallRequest, ToolCallResult, ToolExecutionStatus
from antiphon.wire.codec.typed_reader import PlainReader
from antiphon.wire.openai_responses.content import FORMAT, read_input
from antiphon.wire.openai_responses.items import read_said
from antiphon.wire.openai_responses.request import instructions_of, request_of
from antiphon.wire.openai_responses.vocabulary import PARAMETERS
from antiphon.wire.request import Message, ModelRequest

_SUCCESS = ToolExecutionStatus.SUCCESS


class _Item(Struct, forbid_unknown_fields=True, gc=False):
    type: Literal["message", "function_call", "function_call_output"] | UnsetType = UNSET
    role: Literal["user", "assistant", "system", "developer"] | UnsetType = UNSET
    content: str | list[Any] | UnsetType = UNSET
    call_id: str | UnsetType = UNSET
    name: str | UnsetType = UNSET
    arguments: str | UnsetType = UNSET
    output: str | list[Any] | UnsetType = UNSET


def _request(items: list[_Item], rest: dict[str, Any]) -> ModelRequest | None:
    messages = instructions_of(rest)
    turn: list[Any] = []
    for item in items:
        call_id, content, output = item.call_id, item.content, item.output
        if item.type == "function_call":
            name, text = item.name, item.arguments
            if call_id is UNSET or name is UNSET or text is UNSET:
                return None
            if item.role is not UNSET or content is not UNSET or output is not UNSET:
                return None
            turn.append(ToolCallRequest(name, call_id, text or "{}"))
            continue
        if item.name is not UNSET or item.arguments is not UNSET:
            return None
        if item.type == "function_call_output":
            if call_id is UNSET or output is UNSET or item.role is not UNSET or content is not UNSET:
                return None
            said = (Text(output),) if type(output) is str else _read_parts(output)
            message = Message("tool", (ToolCallResult("", call_id, _SUCCESS, said),))
        else:
            role = item.role
            if role is UNSET or content is UNSET or call_id is not UNSET or output is not UNSET:
                return None
            if role == "assistant":
                if not turn and type(content) is str:
                    turn.append(Text(content))
                elif not read_said(turn, {"role": role, "content": content}, content):
                    return None
                continue
            is_first = role == "system" and not messages and not turn
            said = (Text(content),) if type(content) is str else _read_parts(content)
            message = Message(role, said, None, {FORMAT: {}} if is_first else None)
        if turn:
            messages.append(Message("assistant", tuple(turn)))
            turn = []
        messages.append(message)
    if turn:
        messages.append(Message("assistant", tuple(turn)))
    return request_of(messages, rest)


def _read_parts(content: Any) -> tuple[InputPart, ...]:
    return tuple([read_input(part) for part in content])


read_plain = PlainReader("input", _Item, PARAMETERS, _request).read
