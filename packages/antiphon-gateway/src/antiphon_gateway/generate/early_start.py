"""`EarlyStart`: begins the response to a streaming request while its providers are silent. `KeepAlive`: what fills a silence.

A provider may withhold even its headers, and a retry or a fallback adds to that. Clients and proxies give up on a connection
without a byte, so after the hold the client gets the head of a stream and keep-alives. Nothing is shown by that: the call
continues with its attempts as before. Only the status is decided, so a later error is an event of the stream.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from antiphon.http.messages import ClientRequest, Response, ResponseStream
from antiphon.wire import Format


class KeepAlive:
    """What the client of one stream gets while the model is silent: bytes that its parser passes over.

    Most formats have comments, Ollama has lines without content. Google's clients end at a comment, some of them at a blank line,
    and an event without an answer makes their chats drop the turn. So there the next event is begun early, and each keep-alive
    is a space before its JSON. `interval` is the silence, in seconds, after which one is sent.
    """

    def __init__(self, wire: Format, model: str, interval: float, *, is_array: bool = False) -> None:
        self.interval = interval
        self._wire = wire
        self._model = model
        self.is_array = is_array
        self.begins_events = not is_array and not wire.module.has_comments
        self._is_begun = False

    def next(self) -> bytes:
        """The next keep-alive."""
        if self.is_array:
            return b"\n"
        if self.begins_events:
            is_begun, self._is_begun = self._is_begun, True
            return b" " if is_begun else self._wire.module.keep_alive
        writer = self._wire.stream_writer(self._model)
        return cast(bytes, getattr(writer, "keep_alive", self._wire.module.keep_alive))

    def complete(self, events: bytes) -> bytes:
        """Whole events for the client, without the beginning that it has already."""
        if not self._is_begun or not events:
            return events
        self._is_begun = False
        beginning = self._wire.module.keep_alive.rstrip()
        return events[len(beginning) :] if events.startswith(beginning) else b"{}\r\n\r\n" + events


class EarlyStart:
    """Begins after `hold` seconds, unless it is stopped before, and sends keep-alives.

    `opening` gives the head of the response when it is needed.
    """

    def __init__(
        self, request: ClientRequest, opening: Callable[[], Response], keep_alive: KeepAlive, *, hold: float
    ) -> None:
        self._request = request
        self._opening = opening
        self._keep_alive = keep_alive
        self._stream: ResponseStream | None = None
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(hold, self._tick)

    def stop(self) -> bool:
        """Send nothing more. Whether the response has begun."""
        self._timer.cancel()
        return self._stream is not None

    def _tick(self) -> None:
        if self._stream is None:
            begin = self._request.begin_early
            response = self._opening()
            self._stream = begin(response) if begin is not None else None
        if self._stream is not None:
            self._stream.write(self._keep_alive.next())
            self._timer = self._loop.call_later(self._keep_alive.interval, self._tick)
