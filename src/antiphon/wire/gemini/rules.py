"""The rules of generateContent, checked before the request is sent.

The API parses JSON as proto3, and so does this: camelCase or snake_case names, null as absent, one object for a list, unknown
names as errors. Messages are the provider's own; paths use the spelling of the body (`contents[1].parts[0].functionCall`).
`check_sequence` checks only the order of the contents; adjacent contents of one role are one turn.

The model is in the URL: rules that depend on it apply only if the caller passes a name with a known version. Nothing here
raises: a value of the wrong type is a violation and is not examined further.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from antiphon.wire.capabilities import EFFORTS, Capabilities, format_capabilities, look_up, tool_name_matcher
from antiphon.wire.format import DEFAULT_OPTIONS, WriteOptions
from antiphon.wire.gemini.content import NAMES, ContentWriter, write_call
from antiphon.wire.gemini.limits import (
    DATA_FIELDS,
    MODES,
    NOT_WITH_CACHED_CONTENT,
    PARAMETER_SPELLINGS,
    PART_SPELLINGS,
)
from antiphon.wire.gemini.media import is_image_type, write_media
from antiphon.wire.gemini.messages import write_turns
from antiphon.wire.gemini.parameters import PARAMETER_TABLE, write_generation
from antiphon.wire.gemini.request import write_other_fields, write_request, write_system
from antiphon.wire.gemini.tools import write_tool_choice, write_tools
from antiphon.wire.parameters import refused_fields
from antiphon.wire.readable import TEXT_ONLY, find_media
from antiphon.wire.rules import Rule, RuleBook, RuleContext, Violation
from antiphon.wire.tool_calls import PORTABLE_NAME_LENGTH
from antiphon.wire.vendors.google import (
    FORMAT,
    as_list,
    check_schema,
    get_field,
    spelling_used,
    to_snake_case,
    unknown_field,
)
from antiphon.wire.vendors.google_parameters import MAX_STOP_SEQUENCES, WORDING

_OBJECT_RULES = {"functionCall": "GM-08", "functionResponse": "GM-09", "inlineData": "GM-17"}
_STRUCTS = {"functionCall": "args", "functionResponse": "response"}


def check_request(body: Any, options: WriteOptions = DEFAULT_OPTIONS, *, advisories: bool = False) -> list[Violation]:
    """The rules of generateContent that a request body breaks; `options.model` is the name in the URL."""
    if not isinstance(body, dict):
        return [Violation("GM-01", "", "Invalid JSON payload received. The body is not an object.")]
    return RULES.check(RuleContext(body, look_up(options.model, FORMAT, options.capabilities), advisories))


def _check_names(context: RuleContext) -> None:
    for name in context.body:
        if name not in PARAMETER_SPELLINGS:
            context.error("GM-18", name, unknown_field(name, ""))


def _check_cached_content(context: RuleContext) -> None:
    body = context.body
    if get_field(body, "cachedContent") and any(get_field(body, name) for name in NOT_WITH_CACHED_CONTENT):
        message = (
            "Tool config, tools and system instruction should not be set in the request when using cached content."
        )
        context.error("GM-19", spelling_used(body, "cachedContent"), message)


def _check_contents(context: RuleContext) -> None:
    contents = as_list(context.body.get("contents"))
    if not contents:
        context.error("GM-01", "contents", "* GenerateContentRequest.contents: contents is not specified")
        return
    for index, content in enumerate(contents):
        _check_content(context, f"contents[{index}]", content)
    is_continued = get_field(context.body, "cachedContent") is not None
    context.violations.extend(check_sequence(contents, is_continued=is_continued))
    _check_ending(context, contents)
    if context.model.call_signatures:
        _check_signatures(context, contents)
    if context.model.text_only:
        for path, kind in find_media(get_field(context.body, "contents"), "contents"):
            context.error("GM-17", path, TEXT_ONLY.format(kind))


def _check_content(context: RuleContext, path: str, content: Any) -> None:
    if not isinstance(content, dict):
        context.error("GM-01", path, f"Invalid value at '{path}'")
        return
    role = content.get("role")
    if role not in ("user", "model", None, ""):
        message = "Please use a valid role: user, model."
        context.violations.append(Violation("GM-02", f"{path}.role", message, advisory=role == "function"))
    for name in content:
        if name not in ("role", "parts"):
            context.error("GM-18", f"{path}.{name}", unknown_field(name, path))
    parts = as_list(content.get("parts"))
    if not parts:
        message = f"* GenerateContentRequest.{path}.parts: contents.parts must not be empty."
        # An empty model turn, replayed without the key `parts`, was accepted twice (GM-03).
        is_empty_model_turn = role == "model" and "parts" not in content
        context.violations.append(Violation("GM-03", f"{path}.parts", message, advisory=is_empty_model_turn))
    for position, part in enumerate(parts):
        _check_part(context, f"{path}.parts[{position}]", part)


def _check_part(context: RuleContext, path: str, part: Any) -> None:
    if not isinstance(part, dict):
        context.error("GM-04", path, f"Invalid value at '{path}'")
        return
    has_data = False
    is_empty = True
    for key, value in part.items():
        name = PART_SPELLINGS.get(key)
        if name is None:
            context.error("GM-04", f"{path}.{key}", unknown_field(key, path))
        elif value is not None:
            is_empty = False
            if name not in DATA_FIELDS:
                continue
            if has_data:
                message = f"Invalid value at '{path}' (oneof), oneof field 'data' is already set. Cannot set '{key}'"
                context.error("GM-04", f"{path}.{key}", message)
            has_data = True
            for violation in _data_violations(name, value, context.model):
                violation_path = f"{path}.{key}.{violation.path}" if violation.path else f"{path}.{key}"
                context.error(
                    violation.rule, violation_path, violation.message.replace("{at}", f"{path}.{to_snake_case(key)}")
                )
    if is_empty and not part.keys() - PART_SPELLINGS.keys():
        message = f"* GenerateContentRequest.{path}.data: required oneof field 'data' must have one initialized field"
        context.error("GM-04", path, message)


def _data_violations(name: str, value: Any, model: Capabilities) -> Iterator[Violation]:
    """Violations in the data of a part, with relative paths; `{at}` in a message is replaced by the path of the data."""
    if name == "text":
        if not isinstance(value, str):
            yield Violation("GM-04", "", "Invalid value at '{at}' (TYPE_STRING)")
        return
    rule = _OBJECT_RULES.get(name, "GM-04")
    if not isinstance(value, dict):
        yield Violation(rule, "", "Invalid value at '{at}'")
    elif name == "inlineData":
        data, mime_type = value.get("data"), get_field(value, "mimeType")
        if not isinstance(data, str) or data.startswith("data:") or not data.isascii():
            yield Violation(rule, "data", "Invalid value at '{at}.data' (TYPE_BYTES), Base64 decoding failed")
        if not isinstance(mime_type, str) or not mime_type:
            message = "* GenerateContentRequest.{at}.mime_type: must be specified"
            yield Violation(rule, spelling_used(value, "mimeType"), message)
        elif is_image_type(mime_type) and not model.accepts_image(mime_type.lower()):
            yield Violation(rule, spelling_used(value, "mimeType"), f"Unsupported MIME type: {mime_type[:80]}")
    elif name in _STRUCTS:
        field = _STRUCTS[name]
        struct = value.get(field)
        if isinstance(struct, list):
            message = f"Unknown name \"{field}\" at '{{at}}': Proto field is not repeating, cannot start list."
            yield Violation(rule, field, f"Invalid JSON payload received. {message}")
        elif struct is not None and not isinstance(struct, dict):
            message = f"Invalid value at '{{at}}.{field}' (type.googleapis.com/google.protobuf.Struct)"
            yield Violation(rule, field, message)
        if not isinstance(value.get("name"), str) or not value["name"]:
            yield Violation(rule, "name", "* GenerateContentRequest.{at}.name: Name cannot be empty.")


def _parts(content: Any) -> list[Any]:
    return as_list(content.get("parts")) if isinstance(content, dict) else []


def _is_model(content: Any) -> bool:
    return isinstance(content, dict) and content.get("role") == "model"


def _has(part: Any, name: str) -> bool:
    return isinstance(part, dict) and get_field(part, name) is not None


def _check_ending(context: RuleContext, contents: list[Any]) -> None:
    last = contents[-1]
    if not _is_model(last):
        return
    path, parts = f"contents[{len(contents) - 1}]", _parts(last)
    if len(contents) == 1:
        message = "Please ensure that single turn requests end with a user role or the role field is empty."
        context.error("GM-16", path, message)
    elif not context.model.prefill and not (parts and _has(parts[-1], "functionResponse")):
        message = "Requests ending with a model turn are not supported unless the last part is a function response."
        context.error("GM-16", path, message)


def _check_signatures(context: RuleContext, contents: list[Any]) -> None:
    """The first call of each step of the current turn carries its signature (GM-10)."""
    is_same_step = False
    for index in range(_turn_start(contents), len(contents)):
        content = contents[index]
        if not _is_model(content):
            is_same_step = False
            continue
        for position, part in enumerate(_parts(content)):
            if _has(part, "functionCall") and not is_same_step:
                is_same_step = True
                if get_field(part, "thoughtSignature"):
                    continue
                call = get_field(part, "functionCall")
                name = call.get("name") if isinstance(call, dict) else None
                message = (
                    "Function call is missing a thought_signature in functionCall parts. This is required for tools to "
                    "work correctly, and missing thought_signature may lead to degraded model performance. Additional "
                    f"data, function call `default_api:{name[:128] if isinstance(name, str) else ''}`, "
                    f"position {index + 1}."
                )
                path = f"contents[{index}].parts[{position}].{spelling_used(part, 'functionCall')}"
                context.error("GM-10", path, message)


def _turn_start(contents: list[Any]) -> int:
    """The start of the current turn: after the last user content that is not only results."""
    for index in range(len(contents) - 1, -1, -1):
        content = contents[index]
        if not _is_model(content) and any(not _has(part, "functionResponse") for part in _parts(content)):
            return index + 1
    return 0


def _check_system(context: RuleContext) -> None:
    key = spelling_used(context.body, "systemInstruction")
    system = context.body.get(key)
    if system is None:
        return
    if not isinstance(system, dict):
        context.error("GM-15", key, f"Invalid value at '{to_snake_case(key)}' (type.googleapis.com/google.ai.Content)")
        return
    for name in system:
        if name not in ("role", "parts"):
            context.error("GM-15", f"{key}.{name}", unknown_field(name, to_snake_case(key)))
    for index, part in enumerate(_parts(system)):
        if not isinstance(part, dict) or any(_has(part, name) for name in DATA_FIELDS[1:]):
            context.error("GM-15", f"{key}.parts[{index}]", "System instruction only supports text parts.")
        elif not isinstance(part.get("text", ""), str | None):
            context.error(
                "GM-15", f"{key}.parts[{index}].text", f"Invalid value at '{to_snake_case(key)}.parts[{index}].text'"
            )


def _check_generation_config(context: RuleContext) -> None:
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
    stops = get_field(config, "stopSequences")
    if isinstance(stops, list) and len(stops) > MAX_STOP_SEQUENCES:
        message = f"stop_sequences has {len(stops)} entries but the maximum is {MAX_STOP_SEQUENCES}."
        context.error("GM-14", f"{key}.{spelling_used(config, 'stopSequences')}", message)
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


def check_sequence(contents: list[Any], *, is_continued: bool = False) -> list[Violation]:
    """The rules the order of turns, calls and responses breaks (GM-05, GM-06, GM-07).

    `is_continued`: cached contents come before, so the first turn may have calls, or results of calls that are not here.
    """
    violations: list[Violation] = []
    turn = _Turn(0, is_model=False, calls_before=0)
    for index, content in enumerate(contents):
        is_model = _is_model(content)
        if index == 0 or is_model != turn.is_model:
            violations.extend(() if is_continued and turn.start == 0 else turn.violations())
            turn = _Turn(index, is_model=is_model, calls_before=turn.calls)
        turn.read(index, content)
    violations.extend(() if is_continued and turn.start == 0 else turn.violations())
    return violations


class _Turn(Struct):
    """Adjacent contents of one role, and how many calls and responses they hold."""

    start: int
    is_model: bool
    calls_before: int
    calls: int = 0
    responses: int = 0
    first_call: int = 0
    first_response: int = 0

    def read(self, index: int, content: Any) -> None:
        for part in _parts(content):
            if not isinstance(part, dict) or part.get("text") is not None:
                continue
            if self.is_model and get_field(part, "functionCall") is not None:
                self.first_call = self.first_call if self.calls else index
                self.calls += 1
            elif not self.is_model and get_field(part, "functionResponse") is not None:
                self.first_response = self.first_response if self.responses else index
                self.responses += 1

    def violations(self) -> Iterator[Violation]:
        """The violations of this turn, given the calls of the previous one."""
        if self.start == 0 and self.calls:
            message = (
                "Please ensure that function call turn comes immediately after a user turn or after a function "
                "response turn."
            )
            yield Violation("GM-05", f"contents[{self.first_call}]", message)
        if self.responses and not self.calls_before:
            message = "Please ensure that function response turn comes immediately after a function call turn."
            yield Violation("GM-06", f"contents[{self.first_response}]", message)
        elif self.responses != self.calls_before and not self.is_model:
            message = (
                "Please ensure that the number of function response parts is equal to the number of function call "
                "parts of the function call turn."
            )
            yield Violation("GM-07", f"contents[{self.first_response if self.responses else self.start}]", message)


# Fields of tools in other formats. Google adds tools often, so unknown names are accepted.
_FOREIGN_TOOL_FIELDS = frozenset({"type", "function", "name", "description", "parameters", "input_schema"})


def _check_tools(context: RuleContext) -> None:
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


RULES = RuleBook(
    Rule("GM-18", _check_names, write_request, "recorded; proto3 JSON refuses unknown names"),
    Rule("GM-15", _check_system, write_system, "vendor: systemInstruction is a Content of text"),
    Rule("GM-11", _check_tools, write_tools, "reports kaitranntt/ccs#219, smarter-sh/smarter#537; google-genai 3.1.0"),
    Rule("GM-12", _check_tools, write_tools, "reports thClaws/thClaws#172, TableProApp/TablePro#1276"),
    Rule("GM-13", _check_tools, write_tool_choice, "pydantic-ai 2.66.0; recorded"),
    Rule("GM-20", _check_tools, NAMES.to_wire, "report kaitranntt/ccs#219: 64 until 2025-12"),
    Rule("GM-19", _check_cached_content, write_other_fields, "pydantic-ai 2.66.0"),
    Rule("GM-14", _check_generation_config, write_generation, "vendor; pydantic-ai 2.66.0"),
    Rule("GM-01", _check_contents, write_turns, "report vercel/ai#3775"),
    Rule("GM-02", _check_contents, write_turns, "report the-open-agent/openagent#1666"),
    Rule("GM-03", _check_contents, write_turns, "report egoist/chatwise-releases#250"),
    Rule("GM-04", _check_contents, ContentWriter.write, "recorded"),
    Rule("GM-08", _check_contents, write_call, "vendor: args is a Struct"),
    Rule("GM-09", _check_contents, ContentWriter.result, "report vercel/ai#3589"),
    Rule("GM-17", _check_contents, write_media, "vendor; recorded"),
    Rule("GM-05", _check_contents, write_turns, "report google-gemini/gemini-cli#11814"),
    Rule("GM-06", _check_contents, None, "report langchain-ai/langchain#27799"),
    Rule("GM-07", _check_contents, None, "report google-gemini/gemini-cli#16543"),
    Rule("GM-16", _check_contents, write_turns, "reports LibreChat-AI/agents#323, microsoft/semantic-kernel#13288"),
    Rule("GM-10", _check_contents, ContentWriter.call, "report lbjlaq/Antigravity-Manager#733"),
)
