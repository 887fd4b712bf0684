"""Responses of the Messages API, read and written.

A response is text, thinking and calls; blocks of the provider's own tools stay `Native`. The neutral stop reason depends on the
calls present as well as on `stop_reason`, which is kept where writing the neutral one would give another. All other fields are
in `native["anthropic"]`. From other formats: thinking is shown unsigned, empty text is dropped, and a refusal is text with the
stop reason `refusal`. Usage: the API counts cached tokens separately; neutral counts include them.

Normalised: null is absent, but `stop_sequence` is always written; a thinking block always has a signature, which may be empty;
empty lists of citations are absent; input objects are compact JSON; a missing id is generated.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from antiphon.errors import WireError
from antiphon.ids import new_id
from antiphon.parts import Audio, Native, OutputPart, Refusal, Text, Thinking, TokenUsage, ToolCallRequest
from antiphon.wire.anthropic import FORMAT
from antiphon.wire.anthropic.content import build_block, read_output_block, report_unsupported
from antiphon.wire.anthropic.errors import read_error
from antiphon.wire.anthropic.shapes import DIRECT_CALLER, unread_fields
from antiphon.wire.loss import Loss, Losses, lose_candidates, own_extras
from antiphon.wire.native_as_text import transcribe
from antiphon.wire.output import Count, ModelOutput, StopReason, StopReasons, UsageTable
from antiphon.wire.rules import json_type_name
from antiphon.wire.shapes import UsageScanner
from antiphon.wire.tools.call_ids import IdMapper
from antiphon.wire.tools.definitions import arguments_object

USAGE = UsageTable(
    FORMAT,
    "Anthropic",
    Count("input_tokens", "prompt"),
    Count("cache_creation_input_tokens", "cache_write"),
    Count("cache_read_input_tokens", "cached"),
    Count("output_tokens", "completion"),
    Count("output_tokens_details.thinking_tokens", "reasoning"),
    apart=(("prompt", "cached"), ("prompt", "cache_write")),
)
read_usage = USAGE.read


def write_usage(usage: TokenUsage | None, is_same_format: bool, *, is_total: bool = False) -> dict[str, Any]:
    """A usage object with all its fields; the original one if it came from Anthropic. `is_total`: that of `message_delta`."""
    if usage is None and is_same_format:
        return {"input_tokens": 0, "output_tokens": 0}
    usage = usage or TokenUsage()
    written = USAGE.write(usage)
    if written is usage.raw:
        return written
    written["server_tool_use"] = None
    if not is_total:
        written["cache_creation"] = {
            "ephemeral_5m_input_tokens": usage.cache_write_tokens,
            "ephemeral_1h_input_tokens": 0,
        }
        written |= {"service_tier": "standard", "inference_geo": None}
    return written


MESSAGE_IDS = IdMapper(r"msg_[a-zA-Z0-9_-]{1,124}", prefix="msg_")

STOP_REASONS = StopReasons(
    "stop_reason",
    {
        "end_turn": "end",
        "stop_sequence": "stop_sequence",
        "max_tokens": "length",
        "model_context_window_exceeded": "length",
        "tool_use": "tool_calls",
        "refusal": "refusal",
        "pause_turn": "paused",
    },
    same={"": "end_turn"},
    instead={"content_filter": "refusal", "malformed_call": "end_turn", "other": "end_turn"},
)
EMPTY_DETAILS: dict[str, Any] = {"stop_details": None, "container": None}
"""Fields of a message that only Anthropic fills, and clients look for."""
RESPONSE_FIELDS = frozenset({"type", "role", "content", "id", "model", "stop_reason", "stop_sequence", "usage"})


def read_response(body: dict[str, Any]) -> ModelOutput:
    """The response in neutral terms. Raises `WireError` if `content` is not a list."""
    content = body.get("content")
    if type(content) is not list:
        detail = f": {read_error(body).message}" if body.get("type") == "error" else ""
        raise WireError(f"content: expected an array, got {json_type_name(content)}{detail}")
    parts = tuple([read_output_block(block) for block in content])
    extras = (unread_fields(body, RESPONSE_FIELDS) or {}).get(FORMAT, {})
    stop, stop_extras = read_stop_reason(body.get("stop_reason"), parts)
    usage = read_usage(body.get("usage"))
    texts: dict[str, Any] = {}
    for name in ("id", "model", "stop_sequence"):
        if type(body.get(name)) is str:
            texts[name] = body[name]
        elif body.get(name) is not None:
            extras[name] = body[name]
    for name, expected in (("type", "message"), ("role", "assistant")):
        if body.get(name) not in (None, expected):
            extras[name] = body[name]
    if usage is None and body.get("usage") is not None:
        extras["usage"] = body["usage"]
    extras |= stop_extras
    return ModelOutput(
        parts=parts,
        stop_reason=stop,
        **texts,
        usage=usage,
        format=FORMAT,
        native={FORMAT: extras} if extras else None,
    )


def read_stop_reason(name: Any, parts: Iterable[OutputPart]) -> tuple[StopReason, dict[str, Any]]:
    """The stop reason, and the original one as an extra where it is more specific."""
    stop = STOP_REASONS.read(name, parts)
    is_kept = stop == "other" or (name is not None and STOP_REASONS.write(stop) != name)
    return stop, {"stop_reason": name} if is_kept else {}


def write_response(output: ModelOutput, losses: Losses) -> dict[str, Any]:
    is_same_format = output.format == FORMAT
    content: list[Any] = []
    for position, part in enumerate(output.parts):
        if isinstance(part, Native) and part.origin == FORMAT:
            content.append(part.data)
            continue
        losses.part = position
        block = _write_block(part, is_same_format, losses)
        if block is not None:
            content.append(block)
    losses.part = -1
    lose_candidates(losses, len(output.others), "Anthropic returns one candidate")
    report_created(output.created, losses)
    extras = own_extras(output.native, losses, "native", FORMAT)
    has_refusal = any(type(part) is Refusal for part in output.parts)
    return {
        "id": message_id(output.id, is_same_format),
        "type": "message",
        "role": "assistant",
        "model": output.model,
        "content": content,
        "stop_reason": write_stop_reason(output.stop_reason, has_refusal, is_same_format, losses),
        "stop_sequence": output.stop_sequence,
        **({} if is_same_format else EMPTY_DETAILS),
        "usage": write_usage(output.usage, is_same_format),
        **extras,
    }


def message_id(source_id: str, is_same_format: bool) -> str:
    """The id of a response; ids of other formats get the prefix of this one."""
    if is_same_format and source_id:
        return source_id
    return MESSAGE_IDS.to_wire(f"msg_{source_id}") if source_id else f"msg_{new_id()}"


def report_created(created: int | None, losses: list[Loss]) -> None:
    if created is not None:
        losses.append(Loss("created", "created", "Anthropic does not report the time; dropped"))


def write_stop_reason(stop: StopReason, has_refusal: bool, is_same_format: bool, losses: list[Loss]) -> str | None:
    if not stop and is_same_format:
        return None
    if has_refusal and stop in ("", "end"):
        return "refusal"
    return STOP_REASONS.write(stop, None if is_same_format else losses)


def _write_block(part: OutputPart, is_same_format: bool, losses: Losses) -> dict[str, Any] | None:
    """The block of a part; None if it is empty or dropped."""
    part = transcribe(part, losses) if type(part) is Audio else part
    if not isinstance(part, Text | Refusal | Thinking | ToolCallRequest):
        report_unsupported(part, losses)
        return None
    if isinstance(part, ToolCallRequest):
        block = complete_block(build_block(part, arguments_object(part, losses, "AN-12")), is_same_format)
        return {**block, **losses.take_extras(part.native, FORMAT)}
    extras = losses.take_extras(part.native, FORMAT)
    is_shown = part.text or is_same_format or (extras and isinstance(part, Thinking))
    return {**complete_block(build_block(part, part.text), is_same_format), **extras} if is_shown else None


def complete_block(block: dict[str, Any], is_same_format: bool) -> dict[str, Any]:
    """A block of a response with the fields that Anthropic's have; one from Anthropic has them, or has them not."""
    return block if is_same_format else {**block, **_BLOCK_DETAILS.get(block["type"], {})}


_BLOCK_DETAILS: dict[str, dict[str, Any]] = {"text": {"citations": None}, "tool_use": {"caller": DIRECT_CALLER}}


scan_usage = UsageScanner("content", "usage", read_usage).scan
