"""Responses: a GenerateContentResponse, read and written.

The first candidate is the answer, the rest are its `others`. A prompt that was blocked has no candidates: an answer without
parts, stopped by the content filter. Thoughts of other models are shown to a Gemini client as thoughts, without a signature.

Normalised: null is absent, and so is an empty name or id; names become camelCase; `candidates: []` is absent; a candidate's
`index` is its place unless it says otherwise; the role of a content is `model`; a content without parts is the same in
every spelling.
"""

from __future__ import annotations

from typing import Any

from msgspec import structs

from antiphon.history.ids import new_id
from antiphon.history.usage import TokenUsage
from antiphon.parts import Native, OutputPart, Part, Text, ToolCallRequest, ToolCallResult
from antiphon.wire.gemini.calls import CallIds
from antiphon.wire.gemini.candidate import (
    CANDIDATE,
    CONTENT,
    NO_CANDIDATES,
    RESPONSE,
    is_blocked,
    output_native,
    read_stop,
    seconds_of,
    split_native,
    time_of,
    write_stop,
)
from antiphon.wire.gemini.content import PartWriter, read_part
from antiphon.wire.gemini.spelling import FORMAT, array_of, fields_of, mark, marked
from antiphon.wire.gemini.usage import read_usage, write_usage
from antiphon.wire.loss import Loss, lose_native
from antiphon.wire.output import ModelOutput, StopReason

_RAW = "raw-candidate"
"""The mark of a candidate that is none; it is kept as it came."""


def read_response(body: dict[str, Any]) -> ModelOutput:
    """The response in neutral terms. Raises `WireError` if the candidates are no list."""
    fields, extras = fields_of(body, RESPONSE)
    candidates = array_of(fields.pop("candidates", None), "candidates")
    values: dict[str, Any] = {"format": FORMAT}
    for name, field in (("modelVersion", "model"), ("responseId", "id")):
        value = fields.pop(name, None)
        if type(value) is str:
            values[field] = value
        elif value is not None:
            extras[name] = value
    raw = fields.get("usageMetadata")
    usage = read_usage(fields.pop("usageMetadata")) if type(raw) is dict else None
    values["created"] = seconds_of(fields.get("createTime"))
    of_response = {**fields, **extras}
    if not candidates:
        stop: StopReason = "content_filter" if is_blocked(fields.get("promptFeedback")) else ""
        native = output_native(of_response, {}, {}, has_candidates=False)
        return ModelOutput(stop_reason=stop, usage=usage, native=native, **values)
    calls = CallIds(values.get("id", ""))
    first, *others = (
        _read_candidate(candidate, index, of_response if index == 0 else {}, calls, values)
        for index, candidate in enumerate(candidates)
    )
    return structs.replace(first, usage=usage, others=tuple(others))


def _read_candidate(
    candidate: Any, position: int, of_response: dict[str, Any], calls: CallIds, values: dict[str, Any]
) -> ModelOutput:
    blocked = is_blocked(of_response.get("promptFeedback"))
    if type(candidate) is not dict:
        native = output_native(of_response, {}, {}, has_candidates=True)
        return ModelOutput(parts=(Native(FORMAT, candidate),), native={**(native or {}), **mark(_RAW)}, **values)
    about, unknown = fields_of(candidate, CANDIDATE)
    parts = _read_content(about, calls)
    has_calls = any(type(part) is ToolCallRequest for part in parts)
    word = about.pop("finishReason", None)
    stop = read_stop(word, has_calls) or ("content_filter" if blocked else "")
    if word != write_stop(stop):
        about["finishReason"] = word
    if type(about.get("index")) is int and about["index"] == position:
        del about["index"]
    native = output_native(of_response, about, unknown, has_candidates=True)
    return ModelOutput(parts=parts, stop_reason=stop, native=native, **values)


def _read_content(about: dict[str, Any], calls: CallIds) -> tuple[OutputPart, ...]:
    """The parts of a candidate; what is odd about its content stays in `about`."""
    content = about.pop("content", None)
    if type(content) is not dict:
        if content is not None:
            about["content"] = content
        return ()
    fields, extras = fields_of(content, CONTENT)
    role, parts = fields.get("role", "model"), fields.get("parts")
    if role != "model":
        extras["role"] = role
    if extras:
        about["content"] = extras
    said = parts if type(parts) is list else [] if parts is None else [parts]
    return tuple(output_part(part, read_part(part, calls)) for part in said)


def output_part(part: Any, read: Part) -> OutputPart:
    """What a model may say: a result is none of its business, and is kept as it came."""
    return Native(FORMAT, part) if isinstance(read, ToolCallResult) else read


def write_response(output: ModelOutput, losses: list[Loss]) -> dict[str, Any]:
    """A response body as Gemini's clients expect it."""
    body: dict[str, Any] = {}
    of_response = split_native(output.native)[0]
    if not marked(output.native, NO_CANDIDATES) or output.parts or output.others:
        body["candidates"] = [
            _write_candidate(candidate, index, losses) for index, candidate in enumerate((output, *output.others))
        ]
    if output.usage is not None:
        body["usageMetadata"] = write_usage(output.usage, losses)
    body.update(head_of(output.id, output.model, output.created, output.format == FORMAT))
    body.update(of_response)
    return body


def head_of(response_id: str, model: str, created: int | None, is_own: bool) -> dict[str, Any]:
    """Which response, of which model, when. What Gemini itself left out stays out; others' answers get an id."""
    head: dict[str, Any] = {}
    if model:
        head["modelVersion"] = model
    if created is not None and not is_own:
        time = time_of(created)
        if time is not None:
            head["createTime"] = time
    if response_id or not is_own:
        head["responseId"] = response_id or new_id()
    return head


def _write_candidate(output: ModelOutput, index: int, losses: list[Loss]) -> Any:
    path = f"others[{index - 1}]." if index else ""
    lose_native(losses, f"{path}native", output.native, FORMAT)
    if marked(output.native, _RAW) and len(output.parts) == 1 and isinstance(output.parts[0], Native):
        return output.parts[0].data
    if output.stop_sequence is not None:
        losses.append(Loss(f"{path}stop_sequence", "stop_sequence", f"{FORMAT} does not say which it was"))
    of_candidate = split_native(output.native)[1]
    writer = PartWriter(losses)
    before = len(losses)
    parts: list[Any] = []
    for position, part in enumerate(output.parts):
        written = {"text": part.text} if type(part) is Text and part.native is None else writer.write(part, position)
        if written is not None:
            parts.append(written)
    if path:
        losses[before:] = [Loss(path + loss.path, loss.what, loss.why) for loss in losses[before:]]
    return candidate_of(parts, index, write_stop(output.stop_reason), of_candidate)


def candidate_of(parts: list[Any], index: int, word: str | None, about: dict[str, Any]) -> dict[str, Any]:
    """A candidate with what is said about it."""
    content: Any = {"parts": parts, "role": "model"} if parts else {"role": "model"}
    odd = about.get("content")
    if isinstance(odd, dict):
        content.update(odd)
    elif odd is not None:
        content = odd
    candidate: dict[str, Any] = {"content": content}
    if word is not None:
        candidate["finishReason"] = word
    candidate["index"] = index
    candidate.update((name, value) for name, value in about.items() if name != "content")
    if candidate.get("finishReason", word) is None:
        candidate.pop("finishReason", None)
    return candidate


def scan_usage(_data: bytes) -> TokenUsage | None:
    """None: the response must be read whole."""
    return None
