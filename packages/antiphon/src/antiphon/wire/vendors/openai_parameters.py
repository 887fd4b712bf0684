"""The parameters that Chat Completions and Responses share."""

from __future__ import annotations

from typing import Any

from antiphon.wire.capabilities import Capabilities
from antiphon.wire.loss import Loss
from antiphon.wire.parameters import NUMBER, Parameter, Refusals, refused_fields
from antiphon.wire.request import OutputFormat, ToolDefinition
from antiphon.wire.rules.limits import Choice, Pairs, Range
from antiphon.wire.tools.names import safe_name
from antiphon.wire.vendors.openai import MAX_NAME, SERVICE_TIERS, is_name


def shared_rows(range_rule: str, metadata_rule: str, tier_rule: str) -> dict[str, Parameter]:
    """The parameters that both formats have, by key."""
    rows = (
        Parameter("model", "model", (str,), is_written=False),
        Parameter("stream", "stream", (bool,), is_written=False),
        Parameter("parallel_tool_calls", "parallel_tool_calls", (bool,), is_written=False),
        Parameter(
            "temperature", "temperature", NUMBER, Range(rule=range_rule, minimum=0, maximum=2), sends_default=True
        ),
        Parameter("top_p", "top_p", NUMBER, Range(rule=range_rule, minimum=0, maximum=1, unset="drop")),
        Parameter("top_logprobs", "top_logprobs", (int,), Range(rule=range_rule, minimum=0, maximum=20, is_whole=True)),
        Parameter("user", "user", (str,)),
        Parameter("metadata", "metadata", (dict,), Pairs(rule=metadata_rule, at_most=16, max_key=64, max_value=512)),
        Parameter("service_tier", "service_tier", (str,), Choice(rule=tier_rule, values=SERVICE_TIERS)),
        Parameter("cache_key", "prompt_cache_key", (str,)),
        Parameter("store", "store", (bool,)),
    )
    return {row.key: row for row in rows}


def schema_name(output_format: OutputFormat) -> str:
    """The name of an output schema, as OpenAI accepts it (OC-24, OR-17)."""
    name = output_format.name or "response"
    return name if is_name(name) else safe_name(name, MAX_NAME)


def find_refused(capabilities: Capabilities, rule: str, temperature: Any, top_p: Any, effort: Any) -> Refusals:
    """The fields that a model refuses at this effort, or at its default one."""
    is_reasoning = (effort or capabilities.default_effort) not in ("none", None)
    return refused_fields(capabilities, rule, rule, temperature, top_p, is_reasoning=is_reasoning)


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
