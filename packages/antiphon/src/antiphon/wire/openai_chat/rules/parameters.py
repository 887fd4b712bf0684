"""Checks of what is beside the messages of a Chat Completions request: tools, settings and the output format."""

from __future__ import annotations

from typing import Any

from antiphon.wire.openai_chat import FORMAT
from antiphon.wire.openai_chat.limits import MAX_STOP_SEQUENCES, PARAMETERS, SDK_ONLY_PARAMETERS
from antiphon.wire.openai_chat.parameters import PARAMETER_TABLE
from antiphon.wire.rules import RuleContext, Violation
from antiphon.wire.vendors import openai
from antiphon.wire.vendors.openai import (
    Violations,
    check_type,
    missing_field,
    quote_value,
    unsupported_parameter,
    unsupported_value,
    wrong_type,
)
from antiphon.wire.vendors.openai_parameters import WORDING, check_effort, check_parallel_switch, check_refused

_FUNCTION_RULES = openai.FunctionRules(FORMAT, "OC-15", "OC-08", "OC-16", "OC-17")


def check_tools(context: RuleContext) -> None:
    violations = context.violations
    for field in ("tools", "functions"):
        tools = context.body.get(field)
        if tools is None:
            continue
        if not isinstance(tools, list):
            violations.append(wrong_type("OC-15", field, "an array of objects", tools))
        elif not tools:
            violations.append(openai.empty_array("OC-14", field))
        else:
            for place, tool in enumerate(tools):
                _check_tool(violations, f"{field}[{place}]", tool, bare=field == "functions")


def _check_tool(violations: Violations, path: str, tool: Any, *, bare: bool) -> None:
    if not isinstance(tool, dict):
        violations.append(wrong_type("OC-15", path, "an object", tool))
    elif bare:
        openai.check_function(violations, _FUNCTION_RULES, path, tool)
    elif tool.get("type") is None:
        violations.append(missing_field("OC-15", f"{path}.type"))
    elif tool["type"] not in ("function", "custom"):
        violations.append(unsupported_value("OC-15", f"{path}.type", tool["type"], ("function", "custom")))
    else:
        kind = tool["type"]
        if check_type(violations, "OC-15", f"{path}.{kind}", tool.get(kind), dict, "an object"):
            openai.check_function(violations, _FUNCTION_RULES, f"{path}.{kind}", tool[kind])


def check_tool_choice(context: RuleContext) -> None:
    body, violations = context.body, context.violations
    choice = body.get("tool_choice")
    for rule, argument, needed in (
        ("OC-18", "tool_choice", "tools"),
        ("OC-19", "parallel_tool_calls", "tools"),
        ("OC-18", "function_call", "functions"),
    ):
        if body.get(argument) is not None and body.get(needed) is None:
            text = f"'{argument}' is only allowed when '{needed}' are specified."
            violations.append(Violation(rule, argument, f"Invalid value for '{argument}': {text}"))
    parallel = body.get("parallel_tool_calls")
    if parallel is not None and not isinstance(parallel, bool):
        violations.append(wrong_type("OC-19", "parallel_tool_calls", "a boolean", parallel))
    if isinstance(choice, dict):
        tools = body.get("tools")
        declared = {_tool_name(tool) for tool in tools} if isinstance(tools, list) else set()
        _check_named_choice(violations, choice, declared - {""})
    elif choice is not None and choice not in ("none", "auto", "required"):
        violations.append(unsupported_value("OC-18", "tool_choice", choice, ("none", "auto", "required")))


def _check_named_choice(violations: Violations, choice: dict[str, Any], declared: set[str]) -> None:
    kind, kinds = choice.get("type"), ("function", "custom", "allowed_tools")
    if kind is None:
        violations.append(missing_field("OC-18", "tool_choice.type"))
    elif kind not in kinds:
        violations.append(unsupported_value("OC-18", "tool_choice.type", kind, kinds))
    elif check_type(violations, "OC-18", f"tool_choice.{kind}", choice.get(kind), dict, "an object"):
        tools = choice[kind].get("tools") if kind == "allowed_tools" else [choice]
        if check_type(violations, "OC-18", f"tool_choice.{kind}.tools", tools, list, "an array of objects"):
            undeclared = [name for name in map(_tool_name, tools) if declared and name not in declared]
            violations.extend(openai.undeclared_tool("OC-18", name) for name in undeclared)


