"""`generationConfig`, thinking, and what each model accepts.

Fields that several formats have become fields of the request. All others, also malformed ones, stay in `native["gemini"]` under
their full name (`generationConfig.responseModalities`), so that each is a separate loss elsewhere.

Thinking is a budget in tokens (0: none, -1: dynamic) or, from Gemini 3, a level; never both (GM-14). The table of efforts and
budgets converts one into the other. Capabilities come from the model name in the URL; unknown names count as current models.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, NamedTuple

from antiphon.parts import NativeExtras
from antiphon.wire.loss import Loss, lose_native, own_extras
from antiphon.wire.request import BUDGETS, ModelRequest, OutputFormat, Reasoning
from antiphon.wire.vendors.google import (
    FORMAT,
    SCHEMA_STYLES,
    field_spellings,
    has_mark,
    native_extras,
    read_schema,
    schema_style,
    spelling_mark,
    split_fields,
    write_schema,
)

_MAX_NAME_LENGTH = 256
"""No model has a longer name; the rest is ignored and not kept in a cache."""
_NAME = re.compile(r"gemini-(\d{1,3})(?:\.(\d{1,3}))?-?([a-z-]*)")


class Capabilities(NamedTuple):
    """What a model accepts, by the version in its name; (0, 0) if unknown, which is treated as current."""

    version: tuple[int, int] = (0, 0)
    variant: str = ""
    makes_images: bool = False

    @property
    def needs_signatures(self) -> bool:
        """Calls in the history carry a thought signature, or a placeholder (GM-10)."""
        return self.version >= (3, 0) and not self.makes_images

    @property
    def must_end_with_user(self) -> bool:
        """The history must not end with a model turn (GM-16)."""
        return self.version >= (3, 6) or (self.version == (3, 5) and self.variant.startswith("flash-lite"))

    @property
    def accepts_media_in_results(self) -> bool:
        return self.version >= (3, 0) or not self.is_known

    @property
    def has_thinking_levels(self) -> bool:
        return self.version >= (3, 0) or not self.is_known

    @property
    def always_thinks(self) -> bool:
        """A budget of 0 is refused (GM-14)."""
        return self.version >= (2, 5) and self.variant.startswith("pro")

    @property
    def is_known(self) -> bool:
        return self.version > (0, 0)


def capabilities_for(model: str) -> Capabilities:
    """The capabilities of a model by name, with or without the prefix `models/`."""
    return _parse_name(model[:_MAX_NAME_LENGTH])


@lru_cache(maxsize=256)
def _parse_name(model: str) -> Capabilities:
    match = _NAME.search(model)
    if match is None:
        return Capabilities()
    return Capabilities((int(match[1]), int(match[2] or 0)), match[3], "image" in model)


THINKING_LEVELS = {
    "none": "MINIMAL",
    "minimal": "MINIMAL",
    "low": "LOW",
    "medium": "MEDIUM",
    "high": "HIGH",
    "xhigh": "HIGH",
    "max": "HIGH",
}
MIN_BUDGET = 128
"""Sent instead of 0 to a model that always thinks."""

_DYNAMIC = -1
_LEVEL_NAMES = frozenset({"minimal", "low", "medium", "high"})
_THINKING_FIELDS = field_spellings(("thinkingBudget", "thinkingLevel", "includeThoughts"))
_LOWERCASE_LEVEL = spelling_mark("level:small")


def read_thinking(config: dict[str, Any]) -> Reasoning:
    """The reasoning settings of a `thinkingConfig`."""
    fields, extras = split_fields(config, _THINKING_FIELDS)
    budget, level, include_thoughts = (
        fields.pop(name, None) for name in ("thinkingBudget", "thinkingLevel", "includeThoughts")
    )
    effort: str | None = None
    marks = None
    # Level and budget together are rejected (GM-14); the level is then kept as an extra.
    if (
        type(level) is str
        and level.lower() in _LEVEL_NAMES
        and level in (level.lower(), level.upper())
        and budget is None
    ):
        effort = level.lower()
        marks = _LOWERCASE_LEVEL if level == effort else None
    elif level is not None:
        extras["thinkingLevel"] = level
    is_dynamic = type(budget) is int and budget == _DYNAMIC
    if budget is not None and (type(budget) is not int or budget < _DYNAMIC):
        extras["thinkingBudget"], budget = budget, None
    if include_thoughts is not None and type(include_thoughts) is not bool:
        extras["includeThoughts"], include_thoughts = include_thoughts, None
    return Reasoning(
        effort,
        None if is_dynamic else budget,
        True if is_dynamic else None,
        {True: "auto", False: "omitted", None: None}[include_thoughts],
        native_extras(extras, marks),
    )


def write_thinking(reasoning: Reasoning, capabilities: Capabilities, losses: list[Loss]) -> dict[str, Any]:
    """The `thinkingConfig` for this model."""
    extras = own_extras(reasoning.native, losses, "reasoning", FORMAT)
    config = _write_amount(reasoning, capabilities, losses)
    if reasoning.shown is not None:
        config["includeThoughts"] = reasoning.shown not in ("omitted", "none")
    return {**config, **extras}


def _write_amount(reasoning: Reasoning, capabilities: Capabilities, losses: list[Loss]) -> dict[str, Any]:
    effort, budget = reasoning.effort, reasoning.budget_tokens
    if effort is not None and effort not in BUDGETS:
        losses.append(Loss("reasoning.effort", "effort", f'unknown effort "{effort[:40]}"; dropped'))
        effort = None
    if effort is not None and budget is not None:
        dropped = "budget_tokens" if capabilities.has_thinking_levels else "effort"
        losses.append(
            Loss(f"reasoning.{dropped}", dropped, "Gemini accepts either a budget or a level; dropped (GM-14)")
        )
    if effort is not None and (capabilities.has_thinking_levels or budget is None):
        cannot_stop = effort == "none" and (capabilities.always_thinks or not capabilities.is_known)
        if not capabilities.has_thinking_levels or cannot_stop:
            return _write_budget(BUDGETS[effort], capabilities, losses)
        level = THINKING_LEVELS[effort]
        return {"thinkingLevel": level.lower() if has_mark(reasoning.native, "level:small") else level}
    if budget is not None:
        return _write_budget(budget, capabilities, losses)
    if reasoning.enabled is None:
        return {}
    return {"thinkingBudget": _DYNAMIC} if reasoning.enabled else _write_budget(0, capabilities, losses)


def _write_budget(budget: int, capabilities: Capabilities, losses: list[Loss]) -> dict[str, Any]:
    if budget == 0 and capabilities.always_thinks:
        losses.append(
            Loss("reasoning", "no thinking", "thinking cannot be turned off for this model; sent the lowest level")
        )
        return {"thinkingLevel": "LOW"} if capabilities.version >= (3, 0) else {"thinkingBudget": MIN_BUDGET}
    return {"thinkingBudget": budget}


GENERATION_PREFIX = "generationConfig."
MAX_STOP_SEQUENCES = 5
JSON_TYPE = "application/json"

_FLOAT_FIELDS = {
    "temperature": "temperature",
    "topP": "top_p",
    "presencePenalty": "presence_penalty",
    "frequencyPenalty": "frequency_penalty",
}
_INTEGER_FIELDS = {
    "topK": "top_k",
    "maxOutputTokens": "max_output_tokens",
    "candidateCount": "candidates",
    "seed": "seed",
    "logprobs": "top_logprobs",
}
MAXIMUMS = {"temperature": 2.0, "topP": 1.0}
"""The largest value of a number; the smallest is 0 (GM-14)."""
_INT32 = 2**31
_OUTPUT_FIELDS = ("responseMimeType", "responseSchema", "responseJsonSchema")
_MODALITIES = "responseModalities"
_TEXT_ONLY = spelling_mark("text-only")
"""The mark of `responseModalities: ["TEXT"]`, the default of every other format."""
_GENERATION_FIELDS = field_spellings(
    (
        _MODALITIES,
        *_FLOAT_FIELDS,
        *_INTEGER_FIELDS,
        "stopSequences",
        "responseLogprobs",
        "thinkingConfig",
        *_OUTPUT_FIELDS,
    )
)


def read_generation(
    config: dict[str, Any], values: dict[str, Any], native: dict[str, Any], marks: NativeExtras
) -> None:
    """Sort a `generationConfig` into the request's fields (`values`), its native extras and its marks."""
    fields, extras = split_fields(config, _GENERATION_FIELDS)
    if fields.get(_MODALITIES) == ["TEXT"]:
        marks |= _TEXT_ONLY
        del fields[_MODALITIES]
    _read_output_format(fields, values)
    for name, value in fields.items():
        if name in _FLOAT_FIELDS and type(value) in (float, int):
            values[_FLOAT_FIELDS[name]] = value
        elif name in _INTEGER_FIELDS and _is_integer(value):
            values[_INTEGER_FIELDS[name]] = int(value)
        elif name == "responseLogprobs" and type(value) is bool:
            values["logprobs"] = value
        elif name == "stopSequences" and type(value) is list and all(type(stop) is str for stop in value):
            values["stop"] = tuple(value)
        elif name == "thinkingConfig" and type(value) is dict:
            if value:
                values["reasoning"] = read_thinking(value)
        else:
            extras[name] = value
    native.update((GENERATION_PREFIX + name, value) for name, value in extras.items())


