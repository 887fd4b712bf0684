"""Responses of OpenAI Responses.

The `output` is one assistant turn and is read item by item, like the items of a request. Fields that a `ModelOutput` lacks,
mostly the settings of the request, are kept in `native`. `status` and `incomplete_details` become the stop reason, and are kept
only where writing that reason would give other values.

Normalisations: null is absent, and so are empty lists of `annotations` and `logprobs`; a message without a role is the
assistant's; absent `arguments` are `{}`. A response of another format is written with every field that OpenAI's clients expect.

OpenAI's responses repeat the settings they were made with, in full: defaults are filled in, and a function tool has all its
fields. The response of another API has none of this, so it is taken from the client's request (`request_settings`).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

from antiphon.errors import WireError
from antiphon.ids import new_id
from antiphon.parts import NativeExtras, OutputPart, TokenUsage
from antiphon.wire.loss import Loss, Losses, lose_candidates, lose_native, other_fields
from antiphon.wire.openai_responses import FORMAT
from antiphon.wire.openai_responses.content import NAME, read_model_item, write_output_items
from antiphon.wire.output import Count, ModelOutput, StopReason, StopReasons, UsageTable, lose_stop_sequence
from antiphon.wire.rules import json_type_name
from antiphon.wire.shared_openai import OPENAI

_READ_FIELDS = frozenset({"id", "object", "created_at", "model", "output", "usage", "status", "incomplete_details"})
_INCOMPLETE = ("max_output_tokens", "content_filter")
STOP_REASONS = StopReasons(
    "status",  # of an incomplete response, its reason
    {
        "completed": "end",
        "complete": "end",
        "max_output_tokens": "length",
        "content_filter": "content_filter",
        "in_progress": "paused",
        "queued": "paused",
    },
    same={"": "completed", "tool_calls": "completed", "refusal": "completed"},
    instead={"stop_sequence": "completed", "paused": "completed", "malformed_call": "completed", "other": "completed"},
)
USAGE = UsageTable(
    FORMAT,
    NAME,
    Count("input_tokens", "prompt"),
    Count("input_tokens_details.cached_tokens", "cached"),
    Count("input_tokens_details.cache_write_tokens", "cache_write"),
    Count("output_tokens", "completion"),
    Count("output_tokens_details.reasoning_tokens", "reasoning"),
    Count("total_tokens", "total"),
)
read_usage = USAGE.read
SINGLE_CANDIDATE = f"{NAME} supports one candidate"
DEFAULTS: dict[str, Any] = {
    "background": False,
    "frequency_penalty": 0,
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "presence_penalty": 0,
    "previous_response_id": None,
    "prompt_cache_key": None,
    "reasoning": {"effort": None, "summary": None},
    "safety_identifier": None,
    "service_tier": "default",
    "store": True,
    "temperature": 1.0,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_logprobs": 0,
    "top_p": 1.0,
    "truncation": "disabled",
}
"""The settings of a response, with their values when the request does not set them."""

_ONLY_IF_GIVEN = ("conversation", "prompt", "user", "prompt_cache_retention", "context_management")
_CHOSEN_BY_SERVER = frozenset({"service_tier"})
"""What a request asks for is not what the response reports."""
CLIENT_FIELDS = ("background", "conversation", "previous_response_id", "store")
"""Settings that are between the client and the gateway; what an upstream reports for them does not concern the client."""
_REASONING: dict[str, Any] = {"effort": None, "summary": None}
_FUNCTION: dict[str, Any] = {"type": "function", "name": "", "description": None, "parameters": None, "strict": True}
_REQUIRED_FIELDS: dict[str, Any] = {"error": None, "incomplete_details": None, "instructions": None}
_DEFAULTS: dict[str, Any] = {**_REQUIRED_FIELDS, "completed_at": None, **DEFAULTS}
"""What clients look for in a response of another format."""


def read_response(body: dict[str, Any]) -> ModelOutput:
    """A Responses object in neutral terms."""
    output = body.get("output")
    if output is not None and type(output) is not list:
        raise WireError(f"output: expected an array of items, got {json_type_name(output)}")
    parts: list[OutputPart] = []
    for item in output or ():
        read_model_item(parts, item)
    reason = read_stop_reason(body, parts)
    response_id, model = body.get("id"), body.get("model")
    return ModelOutput(
        parts=tuple(parts),
        stop_reason=reason,
        id=response_id if type(response_id) is str else "",
        model=model if type(model) is str else "",
        created=created_of(body),
        usage=read_usage(body.get("usage")),
        format=FORMAT,
        native=response_extras(body, reason),
    )


def created_of(body: dict[str, Any]) -> int | None:
    created = body.get("created_at")
    return created if type(created) is int else None


def read_stop_reason(body: dict[str, Any], parts: Iterable[OutputPart]) -> StopReason:
    """Why the model stopped, from the status and from its parts."""
    word, details = body.get("status"), body.get("incomplete_details")
    if word == "incomplete" or (word is None and details):
        reason = details.get("reason") if type(details) is dict else None
        word = reason if reason in _INCOMPLETE else ""
    elif type(word) is not str:
        word = "completed"
    return STOP_REASONS.read(word, parts)


def response_extras(body: dict[str, Any], reason: StopReason) -> NativeExtras | None:
    """The fields of a response that a `ModelOutput` has no field for."""
    extras = other_fields(body, _READ_FIELDS)
    status = {"status": body.get("status"), "incomplete_details": body.get("incomplete_details")}
    if status != _status(reason):
        extras["status"] = status["status"]
        if status["incomplete_details"] is not None:
            extras["incomplete_details"] = status["incomplete_details"]
    for field, kind in (("id", str), ("model", str), ("created_at", int), ("usage", dict)):
        value = body.get(field)
        if value is not None and type(value) is not kind:
            extras[field] = value
    if body.get("object", "response") != "response":
        extras["object"] = body["object"]
    return {FORMAT: extras} if extras else None


def _status(reason: StopReason, items: list[Any] | None = None) -> dict[str, Any]:
    """The status for a stop reason. A refusal without refusal text (in `items`) is that of a filter."""
    if reason == "refusal" and items is not None and not any(map(_has_refusal, items)):
        reason = "content_filter"
    word = STOP_REASONS.write(reason)
    if word in _INCOMPLETE:
        return {"status": "incomplete", "incomplete_details": {"reason": word}}
    return {"status": word, "incomplete_details": None}


def _has_refusal(item: Any) -> bool:
    content = item.get("content") if isinstance(item, dict) else None
    return isinstance(content, list) and any(isinstance(part, dict) and "refusal" in part for part in content)


def write_usage(usage: TokenUsage | None) -> dict[str, Any] | None:
    return None if usage is None else USAGE.write(usage)


def write_response(output: ModelOutput, losses: Losses) -> dict[str, Any]:
    """A Responses object as OpenAI's clients expect it."""
    lose_candidates(losses, len(output.others), SINGLE_CANDIDATE)
    items = write_output_items(output.parts, losses)
    return response_body(output, items, losses)


