"""Checks of what is beside the messages of a Messages request.

The checks share only what the context holds: the target, the cache breakpoints in the provider's order, and whether citations are
enabled.
"""

from __future__ import annotations

from itertools import islice
from typing import Any

from msgspec import field

from antiphon.wire.anthropic.limits import (
    CHOICES,
    EFFORTS,
    FORCED_CHOICES,
    HOST_PARAMETERS,
    MAX_OPTIONAL_PARAMETERS,
    MAX_STRICT_TOOLS,
    MAX_UNION_PARAMETERS,
    MAX_USER_LENGTH,
    MIN_BUDGET,
    PARAMETERS,
    SAMPLING,
    is_blank,
)
from antiphon.wire.anthropic.parameters import PARAMETER_TABLE, WORDING, Target, forces_tool, refusals
from antiphon.wire.anthropic.rules.blocks import (
    EXTRA_FIELD,
    LIST,
    MISSING_FIELD,
    OBJECT,
    STRING,
    WRONG_SHAPE,
    check_block,
    check_tool,
    expected_one_of,
    unknown_fields,
    with_prefix,
)
from antiphon.wire.anthropic.schema import schema_problems
from antiphon.wire.anthropic.tools import is_declared
from antiphon.wire.json_schema import MAX_SCHEMA_PROBLEMS, count_optional_and_unions
from antiphon.wire.rules import RuleContext, is_number, is_whole_number
from antiphon.wire.vendors.anthropic import quote_value


class MessagesContext(RuleContext, kw_only=True):
    """A body under check: the target, and what later checks need from earlier ones."""

    target: Target
    cache_breakpoints: list[tuple[str, Any]] = field(default_factory=list)
    citations_enabled: bool = False
    first_call: int | None = None
    first_system: int | None = None

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


def check_names_and_limit(context: MessagesContext) -> None:
    body = context.body
    context.violations.extend(unknown_fields("AN-27", body, PARAMETERS if "model" in body else HOST_PARAMETERS))
    if "model" not in body:
        context.advise("AN-01", "model", MISSING_FIELD)
    elif not isinstance(body["model"], str):
        context.error("AN-01", "model", STRING)
    if body.get("max_tokens") is None:
        context.error(
            "AN-01", "max_tokens", "Input should be a valid integer" if "max_tokens" in body else MISSING_FIELD
        )


def check_numbers(context: MessagesContext) -> None:
    """Ranges, and the sampling parameters that the model, the API version or thinking rule out."""
    body, target = context.body, context.target
    if target.is_version_2026_10:
        for name in SAMPLING:
            if name in body:
                context.error("AN-28", name, EXTRA_FIELD)
    for violation in PARAMETER_TABLE.check(body, target.model, WORDING):
        if not (target.is_version_2026_10 and violation.path in SAMPLING):
            context.violations.append(violation)
    for name in SAMPLING:
        if name in body and body[name] is None and not target.is_version_2026_10:
            context.error("AN-21", name, "Input should be a valid number")
    if not target.is_version_2026_10 and any(name in body for name in SAMPLING):
        numbers = [body.get(name) if is_number(body.get(name)) else None for name in SAMPLING]
        temperature, top_p, top_k = numbers
        refused = refusals(temperature, top_p, top_k, None, target)
        present = dict(zip(SAMPLING, numbers, strict=True))
        context.violations.extend(PARAMETER_TABLE.check_refused(present, refused, WORDING))


def check_stop_sequences(context: MessagesContext) -> None:
    for index, sequence in enumerate(context.typed_value("stop_sequences", list, "AN-22", LIST) or ()):
        if not isinstance(sequence, str):
            context.error("AN-22", f"stop_sequences.{index}", STRING)
        elif is_blank(sequence):
            context.error("AN-22", f"stop_sequences.{index}", "each stop sequence must contain non-whitespace")


def check_metadata(context: MessagesContext) -> None:
    metadata = context.typed_value("metadata", dict, "AN-23", OBJECT)
    if metadata is None:
        return
    context.violations.extend(with_prefix("metadata", unknown_fields("AN-23", metadata, ("user_id",))))
    user = metadata.get("user_id")
    if user is not None and not isinstance(user, str):
        context.error("AN-23", "metadata.user_id", STRING)
    elif user is not None and len(user) > MAX_USER_LENGTH:
        context.error("AN-23", "metadata.user_id", f"String should have at most {MAX_USER_LENGTH} characters")


def check_thinking(context: MessagesContext) -> None:
    thinking = context.body.get("thinking")
    if thinking is None:
        return
    kind = thinking.get("type") if isinstance(thinking, dict) else None
    if kind == "enabled":
        _check_budget(context, thinking.get("budget_tokens"))
        _check_enabled_thinking(context)
    elif kind == "disabled":
        if not context.target.model.accepts_thinking("off"):
            context.error("AN-19", "thinking.type", '"thinking.type.disabled" is not supported for this model.')
    elif kind == "adaptive":
        if not context.target.model.accepts_thinking("adaptive"):
            context.error("AN-19", "thinking.type", "adaptive thinking is not supported on this model")
        elif forces_tool(context.body) and not context.target.model.thinking_with_forced_tool:
            message = "Thinking may not be enabled when tool_choice forces tool use."
            if context.target.is_on_bedrock:
                context.error("AN-19", "tool_choice", message)
            else:
                context.advise("AN-19", "tool_choice", message)
    else:
        context.error("AN-19", "thinking", WRONG_SHAPE)


