"""The messages of a request, read and written.

Adjacent messages of one role are one turn: results first (AN-08), calls last if text followed them (AN-29), everything else in
order. Blank text is dropped, and so are messages that become empty (AN-04, AN-05); a final answer loses trailing whitespace
(AN-06). A turn of one plain text is written as a string.

Leading system messages are the system prompt. A later one keeps its position if the model accepts that and it is between a
user turn and an assistant turn; otherwise it moves after the user turn or becomes a note in it, with a loss (AN-03). Whether the
assistant turn has any content is known only at its end: until then the message is pending.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec
from msgspec import Struct, structs

from antiphon.parts import Native, NativeExtras, Part, Text, Thinking, ToolCallRequest, ToolCallResult
from antiphon.wire.anthropic import FORMAT
from antiphon.wire.anthropic.content import (
    FAILED,
    SUCCESS,
    ContentWriter,
    collapse_text,
    part_path,
    read_block,
)
from antiphon.wire.anthropic.limits import SERVER_CALLS, is_server_block
from antiphon.wire.anthropic.parameters import Target
from antiphon.wire.codec.typed_reader import ANY_TEXT, OnlyTextBlock, TextBlock, call_with_id, result_with_id
from antiphon.wire.loss import Loss, lose_native
from antiphon.wire.request import CONTINUE_TEXT, SYSTEM_NOTE_PREFIX, Message
from antiphon.wire.vendors.anthropic import (
    DIRECT_CALLER,
    block_type,
    is_same_format,
    origin_marker,
    unread_fields,
    with_cache_control,
)

_ROLES = ("user", "assistant", "system")
_MESSAGE_FIELDS = frozenset({"role", "content"})
_ANY_TEXT_MESSAGES = {role: Message(role, ANY_TEXT) for role in ("user", "assistant")}
_ANY_THINKING = Thinking("")
_encode = msgspec.json.Encoder().encode


class _TypedThinking(Struct, forbid_unknown_fields=True, gc=False, tag_field="type", tag="thinking"):
    thinking: str
    signature: str = ""


class _DirectCaller(Struct, forbid_unknown_fields=True, gc=False):
    type: Literal["direct"]  # a tag is not required outside of a union


class _TypedCall(Struct, forbid_unknown_fields=True, gc=False, tag_field="type", tag="tool_use"):
    id: str
    name: str
    input: dict[str, Any]
    cache_control: Any = None
    caller: _DirectCaller | None = None


class _TypedResult(Struct, forbid_unknown_fields=True, gc=False, tag_field="type", tag="tool_result"):
    tool_use_id: str
    content: str | list[OnlyTextBlock] | None = None
    is_error: bool | None = None
    cache_control: Any = None


class TypedMessage(Struct, forbid_unknown_fields=True, gc=False):
    """A message of text, thinking, calls and text results, each with or without a cache breakpoint."""

    role: Literal["user", "assistant"]
    content: str | list[TextBlock | _TypedThinking | _TypedCall | _TypedResult]


class MessageListReader:
    """Reads the messages of one request in order."""

    def __init__(self, _unread: dict[str, Any]) -> None:
        self.messages: list[Message] = []
        self._tool_names: dict[str, str] = {}  # by call id

    def add_generic(self, message: Any) -> None:
        """Add a message of plain JSON values."""
        content: Any = message.get("content") if type(message) is dict else None
        role: Any = message.get("role") if type(message) is dict else None
        if role not in _ROLES or type(content) not in (str, list):
            self.messages.append(Message("unknown", (Native(FORMAT, message),)))
            return
        parts = (Text(content),) if type(content) is str else tuple(map(self._read_block, content))
        extras = unread_fields(message, _MESSAGE_FIELDS)
        self.messages.append(Message(role, parts, None, extras or (origin_marker() if role == "system" else None)))

    def _read_block(self, block: Any) -> Part:
        part = read_block(block)
        if type(part) is ToolCallRequest:
            self._tool_names[part.tool_call_id] = part.tool_name
        elif type(part) is ToolCallResult and part.tool_call_id in self._tool_names:
            return structs.replace(part, tool_name=self._tool_names[part.tool_call_id])
        return part

    def add_typed(self, messages: Sequence[TypedMessage]) -> bool:
        """Add typed messages; False as soon as one must be read generically, which is then not added."""
        names, add = self._tool_names, self.messages.append
        for message in messages:
            content = message.content
            if isinstance(content, str):
                add(Message(message.role, (Text(content),)))
                continue
            parts: list[Part] = []
            for block in content:
                if type(block) is _TypedResult:
                    value = block.content
                    if isinstance(value, str):
                        texts: tuple[Text, ...] = (Text(value),)
                    else:
                        texts = tuple(
                            [Text(text.text, native=_cache_extras(text.cache_control)) for text in value or ()]
                        )
                    call_id, native = block.tool_use_id, _cache_extras(block.cache_control)
                    status = FAILED if block.is_error else SUCCESS
                    parts.append(ToolCallResult(names.get(call_id, ""), call_id, status, texts, native=native))
                elif type(block) is _TypedCall:
                    name, call_id = block.name, block.id
                    names[call_id] = name
                    native = _cache_extras(block.cache_control)
                    if block.caller is not None:
                        native = {FORMAT: {**(native[FORMAT] if native else {}), "caller": DIRECT_CALLER}}
                    parts.append(ToolCallRequest(name, call_id, _encode(block.input).decode(), native=native))
                elif type(block) is TextBlock:
                    parts.append(Text(block.text, native=_cache_extras(block.cache_control)))
                elif type(block) is _TypedThinking:
                    signature = {FORMAT: {"signature": block.signature}} if block.signature else None
                    parts.append(Thinking(block.thinking, native=signature))
            add(Message(message.role, tuple(parts)))
        return True

    def finish(self) -> tuple[Message, ...]:
        return tuple(self.messages)


def _cache_extras(cache_control: Any) -> NativeExtras | None:
    return None if cache_control is None else {FORMAT: {"cache_control": cache_control}}


class _ScannedCall(Struct, forbid_unknown_fields=True, gc=False, tag_field="type", tag="tool_use"):
    id: str
    name: str
    input: msgspec.Raw
    cache_control: Any = None
    caller: _DirectCaller | None = None


_ScannedBlock = TextBlock | _TypedThinking | _ScannedCall | _TypedResult


class ScannedMessage(Struct, forbid_unknown_fields=True, gc=False):
    """A typed message whose arguments are not decoded."""

    role: Literal["user", "assistant"]
    content: str | list[_ScannedBlock]


def scan_message(message: ScannedMessage) -> Message:
    """A message with the ids of its calls and results only."""
    content = message.content
    return (
        _ANY_TEXT_MESSAGES[message.role]
        if isinstance(content, str)
        else Message(message.role, tuple(map(_scan_block, content)))
    )


def _scan_block(block: _ScannedBlock) -> Part:
    if type(block) is _ScannedCall:
        return call_with_id(block.id)
    if type(block) is _TypedResult:
        return result_with_id(block.tool_use_id)
    return ANY_TEXT[0] if type(block) is TextBlock else _ANY_THINKING


class MessageListWriter:
    """Writes `messages` and `system` of a body."""

    def __init__(self, target: Target, writer: ContentWriter, losses: list[Loss]) -> None:
        self.messages: list[Any] = []
        self.system: list[Any] = []
        self._target = target
        self._writer = writer
        self._losses = losses
        self._is_leading = True
        self._role: str | None = None  # of the current turn, like the next four
        self._blocks: list[Any] = []
        self._result_count = 0  # at its start
        self._has_calls = False
        self._needs_sorting = False
        self._last: dict[str, Any] | None = None  # the last message, if it is ours and blocks can be appended to it
        self._is_last_unsorted = False
        self._pending: list[_PendingSystemMessage] = []  # system messages until an assistant turn starts
        self._unmoved: list[_PendingSystemMessage] = []  # those that nothing followed yet
        self._before_assistant: list[_PendingSystemMessage] = []  # those before the current assistant turn

    def write(self, messages: tuple[Message, ...]) -> None:
        writer = self._writer
        for index, message in enumerate(messages):
            role = message.role
            if role == "tool":
                role = "user"
            if role != self._role or self._pending:
                if role != "user" and role != "assistant":
                    self._add_other_role(index, message)
                    continue
                if self._pending or self._before_assistant:
                    self._start_turn_after_system(role)
                else:
                    if self._blocks:
                        self._close()
                    self._role = role
                self._is_leading = False
            extras = None
            if message.native is not None or message.name is not None:
                extras = self._message_extras(index, message)
            blocks = self._blocks
            for position, part in enumerate(message.parts):
                if type(part) is ToolCallResult:
                    if len(blocks) != self._result_count:
                        self._needs_sorting = True
                    self._result_count += 1
                    writer.add_result(blocks, part, index, position)
                elif type(part) is ToolCallRequest:
                    blocks.append(writer.call(part, index, position))
                    self._has_calls = True
                elif type(part) is Text and part.native is None:
                    text = part.text
                    if text and not text.isspace():
                        blocks.append({"type": "text", "text": text})
                        if self._has_calls:
                            self._needs_sorting = True
                else:
                    blocks += writer.write(part, role, part_path(index, position))
                    if self._has_calls:
                        self._needs_sorting = True
            if (
                message.native is not None
                and blocks
                and (marked := with_cache_control(message.native)) is not message.native
            ):
                blocks[-1] = writer.mark_block(blocks[-1], marked[FORMAT]["cache_control"], f"messages[{index}]")
            if extras:
                self._close(extras, index)

    def finish(self, can_continue: bool) -> None:
        """End the last turn as AN-01, AN-06 and AN-07 require. `can_continue`: the last answer may be continued."""
        self._close()
        self._insert_system_messages(self._before_assistant + self._pending)
        self._sort_last()
        if not self.messages:
            self._losses.append(
                Loss("messages", "no messages", f'at least one message is required; added "{CONTINUE_TEXT}" (AN-01)')
            )
            self.messages.append({"role": "user", "content": CONTINUE_TEXT})
        last = self.messages[-1]
        if isinstance(last, dict) and last.get("role") == "assistant":
            self._finish_assistant_turn(last, can_continue)

    def _finish_assistant_turn(self, last: dict[str, Any], can_continue: bool) -> None:
        content = last.get("content")
        if isinstance(content, str):
            self.messages[-1] = {**last, "content": content.rstrip()}
        elif isinstance(content, list) and content and block_type(content[-1]) == "text":
            text = content[-1].get("text")
            if isinstance(text, str) and text[-1:].isspace():
                replaced = self._writer.replace_text(content[-1], text.rstrip())
                self.messages[-1] = {**last, "content": [*content[:-1], replaced]}
        is_continued = isinstance(content, list) and any(block_type(block) in SERVER_CALLS for block in content)
        if not self._target.model.prefill and not is_continued and not can_continue:
            reason = f'model does not support prefill; added a user message "{CONTINUE_TEXT}" (AN-07)'
            self._losses.append(Loss("messages", "prefill", reason))
            self.messages.append({"role": "user", "content": CONTINUE_TEXT})

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
        if self._before_assistant and role == "assistant":
            due, self._before_assistant = self._before_assistant, []
            self._insert_system_messages(due)
        needs_sorting = self._needs_sorting
        self._result_count, self._has_calls, self._needs_sorting = 0, False, False
        if extras is None and self.messages:
            last = self.messages[-1]
            if type(last) is dict and last.get("role") == role and len(last) == 2 and self._merge(last, blocks):
                return
        if needs_sorting:
            blocks = _sort_blocks(blocks, role)
        is_text = len(blocks) == 1 and type(blocks[0]) is dict
        message = {"role": role, "content": collapse_text(blocks) if is_text else blocks}
        if extras:
            message.update(extras)
        if self._is_last_unsorted:
            self._sort_last()
        self.messages.append(message)
        self._last = None if extras else message

    def _merge(self, last: dict[str, Any], blocks: list[Any]) -> bool:
        """Add the blocks of a turn to the last message, of the same role: the turn between was empty. False if it cannot be.

        They are appended in place and sorted once, when the message is complete: a copy per turn would be quadratic.
        """
        content = last.get("content")
        if isinstance(content, str):
            content = [{"type": "text", "text": content}]
        elif not isinstance(content, list):
            return False
        elif last is not self._last:
            content = [*content]  # the client's own
        if content is not last["content"]:
            self.messages[-1] = self._last = {"role": last["role"], "content": content}
        content += blocks
        self._is_last_unsorted = True
        return True

    def _sort_last(self) -> None:
        """Sort the blocks of the last message, if turns were merged into it."""
        if self._is_last_unsorted and self._last is not None:
            self._last["content"] = _sort_blocks(self._last["content"], self._last["role"])
        self._is_last_unsorted = False

    def _message_extras(self, index: int, message: Message) -> dict[str, Any] | None:
        """The extras of a message; a message with extras is not merged."""
        path = f"messages[{index}]"
        if message.name is not None:
            self._losses.append(
                Loss(f"{path}.name", "name", "Anthropic does not support names of participants; dropped (AN-02)")
            )
        if not message.native:
            return None
        native = with_cache_control(message.native)
        lose_native(self._losses, path, native, FORMAT)
        extras = native.get(FORMAT)
        if extras and native is not message.native:  # a chat client marks the message, Anthropic its last block
            extras = {name: value for name, value in extras.items() if name != "cache_control"}
        if extras and self._blocks:
            role = self._role
            self._close()
            self._role = role
        return extras

    def _report_extras(self, extras: dict[str, Any], index: int) -> None:
        reason = "its message was merged or dropped, and the field with it"
        self._losses.extend(Loss(f"messages[{index}].{name}", name, reason) for name in extras)

    def _add_other_role(self, index: int, message: Message) -> None:
        """A message of another role than user and assistant."""
        if message.role in ("system", "developer"):
            self._add_system(index, message)
            return
        self._is_leading = False
        self._mark_moved()
        for position, part in enumerate(message.parts):
            if type(part) is Native and part.origin == FORMAT:
                self._close()
                self._sort_last()
                self.messages.append(part.data)
            else:
                reason = f'unknown role "{message.role}"; dropped (AN-02)'
                self._losses.append(Loss(part_path(index, position), type(part).__name__.lower(), reason))

    def _add_system(self, index: int, message: Message) -> None:
        if self._is_leading:
            blocks = self._writer.system_blocks(message.parts, index)
            if (
                message.native is not None
                and blocks
                and (marked := with_cache_control(message.native)) is not message.native
            ):
                blocks[-1] = self._writer.mark_block(blocks[-1], marked[FORMAT]["cache_control"], f"messages[{index}]")
            self.system += blocks
            self._report_extras(self._message_extras(index, message) or {}, index)
        elif self._target.accepts_system_role(is_same_format(message.native)):
            self._pending.append(_PendingSystemMessage(index, message))
            self._unmoved.append(self._pending[-1])
        else:
            if self._role != "user":
                self._close()
                self._role = "user"
            self._blocks += self._as_user_note(index, message)

    def _insert_system_messages(self, waiting: list[_PendingSystemMessage]) -> None:
        """Insert pending system messages after the messages written so far."""
        if waiting:
            self._sort_last()
        for item in waiting:
            if self.messages and _can_precede_system(self.messages[-1]):
                self._insert_system_message(item)
            else:
                blocks = self._as_user_note(item.index, item.message)
                if blocks:
                    self.messages.append({"role": "user", "content": collapse_text(blocks)})

    def _insert_system_message(self, item: _PendingSystemMessage) -> None:
        blocks = self._writer.system_blocks(item.message.parts, item.index)
        extras = self._message_extras(item.index, item.message) or {}
        if not blocks:
            self._report_extras(extras, item.index)
            return
        if item.is_moved:
            reason = "a system message must be between a user turn and an assistant turn; moved (AN-03)"
            self._losses.append(Loss(f"messages[{item.index}]", "position", reason))
        self.messages.append({"role": "system", "content": collapse_text(blocks), **extras})

    def _as_user_note(self, index: int, message: Message) -> list[Any]:
        """A system message as a note in a user turn."""
        self._report_extras(self._message_extras(index, message) or {}, index)
        blocks: list[Any] = []
        for block in self._writer.system_blocks(message.parts, index):
            if block_type(block) == "text" and isinstance(block.get("text"), str):
                blocks.append(block)
            else:
                reason = "only allowed in a system message; dropped (AN-03)"
                self._losses.append(Loss(f"messages[{index}]", block_type(block) or "block", reason))
        if blocks:
            reason = "system message not allowed here, or not by this model; sent as a user note (AN-03)"
            self._losses.append(Loss(f"messages[{index}]", "system role", reason))
            blocks[0] = self._writer.replace_text(blocks[0], SYSTEM_NOTE_PREFIX + blocks[0]["text"])
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
