"""What each object of a Messages request may be, as rows: blocks, messages, tools, and the body around them.

`BLOCKS` has one row per block type, after the provider's OpenAPI; a new block type is a new row. Results of the provider's own
tools are not examined: they are sent back unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from antiphon.wire import rules as rows
from antiphon.wire.anthropic import FORMAT
from antiphon.wire.anthropic.limits import (
    EFFORTS,
    FORCED_CHOICES,
    MIN_BUDGET,
    PDF,
    PLAIN_TEXT,
    is_blank,
)
from antiphon.wire.anthropic.parameters import (
    PARAMETER_TABLE,
)
from antiphon.wire.anthropic.shapes import block_type
from antiphon.wire.anthropic.tools import SCHEMAS
from antiphon.wire.capabilities import format_capabilities, tool_name_matcher
from antiphon.wire.rules.limits import Range
from antiphon.wire.schema import MAX_SCHEMA_PROBLEMS, find_reference_cycle, grammar_policy, problems

ROLES = ("user", "assistant", "system")
_SYSTEM_CONTENT = frozenset({"text", "tool_addition", "tool_removal"})
_MODEL_BLOCKS = frozenset({"thinking", "redacted_thinking", "tool_use"})
_MAX_MESSAGES = 100_000
_MAX_CALL_NAME = 200
# Tools of the provider have a date in their type; new dates are added often (AN-16).
_is_provider_tool = re.compile(r"(?:[a-z0-9_]+_20\d{6}|mcp_toolset)\Z").match

CACHE_CONTROL = rows.Object(
    rule="AN-18",
    # `scope` belongs to a beta, and betas are in a header.
    fields={
        "type": rows.need(rows.OneOf(values=("ephemeral",))),
        "ttl": rows.OneOf(values=("5m", "1h")),
        "scope": rows.ANY,
    },
    has_nulls=True,
)
_UNMARKED = rows.Refused(rule="AN-18")  # thinking blocks cannot have a breakpoint


def _pattern(rule: str, pattern: str | Callable[[], str]) -> rows.String:
    def accepts(text: str) -> Any:
        return re.fullmatch(pattern if isinstance(pattern, str) else pattern(), text)

    return rows.String(rule=rule, shape="AN-13", accepts=accepts, name="has characters that are not allowed")


_CALL_ID = _pattern("AN-11", lambda: format_capabilities(FORMAT).tool_id_pattern)
_SERVER_CALL_ID = _pattern("AN-25", r"srvtoolu_[a-zA-Z0-9_]+")
_CALL_NAME = rows.String(rule="AN-12", shape="AN-13", min_length=1, max_length=_MAX_CALL_NAME)
_INPUT = rows.OBJECT.under("AN-12")


def _block(*also: rows.CrossRule, **fields: rows.Check) -> rows.Object:
    marks = {"cache_control": CACHE_CONTROL}
    return rows.Object(rule="AN-13", fields={"type": rows.ANY, **marks, **fields}, also=also, has_nulls=True)


def _text_block(blank_rule: str) -> rows.Object:
    """A text; blank ones are refused by `blank_rule`, and marked ones must not be empty."""

    def find_blank(block: dict[str, Any], _: rows.Checked) -> Iterator[rows.Finding]:
        text, is_marked = block.get("text"), block.get("cache_control") is not None
        if isinstance(text, str) and is_blank(text) and (text or not is_marked):
            yield "text", "must contain more than whitespace"

    def find_marked(block: dict[str, Any], _: rows.Checked) -> Iterator[rows.Finding]:
        if block.get("text") == "" and block.get("cache_control") is not None:
            yield "text", "an empty text cannot have a breakpoint"

    blank = (rows.CrossRule(blank_rule, find_blank),) if blank_rule else ()
    return _block(*blank, rows.CrossRule("AN-18", find_marked), text=rows.need(rows.STRING), citations=rows.ANY)


class _MediaType(rows.Check, frozen=True):
    """The type of inline media; images have those of the format."""

    media_types: tuple[str, ...] = ()

    def check(self, value: Any, at: rows.Path, found: rows.Checked) -> None:
        rows.OneOf(rule=self.rule, values=self.media_types or format_capabilities(FORMAT).image_types or ()).check(
            value, at, found
        )


_BASE64 = rows.String(accepts=lambda data: not data.startswith("data:"), name="a `data:` prefix is not part of base64")


def _source(**fields: rows.Check) -> rows.Object:
    return rows.Object(
        rule="AN-24",
        fields={"type": rows.ANY, **{name: rows.need(row) for name, row in fields.items()}},
        has_nulls=True,
    )


_REFERENCES = {"url": _source(url=rows.STRING), "file": _source(file_id=rows.STRING)}
_IMAGE_SOURCE = rows.Tagged(
    rule="AN-24", kinds={**_REFERENCES, "base64": _source(data=_BASE64, media_type=_MediaType())}
)
_DOCUMENT_SOURCE = rows.Tagged(
    rule="AN-24",
    kinds={
        **_REFERENCES,
        "base64": _source(data=_BASE64, media_type=_MediaType(media_types=(PDF,))),
        "text": _source(data=rows.STRING, media_type=_MediaType(media_types=(PLAIN_TEXT,))),
        "content": _source(content=rows.ANY),
    },
)
_IMAGE = _block(source=rows.need(_IMAGE_SOURCE))
_DOCUMENT = _block(source=rows.need(_DOCUMENT_SOURCE), citations=rows.ANY, context=rows.ANY, title=rows.ANY)
_SEARCH_RESULT = _block(
    content=rows.need(rows.ANY), source=rows.need(rows.STRING), title=rows.need(rows.STRING), citations=rows.ANY
)
_TOOL_REFERENCE = _block(tool_name=rows.need(rows.STRING))
_BROWSER_STATE = _block(tabs=rows.need(rows.ANY), state_changes=rows.ANY)


def _find_unsigned(block: dict[str, Any], _: rows.Checked) -> Iterator[rows.Finding]:
    if block.get("signature") == "":  # newer models return hidden thinking as empty but signed
        yield "", "a thinking block must have its signature"


def _find_failed_content(block: dict[str, Any], _: rows.Checked) -> Iterator[rows.Finding]:
    content = block.get("content")
    if block.get("is_error") is not True:
        return
    if not content:
        yield "content", "must not be empty if is_error is true"
    for index, part in enumerate(content if isinstance(content, list) else ()):
        kind = part.get("type") if isinstance(part, dict) else None
        if isinstance(kind, str) and kind != "text" and kind in _RESULT_PARTS.kinds:
            yield ("content", index), "must be text if is_error is true"


# Tool output may be blank: the rule on blank text applies to messages only (AN-05).
_RESULT_PARTS = rows.Tagged(
    rule="AN-15",
    missing="AN-13",
    shape="AN-13",
    kinds={
        "text": _text_block(""),
        "image": _IMAGE,
        "document": _DOCUMENT,
        "search_result": _SEARCH_RESULT,
        "tool_reference": _TOOL_REFERENCE,
        "browser_state": _BROWSER_STATE,
    },
)
_RESULT_CONTENT = rows.Either(
    rule="AN-15", rows={str: rows.ANY, list: rows.Items(item=_RESULT_PARTS)}, name="a string or an array"
)


def _call_block(call_id: rows.String, **fields: rows.Check) -> rows.Object:
    return _block(id=rows.need(call_id), name=rows.need(_CALL_NAME), input=rows.need(_INPUT), **fields)


def _server_result(**fields: rows.Check) -> rows.Object:
    return _block(tool_use_id=rows.need(rows.STRING), content=rows.need(rows.ANY), **fields)


BLOCKS: dict[str, rows.Check] = {
    "text": _text_block("AN-05"),
    "image": _IMAGE,
    "document": _DOCUMENT,
    "search_result": _SEARCH_RESULT,
    "thinking": _block(
        rows.CrossRule("AN-20", _find_unsigned),
        cache_control=_UNMARKED,
        thinking=rows.need(rows.STRING),
        signature=rows.need(rows.STRING.under("AN-20"), "AN-20"),
    ),
    "redacted_thinking": _block(cache_control=_UNMARKED, data=rows.need(rows.STRING)),
    "tool_use": _call_block(_CALL_ID, caller=rows.ANY, toolset_name=rows.ANY),
    "tool_result": _block(
        rows.CrossRule("AN-15", _find_failed_content),
        tool_use_id=rows.need(_CALL_ID),
        content=_RESULT_CONTENT,
        is_error=rows.BOOLEAN.under("AN-15"),
    ),
    "server_tool_use": _call_block(_SERVER_CALL_ID, caller=rows.ANY),
    "mcp_tool_use": _call_block(_CALL_ID, server_name=rows.need(rows.STRING)),
    "mcp_tool_result": _block(tool_use_id=rows.need(rows.STRING), content=rows.ANY, is_error=rows.ANY),
    "mcp_tool_listing": _block(mcp_server_name=rows.need(rows.ANY), tools=rows.need(rows.ANY)),
    "web_search_tool_result": _server_result(caller=rows.ANY),
    "web_fetch_tool_result": _server_result(caller=rows.ANY),
    "advisor_tool_result": _server_result(),
    "code_execution_tool_result": _server_result(),
    "bash_code_execution_tool_result": _server_result(),
    "text_editor_code_execution_tool_result": _server_result(),
    "tool_search_tool_result": _server_result(),
    "container_upload": _block(file_id=rows.need(rows.STRING)),
    "compaction": _block(content=rows.ANY, encrypted_content=rows.ANY, signature=rows.ANY, tool_changes=rows.ANY),
    "mid_conv_system": _block(content=rows.need(rows.ANY)),
    "fallback": _block(cache_control=_UNMARKED, to=rows.need(rows.ANY), **{"from": rows.ANY}),
    "tool_addition": _block(tool=rows.need(rows.ANY)),
    "tool_removal": _block(tool=rows.need(rows.ANY)),
    "tool_reference": _TOOL_REFERENCE,
    "browser_state": _BROWSER_STATE,
}
_CONTENT = rows.Either(
    rule="AN-02",
    rows={str: rows.ANY, list: rows.Items(item=rows.Tagged(rule="AN-13", kinds=BLOCKS))},
    name="a string or an array",
)


def _find_blank_text(message: dict[str, Any], _: rows.Checked) -> Iterator[rows.Finding]:
    content = message.get("content")
    if isinstance(content, str) and content and content.isspace():
        yield "content", "must contain more than whitespace"


def _find_wrong_blocks(message: dict[str, Any], _: rows.Checked) -> Iterator[tuple[str, rows.Finding]]:
    role, content = message.get("role"), message.get("content")
    for position, block in enumerate(content if isinstance(content, list) else ()):
        kind = block_type(block)
        if kind not in BLOCKS:
            continue
        if role == "system":
            if kind not in _SYSTEM_CONTENT:
                yield "AN-03", (("content", position), f"{kind} is not allowed in a system message")
        elif (kind in _MODEL_BLOCKS and role != "assistant") or (kind == "tool_result" and role == "assistant"):
            yield "AN-14", (("content", position), f"{kind} is not allowed in a message of this role")


def _message(**fields: rows.Check) -> rows.Object:
    return rows.Object(
        rule="AN-02",
        fields={"role": rows.ANY, "content": rows.need(_CONTENT), **fields},
        has_nulls=True,
        also=(rows.CrossRule("AN-05", _find_blank_text), rows.CrossRules(("AN-03", "AN-14"), _find_wrong_blocks)),
    )


_MESSAGE = _message()
# A beta lets a system message set the effort from there on, and betas are in a header.
_MESSAGES = rows.Tagged(
    rule="AN-02",
    tag="role",
    at_tag=True,
    kinds={"user": _MESSAGE, "assistant": _MESSAGE, "system": _message(output_config=rows.ANY)},
)


def _find_schema_root(schema: dict[str, Any], _: rows.Checked) -> Iterator[rows.Finding]:
    yield from SCHEMAS.root_problems(schema)


def _find_cycle(tool: dict[str, Any], _: rows.Checked) -> Iterator[rows.Finding]:
    cycle = find_reference_cycle(tool.get("input_schema")) if tool.get("strict") is True else []
    if cycle:
        yield "", f"the schema of a strict tool must not refer to itself: {' -> '.join(cycle)}"


_INPUT_SCHEMA = rows.Object(
    rule="AN-16",
    fields={"type": rows.need(rows.OneOf(values=("object",)))},
    unknown="",
    has_nulls=True,
    also=(rows.CrossRule("AN-16", _find_schema_root),),
)
_CUSTOM_TOOL = rows.Object(
    rule="AN-16",
    fields={
        **dict.fromkeys(
            (
                "type",
                "description",
                "strict",
                "defer_loading",
                "allowed_callers",
                "eager_input_streaming",
                "input_examples",
            ),
            rows.ANY,
        ),
        "name": rows.need(rows.String(accepts=lambda name: tool_name_matcher(FORMAT)(name))),
        "input_schema": rows.need(_INPUT_SCHEMA),
        "cache_control": CACHE_CONTROL,
    },
    has_nulls=True,
    also=(rows.CrossRule("AN-16", _find_cycle),),
)
_PROVIDER_TOOL = rows.Object(rule="AN-16", fields={"cache_control": CACHE_CONTROL}, unknown="")


class _Tool(rows.Check, frozen=True):
    """A declared tool: the client's own, or one of the provider, which has a date in its type."""

    def check(self, value: Any, at: rows.Path, found: rows.Checked) -> None:
        kind = value.get("type") if type(value) is dict else None
        if type(value) is not dict or kind is None or kind == "custom":
            _CUSTOM_TOOL.check(value, at, found)
            return
        _PROVIDER_TOOL.check(value, at, found)
        if not isinstance(kind, str) or not _is_provider_tool(kind):
            found.add(self.rule, at, "unknown type of tool")

    @property
    def rules(self) -> Iterator[str]:
        yield from _CUSTOM_TOOL.rules


