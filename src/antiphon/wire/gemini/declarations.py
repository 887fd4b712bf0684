"""The tools of a request: function declarations, and the Schema subset their parameters are written in.

A Schema is a proto message: an unknown keyword is an error, and so is a list where one value belongs (GM-12).
The two spellings of a name (camelCase and proto's snake_case) meet in `get`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from antiphon.wire.json_schema import SchemaKeywords, SchemaPath, format_path, walk_values
from antiphon.wire.rules import Violation, name_set

# Names a tool has in other providers' formats; new tools of Gemini's own come often, so other names pass.
FOREIGN_TOOL_FIELDS = frozenset({"type", "function", "name", "description", "parameters", "input_schema"})
FUNCTION_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,127}\Z")
MODES = ("MODE_UNSPECIFIED", "AUTO", "ANY", "NONE", "VALIDATED")

_CAPITAL = re.compile("[A-Z]")


@cache
def snake(name: str) -> str:
    """The proto spelling of a camelCase name."""
    return _CAPITAL.sub(lambda match: "_" + match[0].lower(), name)


def get(fields: dict[str, Any], name: str) -> Any:
    """A field by its camelCase name, however the body spells it; None where it is absent."""
    value = fields.get(name)
    return fields.get(snake(name)) if value is None else value


def spelled(fields: dict[str, Any], name: str) -> str:
    """A field's name as the body spells it."""
    return name if name in fields or snake(name) not in fields else snake(name)


def listed(value: Any) -> list[Any]:
    """A repeated field: one object stands for a list of one."""
    if isinstance(value, list):
        return value
    return [] if value is None else [value]


def unknown_name(name: str, where: str) -> str:
    """What the API says of a name it does not know."""
    place = f" at '{where}'" if where else ""
    return f'Invalid JSON payload received. Unknown name "{name[:80]}"{place}: Cannot find field.'


def check_tools(body: dict[str, Any]) -> Iterator[Violation]:
    """The rules the tools and the tool configuration of a body break (GM-11, GM-12, GM-13, GM-18, GM-20)."""
    names: set[str] = set()
    is_function_calling = is_other = False
    for index, tool in enumerate(listed(body.get("tools"))):
        where = f"tools[{index}]"
        if not isinstance(tool, dict):
            yield Violation("GM-18", where, f"Invalid value at '{where}'")
            continue
        for name in tool:
            if name in FOREIGN_TOOL_FIELDS:
                yield Violation("GM-18", f"{where}.{name}", unknown_name(name, where))
        key = spelled(tool, "functionDeclarations")
        declarations = listed(tool.get(key))
        is_function_calling = is_function_calling or bool(declarations)
        is_other = is_other or bool(tool.keys() - {key})
        for position, declaration in enumerate(declarations):
            yield from _declaration_faults(declaration, f"{where}.{key}[{position}]", names)
    yield from _tool_config_faults(body, is_function_calling, is_other)


def _declaration_faults(declaration: Any, where: str, names: set[str]) -> Iterator[Violation]:
    if not isinstance(declaration, dict):
        yield Violation("GM-11", where, f"Invalid value at '{where}'")
        return
    yield from _name_faults(declaration.get("name"), where, names)
    for key in ("parameters", "response"):
        if declaration.get(key) is not None:
            yield from check_schema(declaration[key], f"{where}.{key}")
    if declaration.get("parameters") is not None and get(declaration, "parametersJsonSchema") is not None:
        message = f"{where}: parameters and parameters_json_schema are mutually exclusive."
        yield Violation("GM-12", f"{where}.{spelled(declaration, 'parametersJsonSchema')}", message)


def _name_faults(name: Any, where: str, names: set[str]) -> Iterator[Violation]:
    if not isinstance(name, str) or not FUNCTION_NAME.match(name):
        message = (
            "Invalid function name. Must start with a letter or an underscore. Must be a-z, A-Z, 0-9, or contain "
            "underscores (_), dots (.), colons (:), or dashes (-), with a maximum length of 128."
        )
        yield Violation("GM-11", f"{where}.name", message)
        return
    if name in names:
        yield Violation("GM-11", f"{where}.name", f"Duplicate function declaration found: {name}")
    names.add(name)
    if len(name) > 64:
        message = "Invalid function name. Older models and hosts take a maximum length of 64."
        yield Violation("GM-20", f"{where}.name", message, advisory=True)


