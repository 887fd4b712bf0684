"""Tools and the choice among them, read and written.

A tool with a name and an input schema is a `ToolDefinition`; everything else in the list is `Native`. `type: "custom"` is the
default and is left out.

What AN-16, AN-17 and AN-33 reject is changed: names are mapped, a second tool of one name is dropped, `strict` is removed beyond
the limits, and an impossible choice is dropped. The API has no choice among some of the tools: the others are left out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from antiphon.parts import Native
from antiphon.wire.anthropic import FORMAT
from antiphon.wire.anthropic.cache_breakpoints import Breakpoints
from antiphon.wire.anthropic.limits import (
    MAX_OPTIONAL_PARAMETERS,
    MAX_STRICT_TOOLS,
    MAX_UNION_PARAMETERS,
)
from antiphon.wire.anthropic.shapes import unread_fields, with_cache_control
from antiphon.wire.capabilities import Capabilities
from antiphon.wire.loss import Loss, own_extras
from antiphon.wire.request import ModelRequest, ToolChoice, ToolDefinition
from antiphon.wire.tools.definitions import (
    DeclaredNative,
    DeclaredTool,
    ToolSchemas,
    argument_writer,
    declare_tools,
    read_definition,
    text_field,
)
from antiphon.wire.tools.names import tool_names
from antiphon.wire.tools.schema import (
    SchemaCache,
    count_optional_and_unions,
    find_reference_cycle,
    grammar_policy,
    rewrite,
)

NAMES = tool_names(FORMAT, are_portable=False)
SCHEMAS = ToolSchemas(FORMAT, "AN-16")

_TOOL_FIELDS = frozenset({"type", "name", "description", "input_schema", "strict"})
_CHOICE_FIELDS = frozenset({"type", "name", "disable_parallel_tool_use"})
_MODES = {"auto": "auto", "any": "required", "tool": "tool", "none": "none"}
_CHOICE_TYPES = {"auto": "auto", "required": "any", "none": "none"}


def read_tool(tool: Any) -> ToolDefinition | Native:
    if type(tool) is not dict or tool.get("type") not in (None, "custom"):
        return Native(FORMAT, tool)
    read = read_definition(tool, "input_schema")
    if read is None or read[2] is None:
        return Native(FORMAT, tool)
    return ToolDefinition(*read, native=unread_fields(tool, _TOOL_FIELDS))


def read_tool_choice(choice: dict[str, Any]) -> tuple[ToolChoice, bool | None] | None:
    """The choice, and whether calls may be parallel; None if it is unknown."""
    kind, name, disables_parallel = choice.get("type"), choice.get("name"), choice.get("disable_parallel_tool_use")
    mode: Any = _MODES.get(kind) if type(kind) is str else None
    if mode is None or (disables_parallel is not None and type(disables_parallel) is not bool):
        return None
    if type(name) is not str if mode == "tool" else name is not None:
        return None
    names = () if name is None else (name,)
    return ToolChoice(
        mode, names, native=unread_fields(choice, _CHOICE_FIELDS)
    ), None if disables_parallel is None else not disables_parallel


def write_tools(
    request: ModelRequest,
    model: Capabilities,
    breakpoints: Breakpoints,
    argument_writers: dict[str, Callable[[str], str]],
    losses: list[Loss],
) -> list[Any]:
    """The tools of a request, in their order. `argument_writers` gets those whose calls need other property names."""
    written: list[Any] = []
    strict: _StrictToolLimits | None = None
    is_any_loaded = False
    choice = request.tool_choice
    allowed = _allowed(choice, request, losses) if choice is not None and choice.mode == "allowed" else None
    for tool in declare_tools(request.tools, FORMAT, NAMES, losses, "AN-16", named_natives=True, allowed=allowed):
        if isinstance(tool, DeclaredNative):
            block: Any = dict(tool.data) if type(tool.data) is dict else tool.data
        else:
            block = _write_tool(tool, losses)
            definition = tool.tool
            is_changed = block["input_schema"] is not definition.parameters
            if is_changed and (change := argument_writer(definition)) is not None:
                argument_writers[definition.name] = change
            if block.get("strict") is True:
                strict = strict or _StrictToolLimits(model, losses)
                strict.check(block, tool.path)
        if type(block) is dict and "cache_control" in block:
            breakpoints[id(block)] = block, tool.path
        is_any_loaded = is_any_loaded or type(block) is not dict or block.get("defer_loading") is not True
        written.append(block)
    if written and not is_any_loaded:
        del written[0]["defer_loading"]
        losses.append(
            Loss("tools[0].defer_loading", "defer_loading", "not allowed on all tools; dropped from the first (AN-33)")
        )
    return written


def _write_tool(declared: DeclaredTool, losses: list[Loss]) -> dict[str, Any]:
    tool = declared.tool
    block = declared.function(SCHEMAS, losses, "input_schema")
    block.setdefault("input_schema", {"type": "object", "properties": {}})
    if tool.strict is not None:
        block["strict"] = tool.strict
    if tool.native is not None:
        block.update(own_extras(with_cache_control(tool.native), losses, declared.path, FORMAT))
    return block


def _allowed(choice: ToolChoice, request: ModelRequest, losses: list[Loss]) -> tuple[str, ...] | None:
    """The names of the allowed tools; None if all are sent (AN-17)."""
    declared = [text_field(tool.data, "name") if isinstance(tool, Native) else tool.name for tool in request.tools]
    if not set(choice.names).isdisjoint(declared):
        return choice.names
    losses.append(
        Loss("tool_choice.names", "the tools allowed", "none of the allowed tools is declared; sent all tools")
    )
    return None


@SchemaCache
def _strict_costs(schema: dict[str, Any]) -> tuple[int, int, bool]:
    """What counts toward the limits on strict tools: optional and union parameters, and whether the schema is circular."""
    return *count_optional_and_unions(schema), bool(find_reference_cycle(schema))


class _StrictToolLimits:
    """How much of the limits on strict tools is used (AN-16)."""

    def __init__(self, model: Capabilities, losses: list[Loss]) -> None:
        self._model = model
        self._losses = losses
        self._tools = self._optional = self._unions = 0

    def check(self, block: dict[str, Any], path: str) -> None:
        """Remove `strict` from a tool that exceeds the limits or refers to itself; make its schema legal otherwise."""
        if self._model.strict_tools is False:
            del block["strict"]
            self._losses.append(Loss(f"{path}.strict", "strict", "model does not support it; dropped (AN-16)"))
            return
        optional, unions, is_circular = _strict_costs(block["input_schema"])
        exceeds_limits = (
            self._tools + 1 > MAX_STRICT_TOOLS
            or self._optional + optional > MAX_OPTIONAL_PARAMETERS
            or self._unions + unions > MAX_UNION_PARAMETERS
            or is_circular
        )
        if exceeds_limits:
            del block["strict"]
            self._losses.append(
                Loss(f"{path}.strict", "strict", "exceeds the limits on strict tools; sent without strict (AN-16)")
            )
            return
        policy = grammar_policy(self._model, "AN-16", "a strict tool")
        block["input_schema"] = rewrite(block["input_schema"], policy, self._losses, f"{path}.parameters")
        self._tools += 1
        self._optional += optional
        self._unions += unions


def write_tool_choice(request: ModelRequest, losses: list[Loss]) -> dict[str, Any] | None:
    """The `tool_choice`, as far as the API has it; the rules about it follow (AN-17)."""
    choice, parallel = request.tool_choice, request.parallel_tool_calls
    if choice is None and parallel is None:
        return None
    written: dict[str, Any] = {"type": "auto"}
    if choice is not None:
        kind = _CHOICE_TYPES.get(choice.mode)
        if choice.mode == "allowed":  # the others are left out
            kind = "any" if choice.must_call else "auto"
        written = {"type": kind or "tool"}
        if kind is None and choice.names:
            written["name"] = NAMES.to_wire(choice.names[0])
    if parallel is not None:
        if written["type"] == "none":
            reason = 'not allowed with tool_choice "none"; dropped (AN-17)'
            losses.append(Loss("parallel_tool_calls", "parallel_tool_calls", reason))
        else:
            written["disable_parallel_tool_use"] = not parallel
    if choice is not None and choice.native is not None:
        written.update(own_extras(choice.native, losses, "tool_choice", FORMAT))
    return written


def is_declared(name: str, tools: list[Any]) -> bool:
    """Whether a tool may be chosen by this name. A toolset has names that are not in the body."""
    declared = [tool.get("name") if isinstance(tool, dict) else None for tool in tools]
    return not declared or None in declared or name in declared
