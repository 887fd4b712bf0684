"""Parameters of a request, what each model accepts of them, and cache breakpoints.

Reasoning that was read here has an origin marker and is written in the same way: a budget is `enabled`, plain yes `adaptive`,
plain no `disabled`, and an effort alone stays alone. Reasoning of other formats says only how much: it becomes adaptive thinking
with an effort on models known to accept that, and a budget on all others. One table converts efforts and budgets; where a model
rejects one (AN-19, AN-32), the other is used.

`Capabilities` come from the model name and the API version; nothing is assumed against an unknown name. The provider counts
cache breakpoints in the order tools, system, messages, and accepts four: the last ones reach furthest, so those are kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from msgspec import structs

from antiphon.wire.anthropic.block_rules import block_type
from antiphon.wire.anthropic.schema import as_output_schema
from antiphon.wire.loss import Loss, lose_native
from antiphon.wire.request import BUDGETS, ModelRequest, OutputFormat, Reasoning
from antiphon.wire.rules import name_set
from antiphon.wire.vendors.anthropic import FORMAT, is_same_format, origin_marker

VERSION = "2023-06-01"
VERSION_2026_10 = "2026-10-21"

_MAX_NAME_LENGTH = 256
"""No model has a longer name; the rest is ignored and not kept in a cache."""
_MODEL = re.compile(
    r"claude-(?:([a-z]+)-(\d{1,2})(?:[-.](\d{1,2}))?(?!\d)|(\d)(?:[-.](\d))?(?!\d))"  # claude-opus-4-8, claude-3-5-haiku
)
THINKING_FAMILIES = ("opus", "sonnet", "fable", "mythos")
ALWAYS_THINKING = ("fable", "mythos")


class Capabilities:
    """What a model and an API version accept."""

    def __init__(self, model: str, version: str, is_on_bedrock: bool) -> None:
        match = _MODEL.search(model)
        family, major, minor, old_major, old_minor = match.groups() if match else ("", 0, 0, 0, 0)
        self._family = family or ""
        self._version = (int(major or old_major), int(minor or old_minor or 0))
        self._is_known = is_known = match is not None
        self.is_on_bedrock = is_on_bedrock
        self.is_version_2026_10 = version.startswith("20") and version >= VERSION_2026_10
        # The conversation may end with an assistant message (AN-07).
        self.accepts_prefill = not self.is_at_least(4, 6)
        # Adaptive thinking (AN-19).
        self.accepts_adaptive = not is_known or self.is_at_least(4, 6)
        # Thinking with a budget in tokens, and turned off (AN-19).
        self.accepts_budget = not self.is_at_least(4, 7, THINKING_FAMILIES)
        self.can_disable_thinking = not (
            self.is_at_least(5, 0, ALWAYS_THINKING) or self.is_at_least(5, 5, THINKING_FAMILIES)
        )
        # An effort is known to be accepted, and it may be `xhigh` (AN-32).
        self.accepts_effort = self.is_at_least(4, 6)
        self.accepts_xhigh = not is_known or self.is_at_least(4, 7)
        # tool_choice may force a call (AN-17).
        self.accepts_forced_choice = not (
            self.is_at_least(5, 1, ALWAYS_THINKING) or self.is_at_least(5, 5, THINKING_FAMILIES)
        )
        # temperature, top_p and top_k are accepted (AN-21).
        self.accepts_sampling = not self.is_at_least(4, 7)

    def is_at_least(self, major: int, minor: int, families: tuple[str, ...] = ()) -> bool:
        """Whether the model is known, of one of these families, and of this version or later."""
        return self._is_known and self._version >= (major, minor) and (not families or self._family in families)

    def accepts_system_role(self, is_native: bool) -> bool:
        """Whether system messages may be among the others (AN-03); for unknown models only if an Anthropic body had it."""
        return self.is_at_least(4, 8) if self._is_known else is_native


_cached = lru_cache(maxsize=256)(Capabilities)


def capabilities_for(model: Any, version: str, host: Any) -> Capabilities:
    """The capabilities for a request; `host` is the `anthropic_version` in the body, which other hosts require."""
    is_on_bedrock = isinstance(host, str) and host.startswith("bedrock-")
    name = model[:_MAX_NAME_LENGTH] if isinstance(model, str) else ""
    return _cached(name, version[:_MAX_NAME_LENGTH], is_on_bedrock)


MIN_BUDGET = 1024
DEFAULT_MAX_TOKENS = 4096

_DISPLAYS = {"omitted": "omitted", "summarized": "summarized"}
_DISPLAY_FOR = _DISPLAYS | {"auto": "summarized", "concise": "summarized", "detailed": "summarized", "none": "omitted"}


def read_thinking(thinking: Any) -> Reasoning | None:
    """The reasoning settings in `thinking`; None if they are unknown."""
    match thinking:
        case {"type": "enabled", "budget_tokens": int(budget), **rest} if budget > 0 and type(budget) is int:
            return _read_display(Reasoning(budget_tokens=budget, enabled=True, native=origin_marker()), rest)
        case {"type": "adaptive", **rest}:
            return _read_display(Reasoning(enabled=True, native=origin_marker()), rest)
        case {"type": "disabled", **rest} if not rest:
            return Reasoning(enabled=False, native=origin_marker())
    return None


def _read_display(reasoning: Reasoning, other: dict[Any, Any]) -> Reasoning | None:
    display = other.get("display")
    if other.keys() - {"display"} or (display is not None and (type(display) is not str or display not in _DISPLAYS)):
        return None
    return Reasoning(reasoning.effort, reasoning.budget_tokens, True, display, reasoning.native)


def write_reasoning(
    reasoning: Reasoning, capabilities: Capabilities, losses: list[Loss]
) -> tuple[dict[str, Any] | None, str | None]:
    """The values of `thinking` and of `output_config.effort`."""
    lose_native(losses, "reasoning", reasoning.native, "anthropic")
    effort = _read_effort(reasoning, losses)
    if effort == "none" or reasoning.enabled is False or reasoning.budget_tokens == 0:
        stated_effort = effort if effort != "none" and is_same_format(reasoning.native) else None
        _write_display(reasoning, None, losses)
        return _disable(capabilities, losses), _supported_effort(stated_effort, capabilities, losses)
    thinking: dict[str, Any] | None = None
    if is_same_format(reasoning.native):
        if reasoning.enabled:
            thinking, effort = _enable(reasoning, effort, capabilities, losses)
    elif capabilities.accepts_effort and reasoning.budget_tokens is None and (effort or reasoning.enabled):
        thinking = {"type": "adaptive"}
    elif effort or reasoning.enabled or reasoning.budget_tokens is not None:
        budget = _write_budget(reasoning.budget_tokens, effort, losses)
        thinking, effort = _with_budget(budget, effort, capabilities)
    _write_display(reasoning, thinking, losses)
    return thinking, _supported_effort(effort, capabilities, losses)


def _read_effort(reasoning: Reasoning, losses: list[Loss]) -> str | None:
    effort = reasoning.effort
    if effort is None or effort in BUDGETS:
        return "low" if effort == "minimal" and reasoning.budget_tokens is None else effort
    losses.append(Loss("reasoning.effort", "effort", f'unknown effort "{effort}"; dropped (AN-32)'))
    return None


def _disable(capabilities: Capabilities, losses: list[Loss]) -> dict[str, Any] | None:
    if capabilities.can_disable_thinking:
        return {"type": "disabled"}
    losses.append(Loss("reasoning", "no thinking", "thinking cannot be turned off for this model; dropped (AN-19)"))
    return None


def _enable(
    reasoning: Reasoning, effort: str | None, capabilities: Capabilities, losses: list[Loss]
) -> tuple[dict[str, Any], str | None]:
    """Thinking as this format stated it, or the nearest that the model accepts."""
    if reasoning.budget_tokens is None:
        if capabilities.accepts_adaptive:
            return {"type": "adaptive"}, effort
        losses.append(Loss("reasoning", "adaptive thinking", "model requires a thinking budget; sent one (AN-19)"))
        return {"type": "enabled", "budget_tokens": _write_budget(None, effort, losses)}, effort
    budget = _write_budget(reasoning.budget_tokens, effort, losses)
    thinking, nearest_effort = _with_budget(budget, effort, capabilities)
    return thinking, effort or nearest_effort


def _write_budget(budget: int | None, effort: str | None, losses: list[Loss]) -> int:
    if budget is None or budget == -1:  # dynamic, in Gemini
        return max(BUDGETS[effort or "medium"], MIN_BUDGET)
    if budget < MIN_BUDGET:
        losses.append(
            Loss("reasoning.budget_tokens", str(budget), f"below the minimum {MIN_BUDGET}; sent {MIN_BUDGET} (AN-19)")
        )
        return MIN_BUDGET
    return budget


def _with_budget(budget: int, effort: str | None, capabilities: Capabilities) -> tuple[dict[str, Any], str | None]:
    """Thinking with a budget, or the nearest effort if the model accepts no budget."""
    if capabilities.accepts_budget:
        return {"type": "enabled", "budget_tokens": budget}, None
    nearest_effort = [name for name in EFFORTS if BUDGETS[name] <= budget][-1]
    return {"type": "adaptive"}, effort or nearest_effort


def _write_display(reasoning: Reasoning, thinking: dict[str, Any] | None, losses: list[Loss]) -> None:
    if reasoning.shown is None:
        return
    display = _DISPLAY_FOR.get(reasoning.shown)
    if thinking is not None and display is not None:
        thinking["display"] = display
    else:
        reason = f'display "{reasoning.shown}" is not supported, or thinking is off; dropped'
        losses.append(Loss("reasoning.shown", "shown", reason))


def _supported_effort(effort: str | None, capabilities: Capabilities, losses: list[Loss]) -> str | None:
    if effort == "xhigh" and not capabilities.accepts_xhigh:
        losses.append(Loss("reasoning.effort", "xhigh", 'model does not support effort "xhigh"; sent "high" (AN-32)'))
        return "high"
    return "low" if effort == "minimal" else effort


def allow_thinking(thinking: dict[str, Any], body: dict[str, Any], is_default_limit: bool, losses: list[Loss]) -> bool:
    """Whether thinking with a budget is valid in this body (AN-19, AN-30); the budget may be lowered."""
    if thinking["type"] != "enabled":
        return True
    reason = ""
    if body.get("tool_choice", {}).get("type") in ("any", "tool"):
        reason = "thinking cannot be combined with a forced tool call; dropped (AN-19)"
    elif _tool_loop_lacks_thinking(body["messages"]):
        reason = "the current tool loop has no thinking blocks; dropped (AN-30)"
    elif thinking["budget_tokens"] >= body["max_tokens"] and is_default_limit:
        body["max_tokens"] = thinking["budget_tokens"] + DEFAULT_MAX_TOKENS
    elif thinking["budget_tokens"] >= body["max_tokens"] and "tools" not in body:
        # With tools, interleaved thinking may use more tokens than one answer.
        if body["max_tokens"] <= MIN_BUDGET:
            reason = f"max_tokens leaves less than the minimum budget {MIN_BUDGET}; dropped (AN-19)"
        else:
            lowered = f"must be less than max_tokens; sent {body['max_tokens'] - 1} (AN-19)"
            losses.append(Loss("reasoning.budget_tokens", str(thinking["budget_tokens"]), lowered))
            thinking["budget_tokens"] = body["max_tokens"] - 1
    if reason:
        losses.append(Loss("reasoning", "thinking", reason))
    return not reason


def _tool_loop_lacks_thinking(messages: list[Any]) -> bool:
    """Whether the current tool loop has no thinking blocks (AN-30). Adjacent messages of one role are one turn."""
    has_calls = has_results = is_users_turn = False
    for message in reversed(messages):
        content = message.get("content") if isinstance(message, dict) else None
        kinds = [block_type(block) for block in content] if isinstance(content, list) else []
        role = message.get("role") if isinstance(message, dict) else None
        if role == "user":
            is_users_turn = True
            has_results = has_results or "tool_result" in kinds
        elif role == "assistant":
            if is_users_turn and not has_results:
                break
            if "thinking" in kinds or "redacted_thinking" in kinds:
                return False
            is_users_turn = has_results = False
            has_calls = has_calls or "tool_use" in kinds
    return has_calls


PARAMETERS = name_set(
    "model messages max_tokens system metadata stop_sequences stream temperature top_p top_k tools tool_choice thinking "
    "service_tier container context_management mcp_servers output_config output_format cache_control inference_geo speed "
    "user_profile_id diagnostics fallbacks fallback_credit_token compaction thread"
)
# Hosts with the model in the URL accept version and betas in the body (AN-01, errata).
HOST_PARAMETERS = PARAMETERS | {"anthropic_version", "anthropic_beta"}
SAMPLING = ("temperature", "top_p", "top_k")
EFFORTS = ("low", "medium", "high", "xhigh", "max")
MAX_USER_LENGTH = 512
MIN_TOP_P_WITH_THINKING = 0.95
"""The smallest `top_p` accepted with thinking."""

# Fields without a parameter in this API, each with its default, which is not a loss.
UNSUPPORTED_FIELDS = {
    "seed": None,
    "verbosity": None,
    "metadata": None,
    "cache_key": None,
    "store": None,
    "presence_penalty": 0,
    "frequency_penalty": 0,
    "candidates": 1,
    "logprobs": False,
    "top_logprobs": 0,
}
SERVICE_TIERS = {"auto": "auto", "standard_only": "standard_only", "default": "standard_only"}


def read_parameter(name: str, value: Any, fields: dict[str, Any], extras: dict[str, Any]) -> bool:
    """Read a parameter that other formats have too; False if it is unknown or malformed."""
    if name == "stop_sequences" and type(value) is list and all(type(sequence) is str for sequence in value):
        fields["stop"] = tuple(value)
    elif name == "service_tier" and value in ("auto", "standard_only"):
        fields["service_tier"] = value
    elif name == "thinking" and (reasoning := read_thinking(value)) is not None:
        effort = fields["reasoning"].effort if "reasoning" in fields else None
        fields["reasoning"] = structs.replace(reasoning, effort=effort)
    elif name == "output_format" and "output_format" not in fields and (schema := _format_schema(value)) is not None:
        # An older beta had the format here; the origin marker records it.
        fields["output_format"] = OutputFormat("json_schema", schema, native=origin_marker())
    elif name in ("metadata", "output_config") and type(value) is dict:
        fields_set = {key: inner for key, inner in value.items() if inner is not None}
        if name == "output_config":
            _read_output_config(fields_set, fields)
        elif type(fields_set.get("user_id")) is str:
            fields["user"] = fields_set.pop("user_id")
        if fields_set:
            extras[name] = fields_set
    else:
        return False
    return True


def _read_output_config(config: dict[str, Any], fields: dict[str, Any]) -> None:
    """Move effort and format out of `config`."""
    if config.get("effort") in EFFORTS:
        reasoning = fields.get("reasoning") or Reasoning(native=origin_marker())
        fields["reasoning"] = structs.replace(reasoning, effort=config.pop("effort"))
    schema = _format_schema(config.get("format"))
    if schema is not None and "output_format" not in fields:
        del config["format"]
        fields["output_format"] = OutputFormat("json_schema", schema)


def _format_schema(output_format: Any) -> dict[str, Any] | None:
    match output_format:
        case {"type": "json_schema", "schema": dict(schema)} if len(output_format) == 2:
            return schema
    return None


PARAMETER_FIELDS: dict[str, tuple[str, tuple[type, ...]]] = {
    "model": ("model", (str,)),
    "max_tokens": ("max_output_tokens", (int,)),
    "stream": ("stream", (bool,)),
    "temperature": ("temperature", (int, float)),
    "top_p": ("top_p", (int, float)),
    "top_k": ("top_k", (int,)),
}


def is_default_value(name: str, value: float) -> bool:
    """Whether a value has the same effect as no value."""
    return (name == "temperature" and value == 1) or (name == "top_p" and value >= 0.99)


def write_thinking_and_format(
    request: ModelRequest, body: dict[str, Any], capabilities: Capabilities, citations_enabled: bool, losses: list[Loss]
) -> None:
    config: dict[str, Any] = {}
    if request.reasoning is not None:
        thinking, effort = write_reasoning(request.reasoning, capabilities, losses)
        if thinking is not None and allow_thinking(thinking, body, request.max_output_tokens is None, losses):
            body["thinking"] = thinking
        if effort is not None:
            config["effort"] = effort
    output_format = request.output_format
    if output_format is not None:
        written = _write_output_format(output_format, citations_enabled, losses)
        if written is not None and output_format.native is not None and FORMAT in output_format.native:
            body["output_format"] = written
        elif written is not None:
            config["format"] = written
    if config:
        body["output_config"] = config


def _write_output_format(
    output_format: OutputFormat, citations_enabled: bool, losses: list[Loss]
) -> dict[str, Any] | None:
    lose_native(losses, "output_format", output_format.native, FORMAT)
    if output_format.kind == "text":
        return None
    reason = "Anthropic accepts only the schema of an output format; dropped"
    dropped = [name for name in ("name", "description") if getattr(output_format, name) is not None]
    losses.extend(Loss(f"output_format.{name}", name, reason) for name in dropped)
    if output_format.strict is False:
        losses.append(Loss("output_format.strict", "strict", "output formats are always strict; sent as strict"))
    if output_format.kind == "json_object" or output_format.schema is None:
        losses.append(
            Loss(
                "output_format", output_format.kind, "Anthropic requires a schema for an output format; dropped (AN-32)"
            )
        )
    elif citations_enabled:
        losses.append(Loss("output_format", output_format.kind, "cannot be combined with citations; dropped (AN-32)"))
    else:
        return {"type": "json_schema", "schema": as_output_schema(output_format.schema, "output_format.schema", losses)}
    return None


def write_sampling(request: ModelRequest, body: dict[str, Any], capabilities: Capabilities, losses: list[Loss]) -> None:
    thinking_enabled = body.get("thinking", {}).get("type") in ("enabled", "adaptive")
    for name in SAMPLING:
        value = getattr(request, name)
        if value is None:
            continue
        is_unset = value == -1 and name != "temperature"
        is_default = is_unset or is_default_value(name, value)
        reason = ""
        if capabilities.is_version_2026_10:
            reason = "API version 2026-10-21 does not support it; dropped (AN-28)"
        elif thinking_enabled and not (is_default or (name == "top_p" and value >= MIN_TOP_P_WITH_THINKING)):
            # The API documents the same limits for adaptive thinking.
            reason = "cannot be combined with thinking; dropped (AN-19)"
        elif not (capabilities.accepts_sampling or is_default):
            reason = "model does not support it; dropped (AN-21)"
        elif value != value or (name == "top_k" and value < 0 and not is_unset):
            reason = "out of range; dropped (AN-21)"
        elif name != "top_k" and not is_unset and not 0 <= value <= 1:
            body[name] = 0 if value < 0 else 1
            losses.append(Loss(name, str(value), f"outside the range 0 to 1; sent {body[name]} (AN-21)"))
        else:
            body[name] = value
        if reason:
            losses.append(Loss(name, name, reason))


def write_stop_and_user(request: ModelRequest, body: dict[str, Any], losses: list[Loss]) -> None:
    if request.stop is not None:
        body["stop_sequences"] = [sequence for sequence in request.stop if sequence and not sequence.isspace()]
        for index, sequence in enumerate(request.stop):
            if not sequence or sequence.isspace():
                losses.append(Loss(f"stop[{index}]", repr(sequence), "blank stop sequence; dropped (AN-22)"))
    if request.user is not None:
        body["metadata"] = {"user_id": request.user[:MAX_USER_LENGTH]}
        if len(request.user) > MAX_USER_LENGTH:
            losses.append(
                Loss(
                    "user", "user", f"limited to {MAX_USER_LENGTH} characters; sent the first {MAX_USER_LENGTH} (AN-23)"
                )
            )
    if request.service_tier is not None:
        if request.service_tier in SERVICE_TIERS:
            body["service_tier"] = SERVICE_TIERS[request.service_tier]
        else:
            losses.append(
                Loss("service_tier", "service_tier", f'Anthropic has no service tier "{request.service_tier}"; dropped')
            )


MAX_CACHE_BREAKPOINTS = 4

CacheBreakpoints = list[tuple[dict[str, Any], str]]
"""Written blocks with `cache_control`, each with the path of its part."""


def limit_cache_breakpoints(body: dict[str, Any], cache_breakpoints: CacheBreakpoints, losses: list[Loss]) -> None:
    """Remove breakpoints beyond the limit, and shorten one-hour ones after five-minute ones."""
    if len(cache_breakpoints) <= MAX_CACHE_BREAKPOINTS and not any(
        _is_one_hour(block) for block, _ in cache_breakpoints
    ):
        return
    paths = {id(block): path for block, path in cache_breakpoints}
    breakpoints = [block for block in _cached_blocks(body) if id(block) in paths]
    for block in breakpoints[:-MAX_CACHE_BREAKPOINTS]:
        del block["cache_control"]
        limit = MAX_CACHE_BREAKPOINTS
        reason = f"Anthropic accepts at most {limit} cache breakpoints; kept the last {limit} (AN-18)"
        losses.append(Loss(f"{paths[id(block)]}.cache_control", "cache_control", reason))
    has_five_minutes = False
    for block in breakpoints[-MAX_CACHE_BREAKPOINTS:]:
        if not _is_one_hour(block):
            has_five_minutes = True
        elif has_five_minutes:
            block["cache_control"] = {**block["cache_control"], "ttl": "5m"}
            reason = "a 1h breakpoint must not follow a 5m one; sent 5m (AN-18)"
            losses.append(Loss(f"{paths[id(block)]}.cache_control.ttl", "ttl", reason))


def _is_one_hour(block: dict[str, Any]) -> bool:
    cache_control = block["cache_control"]
    return isinstance(cache_control, dict) and cache_control.get("ttl") == "1h"


def _cached_blocks(body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield from _cached_in(body.get("tools"))
    yield from _cached_in(body.get("system"))
    for message in body["messages"]:
        if isinstance(message, dict):
            yield from _cached_in(message.get("content"))


def _cached_in(blocks: Any) -> Iterator[dict[str, Any]]:
    for block in blocks if isinstance(blocks, list) else ():
        if isinstance(block, dict):
            if "cache_control" in block:
                yield block
            if block.get("type") == "tool_result":
                yield from _cached_in(block.get("content"))
