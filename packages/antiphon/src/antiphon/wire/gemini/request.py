"""Requests: a body of generateContent or streamGenerateContent, read and written.

The model and whether to stream are in the URL: a `model` in a body is read but never written. The system prompt
(`systemInstruction`) is a leading `system` message. A content is a message; a result is a part of a user message.

Normalised, beside what `content` and `tools` list: a missing role is `user`; one object counts as a list of one; adjacent
contents of one role are merged, results first; contents without parts are dropped; an empty `generationConfig`, `toolConfig`,
`thinkingConfig` or `functionCallingConfig` is absent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from antiphon.parts import Native, NativeExtras, Part, Refusal, Text, Thinking
from antiphon.wire.capabilities import look_up
from antiphon.wire.format import DEFAULT_OPTIONS, WriteOptions
from antiphon.wire.gemini import FORMAT
from antiphon.wire.gemini.content import ContentWriter, read_value
from antiphon.wire.gemini.messages import (
    CONTENT_FIELDS,
    read_contents,
    report_message_extras,
    write_turns,
)
from antiphon.wire.gemini.native import field_spellings, gemini_extras, native_extras, require_list, split_fields
from antiphon.wire.gemini.parameters import GENERATION_PREFIX, read_generation, write_generation
from antiphon.wire.gemini.shapes import (
    NOT_WITH_CACHED_CONTENT,
    PARAMETER_SPELLINGS,
    PARAMETERS,
    SERVICE_TIERS,
    ContentShape,
    fit_content,
)
from antiphon.wire.gemini.tools import read_tool_choice, read_tools, write_tool_choice, write_tools
from antiphon.wire.loss import Loss, lose_native
from antiphon.wire.request import Message, ModelRequest, asks_for_json_object, count_leading_system
from antiphon.wire.shapes import RequestReader
from antiphon.wire.tools.call_arguments import wrap_earlier_calls
from antiphon.wire.tools.call_ids import CallIdTracker
from antiphon.wire.vendors.google import list_marks, spelling_mark, with_prefix, without_prefix
from antiphon.wire.vendors.google_parameters import service_tier

_TOOL_CONFIG_FIELDS = field_spellings(("functionCallingConfig",))
_TOOL_PREFIX = "toolConfig."
_SYSTEM_ROLE = "role:"


def _entries_of(contents: Any) -> list[Any]:
    return require_list(contents, "contents")


def _build(entries: list[Any], unread: dict[str, Any]) -> ModelRequest:
    return _build_request(read_contents(entries), *split_fields(unread, PARAMETER_SPELLINGS))


READER = RequestReader("contents", ContentShape, PARAMETERS, fit_content, _entries_of, _build)


def _build_request(messages: Sequence[Message], fields: dict[str, Any], native: dict[str, Any]) -> ModelRequest:
    values: dict[str, Any] = {}
    marks: NativeExtras = {}
    system = _read_system(fields.pop("systemInstruction", None), native)
    for name, value in fields.items():
        if name == "generationConfig" and type(value) is dict:
            read_generation(value, values, native, marks)
        elif name == "tools" and type(value) in (list, dict):
            values["tools"] = read_tools(value)
        elif name == "toolConfig" and type(value) is dict:
            _read_tool_config(value, values, native)
        elif name == "model" and type(value) is str:
            values["model"] = value
        elif name == "serviceTier" and type(value) is str and value in SERVICE_TIERS:
            values["service_tier"] = value
        elif name == "store" and type(value) is bool:
            values["store"] = value
        else:  # specific to Gemini, or malformed
            native[name] = value
    leading = () if system is None else (system,)
    return ModelRequest(messages=(*leading, *messages), native=native_extras(native, marks), **values)


def _read_tool_config(config: dict[str, Any], values: dict[str, Any], native: dict[str, Any]) -> None:
    fields, extras = split_fields(config, _TOOL_CONFIG_FIELDS)
    calling = fields.get("functionCallingConfig")
    if calling is not None and calling != {}:
        choice = read_tool_choice(calling)
        if choice is None:
            extras["functionCallingConfig"] = calling
        else:
            values["tool_choice"] = choice
    native |= with_prefix(_TOOL_PREFIX, extras)


def _read_system(system: Any, native: dict[str, Any]) -> Message | None:
    """The system prompt; other parts than text stay native, since Gemini rejects them there (GM-15)."""
    if type(system) is str:
        return Message("system", (Text(system),))
    if type(system) is not dict:
        if system is not None:
            native["systemInstruction"] = system
        return None
    fields, extras = split_fields(system, CONTENT_FIELDS)
    role, parts = fields.get("role"), fields.get("parts")
    marks = spelling_mark(_SYSTEM_ROLE + role) if type(role) is str and role else None
    if role is not None and type(role) is not str:
        extras["role"] = role
    calls = CallIdTracker()
    raw_parts = parts if type(parts) is list else [] if parts is None else [parts]
    read = [(part, read_value(part, calls)) for part in raw_parts]
    kept: list[Part] = [
        own_part if type(own_part) in (Text, Thinking) else Native(FORMAT, part) for part, own_part in read
    ]
    return Message("system", tuple(kept), native=native_extras(extras, marks))


def write_request(request: ModelRequest, losses: list[Loss], options: WriteOptions = DEFAULT_OPTIONS) -> dict[str, Any]:
    """A body that Gemini accepts. `options.model` is the name in the URL, if it is not `request.model`."""
    capabilities = look_up(options.model or request.model, FORMAT, options.capabilities)
    native = gemini_extras(request.native)
    writer = ContentWriter(losses, capabilities)
    body: dict[str, Any] = {}
    tools = write_tools(request.tools, writer)
    messages = wrap_earlier_calls(request)
    leading = count_leading_system(messages)
    if leading:
        system = write_system(messages[:leading], writer)
        if system is not None:
            body["systemInstruction"] = system
    body["contents"] = write_turns(messages, leading, writer, capabilities)
    if tools:
        body["tools"] = tools
    tool_config = _write_tool_config(request, native, writer, tools)
    if tool_config:
        body["toolConfig"] = tool_config
    config = write_generation(request, native, capabilities, losses)
    if config:
        body["generationConfig"] = config
    write_other_fields(request, native, body, losses)
    return body


def _write_tool_config(
    request: ModelRequest, native: dict[str, Any], writer: ContentWriter, tools: list[dict[str, Any]]
) -> dict[str, Any]:
    config: dict[str, Any] = {}
    if request.tool_choice is not None:
        calling = write_tool_choice(request.tool_choice, writer, tools)
        if calling is not None:
            config["functionCallingConfig"] = calling
    return config | without_prefix(_TOOL_PREFIX, native)


def write_other_fields(request: ModelRequest, native: dict[str, Any], body: dict[str, Any], losses: list[Loss]) -> None:
    """Put what is neither content, tools nor generation config into a body."""
    if request.parallel_tool_calls is False:
        reason = "Gemini does not support disabling parallel tool calls; dropped"
        losses.append(Loss("parallel_tool_calls", "parallel_tool_calls", reason))
    tier = service_tier(request.service_tier, SERVICE_TIERS, losses)
    if tier is not None:
        body["serviceTier"] = tier
    if request.store is not None:
        body["store"] = request.store
    lose_native(losses, "native", request.native, FORMAT)
    for name, value in native.items():
        if name.startswith((GENERATION_PREFIX, _TOOL_PREFIX)):
            continue
        if name in body:
            losses.append(Loss(f"native.{name}", name, "overridden by another field of the request; dropped"))
        else:
            body[name] = value
    if body.get("cachedContent") and not body.keys().isdisjoint(NOT_WITH_CACHED_CONTENT):
        del body["cachedContent"]
        reason = "cannot be combined with tools or a system prompt; dropped (GM-19)"
        losses.append(Loss("native.cachedContent", "cachedContent", reason))


def write_system(messages: Sequence[Message], writer: ContentWriter) -> dict[str, Any] | None:
    """The leading system messages as one instruction (GM-15: text only)."""
    parts: list[Any] = []
    system: dict[str, Any] = {}
    for index, message in enumerate(messages):
        writer.message = index
        report_message_extras(message, index, writer.losses)
        for role in list_marks(message.native):
            if role.startswith(_SYSTEM_ROLE):
                system["role"] = role[len(_SYSTEM_ROLE) :]
        system.update(gemini_extras(message.native))
        for position, part in enumerate(message.parts):
            if isinstance(part, Text | Thinking | Refusal | Native):
                written = writer.write(part, position)
                if written is not None:
                    parts.append(written)
            else:
                reason = "Gemini accepts only text in the system prompt; dropped (GM-15)"
                writer.losses.append(Loss(writer.path(position), type(part).__name__.lower(), reason))
    if not parts and not system:
        return None
    system["parts"] = parts
    return system


def needs_whole_request(request: ModelRequest, _new: Sequence[Message]) -> bool:
    """Whether the body depends on the whole conversation."""
    return asks_for_json_object(request)
