"""`generationConfig`: the numbers, the shape of the answer, and how much to think.

What several formats can say becomes a field of the request. Everything else, also a value of the wrong type, stays in
`native["gemini"]` under its full name (`generationConfig.responseModalities`), so that each is a loss of its own elsewhere.
"""

from __future__ import annotations

from typing import Any

from antiphon.parts import NativeExtras
from antiphon.wire.gemini.model_name import ModelTraits
from antiphon.wire.gemini.schema import read_schema, write_schema
from antiphon.wire.gemini.spelling import FORMAT, fields_of, forms, mark, marked
from antiphon.wire.gemini.thinking import read_thinking, write_thinking
from antiphon.wire.gemini.tools import STYLES, style_of
from antiphon.wire.loss import Loss, lose_native
from antiphon.wire.request import ModelRequest, OutputFormat

PREFIX = "generationConfig."
MOST_STOPS = 5
JSON = "application/json"

_NUMBERS = {
    "temperature": "temperature",
    "topP": "top_p",
    "presencePenalty": "presence_penalty",
    "frequencyPenalty": "frequency_penalty",
}
_COUNTS = {
    "topK": "top_k",
    "maxOutputTokens": "max_output_tokens",
    "candidateCount": "candidates",
    "seed": "seed",
    "logprobs": "top_logprobs",
}
_RANGES = {"temperature": (0.0, 2.0), "top_p": (0.0, 1.0)}
_INT32 = 2**31
_SHAPE = ("responseMimeType", "responseSchema", "responseJsonSchema")
_MODALITIES = "responseModalities"
_TEXT_ONLY = mark("text-only")
"""An answer in text alone was asked for: what everybody else gives anyway."""
_CONFIG = forms((_MODALITIES, *_NUMBERS, *_COUNTS, "stopSequences", "responseLogprobs", "thinkingConfig", *_SHAPE))


def read_generation(
    config: dict[str, Any], values: dict[str, Any], native: dict[str, Any], marks: NativeExtras
) -> None:
    """Sort a `generationConfig` into the request's fields (`values`), its native extras and its marks."""
    fields, extras = fields_of(config, _CONFIG)
    if fields.get(_MODALITIES) == ["TEXT"]:
        marks |= _TEXT_ONLY
        del fields[_MODALITIES]
    _read_shape(fields, values)
    for name, value in fields.items():
        if name in _NUMBERS and type(value) in (float, int):
            values[_NUMBERS[name]] = value
        elif name in _COUNTS and _is_whole(value):
            values[_COUNTS[name]] = int(value)
        elif name == "responseLogprobs" and type(value) is bool:
            values["logprobs"] = value
        elif name == "stopSequences" and type(value) is list and all(type(stop) is str for stop in value):
            values["stop"] = tuple(value)
        elif name == "thinkingConfig" and type(value) is dict:
            if value:
                values["reasoning"] = read_thinking(value)
        else:
            extras[name] = value
    native.update((PREFIX + name, value) for name, value in extras.items())


def _is_whole(value: Any) -> bool:
    return type(value) is int or (type(value) is float and value.is_integer())


def _read_shape(fields: dict[str, Any], values: dict[str, Any]) -> None:
    """The shape of the answer, taken out of `fields` if it is one that other formats know."""
    media_type, own, schema = (fields.get(name) for name in _SHAPE)
    if media_type == "text/plain" and own is None and schema is None:
        values["output_format"] = OutputFormat("text")
    elif media_type != JSON or (own is not None and schema is not None):
        return
    elif type(schema) is dict:
        values["output_format"] = OutputFormat("json_schema", schema)
    elif type(own) is dict:
        lowered, style = read_schema(own)
        native = {FORMAT: {"responseSchema": own}} if style is None else STYLES[style]
        values["output_format"] = OutputFormat("json_schema", lowered, native=native)
    elif own is None and schema is None:
        values["output_format"] = OutputFormat("json_object")
    else:
        return
    for name in _SHAPE:
        fields.pop(name, None)


def write_generation(
    request: ModelRequest, native: dict[str, Any], traits: ModelTraits, losses: list[Loss]
) -> dict[str, Any]:
    """The `generationConfig`; empty if nothing was said."""
    config: dict[str, Any] = {}
    for name, field in _NUMBERS.items():
        number = getattr(request, field)
        if number is None:
            continue
        if field in _RANGES:
            low, high = _RANGES[field]
            if not low <= number <= high:  # GM-14
                losses.append(Loss(field, field, f"{FORMAT} takes {low:g} to {high:g}"))
                number = low if number < low else high
        config[name] = number
    for name, field in _COUNTS.items():
        count = getattr(request, field)
        if count is not None:
            config[name] = count
    if request.seed is not None and not -_INT32 <= request.seed < _INT32:
        config["seed"] = request.seed % _INT32
        losses.append(Loss("seed", "seed", "a seed has 31 bits here; the rest was cut off"))
    if request.logprobs is not None:
        config["responseLogprobs"] = request.logprobs
    if request.stop is not None:
        config["stopSequences"] = list(request.stop[:MOST_STOPS])
        losses.extend(
            Loss(f"stop[{index}]", "stop", f"{FORMAT} takes at most {MOST_STOPS}")
            for index in range(MOST_STOPS, len(request.stop))
        )
    if request.output_format is not None:
        _write_shape(request.output_format, config, losses)
    if request.reasoning is not None:
        thinking = write_thinking(request.reasoning, traits, losses)
        if thinking:
            config["thinkingConfig"] = thinking
    if marked(request.native, "text-only"):
        config[_MODALITIES] = ["TEXT"]
    config.update((name[len(PREFIX) :], value) for name, value in native.items() if name.startswith(PREFIX))
    return config


def _write_shape(shape: OutputFormat, config: dict[str, Any], losses: list[Loss]) -> None:
    lose_native(losses, "output_format", shape.native, FORMAT)
    losses.extend(
        Loss(f"output_format.{name}", name, f"{FORMAT} has no {name} for the shape of an answer")
        for name in ("name", "description", "strict")
        if getattr(shape, name) is not None
    )
    config["responseMimeType"] = "text/plain" if shape.kind == "text" else JSON
    if shape.kind != "json_schema" or shape.schema is None:
        return
    kept = (shape.native or {}).get(FORMAT, {}).get("responseSchema")
    style = style_of(shape.native)
    if kept is not None:
        config["responseSchema"] = kept
    elif style is not None:
        config["responseSchema"] = write_schema(shape.schema, style)
    else:
        config["responseJsonSchema"] = shape.schema