def _check_budget(context: MessagesContext, budget: Any) -> None:
    path, limit = "thinking.budget_tokens", context.body.get("max_tokens")
    if not is_whole_number(budget):
        context.error("AN-19", path, "Input should be a valid integer" if budget is not None else MISSING_FIELD)
    elif budget < MIN_BUDGET:
        context.error("AN-19", path, f"Input should be greater than or equal to {MIN_BUDGET}")
    elif not context.body.get("tools") and is_number(limit) and budget >= limit:
        # With tools, interleaved thinking may use more tokens than one answer.
        context.error("AN-19", path, "`max_tokens` must be greater than `thinking.budget_tokens`.")


def _check_enabled_thinking(context: MessagesContext) -> None:
    body = context.body
    if not context.target.model.accepts_thinking("budget"):
        context.error("AN-19", "thinking.type", '"thinking.type.enabled" is not supported for this model.')
    if forces_tool(body):
        context.error("AN-19", "tool_choice", "Thinking may not be enabled when tool_choice forces tool use.")
    if body.get("temperature", 1) != 1 and not context.target.is_version_2026_10:
        context.error("AN-19", "temperature", "`temperature` may only be set to 1 when thinking is enabled.")
    if body.get("top_k") not in (None, -1) and not context.target.is_version_2026_10:
        context.error("AN-19", "top_k", "`top_k` must be unset when thinking is enabled.")


def check_output(context: MessagesContext) -> None:
    config = context.typed_value("output_config", dict, "AN-32", OBJECT)
    if config:
        context.violations.extend(
            with_prefix("output_config", unknown_fields("AN-32", config, ("effort", "format", "task_budget")))
        )
        effort, path = config.get("effort"), "output_config.effort"
        if effort is not None and effort not in EFFORTS:
            context.error("AN-32", path, expected_one_of(EFFORTS))
        elif effort is not None:
            _check_effort(context, effort, path)
        _check_format(context, "output_config.format", config.get("format"))
    _check_format(context, "output_format", context.body.get("output_format"))


def _check_effort(context: MessagesContext, effort: str, path: str) -> None:
    model, thinking = context.target.model, context.body.get("thinking")
    is_off = isinstance(thinking, dict) and thinking.get("type") == "disabled"
    efforts = model.efforts_without_thinking if is_off and model.efforts_without_thinking else model.efforts
    if efforts == ():
        context.error("AN-32", path, "This model does not support the effort parameter.")
    elif efforts is not None and effort not in efforts:
        levels = ", ".join(sorted(efforts))
        context.error(
            "AN-32", path, f"This model does not support effort level '{effort}'. Supported levels: {levels}."
        )


def _check_format(context: MessagesContext, path: str, output_format: Any) -> None:
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
    if context.target.model.structured_output is False:
        context.error("AN-32", path, "This model does not support output formats.")
    for problem in islice(schema_problems(output_format.get("schema"), context.target.model), MAX_SCHEMA_PROBLEMS):
        context.error("AN-32", f"{path}.schema", problem)


def check_tools(context: MessagesContext) -> None:
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
    for index, tool in enumerate(tools):
        if isinstance(tool, dict) and tool.get("strict") is True:
            _check_strict_tool(context, f"tools.{index}", tool.get("input_schema"))
    _check_strict_limits(context, [tool.get("input_schema") for tool in known if tool.get("strict") is True])


def _check_strict_tool(context: MessagesContext, path: str, schema: Any) -> None:
    if context.target.model.strict_tools is False:
        context.error("AN-16", f"{path}.strict", "This model does not support strict tools.")
    for problem in islice(schema_problems(schema, context.target.model), MAX_SCHEMA_PROBLEMS):
        context.error("AN-16", f"{path}.custom", problem)


def _check_strict_limits(context: MessagesContext, schemas: list[Any]) -> None:
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


def check_tool_choice(context: MessagesContext) -> None:
    choice = context.body.get("tool_choice")
    if choice is None:
        return
    kind = choice.get("type") if isinstance(choice, dict) else None
    if kind not in CHOICES:
        context.error("AN-17", "tool_choice", WRONG_SHAPE)
        return
    fields = ("type", "name", "disable_parallel_tool_use")
    context.violations.extend(with_prefix("tool_choice", unknown_fields("AN-17", choice, fields)))
    if not context.body.get("tools") and not context.body.get("mcp_servers"):
        context.error("AN-17", "tool_choice", "tool_choice may only be specified while providing tools")
    elif kind == "tool":
        _check_chosen_name(context, choice.get("name"))
    if kind in FORCED_CHOICES:
        if context.body.get("max_tokens") == 0:
            context.error("AN-17", "tool_choice", "tool_choice may not force tool use while max_tokens is 0")
        if not context.target.model.forced_tool_choice:
            context.error("AN-17", "tool_choice.type", f"tool_choice type '{kind}' is not supported on this model")


def _check_chosen_name(context: MessagesContext, name: Any) -> None:
    if not isinstance(name, str):
        context.error("AN-17", "tool_choice.name", MISSING_FIELD if name is None else STRING)
        return
    tools = context.body.get("tools")
    if isinstance(tools, list) and not is_declared(name, tools):
        context.error("AN-17", "tool_choice.name", f"Tool {quote_value(name)} not found in provided tools")


def check_system(context: MessagesContext) -> None:
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
