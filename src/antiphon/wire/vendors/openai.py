"""What Chat Completions and Responses share: parameters, types, names, ranges, metadata, declared functions, and errors.

A check appends what it finds to the caller's list, so that a legal value costs a few lookups and no allocation: paths and
sentences are made only when a rule is broken. The sentences are OpenAI's own. Values are decoded JSON of any type: nothing may
be hashed, compared or sliced before its type is known.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Iterator
from typing import Any

import msgspec
from msgspec import Struct

from antiphon.parts import NativeExtras
from antiphon.wire.capabilities import Capabilities, effort_for_budget
from antiphon.wire.errors import ErrorTable, WrittenError, own_code, own_extras, read_provider_error
from antiphon.wire.json_schema import is_object_schema, strict_problems
from antiphon.wire.loss import Loss
from antiphon.wire.media import IMAGE_TYPES as COMMON_IMAGE_TYPES
from antiphon.wire.media import is_web_url, looks_like_base64, parse_data_url
from antiphon.wire.output import ErrorKind, ProviderError
from antiphon.wire.parameters import NUMBER, Parameter, Refusal
from antiphon.wire.request import Reasoning
from antiphon.wire.rules import Violation

OPENAI = "openai"
"""The origin of native extras that both formats have."""
IMAGE_TYPES = (*COMMON_IMAGE_TYPES, "image/jpg")

Violations = list[Violation]
SHARED_PARAMETERS = ("safety_identifier", "prompt_cache_retention", "prompt_cache_options", "moderation")
"""Parameters of both formats that no field of a request holds."""
SERVICE_TIERS = {"standard": "default", "standard_only": "default"}
"""Other providers' names of the default tier."""
MAX_METADATA_PAIRS, MAX_METADATA_KEY, MAX_METADATA_VALUE = 16, 64, 512

MAX_SCHEMA_PROBLEMS = 10  # of one schema; a broken generator repeats itself

mentions_json = re.compile("json", re.IGNORECASE).search
is_name = re.compile(r"[a-zA-Z0-9_-]{1,64}").fullmatch

_SHARED_FIELDS = ("prompt_cache_breakpoint", "detail")
_MAX_SHOWN = 80
_TYPE_NAMES: dict[type, str] = {
    type(None): "null",
    bool: "a boolean",
    int: "an integer",
    float: "a decimal number",
    str: "a string",
    list: "an array",
    dict: "an object",
}
_is_name_charset = re.compile(r"[a-zA-Z0-9_-]+").fullmatch


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


def json_type_name(value: Any) -> str:
    """The JSON type of a value, as OpenAI's errors name it."""
    return _TYPE_NAMES.get(type(value), "an unsupported value")


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
    elif not _is_name_charset(name):
        violations.append(pattern_mismatch(rule, path, "^[a-zA-Z0-9_-]+$"))


class OpenAIWording:
    """OpenAI's sentences about parameters."""

    def check_number(self, row: Parameter, value: Any, maximum: float | None) -> str:
        noun = "integer" if row.integer else "decimal"
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or (row.integer and isinstance(value, float) and not value.is_integer()):
            return wrong_type(row.rule, row.key, "an integer" if row.integer else "a decimal", value).message
        problem = ""
        if row.minimum is not None and not value >= row.minimum:
            problem = f"{noun} below minimum value. Expected a value >= {row.minimum}"
        elif maximum is not None and not value <= maximum:
            problem = f"{noun} above maximum value. Expected a value <= {maximum}"
        return f"Invalid '{row.key}': {problem}, but got {value!r} instead." if problem else ""

    def refused(self, row: Parameter, value: Any, refusal: Refusal) -> str:
        if refusal.is_pair:
            return "`temperature` and `top_p` cannot both be specified for this model. Please use only one."
        if row.sends_default:
            supported = "with this model. Only the default (1) value is supported."
            return f"Unsupported value: '{row.key}' does not support {quote_value(value)} {supported}"
        return f"Unsupported parameter: '{row.key}' is not supported with this model."


WORDING = OpenAIWording()


