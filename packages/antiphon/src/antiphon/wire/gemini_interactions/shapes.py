"""The steps of Interactions as structs. A step with other fields, types or contents is read from its plain values."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from antiphon.wire.shapes import INVALID, Loose, Shape


class TextShape(Shape):
    type: Literal["text"]
    text: str


class StepShape(Shape):
    """A step of text, a call or a text result, as most are. `type` decides which fields belong to it."""

    type: Literal["user_input", "model_output", "function_call", "function_result"]
    content: list[TextShape] | UnsetType = UNSET
    id: str | UnsetType = UNSET
    name: str | UnsetType = UNSET
    arguments: dict[str, Any] | UnsetType = UNSET
    call_id: str | UnsetType = UNSET
    result: str | UnsetType = UNSET


def fit_step(value: Any) -> Any:
    """The shape of a step, or `Loose` without one."""
    try:
        return msgspec.convert(value, StepShape)
    except INVALID:
        return Loose(None, {}, value)


def value_of(step: StepShape) -> Any:
    """A step as it came."""
    return msgspec.to_builtins(step)
