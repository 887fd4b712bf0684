"""`StreamFrame`: how the events of a stream lie in its response, and what fills a silence of the model.

Most formats send their events as they are and have comments that clients pass over; Ollama has lines without content. Gemini
without `alt=sse` is one JSON array, where a blank line fills a silence. Google's clients end at a comment in an event stream,
some of them at a blank line, and an event without an answer makes their chats drop the turn. So there the next event is begun
early, and each keep-alive is a space before its JSON.
"""

from __future__ import annotations

from typing import cast

import msgspec

from antiphon.wire import Format
from antiphon.wire.delta import Failed
from antiphon.wire.output import ProviderError
from antiphon.wire.streams.sse import SseReader


class StreamFrame:
    """The frame of one stream of `model`. A keep-alive is sent after `interval` seconds of silence."""

    def __init__(self, wire: Format, model: str, interval: float, *, is_array: bool = False) -> None:
        self.interval = interval
        self.is_array = is_array
        self.is_plain = not is_array and wire.spec.has_comments
        """Whether events need no frame."""
        self._wire = wire
        self._model = model
        self._is_begun = False  # the array, or the next event
        self._events = SseReader() if is_array else None

    def keep_alive(self) -> bytes:
        """What the client gets now, while the model is silent."""
        if self.is_array:
            return b"\n"
        if not self.is_plain:
            is_begun, self._is_begun = self._is_begun, True
            return b" " if is_begun else self._wire.spec.keep_alive
        writer = self._wire.stream_writer(self._model)
        return cast(bytes, getattr(writer, "keep_alive", self._wire.spec.keep_alive))

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
        beginning = self._wire.spec.keep_alive.rstrip()
        return events[len(beginning) :] if events.startswith(beginning) else b"{}\r\n\r\n" + events

    def close(self) -> bytes:
        """The end of the frame."""
        if not self.is_array:
            return b""
        return b"\n]" if self._is_begun else b"[]"

    def error(self, error: ProviderError) -> bytes:
        """A stream that is nothing but an error."""
        if self.is_array:
            return msgspec.json.encode([self._wire.write_error(error)])
        writer = self._wire.stream_writer(self._model)
        return self.wrap(writer.write(Failed(error)) + writer.close())
