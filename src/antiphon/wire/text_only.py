"""Models that take text only: a medium in the conversation becomes a note in its place, and the loss is reported.

The writers of all formats pass their messages through `replace_media`, the checkers pass bodies to `find_media`. Only models that
the table, or the caller, states to be `text_only` are affected; every other model gets its media as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import structs

from antiphon.parts import Audio, Document, Image, Text, ToolCallResult
from antiphon.wire.loss import Loss
from antiphon.wire.request import Message

TEXT_ONLY = "This model takes text only; {} is not supported."

_BLOCK_TYPES = frozenset({"image", "document", "image_url", "input_audio", "file", "input_image", "input_file"})
_GEMINI_FIELDS = ("inlineData", "inline_data", "fileData", "file_data")
_CONTAINERS = ("content", "output", "parts", "functionResponse", "function_response")


def replace_media(messages: tuple[Message, ...], losses: list[Loss]) -> tuple[Message, ...]:
    """The messages with a note in place of each medium. A document that is text becomes that text."""
    return tuple(
        [
            structs.replace(message, parts=_replace(message.parts, f"messages[{index}].parts", losses))
            for index, message in enumerate(messages)
        ]
    )


def _replace(parts: tuple[Any, ...], place: str, losses: list[Loss]) -> tuple[Any, ...]:
    return tuple([_as_text(part, f"{place}[{position}]", losses) for position, part in enumerate(parts)])


def _as_text(part: Any, path: str, losses: list[Loss]) -> Any:
    if isinstance(part, ToolCallResult):
        return structs.replace(part, content=_replace(part.content, f"{path}.content", losses))
    if not isinstance(part, Image | Audio | Document):
        return part
    kind = type(part).__name__.lower()
    if isinstance(part, Document) and part.text:
        losses.append(Loss(path, kind, "the model takes text only; sent as text"))
        return Text(f"{part.name}\n\n{part.text}" if part.name else part.text)
    losses.append(Loss(path, kind, "the model takes text only; replaced by a note"))
    return Text(f"[{kind} omitted: the model takes text only]")


def find_media(entries: Any, place: str) -> Iterator[tuple[str, str]]:
    """The path and the type of each medium in the messages, items or contents of a body."""
    stack = [(place, entries)]
    while stack:
        path, value = stack.pop()
        if isinstance(value, list):
            stack.extend((f"{path}[{index}]", value[index]) for index in reversed(range(len(value))))
        elif isinstance(value, dict):
            kind = value.get("type")
            found = kind if isinstance(kind, str) and kind in _BLOCK_TYPES else None
            found = found or next((name for name in _GEMINI_FIELDS if name in value), None)
            if found is not None:
                yield path, found
            else:
                stack.extend((f"{path}.{name}", value[name]) for name in reversed(_CONTAINERS) if name in value)
