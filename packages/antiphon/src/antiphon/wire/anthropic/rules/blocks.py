"""The rules for content blocks and tools of a Messages request.

`BLOCKS` has one row per block type, after the provider's OpenAPI: required fields, allowed fields, and a check of the values.
`check_block` compares a block with its row; violations have paths relative to the block, and `with_prefix` completes them. A
valid block costs a few dictionary look-ups and builds no string. A new block type is a new row. Results of the provider's own
tools are not examined: they are sent back unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Iterator
from functools import cache, partial
from typing import Any, NamedTuple

from antiphon.wire.anthropic import FORMAT
from antiphon.wire.anthropic.limits import (
    MAX_CALL_NAME,
    PDF,
    PLAIN_TEXT,
    PROPERTY_KEY,
    RESULT_CONTENT,
    SERVER_CALL_ID,
    SYSTEM_CONTENT,
    is_blank,
    is_property_key,
)
from antiphon.wire.anthropic.schema import COMBINATORS
from antiphon.wire.capabilities import format_capabilities, tool_name_matcher
from antiphon.wire.json_schema import find_reference_cycle
from antiphon.wire.rules import Violation, name_set
from antiphon.wire.vendors.anthropic import quote_value

EXTRA_FIELD = "Extra inputs are not permitted"
MISSING_FIELD = "Field required"
WRONG_SHAPE = "Input does not match the expected shape."
STRING = "Input should be a valid string"
OBJECT = "Input should be a valid dictionary"
LIST = "Input should be a valid list"

# Tools of the provider have a date in their type; new dates are added often (AN-16).
PROVIDER_TOOL = re.compile(r"(?:[a-z0-9_]+_20\d{6}|mcp_toolset)\Z")

BlockCheck = Callable[[dict[str, Any], list[Violation]], None]


class BlockSchema(NamedTuple):
    """A block type: its fields, which of them are strings, the only role it may be in, and the check of its values."""

    required: frozenset[str]
    allowed: frozenset[str]
    strings: tuple[str, ...] = ()
    role: str | None = None
    check: BlockCheck | None = None


def with_prefix(prefix: str, violations: Iterable[Violation]) -> Iterator[Violation]:
    """The violations with `prefix` before their paths."""
    for violation in violations:
        path = f"{prefix}.{violation.path}" if violation.path else prefix
        yield Violation(violation.rule, path, violation.message, violation.advisory)


def expected_one_of(values: Iterable[str]) -> str:
    """That a value should be one of several."""
    *most, last = [f"'{value}'" for value in values]
    return f"Input should be {', '.join(most)} or {last}" if most else f"Input should be {last}"


def unknown_fields(rule: str, fields: dict[str, Any], known: Container[str]) -> Iterator[Violation]:
    """A violation for each unknown field."""
    for name in fields:
        if name not in known:
            yield Violation(rule, name, EXTRA_FIELD)


def check_block(block: Any, role: str) -> list[Violation]:
    """The rules one content block breaks by itself (AN-03, AN-05, AN-11 to AN-15, AN-18, AN-20, AN-24)."""
    if not isinstance(block, dict):
        return [Violation("AN-13", "", WRONG_SHAPE)]
    kind = block.get("type")
    schema = BLOCKS.get(kind) if isinstance(kind, str) else None
    if schema is None:
        return [_unknown_type(block)]
    violations: list[Violation] = []
    if block.keys() != schema.required:
        missing = sorted(schema.required - block.keys())
        violations += [Violation("AN-20" if name == "signature" else "AN-13", name, MISSING_FIELD) for name in missing]
        unknown = [name for name in block if name not in schema.allowed]
        # Thinking blocks cannot have cache_control (AN-18).
        violations += [
            Violation("AN-18" if name == "cache_control" else "AN-13", name, EXTRA_FIELD) for name in unknown
        ]
    violations += [
        Violation("AN-13", name, STRING) for name in schema.strings if not isinstance(block.get(name, ""), str)
    ]
    if schema.check is not None:
        schema.check(block, violations)
    if block.get("cache_control") is not None:
        violations.extend(with_prefix("cache_control", cache_control_violations(block["cache_control"])))
    if role == "system":
        if kind not in SYSTEM_CONTENT:
            violations.append(Violation("AN-03", "", f"`{kind}` blocks are not permitted in `system` messages"))
    elif schema.role is not None and role != schema.role:
        violations.append(Violation("AN-14", "", f"`{kind}` blocks can only be in `{schema.role}` messages"))
    return violations


def _unknown_type(block: dict[str, Any], expected: Iterable[str] = ()) -> Violation:
    if "type" not in block:
        return Violation("AN-13", "type", MISSING_FIELD)
    tags = ", ".join(f"'{tag}'" for tag in sorted(expected or BLOCKS))
    message = (
        f"Input tag {quote_value(block['type'])} found using 'type' does not match any of the expected tags: {tags}"
    )
    return Violation("AN-13", "", message)


def cache_control_violations(mark: Any) -> Iterator[Violation]:
    """Violations inside a `cache_control` (AN-18)."""
    if not isinstance(mark, dict):
        yield Violation("AN-18", "", OBJECT)
        return
    if mark.get("type") != "ephemeral":
        yield Violation("AN-18", "type", "Input should be 'ephemeral'" if "type" in mark else MISSING_FIELD)
    if mark.get("ttl") not in (None, "5m", "1h"):
        yield Violation("AN-18", "ttl", "Input should be '5m' or '1h'")
    # `scope` belongs to a beta, and betas are in a header.
    yield from unknown_fields("AN-18", mark, ("type", "ttl", "scope"))


def _check_text(block: dict[str, Any], violations: list[Violation]) -> None:
    text = block.get("text")
    if not isinstance(text, str) or not is_blank(text):
        return
    if not text and block.get("cache_control") is not None:
        violations.append(Violation("AN-18", "text", "cache_control cannot be set for empty text blocks"))
        return
    requirement = "contain non-whitespace text" if text else "be non-empty"
    violations.append(Violation("AN-05", "text", f"text content blocks must {requirement}"))


def _check_thinking(block: dict[str, Any], violations: list[Violation]) -> None:
    signature = block.get("signature")
    if not isinstance(signature, str):
        if "signature" in block:
            violations.append(Violation("AN-20", "signature", STRING))
    elif not signature:
        # Newer models return hidden thinking as empty but signed; unsigned thinking is rejected (AN-20).
        message = "Invalid `signature` in `thinking` block"
        if not block.get("thinking"):
            message = "each thinking block must contain thinking"
        violations.append(Violation("AN-20", "", message))


def _check_id(
    block: dict[str, Any], name: str, pattern: re.Pattern[str], rule: str, violations: list[Violation]
) -> None:
    value = block.get(name)
    if isinstance(value, str) and not pattern.fullmatch(value):
        violations.append(Violation(rule, name, f"String should match pattern '^{pattern.pattern}$'"))


@cache
def _id_pattern(pattern: str) -> re.Pattern[str]:
    """Ids of calls by the capability table, or of a server's calls by their own pattern."""
    return re.compile(pattern or format_capabilities(FORMAT).tool_id_pattern)


