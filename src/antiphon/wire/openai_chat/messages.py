"""The messages of a request, read.

Theory of operation. Reading goes message by message: the plain shapes (text, calls, a result in words) are told by their
keys and cost a few lookups; everything else takes the long way, which keeps what it does not know. A message that is none
of this format's stays whole: `Message("unknown", (Native(FORMAT, it),))`.

Normalisations, with those of the writer: one text part is a string; null, absent and empty content are the same, and written
as "" where null is refused (OC-10); a tool message without `tool_call_id` has an empty one, and a `name` that is empty or not
text is none; a spoken answer is named by its id alone. Whatever else the content of a tool message is (an object, a number), it
is its JSON text: the result of a call must reach the model.
"""

from __future__ import annotations

from typing import Any

from antiphon.parts import Native, Refusal, Text, Thinking, ToolCallRequest, ToolCallResult, ToolExecutionStatus
from antiphon.wire.openai_chat.assistant import read_assistant
from antiphon.wire.openai_chat.calls import DEPRECATED_NATIVE, is_deprecated
from antiphon.wire.openai_chat.content import FORMAT, read_content, read_part, stable_text
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
    role = message.get("role") if type(message) is dict else None
    if role in ("tool", "function"):
        return _read_result(message, place, functions)
    if role is not None and type(message.get("name")) in (str, type(None)):
        if role == "assistant":
            read = _read_assistant(message, place, functions)
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


def _read_result(message: dict[str, Any], place: int, functions: dict[str, str]) -> Message:
    """A result, whatever the message looks like."""
    parts, call_id = _result_parts(message.get("content")), message.get("tool_call_id")
    name = message["name"] if type(message.get("name")) is str else ""
    if message["role"] == "function":
        if name:
            call_id = functions.get(name, f"call_function_{place}")
            result = ToolCallResult(name, call_id, _SUCCESS, parts, native=DEPRECATED_NATIVE)
            return Message("tool", (result,), None, _extras(message, "role", "content", "name"))
        call_id = call_id or f"call_function_{place}"
    if call_id is not None and type(call_id) is not str:
        call_id = stable_text(call_id)
    extras = _extras(message, "role", "content", "name", "tool_call_id")
    return Message("tool", (ToolCallResult(name, call_id or "", _SUCCESS, parts),), None, extras)


def _result_parts(content: Any) -> tuple[Any, ...]:
    """The content of a tool message. What is not content becomes its JSON text."""
    if type(content) is str:
        return (Text(content),)
    if content is None:
        return ()
    if type(content) is not list:
        return (Text(stable_text(content)),)
    return tuple([_result_part(part) for part in content])


def _result_part(part: Any) -> Any:
    if type(part) is not dict or type(part.get("type")) is not str:
        return Text(stable_text(part))
    read = read_part(part)
    if isinstance(read, Thinking):
        return Text(read.text)
    return Text(read.text, native=read.native) if isinstance(read, Refusal) else read
