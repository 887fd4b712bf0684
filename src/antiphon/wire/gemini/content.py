"""The parts of a content, read and written; requests, responses and streams share this.

A part holds one data field (text, inlineData, functionCall, …) and fields beside it (thought, thoughtSignature, …). What we
have a part for becomes that part, with the fields beside it in `native["gemini"]` of that very part: a signature is bound to
it (GM-10). Everything else, also what is not as it should be, is a `Native` part as it came.

Normalised: names become camelCase, null and `thought: false` are absent, absent `args` are `{}`, an `id` of "" is none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from antiphon.parts import (
    Audio,
    Document,
    Image,
    Native,
    Part,
    Refusal,
    Text,
    Thinking,
    ToolCallRequest,
    ToolCallResult,
)
from antiphon.wire.gemini.calls import MINTED, STAND_IN, CallIds, WrittenCall, encode, read_call, write_call
from antiphon.wire.gemini.declarations import FUNCTION_NAME
from antiphon.wire.gemini.media import read_file_data, read_inline_data, write_media
from antiphon.wire.gemini.results import ResultWriter, WrittenResult, read_plain_result, read_result, write_words
from antiphon.wire.gemini.rules import DATA_FIELDS, OTHER_PART_FIELDS
from antiphon.wire.gemini.spelling import FORMAT, extras_of, fields_of, forms, mark, marked
from antiphon.wire.ids import NameMap
from antiphon.wire.loss import Loss, lose_native

Written: TypeAlias = dict[str, Any]

LONGEST_NAME = 64
"""Of a stand-in: what every model and host takes (GM-20)."""
UNKNOWN_TOOL = "unknown_tool"

_FORMS = forms((*DATA_FIELDS, *OTHER_PART_FIELDS))
_DATA = frozenset(DATA_FIELDS)
_NO_TEXT = mark("no-text")


def read_part(part: Any, calls: CallIds) -> Part:
    """One part of a content. Never raises."""
    if type(part) is not dict:
        return Native(FORMAT, part)
    read: Part | None = None
    if len(part) == 1 and "text" in part:
        if type(part["text"]) is str:
            return Text(part["text"])
    elif "functionCall" in part:
        read = _read_plain_call(part, part["functionCall"], calls)
    elif "functionResponse" in part and len(part) == 1:
        read = read_plain_result(part["functionResponse"], calls)
    if read is not None:
        return read
    try:
        return _read_fields(part, calls) or Native(FORMAT, part)
    except (RecursionError, UnicodeEncodeError):
        return Native(FORMAT, part)


def _read_plain_call(part: Written, call: Any, calls: CallIds) -> ToolCallRequest | None:
    """The usual call: a name, an object, perhaps an id and a signature. None if it is not that."""
    if type(call) is not dict:
        return None
    name, args, call_id = call.get("name"), call.get("args"), call.get("id")
    if type(name) is not str or not name or type(args) is not dict:
        return None
    if len(call) == 3:
        if type(call_id) is not str or not call_id or call_id.startswith(MINTED):
            return None
    elif len(call) != 2:
        return None
    native = None
    if len(part) != 1:
        signature = part.get("thoughtSignature")
        if len(part) != 2 or type(signature) is not str:
            return None
        native = {FORMAT: {"thoughtSignature": signature}}
    try:
        arguments = encode(args).decode()
    except (RecursionError, UnicodeEncodeError):
        return None
    return ToolCallRequest(name, calls.called(name, call_id), arguments, native=native)


def _read_fields(part: Written, calls: CallIds) -> Part | None:
    fields, extras = fields_of(part, _FORMS)
    if extras.keys() & _FORMS.keys():  # the same field in both spellings: nothing is certain
        return None
    data: str | None = None
    for name, value in fields.items():
        if name not in _DATA:
            if name != "thought" or value is not False:
                extras[name] = value
        elif data is not None:
            return None
        else:
            data = name
    if data is None:
        return _read_bare(extras)
    reader = _READERS.get(data)
    return reader(fields[data], extras, calls) if reader is not None else None


def _read_text(text: Any, extras: dict[str, Any], _calls: CallIds) -> Part | None:
    if type(text) is not str:
        return None
    if extras.get("thought") is True:
        del extras["thought"]
        return Thinking(text, native={FORMAT: extras})
    return Text(text, native={FORMAT: extras} if extras else None)


def _read_bare(extras: dict[str, Any]) -> Part | None:
    """A thought of which only the signature is told."""
    if extras.get("thought") is not True or type(extras.get("thoughtSignature")) is not str:
        return None
    del extras["thought"]
    return Thinking(native={FORMAT: extras, **_NO_TEXT})


_Reader: TypeAlias = Callable[[Any, dict[str, Any], CallIds], Part | None]

_READERS: dict[str, _Reader] = {
    "text": _read_text,
    "functionCall": read_call,
    "functionResponse": read_result,
    "inlineData": lambda value, extras, _calls: read_inline_data(value, extras),
    "fileData": lambda value, extras, _calls: read_file_data(value, extras),
}


class PartWriter:
    """Writes parts of any origin; what Gemini cannot say goes to the losses.

    In a request, `message` is the index of the message whose parts are written. A response has none, and shows also the thoughts
    of another model: there they are for the reader, here they would need proof.
    """

    def __init__(
        self, losses: list[Loss], *, is_request: bool = False, signs_calls: bool = False, takes_media: bool = True
    ) -> None:
        self.losses = losses
        self.message = 0
        # In a response the name is the client's own, and stays as it is.
        self.names = NameMap(FUNCTION_NAME.match if is_request else bool, LONGEST_NAME)
        self.results = ResultWriter(losses, takes_media)
        self._is_request = is_request
        self._signature = STAND_IN if signs_calls else ""
        self._called: dict[str, str] = {}
        self._legal: dict[str, str] = {}
        self._writers: dict[type, Callable[[Any, int], WrittenCall | WrittenResult | Written | None]] = {
            Text: self._text,
            Thinking: self._thinking,
            Refusal: self._refusal,
            Image: self._media,
            Audio: self._media,
            Document: self._media,
            ToolCallResult: self.result,
            ToolCallRequest: self.call,
            Native: self._native,
        }

    def write(self, part: Part, position: int) -> WrittenCall | WrittenResult | Written | None:
        """A part at its place in the message; None if nothing of it is left."""
        return self._writers[type(part)](part, position)

    def path(self, position: int) -> str:
        return f"messages[{self.message}].parts[{position}]" if self._is_request else f"parts[{position}]"

    def call(self, call: ToolCallRequest, position: int, is_first: bool = False) -> WrittenCall | Written:
        """A call; the first of a step must be signed."""
        name = self._legal.get(call.tool_name) or self._name(call.tool_name)
        self._called[call.tool_call_id] = name
        losses = self.losses
        before = len(losses)
        part = write_call(call, name, losses, self._signature if is_first else "")
        if call.native is not None:
            lose_native(losses, "", call.native, FORMAT)
        if len(losses) > before:
            self._locate(before, position)
        return part

    def result(self, result: ToolCallResult, position: int) -> WrittenResult | Written:
        """A result, named as its call is."""
        tool_name = result.tool_name
        if tool_name:
            name = self._legal.get(tool_name) or self._name(tool_name)
        else:
            name = self._called.get(result.tool_call_id, UNKNOWN_TOOL)
        content = result.content
        if result.native is None and len(content) == 1:
            (said,) = content
            if type(said) is Text and said.native is None:
                return write_words(result, name, said.text)
        losses = len(self.losses)
        part = self.results.write(result, name)
        if result.native is not None:
            lose_native(self.losses, "", result.native, FORMAT)
        if len(self.losses) > losses:
            self._locate(losses, position)
        return part

    def _name(self, tool_name: str) -> str:
        name = self._legal[tool_name] = self.names.legal(tool_name) if tool_name else UNKNOWN_TOOL
        return name

    def _locate(self, first: int, position: int) -> None:
        """Put the place of the part before the paths of the losses it caused: paths cost, and losses are rare."""
        path = self.path(position)
        self.losses[first:] = [Loss(path + loss.path, loss.what, loss.why) for loss in self.losses[first:]]

    def _text(self, part: Text, position: int) -> Written:
        written: Written = {"text": part.text}
        if part.native is not None:
            written.update(extras_of(part.native))
            lose_native(self.losses, self.path(position), part.native, FORMAT)
        return written

    def _thinking(self, part: Thinking, position: int) -> Written | None:
        native = part.native or {}
        if self._is_request and FORMAT not in native:
            why = f"thoughts of another model mean nothing to {FORMAT}"
            self.losses.append(Loss(f"{self.path(position)}.thinking", "thinking", why))
            return None
        lose_native(self.losses, self.path(position), native, FORMAT)
        spoken: Written = {} if marked(native, "no-text") and not part.text else {"text": part.text}
        return {**spoken, "thought": True, **extras_of(native)}

    def _refusal(self, part: Refusal, position: int) -> Written:
        path = self.path(position)
        self.losses.append(Loss(f"{path}.refusal", "refusal", f"{FORMAT} has no refusals; it is said as text"))
        if part.native:
            lose_native(self.losses, path, part.native, FORMAT)
        return {"text": part.text, **extras_of(part.native)}

    def _media(self, part: Image | Audio | Document, position: int) -> Written | None:
        path = self.path(position)
        if part.native:
            lose_native(self.losses, path, part.native, FORMAT)
        return write_media(part, self.losses, path)

    def _native(self, part: Native, position: int) -> Written | None:
        if part.origin == FORMAT:
            data: Written = part.data
            return data
        self.losses.append(Loss(self.path(position), "block", f"only {part.origin} understands it"))
        return None
