"""Messages to input items: the writing side of `input`.

Theory of operation. One pass over the messages; the plain ones (a text, a call, an answer in words) are written where they
are met, the rest by the methods below. Ids are sent only if they came from this API and are legal, each of them once (OR-09,
OR-10). In a turn with reasoning, all its items keep their ids or none does (OR-21): reasoning whose next item has lost its id
is refused. Reasoning that would have neither an id nor content left is not sent.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from antiphon.parts import (
    Audio,
    Native,
    Part,
    Refusal,
    Text,
    Thinking,
    ToolCallRequest,
    ToolCallResult,
    ToolExecutionStatus,
)
from antiphon.wire.loss import Loss, lose_native
from antiphon.wire.openai_responses.content import FORMAT, SHARED, Body, kind_of, write_input, write_output
from antiphon.wire.openai_responses.tools import NAMES
from antiphon.wire.openai_responses.vocabulary import ITEM_TYPES
from antiphon.wire.request import Message
from antiphon.wire.tool_calls import MAX_CACHED_LENGTH, IdMapper

CALL_ID = IdMapper(r"(?s:.{1,64})")
MINTED = "_antiphon_"
"""What the ids of items have in them that a writer of ours made up: no API knows them, so none is sent to one."""

_SUCCESS = ToolExecutionStatus.SUCCESS
_SPEAKERS = frozenset({"user", "system", "developer"})
_ITEM_TYPES = frozenset(ITEM_TYPES)
_is_item_id = re.compile(r"[a-zA-Z0-9_-]{1,64}").fullmatch
_NO_FIELDS: Body = {}
_NONE, _EACH, _ALL = 0, 1, 2
"""Which ids of a turn are sent: none, each that may be, or all, which were looked at before."""


class ItemWriter:
    """Writes messages into `items`."""

    def __init__(self, losses: list[Loss]) -> None:
        self.items: list[Any] = []
        self._losses = losses
        self._ids: set[str] = set()
        self._freeform: set[str] = set()

    def write(self, messages: Sequence[Message], start: int = 0) -> None:
        append = self.items.append
        for index in range(start, len(messages)):
            message = messages[index]
            if message.native is None and message.name is None:
                parts, role = message.parts, message.role
                part = parts[0] if parts else None
                if type(part) is Text and len(parts) == 1:
                    if part.native is None and (role == "assistant" or role in _SPEAKERS):
                        append({"role": role, "content": part.text})
                        continue
                elif type(part) is ToolCallResult and self._write_answers(parts):
                    continue
                if role == "assistant":
                    self._write_turn(parts, index)
                    continue
            self._write_message(message, index)

    def _write_answers(self, parts: Sequence[Part]) -> bool:
        """Write a message of nothing but results in words; False, and nothing done, if it is not that."""
        legal, freeform, answers = CALL_ID.to_wire, self._freeform, []
        for part in parts:
            if type(part) is not ToolCallResult or part.native is not None or part.status is not _SUCCESS:
                return False
            content, call_id = part.content, part.tool_call_id
            if len(content) != 1 or call_id in freeform:
                return False
            (said,) = content
            if type(said) is not Text or said.native is not None:
                return False
            answers.append({"type": "function_call_output", "call_id": legal(call_id), "output": said.text})
        self.items += answers
        return True

    def _write_turn(self, parts: Sequence[Any], index: int, offset: int = 0) -> None:
        """The items of one turn of the model."""
        ids = _EACH
        for part in parts:
            if type(part) is Thinking:
                ids = _ALL if self._keeps_ids(parts) else _NONE
                break
        said: Body | None = None
        for place, part in enumerate(parts, offset):
            kind = type(part)
            if kind is ToolCallRequest:
                said = None
                self._write_call(part, index, place, ids)
            elif kind is Text or kind is Refusal:
                said = self._write_said(part, said, index, place, ids)
            else:
                said = None
                self._write_odd(part, f"messages[{index}].parts[{place}]", ids)

    def _write_call(self, call: ToolCallRequest, index: int, place: int, ids: int) -> None:
        name, call_id = NAMES.to_wire(call.tool_name), CALL_ID.to_wire(call.tool_call_id)
        item: Body
        if call.freeform:
            self._freeform.add(call.tool_call_id)
            item = {"type": "custom_tool_call", "call_id": call_id, "name": name, "input": call.arguments}
        else:
            arguments = call.arguments or "{}"
            item = {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}
        if call.native is not None:
            path = f"messages[{index}].parts[{place}]"
            lose_native(self._losses, path, call.native, FORMAT, SHARED)
            self._add_fields(item, call.native.get(FORMAT), "ctc" if call.freeform else "fc", path, ids)
        self.items.append(item)

    def _write_said(self, part: Text | Refusal, said: Body | None, index: int, place: int, ids: int) -> Body:
        """The part in a message item of its own, or in `said`, the one it continues. Returns the item."""
        native = part.native
        if native is None and said is None and type(part) is Text:
            said = {"role": "assistant", "content": part.text}
            self.items.append(said)
            return said
        own = native.get(FORMAT) if native is not None else None
        fields = own.get("item") if own is not None else None
        if said is None or fields is not None:
            said = {"type": "message", "role": "assistant", "content": []}
            self.items.append(said)
            self._add_fields(said, fields, "msg", f"messages[{index}].parts[{place}]", ids)
        elif type(said["content"]) is str:
            said["content"] = [{"type": "output_text", "text": said["content"]}]
        if type(part) is Text and native is not None and fields is not None and len(native) == len(own or ()) == 1:
            said["content"].append({"type": "output_text", "annotations": [], "text": part.text})
        else:
            path = f"messages[{index}].parts[{place}]"
            said["content"].append(write_output(part, self._losses, path, whole=len(said) > 3))
        return said

    def _write_odd(self, part: Part, path: str, ids: int) -> None:
        """What else may be among the parts of a turn."""
        if isinstance(part, Thinking):
            self._write_thinking(part, path, ids)
        elif isinstance(part, Native):
            self._write_native(part, path, ids)
        elif isinstance(part, ToolCallResult):
            self._write_result(part, path)
        else:
            kind = type(part).__name__.lower()
            self._losses.append(Loss(path, kind, "an assistant message holds only text and refusals (OR-03)"))

    def _write_thinking(self, part: Thinking, path: str, ids: int) -> None:
        native = part.native or {}
        fields = native.get(FORMAT)
        if fields is None:
            self._losses.append(Loss(path, "thinking", "reasoning goes back only to where it came from"))
            return
        lose_native(self._losses, path, native, FORMAT, SHARED)
        item: Body = {"type": "reasoning", "summary": []}
        self._add_fields(item, fields, "rs", path, ids)
        if "id" not in item and fields.get("id") and not item.get("encrypted_content") and not item.get("content"):
            self._losses.append(Loss(path, "thinking", "without its id nothing of it is left to send"))
        else:
            self.items.append(item)

    def _write_native(self, part: Native, path: str, ids: int = _EACH) -> None:
        data = part.data
        if part.origin != FORMAT:
            self._losses.append(Loss(path, kind_of(part), f"only {part.origin} can say it"))
            return
        item_id = data.get("id") if type(data) is dict else None
        if ids != _ALL and type(item_id) is str and item_id:
            if item_id in self._ids:
                self._losses.append(Loss(path, kind_of(part), "an item with its id was already sent (OR-10)"))
                return
            self._ids.add(item_id)
        self.items.append(data)

    def _write_message(self, message: Message, index: int) -> None:
        path = f"messages[{index}]"
        native = message.native or {}
        fields = native.get(FORMAT)
        lose_native(self._losses, path, native, FORMAT, SHARED)
        if message.name is not None:
            self._losses.append(Loss(f"{path}.name", "name", "messages of OpenAI Responses have no name"))
        if message.role == "assistant":
            lose_native(self._losses, path, {FORMAT: fields or {}})
            self._write_turn(message.parts, index)
            return
        is_raw = message.role == "unknown" or fields == {}
        item: Body = {"role": self._speaker(message, path), "content": []}
        if fields:
            item = {"type": "message", **item}
            self._add_fields(item, fields, "msg", path, _EACH)
        self._write_parts(message.parts, item, index, is_raw)
        if not message.parts and message.role in _SPEAKERS:
            self.items.append(item)

    def _speaker(self, message: Message, path: str) -> str:
        if message.role in _SPEAKERS:
            return message.role
        if message.role not in ("tool", "unknown"):
            why = "OpenAI Responses has no such role; it is sent as user"
            self._losses.append(Loss(f"{path}.role", message.role, why))
        return "user"

    def _write_parts(self, parts: Sequence[Part], item: Body, index: int, is_raw: bool) -> None:
        """Parts that are not the model's: content goes into `item`, or into copies of it around what is an item itself."""
        speaker = item["role"]
        for place, part in enumerate(parts):
            path = f"messages[{index}].parts[{place}]"
            if not _is_item(part, is_raw):
                item["content"] += write_input(part, self._losses, path)
                continue
            if item["content"]:
                self._close(item)
                item = {"role": speaker, "content": []}
            if isinstance(part, ToolCallResult):
                self._write_result(part, path)
            else:
                self._write_turn((part,), index, place)
        if item["content"]:
            self._close(item)

    def _close(self, item: Body) -> None:
        item["content"] = _in_words(item["content"])
        self.items.append(item)

    def _write_result(self, result: ToolCallResult, path: str) -> None:
        is_freeform = result.tool_call_id in self._freeform
        content: list[Any] = []
        for place, part in enumerate(result.content):
            here = f"{path}.content[{place}]"
            if isinstance(part, Audio):
                self._losses.append(Loss(here, "audio", "a tool cannot answer with sound (OR-05)"))
            else:
                content += write_input(part, self._losses, here)
        if result.status != _SUCCESS:
            content = _failed(content)
            why = "OpenAI has no field for failure; the text says it"
            self._losses.append(Loss(f"{path}.status", str(result.status), why))
        item: Body = {
            "type": "custom_tool_call_output" if is_freeform else "function_call_output",
            "call_id": CALL_ID.to_wire(result.tool_call_id),
            "output": _in_words(content),
        }
        if result.native is not None:
            lose_native(self._losses, path, result.native, FORMAT, SHARED)
            self._add_fields(item, result.native.get(FORMAT), "" if is_freeform else "fc", path, _EACH)
        self.items.append(item)

    def _add_fields(self, item: Body, fields: Body | None, prefix: str, path: str, ids: int) -> None:
        """Put an item's own fields back, and its id if it may be sent."""
        item.update(fields or {})
        if ids == _ALL and item.get("id") is not None:
            return
        item_id = item.pop("id", None)
        if item_id is None or (type(item_id) is str and MINTED in item_id):
            return
        if item["type"] == "custom_tool_call_output":
            prefix = ""
        if type(item_id) is not str or not _is_sendable(item_id, prefix):
            why = "OpenAI did not give it, and would refuse it (OR-09)"
        elif ids == _NONE:
            why = "the ids of a turn with reasoning are sent all or none (OR-21)"
        elif item_id in self._ids:
            why = "it was already sent (OR-10)"
        else:
            self._ids.add(item_id)
            item["id"] = item_id
            return
        self._losses.append(Loss(f"{path}.id", "id", why))

    def _keeps_ids(self, parts: Sequence[Any]) -> bool:
        """Whether every item of a turn has an id that may be sent; they count as sent then.

        An id that was never there (`"id": None`) is as good as one.
        """
        sent: set[str] = set()
        after_reasoning = after_text = False
        for part in parts:
            kind = type(part)
            fields: Body | None
            if kind is Native:
                after_text = False
                fields, prefix = (part.data if part.origin == FORMAT and type(part.data) is dict else None), ""
            else:
                native = part.native
                fields = native.get(FORMAT) if native is not None else None
                if kind is Text or kind is Refusal:
                    fields = fields.get("item") if fields is not None else None
                    if after_text and fields is None:
                        continue  # it continues an item
                    after_text, prefix = True, "msg"
                else:
                    after_text = False
                    prefix = "rs" if kind is Thinking else "ctc" if kind is ToolCallRequest and part.freeform else "fc"
            if fields is None:
                if kind is Native or kind is Thinking:
                    continue
                fields = _NO_FIELDS
            item_id = fields.get("id")
            if item_id is None:
                if after_reasoning and "id" not in fields:
                    return False
            else:
                if type(item_id) is not str or not _is_sendable(item_id, prefix):
                    return False
                if item_id in sent or item_id in self._ids:
                    return False
                sent.add(item_id)
            after_reasoning = kind is Thinking and item_id is not None
        self._ids |= sent
        return True


