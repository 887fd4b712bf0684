"""`generationConfig`, thinking, and what each model accepts.

Fields that several formats have become fields of the request. All others, also malformed ones, stay in `native["gemini"]` under
their full name (`generationConfig.responseModalities`), so that each is a separate loss elsewhere.

Thinking is a budget in tokens (0: none, -1: dynamic) or, from Gemini 3, a level; never both (GM-14). The table of efforts and
budgets converts one into the other. An unknown model counts as one that accepts both.
"""

from __future__ import annotations

from typing import Any

from msgspec import structs

from antiphon.wire.gemini import FORMAT
from antiphon.wire.gemini.native import field_spellings, gemini_extras, native_extras, spelled, split_fields
from antiphon.wire.gemini.schema import as_json_schema
from antiphon.wire.gemini.shapes import SERVICE_TIERS
from antiphon.wire.loss import Loss, lose_native, own_extras
from antiphon.wire.parameters import NUMBER, WHOLE_NUMBER, Parameter, ParameterTable, refused_fields
from antiphon.wire.parameters.reasoning import DYNAMIC, HIDDEN, ReasoningForms, plan_reasoning
from antiphon.wire.provenance import is_spelled
from antiphon.wire.request import OutputFormat, Reasoning
from antiphon.wire.request_writer import RequestWriter
from antiphon.wire.rules.limits import Range
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

_REASONING = ReasoningForms(
    rule="GM-14",
    modes=("off", "level", "budget"),
    words=LEVEL_FOR,
    shown={None: True, **dict.fromkeys(HIDDEN, False)},
)
_THINKING_FIELDS = field_spellings(("thinkingBudget", "thinkingLevel", "includeThoughts"))
_LOWERCASE_LEVEL = spelled("level:small")


def read_thinking(config: dict[str, Any]) -> Reasoning:
    """The reasoning settings of a `thinkingConfig`."""
    fields, extras = split_fields(config, _THINKING_FIELDS)
    budget, level, include_thoughts = (
        fields.pop(name, None) for name in ("thinkingBudget", "thinkingLevel", "includeThoughts")
    )
    effort: str | None = None
    source = None
    # Level and budget together are rejected (GM-14); the level is then kept as an extra.
    if (
        type(level) is str
        and level.lower() in THINKING_LEVELS
        and level in (level.lower(), level.upper())
        and budget is None
    ):
        effort = level.lower()
        source = _LOWERCASE_LEVEL if level == effort else None
    elif level is not None:
        extras["thinkingLevel"] = level
    is_dynamic = type(budget) is int and budget == DYNAMIC
    if budget is not None and (type(budget) is not int or budget < DYNAMIC):
        extras["thinkingBudget"], budget = budget, None
    if include_thoughts is not None and type(include_thoughts) is not bool:
        extras["includeThoughts"], include_thoughts = include_thoughts, None
    return Reasoning(
        effort,
        None if is_dynamic else budget,
        True if is_dynamic else None,
        {True: "auto", False: "omitted", None: None}[include_thoughts],
        native_extras(extras),
        source,
    )


_CONFIG = "generationConfig"
GENERATION_PREFIX, TOOL_PREFIX = f"{_CONFIG}.", "toolConfig."
JSON_TYPE = "application/json"

PARAMETER_TABLE = ParameterTable(
    "Gemini",
    (
        *(
            structs.replace(row, inside=_CONFIG)
            for row in (
                Parameter("temperature", "temperature", NUMBER, google_range("GM-14", 2)),
                Parameter("top_p", "topP", NUMBER, google_range("GM-14", 1, unset="drop")),
                Parameter("presence_penalty", "presencePenalty", NUMBER),
                Parameter("frequency_penalty", "frequencyPenalty", NUMBER),
                Parameter("top_k", "topK", WHOLE_NUMBER),
                Parameter("max_output_tokens", "maxOutputTokens", WHOLE_NUMBER, output_tokens("GM-14")),
                Parameter(
                    "candidates",
                    "candidateCount",
                    WHOLE_NUMBER,
                    Range(rule="GM-14", minimum=1, is_whole=True, model_fact="candidates", reads_text=True),
                ),
                Parameter("seed", "seed", WHOLE_NUMBER, Seed()),
                Parameter("top_logprobs", "logprobs", WHOLE_NUMBER),
                Parameter("logprobs", "responseLogprobs", (bool,)),
                Parameter("stop", "stopSequences", limit=stop_sequences("GM-14")),
            )
        ),
        Parameter("model", "model", (str,), is_written=False),  # in the URL
        Parameter("service_tier", "serviceTier", (str,), service_tiers("GM-18", *SERVICE_TIERS)),
        Parameter("store", "store", (bool,)),
    ),
)


_OUTPUT_FIELDS = ("responseMimeType", "responseSchema", "responseJsonSchema")
_MODALITIES = "responseModalities"
_TEXT_ONLY = spelled("text-only")
"""Of `responseModalities: ["TEXT"]`, the default of every other format."""
_GENERATION_FIELDS = field_spellings((_MODALITIES, *PARAMETER_TABLE.keys(_CONFIG), "thinkingConfig", *_OUTPUT_FIELDS))


