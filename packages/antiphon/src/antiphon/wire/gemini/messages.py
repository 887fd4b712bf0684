"""The contents of a request, read and written.

Gemini counts turns, not messages: adjacent contents of one role are one turn; the results of a step stand together, before other
user parts (GM-07); the history must not begin with a call (GM-05) and, for some models, not end with the model (GM-16). The
first call of each step carries a signature or a placeholder (GM-10). Every step gets the placeholder, not only those of the
current turn, so that a turn keeps its bytes when the next one begins (L9).

Results without ids are matched by order and name, so they are sorted by their calls.
"""

from __future__ import annotations

from typing import Any

from msgspec import UNSET

from antiphon.parts import Native, NativeExtras, Part, Refusal, Text, Thinking, ToolCallRequest, ToolCallResult
from antiphon.wire.capabilities import Capabilities
from antiphon.wire.gemini import FORMAT
from antiphon.wire.gemini.content import (
    ContentWriter,
    WrittenPart,
    is_call,
    is_result,
    read_call,
    read_part,
    read_result,
)
from antiphon.wire.gemini.native import field_spellings, gemini_extras, native_extras, spelled, split_fields
from antiphon.wire.gemini.shapes import ContentShape, PartShape, fit_part
from antiphon.wire.loss import Loss, lose_native
from antiphon.wire.provenance import is_spelled
from antiphon.wire.request import SYSTEM_NOTE_PREFIX, Message
from antiphon.wire.tools.call_ids import GENERATED_ID_PREFIX, CallIdTracker
from antiphon.wire.vendors.google import ensure_user_turns

FUNCTION_ROLE = "function"
"""The former role of contents with results; also the spelling of a message that had it."""

SYSTEM_ROLE = "role:"
"""The beginning of the spelling of a system prompt that had a role."""

CONTENT_FIELDS = field_spellings(("role", "parts"))

_ROLES = {"user": "user", "model": "assistant", "function": "tool", None: "user", "": "user"}
_FUNCTION_SOURCE = spelled(FUNCTION_ROLE)
_WIRE_ROLES = {"user": "user", "tool": "user", "assistant": "model"}


def read_contents(contents: list[Any]) -> list[Message]:
    """The messages of contents, of their shapes."""
    messages: list[Message] = []
    calls = CallIdTracker()
    previous = ""
    for content in contents:
        if type(content) is ContentShape:
            role, parts, native = _ROLES[content.role], content.parts, None
        else:
            opened = _open_content(content.value)
            if opened is None:
                messages.append(Message("unknown", (Native(FORMAT, content.value),)))
                continue
            role, parts, native = opened
        if role == "assistant" and previous != "assistant":
            calls.start_step()
        previous = role
        read: list[Part] = []
        for part in parts:
            if type(part) is PartShape and part.thought is part.thought_signature is UNSET:
                text, call, result = part.text, part.function_call, part.function_response
                if part.inline_data is part.file_data is UNSET:  # nothing beside the data
                    own: Part | None = None
                    if type(text) is str:
                        own = Text(text) if call is result is UNSET else None
                    elif call is not UNSET:
                        own = read_call(call, {}, calls) if result is UNSET else None
                    elif result is not UNSET:
                        own = read_result(result, {}, calls)
                    if own is not None:
                        read.append(own)
                        continue
            read.append(read_part(part, calls))
        messages.append(Message(role, tuple(read), None, native, _FUNCTION_SOURCE if role == "tool" else None))
    return messages


def _open_content(content: Any) -> tuple[str, list[Any], NativeExtras | None] | None:
    """The role, parts and extras of a content of plain values; None if it is not one."""
    raw_role = content.get("role") if type(content) is dict else 0
    role = _ROLES.get(raw_role) if raw_role is None or type(raw_role) is str else None
    if role is None:
        return None
    native = native_extras(split_fields(content, CONTENT_FIELDS)[1])
    parts = content.get("parts")
    parts = parts if type(parts) is list else [] if parts is None else [parts]
    return role, [fit_part(part) for part in parts], native


def _user_text(text: str) -> dict[str, Any]:
    return {"role": "user", "parts": [{"text": text}]}


def _is_model(content: Any) -> bool:
    return isinstance(content, dict) and content.get("role") == "model" and isinstance(content.get("parts"), list)


