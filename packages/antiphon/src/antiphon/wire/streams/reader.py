"""The frame of stream readers: bytes into events, events into deltas, exactly one end.

Every event is decoded into one struct of its format. An object that does not fit is decoded to plain values: a field of another
type counts as absent, and a format may look at fields that its struct does not name. After a failure or the end of the answer,
further bytes are ignored. An event that cannot be decoded is malformed; after the last byte it is the piece of an event that was
cut off, and the format decides whether the answer was complete without it.

`PartStream` is the only place that numbers, opens and ends parts. `NamedEventReader` is for streams whose events have a type: it
calls a handler for each, and skips types that it does not know. `ItemReader` is for named events that build one object, item by
item: an event of an item that was never announced opens one.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import msgspec
from msgspec import structs

from antiphon.json_text import NOT_JSON, decode_json
from antiphon.parts import NativeExtras, OutputPart, ToolCallRequest
from antiphon.wire.delta import Failed, ModelOutputDelta, PartDelta, PartEnded, PartExtended, PartStarted, Started
from antiphon.wire.output import MAX_CANDIDATES, NOT_AN_ANSWER, STREAM_CUT, ProviderError
from antiphon.wire.streams.sse import SseEvent, SseOverflow, SseReader

CUT = ProviderError(STREAM_CUT, "stream_cut")


class PartStream:
    """The parts of one stream. `deltas` are those that were not taken yet."""

    __slots__ = ("_next", "_open", "_started", "deltas", "last")

    def __init__(self) -> None:
        self.deltas: list[ModelOutputDelta] = []
        self._started: dict[int, list[OutputPart]] = {}
        self.last: OutputPart | None = None
        self._next = 0
        self._open: set[int] = set()

    def reserve(self) -> int:
        """The index of a part that starts later."""
        self._next += 1
        return self._next - 1

    def start(self, part: OutputPart, candidate: int = 0, index: int | None = None) -> int:
        """Start a part at the next index, or at one that was reserved for it."""
        if index is None:
            index = self._next
            self._next += 1
        self._open.add(index)
        self.deltas.append(PartStarted(index, part, candidate))
        self._started.setdefault(candidate, []).append(part)
        self.last = part
        return index

    def of(self, candidate: int) -> list[OutputPart]:
        """The parts of a candidate, as they started."""
        return self._started.get(candidate, [])

    def text(self, index: int, text: str | None) -> None:
        if text:
            self.deltas.append(PartDelta(index, text))

    def extend(self, index: int, native: NativeExtras | None) -> None:
        if native:
            self.deltas.append(PartExtended(index, native))

    def end(self, index: int) -> None:
        if index in self._open:
            self._open.remove(index)
            self.deltas.append(PartEnded(index))

    def whole(self, part: OutputPart, candidate: int = 0, index: int | None = None) -> None:
        """A part that came in one piece. A call starts without its arguments, as every call does."""
        arguments = ""
        if type(part) is ToolCallRequest:
            part, arguments = structs.replace(part, arguments=""), part.arguments
        index = self.start(part, candidate, index)
        self.text(index, arguments)
        self.end(index)


class GrowingObject:
    """An object that comes in pieces: strings and lists grow, everything else is replaced, and null changes nothing.

    `growing` are the names of those that grow; None means all. Pieces of strings are joined once, at the end.
    """

    __slots__ = ("_growing", "_pieces", "fields")

    def __init__(self, fields: dict[str, Any], growing: Container[str] | None = None) -> None:
        self.fields = fields
        self._growing = growing
        self._pieces: dict[str, list[str]] = {}

    def add(self, more: Mapping[str, Any]) -> None:
        for name, value in more.items():
            known: Any = self.fields.get(name)
            grows = type(value) is type(known) and (self._growing is None or name in self._growing)
            if grows and type(value) is str:
                self._pieces.setdefault(name, [known]).append(value)
            elif grows and type(value) is list:
                known += value
            elif value is not None:
                self._pieces.pop(name, None)
                self.fields[name] = value

    def whole(self) -> dict[str, Any]:
        return self.fields | {name: "".join(pieces) for name, pieces in self._pieces.items()}


class EventSource(Protocol):
    """Splits bytes into events."""

    def feed(self, data: bytes) -> list[SseEvent]: ...
    def close(self) -> list[SseEvent]: ...


Event = TypeVar("Event")


class EventReader(Generic[Event]):
    """Reads one stream. `decode` makes an event of bytes; formats say what an event means, and what one that does not fit."""

    def __init__(self, source: EventSource, decode: Callable[[bytes], Event]) -> None:
        self.parts = PartStream()
        self._source = source
        self._decode = decode
        self._is_started = False
        self._is_over = False
        self._is_closing = False
        self._given = SseEvent(b"", b"")
        """The event that is read, for what its struct does not name."""

    def feed(self, data: bytes) -> list[ModelOutputDelta]:
        """The deltas that these bytes complete."""
        was_over = self._is_over
        if was_over:
            return []
        try:
            events = self._source.close() if self._is_closing else self._source.feed(data)
        except SseOverflow:
            events = []
            self._malformed("event too long")
        decode = self._decode
        for given in events:
            self._given = given
            try:
                event = decode(given.data)
            except NOT_JSON:
                self._read_odd(given)
            else:
                try:
                    self._read_event(event)
                except NOT_JSON:  # in a field that its struct does not name
                    self._malformed("event is not JSON")
            if self._is_over:
                break
        parts = self.parts
        taken, parts.deltas = parts.deltas, []
        if taken:
            self._is_started = True
        return taken

    def close(self) -> list[ModelOutputDelta]:
        """The stream ended: the deltas still pending, and `Failed` if it was not complete."""
        self._is_closing = True
        deltas = self.feed(b"")
        if not self._is_over:
            self._end_of_stream()
            deltas += self.parts.deltas
            self.parts.deltas = []
        return deltas

    def _read_event(self, event: Event) -> None:
        raise NotImplementedError

    def _read_odd(self, event: SseEvent) -> None:
        """An event that does not fit its struct."""
        try:
            value = decode_json(event.data)
        except NOT_JSON:
            data = event.data.strip()
            if data == b"[DONE]":
                self._on_done()
            elif data:
                self._malformed("event is not JSON")
            return
        if type(value) is dict:
            self._read_object(event.event, value)
        else:
            self._read_other(value)

    def _read_object(self, name: bytes, value: dict[str, Any]) -> None:
        """An event of plain values."""
        raise NotImplementedError

    def _read_other(self, value: Any) -> None:
        """An event that is not an object."""
        del value
        self._malformed("event is not an object")

    def _on_done(self) -> None:
        """OpenAI's end mark, which proxies add to other formats too."""

    def _end_of_stream(self) -> None:
        """The bytes ended before the answer."""
        self._fail(CUT)

    def _begin(self, started: Started) -> None:
        """Start the answer, once, and before everything else: a start that comes later says nothing."""
        if not self._is_started and not self.parts.deltas:
            self._is_started = True
            self.parts.deltas.append(started)

    def _malformed(self, problem: str) -> None:
        """An event cannot be read. The last one may have been cut: the end of the stream decides."""
        if not self._is_closing:
            self._fail(ProviderError(f"invalid stream: {problem}", "server", code=NOT_AN_ANSWER))

    def _fail(self, error: ProviderError) -> None:
        self._end(Failed(error))

    def _end(self, *deltas: ModelOutputDelta) -> None:
        """The last deltas of the stream."""
        if not self._is_over:
            self._is_over = True
            self.parts.deltas += deltas


