"""What the Interactions API refuses. No traffic of it was recorded: the rules are those of its published specification, and
those of generateContent about the order of calls and results, because the same models answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from antiphon_devtools.conform.bodies import objects, words
from antiphon_devtools.conform.conversation import Violation

_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,127}")
_TOP = words(
    "input model agent agent_config background environment generation_config labels previous_interaction_id"
    " response_format response_mime_type response_modalities safety_settings service_tier store stream"
    " system_instruction tools webhook_config continuation_token id created updated status environment_id"
)
_TYPES = {"model": str, "agent": str, "system_instruction": str, "store": bool, "stream": bool, "background": bool}
_TYPES |= {"previous_interaction_id": str, "response_mime_type": str}
_MEDIA = ("image", "audio", "document", "video")
_MODES = ("auto", "any", "none", "validated")
_LEVELS = ("minimal", "low", "medium", "high")
_WITHOUT_LEVELS = re.compile(r"gemini-(1|2)\b")
_WITHOUT_PREFILL = re.compile(r"gemini-(3\.[6-9]|[4-9])")
_RANGES = {"temperature": (0, 2), "top_p": (0, 1), "max_output_tokens": (1, 2**31)}


def check(body: dict[str, Any]) -> Iterator[Violation]:
    given = [name for name in ("model", "agent") if body.get(name)]
    if len(given) != 1:
        yield Violation("GI-01", "model", "exactly one of model and agent must be set")
    for name in sorted(body.keys() - _TOP):
        yield Violation("GI-02", name, f'Invalid JSON payload received. Unknown name "{name}": Cannot find field.')
    for name, kind in _TYPES.items():
        if body.get(name) is not None and not isinstance(body[name], kind):
            yield Violation("GI-02", name, f"Invalid value at '{name}'")
    yield from _tools(body)
    yield from _config(body)
    yield from _format(body.get("response_format"))
    yield from _input(body)


def _input(body: dict[str, Any]) -> Iterator[Violation]:
    value = body.get("input")
    is_continued = bool(body.get("previous_interaction_id") or body.get("continuation_token"))
    if isinstance(value, str) and value:
        return
    steps = [value] if isinstance(value, dict) else value
    if not isinstance(steps, list) or not steps:
        if steps or not is_continued:
            yield Violation("GI-01", "input", "input must be a string, a content, or a list of contents or steps")
        return
    kinds = [step.get("type") if isinstance(step, dict) else None for step in steps]
    if all(kind == "text" or kind in _MEDIA for kind in kinds):
        for place, content in enumerate(steps):
            yield from _content(content, f"input[{place}]")
        return
    for place, (step, kind) in enumerate(zip(steps, kinds, strict=True)):
        where = f"input[{place}]"
        if not isinstance(kind, str):
            yield Violation("GI-03", where, f"{where}: a step must be an object with a type")
        elif kind == "text" or kind in _MEDIA:
            yield Violation("GI-03", where, f"{where}: contents and steps cannot be mixed")
        else:
            yield from _step(step, where)
    yield from _sequence(steps, is_continued)
    is_of_model = kinds[-1] not in ("user_input", "function_result")
    may_continue = len(steps) > 1 and not _WITHOUT_PREFILL.match(str(body.get("model")))
    if is_of_model and not is_continued and not may_continue:
        yield Violation("GI-10", f"input[{len(steps) - 1}]", "the input must end with input of the user or a result")


def _step(step: dict[str, Any], where: str) -> Iterator[Violation]:
    match step["type"]:
        case "user_input" | "model_output":
            content = step.get("content")
            if content is not None and not isinstance(content, list):
                yield Violation("GI-03", f"{where}.content", f"Invalid value at '{where}.content'")
            for place, each in enumerate(content if isinstance(content, list) else ()):
                yield from _content(each, f"{where}.content[{place}]")
        case "function_call":
            for name, kind in (("id", str), ("name", str), ("arguments", dict)):
                value = step.get(name)
                if not isinstance(value, kind) or (kind is str and not value):
                    yield Violation("GI-04", f"{where}.{name}", f"{where}.{name}: a value is required")
        case "function_result":
            if not isinstance(step.get("call_id"), str) or not step["call_id"]:
                yield Violation("GI-03", f"{where}.call_id", f"{where}.call_id: a value is required")
            result = step.get("result")
            if not isinstance(result, str | dict | list):
                yield Violation("GI-14", f"{where}.result", f"Invalid value at '{where}.result'")
            for place, each in enumerate(result if isinstance(result, list) else ()):
                if not isinstance(each, dict) or each.get("type") not in ("text", "image"):
                    yield Violation("GI-14", f"{where}.result[{place}]", "a result holds texts and images")
        case "thought":
            if not isinstance(step.get("summary"), list | None):
                yield Violation("GI-03", f"{where}.summary", f"Invalid value at '{where}.summary'")


def _content(content: Any, where: str) -> Iterator[Violation]:
    kind = content.get("type") if isinstance(content, dict) else None
    if kind == "text":
        if not isinstance(content.get("text"), str):
            yield Violation("GI-05", f"{where}.text", f"Invalid value at '{where}.text' (TYPE_STRING)")
    elif kind not in _MEDIA:
        yield Violation("GI-05", where, f"{where}: a content must be text or a medium")
    elif content.get("data") is None and content.get("uri") is None:
        yield Violation("GI-05", where, f"{where}: data or uri is required")
    elif str(content.get("data")).startswith("data:"):
        yield Violation("GI-05", f"{where}.data", f"Invalid value at '{where}.data' (TYPE_BYTES)")


def _sequence(steps: list[Any], is_continued: bool) -> Iterator[Violation]:
    """Calls come after input, and every call has its result before the user speaks again."""
    waiting: dict[str, int] = {}
    for place, step in enumerate(objects(steps)):
        kind, where = step.get("type"), f"input[{place}]"
        if kind == "function_call":
            if place == 0 and not is_continued:
                yield Violation("GI-10", where, "a function call must come after input of the user or a result")
            waiting[str(step.get("id"))] = place
        elif kind == "function_result":
            if waiting.pop(str(step.get("call_id")), None) is None and not is_continued:
                yield Violation("GI-10", where, f"no function call has the id {step.get('call_id')}")
        elif kind == "user_input" and waiting:
            yield Violation("GI-10", f"input[{min(waiting.values())}]", "every function call needs its result")
            waiting.clear()


def _tools(body: dict[str, Any]) -> Iterator[Violation]:
    tools, names = body.get("tools"), []
    if tools is not None and not isinstance(tools, list):
        yield Violation("GI-08", "tools", "Invalid value at 'tools'")
        return
    for place, tool in enumerate(tools or ()):
        where = f"tools[{place}]"
        if not isinstance(tool, dict) or not isinstance(tool.get("type"), str):
            yield Violation("GI-08", where, f"{where}.type: a tool must have a type")
        elif tool["type"] == "function":
            names.append(str(tool.get("name")))
            if not _NAME.fullmatch(names[-1]):
                yield Violation("GI-08", f"{where}.name", "Invalid function name.")
            for name in sorted(tool.keys() & {"function", "input_schema"}):
                yield Violation("GI-08", f"{where}.{name}", f'Unknown name "{name}": Cannot find field.')
            if not isinstance(tool.get("parameters"), dict | None):
                yield Violation("GI-08", f"{where}.parameters", f"Invalid value at '{where}.parameters'")
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield Violation("GI-08", "tools", f"Duplicate function declaration found: {name}")


def _config(body: dict[str, Any]) -> Iterator[Violation]:
    config = body.get("generation_config")
    if config is None:
        return
    if not isinstance(config, dict):
        yield Violation("GI-07", "generation_config", "Invalid value at 'generation_config'")
        return
    for name, (least, most) in _RANGES.items():
        value = config.get(name)
        if value is not None and not (isinstance(value, int | float) and least <= value <= most):
            yield Violation("GI-07", f"generation_config.{name}", f"{name} must be from {least} to {most}")
    if len(config.get("stop_sequences") or ()) > 5:
        yield Violation("GI-07", "generation_config.stop_sequences", "at most 5 stop sequences")
    level = config.get("thinking_level")
    if level is not None and (level not in _LEVELS or _WITHOUT_LEVELS.match(str(body.get("model")))):
        yield Violation("GI-07", "generation_config.thinking_level", f"Thinking level {level} is not supported.")
    if config.get("thinking_summaries") not in (None, "auto", "none"):
        yield Violation("GI-07", "generation_config.thinking_summaries", "thinking_summaries must be auto or none")
    choice = config.get("tool_choice")
    if choice is None:
        return
    allowed = choice.get("allowed_tools") if isinstance(choice, dict) else None
    mode = allowed.get("mode", "auto") if isinstance(allowed, dict) else choice
    if mode not in _MODES:
        yield Violation("GI-09", "generation_config.tool_choice", f"tool_choice must be one of {', '.join(_MODES)}")
    if not body.get("tools"):
        yield Violation("GI-09", "generation_config.tool_choice", "tool_choice is set without tools")


def _format(wanted: Any) -> Iterator[Violation]:
    for entry in wanted if isinstance(wanted, list) else [wanted]:
        if entry is None:
            continue
        if not isinstance(entry, dict):
            yield Violation("GI-11", "response_format", "Invalid value at 'response_format'")
        elif entry.get("type") == "text":
            kind = entry.get("mime_type")
            if kind not in (None, "application/json", "text/plain"):
                yield Violation("GI-11", "response_format.mime_type", f"unknown MIME type {kind}")
            elif entry.get("schema") is not None and kind != "application/json":
                yield Violation("GI-11", "response_format.schema", "a schema needs mime_type application/json")
