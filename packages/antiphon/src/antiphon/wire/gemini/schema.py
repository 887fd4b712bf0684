"""Google's Schema, a subset of JSON Schema: checked, and read as JSON Schema.

A Schema names types in capitals or by number and uses `nullable`; JSON Schema uses lower case and a "null" type. The original
stays beside the JSON Schema, as a local detail, and is what goes back to Gemini.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from antiphon.wire.gemini.native import field_spellings
from antiphon.wire.rules import name_set
from antiphon.wire.tools.schema import SchemaKeywords, steps_of, walk_values

KEYWORDS = name_set(
    "type format title description nullable enum items properties required pattern example default minimum maximum"
    " anyOf any_of propertyOrdering property_ordering maxItems max_items minItems min_items maxLength max_length"
    " minLength min_length maxProperties max_properties minProperties min_properties"
)
TYPES = ("TYPE_UNSPECIFIED", "STRING", "NUMBER", "INTEGER", "BOOLEAN", "ARRAY", "OBJECT", "NULL")

_SCHEMA_KEYWORDS = SchemaKeywords(("properties",), ("items", "anyOf", "any_of"))


def check_schema(schema: Any) -> Iterator[tuple[list[str | int], str]]:
    """What is wrong in a Schema (GM-12): the steps to it, and what it is."""
    for path, node in walk_values(schema, _SCHEMA_KEYWORDS):
        if isinstance(node, dict):
            for step, message in _node_problems(node):
                yield [*steps_of(path), *step], message
        elif node is not None:
            yield steps_of(path), "expected an object"


def _node_problems(node: dict[str, Any]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    yield from (((name,), "unknown keyword") for name in node if name not in KEYWORDS)
    type_name, values = _type_name(node.get("type")), node.get("enum")
    if type_name is None:
        yield ("type",), "is not a type of Google's Schema"
    if not type_name:
        return
    if values and type_name != "STRING":
        yield ("enum",), "is only allowed for type STRING"
    for index, value in enumerate(values if isinstance(values, list) and type_name == "STRING" else ()):
        if not isinstance(value, str):
            yield ("enum", index), "must be a string"
    if node.get("properties") and type_name != "OBJECT":
        yield ("properties",), "is only allowed for type OBJECT"
    if type_name == "ARRAY" and node.get("items") is None:
        yield ("items",), "is required"


def _type_name(kind: Any) -> str | None:
    """The type in capitals; "" if absent, None if invalid."""
    if kind is None:
        return ""
    if isinstance(kind, str) and kind.upper() in TYPES:
        return kind.upper()
    # Some clients encode enums as numbers (GM-12, errata).
    if isinstance(kind, int) and not isinstance(kind, bool) and 0 <= kind < len(TYPES):
        return TYPES[kind]
    return None


def is_object_root(schema: dict[str, Any]) -> bool:
    """Whether a schema may be that of a function's parameters: of an object, or without a type."""
    return _type_name(schema.get("type")) in ("", "OBJECT", None)


_COUNT_KEYWORDS = name_set("maxItems minItems maxLength minLength maxProperties minProperties")
_KEYWORD_SPELLINGS = field_spellings(("anyOf", "propertyOrdering", *_COUNT_KEYWORDS))
_LOWERCASE_TYPES = {name: name.lower() for name in TYPES[1:]} | {
    number: name.lower() for number, name in enumerate(TYPES)
}


def as_json_schema(node: dict[str, Any]) -> dict[str, Any]:
    """A Schema as JSON Schema."""
    result: dict[str, Any] = {}
    for spelling, value in node.items():
        key = _KEYWORD_SPELLINGS.get(spelling, spelling)
        if key == "type":
            # JSON Schema has no TYPE_UNSPECIFIED. `True` equals 1 but is not a type.
            is_name_or_number = type(value) is str or type(value) is int
            result[key] = _LOWERCASE_TYPES.get(value, value) if is_name_or_number else value
        elif key in _COUNT_KEYWORDS and type(value) is str and value.isdecimal():
            result[key] = int(value)  # proto3 JSON writes 64-bit integers as strings
        elif key == "properties" and isinstance(value, dict):
            result[key] = {name: _convert(child) for name, child in value.items()}
        elif key == "anyOf" and isinstance(value, list):
            result[key] = list(map(_convert, value))
        else:
            result[key] = _convert(value) if key == "items" else value
    if result.get("nullable") is True and isinstance(result.get("type"), str):
        del result["nullable"]
        result["type"] = [result["type"], "null"]
        if isinstance(result.get("enum"), list):
            result["enum"] = [*result["enum"], None]
    return result


def _convert(child: Any) -> Any:
    return as_json_schema(child) if isinstance(child, dict) else child
