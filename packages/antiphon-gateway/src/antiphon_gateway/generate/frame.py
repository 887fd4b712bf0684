"""`StreamFrame`: how the events of a stream lie in its response, and what fills a silence of the model, also before its answer.

Most formats send their events as they are and have comments that clients pass over; Ollama has lines without content. Gemini
without `alt=sse` is one JSON array, where a blank line fills a silence. Google's clients end at a comment in an event stream,
some of them at a blank line, and an event without an answer makes their chats drop the turn. So there the next event is begun
early, and each keep-alive is a space before its JSON.
"""

from __future__ import annotations

import asyncio
from typing import cast

import msgspec

from antiphon.http.messages import ClientRequest, Response, ResponseStream
from antiphon.wire import Format
from antiphon.wire.delta import Failed
from antiphon.wire.inbound import OLLAMA, OLLAMA_GENERATE
from antiphon.wire.output import ProviderError
from antiphon.wire.streams.sse import SseReader
from antiphon_gateway.observe.record import Record

STREAM_HEADERS = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache",
    "x-accel-buffering": "no",
}
_LINES_HEADERS = {**STREAM_HEADERS, "content-type": "application/x-ndjson"}
_ARRAY_HEADERS = {**STREAM_HEADERS, "content-type": "application/json; charset=utf-8"}
_JSON_LINES = (OLLAMA, OLLAMA_GENERATE)
"""Formats whose streams are lines of JSON."""


class StreamFrame:
    """The frame of one stream of `model`. A keep-alive is sent after `interval` seconds of silence."""

    def __init__(self, wire: Format, model: str, interval: float, *, is_array: bool = False) -> None:
        self.interval = interval
        self.is_array = is_array
        self.headers = _ARRAY_HEADERS if is_array else _LINES_HEADERS if wire.name in _JSON_LINES else STREAM_HEADERS
        """Those of the response."""
        self.is_plain = not is_array and wire.spec.has_comments
        """Whether events need no frame."""
        self.wire = wire
        self.model = model
        """The name that the answer gives its model."""
        self._is_begun = False  # the array, or the next event
        self._events = SseReader() if is_array else None

    def keep_alive(self) -> bytes:
        """What the client gets now, while the model is silent."""
        if self.is_array:
            return b"\n"
        if not self.is_plain:
            is_begun, self._is_begun = self._is_begun, True
            return b" " if is_begun else self.wire.spec.keep_alive
        writer = self.wire.stream_writer(self.model)
        return cast(bytes, getattr(writer, "keep_alive", self.wire.spec.keep_alive))

    def wrap(self, events: bytes) -> bytes:
        """Whole events as the client gets them."""
        if self._events is not None:
            framed = b""
            for event in self._events.feed(events) if events else ():
                framed += (b",\r\n" if self._is_begun else b"[") + event.data
                self._is_begun = True
            return framed
        if self.is_plain or not self._is_begun or not events:
            return events
        self._is_begun = False
        beginning = self.wire.spec.keep_alive.rstrip()
        return events[len(beginning) :] if events.startswith(beginning) else b"{}\r\n\r\n" + events

    def close(self) -> bytes:
        """The end of the frame."""
        if not self.is_array:
            return b""
        return b"\n]" if self._is_begun else b"[]"

    def error(self, error: ProviderError) -> bytes:
        """A stream that is nothing but an error."""
        if self.is_array:
            return msgspec.json.encode([self.wire.write_error(error)])
        writer = self.wire.stream_writer(self.model)
        return self.wrap(writer.write(Failed(error)) + writer.close())


class EarlyStart:
    """Begins the response to a streaming request while its providers are silent.

    A provider may withhold even its headers, and a retry or a fallback adds to that. Clients and proxies give up on a connection
    without a byte, so after `hold` seconds the client gets the head of a stream and keep-alives. Nothing is shown by that: the
    call continues with its attempts as before. Only the status is decided, so a later error is an event of the stream.
    """

    def __init__(self, request: ClientRequest, record: Record, frame: StreamFrame, *, hold: float) -> None:
        self._request = request
        self._record = record
        self._frame = frame
        self._stream: ResponseStream | None = None
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(hold, self._tick)

    def stop(self) -> bool:
        """Send nothing more. Whether the response has begun."""
        self._timer.cancel()
        return self._stream is not None

    def _tick(self) -> None:
        begin = self._request.begin_early
        if self._stream is None and begin is not None:
            self._stream = begin(Response(headers=dict(self._frame.headers)))
            self._record.began_early = self._stream is not None
        if self._stream is not None:
            self._stream.write(self._frame.keep_alive())
            self._timer = self._loop.call_later(self._frame.interval, self._tick)
