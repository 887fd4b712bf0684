"""Requests of OpenAI Responses.

`instructions` is a leading system message. Writing, a leading system message of one text becomes `instructions` again, unless it
was an item before or there is nothing else to send; every other system and developer message is an item, allowed anywhere.

Normalisations: null is absent; so are an empty `model` or `text` and empty lists of `tools`, `input`, `annotations` and
`logprobs`; a string is one text part, and `input` as a string one user message; `type: "message"` may be omitted; absent
`arguments` are `{}`, an empty list of `output` parts means no text. Ids that Antiphon generated are not sent.
"""

from __future__ import annotations

from typing import Any

from antiphon.errors import WireError
from antiphon.parts import Native
from antiphon.wire.loss import lose_native
from antiphon.wire.openai_responses import FORMAT
from antiphon.wire.openai_responses.limits import PARAMETERS
from antiphon.wire.openai_responses.messages import ItemReader, MessageListWriter
from antiphon.wire.openai_responses.namespaces import SOURCE, has_own_tools
from antiphon.wire.openai_responses.parameters import PARAMETER_TABLE, ParameterWriter, format_kind, read_parameters
from antiphon.wire.openai_responses.rules import RULES
from antiphon.wire.openai_responses.shapes import ITEMS, Item
from antiphon.wire.openai_responses.tools import write_tool_choice, write_tools
from antiphon.wire.request import ModelRequest
from antiphon.wire.rules import json_type_name
from antiphon.wire.shapes import RequestReader
from antiphon.wire.shared_openai import (
    OPENAI,
    SHARED_PARAMETERS,
    join_extras,
)


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
    if reader.has_tools or any(type(tool) is Native and has_own_tools(tool.data) for tool in fields.get("tools", ())):
        fields["source"] = SOURCE
    return ModelRequest(messages=messages, native=join_extras(FORMAT, extras, shared), **fields)


READER = RequestReader("input", Item, PARAMETERS, ITEMS.fit, _entries_of, _build_request)


class Writer(ParameterWriter):
    """Writes a body that OpenAI Responses accepts."""

    format = FORMAT
    fixes = RULES.fixes
    messages: MessageListWriter

    def begin(self) -> None:
        native = self.request.native or {}
        self._own = {**native.get(OPENAI, {}), **native.get(FORMAT, {})}
        wanted = self.request.output_format
        self._wants_json = wanted is not None and format_kind(wanted) == "json_object"
        self.messages = MessageListWriter(self.losses, self.model)

    def needs_whole(self) -> bool:
        return self._wants_json  # every item is searched for the word

    def end_messages(self) -> dict[str, Any]:
        body: dict[str, Any] = {"model": self.request.model} if self.request.model else {}
        body.update(self._own)
        lose_native(self.losses, "native", self.request.native, FORMAT, OPENAI)
        self.messages.settle()
        body["input"] = self.messages.entries
        if self.messages.instructions is not None:
            body["instructions"] = self.messages.instructions.text
        if self.request.tools and (tools := write_tools(self.request.tools, self.losses)):
            body["tools"] = tools
        return body

    def write_choice(self, body: dict[str, Any]) -> None:
        write_tool_choice(self.request, body, self.losses)
