"""The tools of a request as a format declares them: which it has, under which names, and the fields that all formats share.

A tool of another format is reported and left out. So is a second one of the same name, where the format refuses that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from msgspec import Struct

from antiphon.parts import Native
from antiphon.wire.loss import Loss
from antiphon.wire.request import ToolDefinition
from antiphon.wire.tools.call_arguments import FREEFORM_SCHEMA
from antiphon.wire.tools.names import NameMapper
from antiphon.wire.tools.schemas import ToolSchemas


class DeclaredTool(Struct, frozen=True, gc=False):
    """A tool with the name that the format accepts, and its path in the request."""

    tool: ToolDefinition
    name: str
    path: str

    def function(
        self, schemas: ToolSchemas | None, losses: list[Loss], key: str = "parameters", kind: str = ""
    ) -> dict[str, Any]:
        """Its type (if `kind` names it), name, description and schema; without `schemas` any schema is accepted."""
        tool, name = self.tool, self.name
        written: dict[str, Any] = {"type": kind, "name": name} if kind else {"name": name}
        if tool.description is not None:
            written["description"] = tool.description
        schema = tool.parameters
        if tool.freeform:
            written[key] = FREEFORM_SCHEMA
        elif schema is not None:
            if schemas is not None and not schemas.accepts(schema):
                schema = schemas.rewrite(schema, losses, f"{self.path}.parameters")
            written[key] = schema
        return written


def declare_tools(
    tools: Iterable[ToolDefinition | Native], origin: str, names: NameMapper, losses: list[Loss], unique: str = ""
) -> Iterator[DeclaredTool | Native]:
    """The tools that a format can declare, in their order. `unique` is the rule by which their names must differ."""
    used: set[str] = set()
    for index, tool in enumerate(tools):
        path = f"tools[{index}]"
        if isinstance(tool, Native):
            if tool.origin == origin:
                yield tool
            else:
                kind = tool.data.get("type") if type(tool.data) is dict else None
                what = kind if type(kind) is str and kind else "tool"
                losses.append(Loss(path, what, f"tool specific to {tool.origin}; dropped"))
            continue
        name = names.to_wire(tool.name)
        if unique and name in used:
            losses.append(Loss(path, "tool", f'duplicate tool name "{tool.name}"; dropped ({unique})'))
            continue
        used.add(name)
        yield DeclaredTool(tool, name if name == tool.name else names.declare(tool.name, path, losses), path)
