"""Parameters: sampling, limits, output format, reasoning.

Reading is a table from a key of the body to a field of the request and its types; a value of another type stays a native extra.
Reasoning has four switches (OpenAI's `reasoning_effort`, `thinking` of DeepSeek and others, OpenRouter's `reasoning`, Alibaba's
`enable_thinking`); all are read into `Reasoning`, and all but the first are also kept unchanged. Writing clamps numbers to their
range (OC-20), drops what the model is known to refuse (OC-26), and reports both.

Normalisations: null is absent; `max_tokens` and `max_completion_tokens` are the same; `stop` is a list; a streamed request asks
for its usage unless it declines.
"""

from __future__ import annotations

from typing import Any

from antiphon.wire.json_schema import first_strict_problem, is_object_schema
from antiphon.wire.loss import Loss, lose_native, own_extras
from antiphon.wire.openai_chat import FORMAT, rules
from antiphon.wire.openai_chat.content import canonical_json
from antiphon.wire.openai_chat.dialects import Dialect
from antiphon.wire.openai_chat.tools import NOT_STRICT
from antiphon.wire.request import BUDGETS, ModelRequest, OutputFormat, Reasoning
from antiphon.wire.tool_calls import safe_name
from antiphon.wire.vendors import openai
from antiphon.wire.vendors.openai import (
    MAX_METADATA_KEY,
    MAX_METADATA_PAIRS,
    MAX_METADATA_VALUE,
    NUMBER,
    OPENAI,
    OPENAI_PARAMETERS,
    SERVICE_TIERS,
    ParameterTable,
    read_parameter_fields,
)

_PARAMETERS: ParameterTable = OPENAI_PARAMETERS | {
    "top_k": ("top_k", (int,)),
    "seed": ("seed", (int,)),
    "presence_penalty": ("presence_penalty", NUMBER),
    "frequency_penalty": ("frequency_penalty", NUMBER),
    "n": ("candidates", (int,)),
    "logprobs": ("logprobs", (bool,)),
    "verbosity": ("verbosity", (str,)),
}
_UNCHANGED = ("store", "verbosity", "user", "service_tier", "prompt_cache_key", "logprobs")
_RANGED = ("temperature", "top_p", "presence_penalty", "frequency_penalty", "n", "top_logprobs")
_METADATA_LIMIT = "metadata is limited to 16 entries with keys of at most 64 characters; dropped this entry (OC-27)"
_SCHEMA_FIELDS = ("schema", "name", "description", "strict")
_EFFORTS = (  # what older reasoning models accept instead of newer values
    (openai.model_family("o1|o3|o3-mini|o4-mini"), {"none": "low", "minimal": "low", "xhigh": "high", "max": "high"}),
    (openai.model_family("gpt-5|gpt-5-mini|gpt-5-nano"), {"none": "minimal", "xhigh": "high", "max": "high"}),
)
HOST_PARAMETERS = ("enable_thinking", "reasoning", "thinking", "top_k")
"""Parameters of other hosts that are read."""


def read_parameters(body: dict[str, Any], fields: dict[str, Any]) -> dict[str, Any]:
    """Read the keys of a body into fields of the request; returns the rest, including tools."""
    native = read_parameter_fields(body, _PARAMETERS, fields)
    _read_output_tokens(fields, native)
    stop = native.get("stop")
    if type(stop) is str or (type(stop) is list and all(type(sequence) is str for sequence in stop)):
        fields["stop"] = (stop,) if type(stop) is str else tuple(stop)
        del native["stop"]
    _read_reasoning(fields, native)
    output_format = _read_output_format(native.get("response_format"))
    if output_format is not None:
        fields["output_format"] = output_format
        del native["response_format"]
    options = native.get("stream_options")
    if type(options) is dict and options.get("include_usage") is True and fields.get("stream"):
        native["stream_options"] = {key: value for key, value in options.items() if key != "include_usage"}
        if not native["stream_options"]:
            del native["stream_options"]
    return native


