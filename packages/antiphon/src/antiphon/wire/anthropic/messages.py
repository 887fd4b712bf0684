"""The messages of a request, read and written.

Adjacent messages of one role are one turn: results first (AN-08), calls last if text followed them (AN-29), everything else in
order. Blank text is dropped, and so are messages that become empty (AN-04, AN-05); a final answer loses trailing whitespace
(AN-06). A turn of one plain text is written as a string.

Leading system messages are the system prompt. A later one keeps its position if the model accepts that and it is between a
user turn and an assistant turn; otherwise it moves after the user turn or becomes a note in it, with a loss (AN-03). Whether the
assistant turn has any content is known only at its end: until then the message is pending.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from antiphon.parts import Native, Part, Text, ToolCallRequest, ToolCallResult
from antiphon.wire.anthropic import FORMAT
from antiphon.wire.anthropic.content import READERS, ContentWriter, collapse_text, read_block
from antiphon.wire.anthropic.limits import SERVER_CALLS, Target, is_server_block
from antiphon.wire.anthropic.shapes import (
    SOURCE,
    CallShape,
    ResultShape,
    TextShape,
    block_type,
    field_of,
    with_cache_control,
)
from antiphon.wire.loss import Losses
from antiphon.wire.provenance import is_from
from antiphon.wire.request import CONTINUE_TEXT, SYSTEM_NOTE_PREFIX, Message
from antiphon.wire.shapes import Loose

_NO_TEXT = (CallShape, ResultShape)


def read_messages(entries: list[Any]) -> list[Message]:
    messages: list[Message] = []
    names: dict[str, str] = {}  # of the tools, by call id
    for entry in entries:
        extras = None
        if type(entry) is Loose:
            if entry.shape is None:
                messages.append(Message("unknown", (Native(FORMAT, entry.value),)))
                continue
            entry, extras = entry.shape, {FORMAT: entry.more} if entry.more else None
        role, content = entry.role, entry.content
        source = SOURCE if role == "system" else None
        if type(content) is str:
            messages.append(Message(role, (Text(content),), None, extras, source))
            continue
        parts: list[Part] = []
        for block in content:
            kind = type(block)
            if kind is TextShape and block.cache_control is None and block.citations is None:
                parts.append(Text(block.text))
            elif kind in READERS and (part := READERS[kind](block, None, names)) is not None:
                parts.append(part)
            else:
                parts.append(read_block(block, names))
        messages.append(Message(role, tuple(parts), None, extras, source))
    return messages


class MessageListWriter(ContentWriter):
    """Writes `messages` and `system` of a body, message by message."""

    def __init__(self, target: Target, losses: Losses) -> None:
        self.entries, self.losses = [], losses
        self.breakpoints = {}
        self.citations_enabled = False
        self.argument_writers = {}
        self._target = target
        self.system: list[Any] = []
        self._is_leading = True
        self._role: str | None = None  # of the open turn
        self._blocks: list[Any] = []
        self._has_calls = self._needs_sorting = False
        self._last: dict[str, Any] | None = None  # the last entry, if it is ours and blocks can be added to it
        self._is_last_unsorted = False
        self._pending: list[_PendingSystemMessage] = []  # system messages until an assistant turn starts
        self._unmoved: list[_PendingSystemMessage] = []  # those that nothing followed yet
        self._before_assistant: list[_PendingSystemMessage] = []  # those before the current assistant turn

    def add(self, index: int, message: Message) -> None:
        role = message.role
        if role == "tool":
            role = "user"
        losses = self.losses
        losses.message = index
        if role != self._role or self._pending:
            if role != "user" and role != "assistant":
                if role == "system" or role == "developer":
                    self._add_system(index, message)
                else:
                    self._add_unknown_role(message)
                return
            if self._pending or self._before_assistant:
                self._start_turn_after_system(role)
            else:
                if self._blocks:
                    self._close()
                self._role = role
            self._is_leading = False
        has_extras = message.native is not None or message.name is not None
        extras = self._message_extras(message) if has_extras else None
        blocks = self._blocks
        part: Any
        for part in message.parts:
            losses.part += 1
            kind = type(part)
            if kind is ToolCallResult:
                if blocks and type(blocks[-1]) is not ResultShape and block_type(blocks[-1]) != "tool_result":
                    self._needs_sorting = True
                self.add_result(blocks, part)
            elif kind is ToolCallRequest:
                blocks.append(self.call(part))
                self._has_calls = True
            else:
                if self._has_calls:
                    self._needs_sorting = True
                if kind is not Text or part.native is not None:
                    blocks += self.write(part, role)
                elif (text := part.text) and not text.isspace():  # not blank
                    blocks.append(TextShape(text))
        losses.part = -1
        if has_extras:
            self._mark_last(message, blocks)
            if extras:
                self._close(extras, index)

    def settle(self) -> None:
        self._start_turn_after_system("assistant")
        self._sort_last()

    def finish(self, can_continue: bool) -> None:
        """End the last turn as AN-01, AN-06 and AN-07 require. `can_continue`: the last answer may be continued."""
        self._close()
        if self._before_assistant or self._pending:
            self._insert_system_messages(self._before_assistant + self._pending)
        if self._is_last_unsorted:
            self._sort_last()
        self.losses.message = -1
        if not self.entries:
            reason = f'at least one message is required; added "{CONTINUE_TEXT}" (AN-01)'
            self.losses.add("no messages", reason, "messages")
            self.entries.append({"role": "user", "content": CONTINUE_TEXT})
        last = self.entries[-1]
        if isinstance(last, dict) and last.get("role") == "assistant":
            self._finish_assistant_turn(last, can_continue)

    def _finish_assistant_turn(self, last: dict[str, Any], can_continue: bool) -> None:
        content = last.get("content")
        if isinstance(content, str):
            self.entries[-1] = {**last, "content": content.rstrip()}
        elif isinstance(content, list) and content and block_type(content[-1]) == "text":
            text = field_of(content[-1], "text")
            if isinstance(text, str) and text[-1:].isspace():
                replaced = self.replace_text(content[-1], text.rstrip())
                self.entries[-1] = {**last, "content": [*content[:-1], replaced]}
        is_continued = isinstance(content, list) and any(block_type(block) in SERVER_CALLS for block in content)
        if not self._target.model.prefill and not is_continued and not can_continue:
            reason = f'model does not support prefill; added a user message "{CONTINUE_TEXT}" (AN-07)'
            self.losses.add("prefill", reason, "messages")
            self.entries.append({"role": "user", "content": CONTINUE_TEXT})

    def _start_turn_after_system(self, role: str) -> None:
        """Start a turn of another role while system messages are pending."""
        if role == "assistant" or self._role != role:
            self._close()
        if role == "assistant":
            self._before_assistant += self._pending
            self._pending = []
        else:
            self._mark_moved()
        self._role = role

    def _mark_moved(self) -> None:
        for item in self._unmoved:
            item.is_moved = True
        self._unmoved = []

    def _close(self, extras: dict[str, Any] | None = None, index: int = 0) -> None:
        """End the current turn; `extras` are those of message `index`, which is then not merged."""
        role, blocks = self._role, self._blocks
        self._role = None
        if not blocks:
            if extras:
                self._report_extras(extras, index)
            return
        self._blocks = []
        needs_sorting = self._needs_sorting
        self._has_calls = self._needs_sorting = False
        if self._before_assistant and role == "assistant":
            due, self._before_assistant = self._before_assistant, []
            self._insert_system_messages(due)
        entries, last = self.entries, self._last
        may_merge = extras is None and entries and (last is None or last is not entries[-1] or last["role"] == role)
        if may_merge and self._merge(entries[-1], blocks, role):
            return
        blocks = _sort_blocks(blocks, role) if needs_sorting else blocks
        message = {"role": role, "content": blocks if type(blocks[-1]) in _NO_TEXT else collapse_text(blocks)}
        if extras:
            message.update(extras)
        if self._is_last_unsorted:
            self._sort_last()
        entries.append(message)
        self._last = None if extras else message

    def _merge(self, last: Any, blocks: list[Any], role: str | None) -> bool:
        """Add the blocks of a turn to the last message, if that has the same role: the turn between was empty.

        They are appended in place and sorted once, when the message is complete: a copy per turn would be quadratic.
        """
        if type(last) is not dict or last.get("role") != role or len(last) != 2:
            return False
        content = last.get("content")
        if isinstance(content, str):
            content = [TextShape(content)]
        elif not isinstance(content, list):
            return False
        elif last is not self._last:
            content = [*content]  # the client's own
        if content is not last["content"]:
            self.entries[-1] = self._last = {"role": last["role"], "content": content}
        content += blocks
        self._is_last_unsorted = True
        return True

    def _sort_last(self) -> None:
        """Sort the blocks of the last message, if turns were merged into it."""
        if self._is_last_unsorted and self._last is not None:
            self._last["content"] = _sort_blocks(self._last["content"], self._last["role"])
        self._is_last_unsorted = False

    def _mark_last(self, message: Message, blocks: list[Any]) -> None:
        """A chat client marks a message; Anthropic its last block."""
        if message.native is not None and blocks:
            native = with_cache_control(message.native)
            if native is not message.native:
                blocks[-1] = self.mark_block(blocks[-1], native[FORMAT]["cache_control"])

    def _message_extras(self, message: Message) -> dict[str, Any] | None:
        """The extras of a message; a message with extras is not merged."""
        if message.name is not None:
            self.losses.add("name", "Anthropic does not support names of participants; dropped (AN-02)", "name")
        if not message.native:
            return None
        native = with_cache_control(message.native)
        self.losses.report_extras(native, FORMAT)
        extras = native.get(FORMAT)
        if extras and native is not message.native:
            extras = {name: value for name, value in extras.items() if name != "cache_control"}
        if extras and self._blocks:
            role = self._role
            self._close()
            self._role = role
        return extras

    def _report_extras(self, extras: dict[str, Any], index: int) -> None:
        self.losses.message = index
        for name in extras:
            self.losses.add(name, "its message was merged or dropped, and the field with it", name)

    def _add_unknown_role(self, message: Message) -> None:
        self._is_leading = False
        self._mark_moved()
        for position, part in enumerate(message.parts):
            self.losses.part = position
            if type(part) is Native and part.origin == FORMAT:
                self._close()
                self._sort_last()
                self.entries.append(part.data)
            else:
                self.losses.add(type(part).__name__.lower(), f'unknown role "{message.role}"; dropped (AN-02)')
        self.losses.part = -1

    def _add_system(self, index: int, message: Message) -> None:
        if self._is_leading:
            blocks = self.system_blocks(message.parts)
            if message.native is not None or message.name is not None:
                self._mark_last(message, blocks)
                self._report_extras(self._message_extras(message) or {}, index)
            self.system += blocks
        elif self._target.accepts_system_role(is_from(message, FORMAT)):
            self._pending.append(_PendingSystemMessage(index, message))
            self._unmoved.append(self._pending[-1])
        else:
            if self._role != "user":
                self._close()
                self._role = "user"
                self.losses.message = index
            self._blocks += self._as_user_note(index, message)

    def _insert_system_messages(self, waiting: list[_PendingSystemMessage]) -> None:
        """Insert pending system messages after the messages written so far."""
        if not waiting:
            return
        self._sort_last()
        at = self.losses.message
        for item in waiting:
            self.losses.message = item.index
            if self.entries and _can_precede_system(self.entries[-1]):
                self._insert_system_message(item)
            else:
                blocks = self._as_user_note(item.index, item.message)
                if blocks:
                    self.entries.append({"role": "user", "content": collapse_text(blocks)})
        self.losses.message = at

    def _insert_system_message(self, item: _PendingSystemMessage) -> None:
        blocks = self.system_blocks(item.message.parts)
        extras = self._message_extras(item.message) or {}
        if not blocks:
            self._report_extras(extras, item.index)
            return
        if item.is_moved:
            reason = "a system message must be between a user turn and an assistant turn; moved (AN-03)"
            self.losses.add("position", reason)
        self.entries.append({"role": "system", "content": collapse_text(blocks), **extras})

    def _as_user_note(self, index: int, message: Message) -> list[Any]:
        """A system message as a note in a user turn."""
        self._report_extras(self._message_extras(message) or {}, index)
        blocks: list[Any] = []
        for block in self.system_blocks(message.parts):
            if block_type(block) == "text" and isinstance(field_of(block, "text"), str):
                blocks.append(block)
            else:
                self.losses.add(block_type(block) or "block", "only allowed in a system message; dropped (AN-03)")
        if blocks:
            reason = "system message not allowed here, or not by this model; sent as a user note (AN-03)"
            self.losses.add("system role", reason)
            blocks[0] = self.replace_text(blocks[0], SYSTEM_NOTE_PREFIX + field_of(blocks[0], "text"))
        return blocks


class _PendingSystemMessage(Struct):
    """A system message whose position is not decided; `is_moved` if other messages followed it."""

    index: int
    message: Message
    is_moved: bool = False


def _sort_blocks(blocks: list[Any], role: str | None) -> list[Any]:
    """Results first in a user turn; calls last in an assistant turn with text after a call. The sort is stable."""
    kinds = [block_type(block) for block in blocks]
    if role == "user":
        return sorted(blocks, key=lambda block: block_type(block) != "tool_result")
    if "tool_use" in kinds and "text" in kinds[kinds.index("tool_use") :]:
        return sorted(blocks, key=lambda block: block_type(block) == "tool_use")
    return blocks


def _can_precede_system(message: Any) -> bool:
    role = message.get("role") if isinstance(message, dict) else None
    if role != "assistant":
        return role in ("user", "system")
    content = message.get("content")
    last = block_type(content[-1]) if isinstance(content, list) and content else ""
    return is_server_block(last)
