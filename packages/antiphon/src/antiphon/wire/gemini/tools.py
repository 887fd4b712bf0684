"""Tools and the choice among them: `tools` and `toolConfig.functionCallingConfig`.

A declaration has its parameters as a Schema (`parameters`) or as JSON Schema (`parametersJsonSchema`). JSON Schema is written as
such, since the Schema subset rejects most keywords (GM-12). A Schema is written back as it came, from the original in `native`.
Google's own tools (googleSearch, codeExecution, ...) are `Native`.

Google's Schema is a subset of JSON Schema: it names types in capitals or by number and uses `nullable`, where JSON Schema uses
lower case and a "null" type. It is checked, and read as JSON Schema; the original stays beside that, as a local detail.

Normalised: all function declarations are in one entry of `tools`, at the position of the first; each of Google's tools has its
own entry; empty `allowedFunctionNames` are absent.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from antiphon.json_text import decode_json
from antiphon.parts import Native
from antiphon.wire.gemini import FORMAT
from antiphon.wire.gemini.content import NAMES
from antiphon.wire.gemini.limits import MODES
from antiphon.wire.gemini.native import as_list, field_spellings, native_extras, split_fields
from antiphon.wire.loss import Loss, own_extras
from antiphon.wire.request import ToolChoice, ToolDefinition
from antiphon.wire.rules import name_set
from antiphon.wire.tools.definitions import DeclaredTool, ToolSchemas, declare_tools
from antiphon.wire.tools.schema import SchemaCache, SchemaKeywords, steps_of, walk_values


@SchemaCache
def _encode_as_json_schema(schema: dict[str, Any]) -> bytes:
    return msgspec.json.encode(as_json_schema(schema))


_SCHEMAS = ToolSchemas(FORMAT, "GM-12")
_TOOL_FIELDS = field_spellings(("functionDeclarations",))
_DECLARATION_FIELDS = field_spellings(
    ("name", "description", "parameters", "parametersJsonSchema", "response", "responseJsonSchema")
)
_CALLING_FIELDS = field_spellings(("mode", "allowedFunctionNames"))


def read_tools(tools: Any) -> tuple[ToolDefinition | Native, ...]:
    """The tools, one entry per function."""
    read: list[ToolDefinition | Native] = []
    for tool in as_list(tools):
        if type(tool) is not dict:
            read.append(Native(FORMAT, tool))
            continue
        fields, extras = split_fields(tool, _TOOL_FIELDS)
        declarations = as_list(fields.get("functionDeclarations"))
        read.extend(_read_declaration(declaration) for declaration in declarations)
        if extras or ("functionDeclarations" in fields and not declarations):
            read.append(Native(FORMAT, extras if extras else fields))
    return tuple(read)


def _read_declaration(declaration: Any) -> ToolDefinition | Native:
    if type(declaration) is dict:
        name, description = declaration.get("name"), declaration.get("description")
        schema = declaration.get("parametersJsonSchema")
        if type(name) is type(description) is str and type(schema) is dict and len(declaration) == 3:
            return ToolDefinition(name, description, schema)
        fields, extras = split_fields(declaration, _DECLARATION_FIELDS)
        name, description = fields.pop("name", None), fields.pop("description", None)
        if type(name) is str and type(description) in (str, type(None)):
            parameters = _read_parameters(fields)
            native = native_extras({**fields, **extras})
            return ToolDefinition(name, description, parameters, native=native)
    return Native(FORMAT, {"functionDeclarations": [declaration]})


def _read_parameters(fields: dict[str, Any]) -> dict[str, Any] | None:
    """The parameters as JSON Schema, removed from `fields` if that is what they were."""
    schema = fields.get("parametersJsonSchema")
    if schema is not None:
        if type(schema) is dict and "parameters" not in fields:
            del fields["parametersJsonSchema"]
        return schema if type(schema) is dict else None
    original = fields.get("parameters")
    if type(original) is not dict:
        return None
    try:
        read: dict[str, Any] = decode_json(_encode_as_json_schema(original))
    except (ValueError, RecursionError):  # it cannot be encoded
        return original
    return read


def write_tools(tools: tuple[ToolDefinition | Native, ...], losses: list[Loss]) -> list[dict[str, Any]]:
    written: list[dict[str, Any]] = []
    declarations: list[Any] = []
    for tool in declare_tools(tools, FORMAT, NAMES, losses, unique="GM-11"):
        declaration: Any
        if isinstance(tool, DeclaredTool):
            declaration = _write_declaration(tool, losses)
        else:
            match tool.data:
                case {"functionDeclarations": [raw_declaration]} if len(tool.data) == 1:  # a declaration kept unread
                    declaration = raw_declaration
                case _:
                    written.append(tool.data)
                    continue
        if not declarations:
            written.append({"functionDeclarations": declarations})
        declarations.append(declaration)
    return written


def _write_declaration(declared: DeclaredTool, losses: list[Loss]) -> dict[str, Any]:
    tool, name, path = declared.tool, declared.name, declared.path
    if tool.strict:
        losses.append(Loss(f"{path}.strict", "strict", "Gemini does not support strict tools; dropped"))
    extras = {} if tool.native is None else own_extras(tool.native, losses, path, FORMAT)
    if extras.keys().isdisjoint(("parameters", "parametersJsonSchema")):
        return {**declared.function(_SCHEMAS, losses, "parametersJsonSchema"), **extras}
    described = {} if tool.description is None else {"description": tool.description}
    return {"name": name, **described, **extras}


def read_tool_choice(config: Any) -> ToolChoice | None:
    """The choice in a `functionCallingConfig`; None if it is unknown."""
    if type(config) is not dict:
        return None
    fields, extras = split_fields(config, _CALLING_FIELDS)
    raw_mode, names = fields.get("mode"), fields.get("allowedFunctionNames", [])
    if type(names) is not list or not all(type(name) is str and name for name in names):
        return None
    mode = MODES[raw_mode] if type(raw_mode) is int and 0 < raw_mode < len(MODES) else raw_mode
    choice = _choice(mode.upper(), tuple(names)) if type(mode) is str else None
    if choice is None:
        return None
    if raw_mode != _calling_mode(choice):
        extras["mode"] = raw_mode
    return ToolChoice(choice.mode, choice.names, choice.must_call, native_extras(extras))


def _choice(mode: str, names: tuple[str, ...]) -> ToolChoice | None:
    if mode == "ANY":
        if not names:
            return ToolChoice("required")
        return ToolChoice("tool", names) if len(names) == 1 else ToolChoice("allowed", names, must_call=True)
    if mode == "VALIDATED" and names:
        return ToolChoice("allowed", names)
    if names or mode not in MODES[1:]:
        return None  # refused (GM-13)
    return ToolChoice("none") if mode == "NONE" else ToolChoice("auto")


def _calling_mode(choice: ToolChoice) -> str:
    if choice.mode in ("required", "tool") or choice.must_call:
        return "ANY"
    # Only VALIDATED accepts names without forcing a call (GM-13).
    return {"none": "NONE", "allowed": "VALIDATED"}.get(choice.mode, "AUTO")


def write_tool_choice(choice: ToolChoice, losses: list[Loss]) -> dict[str, Any]:
    extras = own_extras(choice.native, losses, "tool_choice", FORMAT)
    written: dict[str, Any] = {"mode": _calling_mode(choice)}
    if choice.names and choice.mode in ("tool", "allowed"):
        written["allowedFunctionNames"] = [NAMES.to_wire(name) for name in choice.names]
    return {**written, **extras}


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
