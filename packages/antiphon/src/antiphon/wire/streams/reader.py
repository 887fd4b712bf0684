"""The frame of stream readers: each stream has exactly one end.

A reader of a format decodes events and appends deltas to `_out`. After a failure or the end of the answer, further bytes are
ignored. An event that cannot be decoded is malformed; after the last byte it is the piece of an event that was cut off.

`ObjectStreamReader` is for streams of named events that build one object, item by item: the Responses and the Interactions API.
It calls a handler for each type of event; types that it does not know are skipped. It keeps the items that were announced by
their index; an event of an item that was not announced opens one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from antiphon.parts import OutputPart
from antiphon.wire.delta import Failed, ModelOutputDelta, PartStarted, Started
from antiphon.wire.output import NOT_AN_ANSWER, STREAM_CUT, ProviderError
from antiphon.wire.streams.sse import SseEvent, SseOverflow, SseReader

Event = TypeVar("Event")

CUT = ProviderError(STREAM_CUT, "stream_cut")


class EventSource(Protocol[Event]):
    """Splits bytes into events."""

    def feed(self, data: bytes) -> list[Event]: ...
    def close(self) -> list[Event]: ...


class DeltaReader(Generic[Event]):
    """Reads one stream. Subclasses implement `_read_events`, and `_end_of_stream` if a stream may end without a last event."""

    def __init__(self, source: EventSource[Event]) -> None:
        self._source = source
        self._out: list[ModelOutputDelta] = []
        self._is_over = False
        self._is_closing = False

    def feed(self, data: bytes) -> list[ModelOutputDelta]:
        """The deltas that these bytes complete."""
        if self._is_over:
            return []
        try:
            self._read_events(self._source.feed(data))
        except SseOverflow:
            self._fail(self._malformed("event too long"))
        return self._take()

    def close(self) -> list[ModelOutputDelta]:
        """The stream ended: the deltas still pending, and `Failed` if it was not complete."""
        if not self._is_over:
            self._is_closing = True
            self._read_events(self._source.close())
        if not self._is_over:
            self._end_of_stream()
        return self._take()

    def _read_events(self, events: list[Event]) -> None:
        """Append the deltas of events; nothing after `_is_over`."""
        raise NotImplementedError

    def _end_of_stream(self) -> None:
        """The bytes ended before the answer."""
        self._fail(CUT)

    def _malformed(self, problem: str) -> ProviderError:
        """The error for an event that cannot be read."""
        return CUT if self._is_closing else ProviderError(f"invalid stream: {problem}", "server", code=NOT_AN_ANSWER)

    def _fail(self, error: ProviderError) -> None:
        if not self._is_over:
            self._is_over = True
            self._out.append(Failed(error))

    def _take(self) -> list[ModelOutputDelta]:
        taken, self._out = self._out, []
        return taken


class NamedEvent(Protocol):
    """An event: its type, and the error of one that has no type."""

    type: Any
    error: Any


class OpenItem(Protocol):
    """An item that is being read."""

    is_done: bool


AnyEvent = TypeVar("AnyEvent", bound=NamedEvent)
AnyItem = TypeVar("AnyItem", bound=OpenItem)


class ObjectStreamReader(DeltaReader[SseEvent], Generic[AnyEvent, AnyItem]):
    """Reads one stream: `decode` gives an event, and `handlers` have a function for each type."""

    _format = ""

    def __init__(
        self, decode: Callable[[bytes], AnyEvent], handlers: Mapping[str, Callable[[Any, AnyEvent], None]]
    ) -> None:
        super().__init__(SseReader())
        self._decode = decode
        self._handlers = handlers
        self._items: dict[Any, AnyItem] = {}
        self._last: AnyItem | None = None
        self._last_part: OutputPart | None = None
        self._next = 0
        self._is_started = False
        self._created: int | None = None

    def _read_events(self, events: list[SseEvent]) -> None:
        decode, handlers = self._decode, self._handlers
        for name, data in events:
            try:
                event = decode(data)
            except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
                if not data or data == b"[DONE]":
                    continue
                self._fail(self._malformed(f"event is not a JSON object: {error}"))
                return
            kind = event.type
            if type(kind) is not str:
                if kind is not None:
                    continue
                kind = "error" if event.error is not None else name.decode("utf-8", "replace")
            if kind in handlers:
                handlers[kind](self, event)
                if self._is_over:
                    return

    def _start(self, given: Any) -> None:
        """Start the answer with the fields of the object, once."""
        if self._is_started:
            return
        self._is_started = True
        fields = given if type(given) is dict else {}
        names = {name: fields[name] for name in ("id", "model") if type(fields.get(name)) is str}
        self._created = self._read_created(fields)
        self._out.append(Started(**names, created=self._created, format=self._format))

    def _read_created(self, fields: dict[str, Any]) -> int | None:
        raise NotImplementedError

    def _announce(self, index: Any, item: Any) -> None:
        """Open an item that an event announces."""
        key = index if type(index) is int else len(self._items)
        if type(item) is dict and key not in self._items:
            self._open(key, item)

    def _item_at(self, index: Any, kind: str) -> AnyItem:
        """The item an event belongs to; one of this kind, if it was never announced."""
        if type(index) is not int:
            if self._last is not None and not self._last.is_done:
                return self._last
            index = len(self._items)
        found = self._items.get(index)
        return found if found is not None else self._open(index, {"type": kind})

    def _open(self, key: Any, item: dict[str, Any]) -> AnyItem:
        raise NotImplementedError

    def _take_index(self) -> int:
        """The index of the next part."""
        self._next += 1
        return self._next - 1

    def _start_part(self, part: OutputPart, index: int | None = None) -> int:
        """Start a part, at the next index or at one that was kept for it."""
        index = self._take_index() if index is None else index
        self._last_part = part
        self._out.append(PartStarted(index, part))
        return index
