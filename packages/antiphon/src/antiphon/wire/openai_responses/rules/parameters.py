"""Checks of what is beside the input of a Responses request: tools, settings, output format, and unknown names."""

from __future__ import annotations

from typing import Any

from antiphon.wire.openai_responses import FORMAT
from antiphon.wire.openai_responses.limits import CHAT_ONLY_PARAMETERS, PREVIOUS_ID_PREFIX, RENAMED_FROM_CHAT
from antiphon.wire.openai_responses.parameters import PARAMETER_TABLE, asks_for_logprobs
from antiphon.wire.openai_responses.rules.messages import is_continued
from antiphon.wire.openai_responses.tools import declared_names
from antiphon.wire.rules import RuleContext, Violation
from antiphon.wire.vendors import openai
from antiphon.wire.vendors.openai import (
    Violations,
    check_type,
    quote_value,
    texts_of,
    unsupported_value,
    wrong_type,
)
from antiphon.wire.vendors.openai_parameters import WORDING, check_effort, check_parallel_switch, check_refused

_FUNCTION_RULES = openai.FunctionRules(FORMAT, "OR-12", "OR-12", "OR-12", "OR-20")


def check_tools(context: RuleContext) -> None:
    violations, tools = context.violations, context.body.get("tools")
    if tools is None or not check_type(violations, "OR-12", "tools", tools, list, "an array of objects"):
        return
    for place, tool in enumerate(tools):
        _check_tool(violations, f"tools[{place}]", tool)
        members = tool.get("tools") if isinstance(tool, dict) and tool.get("type") == "namespace" else None
        for inner, member in enumerate(members if isinstance(members, list) else ()):
            _check_tool(violations, f"tools[{place}].tools[{inner}]", member)


def _check_tool(violations: Violations, path: str, tool: Any) -> None:
    if not isinstance(tool, dict):
        violations.append(wrong_type("OR-12", path, "an object", tool))
        return
    kind = tool.get("type")
    if not check_type(violations, "OR-12", f"{path}.type", kind, str, "a string"):
        return
    if kind == "function":
        openai.check_function(violations, _FUNCTION_RULES, path, tool)
    elif kind == "custom":
        openai.check_tool_name(violations, "OR-12", f"{path}.name", tool.get("name"), FORMAT)


def check_tool_choice(context: RuleContext) -> None:
    body, violations = context.body, context.violations
    choice = body.get("tool_choice")
    if isinstance(choice, dict):
        kind = choice.get("type")
        if check_type(violations, "OR-13", "tool_choice.type", kind, str, "a string") and body.get("prompt") is None:
            members = choice.get("tools") if kind == "allowed_tools" else [choice]
            if check_type(violations, "OR-13", "tool_choice.tools", members, list, "an array of objects"):
                _check_chosen(violations, members or [], set(declared_names(body)))
    elif choice is not None and choice not in ("none", "auto", "required"):
        violations.append(unsupported_value("OR-13", "tool_choice", choice, ("none", "auto", "required")))


def _check_chosen(violations: Violations, chosen: list[Any], declared: set[str]) -> None:
    for tool in chosen:
        if not isinstance(tool, dict) or tool.get("type") not in ("function", "custom"):
            continue  # hosted tools are chosen by their type
        name: Any = tool.get("name")
        if check_type(violations, "OR-13", "tool_choice.name", name, str, "a string") and name not in declared:
            violations.append(openai.undeclared_tool("OR-13", name))


def check_settings(context: RuleContext) -> None:
    body, capabilities, violations = context.body, context.model, context.violations
    violations.extend(PARAMETER_TABLE.check(body, capabilities, WORDING))
    openai.check_metadata(violations, "OR-15", body.get("metadata"))
    reasoning = body.get("reasoning")
    effort = reasoning.get("effort") if isinstance(reasoning, dict) else None
    check_effort(violations, "OR-15", "reasoning.effort", effort, body.get("model"), capabilities)
    refused = check_refused(context, PARAMETER_TABLE, "OR-15", effort)
    if "logprobs" in refused and asks_for_logprobs(body):
        text = "Unsupported parameter: 'include' with log probabilities is not supported with this model."
        violations.append(Violation("OR-15", "include", text))
    check_parallel_switch(context, "OR-15")


def check_continuation(context: RuleContext) -> None:
    body, violations = context.body, context.violations
    previous = body.get("previous_response_id")
    if previous is None or not check_type(violations, "OR-16", "previous_response_id", previous, str, "a string"):
        return
    if not previous.startswith(PREVIOUS_ID_PREFIX):
        expected = f"Expected an ID that begins with '{PREVIOUS_ID_PREFIX}'."
        text = f"Invalid 'previous_response_id': '{quote_value(previous)}'. {expected}"
        violations.append(Violation("OR-16", "previous_response_id", text))
    if body.get("conversation") is not None:
        one = "Ensure you are only providing one of: 'previous_response_id' or 'conversation'."
        violations.append(Violation("OR-16", "previous_response_id", f"Mutually exclusive parameters: {one}"))


def check_text(context: RuleContext) -> None:
    body, violations = context.body, context.violations
    text: Any = body.get("text")
    if text is None or not check_type(violations, "OR-17", "text", text, dict, "an object"):
        return
    wanted = text.get("format")
    if wanted is None or not check_type(violations, "OR-17", "text.format", wanted, dict, "an object"):
        return
    kind = wanted.get("type")
    if kind == "json_schema":
        openai.check_output_schema(violations, "OR-17", "OR-20", "text.format", wanted, schema_needed=True)
    elif kind == "json_object":
        if (
            not is_continued(body)
            and body.get("prompt") is None
            and not any(map(openai.mentions_json, texts_of(body.get("input"))))
        ):
            needed = "must contain the word 'json' in some form to use 'text.format' of type 'json_object'."
            violations.append(Violation("OR-17", "input", f"Response input messages {needed}"))
    elif kind != "text":
        violations.append(unsupported_value("OR-17", "text.format.type", kind, ("json_object", "json_schema", "text")))


def check_names(context: RuleContext) -> None:
    body, violations = context.body, context.violations
    for name in body:
        if name in RENAMED_FROM_CHAT:
            moved = f"In the Responses API, this parameter has moved to '{RENAMED_FROM_CHAT[name]}'."
            violations.append(Violation("OR-18", name, f"Unsupported parameter: '{name}'. {moved}"))
        elif name in CHAT_ONLY_PARAMETERS:
            violations.append(openai.unknown_field("OR-18", name))
    options = body.get("stream_options")
    if isinstance(options, dict) and "include_usage" in options:
        violations.append(openai.unknown_field("OR-18", "stream_options.include_usage"))
