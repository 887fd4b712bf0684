"""The parts of a content, read and written; requests, responses and streams share this.

A part holds one data field (text, inlineData, functionCall, ...) and fields beside it (thought, thoughtSignature, ...). A data
field with a neutral part becomes that part, with the fields beside it in `native["gemini"]` of the same part: a signature is
bound to it (GM-10). Everything else, also a malformed part, is kept as a `Native` part.

Gemini often gives a call no id and matches results by order and name. A missing id is generated from the position of the call
(in a response also from the response's id), so it is the same each time the body is read. Generated ids are never sent back.

A video is a `Document`, since there is no neutral part for it. A file name is Vertex's `displayName`, which the Gemini API
rejects: it is written only if it was read as one (its `source`). Files by `file_id` belong to other providers. Google also
accepts URL-safe base64, and its SDK sends it; other providers reject it: it is read into the standard alphabet and written back
as it came (again by its source).

Normalised: names become camelCase, null and `thought: false` are absent, absent `args` are `{}`, an `id` of "" is absent.
"""

from __future__ import annotations

from base64 import b64encode
from contextlib import suppress
from typing import Any, TypeAlias

import msgspec
from msgspec import UNSET, Struct

from antiphon.json_text import NOT_JSON, decode_json
from antiphon.parts import (
    Audio,
    Document,
    Image,
    Native,
    NativeExtras,
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
from antiphon.wire.capabilities.accepted_media import fit_medium, locate
from antiphon.wire.gemini import FORMAT
from antiphon.wire.gemini.native import field_spellings, native_extras, split_fields
from antiphon.wire.gemini.shapes import CallShape, PartShape, ResultShape, fit_part, value_of
from antiphon.wire.loss import Losses
from antiphon.wire.media import media_type_of_url
from antiphon.wire.native_as_text import readable_parts
from antiphon.wire.provenance import is_from, is_spelled, spelled, with_source
from antiphon.wire.shapes import Loose, as_dict
from antiphon.wire.shared_google import read_base64, write_base64
from antiphon.wire.tools.call_ids import GENERATED_ID_PREFIX, CallIdTracker
from antiphon.wire.tools.definitions import OBJECT_START, arguments_object, parse_json_object
from antiphon.wire.tools.names import tool_names

PLACEHOLDER_SIGNATURE = "skip_thought_signature_validator"
"""The signature Gemini 3 accepts on a call made by another model (GM-10)."""
NAME = "Gemini"
NAMES = tool_names(FORMAT)
"""Mapped names have at most 64 characters, which every model and host accepts (GM-20)."""
UNKNOWN_TOOL = "unknown_tool"
SUCCESS = ToolExecutionStatus.SUCCESS
FAILED = ToolExecutionStatus.FAILED
WrittenPart: TypeAlias = dict[str, Any]
Media: TypeAlias = Image | Audio | Document
encode = msgspec.json.Encoder().encode
_MEDIA_FIELDS = field_spellings(("inlineData", "fileData"))
_INLINE_DATA_FIELDS = field_spellings(("data", "mimeType", "displayName"))
_FILE_DATA_FIELDS = field_spellings(("fileUri", "mimeType", "displayName"))
_FAMILIES: dict[str, Any] = {"image": Image, "audio": Audio}
_DEFAULT_MEDIA_TYPES = {Image: "image/png", Audio: "audio/wav", Document: "application/pdf"}
_WRAPPINGS = ("output", "result", "error")
SOURCE = Source(FORMAT)
_NO_TEXT = Source(FORMAT, ("no-text",))
_EMPTY_RESPONSE: tuple[ToolExecutionStatus, str, str] = (SUCCESS, "", "empty")


def read_value(part: Any, calls: CallIdTracker) -> Part:
    """One part of a content, of plain values. Never raises."""
    if type(part) is dict and len(part) == 1 and type(part.get("text")) is str:
        return Text(part["text"])
    return read_part(fit_part(part), calls)


def read_part(part: Any, calls: CallIdTracker) -> Part:
    """One part of a content, of its shape. Never raises."""
    shape, extras = part, None
    if type(part) is Loose:
        shape, extras = part.shape, part.more
        if shape is None:
            return Native(FORMAT, part.value)
    elif not (part.thought is part.thought_signature is UNSET):
        extras = _thought_fields(part)
    text, call, result = shape.text, shape.function_call, shape.function_response
    read: Part | None = None
    try:
        if not (shape.inline_data is shape.file_data is UNSET):
            read = _read_medium_of(shape, extras) if text is call is result is UNSET else None
        elif result is UNSET:
            if text is UNSET:
                read = _read_bare(extras) if call is UNSET else _read_call(call, extras, calls)
            elif call is UNSET:
                read = _read_text(text, extras) if extras else Text(text)
        elif text is call is UNSET:
            read = _read_result(result, extras, calls)
    except (RecursionError, UnicodeEncodeError):
        pass
    return Native(FORMAT, value_of(part)) if read is None else read


def _read_text(text: str, extras: dict[str, Any]) -> Part:
    if extras.get("thought") is True:
        del extras["thought"]
        return Thinking(text, native=native_extras(extras), source=SOURCE)
    return Text(text, native={FORMAT: extras})


def _thought_fields(part: PartShape) -> dict[str, Any]:
    fields = {"thought": part.thought, "thoughtSignature": part.thought_signature}
    return {
        name: value
        for name, value in fields.items()
        if value is not UNSET and value is not None and (name != "thought" or value is not False)
    }


def _read_medium_of(part: PartShape, extras: dict[str, Any] | None) -> Part | None:
    """The medium of a part without other data; null is absent."""
    media = {"inlineData": part.inline_data, "fileData": part.file_data}
    given = [(name, value) for name, value in media.items() if value is not UNSET and value is not None]
    if len(given) != 1:
        return None if given else _read_bare(extras)
    return _read_media(*given[0], extras or {})


def _read_bare(extras: dict[str, Any] | None) -> Part | None:
    """A thought that has only a signature."""
    if not extras or extras.get("thought") is not True or type(extras.get("thoughtSignature")) is not str:
        return None
    del extras["thought"]
    return Thinking(native=native_extras(extras), source=_NO_TEXT)


def _read_call(call: Any, extras: dict[str, Any] | None, calls: CallIdTracker) -> ToolCallRequest | None:
    """A call; None if it is malformed."""
    more: dict[str, Any] | None = None
    if type(call) is Loose:
        call, more = call.shape, call.more
        if call is None:
            return None
    name, wire_id = call.name, call.id
    if not name:
        return None
    arguments = encode(call.args or {}).decode()
    call_id = calls.add_call(name, wire_id or None)
    if call_id is not wire_id and wire_id is not None:  # it is not used
        more = {**(more or {}), "id": wire_id}
    if more:
        extras = {**(extras or {}), "functionCall": more}
    if not extras:
        return ToolCallRequest(name, call_id, arguments)
    return ToolCallRequest(name, call_id, arguments, native={FORMAT: extras})


def _read_result(result: Any, extras: dict[str, Any] | None, calls: CallIdTracker) -> ToolCallResult | None:
    """A result; None if it is malformed."""
    more: dict[str, Any] | None = None
    if type(result) is Loose:
        result, more = result.shape, result.more
        if result is None:
            return None
    name, response = result.name, result.response
    if not name:
        return None
    if type(response) is dict:
        if len(response) == 1 and not (more or extras or result.parts):
            output = response.get("output")
            if type(output) is str and output[:1] not in OBJECT_START:
                call_id = calls.match_next(name, result.id)  # the usual result, of the call whose turn it is
                if call_id is not None:
                    return ToolCallResult(name, call_id, SUCCESS, (Text(output),))
    elif response is not None:
        return None
    media = tuple([_read_result_media(part) for part in result.parts or ()])
    more = more or {}
    return _build_result(name, more.pop("id", result.id), response, calls, media, extras or {}, more)


def _build_result(
    name: str,
    raw_id: Any,
    response: dict[str, Any] | None,
    calls: CallIdTracker,
    media: tuple[ResultPart, ...],
    extras: dict[str, Any],
    inner_extras: dict[str, Any],
) -> ToolCallResult:
    """The result of its fields; `inner_extras` are those inside `functionResponse`."""
    wire_id = raw_id if type(raw_id) is str and raw_id else None
    call_id, called_as = calls.match_result(name, wire_id)
    spelling: tuple[str, ...] = ()
    if raw_id is None:
        if called_as is not None:
            spelling = ("no-id",)
    elif wire_id != call_id or call_id.startswith(GENERATED_ID_PREFIX):
        inner_extras["id"] = raw_id
    status, text, wrapping = _EMPTY_RESPONSE if response is None else read_response_object(response)
    if wrapping:
        spelling = (*spelling, wrapping)
    if inner_extras:
        extras = {**extras, "functionResponse": inner_extras}
    content = (Text(text), *media) if response is not None else media
    return ToolCallResult(
        name, call_id, status, content, native=native_extras(extras), source=spelled(FORMAT, spelling)
    )


def read_response_object(response: dict[str, Any]) -> tuple[ToolExecutionStatus, str, str]:
    """The status, the text, and the word for its wrapping if the writer would choose another one."""
    if len(response) == 1:
        ((key, value),) = response.items()
        if key in _WRAPPINGS:
            status = FAILED if key == "error" else SUCCESS
            if type(value) is not str:
                return status, encode(value).decode(), f"{key}:json"
            if key == "result" or (key == "output" and parse_json_object(value) is not None):
                return status, value, key
            return status, value, ""
    return SUCCESS, encode(response).decode(), ""


def _read_result_media(part: Any) -> ResultPart:
    if type(part) is dict:
        fields, extras = split_fields(part, _MEDIA_FIELDS)
        if len(fields) == 1 and not extras.keys() & _MEDIA_FIELDS.keys():
            ((name, value),) = fields.items()
            return _read_media(name, value, extras) or Native(FORMAT, part)
    return Native(FORMAT, part)


def _read_media(field: str, value: Any, extras: dict[str, Any]) -> Media | None:
    """A medium as base64 (`inlineData`) or by a URI (`fileData`); None if it is malformed."""
    if type(value) is not dict:
        return None
    is_inline = field == "inlineData"
    fields, more = split_fields(value, _INLINE_DATA_FIELDS if is_inline else _FILE_DATA_FIELDS)
    content, media_type, name = (
        fields.get("data" if is_inline else "fileUri"),
        fields.get("mimeType"),
        fields.get("displayName"),
    )
    if type(content) is not str or content.startswith("data:") or not (content.isascii() if is_inline else content):
        return None
    if type(media_type) is not str and (is_inline or media_type is not None):
        return None
    if media_type == "":
        return None
    media_type = media_type or ""
    family = media_type.partition("/")[0].lower()
    target = _FAMILIES.get(family, Document)
    named: dict[str, Any] = {"name": name} if target is Document and type(name) is str else {}
    if name is not None and not named:
        more["displayName"] = name
    spelling = ["displayName"] if named else []
    if not media_type:
        spelling.append("untyped")
    place = {"data": read_base64(content, spelling)} if is_inline else {"url": content}
    native = native_extras({**extras, field: more} if more else extras)
    return target(media_type, native=native, source=spelled(FORMAT, spelling), **place, **named)  # type: ignore[no-any-return]


def is_call(part: Any) -> bool:
    """Whether a written part is a call."""
    if type(part) is PartShape:
        return part.function_call is not UNSET
    return isinstance(part, dict) and "functionCall" in part


def _merge_extras(part: dict[str, Any], field: str, native: NativeExtras) -> None:
    """Add the native extras to a written part and to the object in its `field`."""
    for name, value in native.get(FORMAT, {}).items():
        if name == field and isinstance(value, dict):
            part[field].update(value)
        else:
            part[name] = value


class _Output(Struct, gc=False):
    output: str


def is_result(part: Any) -> bool:
    """Whether a written part is a result."""
    if type(part) is PartShape:
        return part.function_response is not UNSET
    return isinstance(part, dict) and "functionResponse" in part


def _response_object(result: ToolCallResult, text: str) -> Any:
    if result.status is not SUCCESS and result.status != SUCCESS:
        return {"error": text}
    value = parse_json_object(text)
    return _Output(text) if value is None else value


def _restore_spelling(function: dict[str, Any], result: ToolCallResult, text: str) -> None:
    """Restore the original spelling of the response, if the result still matches it."""
    for word in () if result.source is None else result.source.spelling:
        key, _, kind = word.partition(":")
        if key in _WRAPPINGS:
            if (key == "error") == (result.status != SUCCESS):
                value: Any = text
                if kind:
                    with suppress(*NOT_JSON):
                        value = decode_json(text)
                function["response"] = {key: value}
        elif word == "empty" and not any(isinstance(part, Text) for part in result.content):
            del function["response"]
        elif word == "no-id":
            function.pop("id", None)


class ContentWriter:
    """Writes parts of any origin for requests, responses and streams; reports what Gemini does not support.

    Responses also show the thoughts of other models; in a request Gemini accepts only thoughts it signed.
    """

    def __init__(self, losses: Losses, target: Capabilities | None = None) -> None:
        """`target` is the model of a request; responses and streams have none."""
        self.losses = losses
        self.media_after_results: list[WrittenPart] = []
        self._is_request = target is not None
        self._accepts_media = target is None or target.media_in_results
        self._model = target
        self._signature = PLACEHOLDER_SIGNATURE if target and target.call_signatures else ""
        self._tool_names: dict[str, str] = {}

    def write(self, given: Part) -> list[Any]:
        """What is sent of a part: one, several for a block of another format, or none."""
        if type(given) is Text and given.native is None:
            return [{"text": given.text}]
        part = fit_medium(given, self._model, self.losses)
        if isinstance(part, Text | Refusal):
            if isinstance(part, Refusal):
                self.report_refusal()
            return [self.text(part.text, part.native) if part is given else {"text": part.text}]
        if isinstance(part, Thinking):
            return self._thinking(part)
        if isinstance(part, ToolCallRequest):
            return [self.call(part)]
        if isinstance(part, ToolCallResult):
            return [self.result(part)]
        if not isinstance(part, Native):
            return self._medium(part)
        if part.origin == FORMAT:
            return [] if part.data is None else [part.data]
        if not self._is_request:
            self.losses.add_foreign("block", part.origin)
            return []
        return [written for readable in readable_parts(part, self.losses, NAME) for written in self.write(readable)]

    def text(self, text: str, native: NativeExtras | None, *, is_thought: bool = False) -> WrittenPart:
        """Text or a thought, or what was added to it in a stream."""
        thought = {"thought": True} if is_thought else {}
        return {"text": text, **thought, **self.losses.take_extras(native, FORMAT)}

    def report_refusal(self) -> None:
        self.losses.add("refusal", "Gemini has no refusals; sent as text", "refusal")

    def _thinking(self, part: Thinking) -> list[WrittenPart]:
        part = with_source(part)
        if self._is_request and not is_from(part, FORMAT):
            self.losses.add("thinking", "Gemini accepts only its own thoughts; dropped")
            return []
        written = self.text(part.text, part.native, is_thought=True)
        if not part.text and is_spelled(part, "no-text"):
            del written["text"]
        return [written]

    def _medium(self, part: Media) -> list[WrittenPart]:
        """The part of a medium; none, and a loss, if it has no usable data."""
        part, losses = with_source(part), self.losses
        extras = losses.take_extras(part.native, FORMAT)
        place, value, media_type = locate(part, NAME, "data", "text", "address")
        field = "fileData" if place == "url" else "inlineData"
        content: dict[str, Any]
        if place == "url":
            if not media_type and not is_spelled(part, "untyped"):
                media_type = media_type_of_url(value)
            content = {"fileUri": value, "mimeType": media_type} if media_type else {"fileUri": value}
        elif place == "text":
            encoded = b64encode(value.encode("utf-8", "replace")).decode()
            content = {"mimeType": media_type or "text/plain", "data": encoded}
        elif place == "data":
            content = {"mimeType": media_type or _DEFAULT_MEDIA_TYPES[type(part)], "data": write_base64(value, part)}
        elif part.media_type and not (part.data or part.url or part.file_id):
            content = {"mimeType": part.media_type, "data": ""}  # read from a body of Gemini (L2)
        else:
            losses.add(type(part).__name__.lower(), value)
            return []
        content.update(extras.pop(field, {}))
        extras.pop("inlineData", extras.pop("fileData", None))
        if isinstance(part, Document) and is_spelled(part, "displayName"):
            content["displayName"] = part.name
        elif isinstance(part, Document) and part.name:
            losses.add("name", "Gemini does not support file names; dropped", "name")
        return [{field: content, **extras}]

    def call(self, call: ToolCallRequest, *, is_first: bool = False) -> PartShape | WrittenPart:
        """A call; the first of a step must be signed."""
        name = self._tool_names[call.tool_call_id] = self._name(call.tool_name)
        args = arguments_object(call, self.losses, "GM-08")
        signature = self._signature if is_first else ""
        call_id = call.tool_call_id
        shape = CallShape(name, args, None if call_id.startswith(GENERATED_ID_PREFIX) else call_id or None)
        if call.native is None:
            return PartShape(function_call=shape, thought_signature=signature or UNSET)
        written: WrittenPart = {"functionCall": as_dict(shape)}
        _merge_extras(written, "functionCall", call.native)
        self.losses.report_extras(call.native, FORMAT)
        if signature and not written.get("thoughtSignature"):
            written["thoughtSignature"] = signature
        return written

    def result(self, result: ToolCallResult) -> PartShape | WrittenPart:
        """A result; without a name it gets the name of its call."""
        call_id, content = result.tool_call_id, result.content
        name = self._name(result.tool_name) if result.tool_name else self._tool_names.get(call_id, UNKNOWN_TOOL)
        only: Any = content[0] if len(content) == 1 else None
        media: list[WrittenPart] = []
        if type(only) is Text and only.native is None:
            text = only.text
        else:
            text, media = self._split_content(content)
        is_plain = result.status is SUCCESS and text[:1] not in OBJECT_START
        response = _Output(text) if is_plain else _response_object(result, text)
        wire_id = None if call_id.startswith(GENERATED_ID_PREFIX) else call_id or None
        shape = ResultShape(name, response, wire_id, media or None)
        if result.native is None and result.source is None:
            return PartShape(function_response=shape)
        sourced, written = with_source(result), {"functionResponse": as_dict(shape)}
        _restore_spelling(written["functionResponse"], sourced, text)
        if sourced.native is not None:
            _merge_extras(written, "functionResponse", sourced.native)
        self.losses.report_extras(result.native, FORMAT)
        return written

    def _split_content(self, content: tuple[ResultPart, ...]) -> tuple[str, list[WrittenPart]]:
        """The text of a result and the media inside it; media the model rejects there goes to `media_after_results`."""
        losses = self.losses
        texts: list[str] = []
        media: list[WrittenPart] = []
        for position, given in enumerate(content):
            losses.inner = position
            part = fit_medium(given, self._model, losses)
            if isinstance(part, Native) and part.origin == FORMAT:
                media.append(part.data)
                continue
            if isinstance(part, Text):
                losses.report_extras(part.native, FORMAT)
                texts.append(part.text)
                continue
            for written in self.write(part):
                if "text" in written:
                    texts.append(written["text"])
                else:
                    (media if self._accepts_media else self.media_after_results).append(written)
        losses.inner = -1
        return "\n".join(texts), media

    def _name(self, tool_name: str) -> str:
        """The name of a tool; in a response it is the client's own name and is not mapped."""
        if not tool_name:
            return UNKNOWN_TOOL
        return NAMES.to_wire(tool_name) if self._is_request else tool_name
