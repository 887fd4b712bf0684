"""Shapes: one struct for each object of a wire format, used by its reader and its writer.

A body whose objects all fit is decoded into structs in one pass. If one does not, the body is decoded to plain values and each
message is converted alone: it fits, or it is split into the fields its shape names and the rest (`Loose`). Either way the same
reader gets the same structs. A writer builds the shapes of the reader; `extend` adds fields that the shape does not name.

Field types say exactly what is accepted: an object with a field of another type stays whole, as `Native`. Null is absent.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, Struct

from antiphon.json_text import NOT_JSON, decode_json
from antiphon.parts import TokenUsage


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
        tag = [self._tag] if self._tag else []
        self._fields = {kind: frozenset((*tag, *kind.__struct_encode_fields__)) for kind in kinds}
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
            except NOT_JSON:
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
        except NOT_JSON:
            spare = {name: known.pop(name) for name in self._spare if name in known}
            if not spare:
                return Loose(None, {}, value)
            try:
                shape = msgspec.convert(known, kind)
            except NOT_JSON:
                return Loose(None, {}, value)
            for name, field in spare.items():
                try:
                    setattr(shape, name, getattr(msgspec.convert({**known, name: field}, kind), name))
                except NOT_JSON:
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


def plain_values(shape: Any) -> Any:
    """The object of a shape as values of JSON, with those of the shapes inside it."""
    try:
        return msgspec.to_builtins(shape)
    except TypeError:  # it has a number that no float holds
        return decode_json(msgspec.json.encode(shape))


def extend(shape: Any, more: Mapping[str, Any]) -> Any:
    """A shape with further fields: itself, if it names them, else an object."""
    if type(shape) is not dict:
        if more.keys() <= {*shape.__struct_fields__}:
            for name, value in more.items():
                setattr(shape, name, value)
            return shape
        shape = as_dict(shape)
    return {**shape, **more}


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
    except NOT_JSON:
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
        except NOT_JSON:
            return None
        return self._read(raw) if raw is not UNSET else None
