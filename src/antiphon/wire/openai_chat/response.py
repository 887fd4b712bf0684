"""Chat Completions answers: `read_response` and `write_response`.

Theory of operation. Each choice is a candidate: its message is read by `assistant`, the first becomes the `ModelOutput`, the
rest its `others`. What no part holds is kept in `native["openai-chat"]`: keys of the body under their own names, keys of a
choice in `choice`, of its message in `message`. Why the model stopped is decided by what it said (calls mean `tool_calls`),
because `finish_reason` lies; the host's own word is kept where the neutral one would be written differently. A choice that
is none stays whole in `whole`.

Normalisations, beside those of `assistant` and `calls`: absent `object`, `role` and `message` are what they must be; an
empty `content` is null; texts of an answer are joined; empty `finish_reason` is null; `index` is the place; a call without
an id gets one.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from typing import Any

from msgspec import structs

from antiphon.errors import WireError
from antiphon.history.ids import new_id
from antiphon.history.usage import TokenUsage
from antiphon.parts import (
    Audio,
    Document,
    Image,
    Native,
    NativeExtras,
    OutputPart,
    Refusal,
    Text,
    Thinking,
    ToolCallRequest,
)
from antiphon.wire.loss import Loss, lose_native, own_extras
from antiphon.wire.openai_chat.assistant import is_drawn, read_assistant, undrawn, write_thinking
from antiphon.wire.openai_chat.calls import is_deprecated, wrapped_calls, write_call
from antiphon.wire.openai_chat.content import FORMAT, SHARED, write_part
from antiphon.wire.openai_chat.dialects import Dialect
from antiphon.wire.openai_chat.errors import read_error
from antiphon.wire.openai_chat.usage import read_usage, write_usage
from antiphon.wire.output import ModelOutput, StopReason
from antiphon.wire.tool_calls import IdMapper, NameMapper
from antiphon.wire.vendors import openai

ANSWERS = Dialect(
    id_rule=IdMapper("(?s).*"),
    name_rule=NameMapper("(?s).*"),
    null_content=None,
    has_custom_tools=True,
    argument_repair=False,
    keeps_reasoning=True,
    takes_any_image=True,
)
"""How answers are written: everything as it is."""
_REASONS: dict[str, StopReason] = {
    "stop": "end",
    "eos": "end",
    "length": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "content_filter",
}
_WORDS: dict[str, str] = {
    "end": "stop",
    "stop_sequence": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
    "content_filter": "content_filter",
}
_OF_A_CHOICE = ("finish_reason", "choice", "message", "whole")
_NOT_ID = re.compile(r"[^a-zA-Z0-9_-]+")


def read_response(body: dict[str, Any]) -> ModelOutput:
    """A Chat Completions answer in neutral terms."""
    choices = body.get("choices")
    if type(choices) is not list:
        error = read_error(body) if "error" in body else None
        if error is None or error.code != "content_filter" or choices is not None:
            reason = f": {error.message}" if error is not None else ""
            raise WireError(
                f"choices: an answer holds an array of choices, not {openai.json_type_name(choices)}{reason}"
            )
        # Azure tells of a filtered prompt with an error and the status of an answer.
        fields, native = _read_head(body)
        return ModelOutput(stop_reason="content_filter", native={FORMAT: {**native, "choices": None}}, **fields)
    fields, native = _read_head(body)
    usage = read_usage(body.get("usage"))
    if usage is None and body.get("usage") is not None:
        native["usage"] = body["usage"]
    if not choices:
        native["choices"] = []
        return ModelOutput(usage=usage, native={FORMAT: native}, **fields)
    first, *others = (_read_choice(choice, place, fields) for place, choice in enumerate(choices))
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
            native[key] = value
    return fields, native


def _read_choice(choice: Any, place: int, fields: dict[str, Any]) -> ModelOutput:
    message = choice.get("message") if type(choice) is dict else None
    is_known = type(choice) is dict and type(message) in (dict, type(None))
    read = read_assistant(message or {}, place, is_answer=True) if is_known else None
    if read is None:
        return ModelOutput(native={FORMAT: {"whole": choice}}, **fields)
    known = ("message", "finish_reason")
    extras = {key: value for key, value in choice.items() if key not in known and value is not None}
    if type(extras.get("index")) is int and extras["index"] == place:
        del extras["index"]
    if message and message.get("role", "assistant") not in ("assistant", None):
        read.extras["role"] = message["role"]
    word = choice.get("finish_reason")
    parts = with_ids(read.parts)
    reason = stop_reason(word, parts)
    return ModelOutput(
        parts=tuple(parts),
        stop_reason=reason,
        native=candidate_native(word, reason, parts, extras, read.extras),
        **fields,
    )


def with_ids(parts: list[OutputPart]) -> list[OutputPart]:
    """Calls that came without an id get one; they must be told apart."""
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


def stop_reason(word: Any, parts: Sequence[OutputPart]) -> StopReason:
    """Why the model stopped, by the host's word and by what was said."""
    reason: StopReason = ""
    if word is not None and word != "":
        reason = _REASONS.get(word, "other") if type(word) is str else "other"
    if any(type(part) is ToolCallRequest for part in parts):
        return "tool_calls" if reason in ("", "end", "tool_calls", "other") else reason
    if reason == "tool_calls":  # some proxies say so without a call; it would loop for ever
        return "end"
    if reason == "end" and any(type(part) is Refusal for part in parts):
        return "refusal"
    return reason


