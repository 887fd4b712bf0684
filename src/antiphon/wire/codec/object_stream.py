"""Streams of named JSON events that build one object, item by item: the Responses and the Interactions API.

The reader calls a handler for each type of event; types that it does not know are skipped. The writer passes each delta to the
method that a format has for it, and joins the events that the methods emit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, Protocol, TypeVar

import msgspec
from msgspec import structs

from antiphon.parts import NativeExtras
from antiphon.wire.codec.stream import DeltaReader, DeltaWriter
from antiphon.wire.delta import (
    Finished,
    ModelOutputDelta,
    PartDelta,
    PartEnded,
    PartExtended,
    PartStarted,
    Started,
    UsageReported,
    merged,
    overlaid,
)
from antiphon.wire.output import ModelOutput, ProviderError
from antiphon.wire.sse import SseEvent, SseReader

_encode = msgspec.json.Encoder().encode


class NamedEvent(Protocol):
    """An event: its type, and the error of one that has no type."""

    type: Any
    error: Any


class OpenPart(Protocol):
    """A part that is being written."""

    native: NativeExtras | None


AnyEvent = TypeVar("AnyEvent", bound=NamedEvent)
AnyPart = TypeVar("AnyPart", bound=OpenPart)


class ObjectStreamReader(DeltaReader[SseEvent], Generic[AnyEvent]):
    """Reads one stream: `decode` gives an event, and `handlers` have a function for each type."""

    def __init__(
        self, decode: Callable[[bytes], AnyEvent], handlers: Mapping[str, Callable[[Any, AnyEvent], None]]
    ) -> None:
        super().__init__(SseReader())
        self._decode = decode
        self._handlers = handlers

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


class ObjectStreamWriter(DeltaWriter, Generic[AnyPart]):
    """Writes one stream. Subclasses have a method for each delta, which emits events."""

    def __init__(self, model: str = "") -> None:
        super().__init__(model)
        self._started = Started()
        self._is_begun = False
        self._parts: dict[int, AnyPart] = {}
        self._number = 0
        """How many events were emitted."""
        self._out: list[bytes] = []

    def write(self, delta: ModelOutputDelta) -> bytes:
        """The bytes of this delta."""
        if self._has_ended:
            return b""
        if isinstance(delta, PartDelta):
            self._append_text(delta.index, delta.text)
        elif isinstance(delta, Started):
            self._begin(delta)
        elif isinstance(delta, UsageReported):
            self._usage = delta.usage
        elif isinstance(delta, PartStarted):
            self._start_part(delta)
        elif isinstance(delta, PartExtended):
            part = self._parts.get(delta.index)
            if part is not None:
                part.native = merged(part.native, delta.native)
        elif isinstance(delta, PartEnded):
            self._end_part(delta.index)
        elif isinstance(delta, Finished):
            self._finish(delta)
        else:
            self._fail(delta.error)
        data = b"".join(self._out)
        self._out.clear()
        return data

    def _send(self, kind: str, event: dict[str, Any]) -> None:
        """Add an event to what is written."""
        self._number += 1
        self._out.append(b"event: %b\ndata: %b\n\n" % (kind.encode(), _encode(event)))

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


def finished_output(finished: Finished) -> ModelOutput:
    """What the end of a stream states about the output."""
    return ModelOutput(
        stop_reason=finished.stop_reason,
        stop_sequence=finished.stop_sequence,
        model=finished.model,
        native=finished.native,
    )
