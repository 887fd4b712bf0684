"""What Chat Completions refuses."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from antiphon_devtools.conform.bodies import objects, words
from antiphon_devtools.conform.conversation import Violation

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_ROLES = ("system", "developer", "user", "assistant", "tool", "function")
_PARTS = ("text", "image_url", "input_audio", "file", "refusal")
_REASONING_MODEL = re.compile(r"(.*/)?(o\d|gpt-[56])")
_PARAMETERS = words(
    "model messages tools tool_choice parallel_tool_calls functions function_call stream stream_options"
    " max_tokens max_completion_tokens temperature top_p n stop presence_penalty frequency_penalty logit_bias"
    " logprobs top_logprobs seed user response_format reasoning_effort metadata store service_tier modalities"
    " audio prediction web_search_options verbosity extra_headers prompt_cache_key prompt_cache_retention"
    " prompt_cache_options safety_identifier moderation"
)


def check(body: dict[str, Any]) -> Iterator[Violation]:
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        yield Violation("OC-01", "messages", "Invalid 'messages': empty array.")
        return
    for place, message in enumerate(messages):
        where = f"messages[{place}]"
        if not isinstance(message, dict) or message.get("role") not in _ROLES:
            yield Violation("OC-02", f"{where}.role", f"Invalid value for '{where}.role'.")
            continue
        yield from _message(message, where)
    yield from _sequence(messages)
    yield from _tools(body)
    yield from _parameters(body)


def _message(message: dict[str, Any], where: str) -> Iterator[Violation]:
    content = message.get("content")
    may_be_empty = any(message.get(each) for each in ("tool_calls", "function_call", "refusal", "audio"))
    if content is None and message["role"] != "function" and not (message["role"] == "assistant" and may_be_empty):
        yield Violation("OC-10", f"{where}.content", "Invalid value for 'content': expected a string, got null.")
    if content == []:
        yield Violation("OC-11", f"{where}.content", f"Invalid '{where}.content': empty array.")
    for number, part in enumerate(content if isinstance(content, list) else ()):
        kind = part.get("type") if isinstance(part, dict) else None
        if kind not in _PARTS:
            yield Violation("OC-12", f"{where}.content[{number}].type", f"Invalid value: '{kind}'.")
        elif kind == "image_url":
            image = part.get("image_url")
            url = image.get("url") if isinstance(image, dict) else image
            if not isinstance(url, str) or not url.startswith(("http://", "https://", "data:")):
                yield Violation("OC-13", f"{where}.content[{number}].image_url", "Invalid image URL.")
    calls = message.get("tool_calls")
    if calls == []:
        yield Violation("OC-06", f"{where}.tool_calls", f"Invalid '{where}.tool_calls': empty array.")
    for number, call in enumerate(objects(calls)):
        at, function = f"{where}.tool_calls[{number}]", call.get("function")
        if call.get("type") == "custom":
            continue
        if not isinstance(call.get("id"), str) or not isinstance(function, dict):
            yield Violation("OC-07", at, f"Missing required parameter: '{at}.id'.")
        elif not isinstance(function.get("arguments"), str):
            yield Violation("OC-07", f"{at}.function.arguments", f"Invalid type for '{at}.function.arguments'.")
        elif not _NAME.fullmatch(str(function.get("name"))):
            yield Violation("OC-08", f"{at}.function.name", f"Invalid '{at}.function.name'.")


def _sequence(messages: list[Any]) -> Iterator[Violation]:
    open_ids: list[Any] = []
    answered: list[Any] = []
    caller = 0
    for place, message in enumerate([*messages, {"role": "end"}]):
        if not isinstance(message, dict):
            continue
        if message.get("role") == "tool":
            wanted = message.get("tool_call_id")
            if wanted in answered:
                text = f"Invalid parameter: Duplicate value for 'tool_call_id' of '{wanted}'."
                yield Violation("OC-05", f"messages[{place}].tool_call_id", text)
            elif wanted not in open_ids:
                text = "messages with role 'tool' must be a response to a preceeding message with 'tool_calls'."
                yield Violation("OC-04", f"messages[{place}].role", f"Invalid parameter: {text}")
            else:
                answered.append(wanted)
            continue
        missing = [each for each in open_ids if each not in answered]
        if missing:
            text = (
                "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
                f"'tool_call_id'. The following tool_call_ids did not have response messages: {', '.join(map(str, missing))}"
            )
            yield Violation("OC-03", f"messages[{caller}].tool_calls", text)
        open_ids = [call.get("id") for call in objects(message.get("tool_calls"))]
        answered, caller = [], place


def _tools(body: dict[str, Any]) -> Iterator[Violation]:
    tools = body.get("tools")
    if tools == []:
        yield Violation("OC-14", "tools", "Invalid 'tools': empty array.")
    names = []
    for place, tool in enumerate(objects(tools)):
        if tool.get("type") == "custom":
            names.append((tool.get("custom") or {}).get("name"))
            continue
        function = tool.get("function")
        if tool.get("type") != "function" or not isinstance(function, dict):
            yield Violation("OC-15", f"tools[{place}]", f"Missing required parameter: 'tools[{place}].function'.")
            continue
        names.append(function.get("name"))
        if not _NAME.fullmatch(str(function.get("name"))):
            yield Violation("OC-08", f"tools[{place}].function.name", f"Invalid 'tools[{place}].function.name'.")
        schema = function.get("parameters")
        if isinstance(schema, dict) and schema and schema.get("type") != "object":
            text = f"Invalid schema for function '{function.get('name')}': schema must be a JSON Schema of 'type: \"object\"'."
            yield Violation("OC-16", f"tools[{place}].function.parameters", text)
    choice = body.get("tool_choice")
    if choice is not None and not tools:
        yield Violation("OC-18", "tool_choice", "'tool_choice' is only allowed when 'tools' are specified.")
    elif isinstance(choice, dict) and choice.get("type") == "function":
        wanted = (choice.get("function") or {}).get("name") if isinstance(choice.get("function"), dict) else None
        if wanted not in names:
            yield Violation("OC-18", "tool_choice", f"Tool choice '{wanted}' not found in 'tools' parameter.")
    elif isinstance(choice, str) and choice not in ("none", "auto", "required"):
        yield Violation("OC-18", "tool_choice", f"Invalid value: '{choice}'.")
    if body.get("parallel_tool_calls") is not None and not tools:
        text = (
            "Invalid value for 'parallel_tool_calls': 'parallel_tool_calls' is only allowed when 'tools' are specified."
        )
        yield Violation("OC-19", "parallel_tool_calls", text)


def _parameters(body: dict[str, Any]) -> Iterator[Violation]:
    for name in sorted(body.keys() - _PARAMETERS):
        yield Violation("OC-26", name, f"Unrecognized request argument supplied: {name}")
    for name, low, high in (("temperature", 0, 2), ("top_p", 0, 1)):
        value = body.get(name)
        if isinstance(value, int | float) and not low <= value <= high:
            yield Violation("OC-20", name, f"Invalid '{name}': expected a value between {low} and {high}, got {value}.")
    if body.get("stream_options") is not None and not body.get("stream"):
        yield Violation(
            "OC-22", "stream_options", "The 'stream_options' parameter is only allowed when 'stream' is enabled."
        )
    if _REASONING_MODEL.match(str(body.get("model"))):
        if body.get("max_tokens") is not None:
            text = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
            yield Violation("OC-reasoning", "max_tokens", text)
        if body.get("temperature") not in (None, 1) and body.get("reasoning_effort") != "none":
            text = "Unsupported value: 'temperature' does not support this value with this model. Only 1 is supported."
            yield Violation("OC-reasoning", "temperature", text)
