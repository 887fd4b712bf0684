"""`LazyTimer`: one timer for a deadline that moves later all the time; `ConnectionTimer`: the timeouts of a client connection.

Setting a timer for each byte that arrives is expensive. Here the owner only keeps its deadline; when the timer fires it asks for
the deadline again and waits on if it has moved. `start` is needed when a deadline appears or becomes earlier.

Two things can end: the present state of a client connection (its deadline), and the patience with a client that reads slowly. A
client that still reads may take as long as it likes; one whose system acknowledges no byte for `write_seconds` is disconnected.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import struct
import sys
import termios
from collections.abc import Callable
from contextlib import suppress
from math import inf

logger = logging.getLogger("antiphon.http")

_UNACKNOWLEDGED = termios.TIOCOUTQ if sys.platform == "linux" else None
"""On Linux the request that gives the bytes in a socket's send queue. Without it progress shows only in our own buffer."""


class LazyTimer:
    """Calls `on_due` when `deadline()`, in the loop's time, has passed. A deadline of infinity stops it until `start`.

    It refers to its owner by the two callbacks, until it is cancelled: an owner that ends does that.
    """

    __slots__ = ("_deadline", "_handle", "_loop", "_on_due", "due")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, deadline: Callable[[], float], on_due: Callable[[], object]
    ) -> None:
        self.due = inf
        """When it looks at the deadline; infinity if it does not run. `start` is needed only for an earlier deadline."""
        self._loop = loop
        self._deadline = deadline
        self._on_due = on_due
        self._handle: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Wait for the deadline, which may have become earlier."""
        due = self._deadline()
        if due < self.due:
            if self._handle is not None:
                self._handle.cancel()
            self._wait_until(due)

    def cancel(self) -> None:
        """Stop for good, and let go of the owner."""
        if self._handle is not None:
            self._handle.cancel()
        self._handle, self.due = None, inf
        self._deadline, self._on_due = _never, _never

    def _wait_until(self, due: float) -> None:
        self.due = due
        self._handle = self._loop.call_at(due, self._check)

    def _check(self) -> None:
        self._handle, self.due = None, inf
        due = self._deadline()
        if due == inf:
            return
        if due > self._loop.time():
            self._wait_until(due)
        else:
            self._on_due()


def _never() -> float:
    return inf


class ConnectionTimer(LazyTimer):
    """Calls `on_deadline` when the present state has lasted too long, and aborts `transport` if its client stalls."""

    __slots__ = ("_on_deadline", "_stall_due", "_stall_seconds", "_transport", "_unsent", "state_due")

    def __init__(self, transport: asyncio.Transport, on_deadline: Callable[[], object]) -> None:
        super().__init__(asyncio.get_running_loop(), self._next_due, self._on_next_due)
        self.state_due = inf
        """When the present state has lasted too long. Its owner may move it, and calls `start` if it is before `due` then."""
        self._transport = transport
        self._on_deadline = on_deadline
        self._stall_due = inf
        self._stall_seconds = inf
        self._unsent = 0

    def set_timeout(self, seconds: float) -> None:
        """How long the present state may last from now on."""
        self.state_due = self._loop.time() + seconds
        self.start()

    def shorten_timeout(self, seconds: float) -> None:
        """The same, unless less time is left."""
        self.state_due = min(self.state_due, self._loop.time() + seconds)
        self.start()

    def watch_client(self, seconds: float) -> None:
        """The client reads slowly: abort the connection if it takes no byte for `seconds`."""
        self._unsent = unsent_bytes(self._transport)
        self._stall_seconds = seconds
        self._stall_due = self._loop.time() + seconds
        self.start()

    def stop_watching(self) -> None:
        """The client has caught up."""
        self._stall_due = inf

    def cancel(self) -> None:
        """The connection is closed."""
        super().cancel()
        self._on_deadline = _never

    def _next_due(self) -> float:
        return self.state_due if self.state_due < self._stall_due else self._stall_due

    def _on_next_due(self) -> None:
        now = self._loop.time()
        if now >= self._stall_due and not self._has_progress(now):
            logger.info("client took no data for %g s; connection aborted", self._stall_seconds)
            self._transport.abort()
            return
        if now >= self.state_due:
            self.state_due = inf
            self._on_deadline()
        self.start()

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
