"""Responses: a GenerateContentResponse, read and written.

The first candidate is the answer, the rest are its `others`. A blocked prompt is an answer without parts, stopped by the content
filter. Other fields of a candidate (grounding, citations, ...) and of the response (`promptFeedback`, `createTime`) are in
`native["gemini"]` under their own names; unknown fields are in `response` and `candidate` there.

Usage: Gemini counts thoughts and the prompts of its own tools separately; neutral counts include them.
Normalised: null, an empty name or id, and `candidates: []` are absent; names become camelCase; `index` is the position of a
candidate; the role of a content is `model`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec import structs

from antiphon.ids import new_id
from antiphon.parts import Native, NativeExtras, OutputPart, Part, Source, ToolCallResult
from antiphon.wire.gemini import FORMAT
from antiphon.wire.gemini.content import NAME, ContentWriter, read_value
from antiphon.wire.gemini.messages import CONTENT_FIELDS
from antiphon.wire.gemini.native import as_list, field_spellings, get_field, native_extras, require_list, split_fields
from antiphon.wire.loss import Losses, lose_native
from antiphon.wire.output import Count, ModelOutput, StopReason, StopReasons, UsageTable, lose_stop_sequence
from antiphon.wire.rules import name_set
from antiphon.wire.shared_google import format_time, parse_time
from antiphon.wire.tools.call_ids import CallIdTracker

USAGE = UsageTable(
    FORMAT,
    NAME,
    Count("promptTokenCount", "prompt"),
    Count("toolUsePromptTokenCount", "prompt", is_optional=True),
    Count("candidatesTokenCount", "completion"),
    Count("totalTokenCount", "total"),
    Count("thoughtsTokenCount", "reasoning", is_optional=True),
    Count("cachedContentTokenCount", "cached", is_optional=True),
    apart=(("completion", "reasoning"),),
    get=get_field,
)
read_usage, write_usage = USAGE.read, USAGE.write
RESPONSE_FIELDS = field_spellings(
    ("candidates", "promptFeedback", "usageMetadata", "modelVersion", "responseId", "createTime", "modelStatus")
)
CANDIDATE_FIELDS = field_spellings(
    name_set(
        "content finishReason index safetyRatings citationMetadata tokenCount groundingAttributions groundingMetadata"
        " avgLogprobs logprobsResult urlContextMetadata finishMessage continuationToken"
    )
)
RESPONSE_EXTRAS = frozenset({"promptFeedback", "createTime", "modelStatus", "usageMetadata"})
"""Names in `native` that belong to the response, not to the candidate."""
NO_CANDIDATES = Source(FORMAT, ("no-candidates",))
"""Of a response without candidates."""

_FILTERED = (
    *("SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "MODEL_ARMOR"),
    *("IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION"),
)
STOP_REASONS = StopReasons(
    "finishReason",
    {
        "STOP": "end",
        "MAX_TOKENS": "length",
        "CONTINUATION": "paused",
        "MALFORMED_FUNCTION_CALL": "malformed_call",
        "UNEXPECTED_TOOL_CALL": "malformed_call",
        "TOO_MANY_TOOL_CALLS": "malformed_call",
        "OTHER": "other",
        **dict.fromkeys(_FILTERED, "content_filter"),
    },
    same={"stop_sequence": "STOP", "tool_calls": "STOP", "refusal": "SAFETY"},
    instead={"paused": "OTHER"},  # not CONTINUATION: clients would send another request on their own
)
# The numbers of the enum, for clients that encode enums as numbers.
FINISH_REASON_ENUM = (
    *("", "STOP", "MAX_TOKENS", "SAFETY", "RECITATION", "OTHER", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII"),
    *("MALFORMED_FUNCTION_CALL", "IMAGE_SAFETY"),
)


def read_stop_reason(finish_reason: Any, parts: Iterable[OutputPart]) -> StopReason:
    """The stop reason. Gemini reports STOP for calls too."""
    if type(finish_reason) is int and 0 < finish_reason < len(FINISH_REASON_ENUM):
        finish_reason = FINISH_REASON_ENUM[finish_reason]
    return STOP_REASONS.read(finish_reason, parts)


def output_extras(response: dict[str, Any], candidate: dict[str, Any], unknown: dict[str, Any]) -> NativeExtras | None:
    """Native extras of an answer: fields of the response, fields of the candidate, and its unknown fields."""
    extras: dict[str, Any] = {}
    unknown_response: dict[str, Any] = {}
    for name, value in response.items():
        (extras if name in RESPONSE_EXTRAS else unknown_response)[name] = value
    if unknown_response:
        extras["response"] = unknown_response
    extras.update(candidate)
    if unknown:
        extras["candidate"] = unknown
    return native_extras(extras)


def split_extras(native: NativeExtras | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """The reverse of `output_extras`: the fields of the response and of the candidate."""
    response: dict[str, Any] = {}
    candidate: dict[str, Any] = {}
    for name, value in (native or {}).get(FORMAT, {}).items():
        if name in ("response", "candidate"):
            (response if name == "response" else candidate).update(value)
        else:
            (response if name in RESPONSE_EXTRAS else candidate)[name] = value
    return response, candidate


def is_prompt_blocked(feedback: Any) -> bool:
    """Whether the prompt itself was blocked."""
    return isinstance(feedback, dict) and bool(feedback.get("blockReason") or feedback.get("block_reason"))


_RAW_CANDIDATE = Source(FORMAT, ("raw-candidate",))
"""Of a candidate that is not an object; it is kept as one native part."""


def read_response(body: dict[str, Any]) -> ModelOutput:
    """The response in neutral terms. Raises `WireError` if `candidates` is not a list."""
    fields, extras = split_fields(body, RESPONSE_FIELDS)
    candidates = require_list(fields.pop("candidates", None), "candidates")
    model, response_id = take_names(fields, extras)
    usage = read_usage(fields.get("usageMetadata"))
    if usage is not None:
        del fields["usageMetadata"]
    created = parse_time(fields.get("createTime"))
    values: dict[str, Any] = {"format": FORMAT, "model": model, "id": response_id, "created": created}
    response_fields = {**fields, **extras}
    if not candidates:
        stop: StopReason = "content_filter" if is_prompt_blocked(fields.get("promptFeedback")) else ""
        native = output_extras(response_fields, {}, {})
        return ModelOutput(stop_reason=stop, usage=usage, native=native, source=NO_CANDIDATES, **values)
    calls = CallIdTracker(response_id)
    first, *others = (
        _read_candidate(candidate, index, response_fields if index == 0 else {}, calls, values)
        for index, candidate in enumerate(candidates)
    )
    return structs.replace(first, usage=usage, others=tuple(others))


def _read_candidate(
    candidate: Any, position: int, response_fields: dict[str, Any], calls: CallIdTracker, values: dict[str, Any]
) -> ModelOutput:
    blocked = is_prompt_blocked(response_fields.get("promptFeedback"))
    if type(candidate) is not dict:
        native = output_extras(response_fields, {}, {})
        return ModelOutput(parts=(Native(FORMAT, candidate),), native=native, source=_RAW_CANDIDATE, **values)
    fields, unknown = split_fields(candidate, CANDIDATE_FIELDS)
    parts = tuple(output_part(part, read_value(part, calls)) for part in take_parts(fields))
    stop = finish_candidate(fields, fields.pop("finishReason", None), parts, blocked)
    if type(fields.get("index")) is int and fields["index"] == position:
        del fields["index"]
    native = output_extras(response_fields, fields, unknown)
    return ModelOutput(parts=parts, stop_reason=stop, native=native, **values)


def take_names(fields: dict[str, Any], unknown: dict[str, Any]) -> tuple[str, str]:
    """The model and the id of a response; what is not text is unknown."""
    for name in ("modelVersion", "responseId"):
        if type(fields.get(name, "")) is not str:
            unknown[name] = fields.pop(name)
    return fields.pop("modelVersion", ""), fields.pop("responseId", "")


def take_parts(fields: dict[str, Any]) -> list[Any]:
    """The parts among the fields of a candidate, of plain values; unusual fields of its content stay."""
    content = fields.pop("content", None)
    if type(content) is not dict:
        if content is not None:
            fields["content"] = content
        return []
    content_fields, extras = split_fields(content, CONTENT_FIELDS)
    if content_fields.get("role", "model") != "model":
        extras["role"] = content_fields["role"]
    if extras:
        fields["content"] = extras
    return as_list(content_fields.get("parts"))


def finish_candidate(
    fields: dict[str, Any], finish_reason: Any, parts: Iterable[OutputPart], is_blocked: bool
) -> StopReason:
    """Why a candidate stopped; its finish reason stays a field where writing the stop reason would give another."""
    stop = read_stop_reason(finish_reason, parts) or ("content_filter" if is_blocked else "")
    if finish_reason != STOP_REASONS.write(stop):
        fields["finishReason"] = finish_reason
    return stop


def output_part(part: Any, read: Part) -> OutputPart:
    """A part of an answer. Models do not return results, so a result stays native."""
    return Native(FORMAT, part) if isinstance(read, ToolCallResult) else read


def write_response(output: ModelOutput, losses: Losses) -> dict[str, Any]:
    """A response body as Gemini's clients expect it."""
    body: dict[str, Any] = {}
    response_fields = split_extras(output.native)[0]
    if output.source != NO_CANDIDATES or output.parts or output.others:
        body["candidates"] = [
            _write_candidate(candidate, index, losses) for index, candidate in enumerate((output, *output.others))
        ]
    if output.usage is not None:
        body["usageMetadata"] = write_usage(output.usage, losses)
    body.update(response_head(output.id, output.model, output.created, output.format == FORMAT))
    body.update(response_fields)
    return body


