"""Tools as a format declares them, under which names and with which schemas, and the arguments of their calls.

A tool of another format is reported and left out. So is a second one of the same name, where the format refuses that. The root of
a schema is an object; another one is wrapped as the property `value`. Where a format's facts forbid combinators there, their
branches are merged; where they limit property names, others are replaced. A legal schema comes back as the same object.

What a schema changed, the arguments of earlier calls follow (`argument_writer`), and those of an answer are changed back
(`argument_restorer`). Formats that hold arguments as an object embed the model's text unparsed, so it only has to be known to be
an object. Where a format has no freeform tools, one becomes a function with its text as the only property.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Sequence
from functools import cache, partial
from typing import Any

import msgspec
from msgspec import Struct, structs

from antiphon.json_text import NOT_JSON, decode_json
from antiphon.parts import Native, ToolCallRequest
from antiphon.wire.capabilities import Capabilities, format_capabilities, property_key_patterns
from antiphon.wire.loss import Loss, Losses
from antiphon.wire.request import Message, ToolDefinition
from antiphon.wire.tools.names import NameMapper
from antiphon.wire.tools.schema import is_object_schema, must_be_wrapped, required_names

COMBINATORS = ("allOf", "anyOf", "oneOf")
_MAX_DEPTH = 64
_SHARED = ("$defs", "definitions")
FREEFORM_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"input": {"type": "string"}},
    "required": ["input"],
    "additionalProperties": False,
}


EMPTY_ARGUMENTS = ("{}", "", "null")
"""What models write for a call without arguments."""
_SURROGATES = re.compile("[\ud800-\udfff]")
_WHITESPACE = " \t\r\n"
OBJECT_START = "{" + _WHITESPACE
"""First characters of a text that may be a JSON object. The empty string is a substring, so empty text counts too."""
_skip_value = msgspec.json.Decoder(msgspec.Raw).decode


class ToolSchemas:
    """The schemas of tools as a format accepts them: an object at the root, and what the format's facts say about that."""

    def __init__(self, format_name: str, rule: str) -> None:
        self._format = format_name
        self._rule = rule

    @property
    def _facts(self) -> Capabilities:
        return format_capabilities(self._format)

    def accepts(self, schema: dict[str, Any]) -> bool:
        """Whether a schema is plainly legal at its root."""
        if schema.get("type") != "object" or not _NOT_PLAIN.isdisjoint(schema):
            return False
        pattern, properties = format_capabilities(self._format).property_key_pattern, schema.get("properties")
        if not pattern or type(properties) is not dict:
            return True
        sent = _key_mapper(pattern)
        return list(map(sent, properties)) == list(properties)

    def rewrite(self, schema: dict[str, Any], losses: list[Loss], path: str) -> dict[str, Any]:
        """The schema of a tool's parameters; a root that is not an object is wrapped as the property `value`."""
        facts = format_capabilities(self._format)
        if not facts.root_combinators:
            schema = _without_root_combinators(schema, losses, path, self._rule)
        if schema.get("type") != "object":
            schema = self._with_object_root(schema, losses, path)
        pattern = facts.property_key_pattern
        return _with_legal_keys(schema, pattern, losses, path, self._rule) if pattern else schema

    def _with_object_root(self, schema: dict[str, Any], losses: list[Loss], path: str) -> dict[str, Any]:
        if schema.get("type") is None:
            return {**schema, "type": "object"}
        if is_object_schema(schema):
            reason = f"the root schema must be an object; sent only that type ({self._rule})"
            losses.append(Loss(f"{path}.type", "type", reason))
            return {**schema, "type": "object"}
        reason = f'the root schema must be an object; wrapped as property "value" ({self._rule})'
        losses.append(Loss(path, "schema", reason))
        inner = {name: value for name, value in schema.items() if name not in _SHARED}
        shared = {name: schema[name] for name in _SHARED if name in schema}  # references to them start at the root
        closed = {"required": ["value"], "additionalProperties": False}
        return {"type": "object", "properties": {"value": inner}, **closed, **shared}

    def root_problems(self, schema: dict[str, Any]) -> Iterator[tuple[str, str]]:
        """What the format refuses at the root beside its type: the field, and why."""
        if not self._facts.root_combinators and any(name in schema for name in COMBINATORS):
            yield "", "oneOf, anyOf and allOf are not allowed at the root"
        properties, pattern = schema.get("properties"), self._facts.property_key_pattern
        if pattern and isinstance(properties, dict) and any(_key(pattern, name) != name for name in properties):
            yield "properties", f"property names must match {pattern}"