def _check_call(ids: str, rule: str, block: dict[str, Any], violations: list[Violation]) -> None:
    _check_id(block, "id", _id_pattern(ids), rule, violations)
    if not isinstance(block.get("input", {}), dict):
        violations.append(Violation("AN-12", "input", OBJECT))
    name = block.get("name")
    if isinstance(name, str) and not 0 < len(name) <= MAX_CALL_NAME:
        bound = f"at most {MAX_CALL_NAME} characters" if name else "at least 1 character"
        violations.append(Violation("AN-12", "name", f"String should have {bound}"))


_check_tool_use = partial(_check_call, "", "AN-11")
_check_server_tool_use = partial(_check_call, SERVER_CALL_ID, "AN-25")


def _check_tool_result(block: dict[str, Any], violations: list[Violation]) -> None:
    _check_id(block, "tool_use_id", _id_pattern(""), "AN-11", violations)
    failed = block.get("is_error")
    if failed is not None and not isinstance(failed, bool):
        violations.append(Violation("AN-15", "is_error", "Input should be a valid boolean"))
    content = block.get("content")
    if not content and failed is True:
        violations.append(Violation("AN-15", "content", "content cannot be empty if `is_error` is true"))
    if isinstance(content, list):
        for index, part in enumerate(content):
            part_violations = _result_part_violations(part, failed is True)
            if part_violations:
                violations.extend(with_prefix(f"content.{index}", part_violations))
    elif content is not None and not isinstance(content, str):
        violations.append(Violation("AN-15", "content", WRONG_SHAPE))


