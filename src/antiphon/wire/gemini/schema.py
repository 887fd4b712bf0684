"""Gemini's Schema and JSON Schema.

A Schema names types in capitals or by number and says `nullable`; JSON Schema names them in small letters and lists "null" among
them. `read_schema` gives proper JSON Schema, and the style by which `write_schema` makes the same Schema of it again; where
that would not be the same, there is no style, and the caller keeps the Schema as it came. Keywords neither knows pass through.

Normalised: keywords become camelCase.
"""

from __future__ import annotations

from typing import Any

from antiphon.wire.gemini.declarations import TYPES
from antiphon.wire.gemini.spelling import forms
from antiphon.wire.rules import name_set

PLAIN, UPPER, NUMBERS = "plain", "upper", "numbers"

_COUNTS = name_set("maxItems minItems maxLength minLength maxProperties minProperties")
_KEYWORDS = forms(("anyOf", "propertyOrdering", *_COUNTS))
_NUMBER_OF = {name.lower(): number for number, name in enumerate(TYPES)}
_SMALL = {name: name.lower() for name in TYPES[1:]} | {number: name.lower() for number, name in enumerate(TYPES)}


def read_schema(schema: dict[str, Any]) -> tuple[dict[str, Any], str | None]:
    """The Schema as JSON Schema, and the style it is written in; None if it cannot be written back from that."""
    try:
        lowered = _lowered(schema)
        style = _style(schema)
        written = write_schema(lowered, style)
        return lowered, style if written == schema or written == _renamed(schema) else None
    except RecursionError:
        return schema, None


def write_schema(schema: dict[str, Any], style: str) -> dict[str, Any]:
    """A Schema of JSON Schema, in the given style."""
    return _raised(schema, style)


def _style(schema: dict[str, Any]) -> str:
    kind = schema.get("type")
    if type(kind) is int:
        return NUMBERS
    return UPPER if isinstance(kind, str) and kind.isupper() else PLAIN


def _lowered(node: dict[str, Any]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for spelled, value in node.items():
        key = _KEYWORDS.get(spelled, spelled)
        if key == "type":
            # TYPE_UNSPECIFIED is no type of JSON Schema; `true` is equal to 1 and is no type at all.
            is_word = type(value) is str or type(value) is int
            result[key] = _SMALL.get(value, value) if is_word else value
        elif key in _COUNTS and type(value) is str and value.isdecimal():
            result[key] = int(value)  # proto3 JSON writes 64-bit integers as strings
        else:
            result[key] = _below(key, value, _lowered)
    if result.get("nullable") is True and isinstance(result.get("type"), str):
        del result["nullable"]
        result["type"] = [result["type"], "null"]
        if isinstance(result.get("enum"), list):
            result["enum"] = [*result["enum"], None]
    return result


def _renamed(node: dict[str, Any]) -> dict[str, Any]:
    """The Schema with its keywords in camelCase."""
    result: dict[str, Any] = {}
    for spelled, value in node.items():
        key = _KEYWORDS.get(spelled, spelled)
        result[key] = _below(key, value, _renamed)
    return result


def _below(key: str, value: Any, change: Any) -> Any:
    """The schemas under a keyword, changed; anything else as it is."""
    if isinstance(value, dict):
        if key == "properties":
            return {name: change(child) if isinstance(child, dict) else child for name, child in value.items()}
        return change(value) if key == "items" else value
    if key == "anyOf" and isinstance(value, list):
        return [change(child) if isinstance(child, dict) else child for child in value]
    return value


def _raised(node: dict[str, Any], style: str) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in node.items():
        if key == "type":
            result |= _raised_type(value, style)
        else:
            result[key] = _below(key, value, lambda child: _raised(child, style))
    values = result.get("enum")
    if result.get("nullable") is True and isinstance(values, list) and values[-1:] == [None]:
        result["enum"] = values[:-1]
    return result


def _raised_type(kind: Any, style: str) -> dict[str, Any]:
    if isinstance(kind, list) and len(kind) == 2 and kind[1] == "null" and isinstance(kind[0], str):
        return {"type": _spelled(kind[0], style), "nullable": True}
    return {"type": _spelled(kind, style) if isinstance(kind, str) else kind}


def _spelled(kind: str, style: str) -> Any:
    if style == UPPER:
        return kind.upper()
    return _NUMBER_OF.get(kind, kind) if style == NUMBERS else kind
