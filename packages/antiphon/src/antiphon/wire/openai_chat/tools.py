"""Tools, the choice among them, and tool calls.

A function or a custom tool becomes a `ToolDefinition`; every other type stays a `Native` at its position. Each tool is written
with a name and a schema that OpenAI accepts (OC-16, OC-17); an impossible choice is dropped and reported (OC-18). `arguments` is
text and is not parsed. A call that cannot be read stays whole as `Native(FORMAT, {"tool_calls": [call]})`, so that it keeps its
position among the calls. Legacy function calls have no ids; they get one, and a source that turns them back into function calls.

Normalisations: a tool or call without `type` is a function; an empty list of tools is absent; the choice `any` (Mistral) is
`required`; a call's `index` that equals its position is dropped; absent arguments are empty, an object becomes JSON text.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import structs

from antiphon.parts import Native, NativeExtras, ToolCallRequest
from antiphon.wire.loss import Loss, Losses, lose_native, other_fields, own_extras
from antiphon.wire.openai_chat import FORMAT
from antiphon.wire.openai_chat.dialects import Dialect
from antiphon.wire.openai_chat.shapes import CallShape, FunctionCall
from antiphon.wire.provenance import LEGACY_FUNCTION, with_source
from antiphon.wire.request import ModelRequest, ToolChoice, ToolDefinition
from antiphon.wire.shapes import as_dict, extend
from antiphon.wire.shared_openai import (
    OPENAI,
    allowed_tools,
    allows_strict,
    chosen_names,
    lose_function_fields,
    read_choice,
    translate_grammar,
    unread_fields,
)
from antiphon.wire.tools.definitions import (
    EMPTY_ARGUMENTS,
    DeclaredNative,
    DeclaredTool,
    ToolSchemas,
    declare_tools,
    raw_json_object,
    read_definition,
    report_raw_arguments,
)

_SCHEMAS = ToolSchemas(FORMAT, "OC-16")
_CUSTOM = frozenset({"name", "description"})
_FUNCTION = _CUSTOM | {"parameters", "strict"}


def read_tool(tool: Any) -> ToolDefinition | Native:
    """A function or a custom tool; any other stays native."""
    kind = tool.get("type", "function") if type(tool) is dict else None
    if kind not in ("function", "custom"):
        return Native(FORMAT, tool)
    inner, is_custom = tool.get(kind), kind == "custom"
    read = read_definition(inner, "" if is_custom else "parameters", "" if is_custom else "strict")
    if read is None:
        return Native(FORMAT, tool)
    more = {} if len(tool) == 2 and "type" in tool else other_fields(tool, ("type", kind))
    known = _CUSTOM if is_custom else _FUNCTION
    if not known.issuperset(inner) and (rest := other_fields(inner, known)):
        more[kind] = rest
    return ToolDefinition(*read, is_custom, {FORMAT: more} if more else None)


def read_functions(functions: list[Any]) -> list[ToolDefinition] | None:
    """Functions of the legacy API; None if any of them has unknown fields."""
    tools = [read_tool({"type": "function", "function": function}) for function in functions]
    read = [tool for tool in tools if type(tool) is ToolDefinition and not tool.native]
    return [structs.replace(tool, source=LEGACY_FUNCTION) for tool in read] if len(read) == len(tools) > 0 else None


def write_tools(request: ModelRequest, body: dict[str, Any], losses: list[Loss], dialect: Dialect) -> dict[str, str]:
    """Put the tools into a body; returns the type of each by its name."""
    tools: list[Any] = []
    functions: list[Any] = []
    declared: dict[str, str] = {}
    for tool in declare_tools(request.tools, FORMAT, dialect.name_rule, losses):
        if isinstance(tool, DeclaredNative):
            tools.append(tool.data)
        elif tool.tool.source == LEGACY_FUNCTION:
            functions.append(_write_function(tool, losses, dialect))
        else:
            written = _write_tool(tool, losses, dialect)
            tools.append(written)
            declared[tool.tool.name] = written["type"]
    if tools:
        body["tools"] = tools
    if functions:
        body["functions"] = functions
    return declared


def _write_tool(declared: DeclaredTool, losses: list[Loss], dialect: Dialect) -> dict[str, Any]:
    tool, name, path = declared.tool, declared.name, declared.path
    if tool.freeform and dialect.has_custom_tools:
        more = own_extras(translate_grammar(tool.native, FORMAT), losses, path, OPENAI, FORMAT)
        custom: dict[str, Any] = {"name": name}
        if tool.description is not None:
            custom["description"] = tool.description
        lose_function_fields(tool, losses, path)
        return {"type": "custom", "custom": {**custom, **more.pop("custom", {})}, **more}
    function = _write_function(declared, losses, dialect)
    if tool.native is None:
        return {"type": "function", "function": function}
    more = own_extras(tool.native, losses, path, OPENAI, FORMAT)
    losses.extend(
        Loss(f"{path}.{key}", key, "host does not support freeform tools; dropped") for key in more.pop("custom", ())
    )
    return {"type": "function", "function": {**function, **more.pop("function", {})}, **more}


def _write_function(declared: DeclaredTool, losses: list[Loss], dialect: Dialect) -> dict[str, Any]:
    tool, path = declared.tool, declared.path
    function = declared.function(_SCHEMAS if dialect.enforces_schemas else None, losses)
    if tool.strict is not None:
        is_free = not dialect.enforces_schemas
        function["strict"] = tool.strict and (
            is_free or allows_strict(function.get("parameters", {}), losses, path, "OC-17")
        )
    return function


def read_tool_choice(choice: Any) -> ToolChoice | None:
    """The neutral choice; None if it must stay native."""
    if choice == "any":  # Mistral
        return ToolChoice("required")
    return read_choice(choice, _choice_name, _allowed_of)


def _allowed_of(choice: dict[str, Any]) -> Any:
    allowed = choice.get("allowed_tools")
    return allowed if len(choice) == 2 and type(allowed) is dict and len(allowed) == 2 else None


def _choice_name(tool: Any) -> str | None:
    if type(tool) is not dict or len(tool) != 2:
        return None
    named = tool.get(tool["type"]) if tool.get("type") in ("function", "custom") else None
    if type(named) is not dict or len(named) != 1:
        return None
    name = named.get("name")
    return name if type(name) is str else None


def read_function_choice(choice: Any) -> ToolChoice | None:
    """The choice in the legacy `function_call`."""
    if choice in ("auto", "none") and type(choice) is str:
        return ToolChoice("auto" if choice == "auto" else "none", source=LEGACY_FUNCTION)
    if type(choice) is dict and len(choice) == 1 and type(choice.get("name")) is str:
        return ToolChoice("tool", (choice["name"],), source=LEGACY_FUNCTION)
    return None


def write_choice(
    request: ModelRequest, body: dict[str, Any], losses: list[Loss], dialect: Dialect, declared: dict[str, str]
) -> None:
    """Put the choice among the tools into a body, and whether several may be called at once."""
    choice, parallel = request.tool_choice, request.parallel_tool_calls
    if choice is not None:
        lose_native(losses, "tool_choice", choice.native, FORMAT)
        if choice.source == LEGACY_FUNCTION:
            named = {"name": dialect.name_rule.to_wire(choice.names[0])} if choice.names else None
            body["function_call"] = named or choice.mode
        elif (value := _choice_value(choice, losses, dialect, declared)) is not None:
            body["tool_choice"] = value
    if parallel is not None and (parallel or "tools" in body or "functions" not in body):
        body["parallel_tool_calls"] = parallel


def _choice_value(choice: ToolChoice, losses: list[Loss], dialect: Dialect, declared: dict[str, str]) -> Any:
    mode, safe_name = choice.mode, dialect.name_rule.to_wire
    if mode in ("auto", "none"):
        return mode
    if mode == "required":
        return dialect.required_choice
    known = chosen_names(choice, declared or None, losses, "OC-18")
    if not known:
        return None
    if not dialect.accepts_named_choice:
        losses.append(
            Loss("tool_choice.names", "tool_choice", "host does not accept a choice by name; sent without names")
        )
        return dialect.required_choice if mode == "tool" or choice.must_call else "auto"
    kinds = [declared.get(name, "function") for name in known]
    named = [{"type": kind, kind: {"name": safe_name(name)}} for kind, name in zip(kinds, known, strict=True)]
    return named[0] if mode == "tool" else {"type": "allowed_tools", "allowed_tools": allowed_tools(choice, named)}


def is_object(arguments: str) -> bool:
    """Whether arguments are the JSON text of an object."""
    return raw_json_object(arguments) is not None


def unreadable_calls(part: Native) -> list[Any] | None:
    """The calls in a part that holds unreadable calls; None if it is another part."""
    if part.origin != FORMAT or type(part.data) is not dict or len(part.data) != 1:
        return None
    calls: list[Any] | None = part.data.get("tool_calls")
    return calls


def read_call(call: Any, position: int) -> ToolCallRequest | None:
    """A call of any shape; None if it cannot be read."""
    if type(call) is not dict:
        return None
    call_id, kind = call.get("id"), call.get("type")
    if kind is None or kind == "":
        kind = "function"
    if kind not in ("function", "custom") or type(call_id) not in (str, type(None)):
        return None
    called, text = call.get(kind), "arguments" if kind == "function" else "input"
    if type(called) is not dict or type(called.get("name")) is not str:
        return None
    arguments = called.get(text, "")
    if type(arguments) is dict and kind == "function":
        arguments = msgspec.json.encode(arguments).decode()
    if type(arguments) not in (str, type(None)):
        return None
    index = ("index",) if call.get("index") == position and type(call.get("index")) is int else ()
    native = unread_fields(call, FORMAT, ("id", "type", kind, *index))
    more = other_fields(called, ("name", text))
    if more:
        native = native or {}
        native.setdefault(FORMAT, {})[kind] = more
    return ToolCallRequest(called["name"], call_id or "", arguments or "", kind == "custom", native=native)


def read_function_call(value: Any, position: int) -> ToolCallRequest | None:
    """A call of the legacy API; its id follows from the position of its message."""
    if type(value) is not dict or len(value) != 2:
        return None
    name, arguments = value.get("name"), value.get("arguments")
    if type(name) is not str or type(arguments) is not str or not name:
        return None
    return ToolCallRequest(name, f"call_function_{position}", arguments, source=LEGACY_FUNCTION)


class CallWriter:
    """Writes calls as entries of `tool_calls`."""

    def __init__(self, losses: Losses, dialect: Dialect) -> None:
        self._losses = losses
        self._dialect = dialect
        self._legal_id, self._legal_name = dialect.id_rule.to_wire, dialect.name_rule.to_wire
        self._parses_arguments = dialect.parses_arguments

    def write(self, call: ToolCallRequest) -> Any:
        arguments, call_id, name = call.arguments, self._legal_id(call.tool_call_id), self._legal_name(call.tool_name)
        written: Any
        if call.freeform and self._dialect.has_custom_tools:
            written = {"id": call_id, "type": "custom", "custom": {"name": name, "input": arguments}}
        else:
            if call.freeform:
                arguments = msgspec.json.encode({"input": arguments}).decode()
            elif self._parses_arguments and not is_object(arguments):
                arguments = arguments_as_object_text(call, self._losses)
            written = CallShape(call_id, "function", FunctionCall(name, arguments))
        if call.native is None:
            return written
        return _extend_call(written, with_source(call).native or {}, self._losses, self._dialect)


def _extend_call(written: Any, native: NativeExtras, losses: Losses, dialect: Dialect) -> Any:
    signature = None
    if dialect.accepts_thought_signatures and "gemini" in native:
        gemini = dict(native["gemini"])
        signature = gemini.pop("thoughtSignature", None)
        native = {**native, "gemini": gemini}
    more = losses.take_extras(native, OPENAI, FORMAT)
    if signature is not None:
        more.setdefault("extra_content", {"google": {"thought_signature": signature}})
    if not more:
        return written
    fields = written if type(written) is dict else as_dict(written)
    kind = fields["type"]
    if kind in more:
        fields[kind] = extend(fields[kind], more.pop(kind))
    return {**fields, **more}


def arguments_as_object_text(call: ToolCallRequest, losses: Losses) -> str:
    """Arguments that a host can parse, of a call whose arguments are not an object (OC-07)."""
    if call.arguments.strip() not in EMPTY_ARGUMENTS:
        report_raw_arguments(losses, losses.path(), "OC-07")
        return msgspec.json.encode({"_raw": call.arguments}).decode()
    return "{}"
