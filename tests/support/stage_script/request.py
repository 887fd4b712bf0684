"""Requests: `{"bot": model, "script": [{"voice", "results": [results], "lines": [blocks]}], "tools": {name: {about, takes}}}`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from antiphon.errors import WireError
from antiphon.parts import Native, Part, Text, ToolCallRequest, ToolCallResult, ToolExecutionStatus, text_of
from antiphon.wire.capabilities import Capabilities
from antiphon.wire.capabilities.accepted_media import fit_medium
from antiphon.wire.loss import Losses
from antiphon.wire.native_as_text import readable_parts
from antiphon.wire.request import Message, ModelRequest, ToolDefinition
from antiphon.wire.request_writer import ListWriter, RequestWriter
from antiphon.wire.tools.call_ids import CallIdTracker
from antiphon.wire.tools.definitions import raw_json_object
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


class Writer(RequestWriter):
    """Writes a script that a stage accepts."""

    format = FORMAT
    messages: ScriptWriter

    def begin(self) -> None:
        self.messages = ScriptWriter(self.losses, self.model)

    def end_messages(self) -> dict[str, Any]:
        self.losses.message = self.losses.part = -1
        body: dict[str, Any] = {"bot": self.request.model, "script": self.messages.entries}
        if self.request.tools:
            body["tools"] = _write_tools(self.request, self.losses)
        return body

    def write_parameters(self, body: dict[str, Any]) -> None:
        if self.request.stream is not None:
            body["streams"] = self.request.stream
        body |= self.losses.take_extras(self.request.native, FORMAT)


class ScriptWriter(ListWriter):
    """Writes the entries of a script."""

    def __init__(self, losses: Losses, model: Capabilities) -> None:
        self.entries, self.losses = [], losses
        self._model = model
        self._open_calls: dict[str, str] = {}  # the names of calls, by the id that only the request has

    def add(self, index: int, message: Message) -> None:
        losses, script, open_calls = self.losses, self.entries, self._open_calls
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
            entry["lines"] += [write_line(fit_medium(own, self._model, losses)) for own in _own_parts(part, losses)]
        goes_on = bool(script) and script[-1]["voice"] == entry["voice"] != "stage"
        if entry["voice"] == "bot":
            calls = {part.tool_call_id: part.tool_name for part in message.parts if type(part) is ToolCallRequest}
            self._open_calls = {**open_calls, **calls} if goes_on else calls
        if goes_on:
            last = script[-1]
            script[-1] = {**last, **{name: last[name] + entry[name] for name in ("results", "lines")}}
        else:
            script.append(entry)


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
        return readable_parts(part, losses, FORMAT)
    return (part,)


def write_line(part: Any) -> Any:
    """The line of a part."""
    if type(part) is ToolCallRequest:
        arguments = raw_json_object(part.arguments)
        return {"kind": "cue", "tool": NAMES.to_wire(part.tool_name), "with": {} if arguments is None else arguments}
    return part.data if type(part) is Native else {"kind": "words", "words": part.text}
