"""Messages, instructions and tools as JSON of the GenAI conventions: the content that spans have on request.

A message is a role and parts, a part has a type and its content. Inline media are described by type and size; their bytes do not
belong into a trace.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from antiphon.history.entries import ContextEntry, ContextEntryRole
from antiphon.json_text import NOT_JSON
from antiphon.parts import (
    Audio,
    Document,
    Image,
    Native,
    Part,
    Refusal,
    Text,
    Thinking,
    ToolCallRequest,
    ToolCallResult,
)
from antiphon.telemetry.attributes import finish_reason
from antiphon.wire.request import ToolDefinition

_ROLES = {
    ContextEntryRole.MODEL_INPUT: "user",
    ContextEntryRole.MODEL_OUTPUT: "assistant",
    ContextEntryRole.TOOL_RESULT: "tool",
}
_MODALITIES: dict[type, str] = {Image: "image", Audio: "audio", Document: "document"}


def input_messages(context: Iterable[ContextEntry]) -> str:
    """The messages of a context, without the system instruction."""
    messages = [_message(entry) for entry in context if entry.role is not ContextEntryRole.SYSTEM]
    return to_json(messages)


def system_instructions(context: Iterable[ContextEntry]) -> str:
    """The system instruction of a context as parts; empty if there is none."""
    parts = [part for entry in context if entry.role is ContextEntryRole.SYSTEM for part in map(to_part, entry.content)]
    return to_json(parts) if parts else ""


def output_messages(parts: Sequence[Part], stop_reason: str) -> str:
    """One answer as the list of messages that the conventions want."""
    message = {
        "role": "assistant",
        "parts": [to_part(part) for part in parts],
        "finish_reason": finish_reason(stop_reason) or "stop",
    }
    return to_json([message])


def tool_definitions(tools: Iterable[ToolDefinition]) -> str:
    """The tools a model was offered."""
    return to_json(
        [
            {"type": "function", "name": tool.name, "description": tool.description, "parameters": tool.parameters}
            for tool in tools
        ]
    )


def result_content(result: ToolCallResult) -> str:
    """What a tool returned: its text, or its parts if there is more than text."""
    if all(type(part) is Text for part in result.content):
        return result.result_markdown
    return to_json([to_part(part) for part in result.content])


def to_part(part: Part) -> dict[str, Any]:
    """One part in the spelling of the conventions."""
    match part:
        case Text(text=text):
            return {"type": "text", "content": text}
        case Thinking(text=text):
            return {"type": "reasoning", "content": text}
        case Refusal(text=text):
            return {"type": "text", "content": text, "refusal": True}
        case ToolCallRequest():
            return {
                "type": "tool_call",
                "id": part.tool_call_id,
                "name": part.tool_name,
                "arguments": _arguments(part),
            }
        case ToolCallResult():
            return {"type": "tool_call_response", "id": part.tool_call_id, "response": result_content(part)}
        case Native(origin=origin):
            return {"type": "native", "origin": origin}
        case Document(text=text) if text:
            return {"type": "text", "content": text}
        case _:
            return _media(part)


def _media(part: Image | Audio | Document) -> dict[str, Any]:
    about = {"modality": _MODALITIES[type(part)], "mime_type": part.media_type or None}
    if part.url and not part.url.startswith("data:"):
        return {"type": "uri", **about, "uri": part.url}
    if part.file_id:
        return {"type": "file", **about, "file_id": part.file_id}
    return {"type": "blob", **about, "content": "", "size": len(part.data or part.url) * 3 // 4}


def _arguments(call: ToolCallRequest) -> msgspec.Raw | str:
    """The arguments as JSON, or as the text the model wrote if they are none."""
    try:
        return msgspec.json.decode(call.arguments, type=msgspec.Raw)
    except NOT_JSON:
        return call.arguments


def _message(entry: ContextEntry) -> dict[str, Any]:
    parts = [to_part(part) for part in entry.content]
    if entry.live_screen:
        parts.append({"type": "text", "content": entry.live_screen})
    return {"role": _ROLES[entry.role], "parts": parts}


def to_json(value: Any) -> str:
    """The value as JSON. One that cannot be written ends no call."""
    try:
        return msgspec.json.encode(value).decode()
    except NOT_JSON as error:
        return msgspec.json.encode(f"(not written: {type(error).__name__})").decode()
