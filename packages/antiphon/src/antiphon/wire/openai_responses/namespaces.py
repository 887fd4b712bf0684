"""Tools in namespaces, and tools inside input items, as a flat list for the other formats.

Responses groups tools in `namespace` tools and adds more in the middle of a conversation (`additional_tools`, and the
`tool_search_output` of a search). Other formats have one list of tools: a member is declared there as `namespace__name`, and
its earlier calls have that name too. `CallRestorer` splits the name again in what the model answers, so that the client sees
the name and the namespace that it declared. The name depends on nothing else, so it stays the same in every turn (L9).
"""

from __future__ import annotations

from typing import Any

from msgspec import structs

from antiphon.parts import Native, Part, Source, ToolCallRequest
from antiphon.wire.openai_responses import FORMAT
from antiphon.wire.openai_responses.tools import read_tool
from antiphon.wire.request import Message, ModelRequest, ToolDefinition
from antiphon.wire.tools.namespaces import NAMESPACES, FlatRequest

SOURCE = Source(FORMAT, (NAMESPACES,))
"""Of a request whose tools are in namespaces or in messages."""
_SEPARATOR = "__"
_ITEMS_WITH_TOOLS = ("additional_tools", "tool_search_output")


def flat_name(namespace: Any, name: str) -> str:
    """The name of a tool outside of its namespace. A tool that a search found is in a namespace of its own name."""
    return f"{namespace}{_SEPARATOR}{name}" if type(namespace) is str and namespace not in ("", name) else name


def has_own_tools(item: Any) -> bool:
    return (
        type(item) is dict and type(item.get("tools")) is list and item.get("type") in ("namespace", *_ITEMS_WITH_TOOLS)
    )


def mark_namespaces(request: ModelRequest) -> ModelRequest:
    """The request with the source that readers set, where earlier messages brought tools, or calls in a namespace, into it."""
    if request.source == SOURCE or not any(_needs_flat_list(part) for it in request.messages for part in it.parts):
        return request
    return structs.replace(request, source=SOURCE)


def _needs_flat_list(part: Part) -> bool:
    if type(part) is Native:
        return has_own_tools(part.data)
    return type(part) is ToolCallRequest and part.native is not None and "namespace" in part.native.get(FORMAT, ())


def flatten(request: ModelRequest) -> FlatRequest:
    """The request with one list of tools, and calls by the names in it."""
    tools = _ToolList()
    for index, tool in enumerate(request.tools):
        tools.add(tool, f"tools[{index}]")
    messages: list[Message] = []
    positions: list[int] = []
    for index, message in enumerate(request.messages):
        parts: list[Part] = []
        for place, part in enumerate(message.parts):
            if isinstance(part, Native) and has_own_tools(part.data):
                tools.add_members(part.data, f"messages[{index}].parts[{place}]")
                if part.data["type"] == "additional_tools":
                    continue
            parts.append(_flatten_call(part) if isinstance(part, ToolCallRequest) else part)
        if parts or not message.parts:
            messages.append(structs.replace(message, parts=tuple(parts)))
            positions.append(index)
    flat = structs.replace(request, tools=tuple(tools.tools), messages=tuple(messages))
    return FlatRequest(flat, positions, tools.paths, tools.names, FORMAT)


class _ToolList:
    """Tools of all namespaces, each name once: a search finds tools that are already declared."""

    def __init__(self) -> None:
        self.tools: list[ToolDefinition | Native] = []
        self.paths: list[str] = []
        self.names: dict[str, tuple[str, str]] = {}
        self._known: set[str] = set()

    def add(self, tool: ToolDefinition | Native, path: str) -> None:
        if isinstance(tool, Native) and has_own_tools(tool.data):
            self.add_members(tool.data, path)
        elif isinstance(tool, Native) or tool.name not in self._known:
            self.tools.append(tool)
            self.paths.append(path)
            if isinstance(tool, ToolDefinition):
                self._known.add(tool.name)

    def add_members(self, holder: dict[str, Any], path: str) -> None:
        namespace = holder.get("name") if holder["type"] == "namespace" else ""
        about = holder.get("description")
        for index, member in enumerate(holder["tools"]):
            place, definition = f"{path}.tools[{index}]", read_tool(member)
            if definition is None:
                self.add(Native(FORMAT, member), place)
                continue
            name, description = flat_name(namespace, definition.name), definition.description
            if name != definition.name:
                self.names[name] = (definition.name, str(namespace))
            if type(about) is str and about:
                description = f"{about}\n\n{description}" if description else about
            self.add(structs.replace(definition, name=name, description=description), place)


def _flatten_call(call: ToolCallRequest) -> ToolCallRequest:
    fields = (call.native or {}).get(FORMAT, {})
    if "namespace" not in fields:
        return call
    rest = {name: value for name, value in fields.items() if name != "namespace"}
    return structs.replace(
        call,
        tool_name=flat_name(fields["namespace"], call.tool_name),
        native={**(call.native or {}), FORMAT: rest},
    )
