"""What only some models or hosts refuse in a Chat Completions request.

A host's rules apply if the body's `model` is one of its models.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import Any

import msgspec

from antiphon.wire.json_schema import MAX_SCHEMA_PROBLEMS, non_strict_problems
from antiphon.wire.openai_chat.limits import (
    MAX_DESCRIPTION,
    MAX_TOOLS,
    MESSAGE_FIELDS,
    MISTRAL_CALL_ID,
    MISTRAL_ID_LENGTH,
    PART_FIELDS,
    SDK_ONLY_PARAMETERS,
    SHORT_CALL_ID,
)
from antiphon.wire.rules import RuleContext, Violation, advisory
from antiphon.wire.vendors import openai
from antiphon.wire.vendors.openai import quote_value

_MEDIA = {
    "image_url": ("Image URLs", "an image URL"),
    "input_audio": ("Audio inputs", "audio"),
    "file": ("Files", "a file"),
}


def check_advisories(context: RuleContext) -> None:
    if context.advisories:
        context.violations.extend(_find_advisories(context.body, context.host_fields))


def _find_advisories(body: dict[str, Any], host_fields: frozenset[str]) -> Iterator[Violation]:
    """What some models or hosts refuse in a body."""
    model, messages = body.get("model"), body.get("messages")
    if not model:  # Azure and Bedrock name it in the URL (OC-01, errata)
        yield advisory("OC-01", "model", "you must provide a model parameter")
    for name in body:
        if name in SDK_ONLY_PARAMETERS:
            yield advisory("OC-26", name, f"Unrecognized request argument supplied: {name}")
    entries = list(enumerate(messages)) if isinstance(messages, list) else []
    chat_messages = [(index, message) for index, message in entries if isinstance(message, dict)]
    for index, message in chat_messages:
        yield from _call_advisories(f"messages[{index}]", message)
        yield from _content_advisories(f"messages[{index}]", message, host_fields)
    yield from _tool_advisories(body.get("tools"))
    if isinstance(model, str):
        yield from _host_advisories(model, body, chat_messages)


def _call_advisories(path: str, message: dict[str, Any]) -> Iterator[Violation]:
    calls, seen = _calls_of(message), set()
    if calls and message.get("content") is None:
        yield advisory("OC-10", f"{path}.content", "invalid message content type: <nil>")
    for place, call in enumerate(calls):
        call_id, where = call.get("id"), f"{path}.tool_calls[{place}]"
        if isinstance(call_id, str):
            if call_id in seen:
                yield advisory("OC-05", f"{where}.id", f"Duplicate value for 'id' of '{quote_value(call_id)}'.")
            if len(call_id) > SHORT_CALL_ID:
                yield openai.string_too_long("OC-09", f"{where}.id", len(call_id), SHORT_CALL_ID, advisory=True)
            seen.add(call_id)
        function = call.get("function")
        arguments = function.get("arguments") if isinstance(function, dict) else None
        if isinstance(arguments, str) and not _is_json(arguments):
            text = "Arguments are not valid JSON; some hosts parse them."
            yield advisory("OC-07", f"{where}.function.arguments", text)


def _is_json(text: str) -> bool:
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return False
    return True


def _content_advisories(path: str, message: dict[str, Any], host_fields: frozenset[str]) -> Iterator[Violation]:
    role, content = message.get("role"), message.get("content")
    for field in message:
        if field not in MESSAGE_FIELDS and field not in host_fields:
            yield openai.unknown_field("OC-31", f"{path}.{quote_value(field)}", advisory=True)
    for place, part in enumerate(content if isinstance(content, list) else ()):
        if not isinstance(part, dict):
            continue
        kind = part.get("type")
        if role != "user" and isinstance(kind, str) and kind in _MEDIA:
            only = f"{_MEDIA[kind][0]} are only allowed for messages with role 'user'"
            held = f"but this message with role '{quote_value(role)}' contains {_MEDIA[kind][1]}."
            yield advisory("OC-30", path, f"Invalid '{path}'. {only}, {held}")
        for field in part:
            if field not in PART_FIELDS and field not in host_fields:
                yield openai.unknown_field("OC-31", f"{path}.content[{place}].{quote_value(field)}", advisory=True)


def _tool_advisories(tools: Any) -> Iterator[Violation]:
    if isinstance(tools, list) and len(tools) > MAX_TOOLS:
        yield openai.array_too_long("OC-29", "tools", len(tools), MAX_TOOLS, advisory=True)
    for place, tool in enumerate(tools if isinstance(tools, list) else ()):
        function = tool.get("function") if isinstance(tool, dict) else None
        if not isinstance(function, dict):
            continue
        path, description, parameters = (
            f"tools[{place}].function",
            function.get("description"),
            function.get("parameters"),
        )
        if isinstance(description, str) and len(description) > MAX_DESCRIPTION:
            too_long = openai.string_too_long
            yield too_long("OC-29", f"{path}.description", len(description), MAX_DESCRIPTION, advisory=True)
        subject = f"Invalid schema for function '{quote_value(function.get('name'))}'"
        problems = non_strict_problems(parameters) if isinstance(parameters, dict) else ()
        for problem in islice(problems, MAX_SCHEMA_PROBLEMS):
            yield advisory("OC-32", f"{path}.parameters", f"{subject}: {problem}")


_is_mistral = re.compile(r"mistral|mixtral|codestral|devstral|magistral|ministral|pixtral|voxtral").search
_is_mistral_id = re.compile(MISTRAL_CALL_ID).fullmatch
_is_deepseek = re.compile(r"(?:.*/)?deepseek-(?:chat|reasoner|r\d|v\d)").match


def _host_advisories(
    model: str, body: dict[str, Any], messages: list[tuple[int, dict[str, Any]]]
) -> Iterator[Violation]:
    """What the host of a model refuses in a body beside OpenAI's own rules; `messages` have their index."""
    if _is_mistral(model):
        yield from _mistral_advisories(messages)
    elif _is_deepseek(model):
        yield from _deepseek_advisories(body, messages)


