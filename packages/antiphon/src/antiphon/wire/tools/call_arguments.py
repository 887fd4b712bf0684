"""Arguments of tool calls: raw JSON objects, and the changes that a tool's schema needs.

Formats that hold arguments as an object embed the model's text unparsed, so it only has to be known to be an object. Where a
format has no freeform tools, a freeform tool becomes a function with its text as the only property. A schema that is not one of
an object is wrapped, and property names that a format refuses are replaced: `argument_writer` changes the arguments of earlier
calls in the same way, `argument_restorer` those of an answer back.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Container, Sequence
from functools import partial
from typing import Any

import msgspec
from msgspec import Struct, structs

from antiphon.parts import Native, ToolCallRequest
from antiphon.wire.loss import Loss, Losses
from antiphon.wire.request import Message, ToolDefinition
from antiphon.wire.schema import must_be_wrapped
from antiphon.wire.tools.definitions import renamed_keys

EMPTY_ARGUMENTS = ("{}", "", "null")
"""What models write for a call without arguments."""
_WHITESPACE = " \t\r\n"
OBJECT_START = "{" + _WHITESPACE
"""First characters of a text that may be a JSON object. The empty string is a substring, so empty text counts too."""
_decode = msgspec.json.Decoder().decode
_skip_value = msgspec.json.Decoder(msgspec.Raw).decode


def raw_json_object(arguments: str) -> msgspec.Raw | None:
    """The text as JSON to embed in a body, or None if it is not a JSON object. It is scanned, not decoded."""
    try:
        raw = _skip_value(arguments)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    return raw if arguments[0] == "{" or arguments.lstrip(_WHITESPACE)[0] == "{" else None


def parse_json_object(text: str) -> dict[str, Any] | None:
    """The JSON object in a text; None if it is anything else."""
    if text[:1] not in OBJECT_START or not text.lstrip(_WHITESPACE).startswith("{"):
        return None
    try:
        value = _decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    return value if type(value) is dict else None


def arguments_object(call: ToolCallRequest, losses: Losses, rule: str) -> Any:
    """The arguments of a call as an object, unparsed where they are one; text that is not one is in `_raw`."""
    text = call.arguments
    arguments: Any = {"input": text} if call.freeform else raw_json_object(text)
    if arguments is not None:
        return arguments
    if text.strip() in EMPTY_ARGUMENTS:
        return {}
    report_raw_arguments(losses, losses.path(), rule)
    return {"_raw": text}


def report_raw_arguments(losses: list[Loss], path: str, rule: str) -> None:
    """Report arguments that are sent as `{"_raw": text}`, because a format or host requires an object."""
    source = f" ({rule})" if rule else ""
    reason = f'arguments are not a JSON object; sent as {{"_raw": text}}{source}'
    losses.append(Loss(f"{path}.arguments", "arguments", reason))


class _FreeformInput(Struct):
    input: str


def unwrap_freeform(arguments: str) -> str:
    """The text of a freeform call made as a function with one `input`; other text unchanged."""
    try:
        return msgspec.json.decode(arguments, type=_FreeformInput).input
    except msgspec.DecodeError:
        return arguments


def argument_restorer(tool: ToolDefinition) -> Callable[[str], str] | None:
    """What undoes the changes that a format may make to the arguments of a tool; None if there are none."""
    if tool.freeform:
        return unwrap_freeform
    if tool.parameters is None:
        return None
    if must_be_wrapped(tool.parameters):
        return _unwrap_value
    keys = renamed_keys(tool.parameters)
    return partial(_replace_keys, {sent: name for name, sent in keys.items()}) if keys else None


def argument_writer(tool: ToolDefinition) -> Callable[[str], str] | None:
    """What makes the arguments of earlier calls fit a schema with other property names; None if those are the tool's own."""
    if tool.freeform or tool.parameters is None:
        return None
    if must_be_wrapped(tool.parameters):
        return _wrap_value
    keys = renamed_keys(tool.parameters)
    return partial(_replace_keys, keys) if keys else None


def find_wrapped_tools(tools: Sequence[ToolDefinition | Native]) -> frozenset[str]:
    """The names of the tools whose schema is written wrapped, because its root is not an object."""
    return frozenset(
        tool.name
        for tool in tools
        if type(tool) is ToolDefinition and tool.parameters is not None and must_be_wrapped(tool.parameters)
    )


def with_wrapped_calls(message: Message, wrapped: Container[str]) -> Message:
    """The message with arguments that fit such schemas."""
    parts = [
        structs.replace(part, arguments=_wrap_value(part.arguments))
        if type(part) is ToolCallRequest and part.tool_name in wrapped and not part.freeform
        else part
        for part in message.parts
    ]
    return message if all_identical(tuple(parts), message.parts) else structs.replace(message, parts=tuple(parts))


def _wrap_value(arguments: str) -> str:
    try:
        value = msgspec.json.decode(arguments)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return arguments
    is_wrapped = isinstance(value, dict) and value.keys() == {"value"}
    return arguments if is_wrapped else msgspec.json.encode({"value": value}).decode()


def _unwrap_value(arguments: str) -> str:
    value = parse_json_object(arguments)
    if value is None or value.keys() != {"value"}:
        return arguments
    return msgspec.json.encode(value["value"]).decode()


def _replace_keys(keys: dict[str, str], arguments: str) -> str:
    value = parse_json_object(arguments)
    if value is None or value.keys().isdisjoint(keys):
        return arguments
    return msgspec.json.encode({keys.get(key, key): inner for key, inner in value.items()}).decode()


def all_identical(left: tuple[object, ...], right: tuple[object, ...]) -> bool:
    return all(map(operator.is_, left, right))
