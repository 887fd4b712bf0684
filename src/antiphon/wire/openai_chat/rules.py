"""What Chat Completions accepts, as checks of a request body (rules OC-01 to OC-32, MI-01, MI-02, DS-01).

`check_request` checks the parameters, each message, and the sequence of calls and results (OC-03, OC-04, OC-05). An error is what
api.openai.com certainly refuses. What only some models or hosts refuse is an advisory; advisories have their own pass, so that
the usual check does not pay for them. A host's rules apply if the body's `model` is one of its models. A null parameter is
absent. A new rule needs its id, OpenAI's own sentence, and a row in the tests.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import msgspec
from msgspec import Struct

from antiphon.wire.capabilities import Capabilities, look_up, tool_name_matcher
from antiphon.wire.capabilities.accepted_media import media_problems
from antiphon.wire.format import DEFAULT_OPTIONS, WriteOptions
from antiphon.wire.json_schema import non_strict_problems
from antiphon.wire.openai_chat import FORMAT
from antiphon.wire.openai_chat.dialects import advisory, calls_of, host_advisories
from antiphon.wire.openai_chat.parameters import MAX_STOP_SEQUENCES, PARAMETER_TABLE
from antiphon.wire.parameters import refused_fields
from antiphon.wire.rules import Violation, json_type_name, name_set
from antiphon.wire.tool_calls import NameMapper
from antiphon.wire.vendors import openai
from antiphon.wire.vendors.openai import (
    Violations,
    check_type,
    missing_field,
    quote_value,
    unsupported_value,
    wrong_type,
)
from antiphon.wire.vendors.openai_parameters import WORDING, check_effort, is_reasoning

ROLES = ("system", "assistant", "user", "function", "tool", "developer")
PART_TYPES = ("text", "image_url", "input_audio", "refusal", "audio", "file")
PARAMETERS = name_set(
    "model messages audio frequency_penalty function_call functions logit_bias logprobs max_completion_tokens"
    " max_tokens metadata modalities moderation n parallel_tool_calls prediction presence_penalty prompt_cache_key"
    " prompt_cache_options prompt_cache_retention reasoning_effort response_format safety_identifier seed service_tier"
    " stop store stream stream_options temperature tool_choice tools top_logprobs top_p user verbosity"
    " web_search_options"
)
_CONTENT_SUBSTITUTES = ("tool_calls", "function_call", "refusal", "audio")
_FUNCTION_RULES = openai.FunctionRules(FORMAT, "OC-15", "OC-08", "OC-16", "OC-17")
PARTICIPANT_NAMES = NameMapper(r"[^\s<|\\/>]{1,64}")

# Options of the SDKs and of Azure that recorded accepted requests have (OC-26).
SDK_ONLY_PARAMETERS = name_set("data_sources extra_body extra_headers extra_query timeout")
_MEDIA = {
    "image_url": ("Image URLs", "an image URL"),
    "input_audio": ("Audio inputs", "audio"),
    "file": ("Files", "a file"),
}
_MESSAGE_FIELDS = name_set("role content name tool_calls tool_call_id function_call refusal audio annotations")
_PART_FIELDS = name_set("type text image_url input_audio file refusal prompt_cache_breakpoint")


def check_request(body: Any, options: WriteOptions = DEFAULT_OPTIONS, *, advisories: bool = False) -> list[Violation]:
    """The rules of Chat Completions that a request body breaks; advisories follow the errors, on request."""
    if not isinstance(body, dict):
        return [Violation("OC-01", "", f"Invalid body: expected an object, but got {json_type_name(body)}.")]
    violations: Violations = []
    if body.get("model") is not None:
        check_type(violations, "OC-01", "model", body["model"], str, "a string")
    model = body.get("model")
    capabilities = look_up(model if isinstance(model, str) else "", FORMAT, options.capabilities)
    messages: Any = body.get("messages")
    if check_type(violations, "OC-01", "messages", messages, list, "an array of objects"):
        _check_messages(violations, messages, capabilities)
        violations.extend(check_sequence(messages))
        violations += [
            Violation("OC-13", path, reason) for path, reason in media_problems(messages, "messages", capabilities)
        ]
    _check_tools(violations, body)
    _check_tool_choice(violations, body)
    _check_settings(violations, body, capabilities)
    _check_response_format(violations, body)
    if advisories:
        violations.extend(find_advisories(body))
    return violations


class _PendingResults(Struct):
    """The calls of one assistant message that wait for their tool messages."""

    start: int
    pending: dict[str, None]
    answered: dict[str, int]


def check_sequence(messages: list[Any]) -> list[Violation]:
    """Check that every tool call is answered exactly once, directly after the message that made it."""
    violations: Violations = []
    run: _PendingResults | None = None
    for index, message in enumerate(messages):
        if isinstance(message, dict) and message.get("role") == "tool":
            _answer(violations, run, index, message.get("tool_call_id"))
        else:
            _end_run(violations, run)
            run = _start_run(index, message)
    _end_run(violations, run)
    return violations


def _start_run(index: int, message: Any) -> _PendingResults | None:
    calls = message.get("tool_calls") if isinstance(message, dict) else None
    if not calls or not isinstance(calls, list) or message.get("role") != "assistant":
        return None
    ids = [call.get("id") for call in calls if isinstance(call, dict)]
    return _PendingResults(index, {call_id: None for call_id in ids if isinstance(call_id, str)}, {})


def _answer(violations: Violations, run: _PendingResults | None, index: int, call_id: Any) -> None:
    if run is None:
        expected = "messages with role 'tool' must be a response to a preceeding message with 'tool_calls'."
        violations.append(Violation("OC-04", f"messages[{index}].role", f"Invalid parameter: {expected}"))
    elif call_id is None:
        text = "Missing parameter 'tool_call_id': messages with role 'tool' must have a 'tool_call_id'."
        violations.append(Violation("OC-04", f"messages[{index}].tool_call_id", text))
    elif not isinstance(call_id, str):
        violations.append(wrong_type("OC-04", f"messages[{index}].tool_call_id", "a string", call_id))
    elif call_id in run.pending:
        del run.pending[call_id]
        run.answered[call_id] = index
    elif call_id in run.answered:
        both = f"in messages[{run.answered[call_id]}] and messages[{index}]."
        text = f"Invalid parameter: Duplicate value for 'tool_call_id' of '{quote_value(call_id)}', {both}"
        violations.append(Violation("OC-05", f"messages[{index}].tool_call_id", text))
    else:
        text = f"Invalid parameter: 'tool_call_id' of '{quote_value(call_id)}' not found in 'tool_calls' of previous message."
        violations.append(Violation("OC-04", f"messages[{index}].tool_call_id", text))


def _end_run(violations: Violations, run: _PendingResults | None) -> None:
    if run is not None and run.pending:
        expected = "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'."
        ids = ", ".join(run.pending)
        text = f"{expected} The following tool_call_ids did not have response messages: {ids}"
        violations.append(Violation("OC-03", f"messages[{run.start}].tool_calls", text))


def _check_messages(violations: Violations, messages: list[Any], capabilities: Capabilities) -> None:
    if not messages:
        violations.append(openai.empty_array("OC-01", "messages"))
    # Reasoning models of the first generation have no system role.
    system_roles = ("system", "developer") if capabilities.system_messages == "none" else ()
    for index, message in enumerate(messages):
        if not isinstance(message, dict):
            violations.append(wrong_type("OC-01", f"messages[{index}]", "an object", message))
            continue
        role = message.get("role")
        if role is None:
            violations.append(missing_field("OC-02", f"messages[{index}].role"))
        elif role not in ROLES:
            violations.append(unsupported_value("OC-02", f"messages[{index}].role", role, ROLES))
        elif role in system_roles:
            text = f"Unsupported value: 'messages[{index}].role' does not support '{role}' with this model."
            violations.append(Violation("OC-02", f"messages[{index}].role", text))
        if type(message.get("content")) is not str:
            _check_content(violations, index, message)
        if role == "assistant" and message.get("tool_calls") is not None:
            _check_calls(violations, index, message["tool_calls"])
        if role == "function" or message.get("name") is not None:
            _check_name(violations, index, message)


def _check_name(violations: Violations, index: int, message: dict[str, Any]) -> None:
    name, path = message.get("name"), f"messages[{index}].name"
    if name is None:
        text = "Missing parameter 'name': messages with role 'function' must have a 'name'."
        violations.append(Violation("OC-28", path, text))
    elif not isinstance(name, str):
        violations.append(wrong_type("OC-25", path, "a string", name))
    elif len(name) > 64:
        violations.append(openai.string_too_long("OC-25", path, len(name), 64))
    elif PARTICIPANT_NAMES.to_wire(name) != name:
        violations.append(openai.pattern_mismatch("OC-25", path, r"^[^\s<|\\/>]+$"))


def _check_content(violations: Violations, index: int, message: dict[str, Any]) -> None:
    content, role = message.get("content"), message.get("role")
    if isinstance(content, list):
        if not content:
            violations.append(openai.empty_array("OC-11", f"messages[{index}].content"))
        for place, part in enumerate(content):
            if not openai.is_plain_text(part, "text"):
                _check_part(violations, f"messages[{index}].content[{place}]", part, role)
    elif content is not None:
        violations.append(
            wrong_type("OC-10", f"messages[{index}].content", "one of a string or array of objects", content)
        )
    elif role != "function" and not (role == "assistant" and any(map(message.get, _CONTENT_SUBSTITUTES))):
        text = "Invalid value for 'content': expected a string, got null."
        violations.append(Violation("OC-10", f"messages[{index}].content", text))


def _check_part(violations: Violations, path: str, part: Any, role: Any) -> None:
    if not isinstance(part, dict):
        violations.append(wrong_type("OC-12", path, "an object", part))
        return
    kind = part.get("type")
    if kind is None:
        violations.append(missing_field("OC-11", f"{path}.type"))
    elif kind not in PART_TYPES or (kind == "refusal" and role != "assistant"):
        violations.append(unsupported_value("OC-12", f"{path}.type", kind, PART_TYPES))
    elif kind == "image_url":
        image: Any = part.get("image_url")
        if isinstance(image, str):  # accepted in recordings, although the reference requires an object
            openai.check_image_url(violations, "OC-13", f"{path}.image_url", image, FORMAT)
        elif check_type(violations, "OC-13", f"{path}.image_url", image, dict, "an object"):
            openai.check_image_url(violations, "OC-13", f"{path}.image_url.url", image.get("url"), FORMAT)
    elif kind in ("input_audio", "file"):
        check_type(violations, "OC-12", f"{path}.{kind}", part.get(kind), dict, "an object")
    elif kind != "audio":  # text and refusal hold a string under their own name
        check_type(violations, "OC-12", f"{path}.{kind}", part.get(kind), str, "a string")


def _check_calls(violations: Violations, index: int, calls: Any) -> None:
    if not isinstance(calls, list):
        violations.append(wrong_type("OC-06", f"messages[{index}].tool_calls", "an array of objects", calls))
    elif not calls:
        violations.append(openai.empty_array("OC-06", f"messages[{index}].tool_calls"))
    else:
        for place, call in enumerate(calls):
            if not _is_plain_call(call):
                _check_call(violations, f"messages[{index}].tool_calls[{place}]", call)


def _is_plain_call(call: Any) -> bool:
    """Whether a call is a legal function call: the common case, decided without making a path."""
    if type(call) is not dict or call.get("type") != "function" or type(call.get("id")) is not str:
        return False
    function = call.get("function")
    if type(function) is not dict or type(function.get("arguments")) is not str:
        return False
    name = function.get("name")
    return type(name) is str and tool_name_matcher(FORMAT)(name) is not None


def _check_call(violations: Violations, path: str, call: Any) -> None:
    if not isinstance(call, dict):
        violations.append(wrong_type("OC-07", path, "an object", call))
        return
    check_type(violations, "OC-07", f"{path}.id", call.get("id"), str, "a string")
    kind = call.get("type")
    if kind is None:
        violations.append(missing_field("OC-07", f"{path}.type"))
    elif kind not in ("function", "custom"):
        violations.append(unsupported_value("OC-07", f"{path}.type", kind, ("function", "custom")))
    elif check_type(violations, "OC-07", f"{path}.{kind}", call.get(kind), dict, "an object"):
        name = call[kind].get("name")
        openai.check_tool_name(violations, "OC-07" if name is None else "OC-08", f"{path}.{kind}.name", name, FORMAT)
        text = "arguments" if kind == "function" else "input"
        check_type(violations, "OC-07", f"{path}.{kind}.{text}", call[kind].get(text), str, "a string")


def _check_tools(violations: Violations, body: dict[str, Any]) -> None:
    for field in ("tools", "functions"):
        tools = body.get(field)
        if tools is None:
            continue
        if not isinstance(tools, list):
            violations.append(wrong_type("OC-15", field, "an array of objects", tools))
        elif not tools:
            violations.append(openai.empty_array("OC-14", field))
        else:
            for place, tool in enumerate(tools):
                _check_tool(violations, f"{field}[{place}]", tool, bare=field == "functions")


def _check_tool(violations: Violations, path: str, tool: Any, *, bare: bool) -> None:
    if not isinstance(tool, dict):
        violations.append(wrong_type("OC-15", path, "an object", tool))
    elif bare:
        openai.check_function(violations, _FUNCTION_RULES, path, tool)
    elif tool.get("type") is None:
        violations.append(missing_field("OC-15", f"{path}.type"))
    elif tool["type"] not in ("function", "custom"):
        violations.append(unsupported_value("OC-15", f"{path}.type", tool["type"], ("function", "custom")))
    else:
        kind = tool["type"]
        if check_type(violations, "OC-15", f"{path}.{kind}", tool.get(kind), dict, "an object"):
            openai.check_function(violations, _FUNCTION_RULES, f"{path}.{kind}", tool[kind])


def _check_tool_choice(violations: Violations, body: dict[str, Any]) -> None:
    choice = body.get("tool_choice")
    for rule, argument, needed in (
        ("OC-18", "tool_choice", "tools"),
        ("OC-19", "parallel_tool_calls", "tools"),
        ("OC-18", "function_call", "functions"),
    ):
        if body.get(argument) is not None and body.get(needed) is None:
            text = f"'{argument}' is only allowed when '{needed}' are specified."
            violations.append(Violation(rule, argument, f"Invalid value for '{argument}': {text}"))
    parallel = body.get("parallel_tool_calls")
    if parallel is not None and not isinstance(parallel, bool):
        violations.append(wrong_type("OC-19", "parallel_tool_calls", "a boolean", parallel))
    if isinstance(choice, dict):
        tools = body.get("tools")
        declared = {_tool_name(tool) for tool in tools} if isinstance(tools, list) else set()
        _check_named_choice(violations, choice, declared - {""})
    elif choice is not None and choice not in ("none", "auto", "required"):
        violations.append(unsupported_value("OC-18", "tool_choice", choice, ("none", "auto", "required")))


def _check_named_choice(violations: Violations, choice: dict[str, Any], declared: set[str]) -> None:
    kind, kinds = choice.get("type"), ("function", "custom", "allowed_tools")
    if kind is None:
        violations.append(missing_field("OC-18", "tool_choice.type"))
    elif kind not in kinds:
        violations.append(unsupported_value("OC-18", "tool_choice.type", kind, kinds))
    elif check_type(violations, "OC-18", f"tool_choice.{kind}", choice.get(kind), dict, "an object"):
        tools = choice[kind].get("tools") if kind == "allowed_tools" else [choice]
        if check_type(violations, "OC-18", f"tool_choice.{kind}.tools", tools, list, "an array of objects"):
            undeclared = [name for name in map(_tool_name, tools) if declared and name not in declared]
            texts = [f"Tool choice '{quote_value(name)}' not found in 'tools' parameter." for name in undeclared]
            violations.extend(Violation("OC-18", "tool_choice", text) for text in texts)


def _tool_name(tool: Any) -> str:
    for kind in ("function", "custom"):
        named = tool.get(kind) if isinstance(tool, dict) else None
        if isinstance(named, dict) and isinstance(named.get("name"), str):
            return str(named["name"])
    return ""


def _check_model_limits(violations: Violations, body: dict[str, Any], capabilities: Capabilities) -> None:
    """Ranges (OC-20), and what the model is known to refuse (OC-26)."""
    violations.extend(PARAMETER_TABLE.check(body, capabilities, WORDING))
    effort = body.get("reasoning_effort")
    reasons = is_reasoning(effort, capabilities)
    refused = refused_fields(
        capabilities, "OC-26", "OC-26", body.get("temperature"), body.get("top_p"), is_reasoning=reasons
    )
    if refused:
        violations.extend(PARAMETER_TABLE.check_refused(body, refused, WORDING))
    check_effort(violations, "OC-26", "reasoning_effort", effort, body.get("model"), capabilities)
    accepted = capabilities.sampling
    unsupported = "Unsupported parameter: '{}' is not supported with this model."
    if body.get("logit_bias") and accepted is not None and "logit_bias" not in accepted:
        violations.append(Violation("OC-26", "logit_bias", unsupported.format("logit_bias")))
    if body.get("max_tokens") is not None and not capabilities.max_tokens:
        text = unsupported.format("max_tokens") + " Use 'max_completion_tokens' instead."
        violations.append(Violation("OC-26", "max_tokens", text))
    if body.get("parallel_tool_calls") is not None and not capabilities.parallel_tool_switch:
        violations.append(Violation("OC-26", "parallel_tool_calls", unsupported.format("parallel_tool_calls")))
    if body.get("web_search_options") is not None and not capabilities.web_search:
        violations.append(Violation("OC-26", "web_search_options", "Web search options not supported with this model."))


def _check_settings(violations: Violations, body: dict[str, Any], capabilities: Capabilities) -> None:
    _check_model_limits(violations, body, capabilities)
    _check_stop(violations, body.get("stop"))
    stream, options = body.get("stream"), body.get("stream_options")
    if stream is not None and not isinstance(stream, bool):
        violations.append(wrong_type("OC-22", "stream", "a boolean", stream))
    elif options is not None and not stream:
        text = "The 'stream_options' parameter is only allowed when 'stream' is enabled."
        violations.append(Violation("OC-22", "stream_options", text))
    if body.get("max_tokens") is not None and body.get("max_completion_tokens") is not None:
        text = "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported."
        violations.append(Violation("OC-23", "max_tokens", text))
    openai.check_metadata(violations, "OC-27", body.get("metadata"))
    for name in body:
        if name not in PARAMETERS and name not in SDK_ONLY_PARAMETERS:
            violations.append(
                Violation("OC-26", quote_value(name), f"Unrecognized request argument supplied: {quote_value(name)}")
            )


def _check_stop(violations: Violations, stop: Any) -> None:
    if isinstance(stop, list):
        if len(stop) > MAX_STOP_SEQUENCES:
            violations.append(openai.array_too_long("OC-21", "stop", len(stop), MAX_STOP_SEQUENCES))
        for place, sequence in enumerate(stop):
            if not isinstance(sequence, str):
                violations.append(wrong_type("OC-21", f"stop[{place}]", "a string", sequence))
    elif stop is not None and not isinstance(stop, str):
        violations.append(wrong_type("OC-21", "stop", "one of a string or array of strings", stop))


def _check_response_format(violations: Violations, body: dict[str, Any]) -> None:
    output_format = body.get("response_format")
    if output_format is None or not check_type(
        violations, "OC-24", "response_format", output_format, dict, "an object"
    ):
        return
    kind, path = output_format.get("type"), "response_format.json_schema"
    if kind == "json_schema":
        if check_type(violations, "OC-24", path, output_format.get("json_schema"), dict, "an object"):
            openai.check_output_schema(
                violations, "OC-24", "OC-17", path, output_format["json_schema"], schema_needed=False
            )
    elif kind == "json_object":
        if not any(openai.mentions_json(text) for text in openai.texts_of(body.get("messages"))):
            text = "must contain the word 'json' in some form, to use 'response_format' of type 'json_object'."
            violations.append(Violation("OC-24", "messages", f"'messages' {text}"))
    elif kind != "text":
        kinds = ("json_object", "json_schema", "text")
        violations.append(unsupported_value("OC-24", "response_format.type", kind, kinds))


def find_advisories(body: dict[str, Any]) -> Iterator[Violation]:
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
        yield from _content_advisories(f"messages[{index}]", message)
    yield from _tool_advisories(body.get("tools"))
    if isinstance(model, str):
        yield from host_advisories(model, body, chat_messages)


def _call_advisories(path: str, message: dict[str, Any]) -> Iterator[Violation]:
    calls, seen = calls_of(message), set()
    if calls and message.get("content") is None:
        yield advisory("OC-10", f"{path}.content", "invalid message content type: <nil>")
    for place, call in enumerate(calls):
        call_id, where = call.get("id"), f"{path}.tool_calls[{place}]"
        if isinstance(call_id, str):
            if call_id in seen:
                yield advisory("OC-05", f"{where}.id", f"Duplicate value for 'id' of '{quote_value(call_id)}'.")
            if len(call_id) > 40:
                yield openai.string_too_long("OC-09", f"{where}.id", len(call_id), 40, advisory=True)
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


def _content_advisories(path: str, message: dict[str, Any]) -> Iterator[Violation]:
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
            yield advisory("OC-30", path, f"Invalid '{path}'. {only}, {held}")
        for field in part:
            if field not in _PART_FIELDS:
                yield openai.unknown_field("OC-31", f"{path}.content[{place}].{quote_value(field)}", advisory=True)


def _tool_advisories(tools: Any) -> Iterator[Violation]:
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
            yield advisory("OC-32", f"{path}.parameters", f"{subject}: {problem}")
