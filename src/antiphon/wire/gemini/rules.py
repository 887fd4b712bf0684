"""The rules of Gemini's generateContent, told before the provider tells them.

`check_request` reads a body front to back and returns what it breaks. The API parses JSON as proto3, and so does this: names in
camelCase or snake_case, null as absent, one object where a list is expected, and an unknown name an error. `check_sequence`
looks at nothing but the contents, so that a repair can ask it alone; adjacent contents of one role are one turn to it, as
they are to the provider. Rule ids are those of the rule book, messages the provider's own words, and paths are spelled as the
body spells them (`contents[1].parts[0].functionCall`).

The model is named in the URL: what depends on it is checked only if the caller names it and its name says for certain which
generation it is. Nothing here raises: a value of the wrong type is a violation, and is not looked into further.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from antiphon.wire.format import DEFAULT_OPTIONS, WriteOptions
from antiphon.wire.gemini.declarations import check_schema, check_tools, get, listed, snake, spelled, unknown_name
from antiphon.wire.gemini.model_name import ModelTraits, traits_of
from antiphon.wire.rules import Violation, name_list, name_set

DATA_FIELDS = name_list(
    "text inlineData functionCall functionResponse fileData executableCode codeExecutionResult toolCall toolResponse"
)
OTHER_PART_FIELDS = ("thought", "thoughtSignature", "videoMetadata", "mediaResolution", "partMetadata")
PARAMETERS = name_set(
    "contents model systemInstruction tools toolConfig safetySettings generationConfig cachedContent labels serviceTier"
    " modelArmorConfig store"
)

_PART_FIELDS = {form: name for name in (*DATA_FIELDS, *OTHER_PART_FIELDS) for form in (name, snake(name))}
_PARAMETER_FORMS = frozenset(form for name in PARAMETERS for form in (name, snake(name)))
_OBJECT_RULES = {"functionCall": "GM-08", "functionResponse": "GM-09", "inlineData": "GM-17"}
_STRUCTS = {"functionCall": "args", "functionResponse": "response"}


class _Request(Struct):
    """A body under check: what the model's name tells for certain, and what was found so far."""

    body: dict[str, Any]
    model: ModelTraits
    found: list[Violation] = []

    def error(self, rule: str, path: str, message: str) -> None:
        self.found.append(Violation(rule, path, message))


def check_request(body: Any, options: WriteOptions = DEFAULT_OPTIONS, *, advisories: bool = False) -> list[Violation]:
    """The rules of generateContent that a request body breaks; `options.model` is the one named in the URL."""
    if not isinstance(body, dict):
        return [Violation("GM-01", "", "Invalid JSON payload received. The body is not an object.")]
    request = _Request(body, traits_of(options.model))
    found = request.found
    for name in body:
        if name not in _PARAMETER_FORMS:
            request.error("GM-18", name, unknown_name(name, ""))
    _check_system(request)
    found.extend(check_tools(body))
    if get(body, "cachedContent") and any(get(body, name) for name in ("tools", "toolConfig", "systemInstruction")):
        message = (
            "Tool config, tools and system instruction should not be set in the request when using cached content."
        )
        request.error("GM-19", spelled(body, "cachedContent"), message)
    _check_generation_config(request)
    _check_contents(request)
    return found if advisories else [violation for violation in found if not violation.advisory]


def _check_contents(request: _Request) -> None:
    contents = listed(request.body.get("contents"))
    if not contents:
        request.error("GM-01", "contents", "* GenerateContentRequest.contents: contents is not specified")
        return
    for index, content in enumerate(contents):
        _check_content(request, f"contents[{index}]", content)
    request.found.extend(check_sequence(contents))
    _check_ending(request, contents)
    if request.model.needs_signatures:
        _check_signatures(request, contents)


def _check_content(request: _Request, where: str, content: Any) -> None:
    if not isinstance(content, dict):
        request.error("GM-01", where, f"Invalid value at '{where}'")
        return
    role = content.get("role")
    if role not in ("user", "model", None, ""):
        message = "Please use a valid role: user, model."
        request.found.append(Violation("GM-02", f"{where}.role", message, advisory=role == "function"))
    for name in content:
        if name not in ("role", "parts"):
            request.error("GM-18", f"{where}.{name}", unknown_name(name, where))
    parts = listed(content.get("parts"))
    if not parts:
        message = f"* GenerateContentRequest.{where}.parts: contents.parts must not be empty."
        # A model turn that said nothing, replayed without the name `parts`, was accepted twice (GM-03).
        is_silent_answer = role == "model" and "parts" not in content
        request.found.append(Violation("GM-03", f"{where}.parts", message, advisory=is_silent_answer))
    for position, part in enumerate(parts):
        _check_part(request, f"{where}.parts[{position}]", part)


