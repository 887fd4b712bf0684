"""Requests of OpenAI Responses.

`instructions` is a leading system message. Writing, a leading system message of one text becomes `instructions` again, unless it
was an item before or there is nothing else to send; every other system and developer message is an item, allowed anywhere.

Normalisations: null is absent; so are an empty `model` and empty lists of `tools`, `input`, `annotations` and `logprobs`; a
string is one text part, and `input` as a string one user message; `type: "message"` may be omitted; absent `arguments` are `{}`,
an empty list of `output` parts means no text. Ids that Antiphon generated are not sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from antiphon.errors import WireError
from antiphon.parts import Native, Text
from antiphon.wire.capabilities import look_up
from antiphon.wire.format import DEFAULT_OPTIONS, WriteOptions
from antiphon.wire.loss import Loss, lose_native
from antiphon.wire.openai_responses import FORMAT, SPEC
from antiphon.wire.openai_responses.limits import PARAMETERS
from antiphon.wire.openai_responses.messages import ItemReader, MessageListWriter
from antiphon.wire.openai_responses.namespaces import TOOL_NAMESPACES, has_own_tools
from antiphon.wire.openai_responses.parameters import PARAMETER_TABLE, format_kind, read_parameters, write_parameters
from antiphon.wire.openai_responses.shapes import ITEMS, Item
from antiphon.wire.openai_responses.tools import write_tool_choice, write_tools
from antiphon.wire.request import Message, ModelRequest, asks_for_json_object
from antiphon.wire.rules import json_type_name
from antiphon.wire.shapes import RequestReader
from antiphon.wire.tools.call_arguments import wrap_earlier_calls
from antiphon.wire.vendors.openai import (
    OPENAI,
    SHARED_PARAMETERS,
    mentions_json,
    native_extras,
    texts_of,
)

JSON_INSTRUCTION = "Answer with a JSON object."


def _entries_of(items: Any) -> list[Any]:
    if items is not None and not isinstance(items, str | list):
        raise WireError(f"input: expected a string or an array, got {json_type_name(items)}")
    return [{"role": "user", "content": items}] if isinstance(items, str) else items or []


def _build_request(entries: list[Any], unread: dict[str, Any]) -> ModelRequest:
    """The request of items and the rest of their body."""
    reader = ItemReader(unread.get("instructions"))
    messages = reader.read(entries)
    fields: dict[str, Any] = {}
    extras = PARAMETER_TABLE.read(unread, fields)
    shared = {name: extras.pop(name) for name in list(extras) if name in SHARED_PARAMETERS}
    if type(extras.get("instructions")) is str:
        del extras["instructions"]
    if extras:
        read_parameters(extras, fields)
    identifier = shared.get("safety_identifier")
    if type(identifier) is str and fields.setdefault("user", identifier) == identifier and "user" in unread:
        extras["user"] = unread["user"]  # set twice: the field holds the other
    native = native_extras(FORMAT, extras, shared)
    if reader.has_tools or any(type(tool) is Native and has_own_tools(tool.data) for tool in fields.get("tools", ())):
        native = {**(native or {}), TOOL_NAMESPACES: {}}
    return ModelRequest(messages=messages, native=native, **fields)


READER = RequestReader("input", Item, PARAMETERS, ITEMS.fit, _entries_of, _build_request)


def write_request(request: ModelRequest, losses: list[Loss], options: WriteOptions = DEFAULT_OPTIONS) -> dict[str, Any]:
    """A body that OpenAI Responses accepts."""
    capabilities = look_up(request.model, FORMAT, options.capabilities)
    native = request.native or {}
    body: dict[str, Any] = {"model": request.model} if request.model else {}
    body.update(native.get(OPENAI, {}))
    body.update(native.get(FORMAT, {}))
    lose_native(losses, "native", native, FORMAT, OPENAI)
    _write_messages(request, body, MessageListWriter(losses, capabilities), losses)
    if request.tools:
        tools = write_tools(request.tools, losses)
        if tools:
            body["tools"] = tools
    write_tool_choice(request, body, losses)
    write_parameters(request, body, losses, capabilities)
    if not body["input"] and _is_continued(body):
        del body["input"]
    return body


def _write_messages(request: ModelRequest, body: dict[str, Any], writer: MessageListWriter, losses: list[Loss]) -> None:
    messages = wrap_earlier_calls(request)
    instructions = _instructions(messages[0]) if messages else None
    writer.write(messages, 0 if instructions is None else 1)
    body["input"] = items = writer.items
    wants_json = request.output_format is not None and format_kind(request.output_format) == "json_object"
    if instructions is not None:
        # `instructions` do not count as input (OR-01), and are not searched for the word "json" (OR-17).
        is_searched = wants_json and mentions_json(instructions.text) and not any(map(mentions_json, texts_of(items)))
        if is_searched or (not items and not _is_continued(body)):
            items.insert(0, {"role": "system", "content": instructions.text})
        else:
            body["instructions"] = instructions.text
        for path, extras in (("messages[0].parts[0]", instructions.native), ("messages[0]", messages[0].native)):
            lose_native(losses, path, extras, FORMAT)
    if wants_json and not _is_continued(body) and not any(map(mentions_json, texts_of(items))):
        items.insert(0, {"role": "developer", "content": JSON_INSTRUCTION})
    if not items and not _is_continued(body):
        items.append({"role": "user", "content": ""})  # everything was dropped, but input is required (OR-01)


def _instructions(message: Message) -> Text | None:
    """The text of a leading system message that can be `instructions`."""
    if message.role != "system" or len(message.parts) != 1 or message.name is not None:
        return None
    text = message.parts[0]
    if type(text) is not Text:
        return None
    for native in (message.native, text.native):
        if native and (FORMAT in native or OPENAI in native):
            return None
    return text


def _is_continued(body: dict[str, Any]) -> bool:
    return any(body.get(name) is not None for name in SPEC.server_state)


def needs_whole_request(request: ModelRequest, _new: Sequence[Message]) -> bool:
    """Whether the body depends on the whole conversation."""
    return asks_for_json_object(request)
