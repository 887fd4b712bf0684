"""What both OpenAI formats check alike: JSON types, names, ranges, metadata, and the JSON Schemas of tools and outputs.

Theory of operation. A check appends what it finds to the caller's list and returns nothing, so that a legal value costs
a few lookups and no allocation: paths and sentences are only made once a rule is broken. The sentences are OpenAI's own.
Schemas are walked breadth first over a growing list, so their depth costs no recursion, and a node's context (the way
from the root) is a linked chain that is only written out for a complaint. Values come from decoded JSON but are otherwise
unknown: nothing may be hashed, compared or sliced before its type is known.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from msgspec import Struct

from antiphon.wire.media import is_web_url, looks_like_base64, parse_data_url
from antiphon.wire.remembered import Remembered
from antiphon.wire.rules import Violation
from antiphon.wire.vendors.openai import IMAGE_TYPES

Found = list[Violation]
Context = tuple[Any, str] | None
Limit = tuple[str, Callable[[str], object], str]  # a parameter, the models that refuse it, what they say

MOST_PROBLEMS = 10  # of one schema; a broken generator repeats itself

says_json = re.compile("json", re.IGNORECASE).search
is_name = re.compile(r"[a-zA-Z0-9_-]{1,64}").fullmatch

_SHOWN = 80
_SHOWN_DEPTH = 20
_KINDS: dict[type, str] = {
    type(None): "null",
    bool: "a boolean",
    int: "an integer",
    float: "a decimal number",
    str: "a string",
    list: "an array",
    dict: "an object",
}
_of_name_letters = re.compile(r"[a-zA-Z0-9_-]+").fullmatch
_NAMED_SCHEMAS = ("properties", "$defs", "definitions")
_LISTED_SCHEMAS = ("anyOf", "oneOf", "allOf", "prefixItems")
_NEVER_STRICT = ("allOf", "oneOf", "not", "if", "then", "else", "dependentRequired", "dependentSchemas")
_NEVER_AT_ROOT = ("oneOf", "anyOf", "allOf", "enum", "not")


def model_family(names: str) -> Callable[[str], object]:
    """Tells the models of a family, with or without the date of their release."""
    return re.compile(rf"({names})(-\d{{4}}-\d{{2}}-\d{{2}})?").fullmatch


def kind_of(value: Any) -> str:
    """The JSON type of a value, as OpenAI's errors name it."""
    return _KINDS.get(type(value), "an unsupported value")


def shown(value: Any) -> str:
    """A value inside a sentence: strings cut short, structures by their kind."""
    if isinstance(value, str):
        return value if len(value) <= _SHOWN else value[:_SHOWN] + "…"
    return repr(value) if isinstance(value, (int, float)) else kind_of(value)


def listed(names: Iterable[str]) -> str:
    """`'a'`, `'a' and 'b'`, `'a', 'b', and 'c'`."""
    *most, last = [f"'{name}'" for name in names]
    if not most:
        return last
    return f"{most[0]} and {last}" if len(most) == 1 else f"{', '.join(most)}, and {last}"


def wrong_type(rule: str, path: str, expected: str, value: Any) -> Violation:
    got = kind_of(value)
    return Violation(rule, path, f"Invalid type for '{path}': expected {expected}, but got {got} instead.")


def missing(rule: str, path: str) -> Violation:
    return Violation(rule, path, f"Missing required parameter: '{path}'.")


def unknown(rule: str, path: str, *, advisory: bool = False) -> Violation:
    return Violation(rule, path, f"Unknown parameter: '{path}'.", advisory)


def unsupported(rule: str, path: str, value: Any, supported: Iterable[str]) -> Violation:
    return Violation(rule, path, f"Invalid value: '{shown(value)}'. Supported values are: {listed(supported)}.")


def empty_array(rule: str, path: str) -> Violation:
    wanted = "Expected an array with minimum length 1, but got an empty array instead."
    return Violation(rule, path, f"Invalid '{path}': empty array. {wanted}")


