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
    Native,
    Part,
    Refusal,
    Text,
    Thinking,
    ToolCallRequest,
    ToolCallResult,
)
from antiphon.wire.gemini.calls import STAND_IN, CallIds, WrittenCall, read_call, write_call
from antiphon.wire.gemini.declarations import FUNCTION_NAME
from antiphon.wire.gemini.media import read_file_data, read_inline_data, write_media
from antiphon.wire.gemini.results import ResultWriter, WrittenResult, read_result, write_words
from antiphon.wire.gemini.rules import DATA_FIELDS, OTHER_PART_FIELDS
from antiphon.wire.gemini.spelling import FORMAT, fields_of, forms, mark, marked
from antiphon.wire.loss import Loss, lose_native, own_extras
from antiphon.wire.tool_calls import NameMapper

Written: TypeAlias = dict[str, Any]

NAMES = NameMapper(FUNCTION_NAME.pattern)
"""Stand-ins keep to 64, which every model and host takes (GM-20)."""
UNKNOWN_TOOL = "unknown_tool"

_FORMS = forms((*DATA_FIELDS, *OTHER_PART_FIELDS))
_DATA = frozenset(DATA_FIELDS)
_NO_TEXT = mark("no-text")


def read_part(part: Any, calls: CallIds) -> Part:
    """One part of a content. Never raises."""
    if type(part) is not dict:
        return Native(FORMAT, part)
    if len(part) == 1 and type(part.get("text")) is str:
        return Text(part["text"])
    try:
        return _read_fields(part, calls) or Native(FORMAT, part)
    except (RecursionError, UnicodeEncodeError):
        return Native(FORMAT, part)


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
        self.results = ResultWriter(losses, takes_media)
        self._is_request = is_request
        self._signature = STAND_IN if signs_calls else ""
        self._called: dict[str, str] = {}

    def write(self, part: Part, position: int) -> WrittenCall | WrittenResult | Written | None:
        """A part at its place in the message; None if nothing of it is left."""
        if isinstance(part, ToolCallRequest):
            return self.call(part, position)
        if isinstance(part, ToolCallResult):
            return self.result(part, position)
        path = self.path(position)
        if isinstance(part, Native):
            data: Written | None = part.data if part.origin == FORMAT else None
            if part.origin != FORMAT:
                self.losses.append(Loss(path, "block", f"only {part.origin} understands it"))
            return data
        if isinstance(part, Thinking):
            return self._thinking(part, path)
        if isinstance(part, Refusal):
            self.losses.append(Loss(f"{path}.refusal", "refusal", f"{FORMAT} has no refusals; it is said as text"))
        if isinstance(part, Text | Refusal):
            return {"text": part.text, **own_extras(part.native, self.losses, path, FORMAT)}
        lose_native(self.losses, path, part.native, FORMAT)
        return write_media(part, self.losses, path)

    def path(self, position: int) -> str:
        return f"messages[{self.message}].parts[{position}]" if self._is_request else f"parts[{position}]"

    def call(self, call: ToolCallRequest, position: int, is_first: bool = False) -> WrittenCall | Written:
        """A call; the first of a step must be signed."""
        name = self._name(call.tool_name)
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
        name = self._name(result.tool_name) if result.tool_name else self._called.get(result.tool_call_id, UNKNOWN_TOOL)
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
        """The name of a tool; in a response it is the client's own, and stays as it is."""
        if not tool_name:
            return UNKNOWN_TOOL
        return NAMES.to_wire(tool_name) if self._is_request else tool_name

    def _locate(self, first: int, position: int) -> None:
        """Put the place of the part before the paths of the losses it caused: paths cost, and losses are rare."""
        path = self.path(position)
        self.losses[first:] = [Loss(path + loss.path, loss.what, loss.why) for loss in self.losses[first:]]

    def _thinking(self, part: Thinking, path: str) -> Written | None:
        native = part.native or {}
        if self._is_request and FORMAT not in native:
            why = f"thoughts of another model mean nothing to {FORMAT}"
            self.losses.append(Loss(f"{path}.thinking", "thinking", why))
            return None
        spoken: Written = {} if marked(native, "no-text") and not part.text else {"text": part.text}
        return {**spoken, "thought": True, **own_extras(native, self.losses, path, FORMAT)}
