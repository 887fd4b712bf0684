"""The rules of the Interactions API, checked before the request is sent.

Their sources are the published specification (OpenAPI, v1beta, as bundled by llm-comply 0.5.0), the vendor's guides, and
generateContent, whose models answer here too. Nothing here raises: a value of the wrong type is a violation and is
not examined further. The provider's wording is not known; messages follow its sentences about other fields.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from antiphon.wire.capabilities import Capabilities, look_up, tool_name_matcher
from antiphon.wire.capabilities.accepted_media import fit_medium, media_problems
from antiphon.wire.format import DEFAULT_OPTIONS, WriteOptions
from antiphon.wire.gemini_interactions import FORMAT
from antiphon.wire.gemini_interactions.content import StepWriter
from antiphon.wire.gemini_interactions.limits import (
    MEDIA_KINDS,
    MODES,
    OUTPUT_TYPES,
    PARAMETERS,
    RESULT_CONTENT,
    SERVICE_TIERS,
    media_types,
)
from antiphon.wire.gemini_interactions.media import write_media
from antiphon.wire.gemini_interactions.messages import (
    as_entries,
    is_content,
    is_continued,
    is_model_step,
    write_steps,
)
from antiphon.wire.gemini_interactions.parameters import PARAMETER_TABLE, write_generation, write_output_format
from antiphon.wire.gemini_interactions.request import write_request
from antiphon.wire.gemini_interactions.tools import write_tool_choice, write_tools
from antiphon.wire.parameters import refused_fields
from antiphon.wire.rules import Rule, RuleBook, RuleContext, Violation, json_type_name
from antiphon.wire.vendors.google import unknown_field
from antiphon.wire.vendors.google_parameters import THINKING_LEVELS, WORDING, service_tier, stop_problem

_STRINGS = ("model", "agent", "previous_interaction_id", "system_instruction", "response_mime_type")
_BOOLEANS = ("background", "store", "stream")
_TOOL_FIELDS = {"function", "input_schema"}
_CONTENT = "content"


def check_request(body: Any, options: WriteOptions = DEFAULT_OPTIONS, *, advisories: bool = False) -> list[Violation]:
    """The rules of the Interactions API that a request body breaks."""
    if not isinstance(body, dict):
        return [Violation("GI-01", "", f"Invalid JSON payload received: the body is {json_type_name(body)}.")]
    name = body.get("model")
    model = look_up(name if isinstance(name, str) else "", FORMAT, options.capabilities)
    return RULES.check(RuleContext(body, model, advisories))


def _check_parameters(context: RuleContext) -> None:
    body = context.body
    given = [name for name in ("model", "agent") if body.get(name)]
    if len(given) != 1:
        problem = "exactly one of model and agent must be set" if given else "model or agent is required"
        context.error("GI-01", given[-1] if given else "model", problem)
    for name in body:
        if name not in PARAMETERS:
            context.error("GI-02", name, unknown_field(name, ""))
    for names, kind, label in ((_STRINGS, str, "TYPE_STRING"), (_BOOLEANS, bool, "TYPE_BOOL")):
        for name in names:
            if body.get(name) is not None and not isinstance(body[name], kind):
                context.error("GI-02", name, f"Invalid value at '{name}' ({label})")
    tier = body.get("service_tier")
    if tier is not None and tier not in SERVICE_TIERS:
        context.error("GI-12", "service_tier", f"service_tier must be one of {', '.join(SERVICE_TIERS)}")
    if body.get("background") is True and body.get("store") is False:
        context.error("GI-13", "background", "background requires store to be true")


def _check_generation_config(context: RuleContext) -> None:
    config = context.body.get("generation_config")
    if config is None:
        return
    if not isinstance(config, dict):
        context.error("GI-07", "generation_config", "Invalid value at 'generation_config'")
        return
    refused = refused_fields(context.model, "GI-07", "GI-07", config.get("temperature"), config.get("top_p"))
    for violation in (
        *PARAMETER_TABLE.check(config, context.model, WORDING),
        *PARAMETER_TABLE.check_refused(config, refused, WORDING),
    ):
        context.error(violation.rule, f"generation_config.{violation.path}", violation.message)
    if problem := stop_problem(config.get("stop_sequences")):
        context.error("GI-07", "generation_config.stop_sequences", problem)
    level = config.get("thinking_level")
    if level is not None:
        efforts, path = context.model.efforts, "generation_config.thinking_level"
        if not isinstance(level, str) or level not in THINKING_LEVELS:
            context.error("GI-07", path, f"thinking_level must be one of {', '.join(sorted(THINKING_LEVELS))}")
        elif (efforts is not None and level not in efforts) or context.model.thinking == ():
            context.error("GI-07", path, f"Thinking level {level} is not supported for this model.")
    summaries = config.get("thinking_summaries")
    if summaries not in (None, "auto", "none"):
        context.error("GI-07", "generation_config.thinking_summaries", "thinking_summaries must be auto or none")
    elif summaries is not None and context.model.thinking == ():
        context.error("GI-07", "generation_config.thinking_summaries", "Thinking is not enabled for this model.")
    choice = config.get("tool_choice")
    if choice is not None:
        _check_tool_choice(context, choice, "generation_config.tool_choice")


def _check_tool_choice(context: RuleContext, choice: Any, path: str) -> None:
    allowed = choice.get("allowed_tools") if isinstance(choice, dict) else None
    if isinstance(choice, dict) and isinstance(allowed, dict):
        if allowed.get("mode") not in (None, *MODES):
            context.error("GI-09", f"{path}.allowed_tools.mode", f"mode must be one of {', '.join(MODES)}")
    elif choice not in MODES if isinstance(choice, str) else True:
        context.error("GI-09", path, f"tool_choice must be one of {', '.join(MODES)}, or have allowed_tools")
    if not context.body.get("tools"):
        context.error("GI-09", path, "tool_choice is set without tools")


def _check_tools(context: RuleContext) -> None:
    context.violations.extend(_tool_violations(context.body))


def _tool_violations(body: dict[str, Any]) -> Iterator[Violation]:
    tools, names = body.get("tools"), set[str]()
    if tools is not None and not isinstance(tools, list):
        yield Violation("GI-08", "tools", "Invalid value at 'tools'")
        return
    for index, tool in enumerate(tools or ()):
        path = f"tools[{index}]"
        if not isinstance(tool, dict) or not isinstance(tool.get("type"), str):
            yield Violation("GI-08", path, f"{path}.type: a tool must have a type")
            continue
        for field in _TOOL_FIELDS & tool.keys():
            yield Violation("GI-08", f"{path}.{field}", unknown_field(field, path))
        if tool["type"] != "function":
            continue  # Google adds tools often
        name, parameters = tool.get("name"), tool.get("parameters")
        if not isinstance(name, str) or not tool_name_matcher(FORMAT)(name):
            yield Violation("GI-08", f"{path}.name", "Invalid function name: at most 128 of a-z, A-Z, 0-9, _ . : -")
        elif name in names:
            yield Violation("GI-08", f"{path}.name", f"Duplicate function declaration found: {name}")
        else:
            names.add(name)
        if not isinstance(parameters, dict | None):
            yield Violation("GI-08", f"{path}.parameters", f"Invalid value at '{path}.parameters'")


def _check_response_format(context: RuleContext) -> None:
    given = context.body.get("response_format")
    for entry in given if isinstance(given, list) else [given]:
        if entry is not None and not isinstance(entry, dict):
            context.error("GI-11", "response_format", "Invalid value at 'response_format'")
        elif isinstance(entry, dict) and entry.get("type") == "text":
            mime_type, schema = entry.get("mime_type"), entry.get("schema")
            if mime_type not in (None, *OUTPUT_TYPES):
                context.error("GI-11", "response_format.mime_type", f"must be one of {', '.join(OUTPUT_TYPES)}")
            elif schema is not None and (mime_type != "application/json" or not isinstance(schema, dict)):
                context.error("GI-11", "response_format.schema", "a schema needs mime_type application/json")


def _check_input(context: RuleContext) -> None:
    body = context.body
    entries = as_entries(body.get("input"))
    if entries is None or (not entries and not is_continued(body)):
        context.error("GI-01", "input", "input must be a string, a content, or a list of contents or steps")
        return
    are_contents = all(map(is_content, entries))
    for index, entry in enumerate(entries):
        path = f"input[{index}]" if isinstance(body.get("input"), list) else "input"
        (_check_content if are_contents else _check_step)(context, entry, path)
    if not are_contents:
        context.violations.extend(check_sequence(entries, context.model, is_continued=is_continued(body)))
    for path, problem in media_problems(entries, "input", context.model, with_types=False):
        context.error("GI-15", path, problem)


def _check_step(context: RuleContext, step: Any, path: str) -> None:
    kind = step.get("type") if isinstance(step, dict) else None
    if not isinstance(kind, str):
        context.error("GI-03", path, f"{path}: a step must be an object with a type")
    elif kind in ("user_input", "model_output"):
        content = step.get(_CONTENT)
        if content is not None and not isinstance(content, list):
            context.error("GI-03", f"{path}.content", f"Invalid value at '{path}.content'")
        for position, block in enumerate(content if isinstance(content, list) else ()):
            _check_content(context, block, f"{path}.content[{position}]")
    elif kind == "function_call":
        for field in ("id", "name"):
            if not isinstance(step.get(field), str) or not step[field]:
                context.error("GI-04", f"{path}.{field}", f"{path}.{field}: must be a string that is not empty")
        if not isinstance(step.get("arguments"), dict):
            context.error("GI-04", f"{path}.arguments", f"{path}.arguments: must be an object")
    elif kind == "function_result":
        _check_result(context, step, path)
    elif kind == "thought":
        if not isinstance(step.get("summary"), list | None):
            context.error("GI-03", f"{path}.summary", f"Invalid value at '{path}.summary'")
        if not step.get("signature"):
            context.advise("GI-16", f"{path}.signature", f"{path}.signature: a thought must be sent with its signature")
    elif kind in MEDIA_KINDS or kind == "text":
        context.error("GI-03", path, f"{path}: contents and steps cannot be mixed")


def _check_content(context: RuleContext, content: Any, path: str) -> None:
    kind = content.get("type") if isinstance(content, dict) else None
    if kind == "text":
        if not isinstance(content.get("text"), str):
            context.error("GI-05", f"{path}.text", f"Invalid value at '{path}.text' (TYPE_STRING)")
    elif not isinstance(kind, str) or kind not in MEDIA_KINDS:
        context.error("GI-05", path, f"{path}: a content must be text, image, audio, document or video")
    else:
        data, mime_type = content.get("data"), content.get("mime_type")
        if data is not None and (not isinstance(data, str) or data.startswith("data:") or not data.isascii()):
            context.error(
                "GI-05", f"{path}.data", f"Invalid value at '{path}.data' (TYPE_BYTES), Base64 decoding failed"
            )
        if data is None and content.get("uri") is None:
            context.error("GI-05", path, f"{path}: data or uri is required")
        if mime_type is not None and (not isinstance(mime_type, str) or mime_type not in media_types(kind)):
            context.error("GI-06", f"{path}.mime_type", f"Unsupported MIME type: {str(mime_type)[:80]}")


def _check_result(context: RuleContext, step: dict[str, Any], path: str) -> None:
    if not isinstance(step.get("call_id"), str) or not step["call_id"]:
        context.error("GI-03", f"{path}.call_id", f"{path}.call_id: must be a string that is not empty")
    result = step.get("result")
    if not isinstance(result, str | dict | list):
        context.error("GI-14", f"{path}.result", f"{path}.result: must be a string, an object or a list of contents")
    for position, block in enumerate(result if isinstance(result, list) else ()):
        where = f"{path}.result[{position}]"
        if not isinstance(block, dict) or block.get("type") not in RESULT_CONTENT:
            context.error("GI-14", where, f"{where}: a result holds texts and images")
        else:
            _check_content(context, block, where)


def check_sequence(steps: list[Any], model: Capabilities, *, is_continued: bool = False) -> Iterator[Violation]:
    """The rules that the order of turns, calls and results breaks (GI-10).

    `is_continued`: the server has earlier turns, so results may belong to calls that are not here.
    """
    open_calls: dict[str, int] = {}
    for index, step in enumerate(steps):
        kind = step.get("type") if isinstance(step, dict) else None
        path = f"input[{index}]"
        if kind == "function_call":
            if index == 0 and not is_continued:
                yield Violation("GI-10", path, "a function call must come after input of the user or a result")
            open_calls[str(step.get("id"))] = index
        elif kind == "function_result":
            call_id = str(step.get("call_id"))
            if call_id not in open_calls and not is_continued and isinstance(step.get("call_id"), str):
                yield Violation("GI-10", f"{path}.call_id", f"no function call before has the id {call_id[:80]}")
            open_calls.pop(call_id, None)
        elif kind == "user_input" and open_calls:
            first = min(open_calls.values())
            yield Violation("GI-10", f"input[{first}]", "every function call must be followed by its result")
            open_calls.clear()
    if steps and is_model_step(steps[-1]) and not is_continued and (len(steps) == 1 or not model.prefill):
        yield Violation("GI-10", f"input[{len(steps) - 1}]", "the input must end with input of the user or a result")


RULES = RuleBook(
    Rule(
        "GI-01", _check_parameters, write_request, "specification, CreateModelInteractionParams: input, model or agent"
    ),
    Rule("GI-02", _check_parameters, write_request, "specification: names and types of the parameters"),
    Rule("GI-12", _check_parameters, service_tier, "specification, ServiceTier"),
    Rule("GI-13", _check_parameters, None, "vendor guide: background execution needs store"),
    Rule(
        "GI-07",
        _check_generation_config,
        write_generation,
        "specification, GenerationConfig; models as in generateContent",
    ),
    Rule(
        "GI-09",
        _check_generation_config,
        write_tool_choice,
        "specification, ToolChoiceConfig; needs tools as in generateContent",
    ),
    Rule("GI-08", _check_tools, write_tools, "specification, Tool and Function; names as in generateContent"),
    Rule("GI-11", _check_response_format, write_output_format, "specification, ResponseFormat"),
    Rule("GI-03", _check_input, write_steps, "specification, InteractionsInput and Step"),
    Rule("GI-04", _check_input, StepWriter.call, "specification, FunctionCallStep"),
    Rule("GI-05", _check_input, StepWriter.content, "specification, Content"),
    Rule("GI-06", _check_input, write_media, "specification: the MIME types of each content"),
    Rule("GI-14", _check_input, StepWriter.result, "specification, FunctionResultStep"),
    Rule("GI-10", _check_input, write_steps, "the models are those of generateContent, with its order of turns"),
    Rule("GI-16", _check_input, StepWriter.thought, "vendor guide, thinking: a thought always has its signature"),
    Rule("GI-15", _check_input, fit_medium, "media of the model, as in generateContent"),
)
