"""The contents and steps of Interactions as structs, for requests and answers.

An entry of `input` is a step, or a content without one. Those of Google's own tools, and everything malformed, have no shape.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from antiphon.wire.shapes import Loose, Shape, Shapes, as_dict


class _Typed(Shape, tag_field="type"):
    pass


class TextShape(_Typed, tag="text"):
    text: str


class _Medium(_Typed):
    data: str | None = None
    uri: str | None = None
    mime_type: str | None = None


class ImageShape(_Medium, tag="image"):
    pass


class AudioShape(_Medium, tag="audio"):
    pass


class DocumentShape(_Medium, tag="document"):
    pass


class VideoShape(_Medium, tag="video"):
    pass


ContentShape: TypeAlias = TextShape | ImageShape | AudioShape | DocumentShape | VideoShape


class InputShape(_Typed, tag="user_input"):
    content: list[ContentShape] | None = None


class OutputShape(_Typed, tag="model_output"):
    content: list[ContentShape] | None = None


class CallShape(_Typed, tag="function_call"):
    id: str
    name: str
    arguments: dict[str, Any] | None = None


class ResultShape(_Typed, tag="function_result"):
    call_id: str
    name: str | None = None
    result: str | list[ContentShape] | dict[str, Any] | None = None
    is_error: bool | None = None


class ThoughtShape(_Typed, tag="thought"):
    summary: list[ContentShape] | None = None
    signature: Any = None


StepShape: TypeAlias = InputShape | OutputShape | CallShape | ResultShape | ThoughtShape
CONTENTS = Shapes(TextShape, ImageShape, AudioShape, DocumentShape, VideoShape)
ENTRIES = Shapes(
    *(InputShape, OutputShape, CallShape, ResultShape, ThoughtShape),
    *(TextShape, ImageShape, AudioShape, DocumentShape, VideoShape),
    inner={"content": CONTENTS, "summary": CONTENTS, "result": CONTENTS},
)


def split(entry: Any) -> tuple[Any, dict[str, Any]]:
    """The shape of an entry, None if it has none, and the fields that the shape does not name."""
    return (entry.shape, entry.more) if type(entry) is Loose else (entry, {})


def value_of(entry: Any) -> Any:
    """An entry as it came."""
    if type(entry) is Loose:
        return entry.value
    value = as_dict(entry)
    for name, field in value.items():
        if type(field) is list:
            value[name] = [value_of(content) for content in field]
    return value
