"""The input of a request: a string, a content, a list of contents, or a list of steps; always written as steps.

A `user_input` step is a user message, a `function_result` a tool message; consecutive steps of the model are one assistant
message. Results are written before the other parts of their message. Media that a result cannot hold (GI-14) follow all results
of the step as a `user_input`. The history must not begin with a call nor, for some models, end with the model, as in
generateContent (GM-05, GM-16); a user turn is added there. System messages after the first are sent as notes of the user.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from antiphon.parts import Native, Refusal, Text, ToolCallResult
from antiphon.wire.capabilities import Capabilities
from antiphon.wire.gemini_interactions import FORMAT
from antiphon.wire.gemini_interactions.content import StepWriter, add_model_step, read_content, read_result
from antiphon.wire.gemini_interactions.limits import MEDIA_KINDS, NAME
from antiphon.wire.gemini_interactions.shapes import (
    CallShape,
    InputShape,
    OutputShape,
    ResultShape,
    ThoughtShape,
    value_of,
)
from antiphon.wire.loss import Losses
from antiphon.wire.request import Message
from antiphon.wire.shapes import Loose
from antiphon.wire.shared_google import TurnListWriter

_MODEL_STEPS = (CallShape, OutputShape, ThoughtShape)
_NOTHING: dict[str, Any] = {}


class StepReader:
    """Reads the steps of one request in order."""

    def __init__(self) -> None:
        self._messages: list[Message] = []
        self._turn: list[Any] = []  # the parts of the open assistant turn
        self._contents: list[Any] = []  # contents without a step, which are one input of the user

    def read(self, entries: list[Any]) -> list[Message]:
        for entry in entries:
            kind, shape, more = type(entry), entry, _NOTHING
            if kind is Loose:
                shape, more = entry.shape, entry.more
                kind = type(shape)
            message: Message | None = None
            if kind in _MODEL_STEPS or (shape is None and _is_model_step(entry.value)):
                if self._contents:
                    self._end_contents()
                add_model_step(self._turn, entry, shape, more)
                continue
            if kind is ResultShape:
                result = read_result(shape, more)
                message = None if result is None else Message("tool", (result,))
            elif kind is InputShape:
                if shape.content:
                    parts = tuple(map(read_content, shape.content))
                    message = Message("user", parts, None, {FORMAT: more} if more else None)
            elif shape is not None or is_content(entry.value):
                self._end_turn()
                self._contents.append(read_content(entry))
                continue
            if self._contents:
                self._end_contents()
            if self._turn:
                self._end_turn()
            self._messages.append(message or Message("unknown", (Native(FORMAT, value_of(entry)),)))
        self._end_contents()
        self._end_turn()
        return self._messages

    def _end_contents(self) -> None:
        if self._contents:
            self._messages.append(Message("user", tuple(self._contents)))
            self._contents.clear()

    def _end_turn(self) -> None:
        if self._turn:
            self._messages.append(Message("assistant", tuple(self._turn)))
            self._turn.clear()


def is_content(entry: Any) -> bool:
    """Whether an entry of `input` is a content and not a step."""
    return (kind := _type(entry)) == "text" or kind in MEDIA_KINDS


def as_entries(entries: Any) -> list[Any] | None:
    """The `input` of a request as a list of contents or steps; None if it is neither a string, an object nor a list."""
    if entries is None or type(entries) is list:
        return entries or []
    if type(entries) is str:
        return [{"type": "text", "text": entries}]
    return [entries] if type(entries) is dict else None


def is_continued(fields: Mapping[str, Any]) -> bool:
    """Whether the server adds earlier turns, by the fields of a body."""
    return bool(fields.get("previous_interaction_id") or fields.get("continuation_token"))


def is_model_step(step: Any) -> bool:
    """Whether the model made a step: anything but an input of the user and a result of the client."""
    return _type(step) not in ("", "user_input", "function_result")


def _is_model_step(step: Any) -> bool:
    """The same of an entry that may be a content."""
    has_type = type(step) is dict and type(step.get("type")) is str
    return has_type and step["type"] not in ("user_input", "function_result") and not is_content(step)


def _type(step: Any) -> str:
    kind = step.get("type") if isinstance(step, dict) else None
    return kind if isinstance(kind, str) else ""


def _is_text(block: Any) -> bool:
    return _type(block) == "text"


class StepListWriter(TurnListWriter):
    """Writes messages into steps, and leading system messages into `system`."""

    format = FORMAT
    name = NAME
    no_names = "has no names of participants"
    turn_rules = ("GI-10", "GI-10")

    def __init__(self, losses: Losses, model: Capabilities, *, is_continued: bool) -> None:
        super().__init__(losses, model, is_continued=is_continued)
        self.system: list[str] = []
        self.writer = StepWriter(losses, model)

    def add_system(self, message: Message) -> None:
        for position, part in enumerate(message.parts):
            self.losses.part = position
            if isinstance(part, Text | Refusal):
                self.losses.report_extras(part.native)
                self.system.append(part.text)
            else:
                self.losses.add(type(part).__name__.lower(), "the system instruction is text; dropped (GI-02)")

    def add_turn(self, message: Message) -> None:
        if message.role == "assistant":
            self.close()
            self.writer.model_steps(message.parts, self.entries)
            return
        rest: list[tuple[int, Any]] = []
        for position, part in enumerate(message.parts):
            if isinstance(part, ToolCallResult):
                self.losses.part = position
                self.entries.append(self.writer.result(part))
            else:
                rest.append((position, part))
        if not rest:
            return
        self.close()
        content: list[Any] = []
        for position, part in rest:
            self.losses.part = position
            content += self.writer.content(part)
        if message.role not in ("user", "tool"):
            self.note(message.role, content, _is_text)
        if content:
            fields = {} if message.native is None else message.native.get(FORMAT, {})
            self.entries.append({"type": "user_input", "content": content, **fields})

    def close(self) -> None:
        """Write the media of the results before."""
        media = self.writer.media_after_results
        if media:
            self.entries.append({"type": "user_input", "content": list(media)})
            media.clear()

    def is_model(self, entry: Any) -> bool:
        return is_model_step(entry)

    def begins_with_call(self, entry: Any) -> bool:
        return _type(entry) == "function_call"

    def user_turn(self, text: str) -> Any:
        return {"type": "user_input", "content": [{"type": "text", "text": text}]}
