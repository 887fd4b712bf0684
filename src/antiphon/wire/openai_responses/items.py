"""Input items to messages: the reading side of `input`, and of the `output` of a response.

Theory of operation. An item that a person or a program sent is a message of its own. Consecutive items that the model made
(reasoning, messages, calls, hosted tools) are one assistant message, because other formats say a turn in one; within it every
item is one part, except that a message item is as many as its content has. What an item says beyond its part is kept so that
the items come back as they were, in the same order:

- the fields of calls, reasoning and tools' answers (`id`, `status`, `namespace`, ...) are the part's native extras;
- the fields of the model's message items are the extra `item` of their first part. A text with that extra begins an item,
  any other text continues the one before it;
- an item of another kind is a `Native` part: the model's in the assistant message, others' in a message of their own.

Empty extras (`{"openai-responses": {}}`) are marks that cost no other format a loss: on a leading system message they say that
it was an item and not `instructions`, on a message with one `Native` part that the part is an item and not content.
"""

from __future__ import annotations

from typing import Any

from antiphon.parts import InputPart, Native, NativeExtras, Refusal, Text, Thinking, ToolCallRequest, ToolCallResult
from antiphon.wire.openai_responses.content import FORMAT, Body, extras_of, read_input, read_output
from antiphon.wire.request import Message
from antiphon.wire.rules import name_set

_SPEAKERS = ("user", "system", "developer")
_MESSAGE = frozenset({"type", "role", "content"})
_CALL = frozenset({"type", "call_id", "name", "arguments"})
_FREEFORM_CALL = frozenset({"type", "call_id", "name", "input"})
_RESULT = frozenset({"type", "call_id", "output"})
_FROM_OUTSIDE = name_set(
    "apply_patch_call_output compaction_trigger computer_call_output configuration_update local_shell_call_output"
    " mcp_approval_response shell_call_output"
)
"""The hosted tools' items that the client makes, not the model."""

_Turn = list[Any]


def read_items(items: list[Any], messages: list[Message]) -> None:
    """Append the messages that the items of a request are."""
    turn: _Turn = []
    freeform: set[str] = set()
    for item in items:
        message: Message | None = None
        if type(item) is dict:
            kind = item.get("type")
            if kind is None or kind == "message":
                message = _read_message(item, kind, turn)
                if message is None:
                    continue
            elif kind == "function_call_output" or kind == "custom_tool_call_output":
                message = _read_result(item, kind, freeform)
            elif kind == "function_call" or kind == "reasoning" or not _is_from_outside(item, kind):
                read_model_item(turn, item)
                if kind == "custom_tool_call":
                    freeform.add(str(item.get("call_id")))
                continue
            if message is None:
                message = _read_foreign_item(item)
        else:
            message = Message("unknown", (Native(FORMAT, item),))
        if turn:
            messages.append(Message("assistant", tuple(turn)))
            turn = []
        if not messages and message.role == "system" and (message.native is None or FORMAT not in message.native):
            message = Message("system", message.parts, None, {**(message.native or {}), FORMAT: {}})
        messages.append(message)
    if turn:
        messages.append(Message("assistant", tuple(turn)))


def _read_message(item: Body, kind: str | None, turn: _Turn) -> Message | None:
    """Someone's message; None if it was the model's, and went into the turn."""
    role, content = item.get("role"), item.get("content")
    if role == "assistant":
        if read_said(turn, item, content):
            return None
    elif role in _SPEAKERS:
        parts = _read_parts(content)
        if parts is not None:
            return Message(role, parts, None, extras_of(item, _MESSAGE))
    if kind is None and role is None and "id" in item:
        turn.append(Native(FORMAT, item))  # an item_reference need not say that it is one
        return None
    return Message("unknown", (Native(FORMAT, item),))


def _read_result(item: Body, kind: str, freeform: set[str]) -> Message | None:
    call_id, content = item.get("call_id"), _read_parts(item.get("output"))
    if type(call_id) is not str or content is None:
        return None
    own = {field: value for field, value in item.items() if field not in _RESULT}
    if (call_id in freeform) is not (kind == "custom_tool_call_output"):
        own["type"] = kind  # its call is not here, or is of the other kind
    return Message("tool", (ToolCallResult("", call_id, content=content, native={FORMAT: own} if own else None),))


