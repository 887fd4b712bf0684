"""Results (`functionResponse`): a name, an object, and media beside it.

Tools answer in text; Gemini wants an object. Text that is itself a JSON object is written as that object, other text as
`{"output": text}`, and the text of a failed call as `{"error": text}`. Reading is the reverse, and takes `{"result": …}`, the
SDK's own wrapping, for an output too. A spelling that the text alone would not bring back is kept as a mark (see `spelling`):
"result" (the text under that key), "result:json" (the JSON it holds), "empty" (no response at all), "no-id".
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType

from antiphon.parts import Native, NativeExtras, ResultPart, Text, ToolCallResult, ToolExecutionStatus
from antiphon.wire.gemini.calls import MINTED, CallIds, encode, extend
from antiphon.wire.gemini.media import read_file_data, read_inline_data, write_media
from antiphon.wire.gemini.spelling import FORMAT, fields_of, forms, mark, marks_of, native_of
from antiphon.wire.loss import Loss, lose_native

_RESPONSE = forms(("id", "name", "response", "parts"))
_INNER = forms(("inlineData", "fileData"))
_WRAPPINGS = ("output", "result", "error")
_MARKS = {word: mark(word) for key in _WRAPPINGS for word in (key, f"{key}:json")}
_EMPTY = mark("empty")
_NO_ID = mark("no-id")

_decode = msgspec.json.Decoder().decode
_BLANK = " \t\r\n"
MAY_BE_OBJECT = "{" + _BLANK
"""How a text begins that may be an object; an empty one is among them."""
_SUCCESS = ToolExecutionStatus.SUCCESS
_FAILED = ToolExecutionStatus.FAILED


def read_result(value: Any, extras: dict[str, Any], calls: CallIds) -> ToolCallResult | None:
    """A result; None if it is not what it should be."""
    if type(value) is not dict:
        return None
    fields, more = fields_of(value, _RESPONSE)
    name, response, given = fields.get("name"), fields.get("response"), fields.get("id")
    if type(name) is not str or not name or type(response) not in (dict, type(None)):
        return None
    parts = fields.get("parts", ())
    if type(parts) is not tuple and (type(parts) is not list or not parts):
        return None
    media = tuple(_read_inner(part) for part in parts)
    wire_id = given if type(given) is str and given else None
    call_id, called_as = calls.answered(name, wire_id)
    marks: NativeExtras = {}
    if given is None:
        if called_as is not None:
            marks = _NO_ID
    elif wire_id != call_id or call_id.startswith(MINTED):
        more["id"] = given
    status, text, spelled = _EMPTY_RESULT if response is None else read_response_object(response)
    if spelled is not None:
        marks = {**marks, **spelled}
    if more:
        extras = {**extras, "functionResponse": more}
    content = (Text(text), *media) if response is not None else media
    return ToolCallResult(name, call_id, status, content, native=native_of(extras, marks))


_EMPTY_RESULT: tuple[ToolExecutionStatus, str, NativeExtras | None] = (_SUCCESS, "", _EMPTY)


def read_response_object(response: dict[str, Any]) -> tuple[ToolExecutionStatus, str, NativeExtras | None]:
    """How the call ended, in which words, and how they were wrapped, if the writer would wrap them otherwise."""
    if len(response) == 1:
        ((key, value),) = response.items()
        if key in _WRAPPINGS:
            status = _FAILED if key == "error" else _SUCCESS
            if type(value) is not str:
                return status, encode(value).decode(), _MARKS[f"{key}:json"]
            if key == "result" or (key == "output" and object_in(value) is not None):
                return status, value, _MARKS[key]
            return status, value, None
    return _SUCCESS, encode(response).decode(), None


def object_in(text: str) -> dict[str, Any] | None:
    """The JSON object that a text is, if it is one."""
    if text[:1] not in MAY_BE_OBJECT or not text.lstrip(_BLANK).startswith("{"):
        return None
    try:
        value = _decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None
    return value if type(value) is dict else None


def _read_inner(part: Any) -> ResultPart:
    if type(part) is dict:
        fields, extras = fields_of(part, _INNER)
        if len(fields) == 1 and not extras.keys() & _INNER.keys():
            ((name, value),) = fields.items()
            read = read_inline_data if name == "inlineData" else read_file_data
            return read(value, extras) or Native(FORMAT, part)
    return Native(FORMAT, part)


class _Output(Struct, gc=False):
    output: str


class _Response(Struct, gc=False):
    id: str | UnsetType
    name: str
    response: Any


class WrittenResult(Struct, gc=False, rename="camel"):
    """A part that is a result in words, as most are: made and encoded in less time than a dictionary."""

    function_response: _Response


def is_result(part: Any) -> bool:
    """Whether a written part is a result."""
    return type(part) is WrittenResult or (isinstance(part, dict) and "functionResponse" in part)


def write_words(result: ToolCallResult, name: str, text: str) -> WrittenResult:
    """A result as a part that says `text`, and nothing beside it."""
    call_id = result.tool_call_id
    is_named = call_id and not call_id.startswith(MINTED)
    is_plain = result.status is _SUCCESS and text[:1] not in MAY_BE_OBJECT
    response = _Output(text) if is_plain else _response_of(result, text)
    return WrittenResult(_Response(call_id if is_named else UNSET, name, response))


def _response_of(result: ToolCallResult, text: str) -> Any:
    if result.status is not _SUCCESS and result.status != _SUCCESS:
        return {"error": text}
    value = object_in(text)
    return _Output(text) if value is None else value


class ResultWriter:
    """Writes results; what a model takes beside them only as a part of the user's is left in `aside`."""

    def __init__(self, losses: list[Loss], takes_media: bool) -> None:
        self._losses = losses
        self._takes_media = takes_media
        self.aside: list[dict[str, Any]] = []

    def write(self, result: ToolCallResult, name: str) -> dict[str, Any]:
        """A result as a part. Paths of losses begin at the result."""
        text, media = self._split(result.content)
        call_id = result.tool_call_id
        function: dict[str, Any] = {"id": call_id} if call_id and not call_id.startswith(MINTED) else {}
        function["name"] = name
        function["response"] = _response_of(result, text)
        if media:
            function["parts"] = media
        part: dict[str, Any] = {"functionResponse": function}
        if result.native is not None:
            _respell(function, result, text)
            extend(part, "functionResponse", result.native)
        return part

    def _split(self, content: tuple[ResultPart, ...]) -> tuple[str, list[dict[str, Any]]]:
        texts: list[str] = []
        media: list[dict[str, Any]] = []
        for position, part in enumerate(content):
            where = f".content[{position}]"
            if isinstance(part, Native):
                if part.origin == FORMAT:
                    media.append(part.data)
                else:
                    self._losses.append(Loss(where, "block", f"only {part.origin} understands it"))
                continue
            lose_native(self._losses, where, part.native, FORMAT)
            if isinstance(part, Text):
                texts.append(part.text)
            else:
                written = write_media(part, self._losses, where)
                if written is not None:
                    (media if self._takes_media else self.aside).append(written)
        return "\n".join(texts), media


def _respell(function: dict[str, Any], result: ToolCallResult, text: str) -> None:
    """The response as it was spelled, where the result says so and is still that result."""
    for word in marks_of(result.native):
        key, _, kind = word.partition(":")
        if key in _WRAPPINGS:
            if (key == "error") == (result.status != _SUCCESS):
                value: Any = text
                if kind:
                    with suppress(msgspec.DecodeError, UnicodeEncodeError, RecursionError):
                        value = _decode(text)
                function["response"] = {key: value}
        elif word == "empty" and not any(isinstance(part, Text) for part in result.content):
            del function["response"]
        elif word == "no-id":
            function.pop("id", None)
