"""The tools of a request and the choice among them.

Theory of operation. A function or a custom tool becomes a `ToolDefinition`; every other type (a host's own tools) stays a
`Native` at its place. Writing gives each tool a name and a schema that OpenAI takes: names by the dialect's rule,
a root that is an object (OC-16), strictness only for schemas that are closed (OC-17). A choice that names a tool which is
not declared, or that comes without tools, is dropped and reported (OC-18).

Normalisations: a tool without `type` is a function; an empty list of tools is absent; the choice `any` (Mistral) is
`required`.
"""

from __future__ import annotations

from typing import Any

from msgspec import structs

from antiphon.parts import Native
from antiphon.wire.json_schema import first_strict_problem, is_object_schema
from antiphon.wire.loss import Loss, lose_native, own_extras
from antiphon.wire.openai_chat.calls import DEPRECATED, DEPRECATED_NATIVE, is_deprecated
from antiphon.wire.openai_chat.content import FORMAT, SHARED
from antiphon.wire.openai_chat.dialects import Dialect
from antiphon.wire.request import ModelRequest, ToolChoice, ToolDefinition
from antiphon.wire.tool_calls import FREEFORM_SCHEMA

_FUNCTION_FIELDS = frozenset({"name", "description", "parameters", "strict"})
_CUSTOM_FIELDS = frozenset({"name", "description"})
_WORDS = {"auto": "auto", "none": "none", "required": "required", "any": "required"}


def read_tools(tools: list[Any]) -> list[ToolDefinition | Native]:
    return [_read_tool(tool) or Native(FORMAT, tool) for tool in tools]


def read_functions(functions: list[Any]) -> list[ToolDefinition | Native] | None:
    """Functions of the deprecated API, if all of them are plain."""
    tools: list[ToolDefinition | Native] = []
    for function in functions:
        tool = _read_declared(function, "function", {}) if type(function) is dict else None
        if tool is None or tool.native:
            return None
        tools.append(structs.replace(tool, native=DEPRECATED_NATIVE))
    return tools or None


def _read_tool(tool: Any) -> ToolDefinition | None:
    if type(tool) is not dict:
        return None
    kind = tool.get("type", "function")
    if kind not in ("function", "custom") or type(tool.get(kind)) is not dict:
        return None
    more = {key: value for key, value in tool.items() if key not in ("type", kind) and value is not None}
    return _read_declared(tool[kind], kind, more)


def _read_declared(function: dict[str, Any], kind: str, more: dict[str, Any]) -> ToolDefinition | None:
    name, description = function.get("name"), function.get("description")
    parameters, strict = function.get("parameters"), function.get("strict")
    if type(name) is not str or type(description) not in (str, type(None)) or kind in more:
        return None
    if type(parameters) not in (dict, type(None)) or type(strict) not in (bool, type(None)):
        return None
    known = _FUNCTION_FIELDS if kind == "function" else _CUSTOM_FIELDS
    inner = {key: value for key, value in function.items() if key not in known and value is not None}
    own = {**more, kind: inner} if inner else more
    if kind == "custom":
        return ToolDefinition(name, description, freeform=True, native={FORMAT: own} if own else None)
    return ToolDefinition(name, description, parameters, strict, native={FORMAT: own} if own else None)


def write_tools(request: ModelRequest, body: dict[str, Any], losses: list[Loss], dialect: Dialect) -> None:
    """Put the tools into a body, and what was said about choosing among them."""
    tools: list[Any] = []
    functions: list[Any] = []
    declared: dict[str, str] = {}
    for place, tool in enumerate(request.tools):
        path = f"tools[{place}]"
        if isinstance(tool, Native):
            if tool.origin == FORMAT:
                tools.append(tool.data)
            else:
                losses.append(Loss(path, "tool", f"only {tool.origin} has this tool"))
        elif is_deprecated(tool.native):
            functions.append(_write_function(tool, losses, path, dialect))
        else:
            written = _write_tool(tool, losses, path, dialect)
            tools.append(written)
            declared[tool.name] = written["type"]
    if tools:
        body["tools"] = tools
    if functions:
        body["functions"] = functions
    _write_choice(request, body, losses, dialect, declared)
    if request.parallel_tool_calls is not None:
        if tools or dialect.takes_idle_choice:
            body["parallel_tool_calls"] = request.parallel_tool_calls
        else:
            losses.append(Loss("parallel_tool_calls", "parallel_tool_calls", "there are no tools (OC-19)"))


def _write_tool(tool: ToolDefinition, losses: list[Loss], path: str, dialect: Dialect) -> dict[str, Any]:
    if tool.freeform and dialect.has_custom_tools:
        more = own_extras(tool.native, losses, path, SHARED, FORMAT)
        custom: dict[str, Any] = {"name": dialect.name_rule.to_wire(tool.name)}
        if tool.description is not None:
            custom["description"] = tool.description
        said = [field for field in ("parameters", "strict") if getattr(tool, field) is not None]
        losses.extend(Loss(f"{path}.{field}", field, "a freeform tool takes text") for field in said)
        return {"type": "custom", "custom": {**custom, **more.pop("custom", {})}, **more}
    more = own_extras(tool.native, losses, path, SHARED, FORMAT)
    losses.extend(Loss(f"{path}.{key}", key, "this host has no freeform tools") for key in more.pop("custom", ()))
    function = _write_function(tool, losses, path, dialect)
    return {"type": "function", "function": {**function, **more.pop("function", {})}, **more}


