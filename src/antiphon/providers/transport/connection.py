"""`ClientConnection`: one connection to an upstream, one request at a time; and `StreamedResponse`, what comes back on it.

Bytes that arrive together are delivered together, however many chunks they were cut into, and the reader is woken once for them.
After the last byte of a response the connection returns to the idle list of its origin, unless the upstream wants to close it,
bytes are left over, or the request was not fully written. One timer per connection is re-armed when it fires; it is not set
again for each response. A malformed response (`http_message`) ends the connection.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Mapping
from math import inf

from antiphon.errors import TransportError
from antiphon.providers.transport.aiohttp_transport import KEPT_ALIVE
from antiphon.providers.transport.errand import Moment
from antiphon.providers.transport.http_message import MessageBody, NotHttp, read_head
from antiphon.providers.transport.request import HttpRequest, trouble

_MOST_WAITING = 256 * 1024
"""So much of an answer may wait to be taken before no more is read."""
_SMALL = 16 * 1024
"""A body that is smaller is sent in one piece with its head."""


class StreamedResponse:
    """A response, as far as it came."""

    def __init__(self, line: ClientConnection, request: HttpRequest) -> None:
        self.status = 0
        self.headers: Mapping[str, str] = {}
        self.is_over = False
        self._line = line
        self._request = request
        self._pieces: list[bytes] = []
        self._size = 0
        self._failure: tuple[str, str, bool] | None = None  # its code, its details, and whether the response had begun
        self._waiter: Moment | None = None

    @property
    def body(self) -> AsyncIterator[bytes]:
        return self

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        while not self._pieces:
            if self._failure is not None:
                raise self._trouble()
            if self.is_over:
                raise StopAsyncIteration
            await self.more()
        pieces, self._pieces, self._size = self._pieces, [], 0
        if not self.is_over:
            self._line.resume()
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def aclose(self) -> None:
        """Let go of it; a connection whose body was not read to the end is closed."""
        if not self.is_over:
            self._line.cut()

    def take(self, piece: bytes) -> bool:
        """More of the body; whether no more is wanted for now."""
        self._pieces.append(piece)
        self._size += len(piece)
        return self._size > _MOST_WAITING

    def fail(self, code: str, detail: str = "") -> None:
        """It is over before its end."""
        if not self.is_over and self._failure is None:
            self._failure = code, detail, self.status > 0

    def wake(self) -> None:
        """Let who waits look at what there is."""
        if self._waiter is not None:
            self._waiter.happen()

    async def more(self) -> None:
        """Wait until there is more of it, or it ended. Raises what ended it before it began."""
        self._waiter = self._line.watch()
        try:
            await self._waiter
        finally:
            self._waiter = None
            self._line.rest()
        if self._failure is not None and not self.status:
            raise self._trouble()

    def _trouble(self) -> TransportError:
        """What ended it. Made when it is raised: one that was kept would keep its traceback, and with that the request."""
        assert self._failure is not None
        code, detail, is_begun = self._failure
        return trouble(code, self._request, detail, is_begun=is_begun)


class ClientConnection(asyncio.Protocol):
    """A connection to a host: one request at a time."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, lines: set[ClientConnection], idle: list[ClientConnection]
    ) -> None:
        self._loop = loop
        self._lines = lines
        self._idle = idle
        self._reply: StreamedResponse | None = None
        self.has_heard = False
        """Whether the host said anything since the request was sent."""
        self._is_cut = False
        self._is_paused = False
        self._idle_since = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._body: MessageBody | None = None
        self._keeps = False
        self._unread = b""  # of a head
        self._due = 0.0  # when what is waited for is late; 0: nothing is waited for
        self._silent_since = 0.0  # the last byte, or when more was wanted again
        self._read_seconds: float | None = None
        self._total_due: float | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._lines.add(self)
        sock = transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._lines.discard(self)
        reply, self._reply = self._reply, None
        if reply is not None:
            if self._body is not None and self._body.ends_with_connection and not self._is_cut:
                try:
                    self._body.end()
                    reply.is_over = True
                except NotHttp as error:
                    reply.fail("not_http", str(error))
            else:
                reply.fail("connection_lost")
        self.cut()
        if reply is not None:
            reply.wake()

    @property
    def is_fresh(self) -> bool:
        """Whether it can still be used."""
        return not self._transport.is_closing() and time.monotonic() - self._idle_since < KEPT_ALIVE

    def ask(self, head: bytes, request: HttpRequest, began: float) -> StreamedResponse:
        """Send a request."""
        timeouts = request.timeouts
        self._read_seconds = timeouts.read
        left = None if timeouts.total is None else timeouts.total - (time.monotonic() - began)
        self._total_due = None if left is None else self._loop.time() + left
        self._reply = StreamedResponse(self, request)
        self._silent_since = self._loop.time()
        self._body = None
        self._unread = b""
        self.has_heard = False
        if len(request.body) == 1 and len(request.body[0]) < _SMALL:
            self._transport.write(head + request.body[0])
        else:
            self._transport.writelines([head, *request.body])
        return self._reply

    def cut(self) -> None:
        """Close the connection at once."""
        self._is_cut = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self in self._idle:
            self._idle.remove(self)
        self._transport.abort()

    def resume(self) -> None:
        """There is room again."""
        if self._is_paused:
            self._is_paused = False
            self._silent_since = self._loop.time()
            self._transport.resume_reading()

    def watch(self) -> Moment:
        """Somebody waits for the next bytes; the moment when they come, or are late.

        They are late by the time since the last byte, however often the wait was given up and begun again."""
        due = inf if self._read_seconds is None else self._silent_since + self._read_seconds
        if self._total_due is not None and self._total_due < due:
            due = self._total_due
        if due < inf:
            self._due = due
            if self._timer is None or self._timer.when() > due:
                if self._timer is not None:
                    self._timer.cancel()
                self._timer = self._loop.call_at(due, self._look)
        return Moment(self._loop)

    def rest(self) -> None:
        """Nobody waits any more."""
        self._due = 0.0

    def _look(self) -> None:
        self._timer = None
        if self._reply is None:
            left = KEPT_ALIVE - (time.monotonic() - self._idle_since)
            if left > 0:
                self._timer = self._loop.call_later(left, self._look)
            else:
                self.cut()
            return
        now = self._loop.time()
        if not self._due or now < self._due:
            self._timer = self._loop.call_at(min(self._due or now + KEPT_ALIVE, now + KEPT_ALIVE), self._look)
            return
        is_total = self._total_due is not None and now >= self._total_due
        self._fail("total_timeout" if is_total else "read_timeout")

    def _fail(self, code: str, detail: str = "") -> None:
        reply, self._reply = self._reply, None
        if reply is not None:
            reply.fail(code, detail)
        self.cut()
        if reply is not None:
            reply.wake()

    def data_received(self, data: bytes) -> None:
        reply = self._reply
        if reply is None:
            self.cut()  # nothing was asked
            return
        self._silent_since = self._loop.time()
        self.has_heard = True
        try:
            is_enough = self._read(reply, data)
        except NotHttp as error:
            self._fail("not_http", str(error))
            return
        if self._body is None:
            return
        if self._body.is_over:
            self._finish(reply, self._body)
        elif is_enough:
            self._is_paused = True
            self._transport.pause_reading()
        reply.wake()

    def _read(self, reply: StreamedResponse, data: bytes) -> bool:
        """Read more of an answer; whether no more is wanted for now."""
        if self._body is None:
            data = self._unread + data if self._unread else data
            head = read_head(data)
            if head is None:
                self._unread = data
                return False
            self._body = MessageBody(head)
            self._keeps = head.keeps and not self._body.ends_with_connection
            reply.status, reply.headers = head.status, head.headers
            data = data[head.size :]
        said = self._body.feed(data)
        return reply.take(said) if said else False

    def _finish(self, reply: StreamedResponse, body: MessageBody) -> None:
        """The last byte was read: the next may use the connection."""
        self._reply = None
        reply.is_over = True
        transport = self._transport
        if not self._keeps or body.is_overfull or transport.get_write_buffer_size() or transport.is_closing():
            self.cut()
            return
        if self._is_paused:
            self.resume()
        self._idle_since = time.monotonic()
        self._idle.append(self)
        if self._timer is None:
            self._timer = self._loop.call_later(KEPT_ALIVE, self._look)
