"""The input items of a request, read and written.

An item of the client is a message of its own. Consecutive items of the model (reasoning, messages, calls, hosted tools) are one
assistant message. Items of unknown types are `Native` parts. Empty extras (`{"openai-responses": {}}`) mark a leading system
message that was an item and not `instructions`, and a single `Native` part that is an item and not content.

`item_ids` decides which ids are sent. Reasoning that would have neither an id nor content is dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import UNSET

from antiphon.parts import (
    Audio,
    InputPart,
    Native,
    Part,
    Refusal,
    Source,
    Text,
    Thinking,
    ToolCallRequest,
    ToolCallResult,
    ToolExecutionStatus,
)
from antiphon.wire.capabilities import Capabilities, format_capabilities
from antiphon.wire.loss import Losses
from antiphon.wire.native_as_text import readable_parts, transcribe
from antiphon.wire.openai_responses import FORMAT
from antiphon.wire.openai_responses.content import (
    MESSAGE_FIELDS,
    NAME,
    add_assistant_item,
    add_model_item,
    block_type,
    read_input_part,
    write_input_part,
    write_output_part,
)
from antiphon.wire.openai_responses.item_ids import IdPolicy, ItemIds
from antiphon.wire.openai_responses.limits import ITEM_TYPE_SET
from antiphon.wire.openai_responses.shapes import Item, fields_of, other_field, shape_of, value_of
from antiphon.wire.openai_responses.tools import NAMES
from antiphon.wire.provenance import is_from
from antiphon.wire.request import Message
from antiphon.wire.request_writer import ListWriter
from antiphon.wire.rules import name_set
from antiphon.wire.shared_openai import OPENAI, collapse_text, mark_failed, unread_fields
from antiphon.wire.tools.call_ids import IdMapper

_SOURCE = Source(FORMAT)
CALL_IDS = IdMapper(lambda: f"(?s:.{{1,{format_capabilities(FORMAT).tool_id_length}}})")

_SUCCESS = ToolExecutionStatus.SUCCESS
_CLIENT_ROLES = frozenset({"user", "system", "developer"})
_CLIENT_ITEM_TYPES = name_set(
    "apply_patch_call_output compaction_trigger computer_call_output configuration_update local_shell_call_output"
    " mcp_approval_response shell_call_output"
)
"""The items of hosted tools that the client makes, not the model."""


class ItemReader:
    """Reads the items of one request, after its instructions."""

    def __init__(self, instructions: Any) -> None:
        self.messages = [Message("system", (Text(instructions),))] if type(instructions) is str else []
        self.has_tools = False  # whether an item has some
        self._turn: list[Any] = []  # the parts of the open assistant turn
        self._freeform: set[str] = set()  # the ids of freeform calls

    def read(self, items: list[Any]) -> tuple[Message, ...]:
        turn, messages, freeform = self._turn, self.messages, self._freeform
        for item in items:
            message: Message | None = None
            if type(item) is Item and item.id is item.status is item.summary is item.encrypted_content is UNSET:
                # only what a part has a field for
                kind = item.type
                if kind is UNSET or kind == "message":
                    if item.call_id is item.name is item.arguments is item.output is UNSET:
                        role, content = item.role, item.content
                        if role == "assistant":
                            if not turn and type(content) is str:
                                turn.append(Text(content))
                                continue
                        elif role == "user" and (parts := _read_parts(content)) is not None:
                            message = Message("user", parts)
                elif item.role is item.content is UNSET and type(call_id := item.call_id) is str:
                    if kind == "function_call_output":
                        output = item.output
                        if type(output) is str and item.name is item.arguments is UNSET and call_id not in freeform:
                            message = Message("tool", (ToolCallResult("", call_id, _SUCCESS, (Text(output),)),))
                    elif kind == "function_call" and not (turn and type(turn[-1]) is Thinking):
                        name, text = item.name, item.arguments
                        if type(name) is str and type(text) is str and item.output is UNSET:
                            turn.append(ToolCallRequest(name, call_id, text or "{}"))
                            continue
            if message is not None:
                if turn:
                    self._end_turn()
                messages.append(message)
                continue
            self._add(item)
        self._end_turn()
        return tuple(messages)

    def _add(self, item: Any) -> None:
        """Add an item of any shape."""
        shape = shape_of(item)
        message: Message | None
        if shape is None:
            message = Message("unknown", (Native(FORMAT, item.value),))
        else:
            kind = shape.type
            if kind in _MESSAGE_TYPES or kind is None:
                message = self._read_message(item, shape)
                if message is None:
                    return
            elif kind == "function_call_output" or kind == "custom_tool_call_output":
                message = _read_result(item, shape, self._freeform)
            elif kind == "function_call" or kind == "reasoning" or not _is_client_item(item, shape):
                add_model_item(self._turn, item)
                self.has_tools |= other_field(item, "tools") is not None
                if kind == "custom_tool_call":
                    self._freeform.add(str(None if shape.call_id is UNSET else shape.call_id))
                return
            else:
                message = None
            if message is None:
                message = _read_client_item(item, shape)
                self.has_tools |= other_field(item, "tools") is not None
        self._end_turn()
        if not self.messages and message.role == "system":
            message = Message("system", message.parts, None, message.native, _SOURCE)
        self.messages.append(message)

    def _end_turn(self) -> None:
        if self._turn:
            self.messages.append(Message("assistant", tuple(self._turn)))
            self._turn.clear()

    def _read_message(self, item: Any, shape: Item) -> Message | None:
        """A client's message; None if it is the model's and was added to the turn."""
        role = shape.role
        if role == "assistant":
            if add_assistant_item(self._turn, item, shape):
                return None
        elif type(role) is str and role in _CLIENT_ROLES:
            parts = _read_parts(shape.content)
            if parts is not None:
                return Message(role, parts, None, unread_fields(fields_of(item), FORMAT, MESSAGE_FIELDS))
        if shape.type in (None, UNSET) and role in (None, UNSET) and shape.id is not UNSET:
            self._turn.append(Native(FORMAT, value_of(item)))  # an item_reference may omit its type
            return None
        return Message("unknown", (Native(FORMAT, value_of(item)),))


_MESSAGE_TYPES = (UNSET, "message")
_RESULT_FIELDS = frozenset({"type", "call_id", "output"})


def _read_result(item: Any, shape: Item, freeform: set[str]) -> Message | None:
    call_id, content = shape.call_id, _read_parts(shape.output)
    if type(call_id) is not str or content is None:
        return None
    own = fields_of(item, _RESULT_FIELDS)
    if (call_id in freeform) is not (shape.type == "custom_tool_call_output"):
        own["type"] = shape.type  # the call is missing or of the other kind
    return Message("tool", (ToolCallResult("", call_id, content=content, native={FORMAT: own} if own else None),))


def _read_parts(content: Any) -> tuple[InputPart, ...] | None:
    if type(content) is str:
        return (Text(content),)
    return tuple([read_input_part(part) for part in content]) if type(content) is list else None


def _is_client_item(item: Any, shape: Item) -> bool:
    if type(shape.type) is not str:
        return True
    if shape.type == "tool_search_output":
        return other_field(item, "execution") == "client"  # type: ignore[no-any-return]
    return shape.type in _CLIENT_ITEM_TYPES or shape.role in ("user", "system", "developer")


def _read_client_item(item: Any, shape: Item) -> Message:
    """A client's item that is not a message: the output of its own tool, more tools, an approval."""
    part, role = Native(FORMAT, value_of(item)), shape.role
    if type(shape.type) is not str:
        return Message("unknown", (part,))
    return Message(role if type(role) is str and role in _CLIENT_ROLES else "user", (part,), source=_SOURCE)


