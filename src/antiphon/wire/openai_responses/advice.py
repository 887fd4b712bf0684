"""What only some models or hosts refuse of a Responses request, or what the rule book disputes: the advisories.

They have a pass of their own, so that the everyday check does not pay for them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from antiphon.wire.openai_responses.vocabulary import (
    CALLS,
    CHAT_ONLY,
    FOREIGN_FIELDS,
    MOVED,
    OUTPUT_PARTS,
    PARAMETERS,
    RESULT_PARTS,
    RESULTS,
)
from antiphon.wire.rules import Violation, name_set
from antiphon.wire.vendors import openai
from antiphon.wire.vendors.openai import quote_value

_MESSAGE_FIELDS = name_set("type role content id status phase agent")


def _advice(rule: str, path: str, message: str) -> Violation:
    return Violation(rule, path, message, advisory=True)


def advise(body: dict[str, Any], items: list[Any]) -> Iterator[Violation]:
    """What is wrong with a body at some models or hosts."""
    if not body.get("model") and body.get("prompt") is None:  # some hosts name it in the URL (OC-01, errata)
        yield _advice("OR-01", "model", "you must provide a model parameter")
    for name in body:
        if name not in PARAMETERS and name not in MOVED and name not in CHAT_ONLY:
            yield openai.unknown_field("OR-18", quote_value(name), advisory=True)
    entries = [(index, item) for index, item in enumerate(items) if isinstance(item, dict)]
    for index, item in entries:
        yield from _advise_fields(index, item)
        if body.get("store") is False:
            yield from _advise_unstored(index, item)
    yield from _advise_reasoning(items)
    yield from _advise_pairs(entries)
    tools = body.get("tools")
    for place, tool in enumerate(tools if isinstance(tools, list) else ()):
        tool_name = tool.get("name") if isinstance(tool, dict) else None
        if isinstance(tool_name, str) and 64 < len(tool_name) <= 128:
            yield openai.string_too_long("OR-12", f"tools[{place}].name", len(tool_name), 64, advisory=True)


def _advise_fields(index: int, item: dict[str, Any]) -> Iterator[Violation]:
    if item.get("type") not in (None, "message"):
        return
    for field in item:
        if field not in _MESSAGE_FIELDS and field not in FOREIGN_FIELDS:
            yield openai.unknown_field("OR-19", f"input[{index}].{quote_value(field)}", advisory=True)
    content = item.get("content")
    if item.get("role") != "assistant" and isinstance(content, list):
        for place, part in enumerate(content):
            if isinstance(part, dict) and part.get("type") in OUTPUT_PARTS:
                text = f"Invalid value: '{part['type']}'. Supported values are: {openai.quote_list(RESULT_PARTS)}."
                yield _advice("OR-23", f"input[{index}].content[{place}]", text)


def _advise_unstored(index: int, item: dict[str, Any]) -> Iterator[Violation]:
    kind, item_id = item.get("type"), item.get("id")
    lost = kind == "item_reference" or (kind == "reasoning" and not item.get("encrypted_content"))
    if lost and item_id is not None:
        kept = "Items are not persisted when `store` is set to false."
        remedy = "Try again with `store` set to true, or remove this item from your input."
        yield _advice(
            "OR-22", f"input[{index}].id", f"Item with id '{quote_value(item_id)}' not found. {kept} {remedy}"
        )


def _advise_reasoning(items: list[Any]) -> Iterator[Violation]:
    for index, item in enumerate(items):
        if isinstance(item, dict) and item.get("type") == "reasoning" and item.get("id") is not None:
            following = items[index + 1] if index + 1 < len(items) else None
            if not isinstance(following, dict) or following.get("id") is None:
                of_type = "of type 'reasoning' was provided without its required following item."
                yield _advice("OR-21", f"input[{index}]", f"Item '{quote_value(item['id'])}' {of_type}")


def _advise_pairs(entries: list[tuple[int, dict[str, Any]]]) -> Iterator[Violation]:
    """Pairs that OpenAI takes and others may not: ids used again, outputs before calls or apart from them."""
    calls: dict[str, int] = {}
    outputs: set[str] = set()
    last_message = -1
    for index, item in entries:
        kind, call_id, path = item.get("type"), item.get("call_id"), f"input[{index}].call_id"
        if kind in (None, "message"):
            last_message = index
        elif isinstance(call_id, str) and kind in CALLS:
            if call_id in calls:
                yield _advice("OR-23", path, f"Duplicate value for 'call_id' of '{quote_value(call_id)}'.")
            if call_id in outputs:
                text = f"No tool call found for function call output with call_id {quote_value(call_id)}."
                yield _advice("OR-07", path, text)
            calls.setdefault(call_id, index)
        elif isinstance(call_id, str) and kind in RESULTS:
            if call_id in outputs:
                yield _advice("OR-23", path, f"Duplicate value for 'call_id' of '{quote_value(call_id)}'.")
            elif last_message > calls.get(call_id, index):
                yield _advice("OR-06", path, f"No tool output found for tool call {quote_value(call_id)}.")
            outputs.add(call_id)