class DeclaredTool(Struct, frozen=True, gc=False):
    """A tool with the name that the format accepts, and its path in the request."""

    tool: ToolDefinition
    name: str
    path: str

    def function(
        self, schemas: ToolSchemas | None, losses: list[Loss], key: str = "parameters", kind: str = ""
    ) -> dict[str, Any]:
        """Its type (if `kind` names it), name, description and schema; without `schemas` any schema is accepted."""
        tool, name = self.tool, self.name
        written: dict[str, Any] = {"type": kind, "name": name} if kind else {"name": name}
        if tool.description is not None:
            written["description"] = tool.description
        schema = tool.parameters
        if tool.freeform:
            written[key] = FREEFORM_SCHEMA
        elif schema is not None:
            if schemas is not None and not schemas.accepts(schema):
                schema = schemas.rewrite(schema, losses, f"{self.path}.parameters")
            written[key] = schema
        return written


class DeclaredNative(Struct, frozen=True, gc=False):
    """A tool that only the format has, and its path in the request."""

    data: Any
    path: str


def declare_tools(
    tools: Iterable[ToolDefinition | Native],
    origin: str,
    names: NameMapper,
    losses: list[Loss],
    unique: str = "",
    *,
    named_natives: bool = False,
    allowed: Collection[str] | None = None,
) -> list[DeclaredTool | DeclaredNative]:
    """The tools that a format can declare, in their order.

    `unique` is the rule by which their names must differ; with `named_natives`, also from those of its own tools. `allowed` has
    the names of those that are sent, where the format leaves out the others.
    """
    declared: list[DeclaredTool | DeclaredNative] = []
    used: set[str] = set()
    for index, tool in enumerate(tools):
        path = f"tools[{index}]"
        if isinstance(tool, Native):
            name, kind = (text_field(tool.data, field) for field in ("name", "type"))
            sent = name if named_natives else ""
            if tool.origin != origin:
                losses.append(Loss(path, kind or "tool", f"tool specific to {tool.origin}; dropped"))
                continue
        else:
            name, sent = tool.name, names.to_wire(tool.name)
        if allowed is not None and name not in allowed:
            reason = "not among the allowed tools, and this API has no list of those; dropped"
            losses.append(Loss(path, name or "tool", reason))
        elif unique and sent and sent in used:
            losses.append(Loss(path, "tool", f'duplicate tool name "{name}"; dropped ({unique})'))
        else:
            used.add(sent)
            if isinstance(tool, Native):
                declared.append(DeclaredNative(tool.data, path))
            else:
                known = sent if sent == name else names.declare(name, path, losses)
                declared.append(DeclaredTool(tool, known, path))
    return declared


def read_definition(
    fields: Any, schema: str = "parameters", strict: str = "strict"
) -> tuple[str, str | None, dict[str, Any] | None, bool | None] | None:
    """The name, description, schema and strictness in an object, the last two by these keys; None if one is malformed."""
    if type(fields) is not dict:
        return None
    name: Any = fields.get("name")
    description: Any = fields.get("description")
    parameters, is_strict = fields.get(schema) if schema else None, fields.get(strict) if strict else None
    is_known = type(name) is str and (description is None or type(description) is str)
    if not is_known or not (parameters is None or type(parameters) is dict):
        return None
    return (name, description, parameters, is_strict) if is_strict is None or type(is_strict) is bool else None


def text_field(data: Any, field: str) -> str:
    """A text in an object; empty if it is none."""
    value = data.get(field) if type(data) is dict else None
    return value if type(value) is str else ""


def renamed_keys(schema: dict[str, Any]) -> dict[str, str]:
    """The properties at the root whose names some format refuses, with the names it gets instead."""
    patterns = property_key_patterns()
    if patterns and not _NOT_PLAIN.isdisjoint(schema):
        schema = _without_root_combinators(schema, [], "", "")
    properties = schema.get("properties")
    names = properties if isinstance(properties, dict) else ()
    return {name: key for pattern in patterns for name in names if (key := _key(pattern, name)) != name}


@cache
def _key_mapper(pattern: str) -> Callable[[str], str]:
    return NameMapper(pattern).to_wire


def _key(pattern: str, name: str) -> str:
    return _key_mapper(pattern)(name)


def _with_legal_keys(schema: dict[str, Any], pattern: str, losses: list[Loss], path: str, rule: str) -> dict[str, Any]:
    properties = schema.get("properties")
    names = {name: _key(pattern, name) for name in properties} if isinstance(properties, dict) else {}
    changed = {name: sent for name, sent in names.items() if sent != name}
    if not changed:
        return schema
    for name, sent in changed.items():
        reason = f"must match {pattern}; sent as {sent} ({rule})"
        losses.append(Loss(f"{path}.properties.{name}", "property key", reason))
    renamed = {**schema, "properties": {names[name]: value for name, value in schema["properties"].items()}}
    if isinstance(schema.get("required"), list):
        renamed["required"] = [names.get(name, name) for name in required_names(schema)]
    return renamed


