"""`EarlyStart`: begins the response to a streaming request while its providers are silent.

A provider may withhold even its headers, and a retry or a fallback adds to that. Clients and proxies give up on a connection
without a byte, so after the hold the client gets the head of a stream and keep-alives. Nothing is shown by that: the call
continues with its attempts as before. Only the status is decided, so a later error is an event of the stream.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from antiphon.gateway.http.messages import ClientRequest, Response, ResponseStream


class EarlyStart:
    """Begins after `hold` seconds, unless it is stopped before, and sends a keep-alive every `interval` seconds.

    `opening` gives the head of the response and the keep-alive, when they are needed.
    """

    def __init__(
        self, request: ClientRequest, opening: Callable[[], tuple[Response, bytes]], *, hold: float, interval: float
    ) -> None:
        self._request = request
        self._opening = opening
        self._interval = interval
        self._keep_alive = b""
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
            response, self._keep_alive = self._opening()
            self._stream = begin(response) if begin is not None else None
        if self._stream is not None:
            self._stream.write(self._keep_alive)
            self._timer = self._loop.call_later(self._interval, self._tick)
