"""Parts to output items: the items of a whole response, and the final ones of a streamed response.

An item is written with every field a client may look for. Fields that came from this API win; where there are none, the item
is completed, and has an id that Antiphon made up: `msg_`, `fc_`, `ctc_` or `rs_` as its kind demands, then "antiphon".
Reasoning of another origin is shown as a summary. What only its origin can read of it is a loss.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from antiphon.history.ids import new_id
from antiphon.parts import Native, OutputPart, Refusal, Text, Thinking, ToolCallRequest
from antiphon.wire.loss import Loss, lose_native
from antiphon.wire.openai_responses.content import FORMAT, SHARED, Body, kind_of, write_output
from antiphon.wire.openai_responses.item_writer import MINTED


class ItemIds:
    """Makes up ids for the items of one response."""

    def __init__(self) -> None:
        self._stem = new_id()
        self._count = 0

    def new(self, prefix: str) -> str:
        self._count += 1
        return f"{prefix}{MINTED}{self._stem}{self._count:02d}"


def write_output_items(parts: Sequence[OutputPart], losses: list[Loss]) -> list[Any]:
    """The `output` of a response."""
    ids = ItemIds()
    items: list[Any] = []
    said: list[Text | Refusal] = []  # the content of one message item
    for place, part in enumerate((*parts, None)):
        if said and (not isinstance(part, Text | Refusal) or begins_item(part)):
            items.append(message_item(said, ids.new("msg"), losses, f"parts[{place - len(said)}]"))
            said = []
        if isinstance(part, Text | Refusal):
            said.append(part)
        elif part is not None:
            items.extend(item_of(part, ids, losses, f"parts[{place}]"))
    return items


def item_of(part: OutputPart, ids: ItemIds, losses: list[Loss], path: str) -> Iterator[Any]:
    """The item that a part which is no text is; none if the format cannot say it."""
    if isinstance(part, ToolCallRequest):
        yield call_item(part, ids.new("ctc" if part.freeform else "fc"), losses, path)
    elif isinstance(part, Thinking):
        yield reasoning_item(part, ids.new("rs"), losses, path)
    elif isinstance(part, Native) and part.origin == FORMAT:
        yield part.data
    elif isinstance(part, Native):
        losses.append(Loss(path, kind_of(part), f"only {part.origin} can say it"))
    else:
        kind = type(part).__name__.lower()
        losses.append(Loss(path, kind, "OpenAI Responses answers in text and calls"))


def begins_item(part: Text | Refusal) -> bool:
    """Whether a text that follows another begins a message item of its own."""
    return bool(part.native) and "item" in (part.native or {}).get(FORMAT, {})


def item_id(part: OutputPart) -> str | None:
    """The id that the item of a part has from this API."""
    own = _own_fields(part)
    found = own.get("item", {}).get("id") if isinstance(part, Text | Refusal) else own.get("id")
    return found if isinstance(found, str) and found else None


def message_item(parts: Sequence[Text | Refusal], new_id: str, losses: list[Loss], path: str) -> Body:
    """The item of a message whose content the parts are."""
    content = [write_output(part, losses, path, whole=True) for part in parts]
    fields = _own_fields(parts[0]).get("item", {})
    given = {field: value for field, value in fields.items() if value is not None}
    return {"id": new_id, "type": "message", "status": "completed", **given, "role": "assistant", "content": content}


def call_item(call: ToolCallRequest, new_id: str, losses: list[Loss], path: str) -> Body:
    """The item of a call."""
    item: Body = {
        "id": new_id,
        "type": "custom_tool_call" if call.freeform else "function_call",
        "status": "completed",
        "call_id": call.tool_call_id,
        "name": call.tool_name,
        "input" if call.freeform else "arguments": call.arguments,
    }
    _add_own(item, call, losses, path)
    return item


def reasoning_item(thinking: Thinking, new_id: str, losses: list[Loss], path: str) -> Body:
    """The item of reasoning."""
    item: Body = {"id": new_id, "type": "reasoning"}
    _add_own(item, thinking, losses, path)
    if not isinstance(item.get("summary"), list):
        item["summary"] = [{"type": "summary_text", "text": thinking.text}] if thinking.text else []
    return item


def _own_fields(part: OutputPart) -> Body:
    native = None if isinstance(part, Native) else part.native
    return native.get(FORMAT, {}) if native else {}


def _add_own(item: Body, part: ToolCallRequest | Thinking, losses: list[Loss], path: str) -> None:
    if part.native:
        lose_native(losses, path, part.native, FORMAT, SHARED)
        own = part.native.get(FORMAT, {})
        item.update(own if own.get("id") else {field: value for field, value in own.items() if field != "id"})