def response_head(response_id: str, model: str, created: int | None, is_same_format: bool) -> dict[str, Any]:
    """Model, time and id of a response. Answers of other formats always get an id."""
    head: dict[str, Any] = {}
    if model:
        head["modelVersion"] = model
    if created is not None and not is_same_format:
        time = format_time(created)
        if time is not None:
            head["createTime"] = time
    if response_id or not is_same_format:
        head["responseId"] = response_id or new_id()
    return head


def _write_candidate(output: ModelOutput, index: int, losses: Losses) -> Any:
    losses.place = f"others[{index - 1}]" if index else ""
    path = f"{losses.place}." if index else ""
    lose_native(losses, f"{path}native", output.native, FORMAT)
    if output.source == _RAW_CANDIDATE and len(output.parts) == 1 and isinstance(output.parts[0], Native):
        return output.parts[0].data
    lose_stop_sequence(output.stop_sequence, losses, NAME, path)
    candidate_fields = split_extras(output.native)[1]
    writer = ContentWriter(losses)
    parts: list[Any] = []
    for losses.part, part in enumerate(output.parts):
        parts += writer.write(part)
    losses.part, losses.place = -1, ""
    reported = None if "finishReason" in candidate_fields else losses
    return build_candidate(parts, index, STOP_REASONS.write(output.stop_reason, reported), candidate_fields)


def build_candidate(parts: list[Any], index: int, finish_reason: str | None, fields: dict[str, Any]) -> dict[str, Any]:
    content: Any = {"parts": parts, "role": "model"} if parts else {"role": "model"}
    raw_content = fields.get("content")
    if isinstance(raw_content, dict):
        content.update(raw_content)
    elif raw_content is not None and not parts:  # a stream may have had parts before it
        content = raw_content
    candidate: dict[str, Any] = {"content": content}
    if finish_reason is not None:
        candidate["finishReason"] = finish_reason
    candidate["index"] = index
    candidate.update((name, value) for name, value in fields.items() if name != "content")
    if candidate.get("finishReason", finish_reason) is None:
        candidate.pop("finishReason", None)
    return candidate
