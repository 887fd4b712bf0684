"""What Chat Completions and Responses share: types, names, metadata, declared functions, and errors.

A check appends what it finds to the caller's list, so that a legal value costs a few lookups and no allocation: paths and
sentences are made only when a rule is broken. The sentences are OpenAI's own. Values are decoded JSON of any type: nothing may
be hashed, compared or sliced before its type is known.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Container, Iterable, Iterator
from itertools import islice
from typing import Any

from msgspec import Struct

from antiphon.parts import NativeExtras
from antiphon.wire.capabilities import format_capabilities
from antiphon.wire.errors import ErrorTable, WrittenError, own_code, own_extras
from antiphon.wire.json_schema import MAX_SCHEMA_PROBLEMS, is_object_schema, strict_problems
from antiphon.wire.media import is_web_url, looks_like_base64, parse_data_url
from antiphon.wire.output import ErrorKind, ProviderError
from antiphon.wire.rules import Violation, json_type_name

OPENAI = "openai"
"""The origin of native extras that both formats have."""

Violations = list[Violation]
SHARED_PARAMETERS = ("safety_identifier", "prompt_cache_retention", "prompt_cache_options", "moderation")
"""Parameters of both formats that no field of a request holds."""
SERVICE_TIERS = {tier: tier for tier in ("auto", "default", "flex", "scale", "priority", "fast")}
SERVICE_TIERS |= {"standard": "default", "standard_only": "default"}  # other providers' names of the default tier
MAX_METADATA_PAIRS, MAX_METADATA_KEY, MAX_METADATA_VALUE = 16, 64, 512
MAX_NAME = 64
"""Of names of output schemas and of ids of items; the length of tool names is in the capability table."""
_NAME_CHARACTERS = "[a-zA-Z0-9_-]"
has_name_characters = re.compile(f"{_NAME_CHARACTERS}+").fullmatch
is_name = re.compile(f"{_NAME_CHARACTERS}{{1,{MAX_NAME}}}").fullmatch

mentions_json = re.compile("json", re.IGNORECASE).search

_SHARED_FIELDS = ("prompt_cache_breakpoint", "detail")
_MAX_SHOWN = 80


def unread_fields(value: dict[str, Any], origin: str, read: Container[str]) -> NativeExtras | None:
    """The fields of an object that were not read, as native extras."""
    extras: dict[str, Any] = {}
    shared: dict[str, Any] = {}
    for key, field in value.items():
        if key not in read and field is not None:
            (shared if key in _SHARED_FIELDS else extras)[key] = field
    return native_extras(origin, extras, shared)


def native_extras(origin: str, extras: dict[str, Any], shared: dict[str, Any]) -> NativeExtras | None:
    """Extras of one format, and those that both formats have."""
    native = {OPENAI: shared} if shared else {}
    if extras:
        native[origin] = extras
    return native or None


CHAT, RESPONSES = "openai-chat", "openai-responses"
_CITATION = "url_citation"


def translate_citations(native: NativeExtras | None, target: str) -> NativeExtras | None:
    """The extras of a text with the citations of the other OpenAI format in the shape of `target`.

    A citation of Chat Completions is nested in `url_citation`, one of Responses has its fields beside `type`.
    """
    source = RESPONSES if target == CHAT else CHAT
    extras = native.get(source) if native is not None else None
    annotations = extras.get("annotations") if extras is not None else None
    if native is None or extras is None or type(annotations) is not list:
        return native
    written: list[Any] = []
    kept: list[Any] = []
    for annotation in annotations:
        is_citation = type(annotation) is dict and annotation.get("type") == _CITATION
        inner = annotation.get(_CITATION) if is_citation and target == RESPONSES else None
        if is_citation and target == CHAT:
            fields = {name: value for name, value in annotation.items() if name != "type"}
            written.append({"type": _CITATION, _CITATION: fields})
        elif type(inner) is dict:
            written.append({"type": _CITATION, **inner})
        else:
            kept.append(annotation)
    if not written:
        return native
    rest = {name: value for name, value in extras.items() if name != "annotations"}
    other = {**rest, "annotations": kept} if kept else rest
    return {**native, source: other, target: {**native.get(target, {}), "annotations": written}}


def translate_grammar(native: NativeExtras | None, target: str) -> NativeExtras | None:
    """The extras of a custom tool with the input format of the other OpenAI format in the shape of `target`.

    Chat Completions nests a grammar: `{"custom": {"format": {"type": "grammar", "grammar": {…}}}}`; Responses does not.
    """
    source = RESPONSES if target == CHAT else CHAT
    extras = native.get(source) if native is not None else None
    if native is None or extras is None:
        return native
    if target == CHAT:
        form, rest = extras.get("format"), {name: value for name, value in extras.items() if name != "format"}
    else:
        custom = extras.get("custom")
        inner = custom if type(custom) is dict else {}
        form, rest = inner.get("format"), {name: value for name, value in extras.items() if name != "custom"}
        if len(inner) > 1:
            rest["custom"] = {name: value for name, value in inner.items() if name != "format"}
    if type(form) is not dict:
        return native
    if form.get("type") == "grammar" and target == CHAT:
        form = {"type": "grammar", "grammar": {name: value for name, value in form.items() if name != "type"}}
    elif form.get("type") == "grammar" and type(form.get("grammar")) is dict:
        form = {"type": "grammar", **form["grammar"]}
    own = {"custom": {"format": form}} if target == CHAT else {"format": form}
    return {**native, source: rest, target: {**native.get(target, {}), **own}}


def texts_of(messages: Any) -> Iterator[str]:
    """The texts in the messages or input items of either format."""
    if isinstance(messages, str):
        yield messages
    for message in messages if isinstance(messages, list) else ():
        content = (message.get("content") or message.get("output")) if isinstance(message, dict) else None
        if isinstance(content, str):
            yield content
        for part in content if isinstance(content, list) else ():
            if isinstance(part, dict) and isinstance(part.get("text"), str):
                yield part["text"]


def quote_value(value: Any) -> str:
    """A value for an error message: strings shortened, structures by their type."""
    if isinstance(value, str):
        return value if len(value) <= _MAX_SHOWN else value[:_MAX_SHOWN] + "…"
    return repr(value) if isinstance(value, (int, float)) else json_type_name(value)


def quote_list(names: Iterable[str]) -> str:
    """`'a'`, `'a' and 'b'`, `'a', 'b', and 'c'`."""
    *most, last = [f"'{name}'" for name in names]
    if not most:
        return last
    return f"{most[0]} and {last}" if len(most) == 1 else f"{', '.join(most)}, and {last}"


def wrong_type(rule: str, path: str, expected: str, value: Any) -> Violation:
    got = json_type_name(value)
    return Violation(rule, path, f"Invalid type for '{path}': expected {expected}, but got {got} instead.")


def missing_field(rule: str, path: str) -> Violation:
    return Violation(rule, path, f"Missing required parameter: '{path}'.")


def unknown_field(rule: str, path: str, *, advisory: bool = False) -> Violation:
    return Violation(rule, path, f"Unknown parameter: '{path}'.", advisory)


def unsupported_value(rule: str, path: str, value: Any, supported: Iterable[str]) -> Violation:
    return Violation(
        rule, path, f"Invalid value: '{quote_value(value)}'. Supported values are: {quote_list(supported)}."
    )


def unsupported_parameter(rule: str, path: str) -> Violation:
    return Violation(rule, path, f"Unsupported parameter: '{path}' is not supported with this model.")


def undeclared_tool(rule: str, name: Any) -> Violation:
    return Violation(rule, "tool_choice", f"Tool choice '{quote_value(name)}' not found in 'tools' parameter.")


def empty_array(rule: str, path: str) -> Violation:
    expected_text = "Expected an array with minimum length 1, but got an empty array instead."
    return Violation(rule, path, f"Invalid '{path}': empty array. {expected_text}")


def array_too_long(rule: str, path: str, length: int, max_length: int, *, advisory: bool = False) -> Violation:
    expected_text = (
        f"Expected an array with maximum length {max_length}, but got an array with length {length} instead."
    )
    return Violation(rule, path, f"Invalid '{path}': array too long. {expected_text}", advisory)


def empty_string(rule: str, path: str) -> Violation:
    expected_text = "Expected a string with minimum length 1, but got an empty string instead."
    return Violation(rule, path, f"Invalid '{path}': empty string. {expected_text}")


def string_too_long(rule: str, path: str, length: int, max_length: int, *, advisory: bool = False) -> Violation:
    expected_text = (
        f"Expected a string with maximum length {max_length}, but got a string with length {length} instead."
    )
    return Violation(rule, path, f"Invalid '{path}': string too long. {expected_text}", advisory)


def pattern_mismatch(rule: str, path: str, pattern: str) -> Violation:
    expected_text = f"Expected a string that matches the pattern '{pattern}'."
    return Violation(rule, path, f"Invalid '{path}': string does not match pattern. {expected_text}")


def is_plain_text(part: Any, kind: str) -> bool:
    """Whether a content part is nothing but text of this kind: the common case, decided without making a path."""
    return type(part) is dict and len(part) == 2 and part.get("type") == kind and type(part.get("text")) is str


def collapse_text(content: list[Any], kind: str) -> Any:
    """The string of content that is a single plain text of this kind; else the list."""
    return content[0]["text"] if len(content) == 1 and is_plain_text(content[0], kind) else content


def mark_failed(content: list[Any], kind: str) -> list[Any]:
    """The content of a failed result: its first text begins with "Error:", because both formats have no flag for it."""
    for index, block in enumerate(content):
        if type(block) is dict and block.get("type") == kind and type(block.get("text")) is str:
            text = block["text"]
            marked = block if text.startswith("Error:") else {**block, "text": f"Error: {text}"}
            return [*content[:index], marked, *content[index + 1 :]]
    return [{"type": kind, "text": "Error: the tool failed."}, *content]


def check_type(violations: Violations, rule: str, path: str, value: Any, kind: type, expected: str) -> bool:
    """Whether the value is present and of its type; reports a violation otherwise."""
    if isinstance(value, kind):
        return True
    violations.append(missing_field(rule, path) if value is None else wrong_type(rule, path, expected, value))
    return False


def check_name(violations: Violations, rule: str, path: str, name: Any, max_length: int) -> None:
    if not check_type(violations, rule, path, name, str, "a string"):
        return
    if not name:
        violations.append(empty_string(rule, path))
    elif len(name) > max_length:
        violations.append(string_too_long(rule, path, len(name), max_length))
    elif not has_name_characters(name):
        violations.append(pattern_mismatch(rule, path, f"^{_NAME_CHARACTERS}+$"))


def check_tool_name(violations: Violations, rule: str, path: str, name: Any, format_name: str) -> None:
    """The name of a tool, by the length that the capability table states for the format."""
    check_name(violations, rule, path, name, format_capabilities(format_name).tool_name_length or sys.maxsize)


def check_metadata(violations: Violations, rule: str, metadata: Any) -> None:
    if metadata is None:
        return
    if not isinstance(metadata, dict):
        violations.append(wrong_type(rule, "metadata", "an object", metadata))
        return
    if len(metadata) > MAX_METADATA_PAIRS:
        got = f"but got an object with {len(metadata)} properties instead."
        expected = f"Expected an object with at most {MAX_METADATA_PAIRS} properties"
        expected_text = f"Invalid 'metadata': too many properties. {expected}, {got}"
        violations.append(Violation(rule, "metadata", expected_text))
    for key, value in metadata.items():
        path = f"metadata.{quote_value(key)}"
        if len(key) > MAX_METADATA_KEY:
            violations.append(string_too_long(rule, path, len(key), MAX_METADATA_KEY))
        if not isinstance(value, str):
            violations.append(wrong_type(rule, path, "a string", value))
        elif len(value) > MAX_METADATA_VALUE:
            violations.append(string_too_long(rule, path, len(value), MAX_METADATA_VALUE))


def check_image_url(violations: Violations, rule: str, path: str, url: Any, format_name: str) -> None:
    """An image URL: http(s), or a data URL of an image type that the models accept."""
    if not check_type(violations, rule, path, url, str, "a string") or is_web_url(url):
        return
    parsed = parse_data_url(url)
    if parsed is None:
        violations.append(Violation(rule, path, f"Error while downloading {quote_value(url)}."))
    elif not format_capabilities(format_name).accepts_image(parsed.media_type.lower()) or not looks_like_base64(
        parsed.data
    ):
        formats = "Please make sure your image has of one the following formats: ['png', 'jpeg', 'gif', 'webp']."
        violations.append(Violation(rule, path, f"You uploaded an unsupported image. {formats}"))


class FunctionRules(Struct, frozen=True):
    """The rule ids under which a format reports problems of a declared function."""

    format_name: str
    shape: str
    name: str
    parameters: str
    strict: str


def check_function(violations: Violations, rules: FunctionRules, path: str, function: dict[str, Any]) -> None:
    """A declared function: its name, and an object schema as parameters, closed if strict."""
    name = function.get("name")
    check_tool_name(violations, rules.shape if name is None else rules.name, f"{path}.name", name, rules.format_name)
    for field, kind, expected in (("description", str, "a string"), ("strict", bool, "a boolean")):
        value = function.get(field)
        if value is not None and not isinstance(value, kind):
            violations.append(wrong_type(rules.shape, f"{path}.{field}", expected, value))
    parameters, path = function.get("parameters"), f"{path}.parameters"
    if isinstance(parameters, dict):
        subject = f"Invalid schema for function '{quote_value(name)}'"
        _check_root(violations, rules.parameters, path, subject, parameters, type_needed=True)
        if function.get("strict") is True:
            _check_strict(violations, rules.strict, path, subject, parameters)
    elif parameters is not None:
        violations.append(wrong_type(rules.parameters, path, "an object", parameters))


def check_output_schema(
    violations: Violations,
    rule: str,
    strict_rule: str,
    path: str,
    output_format: dict[str, Any],
    *,
    schema_needed: bool,
) -> None:
    """A json_schema output format: its name, its schema, and the schema's closure if it is strict."""
    check_name(violations, rule, f"{path}.name", output_format.get("name"), MAX_NAME)
    schema: Any = output_format.get("schema")
    if schema is None and not schema_needed:
        return
    if not check_type(violations, rule, f"{path}.schema", schema, dict, "an object"):
        return
    if output_format.get("strict") is True:
        subject = f"Invalid schema for response_format '{quote_value(output_format.get('name'))}'"
        _check_root(violations, strict_rule, f"{path}.schema", subject, schema, type_needed=False)
        _check_strict(violations, strict_rule, f"{path}.schema", subject, schema)


