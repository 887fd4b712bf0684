"""Shapes: one struct for each object of a wire format, used by its reader and its writer.

A body whose objects all fit is decoded into structs in one pass. If one does not, the body is decoded to plain values and each
message is converted alone: it fits, or it is split into the fields its shape names and the rest (`Loose`). Either way the same
reader gets the same structs. A writer builds the shapes of the reader; `extend` adds fields that the shape does not name.

Field types say exactly what is accepted: an object with a field of another type stays whole, as `Native`. Null is absent. The
parameters beside the messages are in alphabetical order, so that a body gives the same request from bytes and values.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import compress, repeat
from operator import attrgetter, is_not
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, Struct

from antiphon.errors import WireError
from antiphon.parts import TokenUsage
from antiphon.wire.request import ModelRequest
from antiphon.wire.rules import json_type_name

INVALID = (msgspec.DecodeError, RecursionError, UnicodeError)
_CHUNK = 16


class Shape(Struct, gc=False, forbid_unknown_fields=True, omit_defaults=True):
    """An object of a wire format. Fields that may be absent are None then."""


class Loose(Struct, gc=False):
    """An object that does not fit its shape: what fits, and the other fields; no shape at all if a named field does not fit."""

    shape: Any
    more: dict[str, Any]
    value: Any


class Shapes:
    """The shapes of objects whose tag names their kind; of one kind, if it has no tag.

    `inner` has the shapes of what is in lists. A field in `spare` that has another type does not spoil
    its object: it counts as one that the shape does not name.
    """

    def __init__(
        self, *kinds: type[Shape], inner: Mapping[str, Shapes] | None = None, spare: Collection[str] = ()
    ) -> None:
        self._tag: str = kinds[0].__struct_config__.tag_field or ""
        self._kinds = {kind.__struct_config__.tag: kind for kind in kinds}
        self._only = None if self._tag else kinds[0]
        self._fields = {kind: frozenset((self._tag, *kind.__struct_encode_fields__)) for kind in kinds}
        self._inner = dict(inner or {})
        self._spare = spare

    def fit(self, value: Any) -> Any:
        """The shape of a value, or `Loose`."""
        tag = value.get(self._tag) if type(value) is dict else None
        kind = self._only or (self._kinds.get(tag) if type(tag) is str else None)
        if kind is None or type(value) is not dict:
            return Loose(None, {}, value)
        if value.keys() <= self._fields[kind]:
            try:
                return msgspec.convert(value, kind)
            except INVALID:
                pass
        return self._split(value, kind)

    def _split(self, value: dict[str, Any], kind: type[Shape]) -> Loose:
        fields, inner = self._fields[kind], self._inner
        known: dict[str, Any] = {}
        more: dict[str, Any] = {}
        fitted: dict[str, Any] = {}
        for name, field in value.items():
            if name not in fields:
                if field is not None:
                    more[name] = field
            elif name in inner and type(field) is list:
                fitted[name] = [inner[name].fit(entry) for entry in field]
            else:
                known[name] = field
        try:
            shape = msgspec.convert(known, kind)
        except INVALID:
            spare = {name: known.pop(name) for name in self._spare if name in known}
            if not spare:
                return Loose(None, {}, value)
            try:
                shape = msgspec.convert(known, kind)
            except INVALID:
                return Loose(None, {}, value)
            for name, field in spare.items():
                try:
                    setattr(shape, name, getattr(msgspec.convert({**known, name: field}, kind), name))
                except INVALID:
                    more[name] = field
        for name, field in fitted.items():
            setattr(shape, name, field)
        return Loose(shape, more, value)


def as_dict(shape: Shape) -> dict[str, Any]:
    """The object of a shape; values inside it stay as they are."""
    config, names, defaults = shape.__struct_config__, shape.__struct_fields__, shape.__struct_defaults__
    fields = {config.tag_field: config.tag} if config.tag_field else {}
    required = len(names) - len(defaults)
    for place, name in enumerate(names):
        value = getattr(shape, name)
        if place < required or value is not defaults[place - required]:
            fields[name] = value
    return fields


def extend(shape: Any, more: Mapping[str, Any]) -> Any:
    """A shape with further fields: itself, if it names them, else an object."""
    if type(shape) is not dict:
        if more.keys() <= {*shape.__struct_fields__}:
            for name, value in more.items():
                setattr(shape, name, value)
            return shape
        shape = as_dict(shape)
    return {**shape, **more}


def list_of_entries(messages: Any) -> list[Any]:
    """The messages of a body. Raises `WireError` if they are not a list."""
    if type(messages) is not list:
        raise WireError(f"messages: expected an array, got {json_type_name(messages)}")
    return messages


class RequestReader:
    """Reads bodies with a list of entries under `key`, and the named parameters beside it.

    `fit` makes the shape of one entry; `entries_of` the list of a value under `key`, or raises `WireError`; `build` the request
    of the entries and the rest of the body.
    """

    def __init__(
        self,
        key: str,
        entry: Any,
        parameters: Iterable[str],
        fit: Callable[[Any], Any],
        entries_of: Callable[[Any], list[Any]],
        build: Callable[[list[Any], dict[str, Any]], ModelRequest],
    ) -> None:
        self._key, self._fit, self._entries_of, self._build = key, fit, entries_of, build
        self._names = tuple(sorted({*parameters} - {key}))
        fields: list[tuple[str, Any, Any]] = [(name, Any, UNSET) for name in self._names]
        whole = msgspec.defstruct("Body", [(key, list[entry]), *fields], forbid_unknown_fields=True, gc=False)
        self._decode = msgspec.json.Decoder(whole).decode
        self._values = attrgetter(key, *self._names)
        self._list = msgspec.defstruct("Entries", [("entries", list[entry])], gc=False)  # its decoder is cached

    def decode(self, data: bytes) -> ModelRequest | None:
        """The request in the bytes of a body; None if it must be decoded to plain values first."""
        try:
            body = self._decode(data)
        except INVALID:
            return None
        entries, *values = self._values(body)
        given = compress(zip(self._names, values, strict=True), map(is_not, values, repeat(UNSET)))  # few of many are
        return self._build(entries, dict(given))

    def read(self, body: dict[str, Any]) -> ModelRequest:
        """The request in a body of plain values."""
        entries = self.shapes_of(self._entries_of(body.get(self._key)))
        return self._build(entries, {name: body[name] for name in sorted(body, key=str) if name != self._key})

    def shapes_of(self, entries: list[Any]) -> list[Any]:
        """The shapes of entries of plain values. One that does not fit costs its neighbours a second conversion, not all."""
        try:
            whole: Any = msgspec.convert({"entries": entries}, self._list)
        except INVALID:
            if len(entries) <= _CHUNK:
                return [self._fit(entry) for entry in entries]
            chunks = [entries[start : start + _CHUNK] for start in range(0, len(entries), _CHUNK)]
            return [shape for chunk in chunks for shape in self.shapes_of(chunk)]
        found: list[Any] = whole.entries
        return found


class PlainRequest(Struct, gc=False, kw_only=True):
    """What is decoded of a body that may be passed on unread; a subclass has its messages.

    It has only text, calls and results. A field whose type is None says what is not decoded here.
    """

    model: str = ""
    stream: bool | None = None
    service_tier: None = None


T = TypeVar("T", bound=PlainRequest)


def decode_plain(data: bytes, kind: type[T]) -> T | None:
    """The bytes of a body as that; None if it has anything else."""
    try:
        return msgspec.json.decode(data, type=kind)
    except INVALID:
        return None


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
        except INVALID:
            return None
        return self._read(raw) if raw is not UNSET else None
