"""Chat Completions requests, read and written.

The messages go to `messages`, tools and the choice among them to `tools`, everything else to `parameters`. Each module reads and
writes, keeps unknown fields as native extras, and lists its normalisations in its header. The keys of a body are written in a
fixed order, so that the same request always gives the same bytes; the dialect decides where hosts differ.
"""

from __future__ import annotations

from typing import Any

import msgspec

from antiphon.wire import shared_openai
from antiphon.wire.loss import Loss
from antiphon.wire.openai_chat import FORMAT
from antiphon.wire.openai_chat.dialects import get_dialect
from antiphon.wire.openai_chat.limits import PARAMETERS
from antiphon.wire.openai_chat.messages import MessageListWriter, read_messages
from antiphon.wire.openai_chat.parameters import (
    HOST_PARAMETERS,
    ParameterWriter,
    read_parameters,
    thinking_requested,
)
from antiphon.wire.openai_chat.rules import RULES
from antiphon.wire.openai_chat.shapes import MESSAGES, MessageShape
from antiphon.wire.openai_chat.tools import (
    read_function_choice,
    read_functions,
    read_tool,
    read_tool_choice,
    write_choice,
    write_tools,
)
from antiphon.wire.request import ModelRequest, asks_for_json_object
from antiphon.wire.shapes import RequestReader, list_of_entries
from antiphon.wire.shared_openai import OPENAI, SHARED_PARAMETERS

_JSON_NOTE = {"role": "system", "content": "Answer with a JSON object."}


def _build_request(entries: list[Any], unread: dict[str, Any]) -> ModelRequest:
    """The request of messages and the rest of their body."""
    fields: dict[str, Any] = {"messages": tuple(read_messages(entries))}
    native = read_parameters(unread, fields)
    if native:
        _read_tools(fields, native)
        if native:
            shared = {key: native.pop(key) for key in SHARED_PARAMETERS if key in native}
            fields["native"] = {**({OPENAI: shared} if shared else {}), **({FORMAT: native} if native else {})}
    return ModelRequest(**fields)


def _read_tools(fields: dict[str, Any], native: dict[str, Any]) -> None:
    tools, functions = native.get("tools"), native.get("functions")
    declared: list[Any] = []
    if type(tools) is list:
        declared.extend(map(read_tool, native.pop("tools")))
    if type(functions) is list:
        read = read_functions(functions)
        if read is not None:
            del native["functions"]
            declared.extend(read)
            if not tools and "parallel_tool_calls" not in fields:
                fields["parallel_tool_calls"] = False  # an answer in this shape has one call
    fields["tools"] = tuple(declared)
    choice = read_tool_choice(native["tool_choice"]) if "tool_choice" in native else None
    if choice is not None:
        fields["tool_choice"] = choice
        del native["tool_choice"]
    elif "function_call" in native and "tool_choice" not in native and "functions" not in native:
        choice = read_function_choice(native["function_call"])
        if choice is not None:
            fields["tool_choice"] = choice
            del native["function_call"]


class Writer(ParameterWriter):
    """Writes a body that the host accepts."""

    format = FORMAT
    fixes = RULES.fixes
    messages: MessageListWriter

    def begin(self) -> None:
        self.host = host = get_dialect(self.options.dialect or "openai")
        self.wraps_calls = host.enforces_schemas
        self._accepts_system = self.model.system_messages != "none"
        self._has_begun = False
        self._declared: dict[str, str] = {}
        self.messages = MessageListWriter(
            self.losses,
            host,
            self.model,
            accepts_system=self._accepts_system,
            thinking_enabled=thinking_requested(self.request.reasoning),
        )

    def settle(self) -> list[Any]:
        self._begin_list()
        return super().settle()

    def _begin_list(self) -> None:
        """Insert what depends on the first messages only (L9)."""
        entries = self.messages.entries
        if not self._has_begun and asks_for_json_object(self.request) and not _mentions_json_early(entries):
            entries.insert(0, _JSON_NOTE if self._accepts_system else {**_JSON_NOTE, "role": "user"})  # OC-24
        self._has_begun = True

    def end_messages(self) -> dict[str, Any]:
        body: dict[str, Any] = {"model": self.request.model} if self.request.model else {}
        self.messages.settle()
        body["messages"] = messages = self.messages.entries
        if not messages:
            messages.append({"role": "user", "content": ""})
            reason = "at least one message is required; added an empty one (OC-01)"
            self.losses.append(Loss("messages", "no messages", reason))
        self._begin_list()
        self._declared = write_tools(self.request, body, self.losses, self.host)
        return body

    def write_choice(self, body: dict[str, Any]) -> None:
        write_choice(self.request, body, self.losses, self.host, self._declared)


def _mentions_json_early(messages: list[Any]) -> bool:
    """Whether a message up to the first user's mentions JSON: later messages may not change the beginning (L9)."""
    for message in messages:
        plain = msgspec.to_builtins(message)  # its parts may be structs too
        if any(map(shared_openai.mentions_json, shared_openai.texts_of([plain]))):
            return True
        if type(plain) is dict and plain.get("role") == "user":
            return False
    return False


READER = RequestReader(
    "messages", MessageShape, {*PARAMETERS, *HOST_PARAMETERS}, MESSAGES.fit, list_of_entries, _build_request
)
