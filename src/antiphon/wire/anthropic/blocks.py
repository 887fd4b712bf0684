"""The content blocks and tools of a Messages request: what each may carry, and where it may stand.

`BLOCKS` has one row a block type, after the provider's OpenAPI: the fields it must have, those it may have, and the check of
their values. `check_block` compares a block with its row and returns violations whose paths start at the block; the caller
knows where the block is and puts that in front (`located`). A clean block costs a few dictionary look-ups and builds no string.
A new block type is a new row. Contents that only the provider writes (results of its own tools) are not looked into: they
come back to it as they came.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple

from msgspec import Struct

from antiphon.wire.json_schema import find_reference_cycle
from antiphon.wire.media import IMAGE_TYPES
from antiphon.wire.rules import Violation, name_set

EXTRA = "Extra inputs are not permitted"
REQUIRED = "Field required"
SHAPE = "Input does not match the expected shape."
STRING = "Input should be a valid string"
OBJECT = "Input should be a valid dictionary"
LIST = "Input should be a valid list"

CALL_ID = re.compile(r"[a-zA-Z0-9_-]+\Z")
SERVER_CALL_ID = re.compile(r"srvtoolu_[a-zA-Z0-9_]+\Z")
TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}\Z")
PROPERTY_KEY = re.compile(r"[a-zA-Z0-9_.-]{1,64}\Z")
# Tools the provider defines carry a date in their type, and new dates come often (AN-16).
PROVIDER_TOOL = re.compile(r"(?:[a-z0-9_]+_20\d{6}|mcp_toolset)\Z")

RESULT_CONTENT = frozenset({"text", "image", "document", "search_result", "tool_reference", "browser_state"})
SYSTEM_CONTENT = frozenset({"text", "tool_addition", "tool_removal"})

BlockCheck = Callable[[dict[str, Any], list[Violation]], None]


class Shape(NamedTuple):
    """A block type: its fields, the strings among them, the one role it may stand in, and the check of its values."""

    required: frozenset[str]
    allowed: frozenset[str]
    strings: tuple[str, ...] = ()
    role: str | None = None
    check: BlockCheck | None = None


def located(prefix: str, violations: Iterable[Violation]) -> Iterator[Violation]:
    """The same violations, their paths seen from further up."""
    for violation in violations:
        path = f"{prefix}.{violation.path}" if violation.path else prefix
        yield Violation(violation.rule, path, violation.message, violation.advisory)


def kind_of(block: Any) -> str:
    """The type of a block; empty if it has none."""
    if isinstance(block, Struct):
        return str(block.__struct_config__.tag)
    kind = block.get("type") if isinstance(block, dict) else None
    return kind if isinstance(kind, str) else ""


def shown(value: Any) -> str:
    """A value as an error message quotes it; never long, never deep."""
    if isinstance(value, str):
        return f"'{value[:80]}'"
    return type(value).__name__


def extras(rule: str, fields: dict[str, Any], known: Container[str]) -> Iterator[Violation]:
    """A violation for each field the provider does not know."""
    for name in fields:
        if name not in known:
            yield Violation(rule, name, EXTRA)


def check_block(block: Any, role: str) -> list[Violation]:
    """The rules one content block breaks by itself (AN-03, AN-05, AN-11 to AN-15, AN-18, AN-20, AN-24)."""
    if not isinstance(block, dict):
        return [Violation("AN-13", "", SHAPE)]
    kind = block.get("type")
    shape = BLOCKS.get(kind) if isinstance(kind, str) else None
    if shape is None:
        return [_unknown_tag(block)]
    found: list[Violation] = []
    if block.keys() != shape.required:
        missing = sorted(shape.required - block.keys())
        found += [Violation("AN-20" if name == "signature" else "AN-13", name, REQUIRED) for name in missing]
        strange = [name for name in block if name not in shape.allowed]
        # Thinking blocks take no cache mark (AN-18).
        found += [Violation("AN-18" if name == "cache_control" else "AN-13", name, EXTRA) for name in strange]
    found += [Violation("AN-13", name, STRING) for name in shape.strings if not isinstance(block.get(name, ""), str)]
    if shape.check is not None:
        shape.check(block, found)
    if block.get("cache_control") is not None:
        found.extend(located("cache_control", cache_control_faults(block["cache_control"])))
    if role == "system":
        if kind not in SYSTEM_CONTENT:
            found.append(Violation("AN-03", "", f"`{kind}` blocks are not permitted in `system` messages"))
    elif shape.role is not None and role != shape.role:
        found.append(Violation("AN-14", "", f"`{kind}` blocks can only be in `{shape.role}` messages"))
    return found


def _unknown_tag(block: dict[str, Any], expected: Iterable[str] = ()) -> Violation:
    if "type" not in block:
        return Violation("AN-13", "type", REQUIRED)
    tags = ", ".join(f"'{tag}'" for tag in sorted(expected or BLOCKS))
    message = f"Input tag {shown(block['type'])} found using 'type' does not match any of the expected tags: {tags}"
    return Violation("AN-13", "", message)


def cache_control_faults(mark: Any) -> Iterator[Violation]:
    """What is wrong with a cache mark itself (AN-18)."""
    if not isinstance(mark, dict):
        yield Violation("AN-18", "", OBJECT)
        return
    if mark.get("type") != "ephemeral":
        yield Violation("AN-18", "type", "Input should be 'ephemeral'" if "type" in mark else REQUIRED)
    if mark.get("ttl") not in (None, "5m", "1h"):
        yield Violation("AN-18", "ttl", "Input should be '5m' or '1h'")
    # `scope` belongs to a beta; the body does not show which betas are on.
    yield from extras("AN-18", mark, ("type", "ttl", "scope"))


def _check_text(block: dict[str, Any], found: list[Violation]) -> None:
    text = block.get("text")
    if not isinstance(text, str) or (text and not text.isspace()):
        return
    if not text and block.get("cache_control") is not None:
        found.append(Violation("AN-18", "text", "cache_control cannot be set for empty text blocks"))
        return
    wanted = "contain non-whitespace text" if text else "be non-empty"
    found.append(Violation("AN-05", "text", f"text content blocks must {wanted}"))


def _check_thinking(block: dict[str, Any], found: list[Violation]) -> None:
    signature = block.get("signature")
    if not isinstance(signature, str):
        if "signature" in block:
            found.append(Violation("AN-20", "signature", STRING))
    elif not signature:
        # Empty but signed is how newer models show hidden thinking; unsigned is nobody's (AN-20).
        message = "Invalid `signature` in `thinking` block"
        if not block.get("thinking"):
            message = "each thinking block must contain thinking"
        found.append(Violation("AN-20", "", message))


def _check_id(block: dict[str, Any], name: str, pattern: re.Pattern[str], rule: str, found: list[Violation]) -> None:
    value = block.get(name)
    if isinstance(value, str) and not pattern.match(value):
        # The provider's patterns are written with ^ and $.
        shape = pattern.pattern.removesuffix(r"\Z")
        found.append(Violation(rule, name, f"String should match pattern '^{shape}$'"))


def _check_call(ids: re.Pattern[str], rule: str, block: dict[str, Any], found: list[Violation]) -> None:
    _check_id(block, "id", ids, rule, found)
    if not isinstance(block.get("input", {}), dict):
        found.append(Violation("AN-12", "input", OBJECT))
    name = block.get("name")
    if isinstance(name, str) and not 0 < len(name) <= 200:
        bound = "at most 200 characters" if name else "at least 1 character"
        found.append(Violation("AN-12", "name", f"String should have {bound}"))


_check_tool_use = partial(_check_call, CALL_ID, "AN-11")
_check_server_tool_use = partial(_check_call, SERVER_CALL_ID, "AN-25")


def _check_tool_result(block: dict[str, Any], found: list[Violation]) -> None:
    _check_id(block, "tool_use_id", CALL_ID, "AN-11", found)
    failed = block.get("is_error")
    if failed is not None and not isinstance(failed, bool):
        found.append(Violation("AN-15", "is_error", "Input should be a valid boolean"))
    content = block.get("content")
    if not content and failed is True:
        found.append(Violation("AN-15", "content", "content cannot be empty if `is_error` is true"))
    if isinstance(content, list):
        for index, part in enumerate(content):
            faults = _result_part_faults(part, failed is True)
            if faults:
                found.extend(located(f"content.{index}", faults))
    elif content is not None and not isinstance(content, str):
        found.append(Violation("AN-15", "content", SHAPE))


def _result_part_faults(part: Any, failed: bool) -> list[Violation]:
    kind = part.get("type") if isinstance(part, dict) else None
    if isinstance(kind, str) and kind not in RESULT_CONTENT:
        return [Violation("AN-15", "", _unknown_tag(part, RESULT_CONTENT).message)]
    # What a tool printed may be blank: the rule on blank text is known for messages only (AN-05).
    faults = [fault for fault in check_block(part, "user") if fault.rule != "AN-05"]
    if failed and isinstance(kind, str) and kind != "text":
        faults.append(Violation("AN-15", "", "all content must be type `text` if `is_error` is true"))
    return faults


class Source(NamedTuple):
    """A way to give an image or a document: its fields, and the media types it takes."""

    required: frozenset[str]
    media_types: tuple[str, ...] = ()


def _source(*fields: str, media_types: tuple[str, ...] = ()) -> Source:
    return Source(frozenset({"type", *fields}), media_types)


_LINKS = {"url": _source("url"), "file": _source("file_id")}
IMAGE_SOURCES = _LINKS | {"base64": _source("data", "media_type", media_types=IMAGE_TYPES)}
DOCUMENT_SOURCES = _LINKS | {
    "base64": _source("data", "media_type", media_types=("application/pdf",)),
    "text": _source("data", "media_type", media_types=("text/plain",)),
    "content": _source("content"),
}


def _check_source(known: dict[str, Source], block: dict[str, Any], found: list[Violation]) -> None:
    if "source" in block:
        found.extend(located("source", _source_faults(block["source"], known)))


def _source_faults(source: Any, known: dict[str, Source]) -> Iterator[Violation]:
    if not isinstance(source, dict):
        yield Violation("AN-24", "", SHAPE)
        return
    kind = source.get("type")
    row = known.get(kind) if isinstance(kind, str) else None
    if row is None:
        yield Violation("AN-24", "", _unknown_tag(source, known).message)
        return
    for name in sorted(row.required - source.keys()):
        yield Violation("AN-24", name, REQUIRED)
    yield from extras("AN-24", source, row.required)
    if row.media_types and "media_type" in source and source["media_type"] not in row.media_types:
        choices = " or ".join(f"'{media_type}'" for media_type in row.media_types)
        yield Violation("AN-24", "media_type", f"Input should be {choices}")
    for name in ("data", "url", "file_id"):
        if not isinstance(source.get(name, ""), str):
            yield Violation("AN-24", name, STRING)
    data = source.get("data")
    if source.get("type") == "base64" and isinstance(data, str) and data.startswith("data:"):
        yield Violation("AN-24", "data", "invalid base64 data: a `data:` prefix is not part of it")


def _shape(
    required: str, optional: str = "", *, strings: str = "", role: str | None = None, check: BlockCheck | None = None
) -> Shape:
    needed = name_set(f"type {required}")
    return Shape(needed, needed | name_set(optional), tuple(strings.split()), role, check)


def _result_shape(optional: str = "") -> Shape:
    return _shape("tool_use_id content", f"cache_control {optional}", strings="tool_use_id")


BLOCKS: dict[str, Shape] = {
    "text": _shape("text", "cache_control citations", strings="text", check=_check_text),
    "image": _shape("source", "cache_control", check=partial(_check_source, IMAGE_SOURCES)),
    "document": _shape(
        "source", "cache_control citations context title", check=partial(_check_source, DOCUMENT_SOURCES)
    ),
    "search_result": _shape("content source title", "cache_control citations", strings="source title"),
    "thinking": _shape("signature thinking", strings="thinking", role="assistant", check=_check_thinking),
    "redacted_thinking": _shape("data", strings="data", role="assistant"),
    "tool_use": _shape(
        "id input name", "cache_control caller toolset_name", strings="id name", role="assistant", check=_check_tool_use
    ),
    "tool_result": _shape(
        "tool_use_id", "cache_control content is_error", strings="tool_use_id", role="user", check=_check_tool_result
    ),
    "server_tool_use": _shape("id input name", "cache_control caller", strings="id name", check=_check_server_tool_use),
    "mcp_tool_use": _shape(
        "id input name server_name", "cache_control", strings="id name server_name", check=_check_tool_use
    ),
    "mcp_tool_result": _shape("tool_use_id", "cache_control content is_error", strings="tool_use_id"),
    "mcp_tool_listing": _shape("mcp_server_name tools", "cache_control"),
    "web_search_tool_result": _result_shape("caller"),
    "web_fetch_tool_result": _result_shape("caller"),
    "advisor_tool_result": _result_shape(),
    "code_execution_tool_result": _result_shape(),
    "bash_code_execution_tool_result": _result_shape(),
    "text_editor_code_execution_tool_result": _result_shape(),
    "tool_search_tool_result": _result_shape(),
    "container_upload": _shape("file_id", "cache_control", strings="file_id"),
    "compaction": _shape("", "cache_control content encrypted_content signature tool_changes"),
    "mid_conv_system": _shape("content", "cache_control"),
    "fallback": _shape("to", "from"),
    "tool_addition": _shape("tool", "cache_control"),
    "tool_removal": _shape("tool", "cache_control"),
    "tool_reference": _shape("tool_name", "cache_control", strings="tool_name"),
    "browser_state": _shape("tabs", "cache_control state_changes"),
}

TOOL_FIELDS = name_set(
    "type name description input_schema cache_control strict defer_loading allowed_callers eager_input_streaming "
    "input_examples"
)


def check_tool(tool: Any) -> Iterator[Violation]:
    """The rules one tool definition breaks by itself (AN-16, AN-18)."""
    if not isinstance(tool, dict):
        yield Violation("AN-16", "", SHAPE)
        return
    if tool.get("cache_control") is not None:
        yield from located("cache_control", cache_control_faults(tool["cache_control"]))
    kind = tool.get("type")
    if kind is None or kind == "custom":
        yield from _custom_tool_faults(tool)
    elif not isinstance(kind, str) or not PROVIDER_TOOL.match(kind):
        message = f"Input tag {shown(kind)} found using 'type' does not match any of the expected tags"
        yield Violation("AN-16", "", message)


def _custom_tool_faults(tool: dict[str, Any]) -> Iterator[Violation]:
    yield from extras("AN-16", tool, TOOL_FIELDS)
    name = tool.get("name")
    if not isinstance(name, str):
        yield Violation("AN-16", "name", STRING if "name" in tool else REQUIRED)
    elif not TOOL_NAME.match(name):
        yield Violation("AN-16", "name", "String should match pattern '^[a-zA-Z0-9_-]{1,128}$'")
    if "input_schema" not in tool:
        yield Violation("AN-16", "input_schema", REQUIRED)
    else:
        yield from located("input_schema", _input_schema_faults(tool["input_schema"]))
    if tool.get("strict") is True:
        cycle = find_reference_cycle(tool.get("input_schema"))
        if cycle:
            message = (
                f"Invalid schema: Circular reference detected in schema definitions: {' -> '.join(cycle)}. "
                "Self-referencing or mutually-referencing definitions are not supported."
            )
            yield Violation("AN-16", "", message)


def _input_schema_faults(schema: Any) -> Iterator[Violation]:
    if not isinstance(schema, dict):
        yield Violation("AN-16", "", SHAPE)
        return
    if schema.get("type") != "object":
        yield Violation("AN-16", "type", "Input should be 'object'" if "type" in schema else REQUIRED)
    if any(key in schema for key in ("oneOf", "allOf", "anyOf")):
        yield Violation("AN-16", "", "input_schema does not support oneOf, allOf, or anyOf at the top level")
    properties = schema.get("properties")
    if isinstance(properties, dict) and not all(map(PROPERTY_KEY.match, properties)):
        yield Violation("AN-16", "properties", "Property keys should match pattern '^[a-zA-Z0-9_.-]{1,64}$'")