def _read_output_tokens(fields: dict[str, Any], native: dict[str, Any]) -> None:
    present = [key for key in ("max_completion_tokens", "max_tokens") if key in native]
    for key in present:
        value = native[key]
        if type(value) is int and value > 0 and "max_output_tokens" not in fields:
            fields["max_output_tokens"] = value
            if len(present) == 1:  # both (OC-23) are written back unchanged
                del native[key]


def _read_reasoning(fields: dict[str, Any], native: dict[str, Any]) -> None:
    effort = native.pop("reasoning_effort") if type(native.get("reasoning_effort")) is str else None
    has_effort, budget, enabled, shown = effort is not None, None, None, None
    kept: dict[str, Any] = {}
    thinking, reasoning, switch = native.get("thinking"), native.get("reasoning"), native.get("enable_thinking")
    if type(thinking) is dict and type(thinking.get("type")) is str:
        kept["thinking"] = native.pop("thinking")
        enabled, budget = thinking["type"] != "disabled", _count(thinking, "budget_tokens")
    if type(reasoning) is dict:
        kept["reasoning"] = native.pop("reasoning")
        inner_effort = reasoning.get("effort")
        effort = effort or (inner_effort if type(inner_effort) is str else None)
        budget = _count(reasoning, "max_tokens") or budget
        enabled = reasoning["enabled"] if type(reasoning.get("enabled")) is bool else enabled
        shown = "omitted" if reasoning.get("exclude") is True else None
    if type(switch) is bool:
        enabled = kept["enable_thinking"] = native.pop("enable_thinking")
    if has_effort or kept:
        fields["reasoning"] = Reasoning(effort, budget, enabled, shown, {FORMAT: kept} if kept else None)


def _count(value: dict[str, Any], key: str) -> int | None:
    count = value.get(key)
    return count if type(count) is int else None


def _read_output_format(output_format: Any) -> OutputFormat | None:
    if type(output_format) is not dict:
        return None
    kind = output_format.get("type")
    if kind in ("text", "json_object") and len(output_format) == 1:
        return OutputFormat("text" if kind == "text" else "json_object")
    described = output_format.get("json_schema")
    if kind != "json_schema" or len(output_format) != 2 or type(described) is not dict:
        return None
    name, description = described.get("name"), described.get("description")
    schema, strict = described.get("schema"), described.get("strict")
    unknown = {key for key, value in described.items() if value is not None} - {
        "name",
        "description",
        "schema",
        "strict",
    }
    if type(name) is not str or type(description) not in (str, type(None)) or unknown:
        return None
    if type(schema) not in (dict, type(None)) or type(strict) not in (bool, type(None)):
        return None
    return OutputFormat("json_schema", schema, name, description, strict)


def write_parameters(request: ModelRequest, body: dict[str, Any], losses: list[Loss], dialect: Dialect) -> None:
    """Put everything but messages and tools into a body."""
    for key in _UNCHANGED:
        value = getattr(request, _PARAMETERS[key][0])
        if value is not None:
            body[key] = value
    if dialect.enforces_schemas and request.service_tier in SERVICE_TIERS:
        body["service_tier"] = SERVICE_TIERS[request.service_tier]
    for key in _RANGED:
        field = _PARAMETERS[key][0]
        value = getattr(request, field)
        if value is not None:
            _write_number(body, key, field, value, losses)
    if request.max_output_tokens is not None:
        _write_number(body, dialect.output_tokens_field, "max_output_tokens", request.max_output_tokens, losses)
    if request.seed is not None:
        body[dialect.seed_field] = request.seed
    if request.top_k is not None:
        if dialect.accepts_top_k:
            body["top_k"] = request.top_k
        else:
            losses.append(Loss("top_k", "top_k", "host does not accept it; dropped (OC-26)"))
    if request.stop is not None:
        limit = rules.MAX_STOP_SEQUENCES
        body["stop"] = list(request.stop[:limit])
        if len(request.stop) > limit:
            reason = f"OpenAI accepts at most {limit} stop sequences; sent the first {limit} (OC-21)"
            losses.append(Loss("stop", "stop", reason))
    if request.metadata is not None:
        _write_metadata(request.metadata, body, losses)
    if request.output_format is not None:
        _write_output_format(request.output_format, body, losses, dialect)
    if request.reasoning is not None:
        _write_reasoning(request.reasoning, body, losses, dialect)
        _map_effort(request, body, losses)
    if request.stream is not None:
        body["stream"] = request.stream


