"""The messages of a request, read.

Theory of operation. Reading goes message by message: the plain shapes (text, calls, a result in words) are told by their
keys and cost a few lookups; everything else takes the long way, which keeps what it does not know. A message that is none
of this format's stays whole: `Message("unknown", (Native(FORMAT, it),))`.

Normalisations, with those of the writer: one text part is a string; null, absent and empty content are the same, and written
as "" where null is refused (OC-10); a tool message without `tool_call_id` has an empty one; a spoken answer is named by its
id alone.
"""

from __future__ import annotations

from typing import Any

from antiphon.parts import Native, Refusal, Text, Thinking, ToolCallRequest, ToolCallResult, ToolExecutionStatus
from antiphon.wire.openai_chat.assistant import read_assistant
from antiphon.wire.openai_chat.calls import DEPRECATED_NATIVE, is_deprecated
from antiphon.wire.openai_chat.content import FORMAT, read_content
from antiphon.wire.request import Message

_SUCCESS = ToolExecutionStatus.SUCCESS


def read_messages(messages: list[Any]) -> tuple[Message, ...]:
    """The messages of a body, in their order and grouping."""
    read: list[Message] = []
    add = read.append
    functions: dict[str, str] = {}
    for place, message in enumerate(messages):
        if type(message) is dict:
            role, content, size = message.get("role"), message.get("content"), len(message)
            if role == "tool":
                call_id = message.get("tool_call_id")
                if type(content) is str and type(call_id) is str:
                    name = message.get("name", "") if size == 4 else ""
                    if size == 3 or (name and type(name) is str):
                        add(Message("tool", (ToolCallResult(name, call_id, _SUCCESS, (Text(content),)),)))
                        continue
            elif type(content) is str and size == 2 and (role == "user" or role == "assistant" or role == "system"):
                add(Message(role, (Text(content),)))
                continue
            elif role == "assistant" and "tool_calls" in message:
                parts = _read_plain_calls(message, content, size)
                if parts is not None:
                    add(Message("assistant", parts))
                    continue
        add(_read_message(message, place, functions))
    return tuple(read)


def _read_plain_calls(message: dict[str, Any], content: Any, size: int) -> tuple[Any, ...] | None:
    calls = message["tool_calls"]
    if type(calls) is not list or size != 2 + ("content" in message) or not calls:
        return None
    parts: list[Any] = []
    if content is not None:
        if type(content) is not str:
            return None
        parts.append(Text(content))
    for call in calls:
        if type(call) is not dict or len(call) != 3 or call.get("type") != "function":
            return None
        called, call_id = call.get("function"), call.get("id")
        if type(called) is not dict or len(called) != 2 or type(call_id) is not str:
            return None
        name, arguments = called.get("name"), called.get("arguments")
        if type(name) is not str or type(arguments) is not str:
            return None
        parts.append(ToolCallRequest(name, call_id, arguments))
    return tuple(parts)


def _read_message(message: Any, place: int, functions: dict[str, str]) -> Message:
    read = None
    if type(message) is dict and type(message.get("name")) in (str, type(None)):
        role = message.get("role")
        if role == "assistant":
            read = _read_assistant(message, place, functions)
        elif role in ("tool", "function"):
            read = _read_result(message, place, functions)
        elif role in ("user", "system", "developer"):
            parts = _content_parts(message.get("content"))
            if parts is not None:
                native = _extras(message, "role", "content", "name")
                read = Message(role, tuple(parts), message.get("name"), native)
    return read or Message("unknown", (Native(FORMAT, message),))


def _extras(message: dict[str, Any], *known: str) -> dict[str, dict[str, Any]] | None:
    own = {key: value for key, value in message.items() if key not in known and value is not None}
    return {FORMAT: own} if own else None


def _read_assistant(message: dict[str, Any], place: int, functions: dict[str, str]) -> Message | None:
    read = read_assistant(message, place)
    if read is None:
        return None
    name = read.extras.pop("name", None)
    for part in read.parts:
        if type(part) is ToolCallRequest and is_deprecated(part.native):
            functions[part.tool_name] = part.tool_call_id
    return Message("assistant", tuple(read.parts), name, {FORMAT: read.extras} if read.extras else None)


def _content_parts(content: Any) -> list[Any] | None:
    if type(content) is str:
        return [Text(content)]
    if content is None:
        return []
    return read_content(content) if type(content) is list else None


def _read_result(message: dict[str, Any], place: int, functions: dict[str, str]) -> Message | None:
    parts, name = _content_parts(message.get("content")), message.get("name")
    if parts is None or any(type(part) in (Refusal, Thinking) for part in parts):
        return None
    if message["role"] == "function":
        if not name:
            return None
        call_id = functions.get(name, f"call_function_{place}")
        result = ToolCallResult(name, call_id, _SUCCESS, tuple(parts), native=DEPRECATED_NATIVE)
        return Message("tool", (result,), None, _extras(message, "role", "content", "name"))
    call_id = message.get("tool_call_id", "")
    if type(call_id) is not str or name == "":
        return None
    result = ToolCallResult(name or "", call_id, _SUCCESS, tuple(parts))
    return Message("tool", (result,), None, _extras(message, "role", "content", "name", "tool_call_id"))
