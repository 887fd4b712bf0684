"""Chat Completions requests: `read_request` and `write_request`.

The messages go to `messages`, tools and the choice among them to `tools`, everything else to `parameters`. Each module reads and
writes, keeps unknown fields as native extras, and lists its normalisations in its header. The keys of a body are written in a
fixed order, so that the same request always gives the same bytes; the dialect decides where hosts differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from antiphon.errors import WireError
from antiphon.wire.capabilities import look_up
from antiphon.wire.format import DEFAULT_OPTIONS, WriteOptions
from antiphon.wire.loss import Loss, Losses
from antiphon.wire.openai_chat import FORMAT
from antiphon.wire.openai_chat.dialects import get_dialect
from antiphon.wire.openai_chat.limits import PARAMETERS
from antiphon.wire.openai_chat.messages import MessageListWriter, read_messages
from antiphon.wire.openai_chat.parameters import (
    HOST_PARAMETERS,
    read_parameters,
    thinking_requested,
    write_extras,
    write_parameters,
)
from antiphon.wire.openai_chat.shapes import MESSAGES, MessageShape
from antiphon.wire.openai_chat.tools import (
    read_function_choice,
    read_functions,
    read_tool_choice,
    read_tools,
    write_tools,
)
from antiphon.wire.request import Message, ModelRequest, asks_for_json_object
from antiphon.wire.rules import json_type_name
from antiphon.wire.shapes import RequestReader
from antiphon.wire.tools.call_arguments import wrap_earlier_calls
from antiphon.wire.vendors import openai
from antiphon.wire.vendors.openai import OPENAI, SHARED_PARAMETERS
from antiphon.wire.vendors.openai_parameters import drop_refused_switch

_JSON_NOTE = {"role": "system", "content": "Answer with a JSON object."}


def _entries_of(messages: Any) -> list[Any]:
    if type(messages) is not list:
        raise WireError(f"messages: expected an array, got {json_type_name(messages)}")
    return messages


def _build_request(entries: list[Any], unread: dict[str, Any]) -> ModelRequest:
    """The request of messages and the rest of their body."""
    fields: dict[str, Any] = {"messages": tuple(read_messages(entries))}
    native = read_parameters(unread, fields)
    if native:
        _read_tools(fields, native)
        shared = {key: native.pop(key) for key in SHARED_PARAMETERS if key in native}
        if shared or native:
            fields["native"] = {**({OPENAI: shared} if shared else {}), **({FORMAT: native} if native else {})}
    return ModelRequest(**fields)


def _read_tools(fields: dict[str, Any], native: dict[str, Any]) -> None:
    tools, functions = native.get("tools"), native.get("functions")
    declared: list[Any] = []
    if type(tools) is list:
        declared.extend(read_tools(native.pop("tools")))
    if type(functions) is list:
        read = read_functions(functions)
        if read is not None:
            del native["functions"]
            declared.extend(read)
            if not tools and "parallel_tool_calls" not in fields:
                fields["parallel_tool_calls"] = False  # an answer in this shape has one call
    fields["tools"] = tuple(declared)
    choice = read_tool_choice(native.get("tool_choice"))
    if choice is not None:
        fields["tool_choice"] = choice
        del native["tool_choice"]
    elif "tool_choice" not in native and "functions" not in native:
        choice = read_function_choice(native.get("function_call"))
        if choice is not None:
            fields["tool_choice"] = choice
            del native["function_call"]


def write_request(request: ModelRequest, losses: Losses, options: WriteOptions = DEFAULT_OPTIONS) -> dict[str, Any]:
    """A body that the host accepts; what it cannot express is appended to `losses`."""
    host = get_dialect(options.dialect or "openai")
    body: dict[str, Any] = {}
    if request.model:
        body["model"] = request.model
    capabilities = look_up(request.model, FORMAT, options.capabilities)
    accepts_system = capabilities.system_messages != "none"
    thinking_enabled = thinking_requested(request.reasoning)
    writer = MessageListWriter(
        losses, host, capabilities, accepts_system=accepts_system, thinking_enabled=thinking_enabled
    )
    earlier = wrap_earlier_calls(request) if host.enforces_schemas else request.messages
    body["messages"] = messages = writer.write(earlier)
    if not messages:
        messages.append({"role": "user", "content": ""})
        losses.append(Loss("messages", "no messages", "at least one message is required; added an empty one (OC-01)"))
    write_tools(request, body, losses, host)
    drop_refused_switch(body, capabilities, losses)
    write_parameters(request, body, losses, host, capabilities)
    write_extras(request, body, losses, host, capabilities)
    if asks_for_json_object(request) and not _mentions_json_early(messages):
        messages.insert(0, _JSON_NOTE if accepts_system else {**_JSON_NOTE, "role": "user"})  # OC-24
    return body


def _mentions_json_early(messages: list[Any]) -> bool:
    """Whether a message up to the first user's mentions JSON: later messages may not change the beginning (L9)."""
    for message in messages:
        plain = msgspec.to_builtins(message)  # its parts may be structs too
        if any(map(openai.mentions_json, openai.texts_of([plain]))):
            return True
        if type(plain) is dict and plain.get("role") == "user":
            return False
    return False


READER = RequestReader(
    "messages", MessageShape, {*PARAMETERS, *HOST_PARAMETERS}, MESSAGES.fit, _entries_of, _build_request
)


def needs_whole_request(request: ModelRequest, _new: Sequence[Message]) -> bool:
    """Whether the body depends on the whole conversation."""
    return asks_for_json_object(request)
