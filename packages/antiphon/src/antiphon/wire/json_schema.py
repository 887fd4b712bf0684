"""JSON Schemas: one walk for all formats, what strict modes refuse, and the rewrite of a schema into an object schema.

A walk visits the subschemas under the keywords a vendor knows, outermost first, over a growing list instead of recursion, so
depth does no harm. The path to a node is a linked chain that is only formatted when something is reported. Schemas come from
decoded JSON and are otherwise unchecked.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import lru_cache
from graphlib import CycleError, TopologicalSorter
from typing import Any, Generic, TypeAlias, TypeVar

import msgspec
from msgspec import Struct

from antiphon.wire.loss import Loss

T = TypeVar("T")

SchemaPath: TypeAlias = "tuple[SchemaPath, str | int] | None"
"""The steps from the root, innermost last: keywords and names as text, positions in a list as numbers."""

MAX_SCHEMA_PROBLEMS = 10
"""How many problems of one schema are reported: a broken generator repeats itself."""
_MAX_CACHED_SCHEMAS = 512
_MAX_CACHED_BYTES = 32_768
_MAX_SHOWN = 80
_MAX_SHOWN_DEPTH = 20
_NOT_IN_STRICT_MODE = ("allOf", "oneOf", "not", "if", "then", "else", "dependentRequired", "dependentSchemas")
_SHARED = ("$defs", "definitions")
_NOT_AT_ROOT = ("oneOf", "anyOf", "allOf", "enum", "not")
_encode = msgspec.json.Encoder().encode


class SchemaKeywords(Struct, frozen=True):
    """The keywords with subschemas that a vendor knows: maps by name, and single schemas or lists of them."""

    named: tuple[str, ...]
    nested: tuple[str, ...]


ALL_KEYWORDS = SchemaKeywords(
    ("properties", "$defs", "definitions", "patternProperties"),
    ("items", "anyOf", "oneOf", "allOf", "prefixItems", "additionalProperties", "not"),
)
OPENAI_KEYWORDS = SchemaKeywords(
    ("properties", "$defs", "definitions"), ("anyOf", "oneOf", "allOf", "prefixItems", "items")
)


class SchemaCache(Generic[T]):
    """A function of a schema, cached by the schema's bytes: clients send the same tools with every request.

    The cache is bounded in number and size. Results must be immutable values.
    """

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self._compute = compute
        self._cached = lru_cache(_MAX_CACHED_SCHEMAS)(lambda data: compute(msgspec.json.decode(data)))

    def __call__(self, schema: Any) -> T:
        try:
            data = _encode(schema)
        except (TypeError, ValueError, RecursionError):  # not JSON: built by hand, or too deep
            return self._compute(schema)
        return self._cached(data) if len(data) <= _MAX_CACHED_BYTES else self._compute(schema)


def walk(schema: Any, keywords: SchemaKeywords = ALL_KEYWORDS) -> Iterator[tuple[SchemaPath, dict[str, Any]]]:
    """Every schema object inside a schema with its path, outermost first. Values that are not objects are skipped."""
    for path, node in walk_values(schema, keywords):
        if isinstance(node, dict):
            yield path, node


def walk_values(schema: Any, keywords: SchemaKeywords) -> Iterator[tuple[SchemaPath, Any]]:
    """Like `walk`, with the values that should be schemas and are not."""
    reached: list[tuple[SchemaPath, Any]] = [(None, schema)]
    for path, node in reached:  # grows while it is read
        yield path, node
        if not isinstance(node, dict):
            continue
        for keyword in keywords.named:
            members = node.get(keyword)
            if isinstance(members, dict):
                reached.extend((((path, keyword), name), child) for name, child in members.items())
        for keyword in keywords.nested:
            child = node.get(keyword)
            if isinstance(child, list):
                reached.extend((((path, keyword), index), item) for index, item in enumerate(child))
            elif child is not None:
                reached.append(((path, keyword), child))


def steps_of(path: SchemaPath) -> list[str | int]:
    """The steps of a path, outermost first."""
    steps: list[str | int] = []
    while path is not None:
        path, step = path
        steps.append(step)
    steps.reverse()
    return steps


def format_path(root: str, path: SchemaPath) -> str:
    """`root.properties.city.anyOf[0]`."""
    return root + "".join([f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps_of(path)])


def must_be_wrapped(schema: dict[str, Any]) -> bool:
    """Whether the root is of another type than object, so that arguments must be put into a property."""
    return schema.get("type") is not None and not is_object_schema(schema)


def is_object_schema(node: dict[str, Any]) -> bool:
    """Whether a schema allows objects, possibly among other types."""
    kind = node.get("type")
    return kind == "object" or (isinstance(kind, list) and "object" in kind)


def with_object_root(schema: dict[str, Any], losses: list[Loss], path: str, rule: str) -> dict[str, Any]:
    """The schema of a tool's parameters with an object at its root, which `rule` requires: another one is wrapped."""
    if schema.get("type") == "object":
        return schema
    if schema.get("type") is None:
        return {**schema, "type": "object"}
    if is_object_schema(schema):
        reason = f"the root schema must be an object; sent only that type ({rule})"
        losses.append(Loss(f"{path}.type", "type", reason))
        return {**schema, "type": "object"}
    losses.append(Loss(path, "schema", f'the root schema must be an object; wrapped as property "value" ({rule})'))
    inner = {name: value for name, value in schema.items() if name not in _SHARED}
    shared = {name: schema[name] for name in _SHARED if name in schema}  # references to them start at the root
    wrapped = {"type": "object", "properties": {"value": inner}, "required": ["value"], "additionalProperties": False}
    return {**wrapped, **shared}


