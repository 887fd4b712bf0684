"""Streams of OpenAI Responses, read; `stream_writer` writes them.

Events belong to the item at their `output_index`, because some hosts change an item's id with every event. An item opens its
parts as early as possible (a call with its name, a text with its first piece) and closes them with its `output_item.done`, whose
values are final: text that was not streamed is given as a last piece, extras of the whole item as `PartExtended`. Hosted tools
are one `Native` part, given when whole, at the index they had when they began. Where `done` events are missing, the `response` of
the terminal event replaces them; where that has no `output` (ChatGPT), the events do.

Usage and the object's own fields come from the terminal event. `error`, `response.failed`, events that are not JSON and a missing
terminal event are failures. `[DONE]`, unknown events, and everything after the terminal event are ignored.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct, structs

from antiphon.parts import Native, NativeExtras, OutputPart, Refusal, Text, Thinking, ToolCallRequest
from antiphon.wire.delta import Finished, PartDelta, UsageReported
from antiphon.wire.openai_responses import FORMAT
from antiphon.wire.openai_responses.content import read_model_item
from antiphon.wire.openai_responses.errors import read_error
from antiphon.wire.openai_responses.response import created_of, read_stop_reason, read_usage, response_extras
from antiphon.wire.streams.reader import ItemReader


class StreamEvent(Struct, gc=False):
    """The fields of an event that are read."""

    type: str | None = None
    output_index: int | None = None
    content_index: int | None = None
    summary_index: int | None = None
    delta: str | None = None
    item: dict[str, Any] | None = None
    part: dict[str, Any] | None = None
    text: str | None = None
    arguments: str | None = None
    input: str | None = None
    refusal: str | None = None
    response: dict[str, Any] | None = None
    error: Any = None
    message: Any = None
    code: Any = None
    param: Any = None


class _Part(Struct):
    """A started part, and its text so far."""

    index: int
    native: NativeExtras | None
    pieces: list[str] = []
    size: int = 0  # of all pieces


class _Item(Struct):
    """An open item. Message items have a part per content index, others at most one."""

    key: int
    item: dict[str, Any]
    kind: Any
    previous: OutputPart | None
    parts: dict[int | None, _Part] = {}
    is_done: bool = False
    place: int | None = None  # the index that a part given only when whole will have
    summary_section: Any = None  # which summary or content of reasoning came last


class StreamReader(ItemReader[StreamEvent, _Item]):
    """Bytes of one stream in, deltas out."""

    _format = FORMAT

    def __init__(self) -> None:
        super().__init__(StreamEvent, _HANDLERS)
        self._text: _Part | None = None  # where the last piece of text went
        self._text_place: tuple[int | None, int | None] = (None, None)

    def _read_created(self, fields: dict[str, Any]) -> int | None:
        return created_of(fields)

    def _open(self, key: int, item: dict[str, Any]) -> _Item:
        self._start(None)
        kind = item.get("type")
        opened = _Item(key, item, kind, self.parts.last)
        self._items[key] = self._last = opened
        native: NativeExtras | None = {FORMAT: {"id": item["id"]}} if item.get("id") is not None else None
        if kind == "function_call" or kind == "custom_tool_call":
            name, call_id = item.get("name"), item.get("call_id")
            if type(name) is str and type(call_id) is str:
                call = ToolCallRequest(name, call_id, "", kind == "custom_tool_call", native=native)
                self._begin_part(opened, None, call)
        elif kind == "reasoning":
            self._begin_part(opened, None, Thinking(native=native))
        elif kind != "message":
            opened.place = self.parts.reserve()
        return opened

    def _begin_part(self, item: _Item, key: int | None, part: Text | Refusal | Thinking | ToolCallRequest) -> _Part:
        begun = item.parts[key] = _Part(self.parts.start(part), part.native)
        return begun

    def _content(self, event: StreamEvent, make: type[Text] | type[Refusal]) -> _Part | None:
        """The part of a message that an event belongs to."""
        item = self._item_at(event.output_index, "message")
        if item.is_done or item.kind != "message":
            return None
        part = item.parts.get(event.content_index)
        if part is None:
            native: NativeExtras | None = None
            item_id = item.item.get("id")
            if not item.parts and (item_id is not None or isinstance(item.previous, Text | Refusal)):
                native = {FORMAT: {"item": {} if item_id is None else {"id": item_id}}}
            part = self._begin_part(item, event.content_index, make("", native=native))
        return part

    def _append_text(self, part: _Part | None, text: str | None) -> None:
        if part is not None and text:
            part.pieces.append(text)
            part.size += len(text)
            self.parts.deltas.append(PartDelta(part.index, text))

    def _append_missing_text(self, part: _Part | None, text: str | None) -> None:
        """Append what is missing of a text that is now known whole."""
        if part is not None and text and len(text) > part.size:
            known = "".join(part.pieces)
            if text.startswith(known):
                self._append_text(part, text[len(known) :])

    def _on_part(self, event: StreamEvent, append: Callable[[_Part | None, str | None], None]) -> None:
        kind = event.part.get("type") if event.part is not None else None
        name, make = ("text", Text) if kind == "output_text" else ("refusal", Refusal)
        if event.part is not None and kind in ("output_text", "refusal"):
            text = event.part.get(name)
            append(self._content(event, make), text if type(text) is str else None)

    def _on_text(self, event: StreamEvent) -> None:
        place = (event.output_index, event.content_index)
        part = self._text
        if part is None or place != self._text_place:
            part = self._text = self._content(event, Text)
            self._text_place = place
        text = event.delta
        if text and part is not None:
            part.pieces.append(text)
            part.size += len(text)
            self.parts.deltas.append(PartDelta(part.index, text))

    def _on_call_text(self, event: StreamEvent) -> None:
        self._append_text(self._single_part(event), event.delta)

    def _end_call_text(self, event: StreamEvent) -> None:
        text = event.input if event.type == "response.custom_tool_call_input.done" else event.arguments
        self._append_missing_text(self._single_part(event), text)

    def _single_part(self, event: StreamEvent) -> _Part | None:
        item = self._items.get(event.output_index) if event.output_index is not None else self._last
        if item is None or item.is_done or item.kind == "message":
            return None
        return item.parts.get(None)

    def _on_reasoning(self, event: StreamEvent) -> None:
        item = self._item_at(event.output_index, "reasoning")
        part = item.parts.get(None)
        if part is None or item.is_done or item.kind != "reasoning":
            return
        is_summary = event.type == "response.reasoning_summary_text.delta"
        summary_section = (is_summary, event.summary_index if is_summary else event.content_index)
        if summary_section != item.summary_section:
            if item.summary_section is not None and item.summary_section[0] is not is_summary:
                return  # the summary and the content have the same thoughts; only the first of them counts
            if part.pieces:
                self._append_text(part, "\n\n")
            item.summary_section = summary_section
        self._append_text(part, event.delta)

    def _on_item_done(self, event: StreamEvent) -> None:
        key = event.output_index
        if key is None:
            key = len(self._items) if self._last is None else self._last.key
        if event.item is not None:
            self._close(key, event.item)

    def _close(self, key: int, final: Any) -> None:
        """End the parts of an item, whose final form is given."""
        item = self._items.get(key)
        if item is None:
            item = self._open(key, final if type(final) is dict else {"type": None})
        if item.is_done:
            return
        item.is_done = True
        self._text = None
        turn: list[Any] = [] if item.previous is None else [item.previous]
        before = len(turn)
        read_model_item(turn, final)
        parts = turn[before:]
        if item.place is not None:
            first, *parts = parts or [Native(FORMAT, item.item)]
            self.parts.whole(first, index=item.place)  # whatever it began as
        elif item.parts and isinstance(parts[0], Native):
            self._end_item(item)  # it began as something that its final form is not
            return
        begun = [item.parts[key] for key in sorted(item.parts, key=lambda number: number or 0)]
        for place, part in enumerate(parts):
            if isinstance(part, Native):
                self.parts.whole(part)
            else:
                self._end_as(begun[place] if place < len(begun) else self._begin_empty(item, place, part), part)
        for rest in begun[len(parts) :]:
            self.parts.end(rest.index)

    def _begin_empty(self, item: _Item, place: int, part: Any) -> _Part:
        """Begin a part that is known whole, without its text."""
        empty = {"arguments": ""} if isinstance(part, ToolCallRequest) else {"text": ""}
        return self._begin_part(item, place, structs.replace(part, native=None, **empty))

    def _end_as(self, begun: _Part, part: Any) -> None:
        """End a part whose final form is known."""
        self._append_missing_text(begun, part.arguments if isinstance(part, ToolCallRequest) else part.text)
        if part.native != begun.native:
            self.parts.extend(begun.index, part.native)
        self.parts.end(begun.index)

    def _end_item(self, item: _Item) -> None:
        """End the parts of an item as they are."""
        item.is_done = True
        if item.place is not None and not item.parts:
            self.parts.whole(Native(FORMAT, item.item), index=item.place)
        for part in item.parts.values():
            self.parts.end(part.index)

    def _on_terminal(self, event: StreamEvent) -> None:
        response = event.response or {}
        if response.get("status") == "failed":
            self._on_failed(event)
            return
        self._start(response)
        output = response.get("output")
        finals: list[Any] = output if type(output) is list else []
        # Indexes may have gaps in the events; the array has none.
        keys = sorted(self._items) if len(self._items) == len(finals) else range(len(finals))
        for key, final in zip(keys, finals, strict=True):
            self._close(key, final)
        for item in self._items.values():
            if not item.is_done:
                self._end_item(item)
        if "status" not in response:
            response = {**response, "status": str(event.type).removeprefix("response.")}
        usage = read_usage(response.get("usage"))
        if usage is not None:
            self.parts.deltas.append(UsageReported(usage))
        reason = read_stop_reason(response, self.parts.of(0))
        self._end(Finished(reason, native=response_extras(response, reason)))

    def _on_failed(self, event: StreamEvent) -> None:
        error = event.response.get("error") if event.response is not None else None
        self._fail(read_error(error if error is not None else {"message": "response failed"}))

    def _on_error(self, event: StreamEvent) -> None:
        error = event.error
        if error is None:
            error = {"code": event.code, "message": event.message, "param": event.param}
        self._fail(read_error(error))


_HANDLERS: dict[str, Callable[[StreamReader, StreamEvent], None]] = {
    "response.created": lambda reader, event: reader._start(event.response),
    "response.queued": lambda reader, event: reader._start(event.response),
    "response.in_progress": lambda reader, event: reader._start(event.response),
    "response.output_item.added": lambda reader, event: reader._announce(event.output_index, event.item),
    "response.output_item.done": StreamReader._on_item_done,
    "response.content_part.added": lambda reader, event: reader._on_part(event, reader._append_text),
    "response.content_part.done": lambda reader, event: reader._on_part(event, reader._append_missing_text),
    "response.output_text.delta": StreamReader._on_text,
    "response.output_text.done": lambda reader, event: reader._append_missing_text(
        reader._content(event, Text), event.text
    ),
    "response.refusal.delta": lambda reader, event: reader._append_text(reader._content(event, Refusal), event.delta),
    "response.refusal.done": lambda reader, event: reader._append_missing_text(
        reader._content(event, Refusal), event.refusal
    ),
    "response.function_call_arguments.delta": StreamReader._on_call_text,
    "response.function_call_arguments.done": StreamReader._end_call_text,
    "response.custom_tool_call_input.delta": StreamReader._on_call_text,
    "response.custom_tool_call_input.done": StreamReader._end_call_text,
    "response.reasoning_summary_text.delta": StreamReader._on_reasoning,
    "response.reasoning_text.delta": StreamReader._on_reasoning,
    "response.completed": StreamReader._on_terminal,
    "response.incomplete": StreamReader._on_terminal,
    "response.failed": StreamReader._on_failed,
    "response.cancelled": StreamReader._on_failed,
    "error": StreamReader._on_error,
}
