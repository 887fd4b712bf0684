"""What only some models or hosts refuse in a Chat Completions request.

A host's rules apply if the body's `model` is one of its models.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import msgspec

from antiphon.wire import rules as rows
from antiphon.wire.openai_chat.limits import (
    MISTRAL_CALL_ID,
    SHORT_CALL_ID,
)
from antiphon.wire.schema import MAX_SCHEMA_PROBLEMS, non_strict_problems

SDK_ONLY_PARAMETERS = rows.name_set("data_sources extra_body extra_headers extra_query timeout")
"""Options of the SDKs and of Azure that recorded accepted requests have (OC-26)."""
_MESSAGE_FIELDS = rows.name_set("role content name tool_calls tool_call_id function_call refusal audio annotations")
_PART_FIELDS = rows.name_set("type text image_url input_audio file refusal prompt_cache_breakpoint")
_MAX_TOOLS, _MAX_DESCRIPTION = 128, 1024
_MEDIA = ("image_url", "input_audio", "file")


def list_of(value: Any) -> list[Any]:
    """The value, if it is a list."""
    return value if isinstance(value, list) else []


def _messages(body: dict[str, Any]) -> list[tuple[int, dict[str, Any]]]:
    return [(index, it) for index, it in enumerate(list_of(body.get("messages"))) if isinstance(it, dict)]


def _find_no_model(body: dict[str, Any], _: rows.Checked) -> Iterator[rows.Finding]:
    if not body.get("model"):  # Azure and Bedrock name it in the URL (OC-01, errata)
        yield "model", "is required"


def _find_sdk_options(body: dict[str, Any], _: rows.Checked) -> Iterator[rows.Finding]:
    yield from ((name, "is an option of an SDK") for name in body if name in SDK_ONLY_PARAMETERS)


def _find_risky_calls(body: dict[str, Any], _: rows.Checked) -> Iterator[tuple[str, rows.Finding]]:
    for index, message in _messages(body):
        calls, seen, place = _calls_of(message), set[str](), ("messages", index)
        if calls and message.get("content") is None:
            yield "OC-10", ((*place, "content"), "some hosts refuse null")
        for position, call in enumerate(calls):
            call_id, where = call.get("id"), (*place, "tool_calls", position)
            if isinstance(call_id, str):
                if call_id in seen:
                    yield "OC-05", ((*where, "id"), "is the id of another call too")
                if len(call_id) > SHORT_CALL_ID:
                    yield "OC-09", ((*where, "id"), f"some hosts accept at most {SHORT_CALL_ID} characters")
                seen.add(call_id)
            function = call.get("function")
            arguments = function.get("arguments") if isinstance(function, dict) else None
            if isinstance(arguments, str) and not _is_json(arguments):
                yield "OC-07", ((*where, "function", "arguments"), "is not valid JSON; some hosts parse it")


def _is_json(text: str) -> bool:
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return False
    return True


def _find_risky_content(body: dict[str, Any], found: rows.Checked) -> Iterator[tuple[str, rows.Finding]]:
    for index, message in _messages(body):
        place = ("messages", index)
        for field in message:
            if field not in _MESSAGE_FIELDS and field not in found.target:
                yield "OC-31", ((*place, field), "unknown field")
        for position, part in enumerate(list_of(message.get("content"))):
            if not isinstance(part, dict):
                continue
            kind = part.get("type")
            if message.get("role") != "user" and isinstance(kind, str) and kind in _MEDIA:
                yield "OC-30", (place, f"{kind} is only allowed in messages of the user")
            for field in part:
                if field not in _PART_FIELDS and field not in found.target:
                    yield "OC-31", ((*place, "content", position, field), "unknown field")


def _find_risky_tools(body: dict[str, Any], _: rows.Checked) -> Iterator[tuple[str, rows.Finding]]:
    tools = list_of(body.get("tools"))
    if len(tools) > _MAX_TOOLS:
        yield "OC-29", ("tools", f"some hosts accept at most {_MAX_TOOLS}")
    for index, tool in enumerate(tools):
        function = tool.get("function") if isinstance(tool, dict) else None
        if not isinstance(function, dict):
            continue
        place, description, parameters = (
            ("tools", index, "function"),
            function.get("description"),
            function.get("parameters"),
        )
        if isinstance(description, str) and len(description) > _MAX_DESCRIPTION:
            yield "OC-29", ((*place, "description"), f"some hosts accept at most {_MAX_DESCRIPTION} characters")
        problems = non_strict_problems(parameters) if isinstance(parameters, dict) else ()
        for problem in islice(problems, MAX_SCHEMA_PROBLEMS):
            yield "OC-32", ((*place, "parameters"), problem)


_is_mistral = re.compile(r"mistral|mixtral|codestral|devstral|magistral|ministral|pixtral|voxtral").search
_is_mistral_id = re.compile(MISTRAL_CALL_ID).fullmatch
_is_deepseek = re.compile(r"(?:.*/)?deepseek-(?:chat|reasoner|r\d|v\d)").match


def _calls_of(message: dict[str, Any]) -> list[dict[str, Any]]:
    """The tool calls of a message, as far as they are objects."""
    return [call for call in list_of(message.get("tool_calls")) if isinstance(call, dict)]


def _find_mistral(body: dict[str, Any], _: rows.Checked) -> Iterable[tuple[str, rows.Finding]]:
    model = body.get("model")
    messages = _messages(body) if isinstance(model, str) and _is_mistral(model) else []
    before = None
    for index, message in messages:
        role, place = message.get("role"), ("messages", index)
        if before == "tool" and role == "user":
            yield "MI-02", ((*place, "role"), "a user message must not follow a tool message")
        if role == "assistant" and not message.get("content") and not _calls_of(message):
            yield "MI-02", (place, "must have content or calls")
        for position, call in enumerate(_calls_of(message)):
            call_id = call.get("id")
            if isinstance(call_id, str) and not _is_mistral_id(call_id):
                yield "MI-01", ((*place, "tool_calls", position, "id"), f"must match {MISTRAL_CALL_ID}")
        before = role
    if messages and before not in ("user", "tool") and not (before == "assistant" and messages[-1][1].get("prefix")):
        yield "MI-02", (("messages", messages[-1][0], "role"), "the last message must be the user's or a tool's")


def _find_deepseek(body: dict[str, Any], _: rows.Checked) -> Iterable[tuple[str, rows.Finding]]:
    model = body.get("model")
    if not isinstance(model, str) or not _is_deepseek(model):
        return
    messages = _messages(body)
    last_user = max((index for index, message in messages if message.get("role") == "user"), default=-1)
    thinking = body.get("thinking")
    is_thinking = isinstance(thinking, dict) and thinking.get("type") == "enabled"
    for index, message in messages:
        lacks_reasoning = _calls_of(message) and not isinstance(message.get("reasoning_content"), str)
        if is_thinking and index > last_user and lacks_reasoning:
            yield "DS-01", (("messages", index, "reasoning_content"), "is required while thinking is enabled")
        for position, part in enumerate(list_of(message.get("content"))):
            if isinstance(part, dict) and part.get("type") in (*_MEDIA, "video_url"):
                yield "OC-12", (("messages", index, "content", position, "type"), "DeepSeek accepts only text")
    for index, tool in enumerate(list_of(body.get("tools"))):
        if isinstance(tool, dict) and tool.get("type") == "custom":
            yield "DS-01", (("tools", index, "type"), "DeepSeek accepts only functions")


ADVISORIES = (
    rows.CrossRule("OC-01", _find_no_model, advisory=True),
    rows.CrossRule("OC-26", _find_sdk_options, advisory=True),
    rows.CrossRules(("OC-05", "OC-07", "OC-09", "OC-10"), _find_risky_calls, advisory=True),
    rows.CrossRules(("OC-30", "OC-31"), _find_risky_content, advisory=True),
    rows.CrossRules(("OC-29", "OC-32"), _find_risky_tools, advisory=True),
    rows.CrossRules(("MI-01", "MI-02"), _find_mistral, advisory=True),
    rows.CrossRules(("DS-01", "OC-12"), _find_deepseek, advisory=True),
)
