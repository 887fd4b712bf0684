"""JSON Schemas: one walk, one rewriter and one list of problems for all formats, with a policy for each target and use.

A walk visits the subschemas under the keywords a vendor knows, outermost first, over a growing list instead of recursion, so
depth does no harm. The path to a node is a linked chain that is only formatted when something is reported. Schemas come from
decoded JSON and are otherwise unchecked.

A `SchemaPolicy` says what a target accepts. `rewrite` makes a schema fit and reports every change with its path; one that fits
comes back as the same object. `problems` says what does not fit. Renaming `definitions` to `$defs` is not a loss.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import lru_cache
from graphlib import CycleError, TopologicalSorter
from itertools import islice
from typing import Any, Generic, TypeAlias, TypeVar

import msgspec
from msgspec import Struct

from antiphon.json_text import decode_json
from antiphon.wire.capabilities import Capabilities
from antiphon.wire.loss import Loss

T = TypeVar("T")

SchemaPath: TypeAlias = "tuple[SchemaPath, str | int] | None"
"""The steps from the root, innermost last: keywords and names as text, positions in a list as numbers."""

_MAX_PROBLEMS = 10
"""How many problems of one schema are reported: a broken generator repeats itself."""
_MAX_CACHED_SCHEMAS = 512
_MAX_CACHED_BYTES = 32_768
_MAX_SHOWN = 80
_MAX_NOTE = 200
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
STRICT_KEYWORDS = SchemaKeywords(
    ("properties", "$defs", "definitions"), ("anyOf", "oneOf", "allOf", "prefixItems", "items")
)


class SchemaPolicy(Struct, frozen=True, kw_only=True):
    """What a target accepts in the schemas of one use, by the rule that says so."""

    rule: str
    place: str = ""
    """The use, in losses."""
    keywords: SchemaKeywords = ALL_KEYWORDS
    refused: tuple[str, ...] = ()
    """Keywords that are refused everywhere."""
    max_min_items: int | None = None
    closed: bool = False
    """Whether every object must have `additionalProperties: false`."""
    all_required: bool = False
    """Whether every object must require all its properties."""


STRICT_MODE = SchemaPolicy(
    rule="OC-17",
    keywords=STRICT_KEYWORDS,
    refused=("allOf", "oneOf", "not", "if", "then", "else", "dependentRequired", "dependentSchemas"),
    closed=True,
    all_required=True,
)


def grammar_policy(model: Capabilities, rule: str, place: str) -> SchemaPolicy:
    """The policy for schemas from which a model's host makes a grammar: those of strict tools and output formats."""
    return SchemaPolicy(
        rule=rule,
        place=place,
        refused=model.unsupported_schema_keywords,
        max_min_items=model.max_min_items,
        closed=model.closed_schemas,
    )


class SchemaCache(Generic[T]):
    """A function of a schema, cached by the schema's bytes: clients send the same tools with every request.

    The cache is bounded in number and size. Results must be immutable values.
    """

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self._compute = compute
        self._cached = lru_cache(_MAX_CACHED_SCHEMAS)(lambda data: compute(decode_json(data)))

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
    """The same with the values that should be schemas and are not."""
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


def rewrite(schema: dict[str, Any], policy: SchemaPolicy, losses: list[Loss], path: str) -> dict[str, Any]:
    """The schema with closed objects and without refused keywords: those move to the descriptions, `oneOf` to `anyOf`."""
    if next(problems(schema, policy), None) is None:
        return schema
    place, rule = policy.place, policy.rule
    try:
        copy: dict[str, Any] = decode_json(msgspec.json.encode(schema))
    except RecursionError:
        losses.append(Loss(path, "schema", f"nested too deeply to be checked; sent unchanged ({rule})"))
        return schema
    for schema_path, node in walk(copy, policy.keywords):
        node_path = format_path(path, schema_path)
        notes: list[str] = []
        for keyword in _refused_keywords(node, policy):
            value = node.pop(keyword)
            if keyword == "oneOf" and "anyOf" not in node:
                node["anyOf"] = value
                reason = f'not supported in {place}; sent as "anyOf" ({rule})'
            else:
                notes.append(f"{keyword}: {msgspec.json.encode(value).decode()[:_MAX_NOTE]}")
                reason = f"not supported in {place}; moved to the description ({rule})"
            losses.append(Loss(f"{node_path}.{keyword}", keyword, reason))
        if notes:
            known, text = node.get("description"), ", ".join(notes)
            node["description"] = f"{known} ({text})" if isinstance(known, str) and known else text
        if _is_open(node, policy):
            node["additionalProperties"] = False
            reason = f"objects must be closed in {place}; sent false ({rule})"
            losses.append(Loss(f"{node_path}.additionalProperties", "additionalProperties", reason))
    return copy