def _check_part(request: _Request, where: str, part: Any) -> None:
    if not isinstance(part, dict):
        request.error("GM-04", where, f"Invalid value at '{where}'")
        return
    has_data = False
    is_empty = True
    for key, value in part.items():
        name = _PART_FIELDS.get(key)
        if name is None:
            request.error("GM-04", f"{where}.{key}", unknown_name(key, where))
        elif value is not None:
            is_empty = False
            if name not in DATA_FIELDS:
                continue
            if has_data:
                message = f"Invalid value at '{where}' (oneof), oneof field 'data' is already set. Cannot set '{key}'"
                request.error("GM-04", f"{where}.{key}", message)
            has_data = True
            for fault in _data_faults(name, value):
                path = f"{where}.{key}.{fault.path}" if fault.path else f"{where}.{key}"
                request.error(fault.rule, path, fault.message.replace("{at}", f"{where}.{snake(key)}"))
    if is_empty and not part.keys() - _PART_FIELDS.keys():
        message = f"* GenerateContentRequest.{where}.data: required oneof field 'data' must have one initialized field"
        request.error("GM-04", where, message)


def _data_faults(name: str, value: Any) -> Iterator[Violation]:
    """What is wrong with the data of a part, seen from there; `{at}` in a message stands for where that is."""
    if name == "text":
        if not isinstance(value, str):
            yield Violation("GM-04", "", "Invalid value at '{at}' (TYPE_STRING)")
        return
    rule = _OBJECT_RULES.get(name, "GM-04")
    if not isinstance(value, dict):
        yield Violation(rule, "", "Invalid value at '{at}'")
    elif name == "inlineData":
        data, mime_type = value.get("data"), get(value, "mimeType")
        if not isinstance(data, str) or data.startswith("data:") or not data.isascii():
            yield Violation(rule, "data", "Invalid value at '{at}.data' (TYPE_BYTES), Base64 decoding failed")
        if not isinstance(mime_type, str) or not mime_type:
            message = "* GenerateContentRequest.{at}.mime_type: must be specified"
            yield Violation(rule, spelled(value, "mimeType"), message)
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
    return listed(content.get("parts")) if isinstance(content, dict) else []


def _is_model(content: Any) -> bool:
    return isinstance(content, dict) and content.get("role") == "model"


def _has(part: Any, name: str) -> bool:
    return isinstance(part, dict) and get(part, name) is not None


def _check_ending(request: _Request, contents: list[Any]) -> None:
    last = contents[-1]
    if not _is_model(last):
        return
    path, parts = f"contents[{len(contents) - 1}]", _parts(last)
    if len(contents) == 1:
        message = "Please ensure that single turn requests end with a user role or the role field is empty."
        request.error("GM-16", path, message)
    elif request.model.refuses_model_ending and not (parts and _has(parts[-1], "functionResponse")):
        message = "Requests ending with a model turn are not supported unless the last part is a function response."
        request.error("GM-16", path, message)


def _check_signatures(request: _Request, contents: list[Any]) -> None:
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
                if get(part, "thoughtSignature"):
                    continue
                call = get(part, "functionCall")
                name = call.get("name") if isinstance(call, dict) else None
                message = (
                    "Function call is missing a thought_signature in functionCall parts. This is required for tools to "
                    "work correctly, and missing thought_signature may lead to degraded model performance. Additional "
                    f"data, function call `default_api:{name[:128] if isinstance(name, str) else ''}`, "
                    f"position {index + 1}."
                )
                path = f"contents[{index}].parts[{position}].{spelled(part, 'functionCall')}"
                request.error("GM-10", path, message)


def _turn_start(contents: list[Any]) -> int:
    """Where the current turn starts: behind the last content in which the user says something."""
    for index in range(len(contents) - 1, -1, -1):
        content = contents[index]
        if not _is_model(content) and any(not _has(part, "functionResponse") for part in _parts(content)):
            return index + 1
    return 0