def _read_parts(content: Any) -> tuple[InputPart, ...] | None:
    if type(content) is str:
        return (Text(content),)
    return tuple([read_input(part) for part in content]) if type(content) is list else None


def _is_from_outside(item: Body, kind: Any) -> bool:
    if type(kind) is not str:
        return True
    if kind == "tool_search_output":
        return item.get("execution") == "client"
    return kind in _FROM_OUTSIDE or item.get("role") in _SPEAKERS


def _read_foreign_item(item: Body) -> Message:
    """An item that the model did not make and that is no message: what a client's own tool gave, more tools, an approval."""
    if type(item.get("type")) is not str:
        return Message("unknown", (Native(FORMAT, item),))
    role = item.get("role")
    return Message(role if role in _SPEAKERS else "user", (Native(FORMAT, item),), None, {FORMAT: {}})


def read_model_item(turn: _Turn, item: Any) -> None:
    """Append the parts that an item of the model is to the parts of its turn."""
    if type(item) is dict:
        kind = item.get("type")
        if kind == "function_call":
            if _read_call(turn, item, "arguments"):
                return
        elif kind == "reasoning":
            if type(item.get("summary")) is list:
                own = {field: value for field, value in item.items() if field != "type"}
                turn.append(Thinking(text_of_reasoning(item), native={FORMAT: own}))
                return
        elif kind == "message":
            if item.get("role") in ("assistant", None) and read_said(turn, item, item.get("content")):
                return
        elif kind == "custom_tool_call" and _read_call(turn, item, "input"):
            return
    turn.append(Native(FORMAT, item))


def _read_call(turn: _Turn, item: Body, text_field: str) -> bool:
    call_id, name, text = item.get("call_id"), item.get("name"), item.get(text_field)
    if type(call_id) is not str or type(name) is not str or type(text) is not str:
        return False
    freeform = text_field == "input"
    native: NativeExtras | None = None
    if len(item) != 4:
        known = _FREEFORM_CALL if freeform else _CALL
        native = {FORMAT: {field: value for field, value in item.items() if field not in known}}
    if "id" not in item and turn and type(turn[-1]) is Thinking and _owes_id(turn):
        native = {FORMAT: {**(native[FORMAT] if native else {}), "id": None}}
    # No arguments at all mean an empty object.
    turn.append(ToolCallRequest(name, call_id, text if freeform else text or "{}", freeform, native=native))
    return True


def read_said(turn: _Turn, item: Body, content: Any) -> bool:
    """Read a message item of the model into its turn; False if it has content that is unknown here, or none."""
    if type(content) is str:
        parts: list[Text | Refusal | None] = [Text(content)]
    elif type(content) is list and content:
        parts = [read_output(part) for part in content]
        if not all(parts):
            return False
    else:
        return False
    last = turn[-1] if turn else None
    fields: Body = {}
    if len(item) > (3 if "type" in item else 2):
        fields = {field: value for field, value in item.items() if field not in _MESSAGE and value is not None}
    if last is not None and type(last) is Thinking and "id" not in fields and _owes_id(turn):
        fields["id"] = None
    if fields or type(last) is Text or type(last) is Refusal:
        first: Any = parts[0]
        own = {"item": fields}
        native = (
            {FORMAT: own} if first.native is None else {**first.native, FORMAT: {**own, **first.native.get(FORMAT, {})}}
        )
        parts[0] = type(first)(first.text, native=native)
    turn.extend(parts)
    return True


def _owes_id(turn: _Turn) -> bool:
    """Whether the item before this one is reasoning with an id, so that this one's lack of an id must be kept too (OR-21)."""
    last = turn[-1] if turn else None
    return isinstance(last, Thinking) and (last.native or {}).get(FORMAT, {}).get("id") is not None


def text_of_reasoning(item: Body) -> str:
    """What can be read of a reasoning item: its content, or else its summary."""
    for field in ("content", "summary"):
        parts = item.get(field)
        if type(parts) is list and parts:
            texts = [part.get("text") for part in parts if type(part) is dict]
            said = [text for text in texts if type(text) is str]
            if said:
                return "\n\n".join(said)
    return ""
