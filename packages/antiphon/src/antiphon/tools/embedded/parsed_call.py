"""`ParsedCall`: the JSON or tags of a call as name and arguments; and the table of dialects."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Raw, Struct


class NotACall(Exception):
    """The text is not a call."""


_TOOL_NAME = re.compile(r"[\w.:/-]{1,128}")


class Dialect(Struct, frozen=True):
    """One way to mark a call.

    `body`: `objects` is JSON, one object a call; `function` names the tool in a tag and holds an object or a tag for each
    parameter; `objects or functions` is either; `objects or name` may name the tool before its arguments; `steps` is a list
    of marked calls. A `is_token` opener is a control token of the model's template, which prose does not use.
    """

    name: str
    opener: str
    body: Literal["objects", "function", "objects or functions", "objects or name", "steps"]
    closer: str = ""
    is_token: bool = False


DIALECTS = (
    Dialect("tag", "<tool_call>", "objects or functions", "</tool_call>"),
    Dialect("function tag", "<function_call>", "objects or functions", "</function_call>"),
    Dialect("function", "<function=", "function"),
    Dialect("llama", "<|python_tag|>", "objects", is_token=True),
    Dialect("granite", "<|tool_call|>", "objects", is_token=True),
    Dialect("mistral", "[TOOL_CALLS]", "objects or name", is_token=True),
    Dialect("deepseek", "<｜tool▁calls▁begin｜>", "steps", "<｜tool▁calls▁end｜>", is_token=True),
)

FENCE_LANGUAGES = frozenset({"", "json", "tool_call", "tool_calls"})
"""The languages of a fenced block that may be a call."""

STEP_BEGIN, STEP_NAME_END, STEP_END = "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"
"""The markers that separate the calls of a `steps` body."""


KnownTools: TypeAlias = Mapping[str, Mapping[str, Any]]
"""The tools on offer: each name, and the schemas of its parameters as far as they are known."""

NAME_KEYS = ("tool", "name")
ARGUMENT_KEYS = ("arguments", "parameters", "args")
ENVELOPE_KEYS = frozenset({"id", "type", "index"})
"""Keys that may be beside name and arguments, and are part of neither."""

_NAMED = re.compile(r'\s*\{\s*"(?:tool|name)"\s*:\s*"([^"\\]*)"\s*,?')
_LOOSELY_NAMED = re.compile(
    r"""['"]?\b(?:tool|name)['"]?\s*[:=]\s*['"]([\w.:/-]{1,128})['"]|<function=([\w.:/-]{1,128})>|\A([\w.:/-]{1,128})"""
)
UNREADABLE = "unreadable_call"
_ARGUMENTS = re.compile(r'\s*"(?:arguments|parameters|args)"\s*:\s*')


class ParsedCall(Struct, frozen=True):
    """A call found in text: the tool and the exact text of the arguments."""

    tool_name: str
    arguments: str


def read_calls(text: str, offer: KnownTools, *, is_marked: bool) -> list[ParsedCall]:
    """The calls in a JSON object, or in an array of them. With no mark around it, an object must be unmistakable.

    A marked call may name a tool that is not on offer: if the mark is closed, running it gives the model an error.
    """
    shape: Any = list[dict[str, Raw]] if text.startswith("[") else dict[str, Raw]
    try:
        found = msgspec.json.decode(text, type=shape)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise NotACall from error
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
    for key in ARGUMENT_KEYS:
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
        if begin and _is_object(arguments):  # only the bracket around it is missing
            return ParsedCall(named[1], arguments)
        return ParsedCall(named[1], text if not arguments or _is_json(arguments) else arguments)
    found = None if _is_json(text) else _LOOSELY_NAMED.search(text)
    name = next(filter(None, found.groups()), "") if found else ""
    if not name or (found and found[3] and found[3] not in offer):
        name = UNREADABLE
    return ParsedCall(name, text)


def _is_json(text: str) -> bool:
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False
    return True


def _is_object(text: str) -> bool:
    try:
        return isinstance(msgspec.json.decode(text), dict)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False


def tagged_arguments(values: Mapping[str, str], schemas: Mapping[str, Any]) -> str:
    """Arguments written one per tag, as JSON. A value is a string if its schema has that type or if it is not valid JSON;
    else it is that JSON."""
    return "{" + ",".join(f"{_quote(key)}:{_tag_value(text, schemas.get(key))}" for key, text in values.items()) + "}"


def _tag_value(text: str, schema: Any) -> str:
    # The template puts each value on lines of its own.
    text = text.removeprefix("\n").removesuffix("\n")
    if isinstance(schema, Mapping) and schema.get("type") == "string":
        return _quote(text)
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return _quote(text)
    return _quote(text) if isinstance(value, str) else text.strip()


def _quote(text: str) -> str:
    return msgspec.json.encode(text).decode()
