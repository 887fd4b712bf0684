"""What only some models or hosts refuse of a Chat Completions request: the advisories of the rule book.

They have a pass of their own, so that the everyday check does not pay for them. A host's rules (Mistral's, DeepSeek's) are
applied when the body's `model` names one of its models.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import Any

import msgspec

from antiphon.wire.json_schema import non_strict_problems
from antiphon.wire.rules import Violation, name_set
from antiphon.wire.vendors import openai
from antiphon.wire.vendors.openai import quote_value

# Options of the SDKs and of Azure that logs of accepted requests show beside the body's own (OC-26).
HOST_ARGUMENTS = name_set("data_sources extra_body extra_headers extra_query timeout")
_MEDIA = {
    "image_url": ("Image URLs", "an image URL"),
    "input_audio": ("Audio inputs", "audio"),
    "file": ("Files", "a file"),
}
_MESSAGE_FIELDS = name_set("role content name tool_calls tool_call_id function_call refusal audio annotations")
_PART_FIELDS = name_set("type text image_url input_audio file refusal prompt_cache_breakpoint")
_is_mistral = re.compile(r"mistral|mixtral|codestral|devstral|magistral|ministral|pixtral|voxtral").search
_is_mistral_id = re.compile(r"[a-zA-Z0-9]{9}").fullmatch
_is_deepseek = re.compile(r"(?:.*/)?deepseek-(?:chat|reasoner|r\d|v\d)").match


def _advice(rule: str, path: str, message: str) -> Violation:
    return Violation(rule, path, message, advisory=True)


def advise(body: dict[str, Any]) -> Iterator[Violation]:
    """What is wrong with a body at some models or hosts."""
    model, messages = body.get("model"), body.get("messages")
    if not model:  # Azure and Bedrock name it in the URL (OC-01, errata)
        yield _advice("OC-01", "model", "you must provide a model parameter")
    for name in body:
        if name in HOST_ARGUMENTS:
            yield _advice("OC-26", name, f"Unrecognized request argument supplied: {name}")
    entries = list(enumerate(messages)) if isinstance(messages, list) else []
    chat = [(index, message) for index, message in entries if isinstance(message, dict)]
    for index, message in chat:
        yield from _advise_calls(f"messages[{index}]", message)
        yield from _advise_parts(f"messages[{index}]", message)
    yield from _advise_tools(body.get("tools"))
    if isinstance(model, str) and _is_mistral(model):
        yield from _advise_mistral(chat)
    elif isinstance(model, str) and _is_deepseek(model):
        yield from _advise_deepseek(body, chat)


def _advise_calls(path: str, message: dict[str, Any]) -> Iterator[Violation]:
    calls, seen = _calls(message), set()
    if calls and message.get("content") is None:
        yield _advice("OC-10", f"{path}.content", "invalid message content type: <nil>")
    for place, call in enumerate(calls):
        call_id, where = call.get("id"), f"{path}.tool_calls[{place}]"
        if isinstance(call_id, str):
            if call_id in seen:
                yield _advice("OC-05", f"{where}.id", f"Duplicate value for 'id' of '{quote_value(call_id)}'.")
            if len(call_id) > 40:
                yield openai.string_too_long("OC-09", f"{where}.id", len(call_id), 40, advisory=True)
            seen.add(call_id)
        function = call.get("function")
        arguments = function.get("arguments") if isinstance(function, dict) else None
        if isinstance(arguments, str) and not _is_json(arguments):
            text = "Arguments are not valid JSON; some hosts parse them."
            yield _advice("OC-07", f"{where}.function.arguments", text)


def _calls(message: dict[str, Any]) -> list[dict[str, Any]]:
    calls = message.get("tool_calls")
    return [call for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []


def _is_json(text: str) -> bool:
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return False
    return True


def _advise_parts(path: str, message: dict[str, Any]) -> Iterator[Violation]:
    role, content = message.get("role"), message.get("content")
    for field in message:
        if field not in _MESSAGE_FIELDS:
            yield openai.unknown_field("OC-31", f"{path}.{quote_value(field)}", advisory=True)
    for place, part in enumerate(content if isinstance(content, list) else ()):
        if not isinstance(part, dict):
            continue
        kind = part.get("type")
        if role != "user" and isinstance(kind, str) and kind in _MEDIA:
            only = f"{_MEDIA[kind][0]} are only allowed for messages with role 'user'"
            held = f"but this message with role '{quote_value(role)}' contains {_MEDIA[kind][1]}."
            yield _advice("OC-30", path, f"Invalid '{path}'. {only}, {held}")
        for field in part:
            if field not in _PART_FIELDS:
                yield openai.unknown_field("OC-31", f"{path}.content[{place}].{quote_value(field)}", advisory=True)


def _advise_tools(tools: Any) -> Iterator[Violation]:
    if isinstance(tools, list) and len(tools) > 128:
        yield openai.array_too_long("OC-29", "tools", len(tools), 128, advisory=True)
    for place, tool in enumerate(tools if isinstance(tools, list) else ()):
        function = tool.get("function") if isinstance(tool, dict) else None
        if not isinstance(function, dict):
            continue
        path, description, parameters = (
            f"tools[{place}].function",
            function.get("description"),
            function.get("parameters"),
        )
        if isinstance(description, str) and len(description) > 1024:
            yield openai.string_too_long("OC-29", f"{path}.description", len(description), 1024, advisory=True)
        subject = f"Invalid schema for function '{quote_value(function.get('name'))}'"
        problems = non_strict_problems(parameters) if isinstance(parameters, dict) else ()
        for problem in islice(problems, openai.MAX_SCHEMA_PROBLEMS):
            yield _advice("OC-32", f"{path}.parameters", f"{subject}: {problem}")


def _advise_mistral(chat: list[tuple[int, dict[str, Any]]]) -> Iterator[Violation]:
    before = None
    for index, message in chat:
        role, path = message.get("role"), f"messages[{index}]"
        if before == "tool" and role == "user":
            yield _advice("MI-02", f"{path}.role", "Unexpected role 'user' after role 'tool'")
        if role == "assistant" and not message.get("content") and not _calls(message):
            yield _advice("MI-02", path, "Assistant message must have either content or tool_calls, but not none.")
        for place, call in enumerate(_calls(message)):
            call_id = call.get("id")
            if isinstance(call_id, str) and not _is_mistral_id(call_id):
                wanted = "must be a-z, A-Z, 0-9, with a length of 9."
                text = f"Tool call id was {quote_value(call_id)} but {wanted}"
                yield _advice("MI-01", f"{path}.tool_calls[{place}].id", text)
        before = role
    if chat and before not in ("user", "tool") and not (before == "assistant" and chat[-1][1].get("prefix")):
        wanted = "Expected last role User or Tool (or Assistant with prefix True) for serving"
        yield _advice("MI-02", f"messages[{chat[-1][0]}].role", f"{wanted} but got {quote_value(before)}")


def _advise_deepseek(body: dict[str, Any], chat: list[tuple[int, dict[str, Any]]]) -> Iterator[Violation]:
    last_user = max((index for index, message in chat if message.get("role") == "user"), default=-1)
    thinking = body.get("thinking")
    thinks = isinstance(thinking, dict) and thinking.get("type") == "enabled"
    for index, message in chat:
        if thinks and index > last_user and _calls(message) and not isinstance(message.get("reasoning_content"), str):
            text = "The reasoning_content in the thinking mode must be passed back to the API."
            yield _advice("DS-01", f"messages[{index}].reasoning_content", text)
        content = message.get("content")
        for place, part in enumerate(content if isinstance(content, list) else ()):
            if isinstance(part, dict) and part.get("type") in ("image_url", "input_audio", "file", "video_url"):
                text = f"messages[{index}]: unknown variant `{part['type']}`, expected `text`"
                yield _advice("OC-12", f"messages[{index}].content[{place}].type", text)
    tools = body.get("tools")
    for place, tool in enumerate(tools if isinstance(tools, list) else ()):
        if isinstance(tool, dict) and tool.get("type") == "custom":
            yield _advice("DS-01", f"tools[{place}].type", "unknown variant `custom`, expected `function`")