def _write_function(tool: ToolDefinition, losses: list[Loss], path: str, dialect: Dialect) -> dict[str, Any]:
    function: dict[str, Any] = {"name": dialect.name_rule.to_wire(tool.name)}
    if tool.description is not None:
        function["description"] = tool.description
    parameters = FREEFORM_SCHEMA if tool.freeform else tool.parameters
    if parameters is not None:
        if dialect.enforces_schemas:
            parameters = _rooted(parameters, losses, path)
        function["parameters"] = parameters
    if tool.strict is not None:
        if tool.strict and dialect.enforces_schemas and first_strict_problem(parameters or {}) is not None:
            losses.append(Loss(f"{path}.strict", "strict", "its schema is not closed (OC-17)"))
        else:
            function["strict"] = tool.strict
    if tool.native is not None and DEPRECATED in tool.native.get(FORMAT, ()):
        lose_native(losses, path, tool.native, FORMAT)
    return function


def _rooted(parameters: dict[str, Any], losses: list[Loss], path: str) -> dict[str, Any]:
    """A schema whose root is an object (OC-16)."""
    if is_object_schema(parameters):
        return parameters
    if parameters.get("type") is None:
        return {**parameters, "type": "object"}
    losses.append(Loss(f"{path}.parameters", "parameters", "arguments are an object: the value is in `value` (OC-16)"))
    return {"type": "object", "properties": {"value": parameters}, "required": ["value"], "additionalProperties": False}


def read_choice(choice: Any) -> ToolChoice | None:
    """What `tool_choice` says, or None if it says something of its own."""
    if type(choice) is str:
        word: Any = _WORDS.get(choice)
        return ToolChoice(word) if word is not None else None
    if type(choice) is not dict:
        return None
    kind = choice.get("type")
    if kind in ("function", "custom") and len(choice) == 2:
        name = _named(choice)
        return ToolChoice("tool", (name,)) if name is not None else None
    allowed = choice.get("allowed_tools")
    if kind != "allowed_tools" or len(choice) != 2 or type(allowed) is not dict or len(allowed) != 2:
        return None
    mode, tools = allowed.get("mode"), allowed.get("tools")
    if mode not in ("auto", "required") or type(tools) is not list:
        return None
    names = [_named(tool) for tool in tools]
    known = tuple(name for name in names if name is not None)
    return ToolChoice("allowed", known, mode == "required") if known and len(known) == len(names) else None


def _named(tool: Any) -> str | None:
    if type(tool) is not dict or len(tool) != 2:
        return None
    named = tool.get(tool["type"]) if tool.get("type") in ("function", "custom") else None
    if type(named) is not dict or len(named) != 1:
        return None
    name = named.get("name")
    return name if type(name) is str else None


def read_function_choice(choice: Any) -> ToolChoice | None:
    """What the deprecated `function_call` says."""
    if choice in ("auto", "none") and type(choice) is str:
        return ToolChoice("auto" if choice == "auto" else "none", native=DEPRECATED_NATIVE)
    if type(choice) is dict and len(choice) == 1 and type(choice.get("name")) is str:
        return ToolChoice("tool", (choice["name"],), native=DEPRECATED_NATIVE)
    return None


def _write_choice(
    request: ModelRequest, body: dict[str, Any], losses: list[Loss], dialect: Dialect, declared: dict[str, str]
) -> None:
    choice = request.tool_choice
    if choice is None:
        return
    deprecated = is_deprecated(choice.native)
    lose_native(losses, "tool_choice", choice.native, FORMAT)
    if ("functions" if deprecated else "tools") not in body and not dialect.takes_idle_choice:
        losses.append(Loss("tool_choice", "tool_choice", "there are no tools (OC-18)"))
    elif deprecated:
        safe_name = dialect.name_rule.to_wire
        body["function_call"] = {"name": safe_name(choice.names[0])} if choice.names else choice.mode
    else:
        value = _choice_value(choice, losses, dialect, declared)
        if value is not None:
            body["tool_choice"] = value


def _choice_value(choice: ToolChoice, losses: list[Loss], dialect: Dialect, declared: dict[str, str]) -> Any:
    mode, safe_name = choice.mode, dialect.name_rule.to_wire
    if mode in ("auto", "none"):
        return mode
    if mode == "required":
        return dialect.required_word
    known = [name for name in choice.names if not declared or name in declared]
    if not known:
        losses.append(Loss("tool_choice", "tool_choice", "the tool it names is not declared (OC-18)"))
        return None
    if not dialect.takes_named_choice:
        losses.append(Loss("tool_choice.names", "tool_choice", "this host takes no choice by name"))
        return dialect.required_word if mode == "tool" or choice.must_call else "auto"
    kinds = [declared.get(name, "function") for name in known]
    named = [{"type": kind, kind: {"name": safe_name(name)}} for kind, name in zip(kinds, known, strict=True)]
    if mode == "tool":
        losses.extend(Loss("tool_choice.names", name, "one tool can be named, not several") for name in known[1:])
        return named[0]
    if len(known) < len(choice.names):
        losses.append(Loss("tool_choice.names", "tool_choice", "some tools it names are not declared (OC-18)"))
    allowed = {"mode": "required" if choice.must_call else "auto", "tools": named}
    return {"type": "allowed_tools", "allowed_tools": allowed}