def _is_item(part: Part, is_raw: bool) -> bool:
    """Whether a part among someone's content is an item by itself."""
    if isinstance(part, Native):
        return part.origin == FORMAT and (is_raw or kind_of(part) in _ITEM_TYPES)
    return isinstance(part, ToolCallResult | ToolCallRequest | Thinking)


def _is_sendable(item_id: str, prefix: str) -> bool:
    return (_cached_is_sendable if len(item_id) <= MAX_CACHED_LENGTH else _look_if_sendable)(item_id, prefix)


def _look_if_sendable(item_id: str, prefix: str) -> bool:
    return item_id.startswith(prefix) and _is_item_id(item_id) is not None and MINTED not in item_id


_cached_is_sendable = lru_cache(maxsize=4096)(_look_if_sendable)


def _in_words(content: list[Any]) -> Any:
    """Content as a string, where it is nothing but one text."""
    if not content:
        return ""
    only = content[0]
    if len(content) == 1 and type(only) is dict and len(only) == 2 and only.get("type") == "input_text":
        return only["text"] if type(only.get("text")) is str else content
    return content


def _failed(content: list[Any]) -> list[Any]:
    """Content that says that the tool failed."""
    first = content[0] if content else None
    if type(first) is dict and first.get("type") == "input_text" and type(first.get("text")) is str:
        text = first["text"]
        return content if text.startswith("Error:") else [{**first, "text": f"Error: {text}"}, *content[1:]]
    return [{"type": "input_text", "text": "Error: the tool failed."}, *content]