def _context(path: SchemaPath) -> str:
    """A path as OpenAI's errors show it."""
    steps = [str(step) for step in steps_of(path)]
    return repr((*steps[:_MAX_SHOWN_DEPTH], "…") if len(steps) > _MAX_SHOWN_DEPTH else tuple(steps))


def _shortened(text: str) -> str:
    return text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "…"


def strict_problems(schema: dict[str, Any]) -> Iterator[str]:
    """What OpenAI's strict mode refuses: every object must be closed and require all its properties."""
    for path, node in walk(schema, OPENAI_KEYWORDS):
        for keyword in _NOT_IN_STRICT_MODE:
            if keyword in node:
                yield f"In context={_context(path)}, '{keyword}' is not permitted."
        problem = _strict_object_problem(node) if is_object_schema(node) else None
        if problem is not None:
            yield f"In context={_context(path)}, {problem}"


@SchemaCache
def first_strict_problem(schema: dict[str, Any]) -> str | None:
    """The first reason why a schema is not allowed in strict mode."""
    return next(strict_problems(schema), None)


def _strict_object_problem(node: dict[str, Any]) -> str | None:
    if node.get("additionalProperties") is not False:
        return "'additionalProperties' is required to be supplied and to be false."
    properties, required = node.get("properties"), node.get("required")
    names = properties if isinstance(properties, dict) else {}
    listed = {name for name in required if isinstance(name, str)} if isinstance(required, list) else set()
    expected = "'required' is required to be supplied and to be an array including every key in properties."
    for name in names:
        if name not in listed:
            return f"{expected} Missing '{_shortened(name)}'."
    extra = sorted(listed.difference(names))
    return f"{expected} Extra required key '{_shortened(extra[0])}' supplied." if extra else None


def non_strict_problems(schema: dict[str, Any]) -> Iterator[str]:
    """What some models refuse in a schema even without strict mode (rule OC-32)."""
    if any(keyword in schema for keyword in _NOT_AT_ROOT):
        kinds = "'oneOf'/'anyOf'/'allOf'/'enum'/'not'"
        yield f"schema must have type 'object' and not have {kinds} at the top level."
    for path, node in walk(schema, OPENAI_KEYWORDS):
        problem = _non_strict_problem(node)
        if problem is not None:
            yield f"In context={_context(path)}, {problem}"


def _non_strict_problem(node: dict[str, Any]) -> str | None:
    if node.get("type") == "array" and "items" not in node and "prefixItems" not in node:
        return "array schema missing items."
    if node.get("type") == "object" and "properties" not in node:
        return "object schema missing properties."
    pattern = node.get("pattern")
    if isinstance(pattern, str) and not _compiles(pattern):
        return f"'{_shortened(pattern)}' is not a 'regex'."
    return None


def _compiles(pattern: str) -> bool:
    try:
        with suppress(Warning):  # where warnings are errors, a pattern of doubtful style still compiles
            re.compile(pattern)
    except (re.error, OverflowError, RecursionError):
        return False
    return True


def count_optional_and_unions(schema: Any) -> tuple[int, int]:
    """How many properties are optional, and how many schemas have several types."""
    optional = unions = 0
    for _, node in walk(schema):
        properties, required = node.get("properties"), node.get("required")
        if isinstance(properties, dict):
            needed = sum(1 for name in required if isinstance(name, str)) if isinstance(required, list) else 0
            optional += max(0, len(properties) - needed)
        unions += isinstance(node.get("type"), list) or "anyOf" in node
    return optional, unions


def find_reference_cycle(schema: Any) -> list[str]:
    """The names of definitions that refer to each other in a circle; empty if there is none."""
    definitions = schema.get("$defs") if isinstance(schema, dict) else None
    if not isinstance(definitions, dict):
        return []
    try:
        TopologicalSorter({name: _references(definition) for name, definition in definitions.items()}).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def _references(definition: Any) -> set[str]:
    targets = (node.get("$ref") for _, node in walk(definition))
    return {ref.removeprefix("#/$defs/") for ref in targets if isinstance(ref, str) and ref.startswith("#/$defs/")}
