"""Typed decoding of request bodies: the common shapes of messages are structs, everything else is read generically.

`TypedReader` decodes a body whose messages are all typed in one pass. Other bodies are decoded to plain JSON values, and
`EntryReader` reads their messages: each one typed if possible, generic otherwise, so that one odd message does not cost the
typed parse of the others. The result is the same as that of the generic reader alone.

The parameters beside the messages are in alphabetical order, so that a body gives the same request from bytes and values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, Protocol, TypeVar

import msgspec
from msgspec import UNSET

from antiphon.parts import TokenUsage
from antiphon.wire.request import Message, ModelRequest

Entry = TypeVar("Entry")
EntryIn = TypeVar("EntryIn", contravariant=True)

_INVALID = (msgspec.DecodeError, RecursionError, UnicodeError)


class MessageListReader(Protocol[EntryIn]):
    """Collects the messages of one request, made with the rest of its body."""

    def add_typed(self, entries: Sequence[EntryIn]) -> bool:
        """Add typed entries; False as soon as one must be read generically.

        Nothing of a single entry was added then; of several, the caller starts a new list.
        """

    def add_generic(self, entry: Any) -> None:
        """Add an entry of plain JSON values."""

    def finish(self) -> tuple[Message, ...]:
        """The messages of all entries."""


class TypedReader(Generic[Entry]):
    """Reads bodies with a list of `entry` under `key`, and the named parameters beside it.

    `new_list` starts the list of one request, `build` makes the request of its messages; both get the rest of the body.
    """

    def __init__(
        self,
        key: str,
        entry: Any,
        parameters: Iterable[str],
        new_list: Callable[[dict[str, Any]], MessageListReader[Entry]],
        build: Callable[[tuple[Message, ...], dict[str, Any]], ModelRequest],
    ) -> None:
        self._key = key
        self._names = tuple(sorted({*parameters} - {key}))
        self._new_list = new_list
        self._build = build
        fields: list[tuple[str, Any, Any]] = [(name, Any, UNSET) for name in self._names]
        body = msgspec.defstruct("TypedBody", [(key, list[entry]), *fields], forbid_unknown_fields=True, gc=False)
        self._decode = msgspec.json.Decoder(body).decode

    def read(self, data: bytes) -> ModelRequest | None:
        """The request in a body; None if something in it is not typed."""
        try:
            body = self._decode(data)
            unread = {name: value for name in self._names if (value := getattr(body, name)) is not UNSET}
            messages = self._new_list(unread)
            if messages.add_typed(getattr(body, self._key)):
                return self._build(messages.finish(), unread)
        except _INVALID:
            pass
        return None


_CHUNK = 32
_MAX_ODD = 3
"""In a chunk with more odd entries than this the rest is read generically: a failed conversion costs more than it saves."""


class EntryReader(Generic[Entry]):
    """Reads lists of plain JSON values, each of them typed as `entry` if possible."""

    def __init__(self, entry: Any, new_list: Callable[[dict[str, Any]], MessageListReader[Entry]]) -> None:
        self._type = msgspec.defstruct("TypedEntries", [("entries", list[entry])], gc=False)  # its decoder is cached
        self._new_list = new_list

    def read(self, entries: list[Any], unread: dict[str, Any]) -> tuple[Message, ...]:
        """The messages of all entries; `unread` is the rest of their body."""
        messages = self._new_list(unread)
        whole = self._convert(entries)
        typed: Sequence[Entry | None]
        if whole is None:
            typed = self._convert_chunks(entries)
        elif _add_typed(messages, whole):
            return messages.finish()
        else:
            messages, typed = self._new_list(unread), whole
        for entry, value in zip(typed, entries, strict=True):
            if entry is None or not _add_typed(messages, (entry,)):
                messages.add_generic(value)
        return messages.finish()

    def _convert(self, entries: list[Any]) -> list[Entry] | None:
        try:
            converted: Any = msgspec.convert({"entries": entries}, self._type)
        except (msgspec.ValidationError, RecursionError):
            return None
        typed: list[Entry] = converted.entries
        return typed

    def _convert_chunks(self, entries: list[Any]) -> list[Entry | None]:
        """The typed entries, with None for those that are not."""
        typed: list[Entry | None] = []
        for start in range(0, len(entries), _CHUNK):
            chunk = entries[start : start + _CHUNK]
            typed += self._convert(chunk) or self._convert_each(chunk)
        return typed

    def _convert_each(self, chunk: list[Any]) -> list[Entry | None]:
        typed: list[Entry | None] = []
        odd = 0
        for entry in chunk:
            converted = self._convert([entry]) if odd <= _MAX_ODD else None
            odd += converted is None
            typed.append(None if converted is None else converted[0])
        return typed


def _add_typed(messages: MessageListReader[Entry], entries: Sequence[Entry]) -> bool:
    try:
        return messages.add_typed(entries)
    except (RecursionError, UnicodeError):  # arguments that cannot be encoded
        return False


def parameters_beside(body: dict[str, Any], key: str) -> dict[str, Any]:
    """The fields of a body except `key`, in alphabetical order."""
    return {name: body[name] for name in sorted(body, key=str) if name != key}


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
