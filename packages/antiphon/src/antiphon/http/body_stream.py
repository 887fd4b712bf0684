"""`BodyStream`: the body of a request that is passed on while it arrives, in bounded memory.

The connection feeds it and stops reading from the client while too many bytes wait; the handler reads it with `async for`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from antiphon.errors import TransportError

_PAUSE_BYTES = 256 * 1024
"""With more unread bytes than this, reading from the client is paused."""


class BodyStream:
    """Bytes of a body as they arrive. `length` is the declared one; None if the body is chunked."""

    def __init__(self, length: int | None) -> None:
        self.length = length
        self._unread = bytearray()  # not a list of pieces: a client may send them byte by byte
        self._is_over = self._is_paused = False
        self._is_cut = False
        self._waiter: asyncio.Future[None] | None = None
        self._transport: asyncio.Transport | None = None

    def attach(self, transport: asyncio.Transport, invitation: bytes = b"") -> None:
        """The connection it is read from; `invitation` is what the client waits for before it sends the body."""
        self._transport = transport
        if invitation and not self._is_over:
            transport.write(invitation)

    def feed(self, data: bytes) -> None:
        """More of the body has arrived."""
        if self._is_over:
            return
        self._unread += data
        if len(self._unread) > _PAUSE_BYTES and self._transport is not None and not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()
        self._wake()

    def end(self, *, is_cut: bool = False) -> None:
        """The body is complete, or will never be (`is_cut`)."""
        self._is_cut = is_cut and not self._is_over
        self._is_over = True
        self._wake()

    def stop(self) -> None:
        """Nothing reads it any more."""
        self.end()
        self._unread = bytearray()
        self._continue()

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        while not self._unread:
            if self._is_cut:
                raise TransportError("the client did not send the whole body", "connection_lost")
            if self._is_over:
                raise StopAsyncIteration
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        data, self._unread = bytes(self._unread), bytearray()
        self._continue()
        return data

    def _continue(self) -> None:
        if self._is_paused and self._transport is not None:
            self._is_paused = False
            if not self._transport.is_closing():
                self._transport.resume_reading()

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)
