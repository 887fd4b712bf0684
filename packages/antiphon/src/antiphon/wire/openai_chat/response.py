"""Chat Completions responses, with stop reasons and usage.

Each choice is a candidate: the first becomes the `ModelOutput`, the others its `others`. What no part holds is kept in
`native["openai-chat"]`: keys of the body under their own names (in `response` where those have another meaning there), keys of a
choice in `choice`, of its message in `message`. The
stop reason follows from the parts (calls mean `tool_calls`), because hosts report wrong ones; the host's own `finish_reason` is
kept where ours would differ. A choice of unknown shape stays whole in `whole`.

Normalisations: absent `object`, `role` and `message` have their only value; empty `content` is null; texts are joined; empty
`finish_reason` is null; `index` is the position; a call without an id gets one.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from typing import Any

from msgspec import structs

from antiphon.errors import WireError
from antiphon.ids import new_id
from antiphon.parts import NativeExtras, OutputPart, Refusal, TokenUsage, ToolCallRequest
from antiphon.wire.loss import Loss, Losses, lose_native, other_fields
from antiphon.wire.openai_chat import FORMAT
from antiphon.wire.openai_chat.content import NAME
from antiphon.wire.openai_chat.errors import read_error
from antiphon.wire.openai_chat.message_writer import AssistantWriter
from antiphon.wire.openai_chat.messages import fit_answer, read_assistant
from antiphon.wire.output import (
    Count,
    ModelOutput,
    StopReason,
    StopReasons,
    UsageTable,
    lose_stop_sequence,
    token_count,
)
from antiphon.wire.provenance import is_legacy_function
from antiphon.wire.rules import json_type_name
from antiphon.wire.shapes import UsageScanner

STOP_REASONS = StopReasons(
    "finish_reason",
    {
        "stop": "end",
        "eos": "end",
        "length": "length",
        "tool_calls": "tool_calls",
        "function_call": "tool_calls",
        "content_filter": "content_filter",
    },
    same={"stop_sequence": "stop", "refusal": "content_filter"},
    instead={"paused": "stop", "malformed_call": "stop", "other": "stop"},
)
USAGE = UsageTable(
    FORMAT,
    NAME,
    Count("prompt_tokens", "prompt"),
    Count("completion_tokens", "completion"),
    Count("total_tokens", "total"),
    Count("prompt_tokens_details.cached_tokens", "cached"),
    Count("prompt_tokens_details.cache_write_tokens", "cache_write", is_optional=True),
    Count("completion_tokens_details.reasoning_tokens", "reasoning"),
)
_CHOICE_EXTRAS = ("finish_reason", "choice", "message", "whole")
_RESERVED = (*_CHOICE_EXTRAS, "choices", "response")
_NOT_ID = re.compile(r"[^a-zA-Z0-9_-]+")
_CACHED = ("prompt_cache_hit_tokens", "cache_read_input_tokens", "cached_tokens", "num_cached_tokens")
_BASIC_FIELDS = frozenset({"prompt_tokens", "completion_tokens", "total_tokens"})


def read_response(body: dict[str, Any]) -> ModelOutput:
    """A Chat Completions response in neutral terms."""
    choices = body.get("choices")
    if type(choices) is not list:
        error = read_error(body) if "error" in body else None
        if error is None or error.code != "content_filter" or choices is not None:
            reason = f": {error.message}" if error is not None else ""
            raise WireError(f"choices: expected an array, got {json_type_name(choices)}{reason}")
        # Azure reports a filtered prompt with an error body and status 200.
        fields, native = _read_head(body)
        return ModelOutput(stop_reason="content_filter", native={FORMAT: {**native, "choices": None}}, **fields)
    fields, native = _read_head(body)
    usage = read_usage(body.get("usage"))
    if usage is None and body.get("usage") is not None:
        native["usage"] = body["usage"]
    if not choices:
        native["choices"] = []
        return ModelOutput(usage=usage, native={FORMAT: native}, **fields)
    first, *others = (_read_choice(choice, index, fields) for index, choice in enumerate(choices))
    if native:
        first = structs.replace(first, native={FORMAT: {**native, **(first.native or {}).get(FORMAT, {})}})
    return structs.replace(first, usage=usage, others=tuple(others))


def _read_head(body: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    fields: dict[str, Any] = {"format": FORMAT}
    native: dict[str, Any] = {}
    for key, value in body.items():
        if value is None or key in ("choices", "usage") or (key == "object" and value == "chat.completion"):
            continue
        if (key in ("id", "model") and type(value) is str) or (key == "created" and type(value) is int):
            fields[key] = value
        else:
            keep_field(native, key, value)
    return fields, native


def keep_field(extras: dict[str, Any], name: str, value: Any) -> None:
    """Keep a field of the body among the extras."""
    if name in _RESERVED:
        extras["response"] = {**extras.get("response", {}), name: value}
    else:
        extras[name] = value


def body_fields(extras: dict[str, Any]) -> dict[str, Any]:
    """The fields of the body among the extras."""
    return {**{name: extras[name] for name in extras if name not in _RESERVED}, **extras.get("response", {})}


def _read_choice(choice: Any, index: int, fields: dict[str, Any]) -> ModelOutput:
    message = choice.get("message") if type(choice) is dict else None
    is_known = type(choice) is dict and type(message) in (dict, type(None))
    fitted = fit_answer(message or {}) if is_known else None
    shape, more = (None, None) if fitted is None else fitted
    own = more or {}
    read = None if shape is None else read_assistant(shape, own, index, is_response=True)
    if read is None:
        return ModelOutput(native={FORMAT: {"whole": choice}}, **fields)
    extras = other_fields(choice, ("message", "finish_reason"))
    if type(extras.get("index")) is int and extras["index"] == index:
        del extras["index"]
    if message and message.get("role", "assistant") not in ("assistant", None):
        own["role"] = message["role"]
    finish_reason = choice.get("finish_reason")
    parts = assign_call_ids(read)
    reason = read_stop_reason(finish_reason, parts)
    return ModelOutput(
        parts=tuple(parts),
        stop_reason=reason,
        native=candidate_native(finish_reason, reason, parts, extras, own),
        **fields,
    )


def assign_call_ids(parts: list[OutputPart]) -> list[OutputPart]:
    """Give an id to calls without one."""
    taken = {part.tool_call_id for part in parts if isinstance(part, ToolCallRequest)}
    if "" not in taken:
        return parts
    named: list[OutputPart] = []
    number = 0
    for part in parts:
        if isinstance(part, ToolCallRequest) and not part.tool_call_id:
            while f"call_{number}" in taken:
                number += 1
            taken.add(f"call_{number}")
            part = structs.replace(part, tool_call_id=f"call_{number}")
        named.append(part)
    return named


def read_stop_reason(finish_reason: Any, parts: Sequence[OutputPart]) -> StopReason:
    """Why the model stopped, from `finish_reason` and from its parts."""
    reason = STOP_REASONS.read(None if finish_reason == "" else finish_reason, parts)
    has_calls = reason in ("", "other") and any(type(part) is ToolCallRequest for part in parts)
    return "tool_calls" if has_calls else reason


def candidate_native(
    finish_reason: Any, reason: StopReason, parts: Sequence[OutputPart], choice: dict[str, Any], message: dict[str, Any]
) -> NativeExtras | None:
    """What a candidate has beside its parts: the host's own finish reason, and the extras of its choice and message."""
    extras: dict[str, Any] = {}
    if finish_reason == "":
        finish_reason = None
    if finish_reason != write_stop_reason(reason, parts, is_same_format=True):
        extras["finish_reason"] = finish_reason
    if choice:
        extras["choice"] = choice
    if message:
        extras["message"] = message
    return {FORMAT: extras} if extras else None