def long_array(rule: str, path: str, length: int, longest: int, *, advisory: bool = False) -> Violation:
    wanted = f"Expected an array with maximum length {longest}, but got an array with length {length} instead."
    return Violation(rule, path, f"Invalid '{path}': array too long. {wanted}", advisory)


def empty_string(rule: str, path: str) -> Violation:
    wanted = "Expected a string with minimum length 1, but got an empty string instead."
    return Violation(rule, path, f"Invalid '{path}': empty string. {wanted}")


def long_string(rule: str, path: str, length: int, longest: int, *, advisory: bool = False) -> Violation:
    wanted = f"Expected a string with maximum length {longest}, but got a string with length {length} instead."
    return Violation(rule, path, f"Invalid '{path}': string too long. {wanted}", advisory)


def bad_pattern(rule: str, path: str, pattern: str) -> Violation:
    wanted = f"Expected a string that matches the pattern '{pattern}'."
    return Violation(rule, path, f"Invalid '{path}': string does not match pattern. {wanted}")


def is_plain_text(part: Any, kind: str) -> bool:
    """Whether a content part is nothing but text of this kind: what most parts are, told without making a path."""
    return type(part) is dict and len(part) == 2 and part.get("type") == kind and type(part.get("text")) is str


def require(found: Found, rule: str, path: str, value: Any, kind: type, expected: str) -> bool:
    """Whether the value is there and of its kind; what is wrong is found otherwise."""
    if isinstance(value, kind):
        return True
    found.append(missing(rule, path) if value is None else wrong_type(rule, path, expected, value))
    return False


def check_name(found: Found, rule: str, path: str, name: Any, longest: int) -> None:
    if not require(found, rule, path, name, str, "a string"):
        return
    if not name:
        found.append(empty_string(rule, path))
    elif len(name) > longest:
        found.append(long_string(rule, path, len(name), longest))
    elif not _of_name_letters(name):
        found.append(bad_pattern(rule, path, "^[a-zA-Z0-9_-]+$"))


class Range(Struct, frozen=True):
    """The numbers a parameter takes; without `highest` they have no upper end."""

    lowest: int
    highest: int | None = None
    whole: bool = False


def check_ranges(found: Found, rule: str, body: dict[str, Any], ranges: Mapping[str, Range]) -> None:
    for name, allowed in ranges.items():
        value = body.get(name)
        if value is not None:
            check_number(found, rule, name, value, allowed)


def check_number(found: Found, rule: str, path: str, value: Any, allowed: Range) -> None:
    noun, problem = "integer" if allowed.whole else "decimal", ""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or (allowed.whole and isinstance(value, float) and not value.is_integer()):
        found.append(wrong_type(rule, path, "an integer" if allowed.whole else "a decimal", value))
    elif not value >= allowed.lowest:
        problem = f"{noun} below minimum value. Expected a value >= {allowed.lowest}"
    elif allowed.highest is not None and not value <= allowed.highest:
        problem = f"{noun} above maximum value. Expected a value <= {allowed.highest}"
    if problem:
        found.append(Violation(rule, path, f"Invalid '{path}': {problem}, but got {value!r} instead."))


def check_metadata(found: Found, rule: str, metadata: Any) -> None:
    if metadata is None:
        return
    if not isinstance(metadata, dict):
        found.append(wrong_type(rule, "metadata", "an object", metadata))
        return
    if len(metadata) > 16:
        got = f"but got an object with {len(metadata)} properties instead."
        wanted = f"Invalid 'metadata': too many properties. Expected an object with at most 16 properties, {got}"
        found.append(Violation(rule, "metadata", wanted))
    for key, value in metadata.items():
        path = f"metadata.{shown(key)}"
        if len(key) > 64:
            found.append(long_string(rule, path, len(key), 64))
        if not isinstance(value, str):
            found.append(wrong_type(rule, path, "a string", value))
        elif len(value) > 512:
            found.append(long_string(rule, path, len(value), 512))


