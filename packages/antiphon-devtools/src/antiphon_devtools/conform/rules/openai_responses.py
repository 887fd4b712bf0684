"""What the Responses API refuses."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from antiphon_devtools.conform.bodies import objects, words
from antiphon_devtools.conform.conversation import Violation

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_ROLES = ("user", "assistant", "system", "developer")
_CHAT_ONLY = words(
    "messages max_tokens max_completion_tokens stop n seed presence_penalty logit_bias frequency_penalty"
    " response_format reasoning_effort"
)
_PREFIXES = {"message": "msg", "function_call": "fc", "function_call_output": "fc", "reasoning": "rs"}
_STORED = ("item_reference", "compaction")  # they stand for earlier items, which may have the call of an output
_PARTS = ("input_text", "input_image", "input_file", "output_text", "refusal", "input_audio", "summary_text")


def check(body: dict[str, Any]) -> Iterator[Violation]:
    items = body.get("input")
    if not items and not any(body.get(each) for each in ("prompt", "conversation", "previous_response_id")):
        yield Violation(
            "OR-01", "input", "One of 'input', 'prompt', 'conversation' or 'previous_response_id' is required."
        )
    listed = items if isinstance(items, list) else []
    for place, item in enumerate(listed):
        if isinstance(item, dict):
            yield from _item(item, f"input[{place}]")
    is_linked = any(body.get(each) for each in ("previous_response_id", "conversation"))
    if not is_linked and not any(item.get("type") in _STORED for item in objects(listed)):
        yield from _pairs(objects(listed))
    yield from _tools(body)
    for name in sorted(_CHAT_ONLY & body.keys()):
        yield Violation("OR-18", name, f"Unsupported parameter: '{name}'.")
    limit = body.get("max_output_tokens")
    if isinstance(limit, int) and limit < 16:
        text = f"Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16, but got {limit} instead."
        yield Violation("OR-14", "max_output_tokens", text)


def _item(item: dict[str, Any], where: str) -> Iterator[Violation]:
    kind = item.get("type", "message")
    if kind == "message":
        if item.get("role") not in _ROLES:
            yield Violation("OR-02", f"{where}.role", f"Invalid value: '{item.get('role')}'.")
        content = item.get("content")
        for place, part in enumerate(objects(content)):
            at = f"{where}.content[{place}]"
            if part.get("type") not in _PARTS:
                yield Violation("OR-03", at, f"Invalid value: '{part.get('type')}'.")
            elif item.get("role") == "assistant" and part["type"] not in ("output_text", "refusal"):
                text = f"Invalid value: '{part['type']}'. Supported values are: 'output_text' and 'refusal'."
                yield Violation("OR-03", at, text)
            elif part["type"] == "input_image" and not isinstance(part.get("image_url", ""), str):
                yield Violation("OR-03", f"{at}.image_url", "Invalid type: expected an image URL as a string.")
    elif kind in ("function_call", "function_call_output"):
        rule = "OR-04" if kind == "function_call" else "OR-05"
        call_id = item.get("call_id")
        if not isinstance(call_id, str):
            yield Violation(rule, f"{where}.call_id", f"Missing required parameter: '{where}.call_id'.")
        elif not 1 <= len(call_id) <= 64:
            text = f"Invalid '{where}.call_id': string too long. Expected a string with maximum length 64."
            yield Violation("OR-08", f"{where}.call_id", text)
        if kind == "function_call" and not (
            isinstance(item.get("name"), str) and isinstance(item.get("arguments"), str)
        ):
            yield Violation("OR-04", where, "A function_call needs a name and arguments as a string.")
        if kind == "function_call_output" and not isinstance(item.get("output"), str | list):
            yield Violation("OR-05", f"{where}.output", f"Missing required parameter: '{where}.output'.")
    elif kind == "reasoning" and not isinstance(item.get("summary"), list):
        yield Violation("OR-11", f"{where}.summary", f"Missing required parameter: '{where}.summary'.")
    prefix, given = _PREFIXES.get(str(kind)), item.get("id")
    if prefix is not None and isinstance(given, str) and not given.startswith(prefix):
        text = f"Invalid '{where}.id': '{given}'. Expected an ID that begins with '{prefix}'."
        yield Violation("OR-09", f"{where}.id", text)


def _pairs(items: list[dict[str, Any]]) -> Iterator[Violation]:
    calls = [item.get("call_id") for item in items if item.get("type") == "function_call"]
    outputs = [item.get("call_id") for item in items if item.get("type") == "function_call_output"]
    for call_id in dict.fromkeys(map(str, calls)):
        if call_id not in map(str, outputs):
            yield Violation("OR-06", "input", f"No tool output found for function call {call_id}.")
    known: set[str] = set()
    for item in items:
        if str(item.get("type")).endswith("_call"):
            known.add(str(item.get("call_id")))
        elif item.get("type") == "function_call_output" and str(item.get("call_id")) not in known:
            text = f"No tool call found for function call output with call_id {item.get('call_id')}."
            yield Violation("OR-07", "input", text)


def _tools(body: dict[str, Any]) -> Iterator[Violation]:
    names = []
    for place, tool in enumerate(objects(body.get("tools"))):
        if tool.get("type") != "function":
            names.append(tool.get("name"))
            continue
        names.append(tool.get("name"))
        if not isinstance(tool.get("name"), str) or not _NAME.fullmatch(tool["name"]):
            yield Violation("OR-12", f"tools[{place}].name", f"Missing required parameter: 'tools[{place}].name'.")
    choice = body.get("tool_choice")
    if isinstance(choice, dict) and choice.get("type") == "function" and choice.get("name") not in names:
        yield Violation("OR-13", "tool_choice", f"Tool choice '{choice.get('name')}' not found in 'tools' parameter.")
    text = body.get("text")
    wanted = text.get("format") if isinstance(text, dict) else None
    if isinstance(wanted, dict) and wanted.get("type") == "json_schema" and not isinstance(wanted.get("schema"), dict):
        yield Violation("OR-17", "text.format", "Missing required parameter: 'text.format.schema'.")
