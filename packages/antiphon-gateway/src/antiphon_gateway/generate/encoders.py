"""Stream encoders: upstream events to the bytes a client gets.

Pass-through (same format), translating (through deltas), call reading (calls in text), recording (for stored responses), JSON
array (Gemini without `alt=sse`) and early event (Gemini with it). A Chat Completions host reports the usage of a stream only on
request, in an extra chunk without choices; where the gateway requested it and the client did not, `UsageHidingEncoder` removes
the chunk.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import msgspec
from msgspec import Struct, structs

from antiphon.tools.embedded import EmbeddedCalls
from antiphon.wire import Format
from antiphon.wire.delta import Assembler, Failed, Finished, ModelOutputDelta, Started, UsageReported
from antiphon.wire.loss import Loss
from antiphon.wire.output import ModelOutput
from antiphon.wire.sse import SseReader
from antiphon.wire.tool_calls import CallRestorer
from antiphon_gateway.generate.answer_model import StreamModel
from antiphon_gateway.generate.early_start import KeepAlive
from antiphon_gateway.generate.usage_scanner import EventBuffer


class StreamEncoder(Protocol):
    """Encodes upstream events for the client."""

    @property
    def losses(self) -> list[Loss]:
        """What the client's format could not express."""

    def feed(self, piece: bytes, deltas: list[ModelOutputDelta]) -> bytes:
        """The bytes for the client."""

    def finish(self, failed: Failed | None) -> bytes:
        """The last bytes; with an error, if the stream broke."""


class PassThroughEncoder:
    """The upstream's own bytes, in whole events: a partial one is held, since a comment or an error may come before the rest.

    Events that the format's official client cannot read are corrected, and the model has the name that the client asked for.
    """

    losses: list[Loss] = []  # noqa: RUF012 - bytes that pass as they came lose nothing

    def __init__(self, wire: Format, requested_model: str) -> None:
        self._wire = wire
        self._requested_model = requested_model
        self._events = EventBuffer()
        self._normalizer = wire.stream_normalizer()
        self._model: StreamModel | None = StreamModel(wire.name, requested_model)
        self._first = self._last = b""  # the first event that the client got, and the last ones

    def feed(self, piece: bytes, _: list[ModelOutputDelta]) -> bytes:
        events = self._events.feed(piece)
        if self._model is not None and events:
            events = self._model.feed(events)
            if self._model.is_done:
                self._model = None
        if events:
            self._first = self._first or next(filter(_has_data, _ends_of_events.split(events)), b"")
            self._last = events
        return self._normalizer.feed(events) if self._normalizer is not None and events else events

    def finish(self, failed: Failed | None) -> bytes:
        if failed is None:
            return self._events.close()
        writer = self._wire.stream_writer(self._requested_model)
        writer.resume(self._first, self._last)
        return writer.write(failed)