def _tool_name(tool: Any) -> str:
    for kind in ("function", "custom"):
        named = tool.get(kind) if isinstance(tool, dict) else None
        if isinstance(named, dict) and isinstance(named.get("name"), str):
            return str(named["name"])
    return ""


def check_model_limits(context: RuleContext) -> None:
    """Ranges (OC-20), and what the model is known to refuse (OC-26)."""
    body, capabilities, violations = context.body, context.model, context.violations
    violations.extend(PARAMETER_TABLE.check(body, capabilities, WORDING))
    effort = body.get("reasoning_effort")
    check_refused(context, PARAMETER_TABLE, "OC-26", effort)
    check_effort(violations, "OC-26", "reasoning_effort", effort, body.get("model"), capabilities)
    accepted = capabilities.sampling
    if body.get("logit_bias") and accepted is not None and "logit_bias" not in accepted:
        violations.append(unsupported_parameter("OC-26", "logit_bias"))
    if body.get("max_tokens") is not None and not capabilities.max_tokens:
        text = f"{unsupported_parameter('OC-26', 'max_tokens').message} Use 'max_completion_tokens' instead."
        violations.append(Violation("OC-26", "max_tokens", text))
    check_parallel_switch(context, "OC-26")
    if body.get("web_search_options") is not None and not capabilities.web_search:
        violations.append(Violation("OC-26", "web_search_options", "Web search options not supported with this model."))


def check_settings(context: RuleContext) -> None:
    body, violations = context.body, context.violations
    _check_stop(violations, body.get("stop"))
    stream, options = body.get("stream"), body.get("stream_options")
    if stream is not None and not isinstance(stream, bool):
        violations.append(wrong_type("OC-22", "stream", "a boolean", stream))
    elif options is not None and not stream:
        text = "The 'stream_options' parameter is only allowed when 'stream' is enabled."
        violations.append(Violation("OC-22", "stream_options", text))
    if body.get("max_tokens") is not None and body.get("max_completion_tokens") is not None:
        text = "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported."
        violations.append(Violation("OC-23", "max_tokens", text))
    openai.check_metadata(violations, "OC-27", body.get("metadata"))
    for name in body:
        if name not in PARAMETERS and name not in SDK_ONLY_PARAMETERS:
            violations.append(
                Violation("OC-26", quote_value(name), f"Unrecognized request argument supplied: {quote_value(name)}")
            )


def _check_stop(violations: Violations, stop: Any) -> None:
    if isinstance(stop, list):
        if len(stop) > MAX_STOP_SEQUENCES:
            violations.append(openai.array_too_long("OC-21", "stop", len(stop), MAX_STOP_SEQUENCES))
        for place, sequence in enumerate(stop):
            if not isinstance(sequence, str):
                violations.append(wrong_type("OC-21", f"stop[{place}]", "a string", sequence))
    elif stop is not None and not isinstance(stop, str):
        violations.append(wrong_type("OC-21", "stop", "one of a string or array of strings", stop))


def check_response_format(context: RuleContext) -> None:
    body, violations = context.body, context.violations
    output_format = body.get("response_format")
    if output_format is None or not check_type(
        violations, "OC-24", "response_format", output_format, dict, "an object"
    ):
        return
    kind, path = output_format.get("type"), "response_format.json_schema"
    if kind == "json_schema":
        if check_type(violations, "OC-24", path, output_format.get("json_schema"), dict, "an object"):
            openai.check_output_schema(
                violations, "OC-24", "OC-17", path, output_format["json_schema"], schema_needed=False
            )
    elif kind == "json_object":
        if not any(openai.mentions_json(text) for text in openai.texts_of(body.get("messages"))):
            text = "must contain the word 'json' in some form, to use 'response_format' of type 'json_object'."
            violations.append(Violation("OC-24", "messages", f"'messages' {text}"))
    elif kind != "text":
        kinds = ("json_object", "json_schema", "text")
        violations.append(unsupported_value("OC-24", "response_format.type", kind, kinds))