def check_image_url(found: Found, rule: str, path: str, url: Any) -> None:
    """An image's address: http(s), or a data URL of a format that the models read."""
    if not require(found, rule, path, url, str, "a string") or is_web_url(url):
        return
    parsed = parse_data_url(url)
    if parsed is None:
        found.append(Violation(rule, path, f"Error while downloading {shown(url)}."))
    elif parsed.media_type.lower() not in IMAGE_TYPES or not looks_like_base64(parsed.data):
        formats = "Please make sure your image has of one the following formats: ['png', 'jpeg', 'gif', 'webp']."
        found.append(Violation(rule, path, f"You uploaded an unsupported image. {formats}"))


def check_limits(found: Found, rule: str, body: dict[str, Any], limits: Iterable[Limit]) -> None:
    """Find the parameters that the body's model is known to refuse."""
    model = body.get("model")
    for parameter, is_of_family, message in limits:
        if body.get(parameter) not in (None, []) and isinstance(model, str) and is_of_family(model):
            found.append(Violation(rule, parameter, message))


class FunctionRules(Struct, frozen=True):
    """Under which ids a format reports what is wrong with a declared function."""

    shape: str
    name: str
    parameters: str
    strict: str
    longest_name: int


def check_function(found: Found, rules: FunctionRules, path: str, function: dict[str, Any]) -> None:
    """A declared function: its name, and parameters that are an object schema, closed if it is strict."""
    name = function.get("name")
    check_name(found, rules.shape if name is None else rules.name, f"{path}.name", name, rules.longest_name)
    for field, kind, expected in (("description", str, "a string"), ("strict", bool, "a boolean")):
        value = function.get(field)
        if value is not None and not isinstance(value, kind):
            found.append(wrong_type(rules.shape, f"{path}.{field}", expected, value))
    parameters, path = function.get("parameters"), f"{path}.parameters"
    if isinstance(parameters, dict):
        subject = f"Invalid schema for function '{shown(name)}'"
        _check_root(found, rules.parameters, path, subject, parameters, type_needed=True)
        if function.get("strict") is True:
            _check_closed(found, rules.strict, path, subject, parameters)
    elif parameters is not None:
        found.append(wrong_type(rules.parameters, path, "an object", parameters))


def check_output_schema(
    found: Found, rule: str, strict_rule: str, path: str, wanted: dict[str, Any], *, schema_needed: bool
) -> None:
    """A json_schema output format: its name, its schema, and the schema's closure if it is strict."""
    check_name(found, rule, f"{path}.name", wanted.get("name"), 64)
    schema: Any = wanted.get("schema")
    if schema is None and not schema_needed:
        return
    if not require(found, rule, f"{path}.schema", schema, dict, "an object"):
        return
    if wanted.get("strict") is True:
        subject = f"Invalid schema for response_format '{shown(wanted.get('name'))}'"
        _check_root(found, strict_rule, f"{path}.schema", subject, schema, type_needed=False)
        _check_closed(found, strict_rule, f"{path}.schema", subject, schema)


def _check_root(found: Found, rule: str, path: str, subject: str, schema: dict[str, Any], *, type_needed: bool) -> None:
    root = schema.get("type")
    if is_object(schema) or (root is None and not type_needed):
        return
    got = f'"{shown(root)}"' if isinstance(root, str) else kind_of(root)
    wanted = f"schema must be a JSON Schema of 'type: \"object\"', got 'type: {got}'."
    found.append(Violation(rule, path, f"{subject}: {wanted}"))


def _check_closed(found: Found, rule: str, path: str, subject: str, schema: dict[str, Any]) -> None:
    for count, problem in enumerate(strict_problems(schema), 1):
        found.append(Violation(rule, path, f"{subject}: {problem}"))
        if count == MOST_PROBLEMS:
            return


