"""Requests: a body of `POST /interactions`, read and written.

`system_instruction` is a leading `system` message. `model` and `agent` are both the model of a request; its `source` says
which. What only this API has (`previous_interaction_id`, `background`, `environment`, `safety_settings`, ...) stays native, also
what is malformed, under its full name (`generation_config.speech_config`), so that each is a separate loss elsewhere.

Thinking is a level; budgets of other formats are converted by the table of efforts. A response format is one for text, a list
with one for text, or (in older clients) a JSON schema beside `response_mime_type`.

Normalisations: null is absent, and so are an empty `model`, `tools` or `generation_config`; every `input` is a list of steps; the
plain texts of a thought's summary are one; `is_error: false` and empty `arguments` may be left out or added; the only text of a
`result` may be a string; results come before other parts of a message.
"""

from __future__ import annotations

from typing import Any

from antiphon.errors import WireError
from antiphon.parts import Source, Text
from antiphon.wire.format import RequestReader
from antiphon.wire.gemini_interactions import FORMAT
from antiphon.wire.gemini_interactions.limits import CONFIG, NAME, PARAMETER_TABLE, PARAMETERS
from antiphon.wire.gemini_interactions.messages import (
    StepListWriter,
    StepReader,
    as_entries,
    is_continued,
)
from antiphon.wire.gemini_interactions.rules import RULES
from antiphon.wire.gemini_interactions.shapes import ENTRIES, ContentShape, StepShape
from antiphon.wire.gemini_interactions.tools import read_tool_choice, read_tools, write_tool_choice, write_tools
from antiphon.wire.loss import lose_native
from antiphon.wire.parameters import refused_fields
from antiphon.wire.parameters.reasoning import HIDDEN, ReasoningForms, plan_reasoning
from antiphon.wire.provenance import is_spelled, spelled
from antiphon.wire.request import Message, ModelRequest, OutputFormat, Reasoning
from antiphon.wire.request_writer import RequestWriter
from antiphon.wire.rules import json_type_name
from antiphon.wire.shared_google import (
    LEVEL_FOR,
    THINKING_LEVELS,
    lose_format_details,
    lose_parallel_switch,
    with_prefix,
    without_prefix,
)

_JSON_TYPE = "application/json"
_PREFIX = f"{CONFIG}."
_SUMMARIES = {"auto": "auto", "none": "omitted"}
_REASONING = ReasoningForms(
    rule="GI-07", modes=("level",), words=LEVEL_FOR, shown={None: "auto", **dict.fromkeys(HIDDEN, "none")}
)
_MEDIA_FORMATS = frozenset({"text", "audio", "image", "video"})


def _entries_of(given: Any) -> list[Any]:
    entries = as_entries(given)
    if entries is None:
        raise WireError(f"input: expected a string, an object or an array, got {json_type_name(given)}")
    return entries


def _build_request(entries: list[Any], unread: dict[str, Any]) -> ModelRequest:
    messages = tuple(StepReader().read(entries))
    values: dict[str, Any] = {}
    native: dict[str, Any] = {}
    spelling: list[str] = []
    fields = {name: value for name, value in unread.items() if value is not None}
    system = fields.pop("system_instruction", None)
    if type(system) is str:
        messages = (Message("system", (Text(system),)), *messages)
    elif system is not None:
        native["system_instruction"] = system
    output_format = _read_output_format(fields)
    if output_format is not None:
        values["output_format"] = output_format
    for name, value in PARAMETER_TABLE.read(fields, values).items():
        if name == "agent" and type(value) is str and value and not fields.get("model"):
            values["model"] = value
            spelling.append("agent")
        elif name == "generation_config" and type(value) is dict:
            _read_generation(value, values, native)
        elif name == "tools" and type(value) is list:
            values["tools"] = read_tools(value)
        elif name == "response_modalities" and value == ["text"]:
            spelling.append("text-only")
        else:  # specific to this API, or malformed
            native[name] = value
    source = spelled(FORMAT, spelling)
    return ModelRequest(messages=messages, native={FORMAT: native} if native else None, source=source, **values)


def _read_generation(config: dict[str, Any], values: dict[str, Any], native: dict[str, Any]) -> None:
    """Sort what the table left of a `generation_config` into the request's fields and its native extras."""
    extras = dict(config)
    choice = read_tool_choice(extras.get("tool_choice"))
    if choice is not None:
        values["tool_choice"] = choice
        del extras["tool_choice"]
    level, summaries = extras.get("thinking_level"), extras.get("thinking_summaries")
    effort = extras.pop("thinking_level") if type(level) is str and level in THINKING_LEVELS else None
    is_known = type(summaries) is str and summaries in _SUMMARIES
    shown = _SUMMARIES[extras.pop("thinking_summaries")] if is_known else None
    if effort is not None or shown is not None:
        values["reasoning"] = Reasoning(effort, shown=shown)
    native |= with_prefix(_PREFIX, extras)