def candidate_native(
    word: Any, reason: StopReason, parts: Sequence[OutputPart], choice: dict[str, Any], message: dict[str, Any]
) -> NativeExtras | None:
    """What is said of a candidate beyond its parts: the host's own word, and the extras of its choice and its message."""
    own: dict[str, Any] = {}
    if word == "":
        word = None
    if word != finish_word(reason, parts, is_own=True):
        own["finish_reason"] = word
    if choice:
        own["choice"] = choice
    if message:
        own["message"] = message
    return {FORMAT: own} if own else None


def finish_word(
    reason: str, parts: Sequence[OutputPart], *, is_own: bool, losses: list[Loss] | None = None
) -> str | None:
    """The `finish_reason` for a neutral reason."""
    calls = [part for part in parts if type(part) is ToolCallRequest]
    if reason == "tool_calls" and len(calls) == 1 and is_deprecated(calls[0].native):
        return "function_call"
    if reason in _WORDS:
        return _WORDS[reason]
    if reason == "":
        return None if is_own else "tool_calls" if calls else "stop"
    if reason == "refusal":
        return "stop" if any(type(part) is Refusal for part in parts) else "content_filter"
    if losses is not None:
        losses.append(Loss("stop_reason", reason, "finish_reason has no word for it; `stop` is said"))
    return "stop"


def write_response(output: ModelOutput, losses: list[Loss]) -> dict[str, Any]:
    """A body as clients of Chat Completions expect it."""
    native = output.native or {}
    own = dict(native.get(FORMAT, {}))
    is_own = output.format == FORMAT
    body: dict[str, Any] = {"id": output.id if is_own else completion_id(output.id), "object": "chat.completion"}
    if not is_own or output.created is not None:
        body["created"] = int(time.time()) if output.created is None else output.created
    body["model"] = output.model
    choices = own.pop("choices", output)
    if choices is output:
        candidates = (output, *output.others)
        body["choices"] = [_write_choice(each, place, losses) for place, each in enumerate(candidates)]
    elif choices is not None:
        body["choices"] = choices
    if output.usage is not None:
        body["usage"] = write_usage(output.usage)
    body.update((key, value) for key, value in own.items() if key not in _OF_A_CHOICE)
    return body


def completion_id(answer_id: str) -> str:
    """An id in OpenAI's manner that follows from another format's."""
    if not answer_id:
        return f"chatcmpl-{new_id()}"
    return answer_id if answer_id.startswith("chatcmpl-") else f"chatcmpl-{_NOT_ID.sub('_', answer_id)}"


