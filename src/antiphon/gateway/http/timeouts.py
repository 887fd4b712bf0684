"""`ConnectionTimer`: the timeouts of one client connection, with one timer that is re-armed when it fires.

Two things can end: the present state of the connection (its deadline), and the patience with a client that reads slowly. A client
that still reads may take as long as it likes; one whose system acknowledges no byte for `write_seconds` is disconnected.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import struct
import sys
import termios
import time
from collections.abc import Callable
from contextlib import suppress
from math import inf

logger = logging.getLogger("antiphon.gateway")

_UNACKNOWLEDGED = termios.TIOCOUTQ if sys.platform == "linux" else None
"""On Linux the request that gives the bytes in a socket's send queue. Without it progress shows only in our own buffer."""


class ConnectionTimer:
    """Calls `on_deadline` at the deadline, and aborts `transport` if its client stalls. Times are on the monotonic clock."""

    def __init__(self, transport: asyncio.Transport, on_deadline: Callable[[], None]) -> None:
        self.deadline = inf
        self._transport = transport
        self._on_deadline: Callable[[], None] | None = on_deadline
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = inf
        self._stall_due = inf
        self._stall_seconds = inf
        self._unsent = 0

    def set_deadline(self, due: float) -> None:
        """Replace the deadline; `inf` removes it."""
        self.deadline = due
        if due < self._timer_due:  # else the timer fires earlier anyway, and is armed again
            self._arm(due)

    def watch_client(self, seconds: float) -> None:
        """The client reads slowly: abort the connection if it takes no byte for `seconds`."""
        self._unsent = unsent_bytes(self._transport)
        self._stall_seconds = seconds
        self._stall_due = time.monotonic() + seconds
        if self._stall_due < self._timer_due:
            self._arm(self._stall_due)

    def stop_watching(self) -> None:
        """The client has caught up."""
        self._stall_due = inf

    def cancel(self) -> None:
        """The connection is closed."""
        self.deadline = self._stall_due = inf
        self._on_deadline = None
        if self._timer is not None:
            self._timer.cancel()

    def _arm(self, due: float) -> None:
        if self._on_deadline is None:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_due = due
        self._timer = self._loop.call_later(max(0.0, due - time.monotonic()), self._fire)

    def _fire(self) -> None:
        self._timer, self._timer_due = None, inf
        now = time.monotonic()
        if now >= self._stall_due and not self._has_progress(now):
            logger.info("client took no data for %g s; connection aborted", self._stall_seconds)
            self._transport.abort()
            return
        if now >= self.deadline and self._on_deadline is not None:
            self.deadline = inf
            self._on_deadline()
        due = min(self.deadline, self._stall_due)
        if due < self._timer_due:
            self._arm(due)

    def _has_progress(self, now: float) -> bool:
        """Whether the client took any byte since it was looked at last."""
        unsent, before = unsent_bytes(self._transport), self._unsent
        self._unsent, self._stall_due = unsent, now + self._stall_seconds
        return unsent != before or not unsent


def unsent_bytes(transport: asyncio.Transport) -> int:
    """Bytes written to `transport` that the peer has not acknowledged."""
    queued = 0
    sock = transport.get_extra_info("socket")
    if sock is not None and _UNACKNOWLEDGED is not None:
        with suppress(OSError, ValueError):  # the socket is closed, or has no send queue
            (queued,) = struct.unpack("i", fcntl.ioctl(sock.fileno(), _UNACKNOWLEDGED, bytes(4)))
    return queued + transport.get_write_buffer_size()
