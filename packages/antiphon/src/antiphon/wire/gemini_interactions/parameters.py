"""`generation_config`, thinking, the response format and the parameters beside them.

Fields that several formats have become fields of the request. All others, also malformed ones, stay in `native` under their full
name (`generation_config.speech_config`), so that each is a separate loss elsewhere.

Thinking is a level; budgets of other formats are converted by the table of efforts. A response format is one for text, a list
with one for text, or (in older clients) a JSON schema beside `response_mime_type`.
"""

from __future__ import annotations

from typing import Any

from antiphon.parts import Source
from antiphon.wire.gemini_interactions import FORMAT
from antiphon.wire.gemini_interactions.content import NAME
from antiphon.wire.gemini_interactions.limits import SERVICE_TIERS
from antiphon.wire.gemini_interactions.tools import read_tool_choice, write_tool_choice
from antiphon.wire.loss import lose_native
from antiphon.wire.parameters import NUMBER, Parameter, ParameterTable, refused_fields
from antiphon.wire.parameters.reasoning import HIDDEN, ReasoningForms, plan_reasoning
from antiphon.wire.provenance import is_spelled
from antiphon.wire.request import OutputFormat, Reasoning
from antiphon.wire.request_writer import RequestWriter
from antiphon.wire.shared_google import (
    LEVEL_FOR,
    THINKING_LEVELS,
    Seed,
    google_range,
    lose_format_details,
    lose_parallel_switch,
    output_tokens,
    service_tiers,
    stop_sequences,
    with_prefix,
    without_prefix,
)

JSON_TYPE = "application/json"
_CONFIG = "generation_config"
PREFIX = f"{_CONFIG}."
PARAMETER_TABLE = ParameterTable(
    NAME,
    (
        Parameter("temperature", "temperature", NUMBER, google_range("GI-07", 2), _CONFIG),
        Parameter("top_p", "top_p", NUMBER, google_range("GI-07", 1, unset="drop"), _CONFIG),
        Parameter("max_output_tokens", "max_output_tokens", (int,), output_tokens("GI-07"), _CONFIG),
        Parameter("seed", "seed", (int,), Seed(), _CONFIG),
        Parameter("stop", "stop_sequences", (), stop_sequences("GI-07"), _CONFIG),
        Parameter("service_tier", "service_tier", (str,), service_tiers("GI-12", *SERVICE_TIERS)),
        Parameter("stream", "stream", (bool,)),
        Parameter("store", "store", (bool,)),
        Parameter("model", "model", (str,), is_written=False),
    ),
)

_SUMMARIES = {"auto": "auto", "none": "omitted"}
_REASONING = ReasoningForms(
    rule="GI-07", modes=("level",), words=LEVEL_FOR, shown={None: "auto", **dict.fromkeys(HIDDEN, "none")}
)
_MEDIA_FORMATS = frozenset({"text", "audio", "image", "video"})


def read_generation(config: dict[str, Any], values: dict[str, Any], native: dict[str, Any]) -> None:
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
    native |= with_prefix(PREFIX, extras)


def read_output_format(fields: dict[str, Any]) -> OutputFormat | None:
    """The output format, removed from `fields`; None if it is of another kind, or none is given."""
    given, mime_type = fields.get("response_format"), fields.get("response_mime_type")
    spelling: tuple[str, ...] = ()
    if type(given) is list and len(given) == 1:
        (given,) = given
        spelling = ("list",)
    if mime_type is not None:
        if mime_type != JSON_TYPE:
            return None
        spelling = (*spelling, "mime")
    if given is None and mime_type is not None:
        output_format: OutputFormat | None = OutputFormat("json_object", source=_spelled(spelling))
    elif type(given) is not dict:
        return None
    elif mime_type is not None and not (type(given.get("type")) is str and given["type"] in _MEDIA_FORMATS):
        output_format = OutputFormat("json_schema", given, source=_spelled((*spelling, "raw")))
    else:
        output_format = _read_text_format(given, _spelled(spelling))
    if output_format is not None:
        fields.pop("response_format", None)
        fields.pop("response_mime_type", None)
    return output_format


def _spelled(words: tuple[str, ...]) -> Source | None:
    return Source(FORMAT, words) if words else None


def _read_text_format(given: dict[str, Any], source: Source | None) -> OutputFormat | None:
    mime_type, schema = given.get("mime_type"), given.get("schema")
    if given.get("type") != "text" or not given.keys() <= {"type", "mime_type", "schema"}:
        return None
    if mime_type == JSON_TYPE and schema is None:
        return OutputFormat("json_object", source=source)
    if mime_type == JSON_TYPE and type(schema) is dict:
        return OutputFormat("json_schema", schema, source=source)
    return OutputFormat("text", source=source) if mime_type == "text/plain" and schema is None else None


class ParameterWriter(RequestWriter):
    """Writes the `generation_config` and its neighbours into a body that has its tools, and what only this format has."""

    own: dict[str, Any]

    def write_parameters(self, body: dict[str, Any]) -> None:
        request, losses = self.request, self.losses
        refused = refused_fields(self.model, "GI-07", "GI-07", request.temperature, request.top_p)
        PARAMETER_TABLE.write(request, body, self.model, losses, refused=refused)
        config: dict[str, Any] = body.setdefault(_CONFIG, {})
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
        config |= without_prefix(PREFIX, self.own)
        if not config:
            del body[_CONFIG]
        if request.output_format is not None:
            self._write_output_format(request.output_format, body)
        if is_spelled(request, "text-only"):
            body["response_modalities"] = ["text"]
        lose_native(losses, "native", request.native, FORMAT)
        rest = ((name, value) for name, value in self.own.items() if not name.startswith(PREFIX) and name not in body)
        body.update(rest)

    def _write_output_format(self, output_format: OutputFormat, body: dict[str, Any]) -> None:
        lose_native(self.losses, "output_format", output_format.native, FORMAT)
        lose_format_details(output_format, self.losses, NAME)
        written: dict[str, Any] | None = {"type": "text", "mime_type": JSON_TYPE}
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
            body["response_mime_type"] = JSON_TYPE
