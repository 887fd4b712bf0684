"""Tools and the choice among them: `tools` and `toolConfig.functionCallingConfig`.

A declaration gives its parameters as Gemini's own Schema (`parameters`) or as JSON Schema (`parametersJsonSchema`). We keep JSON
Schema and write it as such, since the Schema subset refuses most of what other formats say (GM-12); what came as a Schema goes
back as one, by a mark (see `spelling`) or, where that is not enough, from the original in `native`. Google's own tools
(googleSearch, codeExecution, …) are `Native`.

Normalised: all function declarations stand in one entry of `tools`, where the first of them stood, and a tool of Google's
in an entry of its own; empty `allowedFunctionNames` are absent.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec

from antiphon.parts import Native, NativeExtras
from antiphon.wire.gemini.content import NAMES, PartWriter
from antiphon.wire.gemini.declarations import MODES, listed
from antiphon.wire.gemini.schema import NUMBERS, PLAIN, UPPER, read_schema, write_schema
from antiphon.wire.gemini.spelling import FORMAT, fields_of, forms, mark, marked, native_of
from antiphon.wire.json_schema import SchemaCache
from antiphon.wire.loss import Loss, own_extras
from antiphon.wire.request import ToolChoice, ToolDefinition
from antiphon.wire.tool_calls import FREEFORM_SCHEMA


def _lowered(schema: dict[str, Any]) -> tuple[bytes, str | None]:
    """A Schema as JSON Schema, encoded, and the style it came in."""
    read, style = read_schema(schema)
    return msgspec.json.encode(read), style


def _raised(style: str, schema: dict[str, Any]) -> bytes:
    return msgspec.json.encode(write_schema(schema, style))


STYLES = {style: mark(f"schema:{style}") for style in (PLAIN, UPPER, NUMBERS)}

_LOWERED = SchemaCache(_lowered)
_RAISED = {style: SchemaCache(partial(_raised, style)) for style in STYLES}
_TOOL = forms(("functionDeclarations",))
_DECLARATION = forms(("name", "description", "parameters", "parametersJsonSchema", "response", "responseJsonSchema"))
_CALLING = forms(("mode", "allowedFunctionNames"))


def read_tools(tools: Any) -> tuple[ToolDefinition | Native, ...]:
    """Every tool, one by one."""
    read: list[ToolDefinition | Native] = []
    for tool in listed(tools):
        if type(tool) is not dict:
            read.append(Native(FORMAT, tool))
            continue
        fields, extras = fields_of(tool, _TOOL)
        declarations = listed(fields.get("functionDeclarations"))
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
        fields, extras = fields_of(declaration, _DECLARATION)
        name, description = fields.pop("name", None), fields.pop("description", None)
        if type(name) is str and type(description) in (str, type(None)):
            parameters, marks = _read_parameters(fields)
            return ToolDefinition(name, description, parameters, native=native_of({**fields, **extras}, marks))
    return Native(FORMAT, {"functionDeclarations": [declaration]})


def _read_parameters(fields: dict[str, Any]) -> tuple[dict[str, Any] | None, NativeExtras | None]:
    """The parameters as JSON Schema, taken out of `fields` unless they must go back as they came."""
    schema = fields.get("parametersJsonSchema")
    if schema is not None:
        if type(schema) is not dict:
            return None, None
        if "parameters" not in fields:
            del fields["parametersJsonSchema"]
        return schema, None
    own = fields.get("parameters")
    if type(own) is not dict:
        return None, None
    try:
        lowered, style = _LOWERED(own)
    except (ValueError, RecursionError):  # it cannot be written down again
        return own, None
    schema = msgspec.json.decode(lowered)
    if style is None:
        return schema, None
    del fields["parameters"]
    return schema, STYLES[style]


def write_tools(tools: tuple[ToolDefinition | Native, ...], writer: PartWriter) -> list[dict[str, Any]]:
    """The entries of `tools`."""
    written: list[dict[str, Any]] = []
    declarations: list[Any] = []
    names: set[str] = set()
    for index, tool in enumerate(tools):
        declaration: Any
        if isinstance(tool, ToolDefinition):
            declaration = _write_declaration(tool, names, writer, f"tools[{index}]")
            if declaration is None:
                continue
        elif tool.origin != FORMAT:
            writer.losses.append(Loss(f"tools[{index}]", "tool", f"only {tool.origin} has it"))
            continue
        else:
            match tool.data:
                case {"functionDeclarations": [unread]} if len(tool.data) == 1:  # one that could not be read
                    declaration = unread
                case _:
                    written.append(tool.data)
                    continue
        if not declarations:
            written.append({"functionDeclarations": declarations})
        declarations.append(declaration)
    return written


def _write_declaration(tool: ToolDefinition, names: set[str], writer: PartWriter, path: str) -> dict[str, Any] | None:
    losses = writer.losses
    name = NAMES.to_wire(tool.name)
    if name in names:  # GM-11
        losses.append(Loss(path, "tool", f"a tool named {tool.name} is already there"))
        return None
    names.add(name)
    extras = own_extras(tool.native, losses, path, FORMAT)
    if tool.strict:
        losses.append(Loss(f"{path}.strict", "strict", f"{FORMAT} has no strict tools"))
    written: dict[str, Any] = {"name": name}
    if tool.description is not None:
        written["description"] = tool.description
    if tool.freeform:
        written["parametersJsonSchema"] = FREEFORM_SCHEMA
    elif tool.parameters is not None and not extras.keys() & {"parameters", "parametersJsonSchema"}:
        style = style_of(tool.native)
        if style is None:
            written["parametersJsonSchema"] = tool.parameters
        else:
            written["parameters"] = msgspec.Raw(_RAISED[style](tool.parameters))
    written.update(extras)
    return written


def style_of(native: NativeExtras | None) -> str | None:
    """The style in which a schema came as Gemini's own Schema."""
    return next((style for style in STYLES if marked(native, f"schema:{style}")), None)


def read_tool_choice(config: Any) -> ToolChoice | None:
    """The choice a `functionCallingConfig` makes; None if it makes none we know."""
    if type(config) is not dict:
        return None
    fields, extras = fields_of(config, _CALLING)
    word, names = fields.get("mode"), fields.get("allowedFunctionNames", [])
    if type(names) is not list or not all(type(name) is str and name for name in names):
        return None
    mode = MODES[word] if type(word) is int and 0 < word < len(MODES) else word
    choice = _choice(mode.upper(), tuple(names)) if type(mode) is str else None
    if choice is None:
        return None
    if word != _mode_of(choice):
        extras["mode"] = word
    return ToolChoice(choice.mode, choice.names, choice.must_call, native_of(extras))


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


def _mode_of(choice: ToolChoice) -> str:
    if choice.mode in ("required", "tool") or choice.must_call:
        return "ANY"
    # Only with VALIDATED may names be given without forcing a call (GM-13).
    return {"none": "NONE", "allowed": "VALIDATED"}.get(choice.mode, "AUTO")


def write_tool_choice(choice: ToolChoice, writer: PartWriter, tools: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The `functionCallingConfig`, or None, and a loss, where there are no tools to choose from (GM-13)."""
    losses = writer.losses
    own = own_extras(choice.native, losses, "tool_choice", FORMAT)
    if not tools:
        losses.append(Loss("tool_choice", choice.mode, "there are no tools to choose from"))
        return None
    written: dict[str, Any] = {"mode": _mode_of(choice)}
    if choice.names and choice.mode in ("tool", "allowed"):
        written["allowedFunctionNames"] = [NAMES.to_wire(name) for name in choice.names]
    return {**written, **own}
