"""The rules for the parameters of a Messages request: everything beside the messages.

Each check adds to the violations of a `RuleContext`; `PARAMETER_CHECKS` is their order. The checks share only what the context
holds: the capabilities of the model, the cache breakpoints in the provider's order, and whether citations are enabled. Limits
are the constants that the writer uses too (`parameters`, `tools`, `schema`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from antiphon.wire.anthropic.block_rules import (
    LIST,
    MISSING_FIELD,
    OBJECT,
    STRING,
    WRONG_SHAPE,
    check_block,
    check_tool,
    quote_value,
    unknown_fields,
    with_prefix,
)
from antiphon.wire.anthropic.parameters import (
    EFFORTS,
    HOST_PARAMETERS,
    MAX_USER_LENGTH,
    MIN_BUDGET,
    PARAMETERS,
    SAMPLING,
    Capabilities,
    is_default_value,
)
from antiphon.wire.anthropic.schema import UNSUPPORTED_KEYWORDS
from antiphon.wire.anthropic.tools import MAX_OPTIONAL_PARAMETERS, MAX_STRICT_TOOLS, MAX_UNION_PARAMETERS
from antiphon.wire.json_schema import count_optional_and_unions, walk
from antiphon.wire.rules import Violation


class RuleContext(Struct):
    """A body under check: the violations so far, and what later rules need from earlier ones."""

    body: dict[str, Any]
    capabilities: Capabilities
    violations: list[Violation] = []
    cache_breakpoints: list[tuple[str, Any]] = []
    citations_enabled: bool = False
    first_call: int | None = None
    first_system: int | None = None

    def error(self, rule: str, path: str, message: str) -> None:
        self.violations.append(Violation(rule, path, message))

    def advise(self, rule: str, path: str, message: str) -> None:
        self.violations.append(Violation(rule, path, message, advisory=True))

    def typed_value(self, name: str, kind: type, rule: str, message: str) -> Any:
        """The value of a parameter; None if it is absent or of the wrong type, which is reported."""
        value = self.body.get(name)
        if value is None or isinstance(value, kind):
            return value
        self.error(rule, name, message)
        return None

    def add_cache_breakpoint(self, path: str, block: Any) -> None:
        """Add the cache breakpoint of a block, for the limit over the whole request (AN-18)."""
        if isinstance(block, dict) and isinstance(block.get("cache_control"), dict):
            self.cache_breakpoints.append((path, block["cache_control"]))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_integer(value: Any) -> bool:
    return _is_number(value) and (isinstance(value, int) or value.is_integer())


def _check_names_and_limit(context: RuleContext) -> None:
    body = context.body
    context.violations.extend(unknown_fields("AN-27", body, PARAMETERS if "model" in body else HOST_PARAMETERS))
    if "model" not in body:
        context.advise("AN-01", "model", MISSING_FIELD)
    elif not isinstance(body["model"], str):
        context.error("AN-01", "model", STRING)
    if "max_tokens" not in body:
        context.error("AN-01", "max_tokens", MISSING_FIELD)
    elif not _is_integer(body["max_tokens"]):
        context.error("AN-01", "max_tokens", "Input should be a valid integer")
    elif body["max_tokens"] < 0:
        context.error("AN-01", "max_tokens", "Input should be greater than or equal to 0")


def _check_sampling(context: RuleContext) -> None:
    body = context.body
    present = [name for name in SAMPLING if name in body]
    for name in present:
        if context.capabilities.is_version_2026_10:
            context.error("AN-28", name, "Extra inputs are not permitted")
        else:
            _check_sampling_value(context, name, body[name])
    if "temperature" in present and "top_p" in present and context.capabilities.is_at_least(4, 1):
        message = "`temperature` and `top_p` cannot both be specified for this model. Please use only one."
        context.advise("AN-31", "top_p", message)


def _check_sampling_value(context: RuleContext, name: str, value: Any) -> None:
    # -1 for "unset" was accepted in top_p and top_k in recorded requests (AN-21).
    if not _is_number(value):
        context.error("AN-21", name, "Input should be a valid number")
    elif value == -1 and name != "temperature":
        pass
    elif name == "top_k" and value < 0:
        context.error("AN-21", name, "Input should be greater than or equal to 0")
    elif name != "top_k" and not 0 <= value <= 1:
        context.error("AN-21", name, "range: 0..1")
    elif not context.capabilities.accepts_sampling and not is_default_value(name, value):
        context.error("AN-21", name, f"`{name}` is deprecated for this model.")


def _check_stop_sequences(context: RuleContext) -> None:
    for index, sequence in enumerate(context.typed_value("stop_sequences", list, "AN-22", LIST) or ()):
        if not isinstance(sequence, str):
            context.error("AN-22", f"stop_sequences.{index}", STRING)
        elif not sequence or sequence.isspace():
            context.error("AN-22", f"stop_sequences.{index}", "each stop sequence must contain non-whitespace")


def _check_metadata(context: RuleContext) -> None:
    metadata = context.typed_value("metadata", dict, "AN-23", OBJECT)
    if metadata is None:
        return
    context.violations.extend(with_prefix("metadata", unknown_fields("AN-23", metadata, ("user_id",))))
    user = metadata.get("user_id")
    if user is not None and not isinstance(user, str):
        context.error("AN-23", "metadata.user_id", STRING)
    elif user is not None and len(user) > MAX_USER_LENGTH:
        context.error("AN-23", "metadata.user_id", f"String should have at most {MAX_USER_LENGTH} characters")


def _check_thinking(context: RuleContext) -> None:
    thinking = context.body.get("thinking")
    if thinking is None:
        return
    kind = thinking.get("type") if isinstance(thinking, dict) else None
    if kind == "enabled":
        _check_budget(context, thinking.get("budget_tokens"))
        _check_enabled_thinking(context)
    elif kind == "disabled":
        if not context.capabilities.can_disable_thinking:
            context.error("AN-19", "thinking.type", '"thinking.type.disabled" is not supported for this model.')
    elif kind == "adaptive":
        if not context.capabilities.accepts_adaptive:
            context.error("AN-19", "thinking.type", "adaptive thinking is not supported on this model")
    else:
        context.error("AN-19", "thinking", WRONG_SHAPE)


def _check_budget(context: RuleContext, budget: Any) -> None:
    path, limit = "thinking.budget_tokens", context.body.get("max_tokens")
    if not _is_integer(budget):
        context.error("AN-19", path, "Input should be a valid integer" if budget is not None else MISSING_FIELD)
    elif budget < MIN_BUDGET:
        context.error("AN-19", path, f"Input should be greater than or equal to {MIN_BUDGET}")
    elif not context.body.get("tools") and _is_number(limit) and budget >= limit:
        # With tools, interleaved thinking may use more tokens than one answer.
        context.error("AN-19", path, "`max_tokens` must be greater than `thinking.budget_tokens`.")


def _check_enabled_thinking(context: RuleContext) -> None:
    body, choice = context.body, context.body.get("tool_choice")
    if not context.capabilities.accepts_budget:
        context.error("AN-19", "thinking.type", '"thinking.type.enabled" is not supported for this model.')
    if isinstance(choice, dict) and choice.get("type") in ("any", "tool"):
        context.error("AN-19", "tool_choice", "Thinking may not be enabled when tool_choice forces tool use.")
    if body.get("temperature", 1) != 1 and not context.capabilities.is_version_2026_10:
        context.error("AN-19", "temperature", "`temperature` may only be set to 1 when thinking is enabled.")
    if body.get("top_k") not in (None, -1) and not context.capabilities.is_version_2026_10:
        context.error("AN-19", "top_k", "`top_k` must be unset when thinking is enabled.")


def _check_output(context: RuleContext) -> None:
    config = context.typed_value("output_config", dict, "AN-32", OBJECT)
    if config:
        context.violations.extend(
            with_prefix("output_config", unknown_fields("AN-32", config, ("effort", "format", "task_budget")))
        )
        effort, path = config.get("effort"), "output_config.effort"
        if effort is not None and effort not in EFFORTS:
            context.error("AN-32", path, "Input should be 'low', 'medium', 'high', 'xhigh' or 'max'")
        elif effort == "xhigh" and not context.capabilities.accepts_xhigh:
            message = "This model does not support effort level 'xhigh'. Supported levels: high, low, max, medium."
            context.error("AN-32", path, message)
        _check_format(context, "output_config.format", config.get("format"))
    _check_format(context, "output_format", context.body.get("output_format"))


def _check_format(context: RuleContext, path: str, output_format: Any) -> None:
    if output_format is None:
        return
    if not isinstance(output_format, dict):
        context.error("AN-32", path, OBJECT)
        return
    if output_format.get("type") != "json_schema":
        context.error(
            "AN-32", f"{path}.type", "Input should be 'json_schema'" if "type" in output_format else MISSING_FIELD
        )
    if not isinstance(output_format.get("schema"), dict):
        context.error("AN-32", f"{path}.schema", OBJECT if "schema" in output_format else MISSING_FIELD)
    for _, node in walk(output_format.get("schema")):
        for keyword in sorted(UNSUPPORTED_KEYWORDS & node.keys()):
            message = f"For {quote_value(node.get('type'))} type, property '{keyword}' is not supported"
            context.error("AN-32", f"{path}.schema", message)


def _check_tools(context: RuleContext) -> None:
    tools = context.typed_value("tools", list, "AN-16", LIST) or []
    for index, tool in enumerate(tools):
        path = f"tools.{index}"
        context.violations.extend(with_prefix(path, check_tool(tool)))
        context.add_cache_breakpoint(path, tool)
    known = [tool for tool in tools if isinstance(tool, dict)]
    names = [tool["name"] for tool in known if isinstance(tool.get("name"), str)]
    if len(set(names)) < len(names):
        context.error("AN-16", "tools", "Tool names must be unique.")
    if known and all(tool.get("defer_loading") is True for tool in known):
        context.error("AN-33", "tools", "All tools have defer_loading set")
    _check_strict_limits(context, [tool.get("input_schema") for tool in known if tool.get("strict") is True])


def _check_strict_limits(context: RuleContext, schemas: list[Any]) -> None:
    if len(schemas) > MAX_STRICT_TOOLS:
        message = (
            f"Too many strict tools ({len(schemas)}). The maximum number of strict tools supported is {MAX_STRICT_TOOLS}. "
            "Try reducing the number of tools marked as strict."
        )
        context.error("AN-16", "tools", message)
    counts = [count_optional_and_unions(schema) for schema in schemas]
    optional, unions = sum(count[0] for count in counts), sum(count[1] for count in counts)
    if optional > MAX_OPTIONAL_PARAMETERS:
        message = (
            f"Schemas contains too many optional parameters ({optional}), which would make grammar compilation "
            f"inefficient. Reduce the number of optional parameters in your tool schemas (limit: {MAX_OPTIONAL_PARAMETERS})."
        )
        context.error("AN-16", "tools", message)
    if unions > MAX_UNION_PARAMETERS:
        message = (
            f"Schemas contains too many parameters with union types ({unions} parameters with type arrays or anyOf). "
            "This causes exponential compilation cost. Reduce the number of nullable or union-typed parameters "
            f"(limit: {MAX_UNION_PARAMETERS} parameters with unions)."
        )
        context.error("AN-16", "tools", message)


def _check_tool_choice(context: RuleContext) -> None:
    choice = context.body.get("tool_choice")
    if choice is None:
        return
    kind = choice.get("type") if isinstance(choice, dict) else None
    if kind not in ("auto", "any", "tool", "none"):
        context.error("AN-17", "tool_choice", WRONG_SHAPE)
        return
    fields = ("type", "name", "disable_parallel_tool_use")
    context.violations.extend(with_prefix("tool_choice", unknown_fields("AN-17", choice, fields)))
    if not context.body.get("tools") and not context.body.get("mcp_servers"):
        context.error("AN-17", "tool_choice", "tool_choice may only be specified while providing tools")
    elif kind == "tool":
        _check_chosen_name(context, choice.get("name"))
    if kind in ("any", "tool"):
        if context.body.get("max_tokens") == 0:
            context.error("AN-17", "tool_choice", "tool_choice may not force tool use while max_tokens is 0")
        if not context.capabilities.accepts_forced_choice:
            context.error("AN-17", "tool_choice.type", f"tool_choice type '{kind}' is not supported on this model")


def _check_chosen_name(context: RuleContext, name: Any) -> None:
    if not isinstance(name, str):
        context.error("AN-17", "tool_choice.name", MISSING_FIELD if name is None else STRING)
        return
    value = context.body.get("tools")
    tools = value if isinstance(value, list) else []
    declared = [tool.get("name") if isinstance(tool, dict) else None for tool in tools]
    # A toolset has names that are not in the body.
    if declared and None not in declared and name not in declared:
        context.error("AN-17", "tool_choice.name", f"Tool {quote_value(name)} not found in provided tools")


def _check_system(context: RuleContext) -> None:
    if isinstance(context.body.get("system"), str):
        return
    for index, block in enumerate(context.typed_value("system", list, "AN-26", WRONG_SHAPE) or ()):
        path = f"system.{index}"
        if isinstance(block, dict) and block.get("type") == "text":
            for violation in with_prefix(path, check_block(block, "system")):
                context.error(
                    "AN-26" if violation.rule == "AN-05" else violation.rule, violation.path, violation.message
                )
            context.add_cache_breakpoint(path, block)
        else:
            context.error("AN-26", path, WRONG_SHAPE)


PARAMETER_CHECKS: tuple[Callable[[RuleContext], None], ...] = (
    _check_names_and_limit,
    _check_sampling,
    _check_stop_sequences,
    _check_metadata,
    _check_thinking,
    _check_output,
    _check_tools,
    _check_tool_choice,
    _check_system,
)
