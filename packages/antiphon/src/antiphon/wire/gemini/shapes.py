"""The contents and parts of Gemini as structs, for the reader and the writer.

A content of parts in camelCase, as nearly all are, is decoded as it is. Any other part is split by `fit_part`: its data, in
either spelling, is in the shape; the fields beside it are what its `Loose` has more.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import UNSET, UnsetType

from antiphon.wire.gemini.native import field_spellings, split_fields
from antiphon.wire.rules import name_list
from antiphon.wire.shapes import Loose, Shape, Shapes, plain_values

DATA_FIELDS = name_list(
    "text inlineData functionCall functionResponse fileData executableCode codeExecutionResult toolCall toolResponse"
)
"""A part has one of these (GM-04)."""
OTHER_PART_FIELDS = ("thought", "thoughtSignature", "videoMetadata", "mediaResolution", "partMetadata")
PART_SPELLINGS = field_spellings((*DATA_FIELDS, *OTHER_PART_FIELDS))


class CallShape(Shape):
    name: str
    args: dict[str, Any] | None = None
    id: str | None = None


class ResultShape(Shape):
    name: str
    response: Any = None
    id: str | None = None
    parts: list[Any] | None = None


class PartShape(Shape, rename="camel"):
    text: str | UnsetType = UNSET
    function_call: CallShape | UnsetType = UNSET
    function_response: ResultShape | UnsetType = UNSET
    thought: Any = UNSET
    thought_signature: Any = UNSET
    inline_data: Any = UNSET
    file_data: Any = UNSET


class ContentShape(Shape):
    role: Literal["user", "model"]
    parts: list[PartShape]


_DATA_FIELDS = frozenset(DATA_FIELDS)
_CALLS = Shapes(CallShape, spare=("id",))
_RESULTS = Shapes(ResultShape, spare=("id",))


def fit_content(value: Any) -> Any:
    """The shape of a content; `Loose` without one if its role or its fields are unusual."""
    if type(value) is dict and len(value) == 2 and type(value.get("parts")) is list:
        role = value.get("role")
        if role == "user" or role == "model":
            return ContentShape(role, [fit_part(part) for part in value["parts"]])
    return Loose(None, {}, value)


def fit_part(value: Any) -> Any:
    """A part of plain values as `Loose`; without a shape, if it has no data, or more than one."""
    if type(value) is not dict:
        return Loose(None, {}, value)
    fields, more = split_fields(value, PART_SPELLINGS)
    if more.keys() & PART_SPELLINGS.keys():  # one field in both spellings: ambiguous
        return Loose(None, {}, value)
    shape = PartShape()
    data = ""
    for name, field in fields.items():
        if name not in _DATA_FIELDS:
            if name != "thought" or field is not False:
                more[name] = field
            continue
        if data:
            return Loose(None, {}, value)
        data = name
        if name == "text" and type(field) is str:
            shape.text = field
        elif name == "functionCall":
            shape.function_call = _CALLS.fit(field)
        elif name == "functionResponse":
            shape.function_response = _RESULTS.fit(field)
        elif name == "inlineData":
            shape.inline_data = field
        elif name == "fileData":
            shape.file_data = field
        else:
            return Loose(None, {}, value)
    return Loose(shape, more, value)


def value_of(part: Any) -> Any:
    """A part as it came."""
    return part.value if type(part) is Loose else plain_values(part)
