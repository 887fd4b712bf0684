"""Content blocks, read; and calls, written: what requests, responses and streams share.

`read_block` reads a block of a request, `read_output_block` one of an answer; what is not a part of ours, whatever it is,
becomes a `Native` part and goes back as it came. Thinking is signed or it is not: an empty signature is none.

The input of a call is an object here and text in a part. Going in it is the compact JSON of the object; going out the text is
put into the body as it is, once it is known to be an object. What is not one becomes `{"_raw": text}` and a loss, a lone
surrogate (which the API refuses) a replacement character and a loss, and no text at all, or `null`, the empty object.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import msgspec

from antiphon.parts import (
    Document,
    Image,
    Native,
    Part,
    ResultPart,
    Text,
    Thinking,
    ToolCallRequest,
    ToolCallResult,
    ToolExecutionStatus,
)
from antiphon.wire.anthropic.media import read_document, read_image
from antiphon.wire.anthropic.native import FORMAT, unread_fields
from antiphon.wire.loss import Loss
from antiphon.wire.tool_calls import IdMapper, raw_json_object

EMPTY_ARGUMENTS = ("{}", "", "null")
IDS = IdMapper(r"[a-zA-Z0-9_-]{1,64}", prefix="toolu_")

_encode = msgspec.json.Encoder().encode
SUCCESS, FAILED = ToolExecutionStatus.SUCCESS, ToolExecutionStatus.FAILED
_SURROGATES = re.compile("[\ud800-\udfff]")
_TEXT_FIELDS = frozenset({"type", "text"})
_THINKING_FIELDS = frozenset({"type", "thinking", "signature"})
_CALL_FIELDS = frozenset({"type", "id", "name", "input"})
_RESULT_FIELDS = frozenset({"type", "tool_use_id", "content", "is_error"})


def read_text(block: dict[str, Any]) -> Text | None:
    text = block.get("text")
    return Text(text, native=unread_fields(block, _TEXT_FIELDS)) if type(text) is str else None


def read_thinking(block: dict[str, Any]) -> Thinking | None:
    text, signature = block.get("thinking"), block.get("signature")
    if type(text) is not str or (signature is not None and type(signature) is not str):
        return None
    native = unread_fields(block, _THINKING_FIELDS)
    if signature:
        native = {FORMAT: {"signature": signature, **(native[FORMAT] if native else {})}}
    return Thinking(text, native=native)


def read_call(block: dict[str, Any]) -> ToolCallRequest | None:
    call_id, name, value = block.get("id"), block.get("name"), block.get("input")
    if type(call_id) is not str or type(name) is not str:
        return None
    if type(value) is str:
        arguments = value  # a proxy that forgot to parse it
    elif value:
        try:
            arguments = _encode(value).decode()
        except (RecursionError, UnicodeError):
            return None
    else:
        arguments = "{}"
    return ToolCallRequest(name, call_id, arguments, native=unread_fields(block, _CALL_FIELDS))


def read_result(block: dict[str, Any]) -> ToolCallResult | None:
    call_id, content_value, failed = block.get("tool_use_id"), block.get("content"), block.get("is_error")
    if type(call_id) is not str or (failed is not None and type(failed) is not bool):
        return None
    content: tuple[ResultPart, ...]
    if type(content_value) is str:
        content = (Text(content_value),)
    elif content_value is None:
        content = ()
    elif type(content_value) is list:
        content = tuple([read_result_part(part) for part in content_value])
    else:
        return None
    status = FAILED if failed else SUCCESS
    return ToolCallResult("", call_id, status, content, native=unread_fields(block, _RESULT_FIELDS))


def read_result_part(block: Any) -> ResultPart:
    part = read_block(block)
    return part if isinstance(part, Text | Image | Document) else Native(FORMAT, block)


_READERS: dict[str, Callable[[dict[str, Any]], Part | None]] = {
    "text": read_text,
    "tool_use": read_call,
    "tool_result": read_result,
    "thinking": read_thinking,
    "image": read_image,
    "document": read_document,
}


def read_block(block: Any) -> Part:
    """A block of a request as a part; as `Native` if it is none we know."""
    kind = block.get("type") if type(block) is dict else None
    reader = _READERS.get(kind) if type(kind) is str else None
    return (reader(block) if reader is not None else None) or Native(FORMAT, block)


def read_output_block(block: Any) -> Text | Thinking | ToolCallRequest | Native:
    """A block of an answer as a part: models say text, think and call; everything else is the provider's own."""
    part = read_block(block)
    return part if isinstance(part, Text | Thinking | ToolCallRequest) else Native(FORMAT, block)


def input_from_arguments(call: ToolCallRequest) -> Any:
    """The arguments of a call as the value of `input`, or None if they need mending first."""
    text = call.arguments
    if call.freeform:
        return {"input": text}
    if text in EMPTY_ARGUMENTS:
        return {}
    return raw_json_object(text)


def repair_input(call: ToolCallRequest, path: str, losses: list[Loss]) -> Any:
    """Arguments that are no plain object, as the value of `input`."""
    text = call.arguments
    if text.strip() in EMPTY_ARGUMENTS:
        return {}
    try:
        value = json.loads(text)
        written = json.dumps(value, ensure_ascii=False, allow_nan=False) if type(value) is dict else ""
    except (ValueError, RecursionError):
        written = ""
    if written:
        losses.append(Loss(f"{path}.arguments", "characters", "the API refuses lone surrogates: they were replaced"))
        return msgspec.Raw(_SURROGATES.sub("\ufffd", written))
    why = "the input of a call must be an object (AN-12): the text is in `_raw`"
    losses.append(Loss(f"{path}.arguments", "arguments that are no object", why))
    return {"_raw": _SURROGATES.sub("\ufffd", text)}
