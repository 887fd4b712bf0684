"""Parameters: sampling, limits, output format, reasoning.

Parameters that `ModelRequest` has are read into its fields if their type is right; everything else (state such as
`previous_response_id`, `include`, unknown fields, values of another type) is kept in `native` and written back. What OpenAI would
refuse is made legal and reported.
"""

from __future__ import annotations

import math
from typing import Any

from antiphon.wire.json_schema import is_object_schema
from antiphon.wire.loss import Loss, own_extras
from antiphon.wire.openai_responses import FORMAT
from antiphon.wire.openai_responses.tools import allows_strict, read_tool_choice, read_tools
from antiphon.wire.request import BUDGETS, ModelRequest, OutputFormat, Reasoning
from antiphon.wire.tool_calls import safe_name
from antiphon.wire.vendors.openai import (
    MAX_METADATA_KEY,
    MAX_METADATA_PAIRS,
    MAX_METADATA_VALUE,
    OPENAI,
    OPENAI_PARAMETERS,
    SERVICE_TIERS,
    ParameterTable,
    is_name,
    model_family,
    unread_fields,
)

PARAMETER_TABLE: ParameterTable = OPENAI_PARAMETERS | {"max_output_tokens": ("max_output_tokens", (int,))}
_UNSUPPORTED = ("stop", "top_k", "seed", "presence_penalty", "frequency_penalty")
_LOGPROBS = "message.output_text.logprobs"
_SUMMARIES = ("auto", "concise", "detailed")
_O_SERIES_EFFORTS = {"none": "low", "minimal": "low", "low": "low", "medium": "medium", "high": "high"}
_METADATA_LIMIT = "metadata is limited to 16 strings of 512 characters; dropped this entry (OR-15)"
_is_o_series = model_family("o1|o3|o3-mini|o4-mini")
MIN_OUTPUT_TOKENS = 16


def read_parameters(unread: dict[str, Any], fields: dict[str, Any]) -> None:
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
    if type(unread.get("text")) is dict:
        known = len(fields)
        rest = _read_text(unread.pop("text"), fields)
        if rest or len(fields) == known:
            unread["text"] = rest
    include = unread.get("include")
    if type(include) is list and _LOGPROBS in include:
        fields["logprobs"] = True


def _read_reasoning(value: dict[str, Any]) -> Reasoning:
    known = {field: value[field] for field in ("effort", "summary") if type(value.get(field)) is str}
    if known.get("summary") not in _SUMMARIES:
        known.pop("summary", None)
    return Reasoning(known.get("effort"), shown=known.get("summary"), native=unread_fields(value, FORMAT, known))


def _read_text(text: dict[str, Any], fields: dict[str, Any]) -> dict[str, Any]:
    """The format and verbosity of the output; returns the other fields."""
    rest = {field: value for field, value in text.items() if value is not None}
    if type(rest.get("verbosity")) is str:
        fields["verbosity"] = rest.pop("verbosity")
    output_format = rest.get("format")
    read = _read_format(output_format) if type(output_format) is dict else None
    if read is not None:
        fields["output_format"] = read
        del rest["format"]
    return rest


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


def write_parameters(request: ModelRequest, body: dict[str, Any], losses: list[Loss]) -> None:
    """Put everything but the input, tools and the choice among them into a body."""
    _write_settings(request, body, losses)
    if request.reasoning is not None:
        _write_reasoning(request, request.reasoning, body, losses)
    _write_text(request, body, losses)
    for field in _UNSUPPORTED:
        value = getattr(request, field)
        if value is not None and not (value == 0 and field.endswith("_penalty")):  # none is the default
            losses.append(Loss(field, str(value), "OpenAI Responses has no such parameter; dropped (OR-18)"))
    if request.candidates not in (None, 1):
        reason = "OpenAI Responses supports one candidate; dropped (OR-18)"
        losses.append(Loss("candidates", str(request.candidates), reason))


def _write_settings(request: ModelRequest, body: dict[str, Any], losses: list[Loss]) -> None:
    for field in ("stream", "parallel_tool_calls", "store"):
        value = getattr(request, field)
        if value is not None:
            body[field] = value
    if request.service_tier is not None:
        body["service_tier"] = SERVICE_TIERS.get(request.service_tier, request.service_tier)
    if request.cache_key is not None:
        body["prompt_cache_key"] = request.cache_key
    if request.user is not None and body.get("safety_identifier") != request.user:
        body["user"] = request.user
    if request.max_output_tokens is not None:
        body["max_output_tokens"] = _clamped(
            "max_output_tokens", request.max_output_tokens, MIN_OUTPUT_TOKENS, None, losses
        )
    for field, maximum in (("temperature", 2), ("top_p", 1), ("top_logprobs", 20)):
        value = getattr(request, field)
        if value is not None:
            if math.isfinite(value):
                body[field] = _clamped(field, value, 0, maximum, losses)
            else:
                losses.append(Loss(field, str(value), "not a number; dropped"))
    if request.logprobs:
        include = body.get("include")
        known: list[Any] = include if isinstance(include, list) else []
        if _LOGPROBS not in known:
            body["include"] = [*known, _LOGPROBS]
    if request.metadata is not None:
        body["metadata"] = _legal_metadata(request.metadata, losses)