def _calls_of(message: dict[str, Any]) -> list[dict[str, Any]]:
    """The tool calls of a message, as far as they are objects."""
    calls = message.get("tool_calls")
    return [call for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []


def _mistral_advisories(messages: list[tuple[int, dict[str, Any]]]) -> Iterator[Violation]:
    before = None
    for index, message in messages:
        role, path = message.get("role"), f"messages[{index}]"
        if before == "tool" and role == "user":
            yield advisory("MI-02", f"{path}.role", "Unexpected role 'user' after role 'tool'")
        if role == "assistant" and not message.get("content") and not _calls_of(message):
            yield advisory("MI-02", path, "Assistant message must have either content or tool_calls, but not none.")
        for place, call in enumerate(_calls_of(message)):
            call_id = call.get("id")
            if isinstance(call_id, str) and not _is_mistral_id(call_id):
                expected = f"must be a-z, A-Z, 0-9, with a length of {MISTRAL_ID_LENGTH}."
                text = f"Tool call id was {quote_value(call_id)} but {expected}"
                yield advisory("MI-01", f"{path}.tool_calls[{place}].id", text)
        before = role
    if messages and before not in ("user", "tool") and not (before == "assistant" and messages[-1][1].get("prefix")):
        expected = "Expected last role User or Tool (or Assistant with prefix True) for serving"
        yield advisory("MI-02", f"messages[{messages[-1][0]}].role", f"{expected} but got {quote_value(before)}")


def _deepseek_advisories(body: dict[str, Any], messages: list[tuple[int, dict[str, Any]]]) -> Iterator[Violation]:
    last_user = max((index for index, message in messages if message.get("role") == "user"), default=-1)
    thinking = body.get("thinking")
    thinking_enabled = isinstance(thinking, dict) and thinking.get("type") == "enabled"
    for index, message in messages:
        if (
            thinking_enabled
            and index > last_user
            and _calls_of(message)
            and not isinstance(message.get("reasoning_content"), str)
        ):
            text = "The reasoning_content in the thinking mode must be passed back to the API."
            yield advisory("DS-01", f"messages[{index}].reasoning_content", text)
        content = message.get("content")
        for place, part in enumerate(content if isinstance(content, list) else ()):
            if isinstance(part, dict) and part.get("type") in ("image_url", "input_audio", "file", "video_url"):
                text = f"messages[{index}]: unknown variant `{part['type']}`, expected `text`"
                yield advisory("OC-12", f"messages[{index}].content[{place}].type", text)
    tools = body.get("tools")
    for place, tool in enumerate(tools if isinstance(tools, list) else ()):
        if isinstance(tool, dict) and tool.get("type") == "custom":
            yield advisory("DS-01", f"tools[{place}].type", "unknown variant `custom`, expected `function`")