def _is_integer(value: Any) -> bool:
    return type(value) is int or (type(value) is float and value.is_integer())


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
        converted, style = read_schema(gemini_schema)
        native = {FORMAT: {"responseSchema": gemini_schema}} if style is None else SCHEMA_STYLES[style]
        values["output_format"] = OutputFormat("json_schema", converted, native=native)
    elif gemini_schema is None and schema is None:
        values["output_format"] = OutputFormat("json_object")
    else:
        return
    for name in _OUTPUT_FIELDS:
        fields.pop(name, None)


def write_generation(
    request: ModelRequest, native: dict[str, Any], capabilities: Capabilities, losses: list[Loss]
) -> dict[str, Any]:
    """The `generationConfig`; may be empty."""
    config: dict[str, Any] = {}
    for name, field in _FLOAT_FIELDS.items():
        number = getattr(request, field)
        if number is None:
            continue
        maximum = MAXIMUMS.get(name)
        if maximum is not None and not 0 <= number <= maximum:
            limit = "below the minimum 0" if number < 0 else f"above the maximum {maximum:g}"
            fitting = 0.0 if number < 0 else maximum
            losses.append(Loss(field, field, f"{number:g} is {limit}; sent {fitting:g} (GM-14)"))
            number = fitting
        config[name] = number
    for name, field in _INTEGER_FIELDS.items():
        count = getattr(request, field)
        if count is not None:
            config[name] = count
    if request.seed is not None and not -_INT32 <= request.seed < _INT32:
        config["seed"] = request.seed % _INT32
        losses.append(Loss("seed", "seed", "Gemini accepts 31 bits; the rest was cut off"))
    if request.logprobs is not None:
        config["responseLogprobs"] = request.logprobs
    if request.stop is not None:
        config["stopSequences"] = list(request.stop[:MAX_STOP_SEQUENCES])
        losses.extend(
            Loss(
                f"stop[{index}]",
                "stop",
                f"Gemini accepts at most {MAX_STOP_SEQUENCES} stop sequences; sent the first {MAX_STOP_SEQUENCES} (GM-14)",
            )
            for index in range(MAX_STOP_SEQUENCES, len(request.stop))
        )
    if request.output_format is not None:
        _write_output_format(request.output_format, config, losses)
    if request.reasoning is not None:
        thinking = write_thinking(request.reasoning, capabilities, losses)
        if thinking:
            config["thinkingConfig"] = thinking
    if has_mark(request.native, "text-only"):
        config[_MODALITIES] = ["TEXT"]
    config.update(
        (name[len(GENERATION_PREFIX) :], value) for name, value in native.items() if name.startswith(GENERATION_PREFIX)
    )
    return config


def _write_output_format(output_format: OutputFormat, config: dict[str, Any], losses: list[Loss]) -> None:
    lose_native(losses, "output_format", output_format.native, FORMAT)
    losses.extend(
        Loss(f"output_format.{name}", name, f"Gemini does not support {name} in an output format; dropped")
        for name in ("name", "description", "strict")
        if getattr(output_format, name) is not None
    )
    config["responseMimeType"] = "text/plain" if output_format.kind == "text" else JSON_TYPE
    if output_format.kind != "json_schema" or output_format.schema is None:
        return
    original = (output_format.native or {}).get(FORMAT, {}).get("responseSchema")
    style = schema_style(output_format.native)
    if original is not None:
        config["responseSchema"] = original
    elif style is not None:
        config["responseSchema"] = write_schema(output_format.schema, style)
    else:
        config["responseJsonSchema"] = output_format.schema
