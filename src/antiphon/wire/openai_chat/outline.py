"""Outlines of Chat Completions requests and answers (see `codec.typed_reader`)."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, Struct, UnsetType

from antiphon.wire.codec.typed_reader import (
    ANY_TEXT,
    OutlineDecoder,
    TextBlock,
    UsageScanner,
    call_with_id,
    result_with_id,
)
from antiphon.wire.openai_chat.plain import Call
from antiphon.wire.openai_chat.usage import read_usage
from antiphon.wire.request import Message, ModelRequest


class _Entry(Struct, forbid_unknown_fields=True, gc=False):
    role: Literal["user", "assistant", "tool", "system", "developer"]
    content: str | list[TextBlock] | None = None
    tool_calls: list[Call] | UnsetType = UNSET
    tool_call_id: str | UnsetType = UNSET
    name: str | UnsetType = UNSET


_REQUEST: OutlineDecoder[_Entry] = OutlineDecoder(_Entry)
_ANSWER = UsageScanner("choices", "usage", read_usage)
_SAID = {role: Message(role, ANY_TEXT) for role in ("user", "assistant", "system", "developer")}

scan_usage = _ANSWER.scan


def read_outline(data: bytes) -> ModelRequest | None:
    """The outline of a request; None if it is not plain."""
    decoded = _REQUEST.decode(data)
    if decoded is None:
        return None
    messages: list[Message] = []
    add = messages.append
    for entry in decoded[0]:
        calls, call_id, role = entry.tool_calls, entry.tool_call_id, entry.role
        if calls is UNSET and call_id is UNSET and entry.content is not None and entry.name is UNSET:
            if role == "tool":
                return None
            add(_SAID[role])
        elif role == "tool":
            if call_id is UNSET or calls is not UNSET or entry.content is None:
                return None
            add(Message("tool", (result_with_id(call_id),)))
        elif role == "assistant" and calls is not UNSET and calls and call_id is UNSET and entry.name is UNSET:
            add(Message("assistant", tuple([call_with_id(call.id) for call in calls])))
        else:
            return None
    return ModelRequest(messages=tuple(messages), model=decoded[1], stream=decoded[2])
