"""The parameters that Chat Completions and Responses share, and how a model's efforts are chosen, once for both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from antiphon.wire.capabilities import Capabilities, effort_for_budget
from antiphon.wire.loss import Loss
from antiphon.wire.parameters import NUMBER, Parameter, ParameterTable, Refusal, Refusals, refused_fields
from antiphon.wire.request import OutputFormat, Reasoning, ToolDefinition
from antiphon.wire.rules import RuleContext, Violation, is_number, is_whole_number
from antiphon.wire.tool_calls import safe_name
from antiphon.wire.vendors.openai import (
    MAX_METADATA_KEY,
    MAX_METADATA_PAIRS,
    MAX_METADATA_VALUE,
    MAX_NAME,
    SERVICE_TIERS,
    Violations,
    is_name,
    quote_list,
    quote_value,
    unsupported_parameter,
    wrong_type,
)


class OpenAIWording:
    """OpenAI's sentences about parameters."""

    def check_number(self, row: Parameter, value: Any, maximum: float | None) -> str:
        noun = "integer" if row.integer else "decimal"
        if not (is_whole_number(value) if row.integer else is_number(value)):
            return wrong_type(row.rule, row.key, "an integer" if row.integer else "a decimal", value).message
        problem = ""
        if row.minimum is not None and not value >= row.minimum:
            problem = f"{noun} below minimum value. Expected a value >= {row.minimum}"
        elif maximum is not None and not value <= maximum:
            problem = f"{noun} above maximum value. Expected a value <= {maximum}"
        return f"Invalid '{row.key}': {problem}, but got {value!r} instead." if problem else ""

    def refused(self, row: Parameter, value: Any, refusal: Refusal) -> str:
        if refusal.is_pair:
            return "`temperature` and `top_p` cannot both be specified for this model. Please use only one."
        if row.sends_default:
            supported = "with this model. Only the default (1) value is supported."
            return f"Unsupported value: '{row.key}' does not support {quote_value(value)} {supported}"
        return unsupported_parameter(row.rule, row.key).message


WORDING = OpenAIWording()


def metadata_converter(rule: str) -> Callable[[dict[str, Any], list[Loss]], dict[str, str]]:
    """Makes metadata legal: not too many strings, with short keys and values."""
    pairs_and_keys = f"{MAX_METADATA_PAIRS} entries with keys of at most {MAX_METADATA_KEY} characters"
    limit = f"metadata is limited to {pairs_and_keys}; dropped this entry ({rule})"
    cut = f"limited to {MAX_METADATA_VALUE} characters; sent the first {MAX_METADATA_VALUE} ({rule})"

    def convert(metadata: dict[str, Any], losses: list[Loss]) -> dict[str, str]:
        pairs: dict[str, str] = {}
        for key, value in metadata.items():
            path = f"metadata.{key[:MAX_METADATA_KEY]}"
            if len(pairs) == MAX_METADATA_PAIRS or len(key) > MAX_METADATA_KEY:
                losses.append(Loss(path, key[:MAX_METADATA_KEY], limit))
                continue
            text = value if type(value) is str else msgspec.json.encode(value, order="sorted").decode()
            if text is not value:
                losses.append(Loss(path, key, f"metadata values must be strings; sent as JSON text ({rule})"))
            if len(text) > MAX_METADATA_VALUE:
                losses.append(Loss(path, key, f"metadata values are {cut}"))
            pairs[key] = text[:MAX_METADATA_VALUE]
        return pairs

    return convert


def shared_rows(range_rule: str, metadata_rule: str, tier_rule: str) -> dict[str, Parameter]:
    """The parameters that both formats have, by key."""
    rows = (
        Parameter("model", "model", (str,), is_written=False),
        Parameter("stream", "stream", (bool,), is_written=False),
        Parameter("parallel_tool_calls", "parallel_tool_calls", (bool,), is_written=False),
        Parameter("temperature", "temperature", NUMBER, range_rule, 0, 2, sends_default=True),
        Parameter("top_p", "top_p", NUMBER, range_rule, 0, 1),
        Parameter("top_logprobs", "top_logprobs", (int,), range_rule, 0, 20, integer=True),
        Parameter("user", "user", (str,)),
        Parameter("metadata", "metadata", (dict,), convert=metadata_converter(metadata_rule)),
        Parameter("service_tier", "service_tier", (str,), tier_rule, values=SERVICE_TIERS, only_values=True),
        Parameter("cache_key", "prompt_cache_key", (str,)),
        Parameter("store", "store", (bool,)),
    )
    return {row.key: row for row in rows}


