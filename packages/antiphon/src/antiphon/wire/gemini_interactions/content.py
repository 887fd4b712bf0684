"""Contents and steps, read and written; requests, responses and streams share this.

A content is a text or a medium. A step is a message of the user or the model, a thought, a call, a result, or a call or result of
a tool that Google runs; those, and everything malformed, stay `Native`. Text and media of the model are parts of one turn: a part
whose extras have `step` starts a `model_output` of its own, any other continues the one before.

A thought is bound to its signature: in a request only thoughts of this API are sent. Plain texts of a summary are joined.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import structs

from antiphon.parts import (
    Audio,
    Document,
    Image,
    Native,
    OutputPart,
    Part,
    Refusal,
    ResultPart,
    Source,
    Text,
    Thinking,
    ToolCallRequest,
    ToolCallResult,
    ToolExecutionStatus,
)
from antiphon.wire.capabilities import Capabilities
from antiphon.wire.capabilities.accepted_media import fit_medium
from antiphon.wire.gemini_interactions import FORMAT
from antiphon.wire.gemini_interactions.limits import MEDIA_KINDS, RESULT_CONTENT
from antiphon.wire.gemini_interactions.media import read_media, write_media
from antiphon.wire.loss import Loss, foreign_block, other_fields, own_extras
from antiphon.wire.native_as_text import readable_parts, transcribe
from antiphon.wire.provenance import is_from, is_spelled, with_source
from antiphon.wire.tools.call_arguments import arguments_object, parse_json_object
from antiphon.wire.tools.call_ids import IdMapper
from antiphon.wire.tools.names import tool_names

NAME = "the Interactions API"
NAMES = tool_names(FORMAT)
CALL_IDS = IdMapper(r"(?s:.+)")
"""An id of a call must not be empty (GI-04)."""
STEP = "step"
"""The extra of a part that starts a `model_output` step: the other fields of that step."""

_SUCCESS, _FAILED = ToolExecutionStatus.SUCCESS, ToolExecutionStatus.FAILED
_CONTENT_PARTS = (Text, Image, Audio, Document)
STEP_FIELDS, THOUGHT_FIELDS = ("type", "content"), ("type", "summary")
"""What is read of a step of the user or the model, and of a thought."""
_CALL_FIELDS = frozenset({"type", "id", "name", "arguments"})
_RESULT_FIELDS = frozenset({"type", "call_id", "name", "result", "is_error"})
SOURCE, _OBJECT, _LIST = Source(FORMAT), Source(FORMAT, ("object",)), Source(FORMAT, ("list",))
_encode = msgspec.json.Encoder().encode


def read_content(content: Any) -> Text | Image | Audio | Document | Native:
    """A content. Never raises."""
    kind = content.get("type") if type(content) is dict else None
    if kind == "text" and type(content.get("text")) is str:
        if len(content) == 2:
            return Text(content["text"])
        if STEP not in content:
            extras = other_fields(content, ("type", "text"))
            return Text(content["text"], native={FORMAT: extras} if extras else None)
    elif type(kind) is str and kind in MEDIA_KINDS and STEP not in content:
        return read_media(content) or Native(FORMAT, content)
    return Native(FORMAT, content)


def read_answer_steps(steps: Iterable[Any]) -> list[OutputPart]:
    """The parts of an answer. What is not a step of the model stays native."""
    parts: list[OutputPart] = []
    for step in steps:
        if type(step) is dict and step.get("type") not in ("user_input", "function_result"):
            read_model_step(parts, step)
        else:
            parts.append(Native(FORMAT, step))
    return parts


def read_model_step(turn: list[Any], step: dict[str, Any]) -> None:
    """Append the parts of a step of the model to its turn."""
    kind = step.get("type")
    part: Part | None = None
    if kind == "model_output":
        if _read_output(turn, step):
            return
    elif kind == "function_call":
        part = read_call(step)
    elif kind == "thought":
        part = _read_thought(step)
    turn.append(part or Native(FORMAT, step))


def _read_output(turn: list[Any], step: dict[str, Any]) -> bool:
    content = step.get("content")
    if type(content) is not list or not content:
        return False
    parts = list(map(read_content, content))
    if any(type(part) is Native for part in parts):
        return False
    fields = other_fields(step, STEP_FIELDS) if len(step) > 2 else {}
    if fields or (turn and is_content_part(turn[-1])):
        parts[0] = with_step(parts[0], fields)
    turn.extend(parts)
    return True


def is_content_part(part: Any) -> bool:
    """Whether a part is content of a `model_output` step, so that a text after it would continue that step."""
    return isinstance(part, _CONTENT_PARTS)


def with_step(part: Any, fields: dict[str, Any]) -> Any:
    """The part as the first of a `model_output` step with these fields."""
    native = part.native or {}
    return structs.replace(part, native={**native, FORMAT: {**native.get(FORMAT, {}), STEP: fields}})


def read_call(step: dict[str, Any]) -> ToolCallRequest | None:
    """A call; None if it is malformed."""
    call_id, name, arguments = step.get("id"), step.get("name"), step.get("arguments")
    if type(call_id) is not str or not call_id or type(name) is not str or not name:
        return None
    if arguments is not None and type(arguments) is not dict:
        return None
    extras = {} if step.keys() <= _CALL_FIELDS else other_fields(step, _CALL_FIELDS)
    try:
        text = _encode(arguments).decode() if arguments else "{}"
    except (RecursionError, UnicodeEncodeError):
        return None
    return ToolCallRequest(name, call_id, text, native={FORMAT: extras} if extras else None)


def _read_thought(step: dict[str, Any]) -> Thinking | None:
    summary = step.get("summary")
    if summary is not None and type(summary) is not list:
        return None
    extras = other_fields(step, THOUGHT_FIELDS)
    contents = list(map(read_content, summary or ()))
    if not all(map(is_plain_text, contents)):
        extras["summary"] = summary  # it has images or citations: sent back as it came
    text = "".join(part.text for part in contents if isinstance(part, Text))
    return Thinking(text, native={FORMAT: extras} if extras else None, source=SOURCE)


def is_plain_text(part: Any) -> bool:
    """Whether a part is text without extras."""
    return type(part) is Text and part.native is None


def read_result(step: dict[str, Any]) -> ToolCallResult | None:
    """A result; None if it is malformed."""
    call_id, name, result, is_error = (step.get(field) for field in ("call_id", "name", "result", "is_error"))
    if type(call_id) is not str or type(name) not in (str, type(None)) or type(is_error) not in (bool, type(None)):
        return None
    extras = {} if step.keys() <= _RESULT_FIELDS else other_fields(step, _RESULT_FIELDS)
    native, source = {FORMAT: extras} if extras else None, None
    content: tuple[Any, ...]
    if type(result) is str:
        content = (Text(result),)
    elif type(result) is list:
        content = tuple(map(read_content, result))
        if len(content) == 1 and is_plain_text(content[0]):
            source = _LIST
    elif type(result) is dict:
        try:
            content = (Text(_encode(result).decode()),)
        except (RecursionError, UnicodeEncodeError):
            return None
        source = _OBJECT
    else:
        return None
    status = _FAILED if is_error else _SUCCESS
    return ToolCallResult(name or "", call_id, status, content, native=native, source=source)


class StepWriter:
    """Writes contents and steps of any origin for requests, responses and streams; reports what the API does not support.

    `target` is the model of a request; responses and streams have none and show the thoughts of every model.
    """

    def __init__(self, losses: list[Loss], target: Capabilities | None = None) -> None:
        self.losses = losses
        self._model = target
        self._is_request = target is not None
        self._accepts_media = target is None or target.media_in_results
        self.media_after_results: list[dict[str, Any]] = []
        """Media that results cannot hold; they follow the results as input of the user."""

    def content(self, part: Part, path: str) -> list[Any]:
        """The contents for a part: one, or none if the API does not accept it."""
        if type(part) is Text and part.native is None:
            return [{"type": "text", "text": part.text}]
        part = fit_medium(part, self._model, self.losses, path)
        if isinstance(part, Native):
            return self._native_content(part, path)
        part = transcribe(part, self.losses, path) if self._is_request else part
        if isinstance(part, Text | Refusal):
            if isinstance(part, Refusal):
                self.report_refusal(path)
            extras = own_extras(part.native, self.losses, path, FORMAT)
            return [{"type": "text", "text": part.text, **without_step(extras)}]
        if isinstance(part, Image | Audio | Document):
            written = write_media(part, self.losses, path)
            return [] if written is None else [without_step(written)]
        self.losses.append(Loss(path, type(part).__name__, "not allowed in a message of this role; dropped"))
        return []

    def report_refusal(self, path: str) -> None:
        self.losses.append(Loss(f"{path}.refusal", "refusal", f"{NAME} has no refusals; sent as text"))

    def _native_content(self, part: Native, path: str) -> list[Any]:
        if part.origin == FORMAT:
            return [part.data]
        if not self._is_request:
            self.losses.append(foreign_block(path, "block", part.origin))
            return []
        carried = readable_parts(part, self.losses, path, NAME)
        return [content for readable in carried for content in self.content(readable, path)]

    def call(self, call: ToolCallRequest, path: str) -> dict[str, Any]:
        """A call as a step."""
        name = NAMES.to_wire(call.tool_name) if self._is_request else call.tool_name
        step: dict[str, Any] = {"type": "function_call", "id": CALL_IDS.to_wire(call.tool_call_id), "name": name}
        step["arguments"] = arguments_object(call, self.losses, path, "GI-04")
        if call.native is not None:
            step.update(own_extras(call.native, self.losses, path, FORMAT))
        return step

    def thought(self, part: Thinking, path: str) -> dict[str, Any] | None:
        """A thought as a step; in a request only one of this API."""
        if self._is_request and not is_from(part, FORMAT):
            reason = f"{NAME} accepts only its own thoughts; dropped"
            self.losses.append(Loss(path, "thinking", reason))
            return None
        step: dict[str, Any] = {"type": "thought"}
        if part.text:
            step["summary"] = [{"type": "text", "text": part.text}]
        step.update(own_extras(part.native, self.losses, path, FORMAT))
        return step

    def result(self, result: ToolCallResult, path: str) -> dict[str, Any]:
        """A result as a step."""
        step: dict[str, Any] = {"type": "function_result", "call_id": CALL_IDS.to_wire(result.tool_call_id)}
        if result.tool_name:
            step["name"] = NAMES.to_wire(result.tool_name) if self._is_request else result.tool_name
        if result.status is not _SUCCESS:
            step["is_error"] = True
        content = result.content
        if len(content) == 1 and isinstance(content[0], Text) and content[0].native is None:
            step["result"] = _result_text(result, content[0].text)
        else:
            step["result"] = self._result_content(content, path)
        if result.native is not None:
            step.update(own_extras(result.native, self.losses, path, FORMAT))
        return step

    def _result_content(self, content: tuple[ResultPart, ...], path: str) -> list[Any]:
        written: list[Any] = []
        for position, part in enumerate(content):
            for block in self.content(part, f"{path}.content[{position}]"):
                kind = block.get("type") if isinstance(block, dict) else "text"
                is_own = isinstance(part, Native) and part.origin == FORMAT
                fits = is_own or (kind in RESULT_CONTENT and (kind == "text" or self._accepts_media))
                (written if fits else self.media_after_results).append(block)
        return written


def _result_text(result: ToolCallResult, text: str) -> Any:
    if result.native is not None:
        result = with_source(result)
    if is_spelled(result, "object"):
        value = parse_json_object(text)
        return text if value is None else value
    return [{"type": "text", "text": text}] if is_spelled(result, "list") else text


def without_step(content: dict[str, Any]) -> dict[str, Any]:
    """A written content without the fields of its step."""
    content.pop(STEP, None)
    return content


def step_fields(part: Part) -> dict[str, Any] | None:
    """The other fields of the `model_output` step that a part starts; None if it continues one."""
    native = None if isinstance(part, Native) else part.native
    fields = (native or {}).get(FORMAT, {}).get(STEP)
    return fields if isinstance(fields, dict) else None


def write_model_steps(parts: tuple[Part, ...], writer: StepWriter, steps: list[Any], place: str) -> None:
    """Append the steps of a turn of the model."""
    open_step: dict[str, Any] | None = None
    for position, part in enumerate(parts):
        path = f"{place}[{position}]"
        if isinstance(part, ToolCallRequest):
            open_step = None
            steps.append(writer.call(part, path))
        elif isinstance(part, Thinking):
            open_step = None
            thought = writer.thought(part, path)
            steps += () if thought is None else (thought,)
        elif isinstance(part, Native) and part.origin == FORMAT:
            open_step = None
            steps.append(part.data)
        elif isinstance(part, ToolCallResult):
            open_step = None
            steps.append(writer.result(part, path))
        else:
            fields = step_fields(part)
            contents = writer.content(part, path)
            if not contents:
                continue
            if open_step is None or fields is not None:
                open_step = {"type": "model_output", "content": []}
                open_step.update(fields or {})
                steps.append(open_step)
            open_step["content"] += contents
