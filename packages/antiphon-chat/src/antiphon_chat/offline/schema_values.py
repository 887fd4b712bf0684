"""Values that fit a JSON Schema, with words of the message where they fit: arguments of a call, or an answer in JSON.

A value is taken from the message if it is given by name (`city=Oslo`, or a JSON object), else from the schema (const, default,
enum, examples), else from the quoted texts, the numbers and the rest of the message, else it is a plain sample. Each candidate is
checked with the schema of its place, and the first that fits is used. Optional properties are filled only if they are named.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import date
from typing import Any

import msgspec

from antiphon.json_text import NOT_JSON, read_json
from antiphon.tools.compiled_schema import CompiledSchema, InvalidSchema

_MAX_DEPTH = 12
_MAX_WORDS_CHARS = 400
_QUOTED = re.compile(r"\"([^\"]+)\"|“([^”]+)”|「([^」]+)」|'([^']+)'")
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?")
_NAMED = r"(?<!\w){name}\s*[=:：]\s*(\"[^\"]*\"|“[^”]*”|[^\s,，;；]+)"
_LEADING = re.compile(
    r"^(?:[\s,.:;!?，。：；！？、]|(?:in|for|of|to|at|on|with|about|the|is|tool|is it)\b)+", re.IGNORECASE
)
_TRAILING = " \t\r\n.,;:!?，。；：！？、"
_SAMPLES: dict[str, tuple[Any, ...]] = {
    "string": (
        "text",
        "a",
        "1",
        "a1",
        "A",
        "abc-123",
        "name@example.org",
        "https://example.org/",
        "text of some length",
    ),
    "integer": (1, 0, 2, 10, 100, -1),
    "number": (1, 0, 0.5, 10, 100, -1),
    "boolean": (True, False),
    "null": (None,),
}
_FORMATS: dict[str, Callable[[], str]] = {
    "date": lambda: date.today().isoformat(),
    "date-time": lambda: f"{date.today().isoformat()}T12:00:00Z",
    "time": lambda: "12:00:00Z",
    "email": lambda: "name@example.org",
    "uri": lambda: "https://example.org/",
    "uuid": lambda: "00000000-0000-4000-8000-000000000000",
}


class Words:
    """The words of a message that values are taken from; each number and each quoted text is used once."""

    def __init__(self, text: str) -> None:
        self._text = text[:_MAX_WORDS_CHARS]
        self.quoted = [next(filter(None, found.groups())) for found in _QUOTED.finditer(self._text)]
        self.numbers = [float(found[0]) for found in _NUMBER.finditer(self._text)]
        self.rest = _LEADING.sub("", self._text).strip(_TRAILING)
        self._object = _object_in(text)

    def named(self, name: str) -> Iterator[Any]:
        """The values that are given under a name: as they are, and read as JSON."""
        if name in self._object:
            yield self._object[name]
        if found := re.search(_NAMED.format(name=re.escape(name)), self._text, re.IGNORECASE):
            text = found[1].strip('"“”')
            with suppress(*NOT_JSON):
                yield msgspec.json.decode(text)
            yield text


def _object_in(text: str) -> dict[str, Any]:
    start, end = text.find("{"), text.rfind("}")
    found = read_json(text[start : end + 1]) if 0 <= start < end else None
    return found if isinstance(found, dict) else {}


def fitting_value(schema: Any, words: Words) -> Any:
    """A value for the schema. If none of the candidates fits, the last of them."""
    return _value(schema if isinstance(schema, dict) else {}, schema if isinstance(schema, dict) else {}, words, "", 0)


def _value(schema: dict[str, Any], root: dict[str, Any], words: Words, name: str, depth: int) -> Any:
    check = _checker(schema, root)
    value: Any = None
    for value in _candidates(schema, root, words, name, depth):
        if check is None or check.is_valid(value):
            break
    _use(value, words)
    return value


def _checker(schema: dict[str, Any], root: dict[str, Any]) -> CompiledSchema | None:
    """The schema of one place, with the definitions that its references lead to; None if it is not valid."""
    definitions: dict[str, Any] = {key: root[key] for key in ("$defs", "definitions", "$schema") if key in root}
    try:
        return CompiledSchema({**definitions, **schema})
    except InvalidSchema:
        return None


def _use(value: Any, words: Words) -> None:
    if isinstance(value, str) and value in words.quoted:
        words.quoted.remove(value)
    elif isinstance(value, int | float) and not isinstance(value, bool) and value in words.numbers:
        words.numbers.remove(value)


def _candidates(schema: dict[str, Any], root: dict[str, Any], words: Words, name: str, depth: int) -> Iterator[Any]:
    if name:
        yield from words.named(name)
    yield from (schema[key] for key in ("const", "default") if key in schema)
    for key in ("enum", "examples"):
        yield from schema[key] if isinstance(schema.get(key), list) else ()
    if depth < _MAX_DEPTH:
        for inner in _alternatives(schema, root):
            yield _value(inner, root, words, name, depth + 1)
    kind = _type_of(schema)
    if kind == "object":
        yield _object(schema, root, words, depth)
    elif kind == "array":
        yield from _arrays(schema, root, words, depth)
    elif kind == "string":
        yield from _strings(schema, words)
    elif kind in ("integer", "number"):
        yield from (int(number) if number.is_integer() else number for number in tuple(words.numbers))
        yield from _bounds(schema)
    yield from _SAMPLES.get(kind, ())


def _alternatives(schema: dict[str, Any], root: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if isinstance(reference := schema.get("$ref"), str):
        found: Any = root
        for step in reference.removeprefix("#").strip("/").split("/"):
            found = found.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(found, dict) and step else found
        if isinstance(found, dict) and found is not schema:
            yield found
    for key in ("anyOf", "oneOf"):
        choices = [one for one in schema.get(key) or () if isinstance(one, dict)]
        yield from sorted(choices, key=lambda one: one.get("type") == "null")
    if all_of := [one for one in schema.get("allOf") or () if isinstance(one, dict)]:
        merged: dict[str, Any] = {}
        for one in (*all_of, schema):
            for key, value in one.items():
                if key == "properties" and isinstance(value, dict):
                    merged[key] = {**merged.get(key, {}), **value}
                elif key == "required" and isinstance(value, list):
                    merged[key] = [*merged.get(key, []), *value]
                elif key != "allOf":
                    merged[key] = value
        yield merged


def _type_of(schema: dict[str, Any]) -> str:
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = next((one for one in kind if one != "null"), "null")
    if isinstance(kind, str):
        return kind
    return "object" if "properties" in schema else "array" if "items" in schema else "string"


def _object(schema: dict[str, Any], root: dict[str, Any], words: Words, depth: int) -> dict[str, Any]:
    given = schema.get("properties")
    properties = given if isinstance(given, dict) else {}
    required = [name for name in schema.get("required") or () if isinstance(name, str)]
    value: dict[str, Any] = {}
    if depth >= _MAX_DEPTH:
        return value
    for name in dict.fromkeys((*properties, *required)):
        inner = properties.get(name)
        inner = inner if isinstance(inner, dict) else {}
        if name in required or any(True for _ in words.named(name)):
            value[name] = _value(inner, root, words, name, depth + 1)
    return value


def _arrays(schema: dict[str, Any], root: dict[str, Any], words: Words, depth: int) -> Iterator[list[Any]]:
    first = schema.get("prefixItems")
    fixed = [one for one in first if isinstance(one, dict)] if isinstance(first, list) else []
    items = schema.get("items")
    least = schema.get("minItems")
    wanted = max(least if isinstance(least, int) else 0, len(fixed), 1)
    if depth < _MAX_DEPTH and wanted <= 50:
        every = [*fixed, *[items if isinstance(items, dict) else {}] * (wanted - len(fixed))]
        yield [_value(inner, root, words, "", depth + 1) for inner in every]
    yield []


def _strings(schema: dict[str, Any], words: Words) -> Iterator[str]:
    if (make := _FORMATS.get(str(schema.get("format")))) is not None:
        yield make()
    yield from tuple(words.quoted)
    if words.rest:
        yield words.rest
    least, most = schema.get("minLength"), schema.get("maxLength")
    if isinstance(most, int) and words.rest:
        yield words.rest[:most]
    if isinstance(least, int) and least <= 10_000:
        yield "x" * least


def _bounds(schema: dict[str, Any]) -> Iterator[Any]:
    for key, step in (
        ("minimum", 0),
        ("exclusiveMinimum", 1),
        ("maximum", 0),
        ("exclusiveMaximum", -1),
        ("multipleOf", 0),
    ):
        if isinstance(bound := schema.get(key), int | float) and not isinstance(bound, bool):
            yield bound + step