def write_stop_reason(
    reason: StopReason, parts: Sequence[OutputPart], *, is_same_format: bool, losses: list[Loss] | None = None
) -> str | None:
    """The `finish_reason` for a neutral reason."""
    calls = [part for part in parts if type(part) is ToolCallRequest]
    if reason == "tool_calls" and len(calls) == 1 and is_legacy_function(calls[0]):
        return "function_call"
    if reason == "":
        return None if is_same_format else "tool_calls" if calls else "stop"
    if reason == "refusal" and any(type(part) is Refusal for part in parts):
        return "stop"
    return STOP_REASONS.write(reason, losses)


def write_response(output: ModelOutput, losses: Losses) -> dict[str, Any]:
    """A body as Chat Completions clients expect it."""
    native = output.native or {}
    own = native.get(FORMAT, {})
    is_same_format = output.format == FORMAT
    body: dict[str, Any] = {
        "id": output.id if is_same_format else completion_id(output.id),
        "object": "chat.completion",
    }
    if not is_same_format or output.created is not None:
        body["created"] = int(time.time()) if output.created is None else output.created
    body["model"] = output.model
    choices = own.get("choices", output)
    if choices is output:
        candidates = (output, *output.others)
        body["choices"] = [_write_choice(candidate, index, losses) for index, candidate in enumerate(candidates)]
    elif choices is not None:
        body["choices"] = choices
    if output.usage is not None:
        body["usage"] = write_usage(output.usage)
    body.update(body_fields(own))
    return body


