"""Writes Responses streams.

Every part is an item, except that consecutive texts are the content of one message item, as in a whole response. Several may
be open; each has its `output_index`. A message item stays open until another item starts, because a text may continue it. An item
keeps the id it started with: the official SDK takes a changed id for another item. The final items are those of a whole response,
and the terminal event repeats them. A part that the format does not have is a loss.
"""

from __future__ import annotations

import time
from typing import Any

from msgspec import Struct, structs

from antiphon.parts import NativeExtras, OutputPart, Refusal, Text, Thinking, ToolCallRequest
from antiphon.wire.delta import Finished, PartStarted, Started, merged
from antiphon.wire.loss import Loss
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
from antiphon.wire.output import ModelOutput, ProviderError
from antiphon.wire.streams.writer import ItemWriter, finished_output


class _Item(Struct):
    """An open item."""

    index: int
    kind: str
    id: str
    parts: list[_Part] = []
    open_parts: int = 0
    final: Any = None


class _Part(Struct):
    """An open part, its index among the parts, and its position in its item."""

    part: Any
    item: _Item
    source: int
    position: int
    natives: list[NativeExtras | None]
    pieces: list[str] = []
    is_over: bool = False

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    def complete(self) -> Any:
        """The part with its whole text."""
        text = self.text
        if isinstance(self.part, ToolCallRequest):
            fields = {"arguments": text or ("" if self.part.freeform else "{}")}
        else:
            fields = {"text": text}
        return structs.replace(self.part, native=merged(*self.natives), **fields)


