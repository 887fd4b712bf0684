"""The input of a request: a string, a content, a list of contents, or a list of steps; always written as steps.

A `user_input` step is a user message, a `function_result` a tool message; consecutive steps of the model are one assistant
message. Results are written before the other parts of their message. Media that a result cannot hold (GI-14) follow all results
of the step as a `user_input`. The history must not begin with a call nor, for some models, end with the model, as in
generateContent (GM-05, GM-16); a user turn is added there. System messages after the first are sent as notes of the user.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import UNSET

from antiphon.parts import Native, Refusal, Text, ToolCallRequest, ToolCallResult, ToolExecutionStatus
from antiphon.wire.capabilities import Capabilities
from antiphon.wire.gemini_interactions import FORMAT
from antiphon.wire.gemini_interactions.content import (
    NAME,
    STEP_FIELDS,
    StepWriter,
    is_content_part,
    read_content,
    read_model_step,
    read_result,
    with_step,
    write_model_steps,
)
from antiphon.wire.gemini_interactions.limits import MEDIA_KINDS
from antiphon.wire.gemini_interactions.shapes import StepShape, value_of
from antiphon.wire.loss import Loss, lose_native, other_fields
from antiphon.wire.request import SYSTEM_NOTE_PREFIX, Message
from antiphon.wire.vendors.google import ensure_user_turns

_SUCCESS = ToolExecutionStatus.SUCCESS
_encode = msgspec.json.Encoder().encode


class StepReader:
    """Reads the steps of one request in order."""

    def __init__(self) -> None:
        self._messages: list[Message] = []
        self._turn: list[Any] = []  # the parts of the open assistant turn
        self._contents: list[Any] = []  # contents without a step, which are one input of the user

    def read(self, steps: list[Any]) -> list[Message]:
        """The messages of the steps."""
        for step in steps:
            if type(step) is not StepShape:
                self._add_value(step.value)
            elif not self._add_plain(step):
                self._add_value(value_of(step))
        self._end_contents()
        self._end_turn()
        return self._messages

    def _add_plain(self, step: StepShape) -> bool:
        """Add a step that has what its type needs, and nothing else; False if it is another."""
        kind, content, arguments = step.type, step.content, step.arguments
        if kind == "function_call":
            if not step.id or not step.name or arguments is UNSET:
                return False
            if not (content is step.call_id is step.result is UNSET):
                return False
            try:
                text = _encode(arguments).decode()
            except (RecursionError, UnicodeEncodeError):
                return False
            self._end_contents()
            self._turn.append(ToolCallRequest(step.name, step.id, text))
            return True
        if not (step.id is arguments is UNSET):
            return False
        if kind == "function_result":
            if content is not UNSET or step.call_id is UNSET or step.result is UNSET:
                return False
            name = "" if step.name is UNSET else step.name
            self._add(Message("tool", (ToolCallResult(name, step.call_id, _SUCCESS, (Text(step.result),)),)))
            return True
        if not content or not (step.name is step.call_id is step.result is UNSET):
            return False
        parts = [Text(block.text) for block in content]
        if kind == "user_input":
            self._add(Message("user", tuple(parts)))
            return True
        self._end_contents()
        if self._turn and is_content_part(self._turn[-1]):
            parts[0] = with_step(parts[0], {})
        self._turn += parts
        return True

    def _add_value(self, step: Any) -> None:
        """Add any other step, of plain values."""
        kind = step.get("type") if type(step) is dict else None
        if kind == "user_input":
            content = step.get("content")
            if type(content) is list and content:
                extras = other_fields(step, STEP_FIELDS)
                native = {FORMAT: extras} if extras else None
                self._add(Message("user", tuple(map(read_content, content)), None, native))
                return
        elif kind == "function_result":
            result = read_result(step)
            if result is not None:
                self._add(Message("tool", (result,)))
                return
        elif is_content(step):
            self._end_turn()
            self._contents.append(read_content(step))
            return
        elif type(kind) is str:
            self._end_contents()
            read_model_step(self._turn, step)
            return
        self._add(Message("unknown", (Native(FORMAT, step),)))

    def _add(self, message: Message) -> None:
        self._end_contents()
        self._end_turn()
        self._messages.append(message)

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
    kind = entry.get("type") if isinstance(entry, dict) else None
    return kind == "text" or (isinstance(kind, str) and kind in MEDIA_KINDS)


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


def _type(step: Any) -> str:
    kind = step.get("type") if isinstance(step, dict) else None
    return kind if isinstance(kind, str) else ""


def _user_text(text: str) -> dict[str, Any]:
    return {"type": "user_input", "content": [{"type": "text", "text": text}]}


def report_message_extras(message: Message, place: str, losses: list[Loss], *known: str) -> None:
    """Report the name of a message, and its extras that are not of a `known` format."""
    if message.name is not None:
        losses.append(Loss(f"{place}.name", "name", f"{NAME} has no names of participants; dropped"))
    lose_native(losses, place, message.native, *known)


class StepListWriter:
    """Writes messages into `steps`, and leading system messages into `system`. `is_continued`: the server has earlier turns."""

    def __init__(self, writer: StepWriter, model: Capabilities, *, is_continued: bool) -> None:
        self.steps: list[Any] = []
        self.system: list[str] = []
        self.writer = writer
        self._model = model
        self._start = -1  # index of the first message in the steps
        self._has_begun = is_continued
        self._is_continued = is_continued

    def add(self, index: int, message: Message) -> None:
        """Write one message."""
        place = f"messages[{index}]"
        if self._start < 0:
            if message.role in ("system", "developer"):
                self._add_system(message, place)
                return
            self._start = index
        if message.native is not None or message.name is not None:
            report_message_extras(message, place, self.writer.losses, FORMAT)
        if message.role == "assistant":
            self._end_results()
            write_model_steps(message.parts, self.writer, self.steps, f"{place}.parts")
        elif message.role == "unknown":
            self._add_unknown(message, place)
        else:
            self._add_input(message, place)

    def settle(self) -> None:
        """End the results: a turn of the model follows."""
        self._end_results()
        self._ensure_user_turns()

    def finish(self) -> None:
        """End the results, and add the turns that the model requires."""
        self._end_results()
        self._ensure_user_turns(is_end=not self._is_continued)

    def _ensure_user_turns(self, *, is_end: bool = False) -> None:
        begins_with_call = bool(self.steps) and _type(self.steps[0]) == "function_call"
        ensure_user_turns(
            self.steps,
            max(self._start, 0),
            self._model if is_end else None,
            self.writer.losses,
            begins_with_call=begins_with_call and not self._has_begun,
            is_model=is_model_step,
            user_turn=_user_text,
            rules=("GI-10", "GI-10"),
        )
        self._has_begun = True

    def _add_system(self, message: Message, place: str) -> None:
        report_message_extras(message, place, self.writer.losses)
        for position, part in enumerate(message.parts):
            path = f"{place}.parts[{position}]"
            if isinstance(part, Text | Refusal):
                lose_native(self.writer.losses, path, part.native)
                self.system.append(part.text)
            else:
                reason = "the system instruction is text; dropped (GI-02)"
                self.writer.losses.append(Loss(path, type(part).__name__.lower(), reason))

    def _add_input(self, message: Message, place: str) -> None:
        rest: list[tuple[int, Any]] = []
        for position, part in enumerate(message.parts):
            if isinstance(part, ToolCallResult):
                self.steps.append(self.writer.result(part, f"{place}.parts[{position}]"))
            else:
                rest.append((position, part))
        if not rest:
            return
        self._end_results()
        content: list[Any] = []
        for position, part in rest:
            content += self.writer.content(part, f"{place}.parts[{position}]")
        note = next((block for block in content if isinstance(block, dict) and block.get("type") == "text"), None)
        if message.role not in ("user", "tool"):
            is_system = message.role in ("system", "developer")
            if is_system and note is not None:
                content[content.index(note)] = {**note, "text": SYSTEM_NOTE_PREFIX + note["text"]}
            reason = f'unknown role "{message.role}"; sent as user'
            if is_system:
                reason = f"{NAME} accepts system messages only at the start; sent as a user note"
            self.writer.losses.append(Loss(f"{place}.role", message.role, reason))
        if content:
            fields = (message.native or {}).get(FORMAT, {})
            self.steps.append({"type": "user_input", "content": content, **fields})

    def _add_unknown(self, message: Message, place: str) -> None:
        self._end_results()
        for position, part in enumerate(message.parts):
            if isinstance(part, Native) and part.origin == FORMAT:
                self.steps.append(part.data)
            else:
                reason = "message specific to another format; dropped"
                self.writer.losses.append(Loss(f"{place}.parts[{position}]", "message", reason))

    def _end_results(self) -> None:
        """Write the media of the results before."""
        media = self.writer.media_after_results
        if media:
            self.steps.append({"type": "user_input", "content": list(media)})
            media.clear()
