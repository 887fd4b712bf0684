"""Contents and steps, read and written; requests, responses and streams share this.

A content is a text or a medium. A step is a message of the user or the model, a thought, a call, a result, or a call or result of
a tool that Google runs; those, and everything malformed, stay `Native`. Text and media of the model are parts of one turn: a part
whose extras have `step` starts a `model_output` of its own, any other continues the one before.

A thought is bound to its signature: in a request only thoughts of this API are sent. Plain texts of a summary are joined.

Each kind of medium has a closed list of MIME types (GI-06). A video is a `Document` with a video type, since there is no neutral
part for it. Contents with another type than their kind, with both sources or with none stay `Native`. A document that is text is
sent as text.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

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
    Source,
    Text,
    Thinking,
    ToolCallRequest,
    ToolCallResult,
    ToolExecutionStatus,
)
from antiphon.wire.capabilities import Capabilities
from antiphon.wire.capabilities.accepted_media import fit_medium, locate
from antiphon.wire.gemini_interactions import FORMAT
from antiphon.wire.gemini_interactions.limits import NAME, RESULT_CONTENT, media_types
from antiphon.wire.gemini_interactions.shapes import (
    CONTENTS,
    ENTRIES,
    AudioShape,
    CallShape,
    ImageShape,
    OutputShape,
    ResultShape,
    TextShape,
    ThoughtShape,
    VideoShape,
    split,
    value_of,
)
from antiphon.wire.loss import Losses
from antiphon.wire.media import media_type_of_url, same_media_types
from antiphon.wire.native_as_text import readable_parts, transcribe
from antiphon.wire.provenance import is_from, is_spelled, spelled, with_source
from antiphon.wire.shared_google import read_base64, write_base64
from antiphon.wire.tools.call_ids import IdMapper
from antiphon.wire.tools.definitions import arguments_object, parse_json_object
from antiphon.wire.tools.names import tool_names

NAMES = tool_names(FORMAT)
CALL_IDS = IdMapper(r"(?s:.+)")
"""An id of a call must not be empty (GI-04)."""
STEP = "step"
"""The extra of a part that starts a `model_output` step: the other fields of that step."""

Media: TypeAlias = Image | Audio | Document
_SUCCESS, _FAILED = ToolExecutionStatus.SUCCESS, ToolExecutionStatus.FAILED
STEP_FIELDS, THOUGHT_FIELDS = ("type", "content"), ("type", "summary")
"""What is read of a step of the user or the model, and of a thought."""
SOURCE, _OBJECT, _LIST = Source(FORMAT), Source(FORMAT, ("object",)), Source(FORMAT, ("list",))
_DEFAULTS = {"image": "image/png", "audio": "audio/wav", "document": "application/pdf", "video": "video/mp4"}
_PARTS: dict[type, type[Media]] = {ImageShape: Image, AudioShape: Audio}
_encode = msgspec.json.Encoder().encode


def read_content(content: Any) -> Text | Media | Native:
    """A content, of its shape. Never raises."""
    if type(content) is TextShape:
        return Text(content.text)
    shape, more = split(content)
    if shape is None or STEP in more:  # reserved for the fields of the step
        return Native(FORMAT, value_of(content))
    if type(shape) is TextShape:
        return Text(shape.text, native={FORMAT: more} if more else None)
    return _read_media(shape, more) or Native(FORMAT, value_of(content))


def read_value(content: Any) -> Text | Media | Native:
    """The same for a content of plain values."""
    return read_content(CONTENTS.fit(content))


def _read_media(content: Any, more: dict[str, Any]) -> Media | None:
    """A medium; None if it is malformed."""
    kind, media_type, uri = content.__struct_config__.tag, content.mime_type, content.uri
    source = content.data if uri is None else uri
    if media_type is not None and media_type not in media_types(kind):
        return None
    if not source or source.startswith("data:") or (content.data is not None and uri is not None):
        return None
    if uri is None and not source.isascii():
        return None
    spelling: list[str] = []
    if media_type is None:
        spelling += ["untyped", "video"] if type(content) is VideoShape else ["untyped"]
    fields: dict[str, Any] = {"url": uri} if uri is not None else {"data": read_base64(source, spelling)}
    fields["native"] = {FORMAT: more} if more else None
    fields["source"] = spelled(FORMAT, spelling)
    return _PARTS.get(type(content), Document)(media_type or "", **fields)


def read_answer_steps(steps: Iterable[Any]) -> list[OutputPart]:
    """The parts of an answer, of plain values. What is not a step of the model stays native."""
    parts: list[OutputPart] = []
    for step in steps:
        if type(step) is dict and step.get("type") not in ("user_input", "function_result"):
            fitted = ENTRIES.fit(step)
            add_model_step(parts, fitted, *split(fitted))
        else:
            parts.append(Native(FORMAT, step))
    return parts


def add_model_step(turn: list[Any], step: Any, shape: Any, more: dict[str, Any]) -> None:
    """Append the parts of a step of the model to its turn: its shape, and the fields that the shape does not name."""
    kind = type(shape)
    part: Part | None = None
    if kind is CallShape:
        part = _read_call(shape, more)
    elif kind is OutputShape:
        parts: list[Any] = list(map(read_content, shape.content or ()))
        if parts and Native not in map(type, parts):
            if more or (turn and is_content_part(turn[-1])):
                parts[0] = _with_step(parts[0], more)
            turn.extend(parts)
            return
    elif kind is ThoughtShape:
        part = _read_thought(shape, more)
    turn.append(part or Native(FORMAT, value_of(step)))


def is_content_part(part: Any) -> bool:
    """Whether a part is content of a `model_output` step, so that a text after it would continue that step."""
    return isinstance(part, Text | Image | Audio | Document)


def _with_step(part: Any, fields: dict[str, Any]) -> Any:
    """The part as the first of a `model_output` step with these fields."""
    native = part.native or {}
    return structs.replace(part, native={**native, FORMAT: {**native.get(FORMAT, {}), STEP: fields}})


def read_call(step: dict[str, Any]) -> ToolCallRequest | None:
    """A call, of plain values; None if it is malformed."""
    shape, more = split(ENTRIES.fit(step))
    return None if shape is None else _read_call(shape, more)


def _read_call(call: CallShape, more: dict[str, Any]) -> ToolCallRequest | None:
    if not call.id or not call.name:
        return None
    try:
        text = _encode(call.arguments).decode() if call.arguments else "{}"
    except (RecursionError, UnicodeEncodeError):
        return None
    return ToolCallRequest(call.name, call.id, text, native={FORMAT: more} if more else None)


def _read_thought(thought: ThoughtShape, more: dict[str, Any]) -> Thinking:
    if thought.signature is not None:
        more = {"signature": thought.signature, **more}
    contents = [read_content(content) for content in thought.summary or ()]
    if not all(map(is_plain_text, contents)):  # it has images or citations: sent back as it came
        more = {**more, "summary": [value_of(content) for content in thought.summary or ()]}
    text = "".join(part.text for part in contents if isinstance(part, Text))
    return Thinking(text, native={FORMAT: more} if more else None, source=SOURCE)


def is_plain_text(part: Any) -> bool:
    """Whether a part is text without extras."""
    return type(part) is Text and part.native is None


def read_result(step: ResultShape, more: dict[str, Any]) -> ToolCallResult | None:
    """A result; None if it is malformed."""
    result, source = step.result, None
    content: tuple[Any, ...]
    if type(result) is str:
        content = (Text(result),)
    elif type(result) is list:
        content = tuple([read_content(inner) for inner in result])
        if len(content) == 1 and is_plain_text(content[0]):
            source = _LIST
    elif result is not None:
        try:
            content = (Text(_encode(result).decode()),)
        except (RecursionError, UnicodeEncodeError):
            return None
        source = _OBJECT
    else:
        return None
    status, native = _FAILED if step.is_error else _SUCCESS, {FORMAT: more} if more else None
    return ToolCallResult(step.name or "", step.call_id, status, content, native=native, source=source)


class StepWriter:
    """Writes contents and steps of any origin for requests, responses and streams; reports what the API does not support.

    `target` is the model of a request; responses and streams have none and show the thoughts of every model.
    """

    def __init__(self, losses: Losses, target: Capabilities | None = None) -> None:
        self.losses = losses
        self._model = target
        self._is_request = target is not None
        self._accepts_media = target is None or target.media_in_results
        self.media_after_results: list[dict[str, Any]] = []
        """Media that results cannot hold; they follow the results as input of the user."""

    def content(self, part: Part) -> list[Any]:
        """The contents for a part: one, or none if the API does not accept it."""
        if type(part) is Text and part.native is None:
            return [{"type": "text", "text": part.text}]
        losses = self.losses
        part = fit_medium(part, self._model, losses)
        if isinstance(part, Native):
            if part.origin == FORMAT:
                return [part.data]
            if not self._is_request:
                losses.add_foreign("block", part.origin)
                return []
            carried = readable_parts(part, losses, NAME)
            return [content for readable in carried for content in self.content(readable)]
        part = transcribe(part, losses) if self._is_request else part
        if isinstance(part, Refusal):
            self.report_refusal()
        if isinstance(part, Text | Refusal):
            return [_without_step({"type": "text", "text": part.text, **losses.take_extras(part.native, FORMAT)})]
        if isinstance(part, Image | Audio | Document):
            written = self._medium(part)
            return [] if written is None else [_without_step(written)]
        losses.add(type(part).__name__, "not allowed in a message of this role; dropped")
        return []

    def report_refusal(self) -> None:
        self.losses.add("refusal", f"{NAME} has no refusals; sent as text", "refusal")

    def _medium(self, part: Media) -> dict[str, Any] | None:
        """The content for a medium; None, and a loss, if the API does not accept it."""
        part, losses = with_source(part), self.losses
        place, value, media_type = locate(part, NAME, "data", "text", "address")
        name = part.name if isinstance(part, Document) else ""
        if place == "text":
            losses.take_extras(part.native, FORMAT)
            return {"type": "text", "text": f"{name}\n\n{value}" if name else value}
        if not place:
            losses.add(type(part).__name__.lower(), value)
            return None
        is_untyped = is_spelled(part, "untyped")
        if is_untyped:
            media_type = ""
        elif not media_type and place == "url":
            media_type = media_type_of_url(value)
        media_type = media_type.lower()
        kind = _kind(part, media_type)
        if media_type not in media_types(kind):
            media_type = next(
                (other for other in same_media_types(media_type) if other in media_types(kind)), media_type
            )
        if not media_type and place == "data" and not is_untyped:
            media_type = _DEFAULTS[kind]
        if media_type and media_type not in media_types(kind):
            losses.add(kind, f"{NAME} does not support {media_type[:80]}; dropped (GI-06)")
            return None
        if name:
            losses.add("name", f"{NAME} has no file names; dropped", "name")
        written = {"type": kind, **({"uri": value} if place == "url" else {"data": write_base64(value, part)})}
        if media_type:
            written["mime_type"] = media_type
        return {**written, **losses.take_extras(part.native, FORMAT)}

    def call(self, call: ToolCallRequest) -> dict[str, Any]:
        name = NAMES.to_wire(call.tool_name) if self._is_request else call.tool_name
        step: dict[str, Any] = {"type": "function_call", "id": CALL_IDS.to_wire(call.tool_call_id), "name": name}
        step["arguments"] = arguments_object(call, self.losses, "GI-04")
        if call.native is not None:
            step.update(self.losses.take_extras(call.native, FORMAT))
        return step

    def _thought(self, part: Thinking) -> dict[str, Any] | None:
        """A thought as a step; in a request only one of this API."""
        if self._is_request and not is_from(part, FORMAT):
            self.losses.add("thinking", f"{NAME} accepts only its own thoughts; dropped")
            return None
        summary = {"summary": [{"type": "text", "text": part.text}]} if part.text else {}
        return {"type": "thought", **summary, **self.losses.take_extras(part.native, FORMAT)}

    def result(self, result: ToolCallResult) -> dict[str, Any]:
        step: dict[str, Any] = {"type": "function_result", "call_id": CALL_IDS.to_wire(result.tool_call_id)}
        if result.tool_name:
            step["name"] = NAMES.to_wire(result.tool_name) if self._is_request else result.tool_name
        if result.status is not _SUCCESS:
            step["is_error"] = True
        content = result.content
        only: Any = content[0] if len(content) == 1 else None
        step["result"] = _result_text(result, only.text) if is_plain_text(only) else self._result_content(content)
        if result.native is not None:
            step.update(self.losses.take_extras(result.native, FORMAT))
        return step

    def _result_content(self, content: tuple[Any, ...]) -> list[Any]:
        written: list[Any] = []
        for position, part in enumerate(content):
            self.losses.inner = position
            is_own = isinstance(part, Native) and part.origin == FORMAT
            for block in self.content(part):
                kind = block.get("type") if isinstance(block, dict) else "text"
                fits = is_own or (kind in RESULT_CONTENT and (kind == "text" or self._accepts_media))
                (written if fits else self.media_after_results).append(block)
        self.losses.inner = -1
        return written

    def model_steps(self, parts: tuple[Part, ...], steps: list[Any], start: int = 0) -> None:
        """Append the steps of a turn of the model, whose parts are counted from `start`."""
        open_step: dict[str, Any] | None = None
        for position, part in enumerate(parts, start):
            self.losses.part = position
            if isinstance(part, ToolCallRequest):
                step: Any = self.call(part)
            elif isinstance(part, Thinking):
                step = self._thought(part)
            elif isinstance(part, Native) and part.origin == FORMAT:
                step = part.data
            elif isinstance(part, ToolCallResult):
                step = self.result(part)
            else:
                contents, fields = self.content(part), step_fields(part)
                if contents and (open_step is None or fields is not None):
                    open_step = {"type": "model_output", "content": [], **(fields or {})}
                    steps.append(open_step)
                if contents and open_step is not None:
                    open_step["content"] += contents
                continue
            open_step = None
            steps += () if step is None and isinstance(part, Thinking) else (step,)
        self.losses.part = -1


def _kind(part: Media, media_type: str) -> str:
    if isinstance(part, Image):
        return "image"
    if isinstance(part, Audio):
        return "audio"
    family = media_type.partition("/")[0]
    if family == "video" or is_spelled(part, "video"):
        return "video"
    return family if family in ("image", "audio") else "document"


def _result_text(result: ToolCallResult, text: str) -> Any:
    if result.native is not None:
        result = with_source(result)
    if is_spelled(result, "object"):
        value = parse_json_object(text)
        return text if value is None else value
    return [{"type": "text", "text": text}] if is_spelled(result, "list") else text


def _without_step(content: dict[str, Any]) -> dict[str, Any]:
    """A written content without the fields of its step."""
    content.pop(STEP, None)
    return content


def step_fields(part: Part) -> dict[str, Any] | None:
    """The other fields of the `model_output` step that a part starts; None if it continues one."""
    native = None if isinstance(part, Native) else part.native
    fields = (native or {}).get(FORMAT, {}).get(STEP)
    return fields if isinstance(fields, dict) else None
