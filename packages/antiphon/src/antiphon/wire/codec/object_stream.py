"""Streams of named JSON events that build one object, item by item: the Responses and the Interactions API.

The reader calls a handler for each type of event; types that it does not know are skipped. It keeps the items that were announced
by their index; an event of an item that was not announced opens one. The writer passes each delta to the method that a format has
for it, and joins the events that the methods emit. Both start the object once, with the first event that needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, Protocol, TypeVar

import msgspec
from msgspec import structs

from antiphon.parts import NativeExtras, OutputPart
from antiphon.wire.codec.stream import DeltaReader, DeltaWriter, encode_line
from antiphon.wire.delta import (
    Finished,
    ModelOutputDelta,
    PartDelta,
    PartEnded,
    PartExtended,
    PartStarted,
    Started,
    UsageReported,
    overlaid,
)
from antiphon.wire.loss import lose_candidates
from antiphon.wire.output import ModelOutput, ProviderError
from antiphon.wire.sse import SseEvent, SseReader


class NamedEvent(Protocol):
    """An event: its type, and the error of one that has no type."""

    type: Any
    error: Any


class OpenItem(Protocol):
    """An item that is being read."""

    is_done: bool


class OpenPart(Protocol):
    """A part that is being written; `natives` are its extras and those it gained."""

    natives: list[NativeExtras | None]


AnyEvent = TypeVar("AnyEvent", bound=NamedEvent)
AnyItem = TypeVar("AnyItem", bound=OpenItem)
AnyPart = TypeVar("AnyPart", bound=OpenPart)


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


class ObjectStreamWriter(DeltaWriter, Generic[AnyPart]):
    """Writes one stream. Subclasses have a method for each delta, which emits events."""

    _single_candidate = ""
    """Why further candidates are lost."""
    _number_field = ""
    """The field of an event that has its number."""

    def __init__(self, model: str = "") -> None:
        super().__init__(model)
        self._started = Started()
        self._is_begun = False
        self._parts: dict[int, AnyPart] = {}
        self._number = 0
        """How many events were emitted."""
        self._out: list[bytes] = []

    def _write(self, delta: ModelOutputDelta) -> bytes:
        """The bytes of this delta."""
        if isinstance(delta, PartDelta):
            self._append_text(delta.index, delta.text)
        elif isinstance(delta, Started):
            self._begin(delta)
        elif isinstance(delta, UsageReported):
            self._usage = delta.usage
        elif isinstance(delta, PartStarted):
            self._begin(Started())
            if delta.candidate == 0:  # others are reported when they finish
                self._start_part(delta)
        elif isinstance(delta, PartExtended):
            part = self._parts.get(delta.index)
            if part is not None:
                part.natives.append(delta.native)
        elif isinstance(delta, PartEnded):
            self._end_part(delta.index)
        elif isinstance(delta, Finished):
            if delta.candidate == 0:
                self._begin(Started())
                self._finish(delta)
            else:
                lose_candidates(self.losses, 1, self._single_candidate)
        else:
            self._fail(delta.error)
        data = b"".join(self._out)
        self._out.clear()
        return data

    def resume(self, first: bytes, last: bytes) -> None:
        """Go on with the object that the upstream began, and with its count of events."""
        for event in decoded_events(first):
            self._resume_object(event)
        numbers = [event[self._number_field] for event in decoded_events(last) if self._number_field in event]
        if numbers and str(numbers[-1]).isdecimal():
            self._number = int(numbers[-1]) + 1

    def _resume_object(self, event: dict[str, Any]) -> None:
        """Take over the object of the event that began it."""

    def _send(self, kind: str, event: dict[str, Any]) -> None:
        """Add an event to what is written."""
        self._number += 1
        self._out.append(b"event: %b\ndata: %b\n\n" % (kind.encode(), encode_line(event)))

    def _complete(self, output: ModelOutput) -> ModelOutput:
        """The output with what the start of the stream and the usage have stated."""
        started = self._started
        return structs.replace(
            output,
            model=self._model or output.model or started.model,
            created=started.created,
            format=started.format,
            usage=self._usage,
            native=overlaid(started.native, output.native),
        )

    def _begin(self, started: Started) -> None:
        """Write the start of the object, once."""
        if not self._is_begun:
            self._is_begun = True
            self._write_start(started)

    def _write_start(self, started: Started) -> None:
        raise NotImplementedError

    def _start_part(self, started: PartStarted) -> None:
        raise NotImplementedError

    def _append_text(self, index: int, text: str) -> None:
        raise NotImplementedError

    def _end_part(self, index: int) -> None:
        raise NotImplementedError

    def _finish(self, finished: Finished) -> None:
        """Write the end of the object."""
        raise NotImplementedError

    def _fail(self, error: ProviderError) -> None:
        raise NotImplementedError


def decoded_events(data: bytes) -> list[dict[str, Any]]:
    """The JSON objects of whole events; what is none is left out."""
    found: list[dict[str, Any]] = []
    for event in SseReader().feed(data):
        try:
            found.append(msgspec.json.decode(event.data, type=dict[str, Any]))
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            continue
    return found


def finished_output(finished: Finished) -> ModelOutput:
    """What the end of a stream states about the output."""
    return ModelOutput(
        stop_reason=finished.stop_reason,
        stop_sequence=finished.stop_sequence,
        model=finished.model,
        native=finished.native,
    )