_OUTPUT_FORMAT = rows.Object(
    rule="AN-32",
    fields={"type": rows.need(rows.OneOf(values=("json_schema",))), "schema": rows.need(rows.OBJECT)},
    unknown="",
    has_nulls=True,
    also=(rows.CrossRule("AN-32", lambda wanted, found: _find_output_format(wanted, found)),),
)


def _find_output_format(output_format: dict[str, Any], found: rows.Checked) -> Iterator[rows.Finding]:
    refused = problems(output_format.get("schema"), grammar_policy(found.model, "AN-32", ""))
    yield from (("schema", problem) for problem in islice(refused, MAX_SCHEMA_PROBLEMS))


_SYSTEM_TEXT = rows.Tagged(rule="AN-26", kinds={"text": _text_block("AN-26")}, missing="AN-26")
BODY = rows.Object(
    rule="AN-01",
    unknown="",
    fields={
        **PARAMETER_TABLE.checks(),
        "metadata": rows.Object(rule="AN-23", fields=PARAMETER_TABLE.checks("metadata")),
        "messages": rows.need(rows.Items(item=_MESSAGES, min_length=1, max_length=_MAX_MESSAGES)),
        "output_config": rows.Object(
            rule="AN-32",
            fields={"effort": rows.OneOf(values=EFFORTS), "format": _OUTPUT_FORMAT, "task_budget": rows.ANY},
        ),
        "output_format": _OUTPUT_FORMAT,
        "tools": rows.Items(rule="AN-16", item=_Tool(rule="AN-16")),
        "tool_choice": rows.Tagged(
            rule="AN-17",
            kinds=dict.fromkeys(
                ("auto", *FORCED_CHOICES, "none"),
                rows.Object(
                    rule="AN-17", fields=dict.fromkeys(("type", "name", "disable_parallel_tool_use"), rows.ANY)
                ),
            ),
        ),
        "thinking": rows.Tagged(
            rule="AN-19",
            kinds={
                "enabled": rows.Object(
                    rule="AN-19",
                    fields={"budget_tokens": rows.need(Range(rule="AN-19", minimum=MIN_BUDGET, is_whole=True))},
                    unknown="",
                ),
                **dict.fromkeys(("disabled", "adaptive"), rows.ANY),
            },
        ),
        "system": rows.Either(
            rule="AN-26", rows={str: rows.ANY, list: rows.Items(item=_SYSTEM_TEXT)}, name="a string or an array"
        ),
    },
    has_nulls=True,
)