def _clamped(field: str, value: float, minimum: int, maximum: int | None, losses: list[Loss]) -> float:
    legal = max(value, minimum) if maximum is None else min(max(value, minimum), maximum)
    if legal != value:
        bound = "below the minimum" if value < minimum else "above the maximum"
        losses.append(Loss(field, str(value), f"{value} is {bound} {legal}; sent {legal}"))
    return legal


def _legal_metadata(metadata: dict[str, Any], losses: list[Loss]) -> dict[str, Any]:
    """The entries that OpenAI accepts (OR-15)."""
    legal: dict[str, Any] = {}
    for key, value in metadata.items():
        is_legal = len(key) <= MAX_METADATA_KEY and isinstance(value, str) and len(value) <= MAX_METADATA_VALUE
        if len(legal) == MAX_METADATA_PAIRS or not is_legal:
            losses.append(Loss(f"metadata.{key[:64]}", key[:64], _METADATA_LIMIT))
        else:
            legal[key] = value
    return legal


def _write_reasoning(request: ModelRequest, reasoning: Reasoning, body: dict[str, Any], losses: list[Loss]) -> None:
    written: dict[str, Any] = {}
    effort = _effort(reasoning, losses)
    if effort is not None and _is_o_series(request.model):
        legal = _O_SERIES_EFFORTS.get(effort, "high")
        if legal != effort:
            losses.append(
                Loss("reasoning.effort", effort, f'{request.model} does not support effort "{effort}"; sent "{legal}"')
            )
        effort = legal
    if effort is not None:
        written["effort"] = effort
    if reasoning.shown in _SUMMARIES:
        written["summary"] = reasoning.shown
    elif reasoning.shown in ("summarized", "full"):
        written["summary"] = "auto" if reasoning.shown == "summarized" else "detailed"
    elif reasoning.shown not in (None, "omitted", "none"):  # without a summary no reasoning is shown
        losses.append(Loss("reasoning.shown", str(reasoning.shown), "OpenAI has no such summary; dropped"))
    written.update(own_extras(reasoning.native, losses, "reasoning", OPENAI, FORMAT))
    body["reasoning"] = written


def _effort(reasoning: Reasoning, losses: list[Loss]) -> str | None:
    budget = reasoning.budget_tokens
    if reasoning.effort is not None:
        if budget is not None:
            losses.append(
                Loss("reasoning.budget_tokens", str(budget), "OpenAI accepts an effort, not a budget; dropped")
            )
        return reasoning.effort
    if reasoning.enabled is False:
        return "none"
    if budget is not None and budget >= 0:
        return next((effort for effort, most in BUDGETS.items() if budget <= most), "max")
    return "medium" if reasoning.enabled or budget is not None else None


def _write_text(request: ModelRequest, body: dict[str, Any], losses: list[Loss]) -> None:
    if request.output_format is None and request.verbosity is None:
        return
    known = body.get("text")
    text: dict[str, Any] = dict(known) if isinstance(known, dict) else {}
    if request.output_format is not None:
        text["format"] = _write_format(request.output_format, losses)
    if request.verbosity is not None:
        text["verbosity"] = request.verbosity
    body["text"] = text


def format_kind(output_format: OutputFormat) -> str:
    """The kind of output to request: json_object if there is no schema."""
    return "json_object" if output_format.kind == "json_schema" and output_format.schema is None else output_format.kind


def _write_format(output_format: OutputFormat, losses: list[Loss]) -> dict[str, Any]:
    path, kind = "output_format", format_kind(output_format)
    if kind != "json_schema" or output_format.schema is None:
        body: dict[str, Any] = {"type": kind}
        ignored = [
            field for field in ("schema", "name", "description", "strict") if getattr(output_format, field) is not None
        ]
        losses.extend(Loss(f"{path}.{field}", field, f"not supported by {kind}; dropped") for field in ignored)
    else:
        name = output_format.name or "response"
        body = {
            "type": "json_schema",
            "name": name if is_name(name) else safe_name(name, 64),
            "schema": output_format.schema,
        }
        if output_format.description is not None:
            body["description"] = output_format.description
        if output_format.strict is not None:
            may_be_object = output_format.schema.get("type") is None or is_object_schema(output_format.schema)
            if output_format.strict and not may_be_object:
                losses.append(
                    Loss(f"{path}.strict", "strict", "the root schema must be an object; sent without strict")
                )
            body["strict"] = (
                output_format.strict and may_be_object and allows_strict(output_format.schema, losses, f"{path}.strict")
            )
    body.update(own_extras(output_format.native, losses, path, OPENAI, FORMAT))
    return body
