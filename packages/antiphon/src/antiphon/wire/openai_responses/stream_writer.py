"""Writes Responses streams.

Every part is an item, except that consecutive texts are the content of one message item, as in a whole response. Several may
be open; each has its `output_index`. A message item stays open until another item starts, because a text may continue it. An item
keeps the id it started with: the official SDK takes a changed id for another item. The final items are those of a whole response,
and the terminal event repeats them. A part that the format does not have is a loss.
"""

from __future__ import annotations

import time
from typing import Any

from msgspec import Struct, field, structs

from antiphon.parts import OutputPart, Refusal, Text, Thinking, ToolCallRequest
from antiphon.wire.delta import Finished, Started
from antiphon.wire.loss import Loss, Losses
from antiphon.wire.openai_responses import FORMAT
from antiphon.wire.openai_responses.content import (
    call_item,
    item_id,
    message_item,
    reasoning_item,
    starts_new_item,
    write_item,
)
from antiphon.wire.openai_responses.errors import response_error
from antiphon.wire.openai_responses.item_ids import IdGenerator
from antiphon.wire.openai_responses.response import SINGLE_CANDIDATE, read_response, response_body, to_response_id
from antiphon.wire.output import ProviderError
from antiphon.wire.streams.writer import ItemWriter, OpenPart

_EMPTY_CONTENT: dict[type, dict[str, Any]] = {
    Text: {"type": "output_text", "annotations": [], "logprobs": [], "text": ""},
    Refusal: {"type": "refusal", "refusal": ""},
}


class _Item(Struct):
    """An item; `final` once it has ended."""

    index: int
    kind: str
    id: str
    parts: list[_Part] = []
    open_parts: int = 0
    final: Any = None


class _Part(OpenPart):
    """An open part: its item, and the fields of an event that say where it is."""

    item: _Item = field(default_factory=lambda: _Item(-1, "", ""))
    place: dict[str, Any] = field(default_factory=dict)
    delta: str = ""  # the type of an event with more of its text


