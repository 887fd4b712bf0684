"""`ParsedCall`: the JSON or tags of a call as name and arguments."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeAlias

import msgspec
from msgspec import Raw, Struct

from antiphon.json_text import NOT_JSON

KnownTools: TypeAlias = Mapping[str, Mapping[str, Any]]
"""The tools on offer: each name, and the schemas of its parameters as far as they are known."""


UNREADABLE = "unreadable_call"
NAME_KEYS = ("tool", "name")
_ARGUMENT_KEYS = ("arguments", "parameters", "args")
ENVELOPE_KEYS = frozenset({"id", "type", "index"})
"""Keys that may be beside name and arguments, and are part of neither."""
_TOOL_NAME = re.compile(r"[\w.:/-]{1,128}")
_NAMED = re.compile(r'\s*\{\s*"(?:tool|name)"\s*:\s*"([^"\\]*)"\s*,?')
_LOOSELY_NAMED = re.compile(
    r"""['"]?\b(?:tool|name)['"]?\s*[:=]\s*['"]([\w.:/-]{1,128})['"]|<function=([\w.:/-]{1,128})>|\A([\w.:/-]{1,128})"""
)
_ARGUMENTS = re.compile(r'\s*"(?:arguments|parameters|args)"\s*:\s*')


class NotACall(Exception):
    """The text is not a call; `position` is how far it was read."""

    position = 0


class ParsedCall(Struct, frozen=True):
    """A call found in text: the tool and the exact text of the arguments."""

    tool_name: str
    arguments: str


def read_calls(text: str, offer: KnownTools, *, is_marked: bool) -> list[ParsedCall]:
    """The calls in a JSON object, or in an array of them. With no mark around it, an object must be unmistakable.

    A marked call may name a tool that is not on offer: if the mark is closed, running it gives the model an error.
    """
    shape: Any = list[dict[str, Raw]] if text.startswith("[") else dict[str, Raw]
    found = _decoded(text, shape)
    if found is None:
        raise NotACall
    calls = [_read_call(fields, offer, is_marked) for fields in (found if isinstance(found, list) else [found])]
    if not calls:
        raise NotACall
    return calls


def _read_call(fields: dict[str, Raw], offer: KnownTools, is_marked: bool) -> ParsedCall:
    wrapped = fields.get("function")
    if wrapped is not None and not fields.keys() - ENVELOPE_KEYS - {"function"} and bytes(wrapped)[:1] == b"{":
        return _read_call(msgspec.json.decode(wrapped, type=dict[str, Raw]), offer, is_marked)
    name_key = next((key for key in NAME_KEYS if bytes(fields.get(key, b""))[:1] == b'"'), None)
    if name_key is None:
        raise NotACall
    name = msgspec.json.decode(fields.pop(name_key), type=str)
    if name not in offer and not (is_marked and _TOOL_NAME.fullmatch(name)):
        raise NotACall
    for key in _ARGUMENT_KEYS:
        if key in fields and not fields.keys() - ENVELOPE_KEYS - {key}:
            arguments = _object_text(fields[key], is_marked)
            if arguments is not None:
                return ParsedCall(name, arguments)
    if not is_marked and name_key != "tool":
        raise NotACall
    beside = (
        f"{msgspec.json.encode(key).decode()}:{bytes(value).decode()}"
        for key, value in fields.items()
        if key != "type" or bytes(value) != b'"function"'
    )
    return ParsedCall(name, f"{{{','.join(beside)}}}")


def _object_text(value: Raw, is_marked: bool) -> str | None:
    """The arguments, if `value` can only be meant as all of them: an object, none, or an object written as a string."""
    text = bytes(value).decode()
    if text == "null":
        return "{}"
    if text.startswith('"'):
        inner: str = msgspec.json.decode(text)
        # In a marked call the string is meant as arguments whatever is in it; parsing them reports errors to the model.
        return inner if is_marked or inner.lstrip().startswith("{") else None
    return text if text.startswith("{") else None


def read_broken(text: str, offer: KnownTools) -> ParsedCall:
    """The call in the body of a closed tag that cannot be read as one. Running it gives the model an error.

    Only what lacks nothing but a bracket is still a good call. A body that names no tool is a call of `UNREADABLE`.
    """
    text = text.strip().encode("utf-8", "replace").decode()
    named = _NAMED.match(text)
    if named is not None and _TOOL_NAME.fullmatch(named[1]):
        rest = text[named.end() :]
        begin = _ARGUMENTS.match(rest)
        arguments = (rest[begin.end() :] if begin else rest).strip()
        if begin and isinstance(_decoded(arguments), dict):  # only the bracket around it is missing
            return ParsedCall(named[1], arguments)
        is_json = not arguments or _decoded(arguments, Raw) is not None
        return ParsedCall(named[1], text if is_json else arguments)
    found = None if _decoded(text, Raw) is not None else _LOOSELY_NAMED.search(text)
    name = next(filter(None, found.groups()), "") if found else ""
    if not name or (found and found[3] and found[3] not in offer):
        name = UNREADABLE
    return ParsedCall(name, text)


def _decoded(text: str, shape: Any = Any) -> Any:
    """The value of a JSON text; None if it is not one, or not of this shape."""
    try:
        return msgspec.json.decode(text, type=shape)
    except NOT_JSON:
        return None


def tagged_arguments(values: Mapping[str, str], schemas: Mapping[str, Any]) -> str:
    """Arguments written one per tag, as JSON. A value is a string if its schema has that type or if it is not valid JSON;
    else it is that JSON."""
    return "{" + ",".join(f"{_quote(key)}:{_tag_value(text, schemas.get(key))}" for key, text in values.items()) + "}"


def _tag_value(text: str, schema: Any) -> str:
    # The template puts each value on lines of its own.
    text = text.removeprefix("\n").removesuffix("\n")
    is_string = isinstance(schema, Mapping) and schema.get("type") == "string"
    raw = None if is_string else _decoded(text, Raw)
    return _quote(text) if raw is None or isinstance(_decoded(text), str) else text.strip()


def _quote(text: str) -> str:
    return msgspec.json.encode(text).decode()
