"""`StreamedResponse`: a response that is read by `async for`, and can be handed over to a receiver of callbacks.

Bytes that were not read yet are kept here; with too many of them the connection stops reading. A relay takes the rest of a body
over with `deliver_to`: from then on it gets each piece in the event-loop callback that read it, without waking a task.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from types import MappingProxyType

from antiphon.errors import TransportError
from antiphon.http.client.connection import BodyReceiver, ClientConnection

_PAUSE_BYTES = 128 * 1024
"""With more unread bytes than this, reading from the socket is paused."""


class StreamedResponse:
    """A response as far as it has arrived."""

    status = 0
    headers: Mapping[str, str] = MappingProxyType({})
    _receiver: BodyReceiver | None = None
    _size = 0
    _is_over = False
    _failure: TransportError | None = None
    _waiter: asyncio.Future[None] | None = None

    def __init__(self, loop: asyncio.AbstractEventLoop, connection: ClientConnection) -> None:
        self._loop = loop
        self._connection = connection
        self._pieces: list[bytes] = []

    @property
    def body(self) -> AsyncIterator[bytes]:
        return self

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        while not self._pieces:
            if self._failure is not None:
                raise _copy(self._failure)
            if self._is_over:
                raise StopAsyncIteration
            self._waiter = self._loop.create_future()
            await self._waiter
        return self._take()

    async def aclose(self) -> None:
        """Release it; closes the connection if the body was not read to the end."""
        self.abort()

    async def wait_for_head(self) -> None:
        """Wait until the head has arrived. Raises `TransportError` if the response failed before."""
        while not self.status:
            if self._failure is not None:
                raise _copy(self._failure)
            self._waiter = self._loop.create_future()
            await self._waiter

    def deliver_to(self, receiver: BodyReceiver) -> None:
        """Deliver the body to a receiver, from the first unread byte on. It must not be read as well."""
        self._receiver = receiver
        if self._pieces:
            receiver.on_body(self._take())
        if self._failure is not None:
            receiver.on_failure(self._failure)
        elif self._is_over:
            receiver.on_complete()

    def abort(self) -> None:
        """Close the connection if the response is not complete. Nothing more is delivered."""
        if not self._is_over and self._failure is None:
            self._is_over = True
            self._connection.abort()

    def pause(self) -> None:
        """Stop reading from the socket."""
        if not self._is_over:
            self._connection.pause()

    def resume(self) -> None:
        """Read from the socket again."""
        if not self._is_over:
            self._connection.resume()

    # What the connection calls.

    def on_head(self, status: int, headers: Mapping[str, str]) -> None:
        self.status, self.headers = status, headers
        if self._waiter is not None:
            self._wake()

    def on_body(self, data: bytes) -> None:
        if self._receiver is not None:
            self._receiver.on_body(data)
            return
        self._pieces.append(data)
        self._size += len(data)
        if self._size > _PAUSE_BYTES:
            self._connection.pause()
        if self._waiter is not None:
            self._wake()

    def on_complete(self) -> None:
        self._is_over = True
        if self._receiver is not None:
            self._receiver.on_complete()
        elif self._waiter is not None:
            self._wake()

    def on_failure(self, error: TransportError) -> None:
        self._failure = error
        if self._receiver is not None:
            self._receiver.on_failure(error)
        elif self._waiter is not None:
            self._wake()

    def _take(self) -> bytes:
        pieces, size = self._pieces, self._size
        self._pieces, self._size = [], 0
        if size > _PAUSE_BYTES:
            self.resume()
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)


def _copy(error: TransportError) -> TransportError:
    """The error to raise. The stored one stays without a traceback, which would keep the frames of the request alive."""
    return TransportError(str(error), error.code)