def _write_choice(output: ModelOutput, place: int, losses: list[Loss]) -> Any:
    path = "" if place == 0 else f"others[{place - 1}]."
    native = output.native or {}
    lose_native(losses, f"{path}native", native, FORMAT)
    own = native.get(FORMAT, {})
    if "whole" in own:
        return own["whole"]
    if output.stop_sequence is not None:
        losses.append(Loss(f"{path}stop_sequence", "stop_sequence", "which sequence stopped it cannot be said"))
    message = write_answer(output.parts, losses, path)
    message.update(own.get("message", {}))
    if "finish_reason" in own:
        word = own["finish_reason"]
    else:
        word = finish_word(output.stop_reason, output.parts, is_own=output.format == FORMAT, losses=losses)
    return {"index": place, "message": message, "logprobs": None, "finish_reason": word, **own.get("choice", {})}


def write_answer(parts: tuple[OutputPart, ...], losses: list[Loss], path: str) -> dict[str, Any]:
    """The message of a choice."""
    message: dict[str, Any] = {"role": "assistant", "content": None, "refusal": None}
    content: list[Any] = []
    calls: list[Any] = []
    native_content: Any = None
    single = sum(type(part) is ToolCallRequest for part in parts) == 1
    for place, part in enumerate(parts):
        where = f"{path}parts[{place}]"
        if isinstance(part, Text):
            own = own_extras(part.native, losses, where, SHARED, FORMAT)
            if part.native is not None:
                native_content = own.pop("content", None)
            if "annotations" in own:
                message["annotations"] = message.get("annotations", []) + own.pop("annotations")
            content.append({"type": "text", "text": part.text, **own})
        elif isinstance(part, Thinking):
            thought = _write_thought(part, message, losses, where)
            if thought is not None:
                content.append(thought)
        elif isinstance(part, Refusal):
            message["refusal"] = (message["refusal"] or "") + part.text
            own_extras(part.native, losses, where, SHARED, FORMAT)
        elif isinstance(part, ToolCallRequest):
            if single and is_deprecated(part.native):
                message["function_call"] = {"name": part.tool_name, "arguments": part.arguments}
            else:
                calls.append(write_call(part, losses, where, ANSWERS))
        else:
            _write_other(part, message, content, calls, losses, where)
    message["content"] = native_content if native_content is not None else _joined(content)
    if calls:
        message["tool_calls"] = calls
    return message


def _write_thought(part: Thinking, message: dict[str, Any], losses: list[Loss], path: str) -> dict[str, Any] | None:
    """Reasoning in the field it came in; another format's in the field that most clients read."""
    if part.native is None or FORMAT not in part.native:
        if part.text:
            message["reasoning_content"] = message.get("reasoning_content", "") + part.text
        lose_native(losses, path, part.native, FORMAT)
        return None
    return write_thinking(part, message, losses, path, ANSWERS)


def _write_other(
    part: Image | Audio | Document | Native,
    message: dict[str, Any],
    content: list[Any],
    calls: list[Any],
    losses: list[Loss],
    path: str,
) -> None:
    if isinstance(part, Native):
        wrapped = wrapped_calls(part)
        if wrapped is not None:
            calls.extend(wrapped)
        else:
            content += write_part(part, losses, path, ANSWERS)
    elif isinstance(part, Image):
        for written in write_part(undrawn(part) if is_drawn(part) else part, losses, path, ANSWERS):
            message.setdefault("images", []).append(written)
    elif isinstance(part, Audio):
        more = own_extras(part.native, losses, path, SHARED, FORMAT)
        sound = {"data": part.data} if part.data else {}
        message["audio"] = {"id": part.file_id or f"audio_{new_id()}", **sound, **more}
    else:
        losses.append(Loss(path, "document", "an answer holds no files"))


def _joined(content: list[Any]) -> Any:
    """The content of an answer: a string, unless it holds what only a list can."""
    if not content:
        return None
    if all(openai.is_plain_text(piece, "text") for piece in content):
        return "".join(piece["text"] for piece in content)
    return content


def scan_usage(data: bytes) -> TokenUsage | None:
    """The usage alone; None if the response must be read whole."""
    from antiphon.wire.openai_chat.outline import scan_usage as scan

    return scan(data)
