"""Checks of what is beside the contents of a generateContent request: names, tools and the generation config."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from antiphon.wire.capabilities import EFFORTS, format_capabilities, tool_name_matcher
from antiphon.wire.gemini import FORMAT
from antiphon.wire.gemini.limits import MODES, NOT_WITH_CACHED_CONTENT, PARAMETER_SPELLINGS
from antiphon.wire.gemini.native import as_list, get_field, spelling_used
from antiphon.wire.gemini.parameters import PARAMETER_TABLE
from antiphon.wire.gemini.schema import check_schema, is_object_root
from antiphon.wire.parameters import refused_fields
from antiphon.wire.rules import RuleContext, Violation
from antiphon.wire.tool_calls import PORTABLE_NAME_LENGTH
from antiphon.wire.vendors.google import to_snake_case, unknown_field
from antiphon.wire.vendors.google_parameters import WORDING, stop_problem


def check_names(context: RuleContext) -> None:
    for name in context.body:
        if name not in PARAMETER_SPELLINGS:
            context.error("GM-18", name, unknown_field(name, ""))


def check_cached_content(context: RuleContext) -> None:
    body = context.body
    if get_field(body, "cachedContent") and any(get_field(body, name) for name in NOT_WITH_CACHED_CONTENT):
        message = (
            "Tool config, tools and system instruction should not be set in the request when using cached content."
        )
        context.error("GM-19", spelling_used(body, "cachedContent"), message)


def check_generation_config(context: RuleContext) -> None:
    key = spelling_used(context.body, "generationConfig")
    config = context.body.get(key)
    if config is None:
        return
    if not isinstance(config, dict):
        context.error("GM-14", key, f"Invalid value at '{to_snake_case(key)}'")
        return
    numbers = {name: get_field(config, name) for name in PARAMETER_TABLE.by_key}
    refused = refused_fields(context.model, "GM-14", "GM-14", numbers["temperature"], numbers["topP"])
    for violation in (
        *PARAMETER_TABLE.check(numbers, context.model, WORDING),
        *PARAMETER_TABLE.check_refused(numbers, refused, WORDING),
    ):
        context.error(violation.rule, f"{key}.{spelling_used(config, violation.path)}", violation.message)
    if problem := stop_problem(get_field(config, "stopSequences")):
        context.error("GM-14", f"{key}.{spelling_used(config, 'stopSequences')}", problem)
    _check_thinking(context, config, key)
    schema = get_field(config, "responseSchema")
    if schema is not None:
        context.violations.extend(check_schema(schema, f"{key}.{spelling_used(config, 'responseSchema')}"))


def _check_thinking(context: RuleContext, config: dict[str, Any], key: str) -> None:
    thinking = get_field(config, "thinkingConfig")
    if not isinstance(thinking, dict):
        return
    path, budget = f"{key}.{spelling_used(config, 'thinkingConfig')}", get_field(thinking, "thinkingBudget")
    if budget is not None and get_field(thinking, "thinkingLevel") is not None:
        context.error("GM-14", path, "You can only set only one of thinking budget and thinking level.")
    if context.model.thinking == ():
        context.error("GM-14", path, "Thinking is not enabled for this model.")
    elif isinstance(budget, int) and not isinstance(budget, bool):
        _check_budget(context, budget, f"{path}.{spelling_used(thinking, 'thinkingBudget')}")
    level, levels = get_field(thinking, "thinkingLevel"), context.model.efforts
    is_stated = isinstance(level, str) and level != "THINKING_LEVEL_UNSPECIFIED"
    if is_stated and context.model.thinking is not None and level.lower() not in (levels or EFFORTS):
        message = (
            f"Thinking level {level[:40]} is not supported for this model. Please retry with other thinking level."
        )
        context.error("GM-14", f"{path}.{spelling_used(thinking, 'thinkingLevel')}", message)


def _check_budget(context: RuleContext, budget: int, path: str) -> None:
    model = context.model
    if budget == 0:
        if not model.accepts_thinking("off") and not model.efforts:
            context.error("GM-14", path, "Budget 0 is invalid. This model only works in thinking mode.")
    elif budget > 0 and not (model.min_budget or 0) <= budget <= (model.max_budget or budget):
        message = f"The thinking budget {budget} is invalid. Please choose a value between {model.min_budget or 0} and"
        context.error("GM-14", path, f"{message} {model.max_budget}.")


# Fields of tools in other formats. Google adds tools often, so unknown names are accepted.
_FOREIGN_TOOL_FIELDS = frozenset({"type", "function", "name", "description", "parameters", "input_schema"})


def check_tools(context: RuleContext) -> None:
    """The tools and the tool configuration (GM-11, GM-12, GM-13, GM-18, GM-20)."""
    context.violations.extend(_tool_violations(context.body))


def _tool_violations(body: dict[str, Any]) -> Iterator[Violation]:
    names: set[str] = set()
    is_function_calling = is_other = False
    for index, tool in enumerate(as_list(body.get("tools"))):
        path = f"tools[{index}]"
        if not isinstance(tool, dict):
            yield Violation("GM-18", path, f"Invalid value at '{path}'")
            continue
        for name in tool:
            if name in _FOREIGN_TOOL_FIELDS:
                yield Violation("GM-18", f"{path}.{name}", unknown_field(name, path))
        key = spelling_used(tool, "functionDeclarations")
        declarations = as_list(tool.get(key))
        is_function_calling = is_function_calling or bool(declarations)
        is_other = is_other or bool(tool.keys() - {key})
        for position, declaration in enumerate(declarations):
            yield from _declaration_violations(declaration, f"{path}.{key}[{position}]", names)
    yield from _tool_config_violations(body, is_function_calling, is_other)


def _declaration_violations(declaration: Any, path: str, names: set[str]) -> Iterator[Violation]:
    if not isinstance(declaration, dict):
        yield Violation("GM-11", path, f"Invalid value at '{path}'")
        return
    yield from _name_violations(declaration.get("name"), path, names)
    for key in ("parameters", "response"):
        if declaration.get(key) is not None:
            yield from check_schema(declaration[key], f"{path}.{key}")
    key = (
        "parameters"
        if declaration.get("parameters") is not None
        else spelling_used(declaration, "parametersJsonSchema")
    )
    if isinstance(declaration.get(key), dict) and not is_object_root(declaration[key]):
        subject = f"Unable to submit request because {str(declaration.get('name'))[:80]} functionDeclaration"
        yield Violation("GM-12", f"{path}.{key}.type", f"{subject} parameters schema should be of type OBJECT.")
    if declaration.get("parameters") is not None and get_field(declaration, "parametersJsonSchema") is not None:
        message = f"{path}: parameters and parameters_json_schema are mutually exclusive."
        yield Violation("GM-12", f"{path}.{spelling_used(declaration, 'parametersJsonSchema')}", message)


def _name_violations(name: Any, path: str, names: set[str]) -> Iterator[Violation]:
    if not isinstance(name, str) or not tool_name_matcher(FORMAT)(name):
        message = (
            "Invalid function name. Must start with a letter or an underscore. Must be a-z, A-Z, 0-9, or contain "
            "underscores (_), dots (.), colons (:), or dashes (-), with a maximum length of "
            f"{format_capabilities(FORMAT).tool_name_length}."
        )
        yield Violation("GM-11", f"{path}.name", message)
        return
    if name in names:
        yield Violation("GM-11", f"{path}.name", f"Duplicate function declaration found: {name}")
    names.add(name)
    if len(name) > PORTABLE_NAME_LENGTH:
        message = f"Invalid function name. Older models and hosts take a maximum length of {PORTABLE_NAME_LENGTH}."
        yield Violation("GM-20", f"{path}.name", message, advisory=True)


def _tool_config_violations(body: dict[str, Any], is_function_calling: bool, is_other: bool) -> Iterator[Violation]:
    key = spelling_used(body, "toolConfig")
    tool_config = body.get(key)
    if tool_config is None:
        return
    config = get_field(tool_config, "functionCallingConfig") if isinstance(tool_config, dict) else None
    if not isinstance(tool_config, dict) or not isinstance(config, dict | None):
        yield Violation("GM-13", key, f"Invalid value at '{to_snake_case(key)}'")
    elif config is not None:
        path = f"{key}.{spelling_used(tool_config, 'functionCallingConfig')}"
        yield from _calling_violations(config, path)
        # Accepted together with a tool of Google's own (GM-13).
        if not is_function_calling and not is_other:
            yield Violation("GM-13", path, "Function calling config is set without function_declarations")


def _calling_violations(config: dict[str, Any], path: str) -> Iterator[Violation]:
    mode = config.get("mode")
    # Some clients encode enums as numbers.
    is_number = isinstance(mode, int) and not isinstance(mode, bool)
    if mode is not None and not is_number and not (isinstance(mode, str) and mode.upper() in MODES):
        yield Violation("GM-13", f"{path}.mode", f"Invalid value at '{path}.mode'")
    elif (
        get_field(config, "allowedFunctionNames")
        and not is_number
        and mode not in ("ANY", "VALIDATED", "any", "validated")
    ):
        names_path = f"{path}.{spelling_used(config, 'allowedFunctionNames')}"
        yield Violation("GM-13", names_path, "allowed_function_names should only be set when the mode is ANY.")
