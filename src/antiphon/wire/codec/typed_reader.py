"""Typed decoding of request bodies: the common shapes of messages are structs, everything else is read generically.

`TypedReader` decodes the whole list of messages typed in one pass. If a message does not fit, it decodes the list message by
message: each one typed if possible, generic otherwise, so that one odd message does not cost the typed parse of the others.
The result is the same as that of the generic reader. `RequestScanner` reads only the ids of calls and results, for bodies
that are forwarded unchanged.

After a typed decode the parameters beside the messages are in alphabetical order, otherwise in the order of the body.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, Generic, Literal, Protocol, TypeVar

import msgspec
from msgspec import UNSET, Struct

from antiphon.history.entries import TokenUsage
from antiphon.parts import Text, ToolCallRequest, ToolCallResult, ToolExecutionStatus
from antiphon.wire.request import Message, ModelRequest

Entry = TypeVar("Entry")
EntryIn = TypeVar("EntryIn", contravariant=True)

_INVALID = (msgspec.DecodeError, RecursionError, UnicodeError)
_SUCCESS = ToolExecutionStatus.SUCCESS
_decode_raw_body = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_raw_list = msgspec.json.Decoder(list[msgspec.Raw]).decode
_decode_value = msgspec.json.Decoder().decode

ANY_TEXT: Final = (Text(""),)
"""The parts of a scanned message that has only text."""


class MessageListReader(Protocol[EntryIn]):
    """Collects the messages of one request, made with the rest of its body."""

    def add_typed(self, entries: Iterable[EntryIn]) -> bool:
        """Add typed entries; False as soon as one must be read generically. Nothing of that one was added."""

    def add_generic(self, entry: Any) -> None:
        """Add an entry of plain JSON values."""

    def finish(self) -> tuple[Message, ...]:
        """The messages of all entries."""


class TypedReader(Generic[Entry]):
    """Reads bodies with a list of `entry` under `key`, and the named parameters beside it.

    `new_list` starts the list of one request, `build` makes the request of its messages; both get the rest of the body.
    Without `by_entry` an unusual entry makes the whole body generic, for formats whose generic reader is as fast.
    """

    def __init__(
        self,
        key: str,
        entry: Any,
        parameters: Iterable[str],
        new_list: Callable[[dict[str, Any]], MessageListReader[Entry]],
        build: Callable[[tuple[Message, ...], dict[str, Any]], ModelRequest],
        *,
        by_entry: bool = True,
    ) -> None:
        self._key = key
        self._path = f"$.{key}"
        self._names = tuple(sorted({*parameters} - {key}))
        self._new_list = new_list
        self._build = build
        self._by_entry = by_entry
        fields: list[tuple[str, Any, Any]] = [(name, Any, UNSET) for name in self._names]
        body = msgspec.defstruct("TypedBody", [(key, list[entry]), *fields], forbid_unknown_fields=True, gc=False)
        self._decode = msgspec.json.Decoder(body).decode
        self._decode_entries: Callable[[msgspec.Raw], list[Entry]] = msgspec.json.Decoder(list[entry]).decode
        self._decode_entry: Callable[[msgspec.Raw], Entry] = msgspec.json.Decoder(entry).decode

    def read(self, data: bytes) -> ModelRequest | None:
        """The request in a body; None if the body is not JSON or has no list under the key."""
        is_list_typed = False
        try:
            body = self._decode(data)
            unread = {name: value for name in self._names if (value := getattr(body, name)) is not UNSET}
            messages = self._new_list(unread)
            if messages.add_typed(getattr(body, self._key)):
                return self._build(messages.finish(), unread)
        except msgspec.ValidationError as error:
            if not self._by_entry or str(error).endswith(f"`{self._path}`"):  # the second: not a list
                return None
            is_list_typed = self._path not in str(error)  # only a parameter is unknown
        except _INVALID:
            return None
        if not self._by_entry:
            return None
        try:
            return self._read_by_entry(data, is_list_typed=is_list_typed)
        except _INVALID:
            return None

    def _read_by_entry(self, data: bytes, *, is_list_typed: bool) -> ModelRequest | None:
        body = _decode_raw_body(data)
        entries = body.pop(self._key, None)
        if entries is None:
            return None
        unread = {name: _decode_value(value) for name, value in body.items()}
        messages = self._new_list(unread)
        if is_list_typed:
            try:
                if messages.add_typed(self._decode_entries(entries)):
                    return self._build(messages.finish(), unread)
            except msgspec.ValidationError:
                pass
            messages = self._new_list(unread)
        for raw in _decode_raw_list(entries):
            try:
                is_added = messages.add_typed((self._decode_entry(raw),))
            except msgspec.ValidationError:
                is_added = False
            if not is_added:
                messages.add_generic(_decode_value(raw))
        return self._build(messages.finish(), unread)


class RequestScanner(Generic[Entry]):
    """Scans bodies with a list of `entry` under `key`. `scan_entry` makes a message with only ids; None: read it whole."""

    def __init__(self, key: str, entry: Any, scan_entry: Callable[[Entry], Message | None]) -> None:
        fields: list[Any] = [(key, list[entry]), ("model", str, ""), ("stream", bool | None, None)]
        self._decode = msgspec.json.Decoder(msgspec.defstruct("ScannedBody", fields, gc=False)).decode
        self._key = key
        self._scan_entry = scan_entry

    def scan(self, data: bytes) -> ModelRequest | None:
        """The model, `stream` and the order of calls and results; None if the body must be read whole."""
        try:
            body: Any = self._decode(data)
        except _INVALID:
            return None
        messages: list[Message] = []
        for entry in getattr(body, self._key):
            message = self._scan_entry(entry)
            if message is None:
                return None
            messages.append(message)
        return ModelRequest(messages=tuple(messages), model=body.model, stream=body.stream)


class TextBlock(Struct, forbid_unknown_fields=True, gc=False, tag_field="type", tag="text"):
    """A block of text among blocks of other types."""

    text: str
    cache_control: Any = None


class OnlyTextBlock(Struct, forbid_unknown_fields=True, gc=False):
    """A block of text in a list of only text: outside of a union msgspec does not require the tag."""

    type: Literal["text"]
    text: str
    cache_control: Any = None


class UsageScanner:
    """Decodes only the usage of a response, under `usage`, and checks that there is a list under `content`."""

    def __init__(self, content: str, usage: str, read: Callable[[Any], TokenUsage | None]) -> None:
        fields: list[Any] = [(content, list[msgspec.Raw]), (usage, Any, UNSET)]
        self._decode = msgspec.json.Decoder(msgspec.defstruct("ScannedResponse", fields, gc=False)).decode
        self._usage = usage
        self._read = read

    def scan(self, data: bytes) -> TokenUsage | None:
        """The usage; None if there is none, or if the response must be read whole."""
        try:
            raw = getattr(self._decode(data), self._usage)
        except _INVALID:
            return None
        return self._read(raw) if raw is not UNSET else None


def call_with_id(call_id: str) -> ToolCallRequest:
    """A scanned call: only its id is known."""
    return ToolCallRequest("", call_id, "")


def result_with_id(call_id: str) -> ToolCallResult:
    """A scanned result: only its id is known."""
    return ToolCallResult("", call_id, _SUCCESS, ANY_TEXT)