def _result_part_violations(part: Any, failed: bool) -> list[Violation]:
    kind = part.get("type") if isinstance(part, dict) else None
    if isinstance(kind, str) and kind not in RESULT_CONTENT:
        return [Violation("AN-15", "", _unknown_type(part, RESULT_CONTENT).message)]
    # Tool output may be blank: the rule on blank text applies to messages only (AN-05).
    violations = [violation for violation in check_block(part, "user") if violation.rule != "AN-05"]
    if failed and isinstance(kind, str) and kind != "text":
        violations.append(Violation("AN-15", "", "all content must be type `text` if `is_error` is true"))
    return violations


class MediaSource(NamedTuple):
    """A source of an image or a document: its fields, and the media types it accepts."""

    required: frozenset[str]
    media_types: tuple[str, ...] = ()


def _source(*fields: str, media_types: tuple[str, ...] = ()) -> MediaSource:
    return MediaSource(frozenset({"type", *fields}), media_types)


_REFERENCES = {"url": _source("url"), "file": _source("file_id")}


@cache
def _image_sources() -> dict[str, MediaSource]:
    media_types = format_capabilities(FORMAT).image_types or ()
    return _REFERENCES | {"base64": _source("data", "media_type", media_types=media_types)}


DOCUMENT_SOURCES = _REFERENCES | {
    "base64": _source("data", "media_type", media_types=(PDF,)),
    "text": _source("data", "media_type", media_types=(PLAIN_TEXT,)),
    "content": _source("content"),
}


def _check_source(known: dict[str, MediaSource], block: dict[str, Any], violations: list[Violation]) -> None:
    if "source" in block:
        violations.extend(with_prefix("source", _source_violations(block["source"], known)))


def _check_image(block: dict[str, Any], violations: list[Violation]) -> None:
    _check_source(_image_sources(), block, violations)


def _source_violations(source: Any, known: dict[str, MediaSource]) -> Iterator[Violation]:
    if not isinstance(source, dict):
        yield Violation("AN-24", "", WRONG_SHAPE)
        return
    kind = source.get("type")
    row = known.get(kind) if isinstance(kind, str) else None
    if row is None:
        yield Violation("AN-24", "", _unknown_type(source, known).message)
        return
    for name in sorted(row.required - source.keys()):
        yield Violation("AN-24", name, MISSING_FIELD)
    yield from unknown_fields("AN-24", source, row.required)
    if row.media_types and "media_type" in source and source["media_type"] not in row.media_types:
        choices = " or ".join(f"'{media_type}'" for media_type in row.media_types)
        yield Violation("AN-24", "media_type", f"Input should be {choices}")
    for name in ("data", "url", "file_id"):
        if not isinstance(source.get(name, ""), str):
            yield Violation("AN-24", name, STRING)
    data = source.get("data")
    if source.get("type") == "base64" and isinstance(data, str) and data.startswith("data:"):
        yield Violation("AN-24", "data", "invalid base64 data: a `data:` prefix is not part of it")


def _block_schema(
    required: str, optional: str = "", *, strings: str = "", role: str | None = None, check: BlockCheck | None = None
) -> BlockSchema:
    needed = name_set(f"type {required}")
    return BlockSchema(needed, needed | name_set(optional), tuple(strings.split()), role, check)


def _result_schema(optional: str = "") -> BlockSchema:
    return _block_schema("tool_use_id content", f"cache_control {optional}", strings="tool_use_id")


