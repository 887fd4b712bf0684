"""Requests of the Messages API, read and written.

A parameter that other formats have too becomes a field of the request; every other one, or a malformed one, is kept in
`native["anthropic"]` and written last. The system prompt is a leading `system` message. docs/architecture.md lists what is
normalised. Added without a loss: `max_tokens` (4096, more if the thinking budget needs it) and text in an empty failed result.
"""

from __future__ import annotations

from typing import Any

from antiphon.parts import Native, Text
from antiphon.wire.anthropic import FORMAT
from antiphon.wire.anthropic.cache_breakpoints import mark_body
from antiphon.wire.anthropic.content import collapse_text, read_value
from antiphon.wire.anthropic.dialects import get_dialect, ignored_loss
from antiphon.wire.anthropic.limits import HOST_PARAMETERS
from antiphon.wire.anthropic.messages import MessageListWriter, read_messages
from antiphon.wire.anthropic.parameters import (
    DEFAULT_MAX_TOKENS,
    MAX_TOKENS,
    PARAMETER_TABLE,
    VERSION,
    ParameterWriter,
    read_parameter,
    target_for,
)
from antiphon.wire.anthropic.rules import RULES
from antiphon.wire.anthropic.shapes import MessageShape, fit_message
from antiphon.wire.anthropic.tools import read_tool, read_tool_choice, write_tool_choice, write_tools
from antiphon.wire.request import Message, ModelRequest, PromptCaching
from antiphon.wire.shapes import RequestReader, list_of_entries

_fit_max_tokens = MAX_TOKENS.limit.fit  # type: ignore[union-attr]


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


READER = RequestReader("messages", MessageShape, HOST_PARAMETERS, fit_message, list_of_entries, _build_request)


def _read_system(system: str | list[Any]) -> tuple[Message, ...]:
    if isinstance(system, str):
        return (Message("system", (Text(system),)),) if system else ()
    parts = tuple(part if type(part := read_value(block)) is Text else Native(FORMAT, block) for block in system)
    return (Message("system", parts),) if parts else ()


class Writer(ParameterWriter):
    """Writes a body of the Messages API; `options.version` is the `anthropic-version` it will be sent with."""

    format = FORMAT
    fixes = RULES.fixes
    messages: MessageListWriter
    wraps_calls = False  # the tools say which of their calls change

    def begin(self) -> None:
        request, options = self.request, self.options
        self.own = request.native.get(FORMAT, {}) if request.native else {}
        self.host = host = get_dialect(options.dialect) if options.dialect else None
        if host is not None and not host.ignored.isdisjoint(self.own):
            self.losses += (ignored_loss(host, name) for name in self.own if name in host.ignored)
            self.own = {name: value for name, value in self.own.items() if name not in host.ignored}
        self.target = target_for(self.model, options.version or VERSION, self.own.get("anthropic_version"))
        self.messages = messages = MessageListWriter(self.target, self.losses)
        self.breakpoints = messages.breakpoints
        self._tools: list[Any] = []
        if request.tools:
            self._tools = write_tools(request, self.model, self.breakpoints, messages.argument_writers, self.losses)

    def needs_whole(self) -> bool:
        """Breakpoints of the client are limited from the last one back; thinking depends on the whole tool loop."""
        lacks = self.host is not None and self.host.missing_thinking
        return bool(self.breakpoints or lacks or self.request.reasoning is not None)

    def end_messages(self) -> dict[str, Any]:
        request = self.request
        body: dict[str, Any] = {"model": request.model} if request.model else {}
        limit = request.max_output_tokens
        body["max_tokens"] = (
            DEFAULT_MAX_TOKENS if limit is None else _fit_max_tokens(limit, MAX_TOKENS.field, self.losses, self.model)
        )
        if request.stream is not None:
            body["stream"] = request.stream
        self.messages.finish(self.own.get("fallback_credit_token") is not None)
        if self.messages.system:
            body["system"] = collapse_text(self.messages.system)
        if self._tools:
            body["tools"] = self._tools
        body["messages"] = self.messages.entries
        return body

    def write_choice(self, body: dict[str, Any]) -> None:
        choice = write_tool_choice(self.request, self.losses)
        if choice is not None:
            body["tool_choice"] = choice

    def mark_prompt(self, body: dict[str, Any], caching: PromptCaching) -> None:
        has_effect = self.host is None or self.host.caches_marked_prompts
        if has_effect and not self.breakpoints:
            mark_body(self.request, caching, body, self.model.cache_breakpoints)
