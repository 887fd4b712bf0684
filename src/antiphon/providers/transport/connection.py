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
from antiphon.providers.transport.aiohttp_transport import IDLE_SECONDS
from antiphon.providers.transport.errand import Moment
from antiphon.providers.transport.http_message import MalformedResponse, MessageBody, read_head
from antiphon.providers.transport.request import HttpRequest, transport_error

_PAUSE_BYTES = 256 * 1024
"""With more unread bytes than this, reading from the socket is paused."""
_SINGLE_WRITE_BYTES = 16 * 1024
"""A smaller body is written together with its head."""


class StreamedResponse:
    """A response as far as it has arrived."""

    def __init__(self, connection: ClientConnection, request: HttpRequest) -> None:
        self.status = 0
        self.headers: Mapping[str, str] = {}
        self.is_over = False
        self._connection = connection
        self._request = request
        self._pieces: list[bytes] = []
        self._size = 0
        self._failure: tuple[str, str, bool] | None = None  # code, detail, and whether the response had started
        self._waiter: Moment | None = None

    @property
    def body(self) -> AsyncIterator[bytes]:
        return self

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        while not self._pieces:
            if self._failure is not None:
                raise self._error()
            if self.is_over:
                raise StopAsyncIteration
            await self.wait()
        pieces, self._pieces, self._size = self._pieces, [], 0
        if not self.is_over:
            self._connection.resume()
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def aclose(self) -> None:
        """Release it; closes the connection if the body was not read to the end."""
        if not self.is_over:
            self._connection.abort()

    def add(self, piece: bytes) -> bool:
        """Add to the body; True if reading should pause."""
        self._pieces.append(piece)
        self._size += len(piece)
        return self._size > _PAUSE_BYTES

    def fail(self, code: str, detail: str = "") -> None:
        """It ended too early."""
        if not self.is_over and self._failure is None:
            self._failure = code, detail, self.status > 0

    def wake(self) -> None:
        """Wake the reader."""
        if self._waiter is not None:
            self._waiter.happen()

    async def wait(self) -> None:
        """Wait for more bytes or the end. Raises if it failed before its head."""
        self._waiter = self._connection.arm_timeout()
        try:
            await self._waiter
        finally:
            self._waiter = None
            self._connection.disarm_timeout()
        if self._failure is not None and not self.status:
            raise self._error()

    def _error(self) -> TransportError:
        """What ended it. Created when raised: a stored exception would keep its traceback, and with it the request."""
        assert self._failure is not None
        code, detail, response_started = self._failure
        return transport_error(code, self._request, detail, response_started=response_started)