def _check_root(
    violations: Violations, rule: str, path: str, subject: str, schema: dict[str, Any], *, type_needed: bool
) -> None:
    root = schema.get("type")
    if is_object_schema(schema) or (root is None and not type_needed):
        return
    got = f'"{quote_value(root)}"' if isinstance(root, str) else json_type_name(root)
    expected_text = f"schema must be a JSON Schema of 'type: \"object\"', got 'type: {got}'."
    violations.append(Violation(rule, path, f"{subject}: {expected_text}"))


def _check_strict(violations: Violations, rule: str, path: str, subject: str, schema: dict[str, Any]) -> None:
    problems = islice(strict_problems(schema), MAX_SCHEMA_PROBLEMS)
    violations.extend(Violation(rule, path, f"{subject}: {problem}") for problem in problems)


_WRITTEN: dict[ErrorKind, WrittenError] = {
    "invalid_request": WrittenError("invalid_request_error"),
    "context_length": WrittenError("invalid_request_error", "context_length_exceeded"),
    "authentication": WrittenError("invalid_request_error", "invalid_api_key"),
    "billing": WrittenError("insufficient_quota", "insufficient_quota"),
    "permission": WrittenError("permission_error"),
    "not_found": WrittenError("invalid_request_error", "model_not_found"),
    "timeout": WrittenError("timeout_error", "timeout"),
    "conflict": WrittenError("conflict_error"),
    "too_large": WrittenError("invalid_request_error", "request_too_large"),
    "rate_limit": WrittenError("rate_limit_error", "rate_limit_exceeded"),
    "overloaded": WrittenError("server_error", "server_is_overloaded"),
    "server": WrittenError("server_error"),
    "stream_cut": WrittenError("server_error", "stream_cut"),
    "unknown": WrittenError("unknown_error"),
}


def _table(name: str) -> ErrorTable:
    return ErrorTable(
        format=name,
        code_field="code",
        read_fields=frozenset({"message", "code", "param"}),
        written=_WRITTEN,
        vendor_formats=("openai-chat", "openai-responses"),
        any_code=True,
    )


CHAT_ERRORS, RESPONSES_ERRORS = _table("openai-chat"), _table("openai-responses")


def write_error(error: ProviderError, table: ErrorTable) -> dict[str, Any]:
    """An error body as OpenAI writes it."""
    row = table.written[error.kind]
    outer, inner = own_extras(error, table)
    code = own_code(error, table) or row.code
    return {"error": {"message": error.message, "type": row.type, "param": error.param, "code": code, **inner}, **outer}


def error_code(error: ProviderError, table: ErrorTable) -> str:
    """The code of a failed response."""
    return own_code(error, table) or table.written[error.kind].code or "server_error"
