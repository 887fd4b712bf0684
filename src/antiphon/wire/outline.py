"""Outlines: of a body only what somebody must know who passes it on as it is.

A body that goes to a host of its own format is not rewritten, so its words need not be read: which model it asks for, whether
the answer is to stream, and in what order calls and results stand is all that is looked at. The outline of a request is a
`ModelRequest` that says this and nothing else: its messages are in the order of the body's, with the ids of their calls and
results, and where there are words there is a `Text` without any. The outline of an answer is its usage.

Like `plain`, an outline is only ever quicker: what a format's `outline` module does not know it refuses (media, fields of
hosts, blocks of others), and the body is read in the general way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

import msgspec
from msgspec import UNSET, Struct

from antiphon.history.usage import TokenUsage
from antiphon.parts import Text, ToolCallRequest, ToolCallResult, ToolExecutionStatus

Entry = TypeVar("Entry")

WORDS: Final = (Text(""),)
"""The parts of a message that says something and does nothing."""
_UNREADABLE = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)
_SUCCESS = ToolExecutionStatus.SUCCESS


class Words(Struct, forbid_unknown_fields=True, gc=False, tag_field="type", tag="text"):
    """A block of text."""

    text: str
    cache_control: Any = None


class OutlineDecoder(Generic[Entry]):
    """Decodes of a request the list of `entry` under `messages`, the model, and whether it streams."""

    def __init__(self, entry: Any) -> None:
        fields: list[Any] = [("messages", list[entry]), ("model", str, ""), ("stream", bool | None, None)]
        self._decode = msgspec.json.Decoder(msgspec.defstruct("OutlinedBody", fields, gc=False)).decode

    def decode(self, data: bytes) -> tuple[list[Entry], str, bool | None] | None:
        """The entries, the model and whether it streams; None if anything of that is not plain."""
        try:
            body: Any = self._decode(data)
        except _UNREADABLE:
            return None
        return body.messages, body.model, body.stream


class UsageDecoder:
    """Decodes of an answer its usage, under `usage`, and sees that there is a list under `content`."""

    def __init__(self, content: str, usage: str, read: Callable[[Any], TokenUsage | None]) -> None:
        fields: list[Any] = [(content, list[msgspec.Raw]), (usage, Any, UNSET)]
        self._decode = msgspec.json.Decoder(msgspec.defstruct("OutlinedAnswer", fields, gc=False)).decode
        self._usage = usage
        self._read = read

    def decode(self, data: bytes) -> TokenUsage | None:
        """The usage; None if there is none, or if this is no plain answer."""
        try:
            raw = getattr(self._decode(data), self._usage)
        except _UNREADABLE:
            return None
        return self._read(raw) if raw is not UNSET else None


def call_of(call_id: str) -> ToolCallRequest:
    """A call of which only the id is known."""
    return ToolCallRequest("", call_id, "")


def result_of(call_id: str) -> ToolCallResult:
    """A result of which only the id is known."""
    return ToolCallResult("", call_id, _SUCCESS, WORDS)