_NOT_PLAIN = frozenset({*COMBINATORS, "$ref", "definitions"})


def _without_root_combinators(schema: dict[str, Any], losses: list[Loss], path: str, rule: str) -> dict[str, Any]:
    """The schema without `$ref` and combinators at its root, with its definitions in `$defs`."""
    if _NOT_PLAIN.isdisjoint(schema):
        return schema
    if "definitions" in schema:
        schema = _with_defs(schema)
    return _BranchMerger(schema.get("$defs"), losses, rule).merge(schema, path)


def _with_defs(schema: dict[str, Any]) -> dict[str, Any]:
    written = msgspec.json.encode(schema).replace(b'"$ref":"#/definitions/', b'"$ref":"#/$defs/')
    renamed: dict[str, Any] = decode_json(written)
    definitions, known = renamed.pop("definitions"), renamed.get("$defs")
    if isinstance(definitions, dict):
        renamed["$defs"] = {**definitions, **(known if isinstance(known, dict) else {})}
    return renamed


class _BranchMerger:
    """Merges the branches of combinators: their properties side by side, required what every branch (of allOf: any branch)
    requires. A definition is merged once, however often it is referred to."""

    def __init__(self, defs: Any, losses: list[Loss], rule: str) -> None:
        self._defs = defs if isinstance(defs, dict) else {}
        self._losses = losses
        self._rule = rule
        self._merged: dict[str, dict[str, Any] | None] = {}

    def merge(self, schema: dict[str, Any], path: str, depth: int = 0) -> dict[str, Any]:
        if "$ref" in schema:
            schema = {**self._resolve(schema["$ref"], path, depth), **_without(schema, "$ref")}
        present = [name for name in COMBINATORS if name in schema]
        if not present:
            return schema
        merged = _without(schema, *COMBINATORS)
        for name in present:
            reason = f"combinators are not supported at the root; merged the branches ({self._rule})"
            self._losses.append(Loss(f"{path}.{name}", name, reason))
            given = schema[name] if isinstance(schema[name], list) and depth < _MAX_DEPTH else []
            branches = [
                self.merge(branch, f"{path}.{name}", depth + 1)
                for branch in given
                if isinstance(branch, dict) and branch.get("type", "object") == "object"
            ]
            _merge_branches(merged, branches, is_all=name == "allOf")
        return merged

    def _resolve(self, reference: Any, path: str, depth: int) -> dict[str, Any]:
        """The definition a reference leads to, without combinators; nothing while that is being merged, or if there is none."""
        name = reference.removeprefix("#/$defs/") if isinstance(reference, str) else ""
        if name not in self._merged:
            self._merged[name] = None
            definition = self._defs.get(name)
            if isinstance(definition, dict) and depth < _MAX_DEPTH:
                self._merged[name] = self.merge(definition, path, depth + 1)
        found = self._merged[name]
        if found is None:
            self._losses.append(Loss(f"{path}.$ref", "$ref", "unresolved reference at the root; dropped"))
        return found or {}


def _without(schema: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in schema.items() if name not in names}


def _merge_branches(merged: dict[str, Any], branches: list[dict[str, Any]], *, is_all: bool) -> None:
    properties = dict(merged["properties"]) if isinstance(merged.get("properties"), dict) else {}
    for branch in branches:
        members = branch.get("properties")
        for name, value in members.items() if isinstance(members, dict) else ():
            known = properties.get(name, value)
            properties[name] = value if known == value else {"anyOf": [known, value]}
    required_sets = [required_names(branch) for branch in branches]
    shared = (
        set().union(*required_sets)
        if is_all
        else set(required_sets[0]).intersection(*required_sets[1:])
        if required_sets
        else set()
    )
    required = required_names(merged)
    required += sorted(shared - set(required))
    merged["properties"] = properties
    if required:
        merged["required"] = required
    merged.setdefault("type", "object")


def raw_json_object(arguments: str) -> msgspec.Raw | None:
    """The text as JSON to embed in a body, or None if it is not a JSON object. It is scanned, not decoded."""
    try:
        raw = _skip_value(arguments)
    except NOT_JSON:
        return None
    return raw if arguments[0] == "{" or arguments.lstrip(_WHITESPACE)[0] == "{" else None


