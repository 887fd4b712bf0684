"""What OpenAI Chat Completions accepts, as checks over a request body (rules OC-01 to OC-32, MI-01, MI-02, DS-01).

Theory of operation. `check_request` goes over the body's parameters, once over the messages one by one, and once over
them as a sequence; each check appends to one list of violations. The sequence rules (OC-03, OC-04, OC-05) live in
`check_sequence` alone, which repair also calls: it keeps the run of tool messages that an assistant message opened, and
closes it at the first message of another role. An error here is what api.openai.com refuses for certain. What only some
models or hosts refuse is an advisory, and made in `advice`.
A parameter that is null counts as absent. Whoever adds a rule gives its id, OpenAI's own sentence, and a row in the tests.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from antiphon.wire.format import DEFAULT_OPTIONS, WriteOptions
from antiphon.wire.openai_chat.advice import HOST_ARGUMENTS, advise
from antiphon.wire.rules import Violation, name_set
from antiphon.wire.tool_calls import NameMapper
from antiphon.wire.vendors import openai
from antiphon.wire.vendors.openai import (
    Range,
    Violations,
    check_type,
    missing_field,
    quote_value,
    unsupported_value,
    wrong_type,
)

ROLES = ("system", "assistant", "user", "function", "tool", "developer")
PART_TYPES = ("text", "image_url", "input_audio", "refusal", "audio", "file")
ARGUMENTS = name_set(
    "model messages audio frequency_penalty function_call functions logit_bias logprobs max_completion_tokens"
    " max_tokens metadata modalities moderation n parallel_tool_calls prediction presence_penalty prompt_cache_key"
    " prompt_cache_options prompt_cache_retention reasoning_effort response_format safety_identifier seed service_tier"
    " stop store stream stream_options temperature tool_choice tools top_logprobs top_p user verbosity"
    " web_search_options"
)
RANGES = {
    "temperature": Range(0, 2),
    "top_p": Range(0, 1),
    "presence_penalty": Range(-2, 2),
    "frequency_penalty": Range(-2, 2),
    "n": Range(1, 128, integer=True),
    "top_logprobs": Range(0, 20, integer=True),
    "max_tokens": Range(1, integer=True),
    "max_completion_tokens": Range(1, integer=True),
}

_CONTENT_SUBSTITUTES = ("tool_calls", "function_call", "refusal", "audio")
_FUNCTION_RULES = openai.FunctionRules("OC-15", "OC-08", "OC-16", "OC-17", 64)
takes_no_system = openai.model_family("o1-mini|o1-preview")
_thinks = openai.model_family("o1|o3|o3-mini|o4-mini|gpt-5|gpt-5-mini|gpt-5-nano")
_thinks_without_stop = openai.model_family("o3|o4-mini|gpt-5|gpt-5-mini|gpt-5-nano")
_thinks_never = openai.model_family(r"gpt-3\.5-turbo|gpt-4|gpt-4-turbo|gpt-4o|gpt-4o-mini|gpt-4\.1(-mini|-nano)?")
_searches_never = openai.model_family(r"gpt-4o|gpt-4o-mini|gpt-4\.1(-mini|-nano)?")
_NOT_TAKEN = "Unsupported parameter: '{}' is not supported with this model."
MODEL_LIMITS = (
    ("max_tokens", _thinks, _NOT_TAKEN.format("max_tokens") + " Use 'max_completion_tokens' instead."),
    ("stop", _thinks_without_stop, _NOT_TAKEN.format("stop")),
    ("reasoning_effort", _thinks_never, "Unrecognized request argument supplied: reasoning_effort"),
    ("web_search_options", _searches_never, "Web search options not supported with this model."),
)
SPEAKERS = NameMapper(r"[^\s<|\\/>]{1,64}")


def check_request(body: Any, _options: WriteOptions = DEFAULT_OPTIONS, *, advisories: bool = False) -> list[Violation]:
    """Say which rules of Chat Completions a request body breaks, before OpenAI does.

    Advisories (what only some models or hosts refuse) follow the errors, on demand.
    """
    if not isinstance(body, dict):
        return [Violation("OC-01", "", f"Invalid body: expected an object, but got {openai.json_type_name(body)}.")]
    found: Violations = []
    if body.get("model") is not None:
        check_type(found, "OC-01", "model", body["model"], str, "a string")
    messages: Any = body.get("messages")
    if check_type(found, "OC-01", "messages", messages, list, "an array of objects"):
        _check_messages(found, body, messages)
        found.extend(check_sequence(messages))
    _check_tools(found, body)
    _check_tool_choice(found, body)
    _check_settings(found, body)
    _check_response_format(found, body)
    if advisories:
        found.extend(advise(body))
    return found


class _Run(Struct):
    """The tool messages that answer one assistant message."""

    start: int
    waiting: dict[str, None]
    answered: dict[str, int]


def check_sequence(messages: list[Any]) -> list[Violation]:
    """Check that every tool call is answered exactly once, directly after the message that made it."""
    found: Violations = []
    run: _Run | None = None
    for index, message in enumerate(messages):
        if isinstance(message, dict) and message.get("role") == "tool":
            _answer(found, run, index, message.get("tool_call_id"))
        else:
            _close(found, run)
            run = _open(index, message)
    _close(found, run)
    return found


def _open(index: int, message: Any) -> _Run | None:
    calls = message.get("tool_calls") if isinstance(message, dict) else None
    if not calls or not isinstance(calls, list) or message.get("role") != "assistant":
        return None
    ids = [call.get("id") for call in calls if isinstance(call, dict)]
    return _Run(index, {call_id: None for call_id in ids if isinstance(call_id, str)}, {})


def _answer(found: Violations, run: _Run | None, index: int, call_id: Any) -> None:
    if run is None:
        wanted = "messages with role 'tool' must be a response to a preceeding message with 'tool_calls'."
        found.append(Violation("OC-04", f"messages[{index}].role", f"Invalid parameter: {wanted}"))
    elif call_id is None:
        text = "Missing parameter 'tool_call_id': messages with role 'tool' must have a 'tool_call_id'."
        found.append(Violation("OC-04", f"messages[{index}].tool_call_id", text))
    elif not isinstance(call_id, str):
        found.append(wrong_type("OC-04", f"messages[{index}].tool_call_id", "a string", call_id))
    elif call_id in run.waiting:
        del run.waiting[call_id]
        run.answered[call_id] = index
    elif call_id in run.answered:
        both = f"in messages[{run.answered[call_id]}] and messages[{index}]."
        text = f"Invalid parameter: Duplicate value for 'tool_call_id' of '{quote_value(call_id)}', {both}"
        found.append(Violation("OC-05", f"messages[{index}].tool_call_id", text))
    else:
        text = f"Invalid parameter: 'tool_call_id' of '{quote_value(call_id)}' not found in 'tool_calls' of previous message."
        found.append(Violation("OC-04", f"messages[{index}].tool_call_id", text))


def _close(found: Violations, run: _Run | None) -> None:
    if run is not None and run.waiting:
        wanted = "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'."
        ids = ", ".join(run.waiting)
        text = f"{wanted} The following tool_call_ids did not have response messages: {ids}"
        found.append(Violation("OC-03", f"messages[{run.start}].tool_calls", text))


def _check_messages(found: Violations, body: dict[str, Any], messages: list[Any]) -> None:
    if not messages:
        found.append(openai.empty_array("OC-01", "messages"))
    model = body.get("model")
    # The reasoning models of the first generation have none.
    system_roles = ("system", "developer") if isinstance(model, str) and takes_no_system(model) else ()
    for index, message in enumerate(messages):
        if not isinstance(message, dict):
            found.append(wrong_type("OC-01", f"messages[{index}]", "an object", message))
            continue
        role = message.get("role")
        if role is None:
            found.append(missing_field("OC-02", f"messages[{index}].role"))
        elif role not in ROLES:
            found.append(unsupported_value("OC-02", f"messages[{index}].role", role, ROLES))
        elif role in system_roles:
            text = f"Unsupported value: 'messages[{index}].role' does not support '{role}' with this model."
            found.append(Violation("OC-02", f"messages[{index}].role", text))
        if type(message.get("content")) is not str:
            _check_content(found, index, message)
        if role == "assistant" and message.get("tool_calls") is not None:
            _check_calls(found, index, message["tool_calls"])
        if role == "function" or message.get("name") is not None:
            _check_speaker(found, index, message)


def _check_speaker(found: Violations, index: int, message: dict[str, Any]) -> None:
    name, path = message.get("name"), f"messages[{index}].name"
    if name is None:
        text = "Missing parameter 'name': messages with role 'function' must have a 'name'."
        found.append(Violation("OC-28", path, text))
    elif not isinstance(name, str):
        found.append(wrong_type("OC-25", path, "a string", name))
    elif len(name) > 64:
        found.append(openai.string_too_long("OC-25", path, len(name), 64))
    elif SPEAKERS.to_wire(name) != name:
        found.append(openai.pattern_mismatch("OC-25", path, r"^[^\s<|\\/>]+$"))


def _check_content(found: Violations, index: int, message: dict[str, Any]) -> None:
    content, role = message.get("content"), message.get("role")
    if isinstance(content, list):
        if not content:
            found.append(openai.empty_array("OC-11", f"messages[{index}].content"))
        for place, part in enumerate(content):
            if not openai.is_plain_text(part, "text"):
                _check_part(found, f"messages[{index}].content[{place}]", part, role)
    elif content is not None:
        found.append(wrong_type("OC-10", f"messages[{index}].content", "one of a string or array of objects", content))
    elif role != "function" and not (role == "assistant" and any(map(message.get, _CONTENT_SUBSTITUTES))):
        text = "Invalid value for 'content': expected a string, got null."
        found.append(Violation("OC-10", f"messages[{index}].content", text))


def _check_part(found: Violations, path: str, part: Any, role: Any) -> None:
    if not isinstance(part, dict):
        found.append(wrong_type("OC-12", path, "an object", part))
        return
    kind = part.get("type")
    if kind is None:
        found.append(missing_field("OC-11", f"{path}.type"))
    elif kind not in PART_TYPES or (kind == "refusal" and role != "assistant"):
        found.append(unsupported_value("OC-12", f"{path}.type", kind, PART_TYPES))
    elif kind == "image_url":
        image: Any = part.get("image_url")
        if isinstance(image, str):  # seen accepted, though the documents want an object
            openai.check_image_url(found, "OC-13", f"{path}.image_url", image)
        elif check_type(found, "OC-13", f"{path}.image_url", image, dict, "an object"):
            openai.check_image_url(found, "OC-13", f"{path}.image_url.url", image.get("url"))
    elif kind in ("input_audio", "file"):
        check_type(found, "OC-12", f"{path}.{kind}", part.get(kind), dict, "an object")
    elif kind != "audio":  # text and refusal hold a string under their own name
        check_type(found, "OC-12", f"{path}.{kind}", part.get(kind), str, "a string")


def _check_calls(found: Violations, index: int, calls: Any) -> None:
    if not isinstance(calls, list):
        found.append(wrong_type("OC-06", f"messages[{index}].tool_calls", "an array of objects", calls))
    elif not calls:
        found.append(openai.empty_array("OC-06", f"messages[{index}].tool_calls"))
    else:
        for place, call in enumerate(calls):
            if not _is_plain_call(call):
                _check_call(found, f"messages[{index}].tool_calls[{place}]", call)


def _is_plain_call(call: Any) -> bool:
    """Whether nothing is wrong with a function call: what nearly all calls are, told without making a path."""
    if type(call) is not dict or call.get("type") != "function" or type(call.get("id")) is not str:
        return False
    function = call.get("function")
    if type(function) is not dict or type(function.get("arguments")) is not str:
        return False
    name = function.get("name")
    return type(name) is str and openai.is_name(name) is not None


def _check_call(found: Violations, path: str, call: Any) -> None:
    if not isinstance(call, dict):
        found.append(wrong_type("OC-07", path, "an object", call))
        return
    check_type(found, "OC-07", f"{path}.id", call.get("id"), str, "a string")
    kind = call.get("type")
    if kind is None:
        found.append(missing_field("OC-07", f"{path}.type"))
    elif kind not in ("function", "custom"):
        found.append(unsupported_value("OC-07", f"{path}.type", kind, ("function", "custom")))
    elif check_type(found, "OC-07", f"{path}.{kind}", call.get(kind), dict, "an object"):
        name = call[kind].get("name")
        openai.check_name(found, "OC-07" if name is None else "OC-08", f"{path}.{kind}.name", name, 64)
        text = "arguments" if kind == "function" else "input"
        check_type(found, "OC-07", f"{path}.{kind}.{text}", call[kind].get(text), str, "a string")


def _check_tools(found: Violations, body: dict[str, Any]) -> None:
    for field in ("tools", "functions"):
        tools = body.get(field)
        if tools is None:
            continue
        if not isinstance(tools, list):
            found.append(wrong_type("OC-15", field, "an array of objects", tools))
        elif not tools:
            found.append(openai.empty_array("OC-14", field))
        else:
            for place, tool in enumerate(tools):
                _check_tool(found, f"{field}[{place}]", tool, bare=field == "functions")


def _check_tool(found: Violations, path: str, tool: Any, *, bare: bool) -> None:
    if not isinstance(tool, dict):
        found.append(wrong_type("OC-15", path, "an object", tool))
    elif bare:
        openai.check_function(found, _FUNCTION_RULES, path, tool)
    elif tool.get("type") is None:
        found.append(missing_field("OC-15", f"{path}.type"))
    elif tool["type"] not in ("function", "custom"):
        found.append(unsupported_value("OC-15", f"{path}.type", tool["type"], ("function", "custom")))
    else:
        kind = tool["type"]
        if check_type(found, "OC-15", f"{path}.{kind}", tool.get(kind), dict, "an object"):
            openai.check_function(found, _FUNCTION_RULES, f"{path}.{kind}", tool[kind])


def _check_tool_choice(found: Violations, body: dict[str, Any]) -> None:
    choice = body.get("tool_choice")
    for rule, argument, needed in (
        ("OC-18", "tool_choice", "tools"),
        ("OC-19", "parallel_tool_calls", "tools"),
        ("OC-18", "function_call", "functions"),
    ):
        if body.get(argument) is not None and body.get(needed) is None:
            text = f"'{argument}' is only allowed when '{needed}' are specified."
            found.append(Violation(rule, argument, f"Invalid value for '{argument}': {text}"))
    parallel = body.get("parallel_tool_calls")
    if parallel is not None and not isinstance(parallel, bool):
        found.append(wrong_type("OC-19", "parallel_tool_calls", "a boolean", parallel))
    if isinstance(choice, dict):
        tools = body.get("tools")
        declared = {_chosen_name(tool) for tool in tools} if isinstance(tools, list) else set()
        _check_named_choice(found, choice, declared - {""})
    elif choice is not None and choice not in ("none", "auto", "required"):
        found.append(unsupported_value("OC-18", "tool_choice", choice, ("none", "auto", "required")))


def _check_named_choice(found: Violations, choice: dict[str, Any], declared: set[str]) -> None:
    kind, kinds = choice.get("type"), ("function", "custom", "allowed_tools")
    if kind is None:
        found.append(missing_field("OC-18", "tool_choice.type"))
    elif kind not in kinds:
        found.append(unsupported_value("OC-18", "tool_choice.type", kind, kinds))
    elif check_type(found, "OC-18", f"tool_choice.{kind}", choice.get(kind), dict, "an object"):
        tools = choice[kind].get("tools") if kind == "allowed_tools" else [choice]
        if check_type(found, "OC-18", f"tool_choice.{kind}.tools", tools, list, "an array of objects"):
            strangers = [name for name in map(_chosen_name, tools) if declared and name not in declared]
            texts = [f"Tool choice '{quote_value(name)}' not found in 'tools' parameter." for name in strangers]
            found.extend(Violation("OC-18", "tool_choice", text) for text in texts)


def _chosen_name(tool: Any) -> str:
    for kind in ("function", "custom"):
        named = tool.get(kind) if isinstance(tool, dict) else None
        if isinstance(named, dict) and isinstance(named.get("name"), str):
            return str(named["name"])
    return ""


def _check_settings(found: Violations, body: dict[str, Any]) -> None:
    openai.check_ranges(found, "OC-20", body, RANGES)
    openai.check_limits(found, "OC-26", body, MODEL_LIMITS)
    _check_stop(found, body.get("stop"))
    stream, options = body.get("stream"), body.get("stream_options")
    if stream is not None and not isinstance(stream, bool):
        found.append(wrong_type("OC-22", "stream", "a boolean", stream))
    elif options is not None and not stream:
        text = "The 'stream_options' parameter is only allowed when 'stream' is enabled."
        found.append(Violation("OC-22", "stream_options", text))
    if body.get("max_tokens") is not None and body.get("max_completion_tokens") is not None:
        text = "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported."
        found.append(Violation("OC-23", "max_tokens", text))
    openai.check_metadata(found, "OC-27", body.get("metadata"))
    for name in body:
        if name not in ARGUMENTS and name not in HOST_ARGUMENTS:
            found.append(
                Violation("OC-26", quote_value(name), f"Unrecognized request argument supplied: {quote_value(name)}")
            )


def _check_stop(found: Violations, stop: Any) -> None:
    if isinstance(stop, list):
        if len(stop) > 4:
            found.append(openai.array_too_long("OC-21", "stop", len(stop), 4))
        for place, sequence in enumerate(stop):
            if not isinstance(sequence, str):
                found.append(wrong_type("OC-21", f"stop[{place}]", "a string", sequence))
    elif stop is not None and not isinstance(stop, str):
        found.append(wrong_type("OC-21", "stop", "one of a string or array of strings", stop))


def _check_response_format(found: Violations, body: dict[str, Any]) -> None:
    wanted = body.get("response_format")
    if wanted is None or not check_type(found, "OC-24", "response_format", wanted, dict, "an object"):
        return
    kind, path = wanted.get("type"), "response_format.json_schema"
    if kind == "json_schema":
        if check_type(found, "OC-24", path, wanted.get("json_schema"), dict, "an object"):
            openai.check_output_schema(found, "OC-24", "OC-17", path, wanted["json_schema"], schema_needed=False)
    elif kind == "json_object":
        if not any(openai.mentions_json(text) for text in texts_of(body.get("messages"))):
            text = "must contain the word 'json' in some form, to use 'response_format' of type 'json_object'."
            found.append(Violation("OC-24", "messages", f"'messages' {text}"))
    elif kind != "text":
        kinds = ("json_object", "json_schema", "text")
        found.append(unsupported_value("OC-24", "response_format.type", kind, kinds))


def texts_of(messages: Any) -> Iterator[str]:
    for message in messages if isinstance(messages, list) else ():
        content = message.get("content") if isinstance(message, dict) else None
        if isinstance(content, str):
            yield content
        for part in content if isinstance(content, list) else ():
            if isinstance(part, dict) and isinstance(part.get("text"), str):
                yield part["text"]