class TranslatingEncoder:
    """The stream in the client's format, with the names of its request."""

    def __init__(
        self,
        wire: Format,
        requested_model: str,
        restorer: CallRestorer,
        id_of: Callable[[str], str],
        *,
        hides_usage: bool = False,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self._wire = wire
        self._settings = settings  # of the request, where responses repeat them
        self._writer = wire.stream_writer(requested_model)
        self._hides_usage = hides_usage  # a chat client that did not request it may fail on a chunk without choices
        self._requested_model = requested_model
        self._restorer = restorer
        self._id_of = id_of

    @property
    def losses(self) -> list[Loss]:
        return self._writer.losses

    def feed(self, _: bytes, deltas: list[ModelOutputDelta]) -> bytes:
        write = self._writer.write
        if deltas and isinstance(deltas[0], Started):
            started = structs.replace(deltas[0], id=self._id_of(deltas[0].id), model=self._requested_model)
            deltas = [started, *deltas[1:]]
        if self._settings is not None:
            deltas = [
                self._with_settings(delta, self._settings) if isinstance(delta, Started | Finished) else delta
                for delta in deltas
            ]
        if self._hides_usage:
            deltas = [delta for delta in deltas if not isinstance(delta, UsageReported)]
        return b"".join([write(data) for delta in deltas for data in self._restorer.delta(delta)])

    def _with_settings(self, delta: Started | Finished, settings: Mapping[str, Any]) -> ModelOutputDelta:
        """A delta with the settings of the request. The end of an answer of another format has none of its own to complete."""
        if isinstance(delta, Finished) and self._wire.name not in (delta.native or ()):
            return delta
        return structs.replace(delta, native=self._wire.repeat_settings(delta.native, settings))

    def finish(self, failed: Failed | None) -> bytes:
        last = self._writer.write(failed) if failed is not None else b""
        return last + self._writer.close()


class CallReadingEncoder:
    """Wraps an encoder of deltas: calls that the model wrote into its text become calls of the stream."""

    def __init__(self, encoder: StreamEncoder, calls: EmbeddedCalls) -> None:
        self._encoder = encoder
        self._calls = calls

    @property
    def losses(self) -> list[Loss]:
        return self._encoder.losses

    def feed(self, _: bytes, deltas: list[ModelOutputDelta]) -> bytes:
        read = [more for delta in deltas for more in self._calls.feed(delta)]
        return self._encoder.feed(b"", read) if read else b""

    def finish(self, failed: Failed | None) -> bytes:
        rest = self._calls.close()
        last = self._encoder.feed(b"", rest) if rest else b""
        return last + self._encoder.finish(failed)


class RecordingEncoder:
    """Wraps an encoder and records the stream: `output` is the whole answer, `body` the object that a client gets of it later.

    The last event of a Responses stream has the object. Where it does not (Interactions), the client's own stream is read.
    """

    def __init__(self, encoder: StreamEncoder, wire: Format) -> None:
        self.body = b""
        self._whole = None if wire.name == "openai-responses" else WholeAnswer(wire)
        self._encoder = encoder
        self._assembler = Assembler()

    @property
    def output(self) -> ModelOutput:
        return self._assembler.output

    @property
    def losses(self) -> list[Loss]:
        return self._encoder.losses

    def feed(self, piece: bytes, deltas: list[ModelOutputDelta]) -> bytes:
        for delta in deltas:
            self._assembler.add(delta)
        return self._capture_final(self._encoder.feed(piece, deltas))

    def finish(self, failed: Failed | None) -> bytes:
        return self._capture_final(self._encoder.finish(failed))

    def _capture_final(self, data: bytes) -> bytes:
        if self._whole is not None:
            if data and self._whole.feed(data):
                self.body = self._whole.encode()
        elif b"response.completed" in data or b"response.incomplete" in data:
            for event in SseReader().feed(data):
                if event.event in (b"response.completed", b"response.incomplete"):
                    self.body = bytes(msgspec.json.decode(event.data, type=_Completed).response)
        return data


class WholeAnswer:
    """Assembles the answer that a stream of a format carries."""

    def __init__(self, wire: Format) -> None:
        self._wire = wire
        self._reader = wire.stream_reader()
        self._assembler = Assembler()

    def feed(self, data: bytes) -> bool:
        """Read more of the stream. Returns whether the answer is complete."""
        for delta in self._reader.feed(data):
            self._assembler.add(delta)
        return self._assembler.is_finished

    def encode(self) -> bytes:
        """The answer so far as an object of the format."""
        return self._wire.encode_response(self._assembler.output).data


class _Completed(Struct):
    response: msgspec.Raw


class JsonArrayEncoder:
    """Wraps an encoder and writes its events as one JSON array: Gemini's stream without `alt=sse`."""

    def __init__(self, encoder: StreamEncoder) -> None:
        self._encoder = encoder
        self._events = SseReader()
        self._is_begun = False

    @property
    def losses(self) -> list[Loss]:
        return self._encoder.losses

    def feed(self, piece: bytes, deltas: list[ModelOutputDelta]) -> bytes:
        return self._to_array(self._encoder.feed(piece, deltas))

    def finish(self, failed: Failed | None) -> bytes:
        return self._to_array(self._encoder.finish(failed)) + (b"\n]" if self._is_begun else b"[]")

    def _to_array(self, data: bytes) -> bytes:
        framed = b""
        for event in self._events.feed(data) if data else ():
            framed += (b",\r\n" if self._is_begun else b"[") + event.data
            self._is_begun = True
        return framed


class EarlyEventEncoder:
    """Wraps an encoder and completes the events that keep-alives began."""

    def __init__(self, encoder: StreamEncoder, keep_alive: KeepAlive) -> None:
        self._encoder = encoder
        self._keep_alive = keep_alive

    @property
    def losses(self) -> list[Loss]:
        return self._encoder.losses

    def feed(self, piece: bytes, deltas: list[ModelOutputDelta]) -> bytes:
        return self._keep_alive.complete(self._encoder.feed(piece, deltas))

    def finish(self, failed: Failed | None) -> bytes:
        return self._keep_alive.complete(self._encoder.finish(failed))


def framed(encoder: StreamEncoder, keep_alive: KeepAlive) -> StreamEncoder:
    """The encoder, with its events in the frame of the stream."""
    if keep_alive.is_array:
        return JsonArrayEncoder(encoder)
    return EarlyEventEncoder(encoder, keep_alive) if keep_alive.begins_events else encoder


_may_hold_chunk = re.compile(rb'"choices"\s*:\s*\[\s*\]').search
_ends_of_events = re.compile(rb"(?<=\n\n)|(?<=\n\r\n)|(?<=\r\r)")
_has_data = re.compile(rb"^data:", re.MULTILINE).search


class UsageHidingEncoder(PassThroughEncoder):
    """The upstream's own events without the usage chunk."""

    def feed(self, piece: bytes, deltas: list[ModelOutputDelta]) -> bytes:
        events = super().feed(piece, deltas)
        return without_usage(events) if any(isinstance(delta, UsageReported) for delta in deltas) else events


def without_usage(events: bytes) -> bytes:
    """Whole events without chunks that contain only usage."""
    if not _may_hold_chunk(events):
        return events
    return b"".join(event for event in _ends_of_events.split(events) if not _is_usage_alone(event))


def _is_usage_alone(event: bytes) -> bool:
    if not _may_hold_chunk(event):
        return False
    for read in SseReader().feed(event):
        try:
            chunk = msgspec.json.decode(read.data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return False
        if not isinstance(chunk, dict) or chunk.get("choices") or not chunk.get("usage"):
            return False
    return True