def parse_json_object(text: str) -> dict[str, Any] | None:
    """The JSON object in a text; None if it is anything else."""
    if text[:1] not in OBJECT_START or not text.lstrip(_WHITESPACE).startswith("{"):
        return None
    try:
        value = decode_json(text)
    except NOT_JSON:
        return None
    return value if type(value) is dict else None


def arguments_object(call: ToolCallRequest, losses: Losses, rule: str) -> Any:
    """The arguments of a call as an object, unparsed where they are one; text that is not one is in `_raw`.

    Empty text and `null` are the empty object. A lone surrogate, which a body cannot have, becomes a replacement character.
    """
    text = call.arguments
    arguments: Any = {"input": text} if call.freeform else raw_json_object(text)
    if arguments is not None:
        return arguments
    if text.strip() in EMPTY_ARGUMENTS:
        return {}
    try:
        value = json.loads(text)  # which reads a lone surrogate
        written = json.dumps(value, ensure_ascii=False, allow_nan=False) if type(value) is dict else ""
    except (ValueError, RecursionError):
        written = ""
    if written:
        losses.add("characters", "a lone surrogate is not valid Unicode; sent a replacement character", "arguments")
        return msgspec.Raw(_SURROGATES.sub("\ufffd", written))
    report_raw_arguments(losses, losses.path(), rule)
    return {"_raw": _SURROGATES.sub("\ufffd", text)}


def report_raw_arguments(losses: list[Loss], path: str, rule: str) -> None:
    """Report arguments that are sent as `{"_raw": text}`, because a format or host requires an object."""
    source = f" ({rule})" if rule else ""
    reason = f'arguments are not a JSON object; sent as {{"_raw": text}}{source}'
    losses.append(Loss(f"{path}.arguments", "arguments", reason))


class _FreeformInput(Struct):
    input: str


def unwrap_freeform(arguments: str) -> str:
    """The text of a freeform call made as a function with one `input`; other text unchanged."""
    try:
        return msgspec.json.decode(arguments, type=_FreeformInput).input
    except msgspec.DecodeError:
        return arguments


def argument_restorer(tool: ToolDefinition) -> Callable[[str], str] | None:
    """What undoes the changes that a format may make to the arguments of a tool; None if there are none."""
    if tool.freeform:
        return unwrap_freeform
    if tool.parameters is None:
        return None
    if must_be_wrapped(tool.parameters):
        return _unwrap_value
    keys = renamed_keys(tool.parameters)
    return partial(_replace_keys, {sent: name for name, sent in keys.items()}) if keys else None


def argument_writer(tool: ToolDefinition) -> Callable[[str], str] | None:
    """What makes the arguments of earlier calls fit a schema with other property names; None if those are the tool's own."""
    if tool.freeform or tool.parameters is None:
        return None
    if must_be_wrapped(tool.parameters):
        return _wrap_value
    keys = renamed_keys(tool.parameters)
    return partial(_replace_keys, keys) if keys else None


def find_wrapped_tools(tools: Sequence[ToolDefinition | Native]) -> frozenset[str]:
    """The names of the tools whose schema is written wrapped, because its root is not an object."""
    return frozenset(
        tool.name
        for tool in tools
        if type(tool) is ToolDefinition and tool.parameters is not None and must_be_wrapped(tool.parameters)
    )


def with_wrapped_calls(message: Message, wrapped: Container[str]) -> Message:
    """The message with arguments that fit such schemas."""
    parts = [
        structs.replace(part, arguments=_wrap_value(part.arguments))
        if type(part) is ToolCallRequest and part.tool_name in wrapped and not part.freeform
        else part
        for part in message.parts
    ]
    return message if all_identical(tuple(parts), message.parts) else structs.replace(message, parts=tuple(parts))


def _wrap_value(arguments: str) -> str:
    try:
        value = decode_json(arguments)
    except NOT_JSON:
        return arguments
    is_wrapped = isinstance(value, dict) and value.keys() == {"value"}
    return arguments if is_wrapped else msgspec.json.encode({"value": value}).decode()


def _unwrap_value(arguments: str) -> str:
    value = parse_json_object(arguments)
    if value is None or value.keys() != {"value"}:
        return arguments
    return msgspec.json.encode(value["value"]).decode()


def _replace_keys(keys: dict[str, str], arguments: str) -> str:
    value = parse_json_object(arguments)
    if value is None or value.keys().isdisjoint(keys):
        return arguments
    return msgspec.json.encode({keys.get(key, key): inner for key, inner in value.items()}).decode()


def all_identical(left: tuple[object, ...], right: tuple[object, ...]) -> bool:
    return all(map(operator.is_, left, right))
