"""What generateContent refuses. Neighbours of one role are merged before the sequence is checked, as the API does."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from antiphon_devtools.conform.bodies import Turns, merge_turns, objects, one_of, words
from antiphon_devtools.conform.conversation import Violation

_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,127}")
_SIGNED_MODEL = re.compile(r".*gemini-([3-9]|\d\d)(?!.*image)")
_TOP = words(
    "contents systemInstruction tools toolConfig safetySettings generationConfig cachedContent labels model store"
    " serviceTier modelArmorConfig"
)
_NOT_IN_SCHEMA = (
    "$schema",
    "additionalProperties",
    "const",
    "oneOf",
    "propertyNames",
    "$ref",
    "allOf",
    "patternProperties",
)
_DATA = words(
    "text inlineData functionCall functionResponse fileData executableCode codeExecutionResult toolCall"
    " toolResponse videoMetadata thoughtSignature"
)
_UNEQUAL = (
    "Please ensure that the number of function response parts is equal to the number of function call parts of the function "
    "call turn."
)
_SNAKE = re.compile(r"_([a-z])")


def _camel(name: str) -> str:
    return _SNAKE.sub(lambda found: found[1].upper(), name)


def check(body: dict[str, Any], path: str = "") -> Iterator[Violation]:
    contents = body.get("contents")
    if isinstance(contents, dict):
        contents = [contents]
    if not isinstance(contents, list) or not contents:
        yield Violation("GM-01", "contents", "* GenerateContentRequest.contents: contents is not specified")
        return
    for place, content in enumerate(objects(contents)):
        where = f"contents[{place}]"
        if content.get("role", "user") not in ("user", "model", "function", ""):
            yield Violation("GM-02", f"{where}.role", "Please use a valid role: user, model.")
        parts = content.get("parts")
        if not parts and (parts is not None or content.get("role") != "model"):
            text = f"* GenerateContentRequest.{where}.parts: contents.parts must not be empty."
            yield Violation("GM-03", f"{where}.parts", text)
        for number, part in enumerate(_parts(content)):
            yield from _part(part, f"{where}.parts[{number}]")
    turns = merge_turns(
        ("model" if content.get("role") == "model" else "user", _parts(content)) for content in objects(contents)
    )
    yield from _sequence(turns, path)
    yield from _tools(body)
    for name in sorted(body):
        if _camel(name) not in _TOP:
            yield Violation("GM-18", name, f'Invalid JSON payload received. Unknown name "{name}": Cannot find field.')


def _part(part: dict[str, Any], at: str) -> Iterator[Violation]:
    names = {_camel(name) for name in part}
    if "type" in names:
        text = f"Invalid JSON payload received. Unknown name \"type\" at '{at}': Cannot find field."
        yield Violation("GM-04", at, text)
    elif not names & _DATA:
        yield Violation("GM-04", at, f"{at}.data: required oneof field 'data' must have one initialized field")
    for field, rule, inner in (("functionCall", "GM-08", "args"), ("functionResponse", "GM-09", "response")):
        snake = "function_call" if field == "functionCall" else "function_response"
        value = one_of(part, field, snake)
        if not isinstance(value, dict):
            continue
        if not isinstance(value.get("name"), str) or not value["name"]:
            yield Violation(rule, at, f"{at}.{field}.name: name is required")
        if not isinstance(value.get(inner) or {}, dict):
            text = f"Unknown name \"{inner}\" at '{at}.{field}': Proto field is not repeating, cannot start list."
            yield Violation(rule, at, text)
    data = one_of(part, "inlineData", "inline_data")
    if isinstance(data, dict) and not (one_of(data, "mimeType", "mime_type") and isinstance(data.get("data"), str)):
        yield Violation("GM-17", at, f"{at}.inlineData: mimeType and data are required")


def _parts(content: dict[str, Any]) -> list[dict[str, Any]]:
    parts = content.get("parts")
    return objects([parts] if isinstance(parts, dict) else parts)


def _sequence(turns: Turns, path: str) -> Iterator[Violation]:
    calls_before = 0
    for place, (role, parts) in enumerate(turns):
        calls = [part for part in parts if one_of(part, "functionCall", "function_call") is not None]
        results = [
            part
            for part in parts
            if role == "user" and one_of(part, "functionResponse", "function_response") is not None
        ]
        where = f"contents[{place}]"
        if calls and role == "model" and place == 0:
            text = "function call turn comes immediately after a user turn or after a function response turn."
            yield Violation("GM-05", where, f"Please ensure that {text}")
        if results and not calls_before:
            text = "function response turn comes immediately after a function call turn."
            yield Violation("GM-06", where, f"Please ensure that {text}")
        elif calls_before != len(results):
            yield Violation("GM-07", where, _UNEQUAL)
        calls_before = len(calls) if role == "model" else 0
    if _SIGNED_MODEL.match(path):
        yield from _signatures(turns)


def _signatures(turns: Turns) -> Iterator[Violation]:
    """The first call of each step after the last message of the user must be signed."""
    asked = [
        place
        for place, (role, parts) in enumerate(turns)
        if role == "user" and any("text" in part or one_of(part, "inlineData", "inline_data") for part in parts)
    ]
    for place, (role, parts) in enumerate(turns):
        if role != "model" or place < (asked[-1] if asked else 0):
            continue
        calls = [part for part in parts if one_of(part, "functionCall", "function_call") is not None]
        if calls and not one_of(calls[0], "thoughtSignature", "thought_signature"):
            text = "Function call is missing a thought_signature in functionCall parts."
            yield Violation("GM-10", f"contents[{place}]", text)


def _tools(body: dict[str, Any]) -> Iterator[Violation]:
    names = []
    for tool in objects(body.get("tools")):
        for place, declared in enumerate(objects(one_of(tool, "functionDeclarations", "function_declarations"))):
            where = f"tools[0].function_declarations[{place}]"
            names.append(str(declared.get("name")))
            if not _NAME.fullmatch(names[-1]):
                yield Violation(
                    "GM-11", f"{where}.name", "Invalid function name. Must start with a letter or an underscore."
                )
            if isinstance(declared.get("parameters"), dict):
                yield from _schema(declared["parameters"], f"{where}.parameters")
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield Violation("GM-11", "tools", f"Duplicate function declaration found: {name}")
    config = one_of(one_of(body, "toolConfig", "tool_config"), "functionCallingConfig", "function_calling_config")
    if isinstance(config, dict):
        allowed = one_of(config, "allowedFunctionNames", "allowed_function_names")
        if allowed and str(config.get("mode")).upper() not in ("ANY", "VALIDATED"):
            yield Violation("GM-13", "toolConfig", "allowed_function_names should only be set when mode is ANY.")
        if not names and not body.get("tools"):
            yield Violation("GM-13", "toolConfig", "Function calling config is set without function_declarations.")


def _schema(schema: dict[str, Any], where: str) -> Iterator[Violation]:
    for name in _NOT_IN_SCHEMA:
        if name in schema:
            text = f"Invalid JSON payload received. Unknown name \"{name}\" at '{where}': Cannot find field."
            yield Violation("GM-12", where, text)
    if isinstance(schema.get("type"), list):
        yield Violation("GM-12", where, f"'{where}.type': Proto field is not repeating, cannot start list.")
    properties = schema.get("properties")
    for name, inner in properties.items() if isinstance(properties, dict) else ():
        if isinstance(inner, dict):
            yield from _schema(inner, f"{where}.properties.{name}")
    if isinstance(schema.get("items"), dict):
        yield from _schema(schema["items"], f"{where}.items")