def read_generation(config: dict[str, Any], values: dict[str, Any], native: dict[str, Any]) -> None:
    """Sort a `generationConfig` into the request's fields (`values`) and its native extras."""
    fields, extras = split_fields(config, _GENERATION_FIELDS)
    if fields.get(_MODALITIES) == ["TEXT"]:
        values["source"] = _TEXT_ONLY
        del fields[_MODALITIES]
    _read_output_format(fields, values)
    rest = PARAMETER_TABLE.read(fields, values, _CONFIG)
    if type(rest.get("thinkingConfig")) is dict:
        thinking = rest.pop("thinkingConfig")
        if thinking:
            values["reasoning"] = read_thinking(thinking)
    native |= with_prefix(GENERATION_PREFIX, {**extras, **rest})


def _read_output_format(fields: dict[str, Any], values: dict[str, Any]) -> None:
    """The output format, removed from `fields` if other formats have it too."""
    media_type, gemini_schema, schema = (fields.get(name) for name in _OUTPUT_FIELDS)
    if media_type == "text/plain" and gemini_schema is None and schema is None:
        values["output_format"] = OutputFormat("text")
    elif media_type != JSON_TYPE or (gemini_schema is not None and schema is not None):
        return
    elif type(schema) is dict:
        values["output_format"] = OutputFormat("json_schema", schema)
    elif type(gemini_schema) is dict:
        try:
            converted = as_json_schema(gemini_schema)
        except RecursionError:
            converted = gemini_schema
        original = native_extras({"responseSchema": gemini_schema})
        values["output_format"] = OutputFormat("json_schema", converted, native=original)
    elif gemini_schema is None and schema is None:
        values["output_format"] = OutputFormat("json_object")
    else:
        return
    for name in _OUTPUT_FIELDS:
        fields.pop(name, None)


class ParameterWriter(RequestWriter):
    """Writes the `generationConfig` and its neighbours, and what only this format has."""

    own: dict[str, Any]

    def write_parameters(self, body: dict[str, Any]) -> None:
        request, model, losses = self.request, self.model, self.losses
        refused = refused_fields(model, "GM-14", "GM-14", request.temperature, request.top_p)
        PARAMETER_TABLE.write(request, body, model, losses, refused=refused)
        config: dict[str, Any] = body.setdefault(_CONFIG, {})
        if request.output_format is not None:
            self._write_output_format(request.output_format, config)
        if request.reasoning is not None and (thinking := self._thinking(request.reasoning)):
            config["thinkingConfig"] = thinking
        if is_spelled(request, "text-only"):
            config[_MODALITIES] = ["TEXT"]
        config |= without_prefix(GENERATION_PREFIX, self.own)
        if not config:
            del body[_CONFIG]
        lose_parallel_switch(request, "Gemini", losses)
        lose_native(losses, "native", request.native, FORMAT)
        for name, value in self.own.items():
            if name.startswith((GENERATION_PREFIX, TOOL_PREFIX)):
                continue
            if name in body:
                losses.append(Loss(f"native.{name}", name, "overridden by another field of the request; dropped"))
            else:
                body[name] = value

    def _thinking(self, reasoning: Reasoning) -> dict[str, Any]:
        """The `thinkingConfig` for this model."""
        model, losses = self.model, self.losses
        extras = own_extras(reasoning.native, losses, "reasoning", FORMAT)
        plan = plan_reasoning(reasoning, model, _REASONING, losses)
        if model.thinking == ():
            reason = "model does not support thinking; dropped (GM-14)"
            losses.extend(Loss(f"reasoning.{name}", name, reason) for name in extras)
            return {}
        config: dict[str, Any] = {}
        if plan.effort is not None:
            is_lowercase = is_spelled(reasoning, "level:small")
            config["thinkingLevel"] = plan.effort if is_lowercase else plan.effort.upper()
        elif plan.enabled is False or plan.budget is not None:
            config["thinkingBudget"] = plan.budget or 0
        elif plan.enabled and model.accepts_thinking("budget"):  # levels alone: thinking is the default
            config["thinkingBudget"] = DYNAMIC
        if plan.shown is not None:
            config["includeThoughts"] = plan.shown
        return {**config, **extras}

    def _write_output_format(self, output_format: OutputFormat, config: dict[str, Any]) -> None:
        lose_native(self.losses, "output_format", output_format.native, FORMAT)
        lose_format_details(output_format, self.losses, "Gemini")
        config["responseMimeType"] = "text/plain" if output_format.kind == "text" else JSON_TYPE
        if output_format.kind != "json_schema" or output_format.schema is None:
            return
        original = gemini_extras(output_format.native).get("responseSchema")
        if original is not None:
            config["responseSchema"] = original
        else:
            config["responseJsonSchema"] = output_format.schema