def metadata_converter(rule: str) -> Callable[[dict[str, Any], list[Loss]], dict[str, str]]:
    """Makes metadata legal: at most 16 strings, with short keys and values."""
    limit = f"metadata is limited to 16 entries with keys of at most 64 characters; dropped this entry ({rule})"

    def convert(metadata: dict[str, Any], losses: list[Loss]) -> dict[str, str]:
        pairs: dict[str, str] = {}
        for key, value in metadata.items():
            path = f"metadata.{key[:MAX_METADATA_KEY]}"
            if len(pairs) == MAX_METADATA_PAIRS or len(key) > MAX_METADATA_KEY:
                losses.append(Loss(path, key[:MAX_METADATA_KEY], limit))
                continue
            text = value if type(value) is str else msgspec.json.encode(value, order="sorted").decode()
            if text is not value:
                losses.append(Loss(path, key, f"metadata values must be strings; sent as JSON text ({rule})"))
            if len(text) > MAX_METADATA_VALUE:
                losses.append(
                    Loss(path, key, f"metadata values are limited to 512 characters; sent the first 512 ({rule})")
                )
            pairs[key] = text[:MAX_METADATA_VALUE]
        return pairs

    return convert


def shared_rows(range_rule: str, metadata_rule: str, tier_rule: str) -> dict[str, Parameter]:
    """The parameters that both formats have, by key."""
    rows = (
        Parameter("model", "model", (str,), is_written=False),
        Parameter("stream", "stream", (bool,), is_written=False),
        Parameter("parallel_tool_calls", "parallel_tool_calls", (bool,), is_written=False),
        Parameter("temperature", "temperature", NUMBER, range_rule, 0, 2, sends_default=True),
        Parameter("top_p", "top_p", NUMBER, range_rule, 0, 1),
        Parameter("top_logprobs", "top_logprobs", (int,), range_rule, 0, 20, integer=True),
        Parameter("user", "user", (str,)),
        Parameter("metadata", "metadata", (dict,), convert=metadata_converter(metadata_rule)),
        Parameter("service_tier", "service_tier", (str,), tier_rule, values=SERVICE_TIERS),
        Parameter("cache_key", "prompt_cache_key", (str,)),
        Parameter("store", "store", (bool,)),
    )
    return {row.key: row for row in rows}


def choose_effort(reasoning: Reasoning, model: str, capabilities: Capabilities, losses: list[Loss]) -> str | None:
    """The effort to send for reasoning settings of any format, the same in Chat Completions and Responses."""
    effort, budget = reasoning.effort, reasoning.budget_tokens
    path = "reasoning.effort"
    if effort is not None:
        if budget is not None:
            reason = "OpenAI accepts an effort, not a budget; dropped"
            losses.append(Loss("reasoning.budget_tokens", str(budget), reason))
    elif reasoning.enabled is False:
        effort, path = "none", "reasoning.enabled"
    elif budget is not None and budget >= 0:
        effort, path = effort_for_budget(budget), "reasoning.budget_tokens"
        if capabilities.efforts is None and effort in ("xhigh", "max"):
            effort = "high"  # every reasoning model knows it
    elif reasoning.enabled or budget is not None:
        effort, path = "medium", "reasoning.enabled"
    if effort is None:
        return None
    if capabilities.efforts == ():
        if effort != "none":
            losses.append(Loss(path, effort, f"{model} does not support reasoning effort; dropped (OC-26)"))
        return None
    legal = capabilities.nearest_effort(effort)
    if legal != effort:
        losses.append(Loss(path, effort, f'{model} does not support effort "{effort}"; sent "{legal}"'))
    return legal


def drop_refused_switch(body: dict[str, Any], capabilities: Capabilities, losses: list[Loss]) -> None:
    """Leave out `parallel_tool_calls` for a model that refuses it; true is the default, and no loss."""
    if not capabilities.parallel_tool_switch and body.pop("parallel_tool_calls", True) is False:
        reason = "model does not support it; dropped (OC-26)"
        losses.append(Loss("parallel_tool_calls", "parallel_tool_calls", reason))