def apply_model_limits(request: ModelRequest, body: dict[str, Any], losses: list[Loss], dialect: Dialect) -> None:
    """What depends on the whole body: native extras, stream options, parameters that the model refuses."""
    extras = own_extras(request.native, losses, "native", OPENAI, FORMAT)
    body.update(extras)
    if body.get("stream") is True and dialect.has_stream_options:
        options = body.get("stream_options")
        if type(options) in (dict, type(None)):
            body["stream_options"] = {"include_usage": True, **(options or {})}
    refused: list[Any] = []
    openai.check_limits(refused, "OC-26", body, rules.MODEL_LIMITS)
    for violation in refused:
        if violation.path in extras:
            continue
        value = body.pop(violation.path)
        if violation.path == "max_tokens":
            body["max_completion_tokens"] = value
        else:
            losses.append(Loss(violation.path, violation.path, violation.message))


def _write_number(body: dict[str, Any], key: str, field: str, value: Any, losses: list[Loss]) -> None:
    allowed = rules.RANGES[key]
    if value != value:  # not a number at all
        losses.append(Loss(field, field, "not a number; dropped"))
    elif key.startswith("max_") and value < allowed.minimum:
        losses.append(Loss(field, field, f"must be at least {allowed.minimum}; dropped {value!r} (OC-20)"))
    elif value < allowed.minimum:
        body[key] = allowed.minimum
        reason = f"{value!r} is below the minimum {allowed.minimum}; sent {allowed.minimum} (OC-20)"
        losses.append(Loss(field, field, reason))
    elif allowed.maximum is not None and value > allowed.maximum:
        body[key] = allowed.maximum
        reason = f"{value!r} is above the maximum {allowed.maximum}; sent {allowed.maximum} (OC-20)"
        losses.append(Loss(field, field, reason))
    else:
        body[key] = value


def _write_metadata(metadata: dict[str, Any], body: dict[str, Any], losses: list[Loss]) -> None:
    pairs: dict[str, str] = {}
    for key, value in metadata.items():
        path = f"metadata.{key}"
        if len(pairs) == MAX_METADATA_PAIRS or len(key) > MAX_METADATA_KEY:
            losses.append(Loss(path, key, _METADATA_LIMIT))
            continue
        text = canonical_json(value)
        if text is not value:
            losses.append(Loss(path, key, "metadata values must be strings; sent as JSON text (OC-27)"))
        if len(text) > MAX_METADATA_VALUE:
            losses.append(Loss(path, key, "metadata values are limited to 512 characters; sent the first 512 (OC-27)"))
        pairs[key] = text[:MAX_METADATA_VALUE]
    body["metadata"] = pairs


def _write_output_format(
    output_format: OutputFormat, body: dict[str, Any], losses: list[Loss], dialect: Dialect
) -> None:
    extras = own_extras(output_format.native, losses, "output_format", OPENAI, FORMAT)
    if output_format.kind != "json_schema":
        body["response_format"] = {"type": output_format.kind, **extras}
        ignored = [field for field in _SCHEMA_FIELDS if getattr(output_format, field) is not None]
        losses.extend(
            Loss(f"output_format.{field}", field, f"not supported by {output_format.kind}; dropped")
            for field in ignored
        )
        return
    name = output_format.name or "response"
    described: dict[str, Any] = {"name": name if openai.is_name(name) else safe_name(name, 64)}
    if output_format.description is not None:
        described["description"] = output_format.description
    if output_format.schema is not None:
        described["schema"] = output_format.schema
    if output_format.strict is not None:
        if output_format.strict and dialect.enforces_schemas and not _is_closed(output_format.schema):
            losses.append(Loss("output_format.strict", "strict", NOT_STRICT))
        else:
            described["strict"] = output_format.strict
    body["response_format"] = {"type": "json_schema", "json_schema": described, **extras}


