"""Checks of the messages of a Chat Completions request: each message, its parts and calls, and their sequence."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from antiphon.wire.capabilities import Capabilities, tool_name_matcher
from antiphon.wire.capabilities.accepted_media import media_problems
from antiphon.wire.openai_chat import FORMAT
from antiphon.wire.openai_chat.limits import (
    MAX_PARTICIPANT_NAME,
    NOT_IN_PARTICIPANT_NAME,
    PART_TYPES,
    PARTICIPANT_NAMES,
    ROLES,
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

_CONTENT_SUBSTITUTES = ("tool_calls", "function_call", "refusal", "audio")


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


def check_messages(context: RuleContext) -> None:
    body, violations = context.body, context.violations
    if body.get("model") is not None:
        check_type(violations, "OC-01", "model", body["model"], str, "a string")
    messages: Any = body.get("messages")
    if not check_type(violations, "OC-01", "messages", messages, list, "an array of objects"):
        return
    if not messages:
        violations.append(openai.empty_array("OC-01", "messages"))
    _check_each_message(violations, messages, context.model, context.host_fields)
    violations.extend(check_sequence(messages))
    violations += [
        Violation("OC-13", path, reason) for path, reason in media_problems(messages, "messages", context.model)
    ]


def _check_each_message(
    violations: Violations, messages: list[Any], capabilities: Capabilities, host_fields: frozenset[str]
) -> None:
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
            _check_content(violations, index, message, host_fields)
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
    elif len(name) > MAX_PARTICIPANT_NAME:
        violations.append(openai.string_too_long("OC-25", path, len(name), MAX_PARTICIPANT_NAME))
    elif PARTICIPANT_NAMES.to_wire(name) != name:
        violations.append(openai.pattern_mismatch("OC-25", path, f"^[^{NOT_IN_PARTICIPANT_NAME}]+$"))


def _check_content(violations: Violations, index: int, message: dict[str, Any], host_fields: frozenset[str]) -> None:
    content, role = message.get("content"), message.get("role")
    if isinstance(content, list):
        if not content:
            violations.append(openai.empty_array("OC-11", f"messages[{index}].content"))
        for place, part in enumerate(content):
            if not openai.is_plain_text(part, "text"):
                _check_part(violations, f"messages[{index}].content[{place}]", part, role, host_fields)
    elif content is not None:
        violations.append(
            wrong_type("OC-10", f"messages[{index}].content", "one of a string or array of objects", content)
        )
    elif role != "function" and not (role == "assistant" and any(map(message.get, _CONTENT_SUBSTITUTES))):
        text = "Invalid value for 'content': expected a string, got null."
        violations.append(Violation("OC-10", f"messages[{index}].content", text))


def _check_part(violations: Violations, path: str, part: Any, role: Any, host_fields: frozenset[str]) -> None:
    if not isinstance(part, dict):
        violations.append(wrong_type("OC-12", path, "an object", part))
        return
    kind = part.get("type")
    if kind is None:
        violations.append(missing_field("OC-11", f"{path}.type"))
    elif isinstance(kind, str) and kind in host_fields and role == "assistant":  # Mistral's thinking
        check_type(violations, "OC-12", f"{path}.{kind}", part.get(kind), list, "an array of objects")
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