def _read_output_format(fields: dict[str, Any]) -> OutputFormat | None:
    """The output format, removed from `fields`; None if it is of another kind, or none is given."""
    given, mime_type = fields.get("response_format"), fields.get("response_mime_type")
    spelling: tuple[str, ...] = ()
    if type(given) is list and len(given) == 1:
        (given,) = given
        spelling = ("list",)
    if mime_type is not None:
        if mime_type != _JSON_TYPE:
            return None
        spelling = (*spelling, "mime")
    if given is None and mime_type is not None:
        output_format: OutputFormat | None = OutputFormat("json_object", source=spelled(FORMAT, spelling))
    elif type(given) is not dict:
        return None
    elif mime_type is not None and not (type(given.get("type")) is str and given["type"] in _MEDIA_FORMATS):
        output_format = OutputFormat("json_schema", given, source=spelled(FORMAT, (*spelling, "raw")))
    else:
        output_format = _read_text_format(given, spelled(FORMAT, spelling))
    if output_format is not None:
        fields.pop("response_format", None)
        fields.pop("response_mime_type", None)
    return output_format


def _read_text_format(given: dict[str, Any], source: Source | None) -> OutputFormat | None:
    mime_type, schema = given.get("mime_type"), given.get("schema")
    if given.get("type") != "text" or not given.keys() <= {"type", "mime_type", "schema"}:
        return None
    if mime_type == _JSON_TYPE and schema is None:
        return OutputFormat("json_object", source=source)
    if mime_type == _JSON_TYPE and type(schema) is dict:
        return OutputFormat("json_schema", schema, source=source)
    return OutputFormat("text", source=source) if mime_type == "text/plain" and schema is None else None


READER = RequestReader("input", StepShape | ContentShape, PARAMETERS, ENTRIES.fit, _entries_of, _build_request)


class Writer(RequestWriter):
    """Writes a body that the Interactions API accepts."""

    format = FORMAT
    fixes = RULES.fixes
    messages: StepListWriter

    def begin(self) -> None:
        self.own = (self.request.native or {}).get(FORMAT, {})
        self.messages = StepListWriter(self.losses, self.model, is_continued=is_continued(self.own))

    def end_messages(self) -> dict[str, Any]:
        request = self.request
        body: dict[str, Any] = {}
        if request.model:
            body["agent" if is_spelled(request, "agent") else "model"] = request.model
        self.messages.finish()
        if system := "\n\n".join(self.messages.system):
            body["system_instruction"] = system
        if self.messages.entries or not is_continued(self.own):
            body["input"] = self.messages.entries
        if tools := write_tools(request.tools, self.losses):
            body["tools"] = tools
        return body

    def write_parameters(self, body: dict[str, Any]) -> None:
        request, losses = self.request, self.losses
        refused = refused_fields(self.model, "GI-07", "GI-07", request.temperature, request.top_p)
        PARAMETER_TABLE.write(request, body, self.model, losses, refused=refused)
        config: dict[str, Any] = body.setdefault(CONFIG, {})
        lose_parallel_switch(request, NAME, losses)
        if request.tool_choice is not None:
            config["tool_choice"] = write_tool_choice(request.tool_choice, losses)
        if request.reasoning is not None:
            lose_native(losses, "reasoning", request.reasoning.native, FORMAT)
            plan = plan_reasoning(request.reasoning, self.model, _REASONING, losses)
            if plan.effort is not None:
                config["thinking_level"] = plan.effort
            if plan.shown is not None:
                config["thinking_summaries"] = plan.shown
        config |= without_prefix(_PREFIX, self.own)
        if not config:
            del body[CONFIG]
        if request.output_format is not None:
            self._write_output_format(request.output_format, body)
        if is_spelled(request, "text-only"):
            body["response_modalities"] = ["text"]
        lose_native(losses, "native", request.native, FORMAT)
        rest = ((name, value) for name, value in self.own.items() if not name.startswith(_PREFIX) and name not in body)
        body.update(rest)

    def _write_output_format(self, output_format: OutputFormat, body: dict[str, Any]) -> None:
        lose_native(self.losses, "output_format", output_format.native, FORMAT)
        lose_format_details(output_format, self.losses, NAME)
        written: dict[str, Any] | None = {"type": "text", "mime_type": _JSON_TYPE}
        if output_format.kind == "text":
            written = {"type": "text", "mime_type": "text/plain"}
        elif output_format.kind == "json_schema" and output_format.schema is not None:
            is_raw = is_spelled(output_format, "raw")
            written = output_format.schema if is_raw else {**(written or {}), "schema": output_format.schema}
        elif is_spelled(output_format, "mime"):
            written = None
        if written is not None:
            body["response_format"] = [written] if is_spelled(output_format, "list") else written
        if is_spelled(output_format, "mime"):
            body["response_mime_type"] = _JSON_TYPE