class ClientConnection(asyncio.Protocol):
    """A connection to an upstream: one request at a time."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, connections: set[ClientConnection], idle: list[ClientConnection]
    ) -> None:
        self._loop = loop
        self._connections = connections
        self._idle = idle
        self._response: StreamedResponse | None = None
        self.has_response_data = False
        """Whether any byte arrived since the request was sent."""
        self._is_aborted = False
        self._is_paused = False
        self._idle_since = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._body: MessageBody | None = None
        self._keep_alive = False
        self._partial_head = b""
        self._read_deadline = 0.0  # 0: no read is waiting
        self._silent_since = 0.0  # since the last byte, or since reading resumed
        self._read_seconds: float | None = None
        self._total_deadline: float | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._connections.add(self)
        sock = transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._connections.discard(self)
        response, self._response = self._response, None
        if response is not None:
            if self._body is not None and self._body.ends_with_connection and not self._is_aborted:
                try:
                    self._body.end()
                    response.is_over = True
                except MalformedResponse as error:
                    response.fail("not_http", str(error))
            else:
                response.fail("connection_lost")
        self.abort()
        if response is not None:
            response.wake()

    @property
    def is_reusable(self) -> bool:
        """Whether it can be used for another request."""
        return not self._transport.is_closing() and time.monotonic() - self._idle_since < IDLE_SECONDS

    def send(self, head: bytes, request: HttpRequest, started_at: float) -> StreamedResponse:
        """Send a request."""
        timeouts = request.timeouts
        self._read_seconds = timeouts.read
        left = None if timeouts.total is None else timeouts.total - (time.monotonic() - started_at)
        self._total_deadline = None if left is None else self._loop.time() + left
        self._response = StreamedResponse(self, request)
        self._silent_since = self._loop.time()
        self._body = None
        self._partial_head = b""
        self.has_response_data = False
        if len(request.body) == 1 and len(request.body[0]) < _SINGLE_WRITE_BYTES:
            self._transport.write(head + request.body[0])
        else:
            self._transport.writelines([head, *request.body])
        return self._response

    def abort(self) -> None:
        """Close the connection at once."""
        self._is_aborted = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self in self._idle:
            self._idle.remove(self)
        self._transport.abort()

    def resume(self) -> None:
        """Read from the socket again."""
        if self._is_paused:
            self._is_paused = False
            self._silent_since = self._loop.time()
            self._transport.resume_reading()

    def arm_timeout(self) -> Moment:
        """A read starts to wait; the returned moment is when bytes arrive or time out.

        The timeout counts from the last byte, even if reads were cancelled and started again since."""
        due = inf if self._read_seconds is None else self._silent_since + self._read_seconds
        if self._total_deadline is not None and self._total_deadline < due:
            due = self._total_deadline
        if due < inf:
            self._read_deadline = due
            if self._timer is None or self._timer.when() > due:
                if self._timer is not None:
                    self._timer.cancel()
                self._timer = self._loop.call_at(due, self._on_timer)
        return Moment(self._loop)

    def disarm_timeout(self) -> None:
        """No read is waiting."""
        self._read_deadline = 0.0

    def _on_timer(self) -> None:
        self._timer = None
        if self._response is None:
            left = IDLE_SECONDS - (time.monotonic() - self._idle_since)
            if left > 0:
                self._timer = self._loop.call_later(left, self._on_timer)
            else:
                self.abort()
            return
        now = self._loop.time()
        if not self._read_deadline or now < self._read_deadline:
            self._timer = self._loop.call_at(
                min(self._read_deadline or now + IDLE_SECONDS, now + IDLE_SECONDS), self._on_timer
            )
            return
        is_total = self._total_deadline is not None and now >= self._total_deadline
        self._fail("total_timeout" if is_total else "read_timeout")

    def _fail(self, code: str, detail: str = "") -> None:
        response, self._response = self._response, None
        if response is not None:
            response.fail(code, detail)
        self.abort()
        if response is not None:
            response.wake()

    def data_received(self, data: bytes) -> None:
        response = self._response
        if response is None:
            self.abort()  # no request was sent
            return
        self._silent_since = self._loop.time()
        self.has_response_data = True
        try:
            should_pause = self._read(response, data)
        except MalformedResponse as error:
            self._fail("not_http", str(error))
            return
        if self._body is None:
            return
        if self._body.is_over:
            self._finish(response, self._body)
        elif should_pause:
            self._is_paused = True
            self._transport.pause_reading()
        response.wake()

    def _read(self, response: StreamedResponse, data: bytes) -> bool:
        """Parse more of the response; True if reading should pause."""
        if self._body is None:
            data = self._partial_head + data if self._partial_head else data
            head = read_head(data)
            if head is None:
                self._partial_head = data
                return False
            self._body = MessageBody(head)
            self._keep_alive = head.keep_alive and not self._body.ends_with_connection
            response.status, response.headers = head.status, head.headers
            data = data[head.size :]
        content = self._body.feed(data)
        return response.add(content) if content else False

    def _finish(self, response: StreamedResponse, body: MessageBody) -> None:
        """The last byte was read: the connection may be reused."""
        self._response = None
        response.is_over = True
        transport = self._transport
        if not self._keep_alive or body.is_overfull or transport.get_write_buffer_size() or transport.is_closing():
            self.abort()
            return
        if self._is_paused:
            self.resume()
        self._idle_since = time.monotonic()
        self._idle.append(self)
        if self._timer is None:
            self._timer = self._loop.call_later(IDLE_SECONDS, self._on_timer)