class StreamWriter(ItemWriter[_Part]):
    """Deltas of any format in, the bytes of a stream out. `model` is the name the client asked for."""

    _single_candidate = SINGLE_CANDIDATE
    _number_field = "sequence_number"

    def __init__(self, model: str = "") -> None:
        super().__init__(model)
        self._id = ""
        self._ids = IdGenerator()
        self._items: list[_Item] = []

    def _emit(self, kind: str, fields: dict[str, Any]) -> None:
        self._send(kind, {"type": kind, "sequence_number": self._number, **fields})

    def _write_start(self, started: Started) -> None:
        if self._model:
            started = structs.replace(started, model=self._model)
        if started.created is None:
            started = structs.replace(started, created=int(time.time()))
        self._id = to_response_id(started.id, started.format) or to_response_id("", "")
        self._started = started
        response = self._response(ModelOutput(format=started.format), [], [])
        response.update({"status": "in_progress", "incomplete_details": None, "usage": None})
        if "completed_at" in response:
            response["completed_at"] = None
        self._emit("response.created", {"response": response})
        self._emit("response.in_progress", {"response": response})

    def _resume_object(self, event: dict[str, Any]) -> None:
        response = event.get("response")
        if type(response) is dict and type(response.get("id")) is str:
            self._is_begun = True
            self._id = response["id"]
            read = read_response({**response, "output": []})
            self._started = Started(read.id, read.model, read.created, FORMAT, read.native)

    def _response(self, output: ModelOutput, items: list[Any], losses: list[Loss]) -> dict[str, Any]:
        """The response object, with the fields of its start."""
        complete = self._complete(output)
        return {**response_body(complete, items, losses), "id": self._id}

    def _start_part(self, started: PartStarted) -> None:
        part = started.part
        if isinstance(part, Text | Refusal):
            self._start_text(part, started.index)
            return
        self._end_messages()
        if isinstance(part, ToolCallRequest):
            kind = "custom_tool_call" if part.freeform else "function_call"
            body = call_item(structs.replace(part, arguments="", native=None), "", [], "")
            self._start_item(kind, part, started.index, {**body, "status": "in_progress"})
            self._append_text(started.index, part.arguments)
        elif isinstance(part, Thinking):
            self._start_item("reasoning", part, started.index, {"id": "", "type": "reasoning", "summary": []})
            self._append_text(started.index, part.text)
        else:
            self._write_complete_item(part, started.index)

    def _open(self, kind: str, part: OutputPart) -> _Item:
        item = _Item(len(self._items), kind, item_id(part) or self._ids.new(kind))
        self._items.append(item)
        return item

    def _add(self, item: _Item, part: Any, index: int) -> _Part:
        added = self._parts[index] = _Part(part, item, index, len(item.parts), [part.native])
        item.parts.append(added)
        item.open_parts += 1
        return added

    def _start_text(self, part: Text | Refusal, index: int) -> None:
        last = self._items[-1] if self._items else None
        if last is None or last.kind != "message" or last.final is not None or starts_new_item(part):
            self._end_messages()
            last = self._open("message", part)
            item = {"id": last.id, "type": "message", "status": "in_progress", "role": "assistant", "content": []}
            self._emit("response.output_item.added", {"output_index": last.index, "item": item})
        added = self._add(last, part, index)
        empty: dict[str, Any] = {"type": "refusal", "refusal": ""}
        if isinstance(part, Text):
            empty = {"type": "output_text", "annotations": [], "logprobs": [], "text": ""}
        self._emit("response.content_part.added", {**_content_position(added), "part": empty})
        self._append_text(index, part.text)

    def _start_item(self, kind: str, part: ToolCallRequest | Thinking, index: int, body: dict[str, Any]) -> None:
        """Start an item of one part; its id is put into the body."""
        item = self._open(kind, part)
        self._add(item, part, index)
        self._emit("response.output_item.added", {"output_index": item.index, "item": {**body, "id": item.id}})

    def _write_complete_item(self, part: OutputPart, index: int) -> None:
        """Write a part that does not grow."""
        for body in write_item(part, self._ids, self.losses, f"parts[{index}]"):
            item = _Item(len(self._items), "", "", final=body)
            self._items.append(item)
            self._emit("response.output_item.added", {"output_index": item.index, "item": body})
            self._emit("response.output_item.done", {"output_index": item.index, "item": body})

    def _append_text(self, index: int, text: str) -> None:
        part = self._parts.get(index)
        if part is None or part.is_over or not text:
            return
        item = part.item
        first = not part.pieces
        part.pieces.append(text)
        if item.kind == "message":
            if type(part.part) is Text:
                self._emit("response.output_text.delta", {**_content_position(part), "delta": text, "logprobs": []})
            else:
                self._emit("response.refusal.delta", {**_content_position(part), "delta": text})
        elif item.kind == "reasoning":
            if first:
                empty = {"type": "summary_text", "text": ""}
                self._emit("response.reasoning_summary_part.added", {**_summary_position(item), "part": empty})
            self._emit("response.reasoning_summary_text.delta", {**_summary_position(item), "delta": text})
        else:
            name = "custom_tool_call_input" if item.kind == "custom_tool_call" else "function_call_arguments"
            fields = {"item_id": item.id, "output_index": item.index, "delta": text}
            self._emit(f"response.{name}.delta", fields)

    def _end_part(self, index: int) -> None:
        part = self._parts.get(index)
        if part is None or part.is_over:
            return
        part.is_over = True
        item = part.item
        item.open_parts -= 1
        if item.kind == "message":
            self._end_content(part)
            if item is not self._items[-1]:
                self._end_message(item)
            return
        complete, path = part.complete(), f"parts[{index}]"
        if isinstance(complete, ToolCallRequest):
            item.final = call_item(complete, item.id, self.losses, path)
            fields: dict[str, Any] = {"item_id": item.id, "output_index": item.index}
            if complete.freeform:
                self._emit("response.custom_tool_call_input.done", {**fields, "input": complete.arguments})
            else:
                fields |= {"name": complete.tool_name, "arguments": complete.arguments}
                self._emit("response.function_call_arguments.done", fields)
        else:
            item.final = reasoning_item(complete, item.id, self.losses, path)
            if part.pieces:
                summary = {"type": "summary_text", "text": part.text}
                self._emit("response.reasoning_summary_text.done", {**_summary_position(item), "text": part.text})
                self._emit("response.reasoning_summary_part.done", {**_summary_position(item), "part": summary})
        self._end_item(item)

    def _end_content(self, part: _Part) -> None:
        content = message_item([part.complete()], "", [], "")["content"][0]
        annotations = content.get("annotations")
        for number, annotation in enumerate(annotations if isinstance(annotations, list) else ()):
            fields = {**_content_position(part), "annotation_index": number, "annotation": annotation}
            self._emit("response.output_text.annotation.added", fields)
        if type(part.part) is Text:
            whole = {"text": part.text, "logprobs": content.get("logprobs") or []}
            self._emit("response.output_text.done", {**_content_position(part), **whole})
        else:
            self._emit("response.refusal.done", {**_content_position(part), "refusal": part.text})
        self._emit("response.content_part.done", {**_content_position(part), "part": content})

    def _end_messages(self) -> None:
        """End the message item that was open for more text."""
        if self._items and self._items[-1].kind == "message":
            self._end_message(self._items[-1])

    def _end_message(self, item: _Item) -> None:
        if item.final is None and not item.open_parts:
            path = f"parts[{item.parts[0].source}]"
            item.final = message_item([part.complete() for part in item.parts], item.id, self.losses, path)
            self._end_item(item)

    def _end_item(self, item: _Item) -> None:
        item.final = {**item.final, "id": item.id}
        self._emit("response.output_item.done", {"output_index": item.index, "item": item.final})

    def _finish(self, finished: Finished) -> None:
        for index in list(self._parts):
            self._end_part(index)
        self._end_messages()
        items = [item.final for item in self._items]
        output = finished_output(finished)
        response = self._response(output, items, self.losses)
        status = response.get("status")
        self._emit(f"response.{status if status == 'incomplete' else 'completed'}", {"response": response})

    def _fail(self, error: ProviderError) -> None:
        """Write the failure, with the items that were complete by then."""
        self._out.append(self._begin(Started()))
        items = [item.final for item in self._items if item.final is not None]
        response = self._response(ModelOutput(), items, [])
        response.update({"status": "failed", "incomplete_details": None, "error": response_error(error)})
        if "completed_at" in response:
            response["completed_at"] = None
        self._emit("response.failed", {"response": response})


def _content_position(part: _Part) -> dict[str, Any]:
    item = part.item
    return {"item_id": item.id, "output_index": item.index, "content_index": part.position}


def _summary_position(item: _Item) -> dict[str, Any]:
    return {"item_id": item.id, "output_index": item.index, "summary_index": 0}
