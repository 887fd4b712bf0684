"""Streams of OpenAI Responses: `StreamReader` here, `StreamWriter` in `stream_writer`.

Theory of operation of the reader. Events are told apart by `type` and belong to the item at their `output_index`: some hosts
change an item's id with every event. An item opens its parts as early as something is known of them (a call with its name, a
text with its first piece) and closes them with its `output_item.done`, whose values are final. What was not streamed of a text
by then is given as one last piece; extras that only the whole item has come as `PartExtended`. Hosted tools are one `Native`
part, given when whole, at the index they had when they began. Where `done` events are missing, the terminal event's `response`
stands in for them, and where that has no `output` (ChatGPT), the events do for it.

The usage and the object's own fields come from the terminal event. `error` and `response.failed` are failures, and so are
events that are no JSON and streams that end without a terminal event. `[DONE]`, unknown events, and all that follows the
terminal event are passed over.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from antiphon.parts import Native, NativeExtras, OutputPart, Refusal, Text, Thinking, ToolCallRequest
from antiphon.wire.delta import (
    Failed,
    Finished,
    ModelOutputDelta,
    PartDelta,
    PartEnded,
    PartExtended,
    PartStarted,
    Started,
    UsageReported,
)
from antiphon.wire.openai_responses.content import FORMAT, Body
from antiphon.wire.openai_responses.errors import read_error
from antiphon.wire.openai_responses.event import StreamEvent, decode_event
from antiphon.wire.openai_responses.items import read_model_item
from antiphon.wire.openai_responses.response import created_of, read_usage, response_extras, stop_reason
from antiphon.wire.openai_responses.stream_writer import StreamWriter
from antiphon.wire.output import ProviderError
from antiphon.wire.sse import SseEvent, SseOverflow, SseReader

__all__ = ["StreamReader", "StreamWriter"]


class _Part:
    """A part that was started: what of it was said so far."""

    __slots__ = ("index", "native", "pieces")

    def __init__(self, index: int, native: NativeExtras | None) -> None:
        self.index = index
        self.native = native
        self.pieces: list[str] = []


class _Item:
    """An item under way. Message items have a part per content index, others at most one."""

    __slots__ = ("is_done", "item", "kind", "parts", "place", "previous", "section")

    def __init__(self, item: Body, kind: Any, previous: OutputPart | None) -> None:
        self.item = item
        self.kind = kind
        self.previous = previous
        self.parts: dict[Any, _Part] = {}
        self.is_done = False
        self.place: int | None = None  # the index that a part given only when whole will have
        self.section: Any = None  # which summary or content of reasoning was said last


_NO_ITEM: Body = {}
_TEXT_DELTA = "response.output_text.delta"  # most of the events of most streams


class StreamReader:
    """Bytes of one stream in, deltas out."""

    def __init__(self) -> None:
        self._sse = SseReader()
        self._items: dict[Any, _Item] = {}
        self._last: _Item | None = None
        self._last_part: OutputPart | None = None
        self._parts: list[OutputPart] = []  # one of each kind that was said, for the stop reason
        self._text: _Part | None = None  # where the last piece of text went
        self._text_place: tuple[Any, Any] = (None, None)
        self._next = 0
        self._is_started = False
        self._is_over = False
        self._out: list[ModelOutputDelta] = []
        self._handlers: dict[str, Callable[[StreamEvent], None]] = {
            "response.created": self._on_lifecycle,
            "response.queued": self._on_lifecycle,
            "response.in_progress": self._on_lifecycle,
            "response.output_item.added": self._on_item_added,
            "response.output_item.done": self._on_item_done,
            "response.content_part.added": self._on_part_added,
            "response.content_part.done": self._on_part_done,
            "response.output_text.done": self._on_text_done,
            "response.refusal.delta": self._on_refusal,
            "response.refusal.done": self._on_refusal_done,
            "response.function_call_arguments.delta": self._on_call_text,
            "response.function_call_arguments.done": self._on_arguments_done,
            "response.custom_tool_call_input.delta": self._on_call_text,
            "response.custom_tool_call_input.done": self._on_input_done,
            "response.reasoning_summary_text.delta": self._on_reasoning,
            "response.reasoning_text.delta": self._on_reasoning,
            "response.completed": self._on_terminal,
            "response.incomplete": self._on_terminal,
            "response.failed": self._on_failed,
            "response.cancelled": self._on_failed,
            "error": self._on_error,
        }

    def feed(self, data: bytes) -> list[ModelOutputDelta]:
        """The deltas that these bytes complete."""
        if self._is_over:
            return []
        try:
            events = self._sse.feed(data)
        except SseOverflow:
            self._fail(ProviderError("an event of the stream is too large", "server"))
            events = []
        return self._read(events)

    def close(self) -> list[ModelOutputDelta]:
        """The deltas of what was held back, and `Failed` if the stream should not have ended here."""
        if self._is_over:
            return []
        cut = ProviderError("the stream ended before the response was complete", "stream_cut")
        deltas = self._read(self._sse.close(), cut)
        if not self._is_over:
            self._fail(cut)
            deltas.extend(self._taken())
        return deltas

    def _read(self, events: list[SseEvent], cut: ProviderError | None = None) -> list[ModelOutputDelta]:
        handlers = self._handlers
        for name, data in events:
            if data == b"[DONE]" or not data:
                continue
            try:
                event = decode_event(data)
            except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
                self._fail(cut or ProviderError(f"an event of the stream is no JSON object: {error}", "server"))
                break
            kind = event.type
            if kind == _TEXT_DELTA:
                self._on_text(event)
                continue
            if kind is None:
                kind = "error" if event.error is not None else name.decode("utf-8", "replace")
            handler = handlers.get(kind) if type(kind) is str else None
            if handler is not None:
                handler(event)
                if self._is_over:
                    break
        return self._taken()

    def _taken(self) -> list[ModelOutputDelta]:
        taken, self._out = self._out, []
        return taken

    def _fail(self, error: ProviderError) -> None:
        self._is_over = True
        self._out.append(Failed(error))

    def _start(self, response: Any) -> None:
        """Begin the answer, with what the first event knows of it."""
        self._is_started = True
        given = response if type(response) is dict else {}
        response_id, model = given.get("id"), given.get("model")
        self._out.append(
            Started(
                response_id if type(response_id) is str else "",
                model if type(model) is str else "",
                created_of(given),
                FORMAT,
            )
        )

    def _on_lifecycle(self, event: StreamEvent) -> None:
        if not self._is_started:
            self._start(event.response)

    def _on_item_added(self, event: StreamEvent) -> None:
        key = event.output_index if type(event.output_index) is int else len(self._items)
        if type(event.item) is dict and key not in self._items:
            self._open(key, event.item)

    def _open(self, key: Any, item: Body) -> _Item:
        if not self._is_started:
            self._start(None)
        kind = item.get("type")
        opened = _Item(item, kind, self._last_part)
        self._items[key] = self._last = opened
        if kind == "function_call" or kind == "custom_tool_call":
            self._open_call(opened)
        elif kind == "reasoning":
            item_id = item.get("id")
            native: NativeExtras | None = {FORMAT: {"id": item_id}} if item_id is not None else None
            self._begin(opened, None, Thinking(native=native))
        elif kind != "message":
            opened.place = self._next
            self._next += 1
        return opened

    def _open_call(self, opened: _Item) -> None:
        item = opened.item
        name, call_id, item_id = item.get("name"), item.get("call_id"), item.get("id")
        if type(name) is str and type(call_id) is str:
            native: NativeExtras | None = {FORMAT: {"id": item_id}} if item_id is not None else None
            call = ToolCallRequest(name, call_id, "", opened.kind == "custom_tool_call", native=native)
            self._begin(opened, None, call)

    def _begin(self, item: _Item, key: Any, part: OutputPart, index: int | None = None) -> _Part:
        if index is None:
            index = self._next
            self._next += 1
        begun = item.parts[key] = _Part(index, None if isinstance(part, Native) else part.native)
        self._parts.append(part)
        self._last_part = part
        self._out.append(PartStarted(index, part))
        return begun

    def _item_of(self, event: StreamEvent, kind: str) -> _Item:
        """The item an event belongs to; one of this kind, if it was never announced."""
        key = event.output_index
        if type(key) is not int:
            if self._last is not None and not self._last.is_done:
                return self._last
            key = len(self._items)
        found = self._items.get(key)
        return found if found is not None else self._open(key, {"type": kind})

    def _content(self, event: StreamEvent, make: type[Text] | type[Refusal]) -> _Part | None:
        """The part of a message that an event belongs to."""
        item = self._item_of(event, "message")
        if item.is_done or item.kind != "message":
            return None
        key = event.content_index
        part = item.parts.get(key)
        if part is None:
            native: NativeExtras | None = None
            item_id = item.item.get("id")
            if not item.parts and (item_id is not None or isinstance(item.previous, Text | Refusal)):
                native = {FORMAT: {"item": {} if item_id is None else {"id": item_id}}}
            part = self._begin(item, key, make("", native=native))
        return part

    def _say(self, part: _Part, text: Any) -> None:
        if type(text) is str and text:
            part.pieces.append(text)
            self._out.append(PartDelta(part.index, text))

    def _complete(self, part: _Part, text: Any) -> None:
        """Say what is missing of a text that is known whole now."""
        if type(text) is str:
            said = "".join(part.pieces)
            if len(text) > len(said) and text.startswith(said):
                self._say(part, text[len(said) :])

    def _on_part_added(self, event: StreamEvent) -> None:
        given = event.part if type(event.part) is dict else _NO_ITEM
        if given.get("type") == "output_text":
            part = self._content(event, Text)
            if part is not None:
                self._say(part, given.get("text"))
        elif given.get("type") == "refusal":
            part = self._content(event, Refusal)
            if part is not None:
                self._say(part, given.get("refusal"))

    def _on_part_done(self, event: StreamEvent) -> None:
        given = event.part if type(event.part) is dict else _NO_ITEM
        if given.get("type") == "output_text":
            self._finish_text(event, Text, given.get("text"))
        elif given.get("type") == "refusal":
            self._finish_text(event, Refusal, given.get("refusal"))

    def _on_text(self, event: StreamEvent) -> None:
        place = (event.output_index, event.content_index)
        part = self._text
        if part is None or place != self._text_place:
            part = self._text = self._content(event, Text)
            self._text_place = place
        if part is not None:
            text = event.delta
            if type(text) is str and text:
                part.pieces.append(text)
                self._out.append(PartDelta(part.index, text))

    def _on_text_done(self, event: StreamEvent) -> None:
        self._finish_text(event, Text, event.text)

    def _on_refusal(self, event: StreamEvent) -> None:
        part = self._content(event, Refusal)
        if part is not None:
            self._say(part, event.delta)

    def _on_refusal_done(self, event: StreamEvent) -> None:
        self._finish_text(event, Refusal, event.refusal)

    def _finish_text(self, event: StreamEvent, make: type[Text] | type[Refusal], text: Any) -> None:
        part = self._content(event, make)
        if part is not None:
            self._complete(part, text)

    def _on_call_text(self, event: StreamEvent) -> None:
        part = self._only_part(event)
        if part is not None:
            self._say(part, event.delta)

    def _on_arguments_done(self, event: StreamEvent) -> None:
        part = self._only_part(event)
        if part is not None:
            self._complete(part, event.arguments)

    def _on_input_done(self, event: StreamEvent) -> None:
        part = self._only_part(event)
        if part is not None:
            self._complete(part, event.input)

    def _only_part(self, event: StreamEvent) -> _Part | None:
        item = self._items.get(event.output_index) if type(event.output_index) is int else self._last
        if item is None or item.is_done or item.kind == "message":
            return None
        return item.parts.get(None)

    def _on_reasoning(self, event: StreamEvent) -> None:
        item = self._item_of(event, "reasoning")
        part = item.parts.get(None)
        if part is None or item.is_done or item.kind != "reasoning":
            return
        is_summary = event.type == "response.reasoning_summary_text.delta"
        section = (is_summary, event.summary_index if is_summary else event.content_index)
        if section != item.section:
            if item.section is not None and item.section[0] is not is_summary:
                return  # the other telling of the same thoughts
            if part.pieces:
                self._say(part, "\n\n")
            item.section = section
        self._say(part, event.delta)

    def _on_item_done(self, event: StreamEvent) -> None:
        key = event.output_index
        if type(key) is not int:
            key = next((number for number, item in self._items.items() if item is self._last), len(self._items))
        if type(event.item) is dict:
            self._close(key, event.item)

    def _close(self, key: Any, final: Any) -> None:
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
        if item.parts and isinstance(parts[0], Native):
            self._end(item)  # it began as something that its final form is not
            return
        keys = sorted(item.parts, key=lambda number: number if type(number) is int else 0)
        for place, part in enumerate(parts):
            begun = item.parts[keys[place]] if place < len(keys) else None
            self._end_with(item, place, begun, part)
        for number in keys[len(parts) :]:
            self._out.append(PartEnded(item.parts[number].index))
        self._last_part = parts[-1]

    def _end_with(self, item: _Item, place: int, begun: _Part | None, part: Any) -> None:
        """End a part whose final form is known, beginning it if that was not done."""
        if isinstance(part, Native):
            self._begin(item, None, part, item.place)
            self._out.append(PartEnded(item.parts[None].index))
            return
        text = part.arguments if isinstance(part, ToolCallRequest) else part.text
        if begun is None:
            begun = self._begin(item, place, _empty(part))
        self._complete(begun, text)
        if part.native is not None and part.native != begun.native:
            self._out.append(PartExtended(begun.index, part.native))
        self._out.append(PartEnded(begun.index))

    def _end(self, item: _Item) -> None:
        """End the parts of an item as they are."""
        item.is_done = True
        if item.place is not None and not item.parts:
            self._begin(item, None, Native(FORMAT, item.item), item.place)
        for part in item.parts.values():
            self._out.append(PartEnded(part.index))

    def _on_terminal(self, event: StreamEvent) -> None:
        response: Body = event.response if type(event.response) is dict else {}
        if response.get("status") == "failed":
            self._on_failed(event)
            return
        if not self._is_started:
            self._start(response)
        output = response.get("output")
        finals: list[Any] = output if type(output) is list else []
        # Indexes may have gaps in the events; the array has none.
        keys = sorted(self._items) if len(self._items) == len(finals) else range(len(finals))
        for key, final in zip(keys, finals, strict=True):
            self._close(key, final)
        for item in self._items.values():
            if not item.is_done:
                self._end(item)
        if "status" not in response:
            response = {**response, "status": str(event.type).removeprefix("response.")}
        usage = read_usage(response.get("usage"))
        if usage is not None:
            self._out.append(UsageReported(usage))
        reason = stop_reason(response, self._parts)
        self._out.append(Finished(reason, native=response_extras(response, reason)))
        self._is_over = True

    def _on_failed(self, event: StreamEvent) -> None:
        response = event.response if type(event.response) is dict else {}
        error = response.get("error")
        self._fail(read_error(error if error is not None else {"message": "the response failed"}))

    def _on_error(self, event: StreamEvent) -> None:
        error = event.error
        if error is None:
            error = {"code": event.code, "message": event.message, "param": event.param}
        self._fail(read_error(error))


def _empty(part: Any) -> OutputPart:
    """The part as it begins: its text is still to come."""
    if isinstance(part, ToolCallRequest):
        return ToolCallRequest(part.tool_name, part.tool_call_id, "", part.freeform)
    empty: Text | Thinking | Refusal = type(part)("")
    return empty