def check_effort(
    violations: Violations, rule: str, path: str, effort: Any, model: Any, capabilities: Capabilities
) -> None:
    """An effort that the model is known to refuse, in the words of the format that has it at this path."""
    efforts = capabilities.efforts
    if effort is None or efforts is None or effort in efforts:
        return
    is_chat, supported = path == "reasoning_effort", f"Supported values are: {quote_list(efforts or ('none',))}."
    if not efforts:
        refusal = f"Unsupported parameter: '{path}' is not supported with this model."
        text = f"Unrecognized request argument supplied: {path}" if is_chat else refusal
    elif is_chat:
        text = f"Unsupported value: '{path}' does not support '{quote_value(effort)}' with this model. {supported}"
    else:
        named = f"is not supported with the '{quote_value(model)}' model."
        text = f"Unsupported value: '{quote_value(effort)}' {named} {supported}"
    violations.append(Violation(rule, path, text))


def is_reasoning(effort: Any, capabilities: Capabilities) -> bool:
    """Whether the model reasons at this effort, or at its default one."""
    return (effort or capabilities.default_effort) not in ("none", "")


def check_metadata(violations: Violations, rule: str, metadata: Any) -> None:
    if metadata is None:
        return
    if not isinstance(metadata, dict):
        violations.append(wrong_type(rule, "metadata", "an object", metadata))
        return
    if len(metadata) > MAX_METADATA_PAIRS:
        got = f"but got an object with {len(metadata)} properties instead."
        expected_text = f"Invalid 'metadata': too many properties. Expected an object with at most 16 properties, {got}"
        violations.append(Violation(rule, "metadata", expected_text))
    for key, value in metadata.items():
        path = f"metadata.{quote_value(key)}"
        if len(key) > MAX_METADATA_KEY:
            violations.append(string_too_long(rule, path, len(key), MAX_METADATA_KEY))
        if not isinstance(value, str):
            violations.append(wrong_type(rule, path, "a string", value))
        elif len(value) > MAX_METADATA_VALUE:
            violations.append(string_too_long(rule, path, len(value), MAX_METADATA_VALUE))


def check_image_url(violations: Violations, rule: str, path: str, url: Any) -> None:
    """An image URL: http(s), or a data URL of an image type that the models accept."""
    if not check_type(violations, rule, path, url, str, "a string") or is_web_url(url):
        return
    parsed = parse_data_url(url)
    if parsed is None:
        violations.append(Violation(rule, path, f"Error while downloading {quote_value(url)}."))
    elif parsed.media_type.lower() not in IMAGE_TYPES or not looks_like_base64(parsed.data):
        formats = "Please make sure your image has of one the following formats: ['png', 'jpeg', 'gif', 'webp']."
        violations.append(Violation(rule, path, f"You uploaded an unsupported image. {formats}"))


class FunctionRules(Struct, frozen=True):
    """The rule ids under which a format reports problems of a declared function."""

    shape: str
    name: str
    parameters: str
    strict: str
    max_name_length: int


def check_function(violations: Violations, rules: FunctionRules, path: str, function: dict[str, Any]) -> None:
    """A declared function: its name, and an object schema as parameters, closed if strict."""
    name = function.get("name")
    check_name(violations, rules.shape if name is None else rules.name, f"{path}.name", name, rules.max_name_length)
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
    check_name(violations, rule, f"{path}.name", output_format.get("name"), 64)
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
    for count, problem in enumerate(strict_problems(schema), 1):
        violations.append(Violation(rule, path, f"{subject}: {problem}"))
        if count == MAX_SCHEMA_PROBLEMS:
            return


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


def read_error(body: object, status: int | None, table: ErrorTable) -> ProviderError:
    """The error in a body of an OpenAI API or of a host that imitates it."""
    return read_provider_error(body, status, table)


def write_error(error: ProviderError, table: ErrorTable) -> dict[str, Any]:
    """An error body as OpenAI writes it."""
    row = table.written[error.kind]
    outer, inner = own_extras(error, table)
    code = own_code(error, table) or row.code
    return {"error": {"message": error.message, "type": row.type, "param": error.param, "code": code, **inner}, **outer}


def error_code(error: ProviderError, table: ErrorTable) -> str:
    """The code of a failed response."""
    return own_code(error, table) or table.written[error.kind].code or "server_error"
