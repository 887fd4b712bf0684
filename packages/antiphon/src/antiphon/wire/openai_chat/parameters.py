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

from msgspec import structs

from antiphon.wire.loss import lose_native, other_fields, own_extras
from antiphon.wire.openai_chat import FORMAT
from antiphon.wire.openai_chat.dialects import Dialect
from antiphon.wire.parameters import NUMBER, Parameter, ParameterTable, Rejection
from antiphon.wire.parameters.reasoning import HIDDEN, ReasoningForms, is_off, plan_reasoning
from antiphon.wire.request import OutputFormat, Reasoning
from antiphon.wire.request_writer import RequestWriter
from antiphon.wire.rules.limits import Range, Texts
from antiphon.wire.shared_openai import (
    OPENAI,
    described_schema,
    find_refused,
    lose_schema_fields,
    shared_rows,
)

_SHARED = shared_rows("OC-20", "OC-27", "OC-26")
_PENALTY = Range(rule="OC-20", minimum=-2, maximum=2)
_OUTPUT_TOKENS = Range(rule="OC-20", minimum=1, below="drop", is_whole=True, model_fact="max_output_tokens")
PARAMETER_TABLE = ParameterTable(
    "Chat Completions",
    (
        *(_SHARED[key] for key in ("model", "stream", "parallel_tool_calls", "store")),
        Parameter("verbosity", "verbosity", (str,)),
        *(_SHARED[key] for key in ("user", "service_tier", "prompt_cache_key")),
        Parameter("logprobs", "logprobs", (bool,)),
        *(_SHARED[key] for key in ("temperature", "top_p")),
        Parameter("presence_penalty", "presence_penalty", NUMBER, _PENALTY),
        Parameter("frequency_penalty", "frequency_penalty", NUMBER, _PENALTY),
        Parameter("candidates", "n", (int,), Range(rule="OC-20", minimum=1, is_whole=True, model_fact="candidates")),
        _SHARED["top_logprobs"],
        Parameter("max_output_tokens", "max_tokens", limit=_OUTPUT_TOKENS, is_written=False),
        Parameter("max_output_tokens", "max_completion_tokens", limit=_OUTPUT_TOKENS),
        Parameter("seed", "seed", (int,)),
        Parameter("top_k", "top_k", (int,)),
        Parameter("stop", "stop", limit=Texts(rule="OC-21", at_most=4, accepts_one=True, each_is_reported=False)),
        _SHARED["metadata"],
    ),
)
_COMPATIBLE_TABLE = ParameterTable(  # other hosts have service tiers of their own
    "Chat Completions",
    (structs.replace(row, limit=None) if row.field == "service_tier" else row for row in PARAMETER_TABLE.rows),
)
_HOST_REFUSES = Rejection("host does not accept it; dropped (OC-26)", "OC-26")
HOST_PARAMETERS = ("enable_thinking", "reasoning", "thinking", "top_k")
"""Parameters of other hosts that are read."""


_REASONING = ReasoningForms(rule="OC-26", modes=("effort",), default_effort="medium")
_REASONING_KEYS = ("reasoning_effort", "thinking", "reasoning", "enable_thinking")


def read_parameters(body: dict[str, Any], fields: dict[str, Any]) -> dict[str, Any]:
    """Read the keys of a body into fields of the request; returns the rest, including tools."""
    native = PARAMETER_TABLE.read(body, fields)
    if not native:
        return native
    if "max_tokens" in native or "max_completion_tokens" in native:
        _read_output_tokens(fields, native)
    if not native.keys().isdisjoint(_REASONING_KEYS):
        _read_reasoning(fields, native)
    if "response_format" in native and (output_format := _read_output_format(native["response_format"])) is not None:
        fields["output_format"] = output_format
        del native["response_format"]
    options = native.get("stream_options")
    if type(options) is dict and options.get("include_usage") is True and fields.get("stream"):
        native["stream_options"] = {key: value for key, value in options.items() if key != "include_usage"}
        if not native["stream_options"]:
            del native["stream_options"]
    return native


def _read_output_tokens(fields: dict[str, Any], native: dict[str, Any]) -> None:
    has_both = "max_completion_tokens" in native and "max_tokens" in native
    for key in ("max_completion_tokens", "max_tokens"):
        value = native.get(key)
        if type(value) is int and value > 0 and "max_output_tokens" not in fields:
            fields["max_output_tokens"] = value
            if not has_both:  # both (OC-23) are written back unchanged
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
    unknown = other_fields(described, ("name", "description", "schema", "strict"))
    if type(name) is not str or type(description) not in (str, type(None)) or unknown:
        return None
    if type(schema) not in (dict, type(None)) or type(strict) not in (bool, type(None)):
        return None
    return OutputFormat("json_schema", schema, name, description, strict)


