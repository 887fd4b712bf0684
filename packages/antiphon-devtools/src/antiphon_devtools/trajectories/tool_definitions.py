"""The tools of a trajectory. A history has the calls, and the definitions are the program's: they come from a file.

Without a file, a definition is inferred from the calls: the name, the arguments that were used, and their JSON types. That
is enough for a trainer to accept the example, and it is reported, because a real definition says more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from antiphon.errors import InvalidTool, WireError
from antiphon.json_text import NOT_JSON
from antiphon.parts import ToolCallRequest
from antiphon.wire import formats
from antiphon.wire.request import ToolDefinition
from antiphon.wire.spec import detect_format
from antiphon_devtools.trajectories.selection import Trajectory

_JSON_TYPES: dict[type, str] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    list: "array",
    dict: "object",
    type(None): "null",
}


def read_definitions(path: Path) -> tuple[ToolDefinition, ...]:
    """The definitions in a JSON file: a list as OpenAI Chat has it, or a request body of any format. Raises `InvalidTool`."""
    try:
        value = msgspec.json.decode(path.read_bytes())
    except OSError as error:
        raise InvalidTool(f"--tools {path}: {error.strerror or error}") from error
    except NOT_JSON as error:
        raise InvalidTool(f"--tools {path}: not valid JSON: {error}") from error
    body = {"messages": [], "tools": value} if isinstance(value, list) else value
    if not isinstance(body, dict):
        raise InvalidTool(f"--tools {path}: expected a list of tools or a request body, not {type(value).__name__}")
    try:
        request = formats[detect_format(body) or "openai-chat"].read_request(body)
    except WireError as error:
        raise InvalidTool(f"--tools {path}: {error}") from error
    found = tuple(tool for tool in request.tools if isinstance(tool, ToolDefinition))
    if not found:
        raise InvalidTool(f"--tools {path}: no tools that are functions")
    return found


def definitions_for(
    trajectory: Trajectory, given: Sequence[ToolDefinition]
) -> tuple[tuple[ToolDefinition, ...], tuple[str, ...]]:
    """The given definitions, and inferred ones for called tools that are not among them, with a note about those."""
    known = {tool.name for tool in given}
    missing: dict[str, list[ToolCallRequest]] = {}
    for call in _calls(trajectory):
        if call.tool_name not in known:
            missing.setdefault(call.tool_name, []).append(call)
    if not missing:
        return tuple(given), ()
    inferred = tuple(_inferred(name, calls) for name, calls in missing.items())
    note = f"inferred the definitions of {', '.join(missing)} from their calls; --tools FILE gives the real ones"
    return (*given, *inferred), (note,)


def _calls(trajectory: Trajectory) -> Iterator[ToolCallRequest]:
    return (call for turn in trajectory.turns for output in turn.outputs for call in output.tool_calls)


def _inferred(name: str, calls: Sequence[ToolCallRequest]) -> ToolDefinition:
    if all(call.freeform for call in calls):
        return ToolDefinition(name, freeform=True)
    types: dict[str, list[str]] = {}
    for call in calls:
        try:
            arguments = call.parse_arguments()
        except ValueError:
            continue
        for argument, value in arguments.items():
            kinds = types.setdefault(argument, [])
            if (kind := _JSON_TYPES[type(value)]) not in kinds:
                kinds.append(kind)
    properties: dict[str, Any] = {
        argument: {"type": kinds[0] if len(kinds) == 1 else kinds} for argument, kinds in types.items()
    }
    return ToolDefinition(name, parameters={"type": "object", "properties": properties})
