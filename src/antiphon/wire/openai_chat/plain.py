"""Chat Completions requests of plain messages, read as they are decoded (see `codec.typed_reader`).

Plain is: words, calls of functions and results in words, with no other field. A message of content parts is read part by part.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

from antiphon.parts import Text, ToolCallRequest, ToolCallResult, ToolExecutionStatus
from antiphon.wire.codec.typed_reader import PlainReader
from antiphon.wire.openai_chat.content import read_content
from antiphon.wire.openai_chat.request import request_of
from antiphon.wire.openai_chat.rules import ARGUMENTS
from antiphon.wire.request import Message, ModelRequest

_SUCCESS = ToolExecutionStatus.SUCCESS
_HOSTS_ARGUMENTS = ("enable_thinking", "reasoning", "thinking", "top_k")


class Function(Struct, forbid_unknown_fields=True, gc=False):
    """What a call calls."""

    name: str
    arguments: str


class Call(Struct, forbid_unknown_fields=True, gc=False):
    """A call of a function, and nothing else."""

    id: str
    type: Literal["function"]
    function: Function


class _Answer(Struct, forbid_unknown_fields=True, gc=False, tag_field="role", tag="assistant"):
    content: str | None = None
    tool_calls: list[Call] | UnsetType = UNSET


class _Result(Struct, forbid_unknown_fields=True, gc=False, tag_field="role", tag="tool"):
    tool_call_id: str
    content: str
    name: str | UnsetType = UNSET


class _Question(Struct, forbid_unknown_fields=True, gc=False, tag_field="role", tag="user"):
    content: str | list[Any]


class _System(Struct, forbid_unknown_fields=True, gc=False, tag_field="role", tag="system"):
    content: str | list[Any]


class _Developer(Struct, forbid_unknown_fields=True, gc=False, tag_field="role", tag="developer"):
    content: str | list[Any]


_Entry = _Answer | _Result | _Question | _System | _Developer
_ROLES: dict[type, str] = {_Question: "user", _System: "system", _Developer: "developer"}


def _request(entries: list[_Entry], rest: dict[str, Any]) -> ModelRequest | None:
    messages: list[Message] = []
    add = messages.append
    for entry in entries:
        content: Any = entry.content
        if type(entry) is _Result:
            name = "" if entry.name is UNSET else entry.name
            add(Message("tool", (ToolCallResult(name, entry.tool_call_id, _SUCCESS, (Text(content),)),)))
        elif type(entry) is _Answer:
            calls = entry.tool_calls
            if calls is not UNSET and calls:
                parts: list[Any] = [] if content is None else [Text(content)]
                for call in calls:
                    function = call.function
                    parts.append(ToolCallRequest(function.name, call.id, function.arguments))
                add(Message("assistant", tuple(parts)))
            elif calls is UNSET and content is not None:
                add(Message("assistant", (Text(content),)))
            else:
                return None
        elif type(content) is str:
            add(Message(_ROLES[type(entry)], (Text(content),)))
        else:
            add(Message(_ROLES[type(entry)], tuple(read_content(content))))
    return request_of(tuple(messages), rest)


read_plain = PlainReader("messages", _Entry, {*ARGUMENTS, *_HOSTS_ARGUMENTS}, _request).read