def schema_name(output_format: OutputFormat) -> str:
    """The name of an output schema, as OpenAI accepts it (OC-24, OR-17)."""
    name = output_format.name or "response"
    return name if is_name(name) else safe_name(name, MAX_NAME)


def choose_effort(reasoning: Reasoning, model: str, capabilities: Capabilities, losses: list[Loss]) -> str | None:
    """The effort to send for reasoning settings of any format, the same in Chat Completions and Responses."""
    effort, budget = reasoning.effort, reasoning.budget_tokens
    path = "reasoning.effort"
    if effort is not None:
        if budget is not None:
            reason = "OpenAI accepts an effort, not a budget; dropped"
            losses.append(Loss("reasoning.budget_tokens", str(budget), reason))
    elif reasoning.enabled is False:
        effort, path = "none", "reasoning.enabled"
    elif budget is not None and budget >= 0:
        effort, path = effort_for_budget(budget), "reasoning.budget_tokens"
        if capabilities.efforts is None and effort in ("xhigh", "max"):
            effort = "high"  # every reasoning model knows it
    elif reasoning.enabled or budget is not None:
        effort, path = "medium", "reasoning.enabled"
    if effort is None:
        return None
    if capabilities.efforts == ():
        if effort != "none":
            losses.append(Loss(path, effort, f"{model} does not support reasoning effort; dropped (OC-26)"))
        return None
    legal = capabilities.nearest_effort(effort)
    if legal != effort:
        losses.append(Loss(path, effort, f'{model} does not support effort "{effort}"; sent "{legal}"'))
    return legal


def drop_refused_switch(body: dict[str, Any], capabilities: Capabilities, losses: list[Loss]) -> None:
    """Leave out `parallel_tool_calls` for a model that refuses it; true is the default, and no loss."""
    if not capabilities.parallel_tool_switch and body.pop("parallel_tool_calls", True) is False:
        reason = "model does not support it; dropped (OC-26)"
        losses.append(Loss("parallel_tool_calls", "parallel_tool_calls", reason))


def check_effort(
    violations: Violations, rule: str, path: str, effort: Any, model: Any, capabilities: Capabilities
) -> None:
    """An effort that the model is known to refuse, in the words of the format that has it at this path."""
    efforts = capabilities.efforts
    if effort is None or efforts is None or effort in efforts:
        return
    is_chat, supported = path == "reasoning_effort", f"Supported values are: {quote_list(efforts or ('none',))}."
    if not efforts:
        unknown = f"Unrecognized request argument supplied: {path}"
        text = unknown if is_chat else unsupported_parameter(rule, path).message
    elif is_chat:
        text = f"Unsupported value: '{path}' does not support '{quote_value(effort)}' with this model. {supported}"
    else:
        named = f"is not supported with the '{quote_value(model)}' model."
        text = f"Unsupported value: '{quote_value(effort)}' {named} {supported}"
    violations.append(Violation(rule, path, text))


def find_refused(capabilities: Capabilities, rule: str, temperature: Any, top_p: Any, effort: Any) -> Refusals:
    """The fields that a model refuses at this effort, or at its default one."""
    is_reasoning = (effort or capabilities.default_effort) not in ("none", "")
    return refused_fields(capabilities, rule, rule, temperature, top_p, is_reasoning=is_reasoning)


def check_refused(context: RuleContext, table: ParameterTable, rule: str, effort: Any) -> Refusals:
    """Report the parameters of a body that its model refuses; returns what it refuses."""
    body = context.body
    refused = find_refused(context.model, rule, body.get("temperature"), body.get("top_p"), effort)
    if refused:
        context.violations.extend(table.check_refused(body, refused, WORDING))
    return refused


def check_parallel_switch(context: RuleContext, rule: str) -> None:
    """Report `parallel_tool_calls` for a model that refuses it."""
    if context.body.get("parallel_tool_calls") is not None and not context.model.parallel_tool_switch:
        context.violations.append(unsupported_parameter(rule, "parallel_tool_calls"))


def lose_schema_fields(output_format: OutputFormat, kind: str, losses: list[Loss]) -> None:
    """Report the fields of an output format that its `kind` does not have: only `json_schema` has them."""
    losses.extend(
        Loss(f"output_format.{field}", field, f"not supported by {kind}; dropped")
        for field in ("schema", "name", "description", "strict")
        if getattr(output_format, field) is not None
    )


def lose_function_fields(tool: ToolDefinition, losses: list[Loss], path: str) -> None:
    """Report the fields of a freeform tool that only functions have."""
    losses.extend(
        Loss(f"{path}.{field}", field, "a freeform tool accepts only text; dropped")
        for field in ("parameters", "strict")
        if getattr(tool, field) is not None
    )
