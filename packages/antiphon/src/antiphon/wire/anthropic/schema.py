"""JSON Schemas rewritten into what the API accepts.

`as_object_schema` is for the input of tools (AN-16): the root is an object without oneOf, anyOf or allOf, shared definitions are
called `$defs`, and property names at the root are short and plain. A valid schema is returned as the same object. Branches of a
root combinator are merged: their properties side by side, required what every branch (of allOf: any branch) requires. A root
that is not an object is wrapped as the property `value`. `as_output_schema` and `as_strict_schema` are for output formats (AN-32)
and strict tools: closed objects, no bounds (moved to the description), `oneOf` written as `anyOf`.

Renaming `definitions` is not a loss; every other change is, with its path in the schema.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from antiphon.wire.anthropic.limits import PROPERTY_KEY
from antiphon.wire.capabilities import Capabilities
from antiphon.wire.json_schema import format_path, is_object_schema, walk, with_object_root
from antiphon.wire.loss import Loss
from antiphon.wire.tool_calls import NameMapper

COMBINATORS = ("allOf", "anyOf", "oneOf")

_UNSUPPORTED_AT_ROOT = frozenset({*COMBINATORS, "$ref", "definitions"})
_MAX_DEPTH = 16
_MAX_NOTE = 200
_KEYS = NameMapper(PROPERTY_KEY)


def as_object_schema(schema: dict[str, Any] | None, path: str, losses: list[Loss]) -> dict[str, Any]:
    """The schema as a valid tool input."""
    if schema is None:
        return {"type": "object", "properties": {}}
    if not _UNSUPPORTED_AT_ROOT.isdisjoint(schema):
        if "definitions" in schema:
            schema = _with_defs(schema)
        schema = _merge_combinators(schema, schema.get("$defs"), path, losses)
    schema = with_object_root(schema, losses, path, "AN-16")
    properties = schema.get("properties")
    if isinstance(properties, dict) and any(_KEYS.to_wire(key) != key for key in properties):
        schema = _with_valid_keys(schema, properties, path, losses)
    return schema


def replaced_keys(schema: dict[str, Any]) -> dict[str, str]:
    """The property names that `as_object_schema` replaces, by their replacements."""
    if not _UNSUPPORTED_AT_ROOT.isdisjoint(schema):
        if "definitions" in schema:
            schema = _with_defs(schema)
        schema = _merge_combinators(schema, schema.get("$defs"), "", [])
    properties = schema.get("properties")
    names = properties if isinstance(properties, dict) else ()
    return {key: name for name in names if (key := _KEYS.to_wire(name)) != name}


def _with_defs(schema: dict[str, Any]) -> dict[str, Any]:
    written = msgspec.json.encode(schema).replace(b'"$ref":"#/definitions/', b'"$ref":"#/$defs/')
    renamed: dict[str, Any] = msgspec.json.decode(written)
    definitions, known = renamed.pop("definitions"), renamed.get("$defs")
    if isinstance(definitions, dict):
        renamed["$defs"] = {**definitions, **(known if isinstance(known, dict) else {})}
    return renamed


def _merge_combinators(
    schema: dict[str, Any], defs: Any, path: str, losses: list[Loss], depth: int = 0
) -> dict[str, Any]:
    """A schema without `$ref` and combinators at its root."""
    if "$ref" in schema:
        schema = _resolve_reference(schema, defs, path, losses)
    present = [name for name in COMBINATORS if name in schema]
    if not present:
        return schema
    merged = {name: value for name, value in schema.items() if name not in COMBINATORS}
    for name in present:
        reason = "Anthropic does not support combinators at the root; merged the branches (AN-16)"
        losses.append(Loss(f"{path}.{name}", name, reason))
        branch_values = schema[name] if isinstance(schema[name], list) and depth < _MAX_DEPTH else []
        branches = [
            _merge_combinators(branch, defs, f"{path}.{name}", losses, depth + 1)
            for branch in branch_values
            if _is_object(branch)
        ]
        _merge_branches(merged, branches, is_all=name == "allOf")
    return merged


def _is_object(branch: Any) -> bool:
    return isinstance(branch, dict) and branch.get("type", "object") == "object"


def _resolve_reference(schema: dict[str, Any], defs: Any, path: str, losses: list[Loss]) -> dict[str, Any]:
    siblings = {name: value for name, value in schema.items() if name != "$ref"}
    reference = schema["$ref"]
    definition: Any = None
    for _ in range(_MAX_DEPTH):
        name = reference.removeprefix("#/$defs/") if isinstance(reference, str) else ""
        definition = defs.get(name) if isinstance(defs, dict) else None
        if not isinstance(definition, dict) or "$ref" not in definition:
            break
        reference = definition["$ref"]
    if not isinstance(definition, dict) or "$ref" in definition:
        losses.append(Loss(f"{path}.$ref", "$ref", "unresolved reference at the root; dropped"))
        return siblings
    return {**definition, **siblings}


def _merge_branches(merged: dict[str, Any], branches: list[dict[str, Any]], *, is_all: bool) -> None:
    properties = dict(merged["properties"]) if isinstance(merged.get("properties"), dict) else {}
    for branch in branches:
        members = branch.get("properties")
        for name, value in members.items() if isinstance(members, dict) else ():
            known = properties.get(name, value)
            properties[name] = value if known == value else {"anyOf": [known, value]}
    required_sets = [_required(branch) for branch in branches]
    shared = (
        set().union(*required_sets)
        if is_all
        else set(required_sets[0]).intersection(*required_sets[1:])
        if required_sets
        else set()
    )
    required = _required(merged)
    required += sorted(shared - set(required))
    merged["properties"] = properties
    if required:
        merged["required"] = required
    merged.setdefault("type", "object")


def _required(schema: dict[str, Any]) -> list[str]:
    required = schema.get("required")
    return [name for name in required if isinstance(name, str)] if isinstance(required, list) else []


def _with_valid_keys(
    schema: dict[str, Any], properties: dict[str, Any], path: str, losses: list[Loss]
) -> dict[str, Any]:
    names = {name: _KEYS.to_wire(name) for name in properties}
    for name, wire_name in names.items():
        if name != wire_name:
            reason = f"must match {PROPERTY_KEY}; sent as {wire_name} (AN-16)"
            losses.append(Loss(f"{path}.properties.{name}", "property key", reason))
    renamed = {**schema, "properties": {names[name]: value for name, value in properties.items()}}
    if isinstance(schema.get("required"), list):
        renamed["required"] = [names.get(name, name) for name in _required(schema)]
    return renamed


def as_output_schema(schema: dict[str, Any], path: str, model: Capabilities, losses: list[Loss]) -> dict[str, Any]:
    """The schema as a valid output format (AN-32)."""
    return _as_grammar(schema, path, model, losses, "an output format", "AN-32")


def as_strict_schema(schema: dict[str, Any], path: str, model: Capabilities, losses: list[Loss]) -> dict[str, Any]:
    """The schema as valid input of a strict tool (AN-16)."""
    return _as_grammar(schema, path, model, losses, "a strict tool", "AN-16")


def _as_grammar(
    schema: dict[str, Any], path: str, model: Capabilities, losses: list[Loss], place: str, rule: str
) -> dict[str, Any]:
    """The schema with closed objects and without the keywords that the provider cannot enforce: those move to descriptions."""
    if not any(True for _ in schema_problems(schema, model)):
        return schema
    try:
        copy: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(schema))
    except RecursionError:
        losses.append(Loss(path, "schema", f"nested too deeply to be checked; sent unchanged ({rule})"))
        return schema
    for schema_path, node in walk(copy):
        node_path = format_path(path, schema_path)
        notes: list[str] = []
        for keyword in _unsupported_keywords(node, model):
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
        if _is_open(node, model):
            node["additionalProperties"] = False
            reason = f"objects must be closed in {place}; sent false ({rule})"
            losses.append(Loss(f"{node_path}.additionalProperties", "additionalProperties", reason))
    return copy


def schema_problems(schema: Any, model: Capabilities) -> Iterator[str]:
    """What the provider refuses in the schema of an output format or a strict tool, ."""
    for _, node in walk(schema):
        for keyword in _unsupported_keywords(node, model):
            if keyword == "minItems":
                yield "minItems must be 0 or 1"
            else:
                yield f"{keyword} is not supported"
        if _is_open(node, model):
            yield "additionalProperties must be false"


def _unsupported_keywords(node: dict[str, Any], model: Capabilities) -> list[str]:
    found = [keyword for keyword in sorted(node) if keyword in model.unsupported_schema_keywords]
    min_items = node.get("minItems")
    if model.max_min_items is not None and isinstance(min_items, int | float) and min_items > model.max_min_items:
        found.append("minItems")
    return found


def _is_open(node: dict[str, Any], model: Capabilities) -> bool:
    is_object = is_object_schema(node) or (node.get("type") is None and "properties" in node)
    return model.closed_schemas and is_object and node.get("additionalProperties") is not False