def walk(schema: dict[str, Any]) -> Iterator[tuple[Context, dict[str, Any]]]:
    """Every schema inside a schema with its context, outermost first."""
    reached: list[tuple[Context, dict[str, Any]]] = [(None, schema)]
    for context, node in reached:  # grows while it is read
        yield context, node
        reached.extend((way, child) for way, child in _children(context, node) if isinstance(child, dict))


def _children(context: Context, node: dict[str, Any]) -> Iterator[tuple[Context, Any]]:
    for keyword in _NAMED_SCHEMAS:
        named = node.get(keyword)
        if isinstance(named, dict):
            yield from ((((context, keyword), name), child) for name, child in named.items())
    for keyword in _LISTED_SCHEMAS:
        members = node.get(keyword)
        if isinstance(members, list):
            yield from ((((context, keyword), str(place)), child) for place, child in enumerate(members))
    yield (context, "items"), node.get("items")


def _written(context: Context) -> str:
    names: list[str] = []
    while context is not None:
        context, name = context
        names.append(name)
    names.reverse()
    return repr((*names[:_SHOWN_DEPTH], "…") if len(names) > _SHOWN_DEPTH else tuple(names))


def strict_problems(schema: dict[str, Any]) -> Iterator[str]:
    """What keeps a schema from strict mode: every object must be closed and require all its properties."""
    for context, node in walk(schema):
        for keyword in _NEVER_STRICT:
            if keyword in node:
                yield f"In context={_written(context)}, '{keyword}' is not permitted."
        problem = _open_object(node) if is_object(node) else None
        if problem is not None:
            yield f"In context={_written(context)}, {problem}"


@Remembered
def strict_problem(schema: dict[str, Any]) -> str | None:
    """The first thing that keeps a schema from strict mode."""
    return next(strict_problems(schema), None)


def is_object(node: dict[str, Any]) -> bool:
    """Whether a schema says that it is of objects, among others perhaps."""
    kind = node.get("type")
    return kind == "object" or (isinstance(kind, list) and "object" in kind)


def _open_object(node: dict[str, Any]) -> str | None:
    if node.get("additionalProperties") is not False:
        return "'additionalProperties' is required to be supplied and to be false."
    properties, required = node.get("properties"), node.get("required")
    names = properties if isinstance(properties, dict) else {}
    listed_names = {name for name in required if isinstance(name, str)} if isinstance(required, list) else set()
    wanted = "'required' is required to be supplied and to be an array including every key in properties."
    for name in names:
        if name not in listed_names:
            return f"{wanted} Missing '{shown(name)}'."
    extra = sorted(listed_names.difference(names))
    return f"{wanted} Extra required key '{shown(extra[0])}' supplied." if extra else None


def loose_problems(schema: dict[str, Any]) -> Iterator[str]:
    """What some models refuse in a schema even without strict mode (rule OC-32)."""
    if any(keyword in schema for keyword in _NEVER_AT_ROOT):
        kinds = "'oneOf'/'anyOf'/'allOf'/'enum'/'not'"
        yield f"schema must have type 'object' and not have {kinds} at the top level."
    for context, node in walk(schema):
        problem = _loose_problem(node)
        if problem is not None:
            yield f"In context={_written(context)}, {problem}"


def _loose_problem(node: dict[str, Any]) -> str | None:
    if node.get("type") == "array" and "items" not in node and "prefixItems" not in node:
        return "array schema missing items."
    if node.get("type") == "object" and "properties" not in node:
        return "object schema missing properties."
    pattern = node.get("pattern")
    if isinstance(pattern, str) and not _compiles(pattern):
        return f"'{shown(pattern)}' is not a 'regex'."
    return None


def _compiles(pattern: str) -> bool:
    try:
        with suppress(Warning):  # where warnings are errors, a pattern of doubtful style still compiles
            re.compile(pattern)
    except (re.error, OverflowError, RecursionError):
        return False
    return True
