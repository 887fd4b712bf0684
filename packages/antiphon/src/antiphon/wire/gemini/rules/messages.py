"""Checks of the contents of a generateContent request: each part, the order of calls and responses, and the last turn.

Adjacent contents of one role are one turn. Paths use the spelling of the body (`contents[1].parts[0].functionCall`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from antiphon.wire.capabilities import Capabilities
from antiphon.wire.capabilities.accepted_media import media_problems
from antiphon.wire.gemini.limits import DATA_FIELDS, PART_SPELLINGS
from antiphon.wire.gemini.media import is_image_type
from antiphon.wire.gemini.native import as_list, get_field, spelling_used
from antiphon.wire.rules import RuleContext, Violation
from antiphon.wire.vendors.google import to_snake_case, unknown_field

_OBJECT_RULES = {"functionCall": "GM-08", "functionResponse": "GM-09", "inlineData": "GM-17"}
_STRUCTS = {"functionCall": "args", "functionResponse": "response"}


def check_contents(context: RuleContext) -> None:
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
    for path, reason in media_problems(contents, "contents", context.model):
        context.error("GM-17", path, reason)


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


def check_system(context: RuleContext) -> None:
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
