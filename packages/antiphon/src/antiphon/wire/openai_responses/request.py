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
from antiphon.wire.format import RequestReader
from antiphon.wire.loss import Loss, lose_native, own_extras
from antiphon.wire.openai_responses import FORMAT
from antiphon.wire.openai_responses.limits import LOGPROBS, PARAMETER_TABLE, PARAMETERS, asks_for_logprobs
from antiphon.wire.openai_responses.messages import ItemReader, MessageListWriter
from antiphon.wire.openai_responses.namespaces import SOURCE, has_own_tools
from antiphon.wire.openai_responses.rules import RULES
from antiphon.wire.openai_responses.shapes import ITEMS, Item
from antiphon.wire.openai_responses.tools import read_tool_choice, read_tools, write_tool_choice, write_tools
from antiphon.wire.parameters.reasoning import HIDDEN, ReasoningForms, plan_reasoning
from antiphon.wire.request import ModelRequest, OutputFormat, Reasoning
from antiphon.wire.request_writer import RequestWriter
from antiphon.wire.rules import json_type_name
from antiphon.wire.shared_openai import (
    OPENAI,
    SHARED_PARAMETERS,
    described_schema,
    find_refused,
    join_extras,
    lose_schema_fields,
    unread_fields,
)

_SUMMARIES = ("auto", "concise", "detailed")
_REASONING = ReasoningForms(
    rule="OR-15",
    modes=("effort",),
    default_effort="medium",
    shown={**dict.fromkeys(HIDDEN), **{word: word for word in _SUMMARIES}, "summarized": "auto", "full": "detailed"},
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
        _read_parameters(extras, fields)
    identifier = shared.get("safety_identifier")
    if type(identifier) is str and fields.setdefault("user", identifier) == identifier and "user" in unread:
        extras["user"] = unread["user"]  # set twice: the field holds the other
    if reader.has_tools or any(type(tool) is Native and has_own_tools(tool.data) for tool in fields.get("tools", ())):
        fields["source"] = SOURCE
    return ModelRequest(messages=messages, native=join_extras(FORMAT, extras, shared), **fields)


def _read_parameters(unread: dict[str, Any], fields: dict[str, Any]) -> None:
    """Read the structured parameters: what is read moves from `unread` to `fields`."""
    tools = unread.get("tools")
    if type(tools) is list:
        fields["tools"] = read_tools(tools)
        del unread["tools"]
    choice = read_tool_choice(unread.get("tool_choice"), fields.get("tools", ()))
    if choice is not None:
        fields["tool_choice"] = choice
        del unread["tool_choice"]
    if type(unread.get("reasoning")) is dict:
        fields["reasoning"] = _read_reasoning(unread.pop("reasoning"))
    text: Any = unread.get("text")
    output_format = text.get("format") if type(text) is dict else None
    if type(output_format) is dict and (read := _read_format(output_format)) is not None:
        fields["output_format"] = read
        del text["format"]
        if not text:
            del unread["text"]
    include = unread.get("include")
    if type(include) is list and LOGPROBS in include:
        fields["logprobs"] = True


def _read_reasoning(value: dict[str, Any]) -> Reasoning:
    known = {field: value[field] for field in ("effort", "summary") if type(value.get(field)) is str}
    if known.get("summary") not in _SUMMARIES:
        known.pop("summary", None)
    return Reasoning(known.get("effort"), shown=known.get("summary"), native=unread_fields(value, FORMAT, known))


def _read_format(output_format: dict[str, Any]) -> OutputFormat | None:
    kind = output_format.get("type")
    if kind == "text" or kind == "json_object":
        return OutputFormat(kind, native=unread_fields(output_format, FORMAT, ("type",)))
    types = {"schema": dict, "name": str, "description": str, "strict": bool}
    if kind != "json_schema" or any(
        type(output_format.get(field)) not in (kind, type(None)) for field, kind in types.items()
    ):
        return None
    if type(output_format.get("schema")) is not dict:
        return None
    fields = {field: output_format.get(field) for field in types}
    return OutputFormat("json_schema", **fields, native=unread_fields(output_format, FORMAT, ("type", *types)))


READER = RequestReader("input", Item, PARAMETERS, ITEMS.fit, _entries_of, _build_request)


class Writer(RequestWriter):
    """Writes a body that OpenAI Responses accepts."""

    format = FORMAT
    fixes = RULES.fixes
    messages: MessageListWriter

    def begin(self) -> None:
        native = self.request.native or {}
        self._own = {**native.get(OPENAI, {}), **native.get(FORMAT, {})}
        wanted = self.request.output_format
        self._wants_json = wanted is not None and _format_kind(wanted) == "json_object"
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

    def write_parameters(self, body: dict[str, Any]) -> None:
        request, model = self.request, self.model
        reasoning = None if request.reasoning is None else self._reasoning(request.reasoning)
        effort = reasoning.get("effort") if reasoning else None
        refused = find_refused(model, "OR-15", request.temperature, request.top_p, effort)
        for field in ("stream", "parallel_tool_calls"):
            value = getattr(request, field)
            if value is not None:
                body[field] = value
        if request.user is not None and body.get("safety_identifier") != request.user:
            body["user"] = request.user
        PARAMETER_TABLE.write(request, body, model, self.losses, refused=refused)
        include = body.get("include")
        if request.logprobs and not asks_for_logprobs(body):
            body["include"] = [*(include if isinstance(include, list) else ()), LOGPROBS]
        if reasoning is not None:
            body["reasoning"] = reasoning
        if request.output_format is not None:
            text = body.get("text")
            body["text"] = {**(text if type(text) is dict else {}), "format": self._format(request.output_format)}

    def _reasoning(self, reasoning: Reasoning) -> dict[str, Any] | None:
        """The value of `reasoning`; None if the model refuses it."""
        plan = plan_reasoning(reasoning, self.model, _REASONING, self.losses)
        extras = own_extras(reasoning.native, self.losses, "reasoning", OPENAI, FORMAT)
        if self.model.efforts == ():
            reason = "model does not reason; dropped (OR-15)"
            given = (name for name, value in extras.items() if value is not None)
            self.losses.extend(Loss(f"reasoning.{name}", name, reason) for name in given)
            return None
        stated = {"effort": plan.effort, "summary": plan.shown}
        return {**{name: value for name, value in stated.items() if value is not None}, **extras}

    def _format(self, output_format: OutputFormat) -> dict[str, Any]:
        kind = _format_kind(output_format)
        body: dict[str, Any] = {"type": kind}
        if kind == "json_schema":
            body |= described_schema(output_format, self.losses, "OR-20")
        else:
            lose_schema_fields(output_format, kind, self.losses)
        return body | own_extras(output_format.native, self.losses, "output_format", OPENAI, FORMAT)


def _format_kind(output_format: OutputFormat) -> str:
    """The kind of output to request: json_object if there is no schema."""
    return "json_object" if output_format.kind == "json_schema" and output_format.schema is None else output_format.kind