class StreamWriter(ItemWriter[_Part]):
    """Deltas of any format in, the bytes of a stream out. `model` is the name the client asked for."""

    _part_type = _Part
    _single_candidate = SINGLE_CANDIDATE
    _number_field = "sequence_number"

    def __init__(self, model: str = "") -> None:
        super().__init__(model)
        self._ids = IdGenerator()
        self._items: list[_Item] = []

    def _emit(self, kind: str, fields: dict[str, Any]) -> None:
        self._send(kind, {"type": kind, "sequence_number": self._number, **fields})

    def _on_start(self, started: Started) -> None:
        if started.created is None:
            started = structs.replace(started, created=int(time.time()))
        self._id = to_response_id(started.id, started.format) or to_response_id("", "")
        self._started = started
        response = self._response(Finished(""), [], [], status="in_progress")
        response["usage"] = None
        self._emit("response.created", {"response": response})
        self._emit("response.in_progress", {"response": response})

    def _resume_object(self, event: dict[str, Any]) -> None:
        response = event.get("response")
        if type(response) is dict and type(response.get("id")) is str:
            self._is_begun = True
            self._id = response["id"]
            read = read_response({**response, "output": []})
            self._started = Started(read.id, read.model, read.created, FORMAT, read.native)

    def _response(
        self, finished: Finished, items: list[Any], losses: list[Loss], status: str | None = None
    ) -> dict[str, Any]:
        """The response object, with the fields of its start; `status` is that of one that is not complete."""
        response = {**response_body(self._object(finished), items, losses), "id": self._id}
        if status is not None:
            response |= {"status": status, "incomplete_details": None}
            if "completed_at" in response:
                response["completed_at"] = None
        return response

    def _on_part(self, part: _Part) -> None:
        given = part.part
        if isinstance(given, Text | Refusal):
            self._start_content(part, given)
            return
        self._end_messages()
        if isinstance(given, Thinking):
            item = self._open_item("reasoning", given, {"id": "", "type": "reasoning", "summary": []})
            part.delta, summary = "response.reasoning_summary_text.delta", {"summary_index": 0}
        else:
            kind = "custom_tool_call" if given.freeform else "function_call"
            body = call_item(structs.replace(given, native=None), "", Losses())
            item = self._open_item(kind, given, {**body, "status": "in_progress"})
            name = "custom_tool_call_input" if given.freeform else "function_call_arguments"
            part.delta, summary = f"response.{name}.delta", {}
        part.item = item
        part.place = {"item_id": item.id, "output_index": item.index, **summary}

    def _open_item(self, kind: str, part: OutputPart, body: dict[str, Any]) -> _Item:
        """Open an item; its id is put into the body."""
        item = _Item(len(self._items), kind, item_id(part) or self._ids.new(kind))
        self._items.append(item)
        self._emit("response.output_item.added", {"output_index": item.index, "item": {**body, "id": item.id}})
        return item

    def _start_content(self, part: _Part, given: Text | Refusal) -> None:
        item = self._items[-1] if self._items else None
        if item is None or item.kind != "message" or item.final is not None or starts_new_item(given):
            self._end_messages()
            body = {"id": "", "type": "message", "status": "in_progress", "role": "assistant", "content": []}
            item = self._open_item("message", given, body)
        part.item = item
        part.place = {"item_id": item.id, "output_index": item.index, "content_index": len(item.parts)}
        part.delta = f"response.{'output_text' if type(given) is Text else 'refusal'}.delta"
        item.parts.append(part)
        item.open_parts += 1
        self._emit("response.content_part.added", {**part.place, "part": _EMPTY_CONTENT[type(given)]})

    def _on_text(self, part: _Part, text: str) -> None:
        if not part.pieces and type(part.part) is Thinking:
            empty = {"type": "summary_text", "text": ""}
            self._emit("response.reasoning_summary_part.added", {**part.place, "part": empty})
        part.pieces.append(text)
        if type(part.part) is Text:
            self._emit(part.delta, {**part.place, "delta": text, "logprobs": []})
        else:
            self._emit(part.delta, {**part.place, "delta": text})

    def _on_whole(self, part: _Part) -> None:
        self._end_messages()
        for body in write_item(part.whole(), self._ids, self.losses):
            item = _Item(len(self._items), "", "", final=body)
            self._items.append(item)
            self._emit("response.output_item.added", {"output_index": item.index, "item": body})
            self._emit("response.output_item.done", {"output_index": item.index, "item": body})

    def _on_part_end(self, part: _Part) -> None:
        item = part.item
        if item.kind == "message":
            item.open_parts -= 1
            self._end_content(part)
            if item is not self._items[-1]:
                self._end_message(item)
            return
        complete = part.whole()
        if isinstance(complete, ToolCallRequest):
            fields = {"name": complete.tool_name, "arguments": complete.arguments}
            if complete.freeform:
                fields = {"input": complete.arguments}
            self._emit(part.delta.replace(".delta", ".done"), {**part.place, **fields})
            self._end_item(item, call_item(complete, item.id, self.losses))
            return
        if part.pieces:
            summary = {"type": "summary_text", "text": part.text}
            self._emit("response.reasoning_summary_text.done", {**part.place, "text": part.text})
            self._emit("response.reasoning_summary_part.done", {**part.place, "part": summary})
        self._end_item(item, reasoning_item(complete, item.id, self.losses))

    def _end_content(self, part: _Part) -> None:
        content = message_item([part.whole()], "", Losses())["content"][0]
        annotations = content.get("annotations")
        for number, annotation in enumerate(annotations if isinstance(annotations, list) else ()):
            fields = {**part.place, "annotation_index": number, "annotation": annotation}
            self._emit("response.output_text.annotation.added", fields)
        if type(part.part) is Text:
            whole = {"text": part.text, "logprobs": content.get("logprobs") or []}
            self._emit("response.output_text.done", {**part.place, **whole})
        else:
            self._emit("response.refusal.done", {**part.place, "refusal": part.text})
        self._emit("response.content_part.done", {**part.place, "part": content})

    def _end_messages(self) -> None:
        """End the message item that was open for more text."""
        if self._items and self._items[-1].kind == "message":
            self._end_message(self._items[-1])

    def _end_message(self, item: _Item) -> None:
        if item.final is None and not item.open_parts:
            writing, self.losses.part = self.losses.part, item.parts[0].index
            parts = [part.whole() for part in item.parts]
            self._end_item(item, message_item(parts, item.id, self.losses))
            self.losses.part = writing

    def _end_item(self, item: _Item, final: dict[str, Any]) -> None:
        item.final = {**final, "id": item.id}
        self._emit("response.output_item.done", {"output_index": item.index, "item": item.final})

    def _on_finish(self, finished: Finished) -> None:
        self._end_messages()
        response = self._response(finished, [item.final for item in self._items], self.losses)
        status = response.get("status")
        self._emit(f"response.{status if status == 'incomplete' else 'completed'}", {"response": response})

    def _on_error(self, error: ProviderError) -> None:
        """The failure, with the items that were complete by then."""
        self._begin(Started())
        items = [item.final for item in self._items if item.final is not None]
        response = self._response(Finished(""), items, [], status="failed")
        self._emit("response.failed", {"response": {**response, "error": response_error(error)}})