def completion_id(answer_id: str) -> str:
    """An OpenAI response id, derived from another format's."""
    if not answer_id:
        return f"chatcmpl-{new_id()}"
    return answer_id if answer_id.startswith("chatcmpl-") else f"chatcmpl-{_NOT_ID.sub('_', answer_id)}"


def _write_choice(output: ModelOutput, index: int, losses: Losses) -> Any:
    path = "" if index == 0 else f"others[{index - 1}]."
    native = output.native or {}
    lose_native(losses, f"{path}native", native, FORMAT)
    own = native.get(FORMAT, {})
    if "whole" in own:
        return own["whole"]
    lose_stop_sequence(output.stop_sequence, losses, NAME, path)
    losses.place = path.removesuffix(".")
    message = AssistantWriter(losses).response_message(output.parts)
    losses.place = ""
    message.update(own.get("message", {}))
    if "finish_reason" in own:
        finish_reason = own["finish_reason"]
    else:
        finish_reason = write_stop_reason(
            output.stop_reason, output.parts, is_same_format=output.format == FORMAT, losses=losses
        )
    return {
        "index": index,
        "message": message,
        "logprobs": None,
        "finish_reason": finish_reason,
        **own.get("choice", {}),
    }


def read_usage(raw: Any) -> TokenUsage | None:
    """The counts of a `usage` object; None if there is none.

    Neutral counts are inclusive: the prompt includes cached tokens, the completion reasoning. Hosts that count otherwise are
    recognised by their totals (xAI: total = prompt + completion + reasoning; Grok at Azure: more cached than prompt tokens).
    """
    stated = USAGE.read(raw) if raw else None
    if stated is None:
        return None
    prompt, completion, total = stated.prompt_tokens, stated.completion_tokens, stated.total_tokens
    cached, written, reasoning = stated.cached_tokens, stated.cache_write_tokens, stated.reasoning_tokens
    if not _BASIC_FIELDS.issuperset(raw):
        cached = cached or next(filter(None, (token_count(raw, name) for name in _CACHED)), 0)
        written = written or token_count(raw, "cache_creation_input_tokens")
        reasoning = reasoning or token_count(raw, "reasoning_tokens")
    uncounted = total - prompt - completion
    if uncounted > 0 and uncounted == token_count(raw.get("prompt_tokens_details"), "audio_tokens"):
        prompt += uncounted
    elif uncounted > 0 and reasoning in (0, uncounted):
        completion, reasoning = completion + uncounted, uncounted
    elif reasoning > completion:
        completion += reasoning
    if cached > prompt:
        prompt += cached
    return TokenUsage(prompt, completion, cached, written, reasoning, total, raw, FORMAT)


def write_usage(usage: TokenUsage) -> dict[str, Any]:
    """A `usage` object; the host's own if it came from this format."""
    written = USAGE.write(usage)
    if written is not usage.raw:
        written["total_tokens"] = usage.prompt_tokens + usage.completion_tokens  # another total would mean other counts
    return written


scan_usage = UsageScanner("choices", "usage", read_usage).scan
