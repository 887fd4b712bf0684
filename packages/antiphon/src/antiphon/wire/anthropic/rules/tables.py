"""What each object of a Messages request may be, as rows: blocks, messages, tools, and the body around them.

`BLOCKS` has one row per block type, after the provider's OpenAPI; a new block type is a new row. Results of the provider's own
tools are not examined: they are sent back unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from antiphon.wire import rules as rows
from antiphon.wire.anthropic import FORMAT
from antiphon.wire.anthropic.limits import (
    CACHE_CONTROL,
    CHOICES,
    EFFORTS,
    MIN_BUDGET,
    PARAMETER_TABLE,
    PDF,
    PLAIN_TEXT,
    is_blank,
)
from antiphon.wire.anthropic.shapes import block_type
from antiphon.wire.anthropic.tools import SCHEMAS
from antiphon.wire.capabilities import format_capabilities, tool_name_matcher
from antiphon.wire.parameters import Range
from antiphon.wire.rules import ANY, STRING, Checked, Items, OneOf, String, Tagged, each, either, need, record
from antiphon.wire.rules.book import CrossRule, Finding
from antiphon.wire.tools.schema import find_reference_cycle, grammar_policy, problems

ROLES = ("user", "assistant", "system")
_SYSTEM_CONTENT = frozenset({"text", "tool_addition", "tool_removal"})
_MODEL_BLOCKS = frozenset({"thinking", "redacted_thinking", "tool_use"})
_MAX_MESSAGES = 100_000
_MAX_CALL_NAME = 200
# Tools of the provider have a date in their type; new dates are added often (AN-16).
_is_provider_tool = re.compile(r"(?:[a-z0-9_]+_20\d{6}|mcp_toolset)\Z").match

_UNMARKED = rows.Refused(rule="AN-18")  # thinking blocks cannot have a breakpoint


def _pattern(rule: str, pattern: str | Callable[[], str]) -> String:
    def accepts(text: str) -> Any:
        return re.fullmatch(pattern if isinstance(pattern, str) else pattern(), text)

    return String(rule=rule, shape="AN-13", accepts=accepts, name="has characters that are not allowed")


_CALL_ID = _pattern("AN-11", lambda: format_capabilities(FORMAT).tool_id_pattern)
_SERVER_CALL_ID = _pattern("AN-25", r"srvtoolu_[a-zA-Z0-9_]+")
_CALL_NAME = String(rule="AN-12", shape="AN-13", min_length=1, max_length=_MAX_CALL_NAME)
_INPUT = rows.OBJECT.under("AN-12")


def _block(*also: CrossRule, **fields: rows.Check) -> rows.Object:
    marks = {"cache_control": CACHE_CONTROL}
    return rows.Object(rule="AN-13", fields={"type": ANY, **marks, **fields}, also=also, has_nulls=True)


def _text_block(blank_rule: str) -> rows.Object:
    """A text; blank ones are refused by `blank_rule`, and marked ones must not be empty."""

    def find_blank(block: dict[str, Any], _: Checked) -> Iterator[Finding]:
        text, is_marked = block.get("text"), block.get("cache_control") is not None
        if isinstance(text, str) and is_blank(text) and (text or not is_marked):
            yield "text", "must contain more than whitespace"

    def find_marked(block: dict[str, Any], _: Checked) -> Iterator[Finding]:
        if block.get("text") == "" and block.get("cache_control") is not None:
            yield "text", "an empty text cannot have a breakpoint"

    blank = (CrossRule(blank_rule, find_blank),) if blank_rule else ()
    return _block(*blank, CrossRule("AN-18", find_marked), text=need(STRING), citations=ANY)


def _image_type(media_type: str) -> bool:
    return format_capabilities(FORMAT).accepts_image(media_type)


_BASE64 = String(accepts=lambda data: not data.startswith("data:"), name="a `data:` prefix is not part of base64")


def _source(**fields: rows.Check) -> rows.Object:
    return rows.Object(
        rule="AN-24",
        fields={"type": ANY, **{name: need(row) for name, row in fields.items()}},
        has_nulls=True,
    )


_REFERENCES = {"url": _source(url=STRING), "file": _source(file_id=STRING)}
_IMAGE_SOURCE = Tagged(
    rule="AN-24",
    kinds={
        **_REFERENCES,
        "base64": _source(data=_BASE64, media_type=String(accepts=_image_type, name="is not supported")),
    },
)
_DOCUMENT_SOURCE = Tagged(
    rule="AN-24",
    kinds={
        **_REFERENCES,
        "base64": _source(data=_BASE64, media_type=OneOf(values=(PDF,))),
        "text": _source(data=STRING, media_type=OneOf(values=(PLAIN_TEXT,))),
        "content": _source(content=ANY),
    },
)
_IMAGE = _block(source=need(_IMAGE_SOURCE))
_DOCUMENT = _block(source=need(_DOCUMENT_SOURCE), citations=ANY, context=ANY, title=ANY)
_SEARCH_RESULT = _block(content=need(ANY), source=need(STRING), title=need(STRING), citations=ANY)
_TOOL_REFERENCE = _block(tool_name=need(STRING))
_BROWSER_STATE = _block(tabs=need(ANY), state_changes=ANY)


def _find_unsigned(block: dict[str, Any], _: Checked) -> Iterator[Finding]:
    if block.get("signature") == "":  # newer models return hidden thinking as empty but signed
        yield "", "a thinking block must have its signature"


def _find_failed_content(block: dict[str, Any], _: Checked) -> Iterator[Finding]:
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
_RESULT_PARTS = Tagged(
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
_RESULT_CONTENT = either({str: ANY, list: Items(item=_RESULT_PARTS)}, "AN-15")


def _call_block(call_id: String, **fields: rows.Check) -> rows.Object:
    return _block(id=need(call_id), name=need(_CALL_NAME), input=need(_INPUT), **fields)


def _server_result(**fields: rows.Check) -> rows.Object:
    return _block(tool_use_id=need(STRING), content=need(ANY), **fields)


BLOCKS: dict[str, rows.Check] = {
    "text": _text_block("AN-05"),
    "image": _IMAGE,
    "document": _DOCUMENT,
    "search_result": _SEARCH_RESULT,
    "thinking": _block(
        CrossRule("AN-20", _find_unsigned),
        cache_control=_UNMARKED,
        thinking=need(STRING),
        signature=need(STRING.under("AN-20"), "AN-20"),
    ),
    "redacted_thinking": _block(cache_control=_UNMARKED, data=need(STRING)),
    "tool_use": _call_block(_CALL_ID, caller=ANY, toolset_name=ANY),
    "tool_result": _block(
        CrossRule("AN-15", _find_failed_content),
        tool_use_id=need(_CALL_ID),
        content=_RESULT_CONTENT,
        is_error=rows.BOOLEAN.under("AN-15"),
    ),
    "server_tool_use": _call_block(_SERVER_CALL_ID, caller=ANY),
    "mcp_tool_use": _call_block(_CALL_ID, server_name=need(STRING)),
    "mcp_tool_result": _block(tool_use_id=need(STRING), content=ANY, is_error=ANY),
    "mcp_tool_listing": _block(mcp_server_name=need(ANY), tools=need(ANY)),
    "web_search_tool_result": _server_result(caller=ANY),
    "web_fetch_tool_result": _server_result(caller=ANY),
    "advisor_tool_result": _server_result(),
    "code_execution_tool_result": _server_result(),
    "bash_code_execution_tool_result": _server_result(),
    "text_editor_code_execution_tool_result": _server_result(),
    "tool_search_tool_result": _server_result(),
    "container_upload": _block(file_id=need(STRING)),
    "compaction": _block(content=ANY, encrypted_content=ANY, signature=ANY, tool_changes=ANY),
    "mid_conv_system": _block(content=need(ANY)),
    "fallback": _block(cache_control=_UNMARKED, to=need(ANY), **{"from": ANY}),
    "tool_addition": _block(tool=need(ANY)),
    "tool_removal": _block(tool=need(ANY)),
    "tool_reference": _TOOL_REFERENCE,
    "browser_state": _BROWSER_STATE,
}
_CONTENT = either({str: ANY, list: Items(item=Tagged(rule="AN-13", kinds=BLOCKS))}, "AN-02")


def _find_blank_text(message: dict[str, Any], _: Checked) -> Iterator[Finding]:
    content = message.get("content")
    if isinstance(content, str) and content and content.isspace():
        yield "content", "must contain more than whitespace"


def _find_in_system(message: dict[str, Any], _: Checked) -> Iterator[Finding]:
    for place, block in each(message, "content"):
        kind = block_type(block)
        if kind in BLOCKS and kind not in _SYSTEM_CONTENT:
            yield place, f"{kind} is not allowed in a system message"


def _refuse_blocks(kinds: frozenset[str]) -> CrossRule:
    def find(message: dict[str, Any], _: Checked) -> Iterator[Finding]:
        for place, block in each(message, "content"):
            if (kind := block_type(block)) in kinds:
                yield place, f"{kind} is not allowed in a message of this role"

    return CrossRule("AN-14", find)


def _message(blocks: CrossRule, **fields: rows.Check) -> rows.Object:
    return rows.Object(
        rule="AN-02",
        fields={"role": ANY, "content": need(_CONTENT), **fields},
        has_nulls=True,
        also=(CrossRule("AN-05", _find_blank_text), blocks),
    )


_MESSAGES = Tagged(
    rule="AN-02",
    tag="role",
    at_tag=True,
    kinds={
        "user": _message(_refuse_blocks(_MODEL_BLOCKS)),
        "assistant": _message(_refuse_blocks(frozenset({"tool_result"}))),
        # A beta lets a system message set the effort from there on, and betas are in a header.
        "system": _message(CrossRule("AN-03", _find_in_system), output_config=ANY),
    },
)


def _find_schema_root(schema: dict[str, Any], _: Checked) -> Iterator[Finding]:
    yield from SCHEMAS.root_problems(schema)


def _find_cycle(tool: dict[str, Any], _: Checked) -> Iterator[Finding]:
    cycle = find_reference_cycle(tool.get("input_schema")) if tool.get("strict") is True else []
    if cycle:
        yield "", f"the schema of a strict tool must not refer to itself: {' -> '.join(cycle)}"


_INPUT_SCHEMA = rows.Object(
    rule="AN-16",
    fields={"type": need(OneOf(values=("object",)))},
    unknown="",
    has_nulls=True,
    also=(CrossRule("AN-16", _find_schema_root),),
)
_OTHER_TOOL_FIELDS = rows.name_list(
    "type description strict defer_loading allowed_callers eager_input_streaming input_examples"
)
_CUSTOM_TOOL = rows.Object(
    rule="AN-16",
    fields={
        **dict.fromkeys(_OTHER_TOOL_FIELDS, ANY),
        "name": need(String(accepts=lambda name: tool_name_matcher(FORMAT)(name))),
        "input_schema": need(_INPUT_SCHEMA),
        "cache_control": CACHE_CONTROL,
    },
    has_nulls=True,
    also=(CrossRule("AN-16", _find_cycle),),
)


class _Tool(rows.Check, frozen=True):
    """A declared tool: the client's own, or one of the provider, which has a date in its type."""

    custom: rows.Check
    provided: rows.Check

    def check(self, value: Any, at: rows.Path, found: Checked) -> None:
        kind = value.get("type") if type(value) is dict else None
        if kind is None or kind == "custom":
            self.custom.check(value, at, found)
            return
        self.provided.check(value, at, found)
        if not isinstance(kind, str) or not _is_provider_tool(kind):
            found.add(self.rule, at, "unknown type of tool")


