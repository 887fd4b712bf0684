"""Outlines of Chat Completions requests and answers (see `wire.outline`)."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, Struct, UnsetType

from antiphon.wire.openai_chat.plain import Call
from antiphon.wire.openai_chat.usage import read_usage
from antiphon.wire.outline import WORDS, OutlineDecoder, UsageDecoder, Words, call_of, result_of
from antiphon.wire.request import Message, ModelRequest


class _Entry(Struct, forbid_unknown_fields=True, gc=False):
    role: Literal["user", "assistant", "tool", "system", "developer"]
    content: str | list[Words] | None = None
    tool_calls: list[Call] | UnsetType = UNSET
    tool_call_id: str | UnsetType = UNSET
    name: str | UnsetType = UNSET


_REQUEST: OutlineDecoder[_Entry] = OutlineDecoder(_Entry)
_ANSWER = UsageDecoder("choices", "usage", read_usage)
_SAID = {role: Message(role, WORDS) for role in ("user", "assistant", "system", "developer")}

read_usage_alone = _ANSWER.decode


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
            add(Message("tool", (result_of(call_id),)))
        elif role == "assistant" and calls is not UNSET and calls and call_id is UNSET and entry.name is UNSET:
            add(Message("assistant", tuple([call_of(call.id) for call in calls])))
        else:
            return None
    return ModelRequest(messages=tuple(messages), model=decoded[1], stream=decoded[2])