BLOCKS: dict[str, BlockSchema] = {
    "text": _block_schema("text", "cache_control citations", strings="text", check=_check_text),
    "image": _block_schema("source", "cache_control", check=_check_image),
    "document": _block_schema(
        "source", "cache_control citations context title", check=partial(_check_source, DOCUMENT_SOURCES)
    ),
    "search_result": _block_schema("content source title", "cache_control citations", strings="source title"),
    "thinking": _block_schema("signature thinking", strings="thinking", role="assistant", check=_check_thinking),
    "redacted_thinking": _block_schema("data", strings="data", role="assistant"),
    "tool_use": _block_schema(
        "id input name", "cache_control caller toolset_name", strings="id name", role="assistant", check=_check_tool_use
    ),
    "tool_result": _block_schema(
        "tool_use_id", "cache_control content is_error", strings="tool_use_id", role="user", check=_check_tool_result
    ),
    "server_tool_use": _block_schema(
        "id input name", "cache_control caller", strings="id name", check=_check_server_tool_use
    ),
    "mcp_tool_use": _block_schema(
        "id input name server_name", "cache_control", strings="id name server_name", check=_check_tool_use
    ),
    "mcp_tool_result": _block_schema("tool_use_id", "cache_control content is_error", strings="tool_use_id"),
    "mcp_tool_listing": _block_schema("mcp_server_name tools", "cache_control"),
    "web_search_tool_result": _result_schema("caller"),
    "web_fetch_tool_result": _result_schema("caller"),
    "advisor_tool_result": _result_schema(),
    "code_execution_tool_result": _result_schema(),
    "bash_code_execution_tool_result": _result_schema(),
    "text_editor_code_execution_tool_result": _result_schema(),
    "tool_search_tool_result": _result_schema(),
    "container_upload": _block_schema("file_id", "cache_control", strings="file_id"),
    "compaction": _block_schema("", "cache_control content encrypted_content signature tool_changes"),
    "mid_conv_system": _block_schema("content", "cache_control"),
    "fallback": _block_schema("to", "from"),
    "tool_addition": _block_schema("tool", "cache_control"),
    "tool_removal": _block_schema("tool", "cache_control"),
    "tool_reference": _block_schema("tool_name", "cache_control", strings="tool_name"),
    "browser_state": _block_schema("tabs", "cache_control state_changes"),
}

TOOL_FIELDS = name_set(
    "type name description input_schema cache_control strict defer_loading allowed_callers eager_input_streaming "
    "input_examples"
)


def check_tool(tool: Any) -> Iterator[Violation]:
    """The rules one tool definition breaks by itself (AN-16, AN-18)."""
    if not isinstance(tool, dict):
        yield Violation("AN-16", "", WRONG_SHAPE)
        return
    if tool.get("cache_control") is not None:
        yield from with_prefix("cache_control", cache_control_violations(tool["cache_control"]))
    kind = tool.get("type")
    if kind is None or kind == "custom":
        yield from _custom_tool_violations(tool)
    elif not isinstance(kind, str) or not PROVIDER_TOOL.match(kind):
        message = f"Input tag {quote_value(kind)} found using 'type' does not match any of the expected tags"
        yield Violation("AN-16", "", message)


def _custom_tool_violations(tool: dict[str, Any]) -> Iterator[Violation]:
    yield from unknown_fields("AN-16", tool, TOOL_FIELDS)
    name = tool.get("name")
    if not isinstance(name, str):
        yield Violation("AN-16", "name", STRING if "name" in tool else MISSING_FIELD)
    elif not tool_name_matcher(FORMAT)(name):
        pattern = format_capabilities(FORMAT).tool_name_pattern
        yield Violation("AN-16", "name", f"String should match pattern '^{pattern}$'")
    if "input_schema" not in tool:
        yield Violation("AN-16", "input_schema", MISSING_FIELD)
    else:
        yield from with_prefix("input_schema", _input_schema_violations(tool["input_schema"]))
    if tool.get("strict") is True:
        cycle = find_reference_cycle(tool.get("input_schema"))
        if cycle:
            message = (
                f"Invalid schema: Circular reference detected in schema definitions: {' -> '.join(cycle)}. "
                "Self-referencing or mutually-referencing definitions are not supported."
            )
            yield Violation("AN-16", "", message)


def _input_schema_violations(schema: Any) -> Iterator[Violation]:
    if not isinstance(schema, dict):
        yield Violation("AN-16", "", WRONG_SHAPE)
        return
    if schema.get("type") != "object":
        yield Violation("AN-16", "type", "Input should be 'object'" if "type" in schema else MISSING_FIELD)
    if any(key in schema for key in COMBINATORS):
        yield Violation("AN-16", "", "input_schema does not support oneOf, allOf, or anyOf at the top level")
    properties = schema.get("properties")
    if isinstance(properties, dict) and not all(map(is_property_key, properties)):
        yield Violation("AN-16", "properties", f"Property keys should match pattern '^{PROPERTY_KEY}$'")