def _find_output_format(output_format: dict[str, Any], found: Checked) -> Iterator[Finding]:
    refused = problems(output_format.get("schema"), grammar_policy(found.model, "AN-32", ""))
    return (("schema", problem) for problem in refused)


_OUTPUT_FORMAT = rows.Object(
    rule="AN-32",
    fields={"type": need(OneOf(values=("json_schema",))), "schema": need(rows.OBJECT)},
    unknown="",
    has_nulls=True,
    also=(CrossRule("AN-32", _find_output_format),),
)
_CHOICE = rows.Object(rule="AN-17", fields=dict.fromkeys(("type", "name", "disable_parallel_tool_use"), ANY))
_BUDGET = Range(rule="AN-19", minimum=MIN_BUDGET, is_whole=True)
_SYSTEM_TEXT = Tagged(rule="AN-26", kinds={"text": _text_block("AN-26")}, missing="AN-26")
BODY = rows.Object(
    rule="AN-01",
    unknown="",
    fields={
        **PARAMETER_TABLE.checks(),
        "metadata": rows.Object(rule="AN-23", fields=PARAMETER_TABLE.checks("metadata")),
        "messages": need(Items(item=_MESSAGES, min_length=1, max_length=_MAX_MESSAGES)),
        "output_config": rows.Object(
            rule="AN-32", fields={"effort": OneOf(values=EFFORTS), "format": _OUTPUT_FORMAT, "task_budget": ANY}
        ),
        "output_format": _OUTPUT_FORMAT,
        "tools": Items(rule="AN-16", item=_Tool(custom=_CUSTOM_TOOL, provided=record(cache_control=CACHE_CONTROL))),
        "tool_choice": Tagged(rule="AN-17", kinds=dict.fromkeys(CHOICES, _CHOICE)),
        "thinking": Tagged(
            rule="AN-19",
            kinds={"enabled": record(budget_tokens=need(_BUDGET)), "disabled": ANY, "adaptive": ANY},
        ),
        "system": either({str: ANY, list: Items(item=_SYSTEM_TEXT)}, "AN-26"),
    },
    has_nulls=True,
)