class ParameterWriter(RequestWriter):
    """Writes everything but messages and tools into a body."""

    host: Dialect

    def write_parameters(self, body: dict[str, Any]) -> None:
        request, host, model = self.request, self.host, self.model
        switches = {} if request.reasoning is None else self._reasoning_switches(request.reasoning)
        refused = find_refused(model, "OC-26", request.temperature, request.top_p, switches.get("reasoning_effort"))
        if not host.accepts_top_k:
            refused = {**refused, "top_k": _HOST_REFUSES}
        legacy = host.output_tokens_field if model.max_tokens else "max_completion_tokens"
        keys = {"max_output_tokens": legacy, "seed": host.seed_field}
        table = PARAMETER_TABLE if host.enforces_schemas else _COMPATIBLE_TABLE
        table.write(request, body, model, self.losses, refused=refused, keys=keys)
        if request.output_format is not None:
            self._write_output_format(request.output_format, body)
        body.update(switches)
        if request.stream is not None:
            body["stream"] = request.stream
        body.update(own_extras(request.native, self.losses, "native", OPENAI, FORMAT))
        if body.get("stream") is True and host.has_stream_options:
            options = body.get("stream_options")
            if type(options) in (dict, type(None)):
                body["stream_options"] = {"include_usage": True, **(options or {})}

    def _write_output_format(self, output_format: OutputFormat, body: dict[str, Any]) -> None:
        extras = own_extras(output_format.native, self.losses, "output_format", OPENAI, FORMAT)
        if output_format.kind != "json_schema":
            body["response_format"] = {"type": output_format.kind, **extras}
            lose_schema_fields(output_format, output_format.kind, self.losses)
            return
        enforces = self.host.enforces_schemas
        described = described_schema(output_format, self.losses, "OC-17", enforces_schemas=enforces)
        body["response_format"] = {"type": "json_schema", "json_schema": described, **extras}

    def _reasoning_switches(self, reasoning: Reasoning) -> dict[str, Any]:
        """The parameters that set reasoning, as the host names them."""
        host, model, losses, native = self.host, self.model, self.losses, reasoning.native or {}
        lose_native(losses, "reasoning", native, FORMAT)
        extras, switch = native.get(FORMAT, {}), host.reasoning_switch
        if extras and (host.echoes_reasoning or switch in extras):
            written = dict(extras)
            openrouter = extras.get("reasoning")
            effort = openrouter.get("effort") if isinstance(openrouter, dict) else None
            if reasoning.effort is not None and effort != reasoning.effort:
                plan = plan_reasoning(Reasoning(reasoning.effort), model, _REASONING, losses)
                if plan.effort is not None:
                    written["reasoning_effort"] = plan.effort
            return written
        settings = (reasoning.effort, reasoning.budget_tokens, reasoning.enabled)
        if switch == "reasoning" and (settings != (None, None, None) or reasoning.shown is not None):
            return {"reasoning": _openrouter_reasoning(reasoning)}
        has_switch = switch != "reasoning_effort" and settings != (None, None, None)
        if has_switch and not (host.accepts_effort and reasoning.effort not in (None, "none")):
            plan_reasoning(Reasoning(shown=reasoning.shown), model, _REASONING, losses)
            if switch == "thinking":
                return {"thinking": {"type": "enabled" if thinking_requested(reasoning) else "disabled"}}
            budget = {"thinking_budget": reasoning.budget_tokens} if reasoning.budget_tokens else {}
            return {"enable_thinking": thinking_requested(reasoning), **budget}
        plan = plan_reasoning(reasoning, model, _REASONING, losses)
        return {} if plan.effort is None else {"reasoning_effort": plan.effort}


def thinking_requested(reasoning: Reasoning | None) -> bool:
    """Whether the request asks for thinking."""
    return reasoning is not None and not is_off(reasoning)


def _openrouter_reasoning(reasoning: Reasoning) -> dict[str, Any]:
    written: dict[str, Any] = {}
    if reasoning.effort is not None:
        written["effort"] = reasoning.effort
    elif reasoning.budget_tokens is not None:
        written["max_tokens"] = reasoning.budget_tokens
    if reasoning.enabled is not None:
        written["enabled"] = reasoning.enabled
    if reasoning.shown is not None:
        written["exclude"] = reasoning.shown in HIDDEN
    return written
