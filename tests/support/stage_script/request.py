"""Requests: `{"bot": model, "script": [{"voice", "results": [results], "lines": [blocks]}], "tools": {name: {about, takes}}}`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from antiphon.errors import WireError
from antiphon.parts import Native, Part, Text, ToolCallRequest, ToolCallResult, ToolExecutionStatus, text_of
from antiphon.wire.capabilities import look_up
from antiphon.wire.capabilities.accepted_media import fit_medium
from antiphon.wire.format import DEFAULT_OPTIONS, WriteOptions
from antiphon.wire.loss import Losses
from antiphon.wire.native_as_text import readable_parts
from antiphon.wire.request import Message, ModelRequest, ToolDefinition
from antiphon.wire.tools.call_arguments import raw_json_object
from antiphon.wire.tools.call_ids import CallIdTracker
from antiphon.wire.tools.names import tool_names
from support.stage_script import FORMAT

VOICES = {"stage": "system", "person": "user", "bot": "assistant"}
_ROLES = {"system": "stage", "developer": "stage", "user": "person", "tool": "person", "assistant": "bot"}
_READ = ("bot", "script", "tools", "streams")
NAMES = tool_names(FORMAT, are_portable=False)


def read_request(body: dict[str, Any]) -> ModelRequest:
    """The request of a script."""
    script, tools = body.get("script"), body.get("tools", {})
    if type(script) is not list or type(tools) is not dict:
        raise WireError("script: expected an array, and tools an object")
    calls = CallIdTracker()
    native = {name: value for name, value in body.items() if name not in _READ}
    return ModelRequest(
        messages=tuple(_read_entry(entry, calls) for entry in script),
        model=body.get("bot", ""),
        stream=body.get("streams"),
        tools=tuple(ToolDefinition(name, tool.get("about"), tool.get("takes")) for name, tool in tools.items()),
        native={FORMAT: native} if native else None,
    )


def _read_entry(entry: Any, calls: CallIdTracker) -> Message:
    if type(entry) is not dict or entry.get("voice") not in VOICES:
        raise WireError("script: expected entries with a voice")
    parts: list[Part] = []
    for result in entry.get("results", []):
        call_id, _ = calls.match_result(result["tool"], None)
        status = ToolExecutionStatus.FAILED if result.get("failed") else ToolExecutionStatus.SUCCESS
        parts.append(ToolCallResult(result["tool"], call_id, status, (Text(result["said"]),)))
    if entry["voice"] == "bot":
        calls.start_step()
    parts += [read_line(line, calls) for line in entry.get("lines", [])]
    return Message(VOICES[entry["voice"]], tuple(parts))


def read_line(line: Any, calls: CallIdTracker) -> Any:
    """The part of a line."""
    if line.get("kind") == "words":
        return Text(line["words"])
    if line.get("kind") == "cue":
        arguments = msgspec.json.encode(line["with"]).decode()
        return ToolCallRequest(line["tool"], calls.add_call(line["tool"], None), arguments)
    return Native(FORMAT, line)


def write_request(request: ModelRequest, losses: Losses, options: WriteOptions = DEFAULT_OPTIONS) -> dict[str, Any]:
    """A script that a stage accepts."""
    model = look_up(request.model, FORMAT, options.capabilities)
    script: list[dict[str, Any]] = []
    open_calls: dict[str, str] = {}  # the names of calls, by the id that only the request has
    for index, message in enumerate(request.messages):
        losses.message, losses.part = index, -1
        losses.report_extras(message.native, FORMAT)
        entry: dict[str, Any] = {"voice": _ROLES.get(message.role, "person"), "results": [], "lines": []}
        results = {part.tool_call_id: part for part in message.parts if type(part) is ToolCallResult}
        for call_id in sorted(results, key=lambda it: [*open_calls, it].index(it)):
            result = results[call_id]
            name = result.tool_name or open_calls.get(call_id, "tool")
            failed = {"failed": True} if result.status != ToolExecutionStatus.SUCCESS else {}
            entry["results"].append({"tool": NAMES.to_wire(name), "said": text_of(result.content), **failed})
        for position, part in enumerate(message.parts):
            losses.part = position
            entry["lines"] += [
                write_line(fit_medium(own, model, losses, losses.path())) for own in _own_parts(part, losses)
            ]
        goes_on = bool(script) and script[-1]["voice"] == entry["voice"] != "stage"
        if entry["voice"] == "bot":
            calls = {part.tool_call_id: part.tool_name for part in message.parts if type(part) is ToolCallRequest}
            open_calls = {**open_calls, **calls} if goes_on else calls
        if goes_on:
            script[-1]["results"] += entry["results"]
            script[-1]["lines"] += entry["lines"]
        else:
            script.append(entry)
    losses.message = losses.part = -1
    body: dict[str, Any] = {"bot": request.model, "script": script}
    if request.stream is not None:
        body["streams"] = request.stream
    if request.tools:
        body["tools"] = _write_tools(request, losses)
    return body | losses.take_extras(request.native, FORMAT)


def _write_tools(request: ModelRequest, losses: Losses) -> dict[str, Any]:
    return {
        NAMES.declare(tool.name, f"tools[{place}]", losses): {"about": tool.description, "takes": tool.parameters}
        for place, tool in enumerate(request.tools)
        if isinstance(tool, ToolDefinition)
    }


def _own_parts(part: Any, losses: Losses) -> Sequence[Any]:
    if type(part) is ToolCallResult:
        return ()
    if type(part) is Native and part.origin != FORMAT:
        return readable_parts(part, losses, losses.path(), FORMAT)
    return (part,)


def write_line(part: Any) -> Any:
    """The line of a part."""
    if type(part) is ToolCallRequest:
        arguments = raw_json_object(part.arguments)
        return {"kind": "cue", "tool": NAMES.to_wire(part.tool_name), "with": {} if arguments is None else arguments}
    return part.data if type(part) is Native else {"kind": "words", "words": part.text}


def needs_whole_request(_request: ModelRequest, _new: Sequence[Message]) -> bool:
    """Whether the body depends on the whole conversation: each entry may gain results."""
    return True
