"""Tools and the choice among them: `tools` and `generation_config.tool_choice`.

A function has its parameters as JSON Schema. Google's own tools (google_search, code_execution, mcp_server, ...) are `Native`.
A choice is a mode (`auto`, `any`, `none`, `validated`) or a mode with the names of the allowed tools.
"""

from __future__ import annotations

from typing import Any

from antiphon.parts import Native
from antiphon.wire.gemini_interactions import FORMAT
from antiphon.wire.gemini_interactions.content import NAMES
from antiphon.wire.gemini_interactions.limits import NAME
from antiphon.wire.loss import Loss, other_fields, own_extras
from antiphon.wire.request import ToolChoice, ToolDefinition
from antiphon.wire.tools.definitions import DeclaredNative, DeclaredTool, ToolSchemas, declare_tools, read_definition

_SCHEMAS = ToolSchemas(FORMAT, "GI-08")
_FIELDS = frozenset({"type", "name", "description", "parameters"})


def read_tools(tools: list[Any]) -> tuple[ToolDefinition | Native, ...]:
    return tuple([_read_tool(tool) for tool in tools])


def _read_tool(tool: Any) -> ToolDefinition | Native:
    if type(tool) is not dict or tool.get("type") != "function":
        return Native(FORMAT, tool)
    read = read_definition(tool, strict="")
    if read is None or not read[0]:
        return Native(FORMAT, tool)
    extras = other_fields(tool, _FIELDS)
    return ToolDefinition(*read, native={FORMAT: extras} if extras else None)


def write_tools(tools: tuple[ToolDefinition | Native, ...], losses: list[Loss]) -> list[Any]:
    return [
        tool.data if isinstance(tool, DeclaredNative) else _write_tool(tool, losses)
        for tool in declare_tools(tools, FORMAT, NAMES, losses, unique="GI-08")
    ]


def _write_tool(declared: DeclaredTool, losses: list[Loss]) -> dict[str, Any]:
    tool, path = declared.tool, declared.path
    if tool.strict:
        losses.append(Loss(f"{path}.strict", "strict", f"{NAME} does not support strict tools; dropped"))
    written = declared.function(_SCHEMAS, losses, kind="function")
    return written if tool.native is None else {**written, **own_extras(tool.native, losses, path, FORMAT)}


def read_tool_choice(choice: Any) -> ToolChoice | None:
    """The choice in neutral terms; None if it is unknown."""
    if type(choice) is str:
        return {"auto": ToolChoice("auto"), "none": ToolChoice("none"), "any": ToolChoice("required")}.get(choice)
    allowed = choice.get("allowed_tools") if type(choice) is dict and len(choice) == 1 else None
    if type(allowed) is not dict or not allowed.keys() <= {"mode", "tools"}:
        return None
    mode, names = allowed.get("mode"), allowed.get("tools")
    if type(names) is not list or not names or not all(type(name) is str and name for name in names):
        return None
    if mode == "any":
        return ToolChoice("tool", tuple(names)) if len(names) == 1 else ToolChoice("allowed", tuple(names), True)
    return ToolChoice("allowed", tuple(names)) if mode == "validated" else None


def write_tool_choice(choice: ToolChoice, losses: list[Loss]) -> Any:
    own_extras(choice.native, losses, "tool_choice")
    if choice.mode in ("tool", "allowed") and choice.names:
        # Only `validated` accepts names without forcing a call.
        mode = "any" if choice.mode == "tool" or choice.must_call else "validated"
        return {"allowed_tools": {"mode": mode, "tools": [NAMES.to_wire(name) for name in choice.names]}}
    if choice.mode == "required" or choice.must_call:
        return "any"
    return "none" if choice.mode == "none" else "auto"
