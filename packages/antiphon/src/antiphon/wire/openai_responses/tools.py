"""Tools and the choice among them.

Functions and custom (freeform) tools are `ToolDefinition`s. Hosted tools, namespaces and tools with a field of the wrong type are
`Native` and go back as they came. `strict` has four values: true, false, absent and null; empty native extras, or extras with
`strict`, mean null. What OpenAI would refuse is made legal and reported: a name is replaced, a root that is not an object is
wrapped, `strict` with an open schema is removed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from antiphon.parts import Native, Source
from antiphon.wire.loss import Loss, lose_native, own_extras
from antiphon.wire.openai_responses import FORMAT
from antiphon.wire.request import ModelRequest, ToolChoice, ToolDefinition
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
from antiphon.wire.tools.definitions import DeclaredNative, DeclaredTool, ToolSchemas, declare_tools, read_definition
from antiphon.wire.tools.names import tool_names

_SCHEMAS = ToolSchemas(FORMAT, "OR-12")
_FUNCTION = frozenset({"type", "name", "description", "parameters", "strict"})
_CUSTOM = frozenset({"type", "name", "description"})
_STRICT_NULL = Source(FORMAT, ("strict: null",))

NAMES = tool_names(FORMAT)
"""Tool names as this format accepts them (OR-12). Replacements are limited to 64, which every host accepts."""


def read_tools(tools: list[Any]) -> tuple[ToolDefinition | Native, ...]:
    return tuple([read_tool(tool) or Native(FORMAT, tool) for tool in tools])


def read_tool(tool: Any) -> ToolDefinition | None:
    """A function or custom tool; None if it is of another type or malformed."""
    kind = tool.get("type") if type(tool) is dict else None
    if kind == "custom":
        custom = read_definition(tool, "", "")
        return custom and ToolDefinition(*custom, True, unread_fields(tool, FORMAT, _CUSTOM))
    read = read_definition(tool) if kind == "function" else None
    if read is None:
        return None
    source = _STRICT_NULL if tool.get("strict", False) is None else None
    return ToolDefinition(*read, native=unread_fields(tool, FORMAT, _FUNCTION), source=source)


def write_tools(tools: Sequence[ToolDefinition | Native], losses: list[Loss]) -> list[Any]:
    return [
        tool.data if isinstance(tool, DeclaredNative) else _write_tool(tool, losses)
        for tool in declare_tools(tools, FORMAT, NAMES, losses)
    ]


def _write_tool(declared: DeclaredTool, losses: list[Loss]) -> dict[str, Any]:
    tool, name, path = declared.tool, declared.name, declared.path
    if tool.freeform:
        body: dict[str, Any] = {"type": "custom", "name": name}
        if tool.description is not None:
            body["description"] = tool.description
        lose_function_fields(tool, losses, path)
    else:
        body = declared.function(_SCHEMAS, losses, kind="function")
        if tool.strict is not None:
            body["strict"] = tool.strict and allows_strict(body.get("parameters"), losses, path, "OR-20")
        elif tool.source == _STRICT_NULL:
            body["strict"] = None
    native = translate_grammar(tool.native, FORMAT) if tool.freeform else tool.native
    if native is not None:
        body.update(own_extras(native, losses, path, OPENAI, FORMAT))
    return body


def read_tool_choice(choice: Any, tools: Sequence[ToolDefinition | Native]) -> ToolChoice | None:
    """The choice in neutral terms; None if it is one only this format has."""
    return read_choice(choice, lambda chosen: _chosen_name(chosen, tools), lambda it: it if len(it) == 3 else None)


def _chosen_name(choice: Any, tools: Sequence[ToolDefinition | Native]) -> str | None:
    """The name of a chosen tool, if `write_tool_choice` would choose it by the same words."""
    if type(choice) is not dict or len(choice) != 2 or type(choice.get("name")) is not str:
        return None
    name: str = choice["name"]
    return name if choice.get("type") == ("custom" if name in _freeform(tools) else "function") else None


def _freeform(tools: Sequence[ToolDefinition | Native]) -> set[str]:
    return {tool.name for tool in tools if isinstance(tool, ToolDefinition) and tool.freeform}


def write_tool_choice(request: ModelRequest, body: dict[str, Any], losses: list[Loss]) -> None:
    """Put the choice among the tools into a body, as far as its tools allow (OR-13)."""
    choice = request.tool_choice
    if choice is None:
        return
    lose_native(losses, "tool_choice", choice.native, OPENAI)
    if choice.mode in ("auto", "none", "required"):
        has_tools = body.get("tools") or any(
            isinstance(item, dict) and isinstance(item.get("tools"), list) for item in body["input"]
        )
        if choice.mode != "required" or has_tools or body.get("prompt") is not None:
            body["tool_choice"] = choice.mode
        else:
            losses.append(Loss("tool_choice", "required", "no tools are declared; dropped"))
        return
    freeform = _freeform(request.tools)
    declared = None if body.get("prompt") is not None else set(declared_names(body))
    legal = {name for name in choice.names if declared is None or NAMES.to_wire(name) in declared}
    known = chosen_names(choice, legal, losses, "OR-13")
    chosen = [{"type": "custom" if name in freeform else "function", "name": NAMES.to_wire(name)} for name in known]
    if chosen:
        is_one = choice.mode == "tool"
        body["tool_choice"] = chosen[0] if is_one else {"type": "allowed_tools", **allowed_tools(choice, chosen)}


def declared_names(body: dict[str, Any]) -> Iterator[str]:
    """The names of all tools the model has: the body's, those in namespaces, and those inside items."""
    items = body.get("input")
    holders: list[Any] = [body, *(items if isinstance(items, list) else ())]
    for holder in holders:  # grows by the namespaces found
        tools = holder.get("tools") if isinstance(holder, dict) else None
        for tool in tools if isinstance(tools, list) else ():
            if isinstance(tool, dict) and isinstance(tool.get("name"), str):
                yield tool["name"]
                holders.append(tool)