def _is_closed(schema: dict[str, Any] | None) -> bool:
    if schema is None:
        return True
    may_be_object = schema.get("type") is None or is_object_schema(schema)
    return may_be_object and first_strict_problem(schema) is None


def thinking_requested(reasoning: Reasoning | None) -> bool:
    """Whether the request asks for thinking."""
    if reasoning is None or reasoning.enabled is False:
        return False
    return reasoning.effort != "none" and reasoning.budget_tokens != 0


def _effort(reasoning: Reasoning) -> str:
    """The effort for a reasoning setting, up to `xhigh`."""
    if reasoning.effort is not None:
        return reasoning.effort
    if reasoning.enabled is False:
        return "none"
    if reasoning.budget_tokens is None:
        return "medium"
    budget = min(reasoning.budget_tokens, BUDGETS["xhigh"])
    return next((effort for effort, tokens in reversed(BUDGETS.items()) if budget >= tokens), "none")


def _write_reasoning(reasoning: Reasoning, body: dict[str, Any], losses: list[Loss], dialect: Dialect) -> None:
    native = reasoning.native or {}
    lose_native(losses, "reasoning", native, FORMAT)
    extras, switch = native.get(FORMAT, {}), dialect.reasoning_switch
    if extras and (dialect.echoes_reasoning or switch in extras):
        body.update(extras)
        openrouter = extras.get("reasoning")
        effort = openrouter.get("effort") if isinstance(openrouter, dict) else None
        if reasoning.effort is not None and effort != reasoning.effort:
            body["reasoning_effort"] = reasoning.effort
        return
    settings = (reasoning.effort, reasoning.budget_tokens, reasoning.enabled)
    if reasoning.shown is not None and switch != "reasoning":
        losses.append(
            Loss("reasoning.shown", "shown", "Chat Completions has no setting for the display of reasoning; dropped")
        )
    if settings == (None, None, None) and reasoning.shown is None:
        return
    if switch == "reasoning":
        body["reasoning"] = _openrouter_reasoning(reasoning)
    elif settings == (None, None, None):
        return
    elif dialect.accepts_effort and reasoning.effort not in (None, "none"):
        body["reasoning_effort"] = reasoning.effort
    elif switch == "thinking":
        body["thinking"] = {"type": "enabled" if thinking_requested(reasoning) else "disabled"}
    elif switch == "enable_thinking":
        body["enable_thinking"] = thinking_requested(reasoning)
        if reasoning.budget_tokens:
            body["thinking_budget"] = reasoning.budget_tokens
    else:
        body["reasoning_effort"] = _effort(reasoning)


def _map_effort(request: ModelRequest, body: dict[str, Any], losses: list[Loss]) -> None:
    effort = body.get("reasoning_effort")
    for is_of_family, accepted in _EFFORTS:
        if effort in accepted and is_of_family(request.model):
            body["reasoning_effort"] = accepted[effort]
            if request.reasoning is not None and request.reasoning.effort is not None:
                reason = f'{request.model} does not support effort "{effort}"; sent "{accepted[effort]}"'
                losses.append(Loss("reasoning.effort", str(effort), reason))


def _openrouter_reasoning(reasoning: Reasoning) -> dict[str, Any]:
    written: dict[str, Any] = {}
    if reasoning.effort is not None:
        written["effort"] = reasoning.effort
    elif reasoning.budget_tokens is not None:
        written["max_tokens"] = reasoning.budget_tokens
    if reasoning.enabled is not None:
        written["enabled"] = reasoning.enabled
    if reasoning.shown is not None:
        written["exclude"] = reasoning.shown in ("omitted", "none")
    return written
