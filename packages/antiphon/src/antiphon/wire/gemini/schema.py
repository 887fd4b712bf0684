"""Google's Schema, a subset of JSON Schema: checked, read and written.

A Schema names types in capitals or by number and uses `nullable`; JSON Schema uses lower case and a "null" type. `read_schema`
returns JSON Schema and the style from which `write_schema` makes the same Schema again, or no style if that is not possible.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from antiphon.parts import Source
from antiphon.wire.gemini import FORMAT
from antiphon.wire.gemini.native import field_spellings
from antiphon.wire.request import OutputFormat, ToolDefinition
from antiphon.wire.rules import name_set
from antiphon.wire.schema import SchemaKeywords, steps_of, walk_values

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


LOWERCASE, UPPERCASE, NUMBERS = "plain", "upper", "numbers"
SCHEMA_STYLES = {style: Source(FORMAT, (f"schema:{style}",)) for style in (LOWERCASE, UPPERCASE, NUMBERS)}

_COUNT_KEYWORDS = name_set("maxItems minItems maxLength minLength maxProperties minProperties")
_KEYWORD_SPELLINGS = field_spellings(("anyOf", "propertyOrdering", *_COUNT_KEYWORDS))
_TYPE_NUMBERS = {name.lower(): number for number, name in enumerate(TYPES)}
_LOWERCASE_TYPES = {name: name.lower() for name in TYPES[1:]} | {
    number: name.lower() for number, name in enumerate(TYPES)
}


def read_schema(schema: dict[str, Any]) -> tuple[dict[str, Any], str | None]:
    """The Schema as JSON Schema, and its style; None if the style cannot reproduce it."""
    try:
        json_schema = _to_json_schema(schema)
        style = _style(schema)
        written = write_schema(json_schema, style)
        return json_schema, style if written == schema or written == _with_camel_case_keywords(schema) else None
    except RecursionError:
        return schema, None


def write_schema(schema: dict[str, Any], style: str) -> dict[str, Any]:
    """JSON Schema as a Schema in the given style."""
    return _to_gemini_schema(schema, style)


def _style(schema: dict[str, Any]) -> str:
    kind = schema.get("type")
    if type(kind) is int:
        return NUMBERS
    return UPPERCASE if isinstance(kind, str) and kind.isupper() else LOWERCASE


def _to_json_schema(node: dict[str, Any]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for spelling, value in node.items():
        key = _KEYWORD_SPELLINGS.get(spelling, spelling)
        if key == "type":
            # JSON Schema has no TYPE_UNSPECIFIED. `True` equals 1 but is not a type.
            is_name_or_number = type(value) is str or type(value) is int
            result[key] = _LOWERCASE_TYPES.get(value, value) if is_name_or_number else value
        elif key in _COUNT_KEYWORDS and type(value) is str and value.isdecimal():
            result[key] = int(value)  # proto3 JSON writes 64-bit integers as strings
        else:
            result[key] = _map_children(key, value, _to_json_schema)
    if result.get("nullable") is True and isinstance(result.get("type"), str):
        del result["nullable"]
        result["type"] = [result["type"], "null"]
        if isinstance(result.get("enum"), list):
            result["enum"] = [*result["enum"], None]
    return result


def _with_camel_case_keywords(node: dict[str, Any]) -> dict[str, Any]:
    """The Schema with its keywords in camelCase."""
    result: dict[str, Any] = {}
    for spelling, value in node.items():
        key = _KEYWORD_SPELLINGS.get(spelling, spelling)
        result[key] = _map_children(key, value, _with_camel_case_keywords)
    return result


def _map_children(key: str, value: Any, change: Any) -> Any:
    """Apply `change` to the subschemas under a keyword; other values are returned unchanged."""
    if isinstance(value, dict):
        if key == "properties":
            return {name: change(child) if isinstance(child, dict) else child for name, child in value.items()}
        return change(value) if key == "items" else value
    if key == "anyOf" and isinstance(value, list):
        return [change(child) if isinstance(child, dict) else child for child in value]
    return value


def _to_gemini_schema(node: dict[str, Any], style: str) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in node.items():
        if key == "type":
            result |= _to_gemini_type(value, style)
        else:
            result[key] = _map_children(key, value, lambda child: _to_gemini_schema(child, style))
    values = result.get("enum")
    if result.get("nullable") is True and isinstance(values, list) and values[-1:] == [None]:
        result["enum"] = values[:-1]
    return result


def _to_gemini_type(kind: Any, style: str) -> dict[str, Any]:
    if isinstance(kind, list) and len(kind) == 2 and kind[1] == "null" and isinstance(kind[0], str):
        return {"type": _spell_type(kind[0], style), "nullable": True}
    return {"type": _spell_type(kind, style) if isinstance(kind, str) else kind}


def _spell_type(kind: str, style: str) -> Any:
    if style == UPPERCASE:
        return kind.upper()
    return _TYPE_NUMBERS.get(kind, kind) if style == NUMBERS else kind


def schema_style(described: ToolDefinition | OutputFormat) -> str | None:
    """The style of the Schema this was read from; None if it was JSON Schema."""
    return next((style for style in SCHEMA_STYLES if described.source == SCHEMA_STYLES[style]), None)
