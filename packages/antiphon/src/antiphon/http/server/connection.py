"""`ServerConnection`: one client connection, from accept to close.

One request is answered at a time; later ones wait. A `RequestParser` reads and admits them. A response is a whole body, an
iterator that the handler's task reads, or a `StreamSource` that pushes by callbacks. It ends when its last byte has left the
write buffer: until then a shutdown waits for it and the keep-alive time does not run. After a refusal a bounded part of the body
is discarded before the connection closes, so that the client sees the response and not a reset.

The connection owns the end of a request: its handler learns of it (`Handler.end`) before the last byte is written, when the
client leaves, and when writing fails; and its source is closed. A disconnect cancels the request, and a client that half-closes
counts as disconnected. No exception is stored: its traceback would keep the request alive.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import aclosing, suppress
from enum import Enum
from math import inf
from typing import TYPE_CHECKING, cast

from antiphon.http.messages import Response, ResponseStream
from antiphon.http.request_ids import request_id_scope, set_request_id
from antiphon.http.server.application import Refusal
from antiphon.http.server.request_parser import IncomingRequest, RequestParser
from antiphon.http.server.response_writer import ResponseWriter
from antiphon.http.server.websocket import WebSocket, handshake
from antiphon.http.timers import ConnectionTimer

if TYPE_CHECKING:
    from antiphon.http.server.listener import Listener

logger = logging.getLogger("antiphon.http")

LINGER_BYTES, LINGER_SECONDS = 256 * 1024, 1.0
"""So much of a refused body, for so long, is discarded before the connection is closed."""
UNREAD_BYTES = 64 * 1024
"""So much of further requests is read while one is answered: reading on is how a client that leaves is noticed."""
_TOO_MANY_CONNECTIONS = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_SWITCHING = 101


class State(Enum):
    """What a connection is doing."""

    IDLE = "waiting for a request"
    HEAD = "reading a head"
    BODY = "reading a body"
    RESPONDING = "answering"
    FLUSHING = "waiting until the response has left the write buffer"
    LINGERING = "discarding what is left of a refused request"
    CLOSED = "closed"


_IDLE, _HEAD, _BODY, _RESPONDING, _FLUSHING, _LINGERING, _CLOSED = State


class _RequestFlow:
    """The `Flow` of a body that is passed on: it pauses what the client sends."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self.pause = transport.pause_reading

    def resume(self) -> None:
        if not self._transport.is_closing():
            self._transport.resume_reading()

    abort = resume  # reading on is how a client that leaves is noticed