class MessageListWriter(ListWriter):
    """Writes messages as input items."""

    def __init__(self, losses: Losses, model: Capabilities | None = None) -> None:
        self.entries, self.losses = [], losses
        self._model = model
        self.ids = ItemIds(losses)
        self.instructions: Text | None = None
        """The first message, if it can be `instructions`."""
        self._freeform: set[str] = set()
        self._thoughts: tuple[int, Sequence[Part]] | None = None  # a turn that has nothing else, until the next message

    def add(self, index: int, message: Message) -> None:
        self.losses.message = index
        if index == 0 and self._take_instructions(message):
            return
        if self._thoughts is not None:
            self._end_thoughts(message.role)
        if message.native is None and message.name is None and message.source is None:
            parts, role = message.parts, message.role
            part = parts[0] if parts else None
            if type(part) is Text and len(parts) == 1:
                if part.native is None and (role == "assistant" or role in _CLIENT_ROLES):
                    self.entries.append({"role": role, "content": part.text})
                    return
            elif type(part) is ToolCallResult and len(parts) == 1 and (role == "tool" or role == "user"):
                self._write_result(part, 0)
                return
            if role == "assistant":
                if type(part) is Thinking and _are_sent_thoughts(parts):
                    self._thoughts = index, parts
                else:
                    self._write_turn(parts)
                return
        self._write_message(message)

    def helpers(self) -> tuple[object, ...]:
        return (self.ids,)

    def settle(self) -> None:
        """Write what waits for the next message."""
        if self._thoughts is not None:
            self._end_thoughts("assistant")

    def _take_instructions(self, message: Message) -> bool:
        """Keep the first message apart if it is a system message that can be `instructions`."""
        text = message.parts[0] if len(message.parts) == 1 else None
        if message.role != "system" or type(text) is not Text or message.name is not None or is_from(message, FORMAT):
            return False
        for native in (message.native, text.native):
            if native and (FORMAT in native or OPENAI in native):
                return False
        self.instructions = text
        self.losses.part = 0
        self.losses.report_extras(text.native, FORMAT)
        self.losses.part = -1
        self.losses.report_extras(message.native, FORMAT)
        return True

    def _end_thoughts(self, next_role: str) -> None:
        """Drop reasoning that nothing of its turn follows, as after a stream that was cut: the API refuses it (OR-21).

        Without an id it is accepted, and so is the end of the conversation.
        """
        if self._thoughts is None:
            return
        at = self.losses.message
        (self.losses.message, parts), self._thoughts = self._thoughts, None
        if next_role == "assistant":
            self._write_turn(parts)
        else:
            self.losses.add("thinking", "reasoning without the item that should follow it; dropped (OR-21)")
        self.losses.message = at

    def _write_turn(self, parts: Sequence[Any], start: int = 0) -> None:
        """The items of one assistant turn, whose parts are counted from `start`."""
        ids = IdPolicy.EACH
        for part in parts:
            if type(part) is Thinking:
                ids = IdPolicy.ALL if self.ids.claim_turn(parts) else IdPolicy.NONE
                break
        message: dict[str, Any] | None = None
        for position, part in enumerate(parts, start):
            self.losses.part = position
            kind = type(part)
            if kind is ToolCallRequest:
                message = None
                self._write_call(part, ids)
            elif kind is Text or kind is Refusal:
                message = self._write_text(part, message, ids)
            else:
                message = None
                self._write_other(part, ids)
        self.losses.part = -1

    def _write_call(self, call: ToolCallRequest, ids: IdPolicy) -> None:
        name, call_id = NAMES.to_wire(call.tool_name), CALL_IDS.to_wire(call.tool_call_id)
        item: dict[str, Any]
        if call.freeform:
            self._freeform.add(call.tool_call_id)
            item = {"type": "custom_tool_call", "call_id": call_id, "name": name, "input": call.arguments}
        else:
            arguments = call.arguments or "{}"
            item = {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}
        if call.native is not None:
            self.losses.report_extras(call.native, FORMAT, OPENAI)
            self.ids.add_fields(item, call.native.get(FORMAT), ids)
        self.entries.append(item)

    def _write_text(self, part: Text | Refusal, message: dict[str, Any] | None, ids: IdPolicy) -> dict[str, Any]:
        """Write the part into `message`, the item it continues, or into a new one. Returns the item."""
        native = part.native
        if native is None and message is None and type(part) is Text:
            message = {"role": "assistant", "content": part.text}
            self.entries.append(message)
            return message
        own = native.get(FORMAT) if native is not None else None
        fields = own.get("item") if own is not None else None
        if message is None or fields is not None:
            message = {"type": "message", "role": "assistant", "content": []}
            self.entries.append(message)
            self.ids.add_fields(message, fields, ids)
        elif type(message["content"]) is str:
            message["content"] = [{"type": "output_text", "text": message["content"]}]
        if type(part) is Text and native is not None and fields is not None and len(native) == len(own or ()) == 1:
            message["content"].append({"type": "output_text", "annotations": [], "text": part.text})
        else:
            message["content"].append(write_output_part(part, self.losses, complete=len(message) > 3))
        return message

    def _write_other(self, part: Part, ids: IdPolicy) -> None:
        """Write any other part of a turn."""
        transcript = transcribe(part, self.losses)
        if transcript is not part and isinstance(transcript, Text):
            self.entries.append({"role": "assistant", "content": transcript.text})
        elif isinstance(part, Thinking):
            self._write_thinking(part, ids)
        elif isinstance(part, Native):
            self._write_native(part, ids)
        elif isinstance(part, ToolCallResult):
            self._write_result(part, self.losses.part)
        else:
            kind = type(part).__name__.lower()
            self.losses.add(kind, "assistant messages hold only text and refusals; dropped (OR-03)")

    def _write_thinking(self, part: Thinking, ids: IdPolicy) -> None:
        native = part.native or {}
        fields = native.get(FORMAT)
        if fields is None:
            self.losses.add("thinking", "reasoning can only be returned to the host that produced it; dropped")
            return
        self.losses.report_extras(native, FORMAT, OPENAI)
        item: dict[str, Any] = {"type": "reasoning", "summary": []}
        self.ids.add_fields(item, fields, ids)
        if "id" not in item and fields.get("id") and not item.get("encrypted_content") and not item.get("content"):
            self.losses.add("thinking", "reasoning without id and content; dropped")
        else:
            self.entries.append(item)

    def _write_native(self, part: Native, ids: IdPolicy) -> None:
        data = part.data
        if part.origin != FORMAT:
            carried = readable_parts(part, self.losses, NAME)
            self.entries += [{"role": "assistant", "content": it.text} for it in carried if type(it) is Text]
            return
        item_id = data.get("id") if type(data) is dict else None
        if ids != IdPolicy.ALL and type(item_id) is str and item_id and not self.ids.claim(item_id):
            self.losses.add(block_type(part), "duplicate item id; dropped the second item (OR-10)")
            return
        self.entries.append(data)

    def _write_message(self, message: Message) -> None:
        losses, native = self.losses, message.native or {}
        fields = native.get(FORMAT)
        losses.report_extras(native, FORMAT, OPENAI)
        if message.name is not None:
            losses.add("name", "messages of OpenAI Responses have no name; dropped", "name")
        if message.role == "assistant":
            losses.report_extras({FORMAT: fields or {}})
            self._write_turn(message.parts)
            return
        is_raw = message.role == "unknown" or (not fields and is_from(message, FORMAT))
        item: dict[str, Any] = {"role": self._role(message), "content": []}
        if fields:
            item = {"type": "message", **item}
            self.ids.add_fields(item, fields, IdPolicy.EACH)
        self._write_parts(message.parts, item, is_raw)
        if not message.parts and message.role in _CLIENT_ROLES:
            self.entries.append(item)

    def _role(self, message: Message) -> str:
        if message.role in _CLIENT_ROLES:
            return message.role
        if message.role not in ("tool", "unknown"):
            self.losses.add(message.role, f'unknown role "{message.role}"; sent as user', "role")
        return "user"

    def _write_parts(self, parts: Sequence[Part], item: dict[str, Any], is_raw: bool) -> None:
        """Parts of a client's message: content goes into `item`, or into copies of it around parts that are items."""
        role = item["role"]
        for position, part in enumerate(parts):
            if not _is_item(part, is_raw):
                self.losses.part = position
                item["content"] += write_input_part(part, self.losses, self._model)
                continue
            if item["content"]:
                self._close(item)
                item = {"role": role, "content": []}
            if isinstance(part, ToolCallResult):
                self._write_result(part, position)
            else:
                self._write_turn((part,), position)
        self.losses.part = -1
        if item["content"]:
            self._close(item)

    def _close(self, item: dict[str, Any]) -> None:
        item["content"] = collapse_text(item["content"], "input_text")
        self.entries.append(item)

    def _write_result(self, result: ToolCallResult, position: int) -> None:
        content, native = result.content, result.native
        self.losses.part = position
        text: Any = content[0] if len(content) == 1 else None
        is_plain = type(text) is Text and text.native is None and native is None and result.status is _SUCCESS
        item: dict[str, Any] = {
            "type": "custom_tool_call_output" if result.tool_call_id in self._freeform else "function_call_output",
            "call_id": CALL_IDS.to_wire(result.tool_call_id),
            "output": text.text if is_plain else self._write_output(result),
        }
        if native is not None:
            self.losses.report_extras(native, FORMAT, OPENAI)
            self.ids.add_fields(item, native.get(FORMAT), IdPolicy.EACH)
        self.entries.append(item)
        self.losses.part = -1

    def _write_output(self, result: ToolCallResult) -> Any:
        """The content of a result: a string if it is one text."""
        content: list[Any] = []
        for place, part in enumerate(result.content):
            self.losses.inner = place
            if isinstance(part, Audio):
                self.losses.add("audio", "OpenAI does not accept audio in tool results; dropped (OR-05)")
            else:
                content += write_input_part(part, self.losses, self._model)
        self.losses.inner = -1
        if result.status != _SUCCESS:
            content = mark_failed(content, "input_text")
            reason = 'no error flag in this format; "Error:" added to the text'
            self.losses.add(str(result.status), reason, "status")
        return collapse_text(content, "input_text") if content else ""


def _is_item(part: Part, is_raw: bool) -> bool:
    """Whether a part of a client's message is an item by itself."""
    if isinstance(part, Native):
        return part.origin == FORMAT and (is_raw or block_type(part) in ITEM_TYPE_SET)
    return isinstance(part, ToolCallResult | ToolCallRequest | Thinking)


def _are_sent_thoughts(parts: Sequence[Part]) -> bool:
    """Whether a turn has nothing but reasoning, some of it with an id."""
    thoughts = [part for part in parts if isinstance(part, Thinking)]
    return len(thoughts) == len(parts) and any((part.native or {}).get(FORMAT, {}).get("id") for part in thoughts)
