"""The contents of a request, read and written.

Gemini counts turns, not messages: adjacent contents of one role are one turn; the results of a step stand together, before other
user parts (GM-07); the history must not begin with a call (GM-05) and, for some models, not end with the model (GM-16). The
first call of each step carries a signature or a placeholder (GM-10). Every step gets the placeholder, not only those of the
current turn, so that a turn keeps its bytes when the next one begins (L9).

Results without ids are matched by order and name, so they are sorted by their calls.
"""

from __future__ import annotations

from typing import Any

from antiphon.parts import Native, NativeExtras, Refusal, Source, Text, Thinking, ToolCallRequest, ToolCallResult
from antiphon.wire.capabilities import Capabilities
from antiphon.wire.gemini import FORMAT
from antiphon.wire.gemini.content import (
    NAME,
    ContentWriter,
    is_call,
    is_result,
    read_part,
)
from antiphon.wire.gemini.native import field_spellings, gemini_extras, native_extras, split_fields
from antiphon.wire.gemini.shapes import ContentShape, fit_part
from antiphon.wire.loss import Losses
from antiphon.wire.provenance import is_spelled
from antiphon.wire.request import Message
from antiphon.wire.shared_google import TurnListWriter
from antiphon.wire.tools.call_ids import GENERATED_ID_PREFIX, CallIdTracker

FUNCTION_ROLE = "function"
"""The former role of contents with results; also the spelling of a message that had it."""

SYSTEM_ROLE = "role:"
"""The beginning of the spelling of a system prompt that had a role."""

CONTENT_FIELDS = field_spellings(("role", "parts"))

_ROLES = {"user": "user", "model": "assistant", "function": "tool", None: "user", "": "user"}
_FUNCTION_SOURCE = Source(FORMAT, (FUNCTION_ROLE,))
_WIRE_ROLES = {"user": "user", "tool": "user", "assistant": "model"}


def read_contents(contents: list[Any]) -> list[Message]:
    messages: list[Message] = []
    calls = CallIdTracker()
    previous = ""
    for content in contents:
        native = source = None
        if type(content) is ContentShape:
            role, parts = _ROLES[content.role], content.parts
        else:
            opened = _open_content(content.value)
            if opened is None:
                messages.append(Message("unknown", (Native(FORMAT, content.value),)))
                continue
            role, parts, native = opened
            source = _FUNCTION_SOURCE if role == "tool" else None
        if role == "assistant" and previous != "assistant":
            calls.start_step()
        previous = role
        read = (read_part(parts[0], calls),) if len(parts) == 1 else tuple([read_part(part, calls) for part in parts])
        messages.append(Message(role, read, None, native, source))
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


def _is_text(part: Any) -> bool:
    return isinstance(part, dict) and "text" in part


class ContentsWriter(TurnListWriter):
    """Builds the contents, and the system prompt of the leading messages. The last content is open: messages of the same role are
    added to it."""

    format = FORMAT
    name = NAME
    system_extras = (FORMAT,)
    turn_rules = ("GM-05", "GM-16")

    def __init__(self, losses: Losses, model: Capabilities) -> None:
        super().__init__(losses, model)
        self.writer = ContentWriter(losses, model)
        self._system: dict[str, Any] = {}
        self._system_parts: list[Any] = []
        self._role = ""  # of the open content
        self._parts: list[Any] = []
        self._calls: list[ToolCallRequest] = []  # of the current step
        self._results: list[ToolCallResult] = []  # in the open content
        self._late_results: list[Any] = []  # written results that came after other parts, and where they belong
        self._late_at = 0

    @property
    def system(self) -> dict[str, Any] | None:
        """The leading system messages as one instruction (GM-15: text only)."""
        if not self._system_parts and not self._system:
            return None
        return {**self._system, "parts": self._system_parts}

    def add_system(self, message: Message) -> None:
        for role in () if message.source is None else message.source.spelling:
            if role.startswith(SYSTEM_ROLE):
                self._system["role"] = role[len(SYSTEM_ROLE) :]
        self._system.update(gemini_extras(message.native))
        for position, part in enumerate(message.parts):
            self.losses.part = position
            if isinstance(part, Text | Thinking | Refusal | Native):
                self._system_parts += self.writer.write(part)[:1]
            else:
                reason = "Gemini accepts only text in the system prompt; dropped (GM-15)"
                self.losses.add(type(part).__name__.lower(), reason)

    def add_turn(self, message: Message) -> None:
        role = _WIRE_ROLES.get(message.role)
        wire_role, extras = role or "user", None
        if role is not None and (message.source is not None or message.native is not None):
            extras = gemini_extras(message.native)
            wire_role = FUNCTION_ROLE if is_spelled(message, FUNCTION_ROLE) else role
        is_continued = wire_role == self._role and not extras
        calls = self._calls if is_continued or wire_role != "model" else []
        written, results = self._write_parts(message.parts, calls)
        if role is None:
            self.note(message.role, written, _is_text)
        if not written:
            return
        if is_continued:
            self._append(written, results)
        else:
            if len(self._results) > 1 or self._late_results:
                self.close()
            self._role, self._parts, self._results, self._calls = wire_role, written, results, calls
            self.entries.append({"role": wire_role, "parts": written})
        if extras:  # they belong to this content only
            self.entries[-1].update(extras)
            self._role = ""

    def _write_parts(
        self, parts: tuple[Any, ...], calls: list[ToolCallRequest]
    ) -> tuple[list[Any], list[ToolCallResult]]:
        """The written parts and the results among them; calls are appended to `calls`."""
        writer, losses = self.writer, self.losses
        written: list[Any] = []
        results: list[ToolCallResult] = []
        for part in parts:
            losses.part += 1
            kind = type(part)
            if kind is ToolCallResult:
                written.append(writer.result(part))
                results.append(part)
            elif kind is ToolCallRequest:
                written.append(writer.call(part, is_first=not calls))
                calls.append(part)
            elif kind is Text and part.native is None:
                written.append({"text": part.text})
            else:
                written += writer.write(part)
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
        self._role = ""
        results, self._results = self._results, []
        if (
            len(results) > 1
            and results[0].tool_call_id.startswith(GENERATED_ID_PREFIX)
            and not _results_match_by_order(self._calls, results)
        ):
            _sort_results_by_call(self._parts, self._calls, results)

    def is_model(self, entry: Any) -> bool:
        return isinstance(entry, dict) and entry.get("role") == "model" and isinstance(entry.get("parts"), list)

    def begins_with_call(self, entry: Any) -> bool:
        return self.is_model(entry) and any(map(is_call, entry["parts"]))

    def user_turn(self, text: str) -> Any:
        return {"role": "user", "parts": [{"text": text}]}


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