Candidate = TypeVar("Candidate")


class CandidateReader(EventReader[Event], Generic[Event, Candidate]):
    """Reads a stream whose events have pieces of several candidates.

    They are numbered in the order in which they come, as in a whole answer, so that one comes first whatever its index is.
    """

    def __init__(self, source: EventSource, decode: Callable[[bytes], Event]) -> None:
        super().__init__(source, decode)
        self._candidates: dict[int, Candidate] = {}

    def _candidate(self, index: Any, position: int = 0) -> Candidate | None:
        """The candidate with an index, or at a position; None if that is impossible, which is the end."""
        number = index if type(index) is int and index >= 0 else position
        if number >= MAX_CANDIDATES:
            problem = f"invalid stream: candidate index {number} exceeds {MAX_CANDIDATES - 1}"
            self._fail(ProviderError(problem, "server"))
            return None
        if number not in self._candidates:
            self._candidates[number] = self._new_candidate(len(self._candidates))
        return self._candidates[number]

    def _new_candidate(self, number: int) -> Candidate:
        raise NotImplementedError


def fit_loosely(shape: type[Event], value: Mapping[str, Any]) -> Event:
    """A struct of the fields that fit; those of another type are absent."""
    try:
        return msgspec.convert(value, shape)
    except NOT_JSON:
        fitting: dict[str, Any] = {}
        for name in shape.__struct_encode_fields__:  # type: ignore[attr-defined]
            if name in value:
                try:
                    msgspec.convert({name: value[name]}, shape)
                except NOT_JSON:
                    continue
                fitting[name] = value[name]
        return msgspec.convert(fitting, shape)


