"""Checks of the input of a Responses request: each item, and the pairs of calls and outputs.

Order does not matter: a call and its output are matched by `call_id`, and an output may answer a call that the server keeps
(previous_response_id, conversation, an item_reference, a compaction).
"""

from __future__ import annotations

import sys
from typing import Any

from antiphon.wire.capabilities import format_capabilities, tool_name_matcher
from antiphon.wire.capabilities.accepted_media import media_problems
from antiphon.wire.media import parse_data_url
from antiphon.wire.openai_responses import FORMAT
from antiphon.wire.openai_responses.content import is_refused_file_url
from antiphon.wire.openai_responses.limits import (
    CALL_ITEMS,
    CHAT_ONLY_FIELDS,
    ID_PREFIXES,
    INPUT_PARTS,
    ITEM_TYPE_SET,
    ITEM_TYPES,
    OUTPUT_PARTS,
    REFUSED_FILES,
    RESULT_ITEMS,
    RESULT_PARTS,
    ROLES,
    STORED_ITEMS,
)
from antiphon.wire.rules import RuleContext, Violation
from antiphon.wire.vendors import openai
from antiphon.wire.vendors.openai import (
    Violations,
    check_type,
    missing_field,
    quote_value,
    unsupported_value,
    wrong_type,
)

_CALL_TEXTS = {"function_call": "arguments", "custom_tool_call": "input"}
_CALL_NAMES = {"function_call": "function call", "custom_tool_call": "custom tool call"}


def check_input(context: RuleContext) -> None:
    body, violations = context.body, context.violations
    if body.get("model") is not None:
        check_type(violations, "OR-01", "model", body["model"], str, "a string")
    items = body.get("input")
    if items is not None and not isinstance(items, (str, list)):
        violations.append(wrong_type("OR-01", "input", "one of a string or array of objects", items))
    elif not items and body.get("prompt") is None and not is_continued(body):
        text = "One of 'input' or 'previous_response_id' or 'prompt' or 'conversation' must be provided."
        violations.append(Violation("OR-01", "input", text))
    elif isinstance(items, list):
        for index, item in enumerate(items):
            _check_item(violations, index, item)
        violations.extend(check_sequence(items, continued=is_continued(body)))
    problems = media_problems(items, "input", context.model, with_types=False)
    violations += [Violation("OR-05", path, reason) for path, reason in problems]


def check_sequence(messages: list[Any], *, continued: bool = False) -> list[Violation]:
    """Check that calls and outputs match by id and that no item comes twice.

    `continued`: the server has earlier items, where the call of an output may be.
    """
    violations: Violations = []
    calls: dict[str, int] = {}
    outputs: dict[str, int] = {}
    known: set[str] = set()
    ids: set[str] = set()
    for index, item in enumerate(messages):
        if not isinstance(item, dict):
            continue
        kind, call_id, item_id = item.get("type"), item.get("call_id"), item.get("id")
        if isinstance(call_id, str):
            if kind in RESULT_ITEMS:
                outputs.setdefault(call_id, index)
            else:
                known.add(call_id)
                if kind in CALL_ITEMS:
                    calls.setdefault(call_id, index)
        elif kind in STORED_ITEMS:
            continued = True
        if item_id and isinstance(item_id, str):
            if item_id in ids:
                remedy = "Remove duplicate items from your input and try again."
                text = f"Duplicate item found with id {quote_value(item_id)}. {remedy}"
                violations.append(Violation("OR-10", f"input[{index}].id", text))
            ids.add(item_id)
    for call_id, index in calls.items():
        if call_id not in outputs:
            text = f"No tool output found for {_CALL_NAMES[messages[index]['type']]} {quote_value(call_id)}."
            violations.append(Violation("OR-06", f"input[{index}].call_id", text))
    for call_id, index in outputs.items():
        if call_id not in known and not continued:
            text = f"No tool call found for function call output with call_id {quote_value(call_id)}."
            violations.append(Violation("OR-07", f"input[{index}].call_id", text))
    return violations


def is_continued(body: dict[str, Any]) -> bool:
    return body.get("previous_response_id") is not None or body.get("conversation") is not None


def _check_item(violations: Violations, index: int, item: Any) -> None:
    if not isinstance(item, dict):
        violations.append(wrong_type("OR-02", f"input[{index}]", "an object", item))
        return
    kind = item.get("type")
    if kind is None:
        kind = "message" if "role" in item or "id" not in item else "item_reference"
    if not isinstance(kind, str) or kind not in ITEM_TYPE_SET:
        violations.append(unsupported_value("OR-02", f"input[{index}].type", kind, ITEM_TYPES))
        return
    if kind == "message":
        _check_message(violations, index, item)
    elif kind in _CALL_TEXTS:
        _check_call(violations, index, item, _CALL_TEXTS[kind])
    elif kind in RESULT_ITEMS:
        _check_result(violations, index, item)
    elif kind == "reasoning" and not isinstance(item.get("summary"), list):
        check_type(violations, "OR-11", f"input[{index}].summary", item.get("summary"), list, "an array of objects")
    elif kind == "item_reference" and not isinstance(item.get("id"), str):
        check_type(violations, "OR-09", f"input[{index}].id", item.get("id"), str, "a string")
    if item.get("id") is not None and kind in ID_PREFIXES:
        _check_id(violations, f"input[{index}].id", item["id"], ID_PREFIXES[kind])
    if not CHAT_ONLY_FIELDS.isdisjoint(item):
        violations.extend(
            openai.unknown_field("OR-19", f"input[{index}].{field}") for field in item if field in CHAT_ONLY_FIELDS
        )