def _check_system(request: _Request) -> None:
    key = spelled(request.body, "systemInstruction")
    system = request.body.get(key)
    if system is None:
        return
    if not isinstance(system, dict):
        request.error("GM-15", key, f"Invalid value at '{snake(key)}' (type.googleapis.com/google.ai.Content)")
        return
    for name in system:
        if name not in ("role", "parts"):
            request.error("GM-15", f"{key}.{name}", unknown_name(name, snake(key)))
    for index, part in enumerate(_parts(system)):
        if not isinstance(part, dict) or any(_has(part, name) for name in DATA_FIELDS[1:]):
            request.error("GM-15", f"{key}.parts[{index}]", "System instruction only supports text parts.")
        elif not isinstance(part.get("text", ""), str | None):
            request.error("GM-15", f"{key}.parts[{index}].text", f"Invalid value at '{snake(key)}.parts[{index}].text'")


def _check_generation_config(request: _Request) -> None:
    key = spelled(request.body, "generationConfig")
    config = request.body.get(key)
    if config is None:
        return
    if not isinstance(config, dict):
        request.error("GM-14", key, f"Invalid value at '{snake(key)}'")
        return
    _check_range(request, config, key, "temperature", 2.0001)
    _check_range(request, config, key, "topP", 1.0001)
    stops = get(config, "stopSequences")
    if isinstance(stops, list) and len(stops) > 5:
        message = f"stop_sequences has {len(stops)} entries but the maximum is 5."
        request.error("GM-14", f"{key}.{spelled(config, 'stopSequences')}", message)
    _check_thinking(request, config, key)
    schema = get(config, "responseSchema")
    if schema is not None:
        request.found.extend(check_schema(schema, f"{key}.{spelled(config, 'responseSchema')}"))


def _check_range(request: _Request, config: dict[str, Any], key: str, name: str, end: float) -> None:
    value = get(config, name)
    if value is None:
        return
    path, number = f"{key}.{spelled(config, name)}", _number(value)
    if number is None:
        request.error("GM-14", path, f"Invalid value at '{snake(key)}.{snake(name)}' (TYPE_FLOAT)")
    elif not 0 <= number < end:
        shown = f"{number:g}" if abs(number) < 1e15 else "more than 15 digits"
        message = (
            f"Unable to submit request because it has a {snake(name)} value of {shown} but the supported range "
            f"is from 0 (inclusive) to {end} (exclusive). Update the value and try again."
        )
        request.error("GM-14", path, message)


def _number(value: Any) -> float | None:
    """A number as proto3 JSON reads it: a string may hold one."""
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return None
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _check_thinking(request: _Request, config: dict[str, Any], key: str) -> None:
    thinking = get(config, "thinkingConfig")
    if not isinstance(thinking, dict):
        return
    path, budget = f"{key}.{spelled(config, 'thinkingConfig')}", get(thinking, "thinkingBudget")
    if budget is not None and get(thinking, "thinkingLevel") is not None:
        request.error("GM-14", path, "You can only set only one of thinking budget and thinking level.")
    if budget == 0 and request.model.always_thinks and not isinstance(budget, bool):
        message = "Budget 0 is invalid. This model only works in thinking mode."
        request.error("GM-14", f"{path}.{spelled(thinking, 'thinkingBudget')}", message)


def check_sequence(contents: list[Any]) -> list[Violation]:
    """The rules the order of turns, calls and responses breaks (GM-05, GM-06, GM-07)."""
    found: list[Violation] = []
    turn = _Turn(0, is_model=False, calls_before=0)
    for index, content in enumerate(contents):
        is_model = _is_model(content)
        if index == 0 or is_model != turn.is_model:
            found.extend(turn.faults())
            turn = _Turn(index, is_model=is_model, calls_before=turn.calls)
        turn.read(index, content)
    found.extend(turn.faults())
    return found


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
            if self.is_model and get(part, "functionCall") is not None:
                self.first_call = self.first_call if self.calls else index
                self.calls += 1
            elif not self.is_model and get(part, "functionResponse") is not None:
                self.first_response = self.first_response if self.responses else index
                self.responses += 1

    def faults(self) -> Iterator[Violation]:
        """What is wrong with this turn after the one before it."""
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
