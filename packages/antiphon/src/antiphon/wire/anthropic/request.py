"""Requests of the Messages API, read and written.

A parameter that other formats have too becomes a field of the request; every other one, or a malformed one, is kept in
`native["anthropic"]` and written last. The system prompt is a leading `system` message. docs/architecture.md lists what is
normalised. Added without a loss: `max_tokens` (4096, more if the thinking budget needs it) and text in an empty failed result.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from antiphon.errors import WireError
from antiphon.parts import Native, NativeExtras, Part, Text, ToolCallResult
from antiphon.wire.anthropic import FORMAT
from antiphon.wire.anthropic.cache_breakpoints import Breakpoints, mark_body
from antiphon.wire.anthropic.content import ContentWriter, collapse_text, read_value
from antiphon.wire.anthropic.dialects import apply_dialect, get_dialect
from antiphon.wire.anthropic.limits import HOST_PARAMETERS
from antiphon.wire.anthropic.messages import MessageListWriter, read_messages
from antiphon.wire.anthropic.parameters import (
    DEFAULT_MAX_TOKENS,
    MAX_TOKENS,
    PARAMETER_TABLE,
    VERSION,
    read_parameter,
    target_for,
    write_parameters,
    write_thinking_and_format,
)
from antiphon.wire.anthropic.shapes import MessageShape, fit_message
from antiphon.wire.anthropic.tools import read_tool, read_tool_choice, write_tool_choice, write_tools
from antiphon.wire.capabilities import look_up
from antiphon.wire.format import DEFAULT_OPTIONS, WriteOptions
from antiphon.wire.loss import Loss, Losses, lose_native
from antiphon.wire.request import Message, ModelRequest, asks_for_json_object
from antiphon.wire.rules import json_type_name
from antiphon.wire.shapes import RequestReader

_fit_max_tokens = MAX_TOKENS.limit.fit  # type: ignore[union-attr]


def _entries_of(messages: Any) -> list[Any]:
    if type(messages) is not list:
        raise WireError(f"messages: expected an array, got {json_type_name(messages)}")
    return messages


def _build_request(entries: list[Any], unread: dict[str, Any]) -> ModelRequest:
    """The request of messages and the other fields of the body."""
    messages = read_messages(entries)
    leading: tuple[Message, ...] = ()
    fields: dict[str, Any] = {}
    extras: dict[str, Any] = {}
    for name, value in PARAMETER_TABLE.read(unread, fields).items():
        if name == "system" and type(value) in (str, list):
            leading = _read_system(value)
        elif name == "tools" and type(value) is list:
            fields["tools"] = tuple([read_tool(tool) for tool in value])
        elif name == "tool_choice" and type(value) is dict and (choice := read_tool_choice(value)) is not None:
            fields["tool_choice"], fields["parallel_tool_calls"] = choice
        elif not read_parameter(name, value, fields, extras):
            extras[name] = value
    native = {FORMAT: extras} if extras else None
    return ModelRequest(messages=(*leading, *messages), native=native, **fields)


READER = RequestReader("messages", MessageShape, HOST_PARAMETERS, fit_message, _entries_of, _build_request)


def _read_system(system: str | list[Any]) -> tuple[Message, ...]:
    if isinstance(system, str):
        return (Message("system", (Text(system),)),) if system else ()
    parts = tuple(part if type(part := read_value(block)) is Text else Native(FORMAT, block) for block in system)
    return (Message("system", parts),) if parts else ()


def write_request(request: ModelRequest, losses: Losses, options: WriteOptions = DEFAULT_OPTIONS) -> dict[str, Any]:
    """A body of the Messages API; `options.version` is the `anthropic-version` it will be sent with."""
    extras = request.native.get(FORMAT, {}) if request.native else {}
    host = extras.get("anthropic_version")
    target = target_for(request.model, options.version or VERSION, host, options.capabilities)
    body: dict[str, Any] = {"model": request.model} if request.model else {}
    limit = request.max_output_tokens
    body["max_tokens"] = (
        DEFAULT_MAX_TOKENS if limit is None else _fit_max_tokens(limit, MAX_TOKENS.field, losses, target.model)
    )
    if request.stream is not None:
        body["stream"] = request.stream

    breakpoints = Breakpoints()
    blocks = ContentWriter(target, losses, breakpoints)
    tools: list[Any] = []
    if request.tools:
        tools = write_tools(request, target.model, breakpoints, blocks.argument_writers, losses)
    messages = MessageListWriter(target, blocks)
    for index, message in enumerate(request.messages):
        messages.add(index, message)
    messages.finish(extras.get("fallback_credit_token") is not None)
    if messages.system:
        body["system"] = collapse_text(messages.system)
    if tools:
        body["tools"] = tools
    body["messages"] = messages.entries

    choice = write_tool_choice(request, tools, target.model, bool(tools or extras.get("mcp_servers")), losses)
    if choice is not None:
        body["tool_choice"] = choice
    if request.reasoning is not None or request.output_format is not None:
        write_thinking_and_format(request, body, target, blocks.citations_enabled, losses)
    write_parameters(request, body, target, losses)
    if breakpoints:
        limit = target.model.cache_breakpoints
        breakpoints.limit(body, sys.maxsize if limit is None else limit, losses)
    lose_native(losses, "native", request.native, FORMAT)
    for name, value in extras.items():
        if (
            name == "system" and "system" in body
        ):  # what was there is not an instruction (AN-03), and the messages have one
            losses.append(
                Loss("native.system", "system", "neither text nor blocks; the messages' instruction was sent")
            )
            continue
        is_shared = name in ("metadata", "output_config") and type(value) is dict and type(body.get(name)) is dict
        body[name] = {**body[name], **value} if is_shared else value
    if options.dialect:
        apply_dialect(body, get_dialect(options.dialect), losses)
    if request.cache_prompt is not None and not breakpoints:
        mark_prompt(request, body, body["messages"], options)
    return body


def mark_prompt(request: ModelRequest, body: dict[str, Any], messages: list[Any], options: WriteOptions) -> None:
    """Set the cache breakpoints of a written body whose last messages, or all of them, are in `messages`."""
    if not options.dialect or get_dialect(options.dialect).caches_marked_prompts:
        limit = look_up(request.model, FORMAT, options.capabilities).cache_breakpoints
        mark_body(request, body, messages, limit)


def needs_whole_request(request: ModelRequest, new: Sequence[Message]) -> bool:
    """Whether the body depends on the whole conversation."""
    if request.reasoning is not None or asks_for_json_object(request):
        return True
    for message in new:
        if message.native is not None and _has_mark(message.native):
            return True
        if any(map(_is_marked, message.parts)):
            return True
    return False


def _is_marked(part: Part) -> bool:
    if isinstance(part, Native):
        return type(part.data) is dict and "cache_control" in part.data
    if part.native is not None and _has_mark(part.native):
        return True
    return type(part) is ToolCallResult and any(map(_is_marked, part.content))


def _has_mark(native: NativeExtras) -> bool:
    return any("cache_control" in extras for extras in native.values())