class ServerConnection(ResponseWriter):
    """One connection. It is the `ResponseStream` of the response in progress."""

    def __init__(self, listener: Listener) -> None:
        super().__init__(listener)
        self._loop = asyncio.get_running_loop()
        self._state = _IDLE
        self._busy = listener.traffic.busy  # has this connection while a request of it is in progress
        self._unread = bytearray()  # bytes that arrived meanwhile
        self._task: asyncio.Task[None] | None = None
        self._is_advancing = self._timed_out = False
        self._discarded = 0  # bytes after the last request
        self._is_paused = False  # the client reads slowly
        self._writable: asyncio.Future[None] | None = None
        self._websocket: WebSocket | None = None

    # Called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client connected."""
        listener = self.listener
        self._transport = cast("asyncio.Transport", transport)  # uvloop's transports do not inherit from asyncio's
        self._timer = ConnectionTimer(self._transport, self._on_deadline)
        peer = transport.get_extra_info("peername")
        self._parser = RequestParser(listener, str(peer[0]) if isinstance(peer, tuple) else str(peer or ""))
        if len(listener.connections) < listener.limits.max_connections:
            listener.connections.add(self)
            listener.traffic.connections.add(self)
            self._timer.set_timeout(listener.limits.header_seconds)
        else:
            self._state = _CLOSED
            self._parser.close()
            self._transport.write(_TOO_MANY_CONNECTIONS)
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client left: its request is cancelled."""
        del exc
        self._state = _CLOSED
        self._timer.cancel()
        self._parser.close()
        self._unread, self._batch = bytearray(), []
        self.resume_writing()
        self.listener.connections.discard(self)
        self.listener.traffic.connections.discard(self)
        if self._task is not None:
            self._task.cancel()  # it marks the end of the request when it ends
        else:
            self._drop_source()
            self._leave_request()
        if self._websocket is not None:
            self._websocket.lost()
            self._websocket = None  # it refers to this object

    def pause_writing(self) -> None:
        """The client reads slowly."""
        self._is_paused = True
        self._timer.watch_client(self.listener.limits.write_seconds)
        if self._source is not None:
            self._source.pause()
        elif self._websocket is not None:
            self._websocket.pause()

    def resume_writing(self) -> None:
        """The client has caught up."""
        if not self._is_paused:
            return
        self._is_paused = False
        self._timer.stop_watching()
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)
        if self._state is _FLUSHING:
            self._transport.set_write_buffer_limits()
            self._finish_response()
        elif self._source is not None and self._state is not _CLOSED:
            self._source.resume()
        elif self._websocket is not None and self._state is not _CLOSED:
            self._websocket.resume()

    def data_received(self, data: bytes) -> None:
        """More of a request."""
        parser = self._parser
        if parser.is_finished:
            if self._websocket is None:
                self._discard(data)
            else:
                self._websocket.feed(data)
        elif self._state is _RESPONDING or self._state is _FLUSHING:
            if self._current is not None and self._current.has_more:
                parser.feed(data)
                return
            self._unread += data
            if len(self._unread) > UNREAD_BYTES:
                self._transport.pause_reading()
        else:
            parser.feed(data)
            self._advance()

    # Called by the listener

    def drain(self) -> None:
        """Take no new request: close now, or when the current response has left."""
        self._closes = True
        if self._websocket is not None:
            self._websocket.finish()
        elif self._state is _IDLE or self._state is _HEAD:
            self._transport.close()

    async def abort(self, seconds: float) -> None:
        """Give up the current request, which gets `seconds` to end."""
        task = self._task
        self._transport.abort()
        if task is not None:
            task.cancel()
            await asyncio.wait({task}, timeout=seconds)

    # Requests

    def _advance(self) -> None:
        """Answer the requests that are there, one after the other."""
        if self._is_advancing:
            return
        self._is_advancing = True
        parser = self._parser
        while self._state is _IDLE or self._state is _HEAD or self._state is _BODY:
            if parser.requests:
                self._answer(parser.requests.pop(0))
            elif self._unread and not parser.is_finished:
                unread, self._unread = bytes(self._unread), bytearray()
                self._transport.resume_reading()
                parser.feed(unread)
            else:
                self._await_data(parser)
                break
        self._is_advancing = False

    def _await_data(self, parser: RequestParser) -> None:
        incoming = parser.incoming
        if incoming is not None and self._state is not _BODY:
            self._state = _BODY
            self._busy.add(self)
            self._timer.set_timeout(self.listener.limits.body_seconds)
            if incoming.expects_continue:
                self._transport.write(_CONTINUE)
        elif parser.is_in_head and self._state is _IDLE:
            self._state = _HEAD
            self._timer.shorten_timeout(self.listener.limits.header_seconds)

    def _answer(self, incoming: IncomingRequest) -> None:
        request, listener = incoming.request, self.listener
        self._state = _RESPONDING
        self._current = incoming
        self._closes |= not incoming.keeps_connection
        self._sends_body = request.method != "HEAD"
        self._timed_out = False
        self._busy.add(self)
        seconds = listener.limits.request_seconds
        request.deadline = time.monotonic() + seconds
        timer = self._timer
        timer.state_due = self._loop.time() + seconds
        if timer.state_due < timer.due:
            timer.start()
        if incoming.refusal is not None:
            self._send_whole(incoming.refusal)
            return
        if incoming.stream is not None:
            incoming.stream.flow = _RequestFlow(self._transport)
            if incoming.expects_continue and not incoming.stream.is_over:
                self._transport.write(_CONTINUE)
        if incoming.is_websocket:
            self._open_websocket(incoming)
            return
        request.begin_early = self._begin_early
        self._task = self._loop.create_task(self._run(incoming))

    async def _run(self, incoming: IncomingRequest) -> None:
        """Let the handler answer, and send what it returns."""
        request, handler = incoming.request, incoming.handler
        assert handler is not None, "it was admitted"
        set_request_id(request.request_id)
        whole: Response | None = None
        failure: Refusal | None = None
        try:
            response = await handler.run()
            incoming.release()  # the upstream has it
            body = response.body
            if isinstance(body, bytes):
                whole = response
            elif isinstance(body, AsyncIterator):
                await self._iterate(response, body)
            else:
                self._source = body
                self._begin_stream(response)
        except asyncio.CancelledError:
            if self._timed_out:
                if not handler.is_logged:
                    logger.warning("request timed out")
                failure = self.listener.request_timeout()
            else:
                self._transport.abort()
        except Exception as error:
            logger.exception("internal error while answering a request")
            failure = self.listener.internal_error(request)
            self._drop_source(error)
        self._task = None
        if self._state is _CLOSED:
            self._drop_source()
            self._leave_request()
        elif failure is not None:
            self._fail(failure)
        elif self._source is not None:
            self._start(self._source)
        elif whole is not None:
            self._send_whole(whole)
        else:
            self.end_stream()

    def _begin_early(self, response: Response) -> ResponseStream | None:
        """Send the head of a stream while the handler runs."""
        if self._task is None or not self._sends_body:
            return None
        self._begin_stream(response)
        self._flush_batch()
        return self

    async def _iterate(self, response: Response, body: AsyncIterator[bytes]) -> None:
        async with aclosing(body) as pieces:  # type: ignore[type-var]
            self._begin_stream(response)
            if not self._sends_body:
                return
            self._loop.call_soon(self._flush_batch)
            async for piece in pieces:
                self.write(piece)
                if self._is_paused:
                    self._writable = self._loop.create_future()
                    await self._writable
                if self._transport.is_closing():
                    return

    def _open_websocket(self, incoming: IncomingRequest) -> None:
        """Complete the handshake; from then on the connection carries frames."""
        listener, request, handler = self.listener, incoming.request, incoming.handler
        assert handler is not None, "it was admitted"
        answer = handshake(request.headers)
        response = listener.application.refuse(request, answer) if isinstance(answer, Refusal) else answer
        handler.end(response.status, response.error)
        if response.status != _SWITCHING:
            self._send_whole(response)
            return
        self._closes = False  # the head says that it is upgraded, not that it closes
        self._transport.write(self._head(response, ""))
        self._timer.state_due = inf
        self._leave_request()
        hold = listener.governor.hold(handler.owner)
        busy = self._busy
        socket = self._websocket = WebSocket(
            self._transport,
            listener.limits,
            hold,
            on_busy=lambda is_busy: busy.add(self) if is_busy else busy.discard(self),
        )
        socket.open(listener.application.open_socket(request, socket))
        unread, self._parser.unread = self._parser.unread, b""
        if unread:
            socket.feed(unread)

    def _leave_request(self, status: int = 0) -> None:
        """The request is over: its response has left, or (0) will not."""
        current, self._current = self._current, None
        if current is not None:
            if current.hold is not None and current.hold.size:
                current.release()
            if current.handler is not None:
                current.handler.end(status)  # no effect after its end
        self._busy.discard(self)

    # Responses

    def _send(self, data: bytes) -> None:
        """Write the end of a response, and wait until all of it has left."""
        transport = self._transport
        if transport.is_closing():
            return
        transport.write(data)
        if transport.get_write_buffer_size():
            self._state = _FLUSHING
            self._timer.state_due = inf
            transport.set_write_buffer_limits(high=0)  # pauses writing now, and resumes it at exactly zero
        else:
            self._finish_response()

    def _finish_response(self) -> None:
        """The last byte has left: close, or go on to the next request."""
        is_complete = self._current is None or self._current.is_complete
        self._leave_request(self._status)
        if not is_complete:
            self._parser.abandon()
            self._linger()
        elif self._closes:
            self._state = _CLOSED
            self._parser.close()
            self._transport.close()
        else:
            self._state = _IDLE
            timer = self._timer
            timer.state_due = self._loop.time() + self.listener.keep_alive_seconds
            if timer.state_due < timer.due:
                timer.start()
            if self._unread or self._parser.requests or self._parser.is_in_head or self._parser.incoming is not None:
                self._advance()

    def _linger(self) -> None:
        """Signal the end of the responses, discard what the client still sends, then close."""
        self._state = _LINGERING
        self._timer.set_timeout(LINGER_SECONDS)
        if self._transport.can_write_eof():  # a TLS connection has no half that could be closed
            with suppress(OSError):
                self._transport.write_eof()

    def _discard(self, data: bytes) -> None:
        self._discarded += len(data)
        if self._discarded <= LINGER_BYTES:
            return
        if self._state is _LINGERING:
            self._transport.abort()
        else:
            self._transport.pause_reading()

    def _on_deadline(self) -> None:
        if self._state is _BODY and self._parser.incoming is not None:
            self._parser.refuse(self.listener.body_timeout())
            self._advance()
        elif self._state is not _RESPONDING or self._current is None:
            self._transport.abort()
        elif self._task is not None:
            self._timed_out = True
            self._task.cancel()
        else:
            request, handler = self._current.request, self._current.handler
            self._drop_source()
            if handler is None or not handler.is_logged:
                with request_id_scope(request.request_id):
                    logger.warning("request timed out")
            self._fail(self.listener.request_timeout())