def _tool_config_faults(body: dict[str, Any], is_function_calling: bool, is_other: bool) -> Iterator[Violation]:
    key = spelled(body, "toolConfig")
    tool_config = body.get(key)
    if tool_config is None:
        return
    config = get(tool_config, "functionCallingConfig") if isinstance(tool_config, dict) else None
    if not isinstance(tool_config, dict) or not isinstance(config, dict | None):
        yield Violation("GM-13", key, f"Invalid value at '{snake(key)}'")
    elif config is not None:
        where = f"{key}.{spelled(tool_config, 'functionCallingConfig')}"
        yield from _calling_faults(config, where)
        # Beside a tool of Google's own it was accepted (GM-13).
        if not is_function_calling and not is_other:
            yield Violation("GM-13", where, "Function calling config is set without function_declarations")


def _calling_faults(config: dict[str, Any], where: str) -> Iterator[Violation]:
    mode = config.get("mode")
    # Numbers stand for modes where enums are encoded as numbers.
    is_number = isinstance(mode, int) and not isinstance(mode, bool)
    if mode is not None and not is_number and not (isinstance(mode, str) and mode.upper() in MODES):
        yield Violation("GM-13", f"{where}.mode", f"Invalid value at '{where}.mode'")
    elif get(config, "allowedFunctionNames") and not is_number and mode not in ("ANY", "VALIDATED", "any", "validated"):
        path = f"{where}.{spelled(config, 'allowedFunctionNames')}"
        yield Violation("GM-13", path, "allowed_function_names should only be set when the mode is ANY.")


KEYWORDS = name_set(
    "type format title description nullable enum items properties required pattern example default minimum maximum"
    " anyOf any_of propertyOrdering property_ordering maxItems max_items minItems min_items maxLength max_length"
    " minLength min_length maxProperties max_properties minProperties min_properties"
)
TYPES = ("TYPE_UNSPECIFIED", "STRING", "NUMBER", "INTEGER", "BOOLEAN", "ARRAY", "OBJECT", "NULL")

_SCHEMA_KEYWORDS = SchemaKeywords(("properties",), ("items", "anyOf", "any_of"))


def check_schema(schema: Any, path: str) -> Iterator[Violation]:
    """What in a Schema the API would not take."""
    for schema_path, node in walk_values(schema, _SCHEMA_KEYWORDS):
        if isinstance(node, dict):
            yield from _node_faults(node, path, schema_path)
        elif node is not None:
            where = format_path(path, schema_path)
            yield Violation("GM-12", where, f"Invalid value at '{where}'")


def _node_faults(node: dict[str, Any], path: str, schema_path: SchemaPath) -> Iterator[Violation]:
    for name in node:
        if name not in KEYWORDS:
            where = format_path(path, schema_path)
            yield Violation("GM-12", f"{where}.{name}", unknown_name(name, where))
    kind = _type_name(node.get("type"))
    if kind is None:
        where = format_path(path, schema_path)
        message = f"Invalid value at '{where}.type'"
        if isinstance(node["type"], list):
            message = (
                "Invalid JSON payload received. "
                f"Unknown name \"type\" at '{where}': Proto field is not repeating, cannot start list."
            )
        yield Violation("GM-12", f"{where}.type", message)
    elif kind:
        yield from _typed_faults(node, kind, path, schema_path)


def _type_name(kind: Any) -> str | None:
    """The type in capitals, "" where none is given, None where it is no type."""
    if kind is None:
        return ""
    if isinstance(kind, str) and kind.upper() in TYPES:
        return kind.upper()
    # Numbers stand for types where enums are encoded as numbers (GM-12, errata).
    if isinstance(kind, int) and not isinstance(kind, bool) and 0 <= kind < len(TYPES):
        return TYPES[kind]
    return None


def _typed_faults(node: dict[str, Any], kind: str, path: str, schema_path: SchemaPath) -> Iterator[Violation]:
    values = node.get("enum")
    if values and kind != "STRING":
        where = format_path(path, schema_path) + ".enum"
        yield Violation("GM-12", where, f"{where}: only allowed for STRING type")
    for index, value in enumerate(values if isinstance(values, list) and kind == "STRING" else ()):
        if not isinstance(value, str):
            where = f"{format_path(path, schema_path)}.enum[{index}]"
            yield Violation("GM-12", where, f"Invalid value at '{where}' (TYPE_STRING)")
    if node.get("properties") and kind != "OBJECT":
        where = format_path(path, schema_path) + ".properties"
        yield Violation("GM-12", where, f"{where}: only allowed for OBJECT type")
    if kind == "ARRAY" and node.get("items") is None:
        where = format_path(path, schema_path) + ".items"
        yield Violation("GM-12", where, f"{where}: missing field.")