def _check_message(violations: Violations, index: int, item: dict[str, Any]) -> None:
    role, content = item.get("role"), item.get("content")
    if role is None:
        violations.append(missing_field("OR-02", f"input[{index}].role"))
    elif role not in ROLES:
        violations.append(unsupported_value("OR-02", f"input[{index}].role", role, ROLES))
    if isinstance(content, list):
        supported, text_kind = (OUTPUT_PARTS, "output_text") if role == "assistant" else (INPUT_PARTS, "input_text")
        for place, part in enumerate(content):
            if not openai.is_plain_text(part, text_kind):
                _check_part(violations, "OR-03", f"input[{index}].content[{place}]", part, supported)
    elif not isinstance(content, str):
        path = f"input[{index}].content"
        check_type(violations, "OR-03", path, content, str, "one of a string or array of objects")


def _check_part(violations: Violations, rule: str, path: str, part: Any, supported: tuple[str, ...]) -> None:
    if not isinstance(part, dict):
        violations.append(wrong_type(rule, path, "an object", part))
        return
    kind = part.get("type")
    if kind is None:
        violations.append(missing_field(rule, f"{path}.type"))
    elif kind not in supported:
        violations.append(unsupported_value(rule, path, kind, supported))
    elif kind in ("input_text", "output_text"):
        check_type(violations, rule, f"{path}.text", part.get("text"), str, "a string")
    elif kind == "input_image" and part.get("image_url") is not None:
        check_type(violations, rule, f"{path}.image_url", part["image_url"], str, "a string")
    elif kind == "input_file":
        _check_file(violations, path, part)
    if not CHAT_ONLY_FIELDS.isdisjoint(part):
        violations.extend(
            openai.unknown_field("OR-19", f"{path}.{field}") for field in part if field in CHAT_ONLY_FIELDS
        )


def _check_file(violations: Violations, path: str, part: dict[str, Any]) -> None:
    url, data = part.get("file_url"), part.get("file_data")
    if isinstance(url, str) and is_refused_file_url(url):
        text = "The file type you uploaded is not supported. Please try again with a pdf"
        violations.append(Violation("OR-05", f"{path}.file_url", text))
    if data is None or not check_type(violations, "OR-05", f"{path}.file_data", data, str, "a string"):
        return
    parsed = parse_data_url(data)
    if parsed is None or parsed.media_type.startswith(REFUSED_FILES):
        got = (
            f"unsupported MIME type '{quote_value(parsed.media_type)}'"
            if parsed
            else "a value without the 'data:' prefix"
        )
        example = "(e.g. 'data:text/plain;base64,SGVsbG8sIFdvcmxkIQ==')"
        wanted = f"Expected a base64-encoded data URL with a valid file MIME type {example}, but got {got}."
        violations.append(Violation("OR-05", f"{path}.file_data", f"Invalid file data: '{path}.file_data'. {wanted}"))
    elif part.get("filename") is None:
        violations.append(missing_field("OR-05", f"{path}.filename"))


def _check_call(violations: Violations, index: int, item: dict[str, Any], text_field: str) -> None:
    _check_call_id(violations, "OR-04", index, item.get("call_id"))
    name = item.get("name")
    if not isinstance(name, str) or not tool_name_matcher(FORMAT)(name):
        openai.check_tool_name(violations, "OR-04", f"input[{index}].name", name, FORMAT)
    if not isinstance(item.get(text_field), str):
        check_type(violations, "OR-04", f"input[{index}].{text_field}", item.get(text_field), str, "a string")


def _check_call_id(violations: Violations, rule: str, index: int, call_id: Any) -> None:
    limit = format_capabilities(FORMAT).tool_id_length or sys.maxsize
    if isinstance(call_id, str) and 0 < len(call_id) <= limit:
        return
    path = f"input[{index}].call_id"
    if check_type(violations, rule, path, call_id, str, "a string"):
        longest = openai.string_too_long("OR-08", path, len(call_id), limit)
        violations.append(longest if call_id else openai.empty_string("OR-08", path))


def _check_result(violations: Violations, index: int, item: dict[str, Any]) -> None:
    _check_call_id(violations, "OR-05", index, item.get("call_id"))
    output = item.get("output")
    if isinstance(output, list):
        for place, part in enumerate(output):
            _check_part(violations, "OR-05", f"input[{index}].output[{place}]", part, RESULT_PARTS)
    elif not isinstance(output, str):
        check_type(violations, "OR-05", f"input[{index}].output", output, str, "one of a string or array of objects")


def _check_id(violations: Violations, path: str, item_id: Any, prefix: str) -> None:
    if not isinstance(item_id, str):
        violations.append(wrong_type("OR-09", path, "a string", item_id))
    elif not openai.has_name_characters(item_id):
        letters = "contains letters, numbers, underscores, or dashes, but this value contained additional characters."
        violations.append(
            Violation("OR-09", path, f"Invalid '{path}': '{quote_value(item_id)}'. Expected an ID that {letters}")
        )
    elif not item_id.startswith(prefix):
        text = f"Invalid '{path}': '{quote_value(item_id)}'. Expected an ID that begins with '{prefix}'."
        violations.append(Violation("OR-09", path, text))
    elif len(item_id) > openai.MAX_NAME:
        violations.append(openai.string_too_long("OR-09", path, len(item_id), openai.MAX_NAME))