class NamedEvent(Protocol):
    """An event: its type, and the error of one that has no type."""

    type: str | None
    error: Any


AnyEvent = TypeVar("AnyEvent", bound=NamedEvent)


class NamedEventReader(EventReader[AnyEvent]):
    """Reads a stream of events that `handlers` have a function for, by their type."""

    def __init__(self, event: type[AnyEvent], handlers: Mapping[str, Callable[[Any, AnyEvent], None]]) -> None:
        super().__init__(SseReader(), msgspec.json.Decoder(event).decode)
        self._event = event
        self._handlers = handlers

    def _read_event(self, event: AnyEvent) -> None:
        handler = self._handlers.get(event.type)  # type: ignore[arg-type]  # None finds nothing
        if handler is None:
            self._read_odd(self._given)
        else:
            handler(self, event)

    def _read_object(self, name: bytes, value: dict[str, Any]) -> None:
        event = fit_loosely(self._event, value)
        kind = event.type
        if kind is None:
            kind = "error" if event.error is not None else name.decode("utf-8", "replace")
        if kind in self._handlers:
            self._handlers[kind](self, event)

    def _fields(self) -> dict[str, Any]:
        """All fields of the event that is read."""
        fields: dict[str, Any] = decode_json(self._given.data)
        return fields


class OpenItem(Protocol):
    """An item that is being read."""

    is_done: bool


AnyItem = TypeVar("AnyItem", bound=OpenItem)


class ItemReader(NamedEventReader[AnyEvent], Generic[AnyEvent, AnyItem]):
    """Reads a stream that builds one object, item by item."""

    _format: ClassVar[str]

    def __init__(self, event: type[AnyEvent], handlers: Mapping[str, Callable[[Any, AnyEvent], None]]) -> None:
        super().__init__(event, handlers)
        self._items: dict[int, AnyItem] = {}
        self._last: AnyItem | None = None
        self._created: int | None = None

    def _start(self, fields: dict[str, Any] | None) -> None:
        """Start the answer with the fields of the object."""
        if not self._is_started:
            fields = fields or {}
            names = {name: fields[name] for name in ("id", "model") if type(fields.get(name)) is str}
            self._created = self._read_created(fields)
            self._begin(Started(**names, created=self._created, format=self._format))

    def _read_created(self, fields: dict[str, Any]) -> int | None:
        raise NotImplementedError

    def _announce(self, index: int | None, item: dict[str, Any] | None) -> None:
        """Open an item that an event announces."""
        key = len(self._items) if index is None else index
        if item is not None and key not in self._items:
            self._open(key, item)

    def _item_at(self, index: int | None, kind: str) -> AnyItem:
        """The item an event belongs to; one of this kind, if it was never announced."""
        if index is None:
            if self._last is not None and not self._last.is_done:
                return self._last
            index = len(self._items)
        found = self._items.get(index)
        return found if found is not None else self._open(index, {"type": kind})

    def _open(self, key: int, item: dict[str, Any]) -> AnyItem:
        raise NotImplementedError