def problems(schema: Any, policy: SchemaPolicy) -> Iterator[str]:
    """What a target refuses in a schema, not too much of it."""
    return islice(_problems(schema, policy), _MAX_PROBLEMS)


def _problems(schema: Any, policy: SchemaPolicy) -> Iterator[str]:
    for path, node in walk(schema, policy.keywords):
        for keyword in _refused_keywords(node, policy):
            what = f"must be at most {policy.max_min_items}" if keyword == "minItems" else "is not supported"
            yield f"{_shown(path)}{keyword} {what}"
        if _is_open(node, policy):
            yield f"{_shown(path)}additionalProperties must be false"
        elif policy.all_required and is_object_schema(node):
            yield from (f"{_shown(path)}{problem}" for problem in _required_problems(node))


def _shown(path: SchemaPath) -> str:
    """The path to a node, as the beginning of a sentence about it."""
    shown = format_path("", path).removeprefix(".")
    return f"{shown[:_MAX_SHOWN]}…: " if len(shown) > _MAX_SHOWN else f"{shown}: " if shown else ""


@SchemaCache
def first_strict_problem(schema: dict[str, Any]) -> str | None:
    """The first reason why a schema is not allowed in OpenAI's strict mode."""
    return next(problems(schema, STRICT_MODE), None)


def _refused_keywords(node: dict[str, Any], policy: SchemaPolicy) -> list[str]:
    found = [keyword for keyword in sorted(node) if keyword in policy.refused]
    min_items = node.get("minItems")
    if policy.max_min_items is not None and isinstance(min_items, int | float) and min_items > policy.max_min_items:
        found.append("minItems")
    return found


def _is_open(node: dict[str, Any], policy: SchemaPolicy) -> bool:
    if not policy.closed or node.get("additionalProperties") is False:
        return False
    # Where all properties are required, an object is one by its type alone.
    return is_object_schema(node) or (not policy.all_required and node.get("type") is None and "properties" in node)


def required_names(schema: dict[str, Any]) -> list[str]:
    """The properties that an object requires."""
    required = schema.get("required")
    return [name for name in required if isinstance(name, str)] if isinstance(required, list) else []


def _required_problems(node: dict[str, Any]) -> Iterator[str]:
    properties = node.get("properties")
    names, listed = properties if isinstance(properties, dict) else {}, set(required_names(node))
    missing = next((name for name in names if name not in listed), None)
    if missing is not None:
        yield f"required must have every property; {missing[:_MAX_SHOWN]!r} is missing"
    elif extra := sorted(listed.difference(names)):
        yield f"required has {extra[0][:_MAX_SHOWN]!r}, which is not a property"


def non_strict_problems(schema: dict[str, Any]) -> Iterator[str]:
    """What some models refuse in a schema even without strict mode (rule OC-32)."""
    return islice(_non_strict_problems(schema), _MAX_PROBLEMS)


def _non_strict_problems(schema: dict[str, Any]) -> Iterator[str]:
    if any(keyword in schema for keyword in _NOT_AT_ROOT):
        yield "must have type object, and no oneOf, anyOf, allOf, enum or not at the root"
    for path, node in walk(schema, STRICT_KEYWORDS):
        problem = _non_strict_problem(node)
        if problem is not None:
            yield f"{_shown(path)}{problem}"


def _non_strict_problem(node: dict[str, Any]) -> str | None:
    if node.get("type") == "array" and "items" not in node and "prefixItems" not in node:
        return "an array must have items"
    if node.get("type") == "object" and "properties" not in node:
        return "an object must have properties"
    pattern = node.get("pattern")
    if isinstance(pattern, str) and not _compiles(pattern):
        return f"{pattern[:_MAX_SHOWN]!r} is not a regular expression"
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
