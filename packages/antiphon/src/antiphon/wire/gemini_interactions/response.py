"""Responses: an Interaction, read and written.

Its steps are the answer; the stop reason follows from `status` (`requires_action`: it waits for the results of calls). Fields
that a `ModelOutput` has no place for (`updated`, `environment_id`, ...) are native, and so is a status that would not be written
for the stop reason. Thoughts and the prompts of Google's tools are counted apart; neutral counts include them.

Normalisations as for requests; `object` is always written.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from antiphon.errors import WireError
from antiphon.ids import new_id
from antiphon.parts import NativeExtras, OutputPart
from antiphon.wire.gemini_interactions import FORMAT
from antiphon.wire.gemini_interactions.content import StepWriter, read_answer_steps
from antiphon.wire.gemini_interactions.limits import NAME
from antiphon.wire.loss import Loss, Losses, lose_candidates, lose_native, other_fields
from antiphon.wire.output import Count, ModelOutput, StopReason, StopReasons, UsageTable, lose_stop_sequence
from antiphon.wire.rules import json_type_name, name_set
from antiphon.wire.shared_google import format_time, parse_time

_READ_FIELDS = name_set("id object model status steps usage created")
STOP_REASONS = StopReasons(
    "status",
    {
        "completed": "end",
        "requires_action": "tool_calls",
        "incomplete": "length",
        "budget_exceeded": "length",
        "requires_continuation": "paused",
        "in_progress": "",
        "queued": "",
    },
    same={"stop_sequence": "completed", "content_filter": "incomplete", "refusal": "incomplete"},
    instead={"paused": "incomplete", "malformed_call": "incomplete", "other": "incomplete"},
)
USAGE = UsageTable(
    FORMAT,
    NAME,
    Count("total_input_tokens", "prompt"),
    Count("total_output_tokens", "completion"),
    Count("total_thought_tokens", "reasoning"),
    Count("total_cached_tokens", "cached"),
    Count("total_tool_use_tokens", "prompt"),
    Count("total_tokens", "total"),
    apart=(("completion", "reasoning"),),
)
read_usage, write_usage = USAGE.read, USAGE.write
_WITHHELD: dict[str, StopReason] = {"safety": "content_filter", "refusal": "refusal"}
_ERRORS: dict[StopReason, list[dict[str, str]]] = {
    "content_filter": [{"code": "safety", "message": "The answer was withheld by a content filter."}],
    "refusal": [{"code": "refusal", "message": "The model refused to answer."}],
}
"""The errors of an incomplete interaction, by its cause: the status alone means that a limit was reached."""
SINGLE_CANDIDATE = f"{NAME} gives one answer"
FAILED_STATUSES = ("failed", "cancelled")
"""Statuses of an interaction that is not an answer."""


def read_response(body: dict[str, Any]) -> ModelOutput:
    """The Interaction in neutral terms. Raises `WireError` if `steps` is not a list, or if it failed."""
    steps = body.get("steps")
    if steps is not None and type(steps) is not list:
        raise WireError(f"steps: expected an array, got {json_type_name(steps)}")
    if "status" not in body and steps is None:
        raise WireError("not an interaction: it has neither status nor steps")
    if body.get("status") in FAILED_STATUSES:
        raise WireError(f"the interaction has the status {body['status']}")
    parts = read_answer_steps(steps or ())
    stop = read_stop_reason(body, parts)
    values = {field: body[field] for field in ("id", "model") if type(body.get(field)) is str}
    return ModelOutput(
        parts=tuple(parts),
        stop_reason=stop,
        created=parse_time(body.get("created")),
        usage=read_usage(body.get("usage")),
        format=FORMAT,
        native=interaction_extras(body, stop),
        **values,
    )


def read_stop_reason(body: dict[str, Any], parts: Iterable[OutputPart]) -> StopReason:
    """Why the model stopped."""
    status, errors = body.get("status"), body.get("errors")
    if status is None:
        return ""
    if status == "incomplete" and type(errors) is list:
        codes = (error.get("code") for error in errors if type(error) is dict)
        withheld = next((_WITHHELD[code] for code in codes if type(code) is str and code in _WITHHELD), None)
        if withheld is not None:
            return withheld
    if status == "requires_action":
        return "tool_calls"  # the action may be that of a step that stays `Native`
    return STOP_REASONS.read(status, parts)


def interaction_extras(body: dict[str, Any], stop: StopReason) -> NativeExtras | None:
    """The fields of an Interaction that a `ModelOutput` has no field for."""
    extras = other_fields(body, _READ_FIELDS)
    expected = status_fields(stop)
    if body.get("status") is not None and body["status"] != expected["status"]:
        extras["status"] = body["status"]
    if extras.get("errors") == expected.get("errors", ()):
        del extras["errors"]
    for name in ("id", "model"):
        if body.get(name) is not None and type(body[name]) is not str:
            extras[name] = body[name]
    created = parse_time(body.get("created"))
    if body.get("created") is not None and (created is None or format_time(created) != body["created"]):
        extras["created"] = body["created"]
    if body.get("usage") is not None and type(body["usage"]) is not dict:
        extras["usage"] = body["usage"]
    return {FORMAT: extras} if extras else None


def status_fields(stop: StopReason) -> dict[str, Any]:
    """The status for a stop reason, and errors where the status is not enough."""
    fields: dict[str, Any] = {"status": STOP_REASONS.write(stop)}
    return {**fields, "errors": _ERRORS[stop]} if stop in _ERRORS else fields


def write_response(output: ModelOutput, losses: Losses) -> dict[str, Any]:
    """An Interaction as the API's clients expect it."""
    lose_candidates(losses, len(output.others), SINGLE_CANDIDATE)
    steps: list[Any] = []
    StepWriter(losses).model_steps(output.parts, steps)
    return interaction(output, steps, losses)


def to_interaction_id(response_id: str, format_name: str) -> str:
    """The id of an answer as the API's ids look; one of another format is kept in it."""
    if response_id.startswith("v1_") or (format_name == FORMAT and response_id):
        return response_id
    return f"v1_{response_id or new_id()}"


def interaction(output: ModelOutput, steps: list[Any] | None, losses: list[Loss]) -> dict[str, Any]:
    """The object around the steps; `output.parts` are not used."""
    is_same_format = output.format == FORMAT
    body: dict[str, Any] = {"id": to_interaction_id(output.id, output.format), "object": "interaction"}
    if output.model:
        body["model"] = output.model
    body.update(status_fields(output.stop_reason))
    created = int(time.time()) if output.created is None and not is_same_format else output.created
    formatted = None if created is None else format_time(created)
    if formatted is not None:
        body["created"] = formatted
        if not is_same_format:
            body["updated"] = formatted
    if steps is not None:
        body["steps"] = steps
    if output.usage is not None:
        body["usage"] = write_usage(output.usage, losses)
    native = output.native or {}
    body.update(native.get(FORMAT, {}))
    lose_native(losses, "native", native, FORMAT)
    lose_stop_sequence(output.stop_sequence, losses, NAME)
    if "status" not in native.get(FORMAT, {}):
        STOP_REASONS.write(output.stop_reason, losses)
    return body
