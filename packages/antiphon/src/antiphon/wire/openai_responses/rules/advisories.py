"""What only some models or hosts refuse in a Responses request."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from antiphon.wire.capabilities import format_capabilities
from antiphon.wire.openai_responses import FORMAT
from antiphon.wire.openai_responses.limits import (
    CALL_ITEMS,
    CHAT_ONLY_FIELDS,
    CHAT_ONLY_PARAMETERS,
    MESSAGE_FIELDS,
    OUTPUT_PARTS,
    PARAMETERS,
    RENAMED_FROM_CHAT,
    RESULT_ITEMS,
    RESULT_PARTS,
)
from antiphon.wire.rules import RuleContext, Violation, advisory
from antiphon.wire.tool_calls import PORTABLE_NAME_LENGTH
from antiphon.wire.vendors import openai
from antiphon.wire.vendors.openai import quote_value


def check_advisories(context: RuleContext) -> None:
    if context.advisories:
        items = context.body.get("input")
        context.violations.extend(_find_advisories(context.body, items if isinstance(items, list) else []))


def _find_advisories(body: dict[str, Any], items: list[Any]) -> Iterator[Violation]:
    """What some models or hosts refuse in a body."""
    if not body.get("model") and body.get("prompt") is None:  # some hosts name it in the URL (OC-01, errata)
        yield advisory("OR-01", "model", "you must provide a model parameter")
    for name in body:
        if name not in PARAMETERS and name not in RENAMED_FROM_CHAT and name not in CHAT_ONLY_PARAMETERS:
            yield openai.unknown_field("OR-18", quote_value(name), advisory=True)
    entries = [(index, item) for index, item in enumerate(items) if isinstance(item, dict)]
    for index, item in entries:
        yield from _field_advisories(index, item)
        if body.get("store") is False:
            yield from _unstored_advisories(index, item)
    yield from _reasoning_advisories(items)
    yield from _pair_advisories(entries)
    tools, max_length = body.get("tools"), format_capabilities(FORMAT).tool_name_length or sys.maxsize
    for place, tool in enumerate(tools if isinstance(tools, list) else ()):
        tool_name = tool.get("name") if isinstance(tool, dict) else None
        if isinstance(tool_name, str) and PORTABLE_NAME_LENGTH < len(tool_name) <= max_length:
            path = f"tools[{place}].name"
            yield openai.string_too_long("OR-12", path, len(tool_name), PORTABLE_NAME_LENGTH, advisory=True)


def _field_advisories(index: int, item: dict[str, Any]) -> Iterator[Violation]:
    if item.get("type") not in (None, "message"):
        return
    for field in item:
        if field not in MESSAGE_FIELDS and field not in CHAT_ONLY_FIELDS:
            yield openai.unknown_field("OR-19", f"input[{index}].{quote_value(field)}", advisory=True)
    content = item.get("content")
    if item.get("role") != "assistant" and isinstance(content, list):
        for place, part in enumerate(content):
            if isinstance(part, dict) and part.get("type") in OUTPUT_PARTS:
                text = f"Invalid value: '{part['type']}'. Supported values are: {openai.quote_list(RESULT_PARTS)}."
                yield advisory("OR-23", f"input[{index}].content[{place}]", text)


def _unstored_advisories(index: int, item: dict[str, Any]) -> Iterator[Violation]:
    kind, item_id = item.get("type"), item.get("id")
    lost = kind == "item_reference" or (kind == "reasoning" and not item.get("encrypted_content"))
    if lost and item_id is not None:
        kept = "Items are not persisted when `store` is set to false."
        remedy = "Try again with `store` set to true, or remove this item from your input."
        yield advisory(
            "OR-22", f"input[{index}].id", f"Item with id '{quote_value(item_id)}' not found. {kept} {remedy}"
        )


def _reasoning_advisories(items: list[Any]) -> Iterator[Violation]:
    for index, item in enumerate(items):
        if isinstance(item, dict) and item.get("type") == "reasoning" and item.get("id") is not None:
            following = items[index + 1] if index + 1 < len(items) else None
            if not isinstance(following, dict) or following.get("id") is None:
                of_type = "of type 'reasoning' was provided without its required following item."
                yield advisory("OR-21", f"input[{index}]", f"Item '{quote_value(item['id'])}' {of_type}")


def _pair_advisories(entries: list[tuple[int, dict[str, Any]]]) -> Iterator[Violation]:
    """Pairs that OpenAI accepts and others may not: repeated ids, outputs before calls or apart from them."""
    calls: dict[str, int] = {}
    outputs: set[str] = set()
    last_message = -1
    for index, item in entries:
        kind, call_id, path = item.get("type"), item.get("call_id"), f"input[{index}].call_id"
        if kind in (None, "message"):
            last_message = index
        elif isinstance(call_id, str) and kind in CALL_ITEMS:
            if call_id in calls:
                yield advisory("OR-23", path, f"Duplicate value for 'call_id' of '{quote_value(call_id)}'.")
            if call_id in outputs:
                text = f"No tool call found for function call output with call_id {quote_value(call_id)}."
                yield advisory("OR-07", path, text)
            calls.setdefault(call_id, index)
        elif isinstance(call_id, str) and kind in RESULT_ITEMS:
            if call_id in outputs:
                yield advisory("OR-23", path, f"Duplicate value for 'call_id' of '{quote_value(call_id)}'.")
            elif last_message > calls.get(call_id, index):
                yield advisory("OR-06", path, f"No tool output found for tool call {quote_value(call_id)}.")
            outputs.add(call_id)
