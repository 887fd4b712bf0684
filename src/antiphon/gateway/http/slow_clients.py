"""Waiting for clients that read slowly: bytes in the write buffer are work in progress.

A response is finished when its last byte has left the write buffer, not when it was put there. Until then a shutdown waits for
it and the keep-alive time does not run. A client that still reads may take as long as it likes; one whose system acknowledges no
byte for `write_seconds` is disconnected.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import struct
import sys
import termios
from collections.abc import Awaitable, Callable

logger = logging.getLogger("antiphon.gateway")

_UNACKNOWLEDGED = termios.TIOCOUTQ if sys.platform == "linux" else None
"""On Linux the request that gives the bytes in a socket's send queue. Without it progress shows only in our own buffer."""


class StallTimer:
    """Aborts `transport` if its peer takes no byte for `seconds`, from now until `cancel`."""

    def __init__(self, transport: asyncio.Transport, seconds: float) -> None:
        self._transport = transport
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._unsent = unsent_bytes(transport)
        self._timer = self._loop.call_later(seconds, self._check)

    def cancel(self) -> None:
        """The wait is over."""
        self._timer.cancel()

    def _check(self) -> None:
        unsent = unsent_bytes(self._transport)
        if unsent != self._unsent or not unsent:
            self._unsent = unsent
            self._timer = self._loop.call_later(self._seconds, self._check)
        else:
            logger.info("client took no data for %g s; connection aborted", self._seconds)
            self._transport.abort()


def unsent_bytes(transport: asyncio.Transport) -> int:
    """Bytes written to `transport` that the peer has not acknowledged."""
    queued = 0
    sock = transport.get_extra_info("socket")
    if sock is not None and _UNACKNOWLEDGED is not None:
        with contextlib.suppress(OSError, ValueError):  # the socket is closed, or not one of TCP
            (queued,) = struct.unpack("i", fcntl.ioctl(sock.fileno(), _UNACKNOWLEDGED, bytes(4)))
    return queued + transport.get_write_buffer_size()


async def wait_for_client(transport: asyncio.Transport, drained: Awaitable[None], seconds: float) -> None:
    """Wait until `drained`, but not for a client that has stopped reading."""
    stall = StallTimer(transport, seconds)
    try:
        await drained
    finally:
        stall.cancel()


async def flush(transport: asyncio.Transport, drain: Callable[[], Awaitable[None]], seconds: float) -> None:
    """Wait until the write buffer is empty. `drain` waits while writing is paused."""
    if not transport.get_write_buffer_size():
        return
    transport.set_write_buffer_limits(high=0)  # pauses writing now, and resumes it at exactly zero
    try:
        await wait_for_client(transport, drain(), seconds)
    finally:
        transport.set_write_buffer_limits()