def report_message_extras(message: Message, index: int, losses: list[Loss]) -> None:
    """Report the name and extras of a message that Gemini does not support."""
    if message.name is not None:
        losses.append(Loss(f"messages[{index}].name", "name", "Gemini does not support names of participants; dropped"))
    lose_native(losses, f"messages[{index}]", message.native, FORMAT)


class ContentsWriter:
    """Builds the contents, and the system prompt of the leading messages. The last content is open: messages of the same role are
    added to it."""

    def __init__(self, writer: ContentWriter, model: Capabilities) -> None:
        self.contents: list[Any] = []
        self._writer = writer
        self._model = model
        self._system: dict[str, Any] = {}
        self._system_parts: list[Any] = []
        self._start = -1  # index of the first message in the contents
        self._has_begun = False
        self.role = ""
        self._parts: list[Any] = []
        self._calls: list[ToolCallRequest] = []  # of the current step
        self._results: list[ToolCallResult] = []  # in the open content
        self._late_results: list[Any] = []  # written results that came after other parts, and where they belong
        self._late_at = 0

    def add(self, index: int, message: Message) -> None:
        """Write one message."""
        role = _WIRE_ROLES.get(message.role)
        self._writer.message = index
        if self._start < 0:
            if message.role in ("system", "developer"):
                self._add_system(index, message)
                return
            self._start = index
        if role is None or message.native is not None or message.name is not None or message.source is not None:
            self._add_with_extras(message, index, role)
        else:
            self._add_parts(role, message.parts)

    @property
    def system(self) -> dict[str, Any] | None:
        """The leading system messages as one instruction (GM-15: text only)."""
        if not self._system_parts and not self._system:
            return None
        return {**self._system, "parts": self._system_parts}

    def settle(self) -> None:
        """End the open content: one of the model follows."""
        self.close()
        self.role = ""
        self._ensure_user_turns()

    def finish(self) -> None:
        """End the open content, and add the turns that the model requires."""
        self.close()
        self._ensure_user_turns(is_end=True)

    def _ensure_user_turns(self, *, is_end: bool = False) -> None:
        contents = self.contents
        begins_with_call = bool(contents) and _is_model(contents[0]) and any(map(is_call, contents[0]["parts"]))
        ensure_user_turns(
            contents,
            max(self._start, 0),
            self._model if is_end else None,
            self._writer.losses,
            begins_with_call=begins_with_call and not self._has_begun,
            is_model=_is_model,
            user_turn=_user_text,
            rules=("GM-05", "GM-16"),
        )
        self._has_begun = True

    def _add_system(self, index: int, message: Message) -> None:
        writer = self._writer
        report_message_extras(message, index, writer.losses)
        for role in () if message.source is None else message.source.spelling:
            if role.startswith(SYSTEM_ROLE):
                self._system["role"] = role[len(SYSTEM_ROLE) :]
        self._system.update(gemini_extras(message.native))
        for position, part in enumerate(message.parts):
            if isinstance(part, Text | Thinking | Refusal | Native):
                written = writer.write(part, position)
                if written is not None:
                    self._system_parts.append(written)
            else:
                reason = "Gemini accepts only text in the system prompt; dropped (GM-15)"
                writer.losses.append(Loss(writer.path(position), type(part).__name__.lower(), reason))

    def _add_parts(self, role: str, parts: tuple[Part, ...]) -> None:
        """Add parts to the open content, or start a new one for another role."""
        if role == self.role:
            written, results = self._write_parts(parts, self._calls)
            if written:
                self._append(written, results)
            return
        calls = [] if role == "model" else self._calls
        written, results = self._write_parts(parts, calls)
        if written:
            self._start_content(role, written, results)
            self._calls = calls

    def _add_with_extras(self, message: Message, index: int, role: str | None) -> None:
        """A message with a name, extras or another role."""
        report_message_extras(message, index, self._writer.losses)
        if role is None:
            self._add_other_role(message, index)
            return
        if is_spelled(message, FUNCTION_ROLE):
            role = FUNCTION_ROLE
        extras = gemini_extras(message.native)
        if not extras:
            self._add_parts(role, message.parts)
            return
        before, count = self.role, len(self.contents)
        self.role = ""  # extras belong to this content only: not to the previous one,
        self._add_parts(role, message.parts)
        if len(self.contents) == count:
            self.role = before
        else:
            self.contents[-1].update(extras)
            self.role = ""  # nor to the next

    def _start_content(self, role: str, written: list[Any], results: list[ToolCallResult]) -> None:
        """Start a content of another role."""
        if len(self._results) > 1 or self._late_results:
            self.close()
        self.role = role
        self._parts = written
        self._results = results
        self.contents.append({"role": role, "parts": written})

    def _write_parts(
        self, parts: tuple[Part, ...], calls: list[ToolCallRequest]
    ) -> tuple[list[Any], list[ToolCallResult]]:
        """The written parts and the results among them; calls are appended to `calls`."""
        writer = self._writer
        written: list[Any] = []
        results: list[ToolCallResult] = []
        for position, part in enumerate(parts):
            if type(part) is ToolCallResult:
                written.append(writer.result(part, position))
                results.append(part)
            elif type(part) is ToolCallRequest:
                written.append(writer.call(part, position, not calls))
                calls.append(part)
            elif type(part) is Text and part.native is None:
                written.append({"text": part.text})
            elif type(part) is Native and part.origin != FORMAT:
                written += writer.foreign(part, writer.path(position))
            else:
                other = writer.write(part, position)
                if other is not None:
                    written.append(other)
        after_results = writer.media_after_results
        if after_results:
            written += after_results
            after_results.clear()
        return written, results

    def _append(self, written: list[Any], results: list[ToolCallResult]) -> None:
        """Add to the open content; results stay together (GM-07)."""
        if results and not is_result(self._parts[-1]):
            if not self._late_results:
                places = range(len(self._parts), 0, -1)
                self._late_at = next((place for place in places if is_result(self._parts[place - 1])), 0)
            self._late_results += [part for part in written if is_result(part)]
            self._parts += [part for part in written if not is_result(part)]
        else:
            self._parts += written
        self._results += results

    def close(self) -> None:
        """End the open content: put results before other parts, and those without ids into the order of their calls."""
        if self._late_results:
            self._parts[self._late_at : self._late_at] = self._late_results
            self._late_results = []
        results, self._results = self._results, []
        if (
            len(results) > 1
            and results[0].tool_call_id.startswith(GENERATED_ID_PREFIX)
            and not _results_match_by_order(self._calls, results)
        ):
            _sort_results_by_call(self._parts, self._calls, results)

    def _add_other_role(self, message: Message, index: int) -> None:
        losses = self._writer.losses
        if message.role == "unknown":
            for position, part in enumerate(message.parts):
                if isinstance(part, Native) and part.origin == FORMAT:
                    self.close()
                    self.contents.append(part.data)
                    self.role = ""
                else:
                    reason = "message specific to another format; dropped"
                    losses.append(Loss(f"messages[{index}].parts[{position}]", "message", reason))
            return
        written, results = self._write_parts(message.parts, self._calls)
        note: WrittenPart | None = next((part for part in written if isinstance(part, dict) and "text" in part), None)
        is_system = message.role in ("system", "developer")
        if note is not None and is_system:
            written[written.index(note)] = {**note, "text": SYSTEM_NOTE_PREFIX + note["text"]}
        reason = f'unknown role "{message.role}"; sent as user'
        if is_system:
            reason = "Gemini accepts system messages only at the start; sent as a user note"
        losses.append(Loss(f"messages[{index}].role", message.role, reason))
        if written and self.role == "user":
            self._append(written, results)
        elif written:
            self._start_content("user", written, results)


def _results_match_by_order(calls: list[ToolCallRequest], results: list[ToolCallResult]) -> bool:
    """Whether a reader without ids would match each result to its call."""
    ids = CallIdTracker()
    call_ids = {ids.add_call(call.tool_name, None): call.tool_call_id for call in calls}
    return all(call_ids.get(ids.match_result(result.tool_name, None)[0]) == result.tool_call_id for result in results)


def _sort_results_by_call(parts: list[Any], calls: list[ToolCallRequest], results: list[ToolCallResult]) -> None:
    order = {call.tool_call_id: index for index, call in enumerate(calls)}
    indices = [index for index, part in enumerate(parts) if is_result(part)]
    if len(indices) != len(results):
        return  # some are native parts, which keep their position
    written = [parts[index] for index in indices]
    sorted_numbers = sorted(range(len(written)), key=lambda number: order.get(results[number].tool_call_id, len(order)))
    for index, number in zip(indices, sorted_numbers, strict=True):
        parts[index] = written[number]
