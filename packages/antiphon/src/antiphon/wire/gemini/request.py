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

from antiphon.parts import Native, Part, Text, Thinking
from antiphon.wire.gemini import FORMAT
from antiphon.wire.gemini.content import read_value
from antiphon.wire.gemini.messages import (
    CONTENT_FIELDS,
    SYSTEM_ROLE,
    ContentsWriter,
    read_contents,
)
from antiphon.wire.gemini.native import (
    field_spellings,
    gemini_extras,
    native_extras,
    require_list,
    spelled,
    split_fields,
)
from antiphon.wire.gemini.parameters import PARAMETER_TABLE, TOOL_PREFIX, ParameterWriter, read_generation
from antiphon.wire.gemini.rules import RULES
from antiphon.wire.gemini.shapes import (
    PARAMETER_SPELLINGS,
    PARAMETERS,
    ContentShape,
    fit_content,
)
from antiphon.wire.gemini.tools import read_tool_choice, read_tools, write_tool_choice, write_tools
from antiphon.wire.loss import Losses
from antiphon.wire.request import Message, ModelRequest
from antiphon.wire.shapes import RequestReader
from antiphon.wire.shared_google import with_prefix, without_prefix
from antiphon.wire.tools.call_ids import CallIdTracker

_TOOL_CONFIG_FIELDS = field_spellings(("functionCallingConfig",))


def _entries_of(contents: Any) -> list[Any]:
    return require_list(contents, "contents")


def _build(entries: list[Any], unread: dict[str, Any]) -> ModelRequest:
    return _build_request(read_contents(entries), *split_fields(unread, PARAMETER_SPELLINGS))


READER = RequestReader("contents", ContentShape, PARAMETERS, fit_content, _entries_of, _build)


def _build_request(messages: Sequence[Message], fields: dict[str, Any], native: dict[str, Any]) -> ModelRequest:
    values: dict[str, Any] = {}
    system = _read_system(fields.pop("systemInstruction", None), native)
    config = fields.get("generationConfig")
    if type(config) is dict:
        read_generation(fields.pop("generationConfig"), values, native)
    for name, value in PARAMETER_TABLE.read(fields, values).items():
        if name == "tools" and type(value) in (list, dict):
            values["tools"] = read_tools(value)
        elif name == "toolConfig" and type(value) is dict:
            _read_tool_config(value, values, native)
        else:  # specific to Gemini, or malformed
            native[name] = value
    leading = () if system is None else (system,)
    return ModelRequest(messages=(*leading, *messages), native=native_extras(native), **values)


def _read_tool_config(config: dict[str, Any], values: dict[str, Any], native: dict[str, Any]) -> None:
    fields, extras = split_fields(config, _TOOL_CONFIG_FIELDS)
    calling = fields.get("functionCallingConfig")
    if calling is not None and calling != {}:
        choice = read_tool_choice(calling)
        if choice is None:
            extras["functionCallingConfig"] = calling
        else:
            values["tool_choice"] = choice
    native |= with_prefix(TOOL_PREFIX, extras)


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
    source = spelled(SYSTEM_ROLE + role) if type(role) is str and role else None
    if role is not None and type(role) is not str:
        extras["role"] = role
    calls = CallIdTracker()
    raw_parts = parts if type(parts) is list else [] if parts is None else [parts]
    read = [(part, read_value(part, calls)) for part in raw_parts]
    kept: list[Part] = [
        own_part if type(own_part) in (Text, Thinking) else Native(FORMAT, part) for part, own_part in read
    ]
    return Message("system", tuple(kept), native=native_extras(extras), source=source)


class Writer(ParameterWriter):
    """Writes a body that Gemini accepts. `options.model` is the name in the URL, if it is not `request.model`."""

    format = FORMAT
    fixes = RULES.fixes
    messages: ContentsWriter

    def begin(self) -> None:
        self.own = gemini_extras(self.request.native)
        self._tools = write_tools(self.request.tools, self.losses)
        self.messages = ContentsWriter(self.losses, self.model)

    def end_messages(self) -> dict[str, Any]:
        self.messages.finish()
        system = self.messages.system
        body: dict[str, Any] = {} if system is None else {"systemInstruction": system}
        body["contents"] = self.messages.entries
        if self._tools:
            body["tools"] = self._tools
        tool_config = _write_tool_config(self.request, self.own, self.losses)
        if tool_config:
            body["toolConfig"] = tool_config
        return body


def _write_tool_config(request: ModelRequest, native: dict[str, Any], losses: Losses) -> dict[str, Any]:
    config: dict[str, Any] = {}
    if request.tool_choice is not None:
        config["functionCallingConfig"] = write_tool_choice(request.tool_choice, losses)
    return config | without_prefix(TOOL_PREFIX, native)
