"""The parts of a content, read and written; requests, responses and streams share this.

A part holds one data field (text, inlineData, functionCall, ...) and fields beside it (thought, thoughtSignature, ...). A data
field with a neutral part becomes that part, with the fields beside it in `native["gemini"]` of the same part: a signature is
bound to it (GM-10). Everything else, also a malformed part, is kept as a `Native` part.

Gemini often gives a call no id and matches results by order and name. A missing id is generated from the position of the call
(in a response also from the response's id), so it is the same each time the body is read. Generated ids are never sent back.

Normalised: names become camelCase, null and `thought: false` are absent, absent `args` are `{}`, an `id` of "" is absent.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, TypeAlias

import msgspec
from msgspec import UNSET, Struct

from antiphon.parts import (
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
from antiphon.wire.capabilities.accepted_media import fit_medium
from antiphon.wire.gemini import FORMAT
from antiphon.wire.gemini.media import Media, read_file_data, read_inline_data, write_media
from antiphon.wire.gemini.native import field_spellings, native_extras, spelled, split_fields
from antiphon.wire.gemini.shapes import CallShape, PartShape, ResultShape, fit_part, value_of
from antiphon.wire.loss import Loss, foreign_block, lose_native, own_extras
from antiphon.wire.native_as_text import readable_parts
from antiphon.wire.provenance import is_from, is_spelled, with_source
from antiphon.wire.shapes import Loose
from antiphon.wire.tools.call_arguments import OBJECT_START, arguments_object, parse_json_object
from antiphon.wire.tools.call_ids import GENERATED_ID_PREFIX, CallIdTracker
from antiphon.wire.tools.names import tool_names

PLACEHOLDER_SIGNATURE = "skip_thought_signature_validator"
"""The signature Gemini 3 accepts on a call made by another model (GM-10)."""
NAMES = tool_names(FORMAT)
"""Mapped names have at most 64 characters, which every model and host accepts (GM-20)."""
UNKNOWN_TOOL = "unknown_tool"
SUCCESS = ToolExecutionStatus.SUCCESS
FAILED = ToolExecutionStatus.FAILED
WrittenPart: TypeAlias = dict[str, Any]
encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
_MEDIA_FIELDS = field_spellings(("inlineData", "fileData"))
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
    extras: dict[str, Any] = {}
    shape = part
    if type(part) is Loose:
        shape, extras = part.shape, part.more
    else:
        if part.thought is not UNSET and part.thought is not None and part.thought is not False:
            extras["thought"] = part.thought
        if part.thought_signature is not UNSET and part.thought_signature is not None:
            extras["thoughtSignature"] = part.thought_signature
    try:
        read = None if shape is None else _read_data(shape, extras, calls)
    except (RecursionError, UnicodeEncodeError):
        read = None
    return Native(FORMAT, value_of(part)) if read is None else read


def _read_data(part: PartShape, extras: dict[str, Any], calls: CallIdTracker) -> Part | None:
    text, call, result, inline, file = (
        part.text,
        part.function_call,
        part.function_response,
        part.inline_data,
        part.file_data,
    )
    given = (text is not UNSET) + (call is not UNSET) + (result is not UNSET)
    given += (inline is not UNSET and inline is not None) + (file is not UNSET and file is not None)
    if given != 1:
        return None if given else _read_bare(extras)
    if call is not UNSET:
        return read_call(call, extras, calls)
    if result is not UNSET:
        return read_result(result, extras, calls)
    if text is not UNSET:
        if extras.get("thought") is True:
            del extras["thought"]
            return Thinking(text, native=native_extras(extras), source=SOURCE)
        return Text(text, native={FORMAT: extras} if extras else None)
    return read_file_data(file, extras) if inline is UNSET or inline is None else read_inline_data(inline, extras)


def _read_bare(extras: dict[str, Any]) -> Part | None:
    """A thought that has only a signature."""
    if extras.get("thought") is not True or type(extras.get("thoughtSignature")) is not str:
        return None
    del extras["thought"]
    return Thinking(native=native_extras(extras), source=_NO_TEXT)


def read_call(call: Any, extras: dict[str, Any], calls: CallIdTracker) -> ToolCallRequest | None:
    """A call; None if it is malformed."""
    more: dict[str, Any] = {}
    if type(call) is Loose:
        call, more = call.shape, call.more
    if call is None or not call.name:
        return None
    name, wire_id = call.name, call.id
    if wire_id is not None and (not wire_id or wire_id.startswith(GENERATED_ID_PREFIX)):
        more["id"] = wire_id
    if more:
        extras = {**extras, "functionCall": more}
    arguments = encode(call.args or {}).decode()
    return ToolCallRequest(
        name, calls.add_call(name, wire_id or None), arguments, native={FORMAT: extras} if extras else None
    )


def read_result(result: Any, extras: dict[str, Any], calls: CallIdTracker) -> ToolCallResult | None:
    """A result; None if it is malformed."""
    more: dict[str, Any] = {}
    if type(result) is Loose:
        result, more = result.shape, result.more
    if result is None or not result.name or (type(result.response) is not dict and result.response is not None):
        return None
    name, response, raw_id = result.name, result.response, result.id
    if response is not None and len(response) == 1 and not more and not extras and not result.parts:
        output = response.get("output")
        is_own = raw_id is None or (raw_id and not raw_id.startswith(GENERATED_ID_PREFIX))
        if is_own and type(output) is str and output[:1] not in OBJECT_START:
            call_id = calls.match_next(name, raw_id)  # the usual result, of the call whose turn it is
            if call_id is not None:
                return ToolCallResult(name, call_id, SUCCESS, (Text(output),))
    media = tuple([_read_result_media(part) for part in result.parts or ()])
    return _build_result(name, more.pop("id", raw_id), response, calls, media, extras, more)


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
    return ToolCallResult(name, call_id, status, content, native=native_extras(extras), source=spelled(*spelling))


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
            read = read_inline_data if name == "inlineData" else read_file_data
            return read(value, extras) or Native(FORMAT, part)
    return Native(FORMAT, part)


def is_call(part: Any) -> bool:
    """Whether a written part is a call."""
    if type(part) is PartShape:
        return part.function_call is not UNSET
    return isinstance(part, dict) and "functionCall" in part


def write_call(call: ToolCallRequest, name: str, losses: list[Loss], signature: str) -> PartShape | dict[str, Any]:
    """A call as a part; `signature` is used if it has none. Paths of losses are relative to the call."""
    call_id = call.tool_call_id
    args = arguments_object(call, losses, "", "GM-08")
    if call_id.startswith(GENERATED_ID_PREFIX):
        call_id = ""
    if call.native is None:
        return PartShape(function_call=CallShape(name, args, call_id or None), thought_signature=signature or UNSET)
    function = {"id": call_id, "name": name, "args": args} if call_id else {"name": name, "args": args}
    part: dict[str, Any] = {"functionCall": function}
    _merge_extras(part, "functionCall", call.native)
    if signature and not part.get("thoughtSignature"):
        part["thoughtSignature"] = signature
    return part


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


def write_text_result(result: ToolCallResult, name: str, text: str) -> PartShape:
    """A result that is only `text`."""
    call_id = result.tool_call_id
    is_named = call_id and not call_id.startswith(GENERATED_ID_PREFIX)
    is_plain = result.status is SUCCESS and text[:1] not in OBJECT_START
    response = _Output(text) if is_plain else _response_object(result, text)
    return PartShape(function_response=ResultShape(name, response, call_id if is_named else None))


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
                    with suppress(msgspec.DecodeError, UnicodeEncodeError, RecursionError):
                        value = _decode(text)
                function["response"] = {key: value}
        elif word == "empty" and not any(isinstance(part, Text) for part in result.content):
            del function["response"]
        elif word == "no-id":
            function.pop("id", None)


class ContentWriter:
    """Writes parts of any origin for requests, responses and streams; reports what Gemini does not support.

    In a request, `message` is the index of the message whose parts are written. Responses also show the thoughts of other
    models; in a request Gemini accepts only thoughts it signed.
    """

    def __init__(self, losses: list[Loss], target: Capabilities | None = None) -> None:
        """`target` is the model of a request; responses and streams have none."""
        self.losses = losses
        self.message = 0
        self.media_after_results: list[WrittenPart] = []
        self._is_request = target is not None
        self._accepts_media = target is None or target.media_in_results
        self._model = target
        self._signature = PLACEHOLDER_SIGNATURE if target and target.call_signatures else ""
        self._tool_names: dict[str, str] = {}

    def write(self, part: Part, position: int) -> PartShape | WrittenPart | None:
        """The part at `position` of the message; None if nothing of it can be sent."""
        if type(part) is Text and part.native is None:
            return {"text": part.text}
        if isinstance(part, ToolCallRequest):
            return self.call(part, position)
        if isinstance(part, ToolCallResult):
            return self.result(part, position)
        if isinstance(part, Thinking):
            return self._thinking(part, position)
        if isinstance(part, Refusal):
            self.report_refusal(position)
        if isinstance(part, Text | Refusal):
            return self.text(part.text, part.native, position)
        return self._block(part, self.path(position))

    def _block(self, given: Native | Media, path: str) -> WrittenPart | None:
        """A medium or a native part, as the model accepts it."""
        part = fit_medium(given, self._model, self.losses, path)
        if isinstance(part, Native):
            return part.data if part.origin == FORMAT else next(iter(self.foreign(part, path)), None)
        if isinstance(part, Text):
            return {"text": part.text}
        return write_media(part, self.losses, path)

    def foreign(self, part: Native, path: str) -> list[WrittenPart]:
        """A block of another format, as text and images; the text is first. In a response it is not sent."""
        if not self._is_request:
            self.losses.append(foreign_block(path, "block", part.origin))
            return []
        written: list[WrittenPart] = []
        for readable in readable_parts(part, self.losses, path, "Gemini"):
            block = {"text": readable.text} if isinstance(readable, Text) else self._block(readable, path)
            written += [] if block is None else [block]
        return written

    def text(self, text: str, native: NativeExtras | None, position: int, *, is_thought: bool = False) -> WrittenPart:
        """Text or a thought, or what was added to it in a stream."""
        thought = {"thought": True} if is_thought else {}
        return {"text": text, **thought, **own_extras(native, self.losses, self.path(position), FORMAT)}

    def report_refusal(self, position: int) -> None:
        reason = "Gemini has no refusals; sent as text"
        self.losses.append(Loss(f"{self.path(position)}.refusal", "refusal", reason))

    def path(self, position: int) -> str:
        return f"messages[{self.message}].parts[{position}]" if self._is_request else f"parts[{position}]"

    def call(self, call: ToolCallRequest, position: int, is_first: bool = False) -> PartShape | WrittenPart:
        """A call; the first of a step must be signed."""
        name = self._name(call.tool_name)
        self._tool_names[call.tool_call_id] = name
        losses = self.losses
        first_loss = len(losses)
        part = write_call(call, name, losses, self._signature if is_first else "")
        if call.native is not None:
            lose_native(losses, "", call.native, FORMAT)
        if len(losses) > first_loss:
            self._prefix_paths(first_loss, position)
        return part

    def result(self, result: ToolCallResult, position: int) -> PartShape | WrittenPart:
        """A result; without a name it gets the name of its call."""
        name = (
            self._name(result.tool_name)
            if result.tool_name
            else self._tool_names.get(result.tool_call_id, UNKNOWN_TOOL)
        )
        content = result.content
        if result.native is None and result.source is None and len(content) == 1:
            (only,) = content
            if type(only) is Text and only.native is None:
                return write_text_result(result, name, only.text)
        first_loss = len(self.losses)
        part = self._write_result(result, name)
        if result.native is not None:
            lose_native(self.losses, "", result.native, FORMAT)
        if len(self.losses) > first_loss:
            self._prefix_paths(first_loss, position)
        return part

    def _write_result(self, result: ToolCallResult, name: str) -> WrittenPart:
        """A result with media, extras or an error. Paths of losses are relative to the result."""
        result = with_source(result)
        text, media = self._split_content(result.content)
        call_id = result.tool_call_id
        function: dict[str, Any] = {"id": call_id} if call_id and not call_id.startswith(GENERATED_ID_PREFIX) else {}
        function["name"] = name
        function["response"] = _response_object(result, text)
        if media:
            function["parts"] = media
        part: WrittenPart = {"functionResponse": function}
        _restore_spelling(function, result, text)
        if result.native is not None:
            _merge_extras(part, "functionResponse", result.native)
        return part

    def _split_content(self, content: tuple[ResultPart, ...]) -> tuple[str, list[WrittenPart]]:
        """The text of a result and the media inside it; media the model rejects there goes to `media_after_results`."""
        texts: list[str] = []
        media: list[WrittenPart] = []
        for position, given in enumerate(content):
            path = f".content[{position}]"
            part = fit_medium(given, self._model, self.losses, path)
            if isinstance(part, Native) and part.origin == FORMAT:
                media.append(part.data)
                continue
            if isinstance(part, Text):
                lose_native(self.losses, path, part.native, FORMAT)
                texts.append(part.text)
                continue
            inline = write_media(part, self.losses, path) if not isinstance(part, Native) else None
            for written in self.foreign(part, path) if isinstance(part, Native) else [inline] if inline else []:
                if "text" in written:
                    texts.append(written["text"])
                else:
                    (media if self._accepts_media else self.media_after_results).append(written)
        return "\n".join(texts), media

    def _name(self, tool_name: str) -> str:
        """The name of a tool; in a response it is the client's own name and is not mapped."""
        if not tool_name:
            return UNKNOWN_TOOL
        return NAMES.to_wire(tool_name) if self._is_request else tool_name

    def _prefix_paths(self, first: int, position: int) -> None:
        """Complete the paths of the losses a part caused; formatting a path for each part would cost more."""
        path = self.path(position)
        self.losses[first:] = [Loss(path + loss.path, loss.what, loss.why) for loss in self.losses[first:]]

    def _thinking(self, part: Thinking, position: int) -> WrittenPart | None:
        part = with_source(part)
        if self._is_request and not is_from(part, FORMAT):
            reason = "Gemini accepts only its own thoughts; dropped"
            self.losses.append(Loss(self.path(position), "thinking", reason))
            return None
        written = self.text(part.text, part.native, position, is_thought=True)
        if not part.text and is_spelled(part, "no-text"):
            del written["text"]
        return written