def to_response_id(response_id: str, origin: str) -> str:
    """The response's own id, or one in OpenAI's format."""
    if origin == FORMAT:
        return response_id
    if not response_id:
        return f"resp_{new_id()}"
    return response_id if response_id.startswith("resp_") else f"resp_{response_id}"


def response_body(output: ModelOutput, items: list[Any], losses: list[Loss]) -> dict[str, Any]:
    """The object around the items; `output.parts` are not used."""
    native = output.native or {}
    is_same_format = output.format == FORMAT
    created = int(time.time()) if output.created is None and not is_same_format else output.created
    body: dict[str, Any] = {
        "id": to_response_id(output.id, output.format),
        "object": "response",
        "created_at": created,
        **(_REQUIRED_FIELDS if is_same_format else _DEFAULTS),
        **_status(output.stop_reason, items),
        "model": output.model,
        "output": items,
        "usage": write_usage(output.usage),
    }
    if not is_same_format and body["status"] == "completed":
        body["completed_at"] = int(time.time())
    for origin in (OPENAI, FORMAT):
        body.update(native.get(origin, {}))
    lose_native(losses, "native", native, FORMAT, OPENAI)
    lose_stop_sequence(output.stop_sequence, losses, NAME)
    if "status" not in native.get(FORMAT, {}):
        STOP_REASONS.write(output.stop_reason, losses)
    return body


def request_settings(body: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a request body that differ from the defaults, as a response repeats them."""
    settings: dict[str, Any] = {}
    for field in DEFAULTS:
        value = body.get(field)
        if value is not None and field not in _CHOSEN_BY_SERVER:
            settings[field] = value
    for field in _ONLY_IF_GIVEN:
        if body.get(field) is not None:
            settings[field] = body[field]
    if isinstance(settings.get("conversation"), str):
        settings["conversation"] = {"id": settings["conversation"]}
    if "tools" in settings:
        settings["tools"] = _complete_tools(settings["tools"])
    if isinstance(settings.get("reasoning"), dict):
        settings["reasoning"] = {**_REASONING, **settings["reasoning"]}
    if isinstance(settings.get("text"), dict):
        settings["text"] = {**DEFAULTS["text"], **settings["text"]}
    return settings


def with_settings(extras: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """The extras of a response with the settings of its request, where the response does not have its own."""
    return {**settings, **extras, **{field: settings[field] for field in CLIENT_FIELDS if field in settings}}


def _complete_tools(tools: Any) -> Any:
    if not isinstance(tools, list):
        return []
    return [
        {**_FUNCTION, **tool} if isinstance(tool, dict) and tool.get("type") == "function" else tool for tool in tools
    ]
