"""`ServerConnection`: one client connection, from accept to close.

One request is answered at a time; later ones wait. A `RequestParser` reads and admits them. A response is a whole body, an
iterator that the handler's task reads, or a `StreamSource` that pushes by callbacks. It ends when its last byte has left the
write buffer: until then a shutdown waits for it and the keep-alive time does not run. After a refusal a bounded part of the body
is discarded before the connection closes, so that the client sees the response and not a reset.

A disconnect cancels the request, and a client that half-closes counts as disconnected. No exception is stored: its traceback
would keep the request alive.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import aclosing, suppress
from http import HTTPStatus
from typing import Protocol, cast

from antiphon.http.eager_task import start_task
from antiphon.http.header_fields import encode_head
from antiphon.http.messages import ClientRequest, Response, ResponseStream, StreamSource, http_date
from antiphon.http.request_ids import request_id_scope, set_request_id
from antiphon.http.server.application import Application, Refusal, body_timeout, internal_error, request_timeout
from antiphon.http.server.connection_state import State
from antiphon.http.server.request_parser import IncomingRequest, RequestAdmission, RequestParser
from antiphon.http.server.timeouts import ConnectionTimer
from antiphon.http.server.websocket import SocketOpener, WebSocket, handshake

logger = logging.getLogger("antiphon.http")

LINGER_BYTES, LINGER_SECONDS = 256 * 1024, 1.0
"""So much of a refused body, for so long, is discarded before the connection is closed."""

UNREAD_BYTES = 64 * 1024
"""So much of further requests is read while one is answered: reading on is how a client that leaves is noticed."""
_BATCH_BYTES, _BATCH_PIECES = 16 * 1024, 64
"""A piece of this size, or so many pieces, end the first batch of a stream: only what is written can be paused."""
_TOO_MANY_CONNECTIONS = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
_CONTINUE, _LAST_CHUNK = b"HTTP/1.1 100 Continue\r\n\r\n", b"0\r\n\r\n"
_STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n" for status in HTTPStatus}
_SWITCHING, _WITHOUT_BODY = 101, frozenset({204, 304})
_IDLE, _HEAD, _BODY, _RESPONDING, _FLUSHING, _LINGERING, _CLOSED = State


class ConnectionListener(RequestAdmission, Protocol):
    """What a connection needs of its listener."""

    keep_alive_seconds: float

    @property
    def application(self) -> Application: ...
    def admit_connection(self, connection: ServerConnection) -> bool: ...
    def forget_connection(self, connection: ServerConnection) -> None: ...
    def request_started(self) -> None: ...
    def request_finished(self) -> None: ...
    def with_common_headers(self, response: Response, request: ClientRequest) -> Response: ...


class ServerConnection(asyncio.Protocol):
    """One connection. It is the `ResponseStream` of the response in progress."""

    def __init__(self, listener: ConnectionListener) -> None:
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._state = _IDLE
        self._current: IncomingRequest | None = None  # the request that is answered
        self._unread = bytearray()  # bytes that arrived meanwhile
        self._task: asyncio.Task[None] | None = None
        self._source: StreamSource | None = None
        self._is_streaming = False  # no reference to the response: that would be a cycle, by its source and the request
        self._is_chunked = False
        self._sends_body = True
        self._batch: list[bytes] = []  # the start of a stream, until this turn of the loop is over
        self._is_busy = self._is_advancing = self._timed_out = self._is_draining = False
        self._closes = False  # after the current response
        self._discarded = 0  # bytes after the last request
        self._paused_at = 0.0  # when the client stopped reading; 0: it reads
        self._writable: asyncio.Future[None] | None = None
        self._websocket: WebSocket | None = None

    # Called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client connected."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's transports do not inherit from asyncio's
        self._timer = ConnectionTimer(self._transport, self._on_deadline)
        peer = transport.get_extra_info("peername")
        self._parser = RequestParser(self._listener, str(peer[0]) if isinstance(peer, tuple) else str(peer or ""))
        if self._listener.admit_connection(self):
            self._timer.set_timeout(self._listener.limits.header_seconds)
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
        self._listener.forget_connection(self)
        if self._task is not None:
            self._task.cancel()  # it marks the end of the request when it ends
        else:
            self._mark_idle()
        source, self._source = self._source, None
        if source is not None:
            source.cancel()
        if self._websocket is not None:
            self._websocket.lost()
            self._websocket = None  # it refers to this object

    def pause_writing(self) -> None:
        """The client reads slowly."""
        self._paused_at = time.monotonic()
        self._timer.watch_client(self._listener.limits.write_seconds)
        if self._source is not None:
            self._source.pause()
        elif self._websocket is not None:
            self._websocket.pause()

    def resume_writing(self) -> None:
        """The client has caught up."""
        if not self._paused_at:
            return
        self._paused_at = 0.0
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
        if self._parser.is_finished:
            if self._websocket is None:
                self._discard(data)
            else:
                self._websocket.feed(data)
        elif self._state is _RESPONDING or self._state is _FLUSHING:
            if self._current is not None and self._current.has_more:
                self._parser.feed(data)
                return
            self._unread += data
            if len(self._unread) > UNREAD_BYTES:
                self._transport.pause_reading()
        else:
            self._parser.feed(data)
            self._advance()

    # Called by the listener

    def drain(self) -> None:
        """Take no new request: close now, or when the current response has left."""
        self._is_draining = True
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
            self._mark_busy()
            self._timer.set_timeout(self._listener.limits.body_seconds)
            if incoming.expects_continue:
                self._transport.write(_CONTINUE)
        elif parser.is_in_head and self._state is _IDLE:
            self._state = _HEAD
            self._timer.shorten_timeout(self._listener.limits.header_seconds)

    def _answer(self, incoming: IncomingRequest) -> None:
        request = incoming.request
        self._state = _RESPONDING
        self._current = incoming
        self._closes = not incoming.keeps_connection
        self._sends_body = request.method != "HEAD"
        self._timed_out = False
        self._mark_busy()
        seconds = self._listener.limits.request_seconds
        request.deadline = time.monotonic() + seconds
        self._timer.set_timeout(seconds)
        if isinstance(incoming.admission, Response):
            response = self._listener.with_common_headers(incoming.admission, request)
            self._send(self._whole(response))
            return
        if incoming.stream is not None:
            incoming.stream.attach(self._transport, _CONTINUE if incoming.expects_continue else b"")
        if incoming.is_websocket:
            self._open_websocket(incoming)
            return
        request.begin_early = self._begin_early
        task = start_task(self._run_handler(incoming), self._loop)
        if not task.done():
            self._task = task

    def _open_websocket(self, incoming: IncomingRequest) -> None:
        """Complete the handshake; from then on the connection carries frames."""
        listener, request = self._listener, incoming.request
        answer = handshake(request.headers)
        response = listener.refuse(request, answer) if isinstance(answer, Refusal) else answer
        listener.with_common_headers(response, request)
        incoming.end(response)
        if response.status != _SWITCHING:
            self._send(self._whole(response))
            return
        self._closes = False  # the head says that it is upgraded, not that it closes
        self._transport.write(self._head(response, ""))
        self._timer.clear_timeout()
        self._mark_idle()
        limits = listener.limits
        self._websocket = WebSocket(
            self._transport,
            max_bytes=limits.max_body_bytes,
            ping_seconds=limits.ping_seconds,
            on_busy=lambda is_busy: self._mark_busy() if is_busy else self._mark_idle(),
            new_hold=lambda: listener.hold(incoming.admission),
        )
        opener = cast("SocketOpener", listener.application)  # it admitted the request for that
        self._websocket.open(opener.open_socket(request, self._websocket))
        unread, self._parser.unread = self._parser.unread, b""
        if unread:
            self._websocket.feed(unread)

    async def _run_handler(self, incoming: IncomingRequest) -> None:
        request, listener = incoming.request, self._listener
        set_request_id(request.request_id)
        whole = b""
        source: StreamSource | None = None
        failure: Refusal | None = None
        try:
            response = await listener.application.handle(request, incoming.admission)
            source = None if isinstance(response.body, bytes | AsyncIterator) else response.body
            self._parser.release(incoming)  # the upstream has it
            listener.with_common_headers(response, request)
            if isinstance(response.body, bytes) and self._is_streaming:  # its head was sent early
                self.write(response.body)
            elif isinstance(response.body, bytes):
                whole = self._whole(response)
            elif isinstance(response.body, AsyncIterator):
                await self._iterate(response, response.body)
            else:
                self._begin_stream(response)
        except asyncio.CancelledError:
            if self._timed_out:
                if not request.is_recorded:
                    logger.warning("request timed out")
                failure = request_timeout(self._listener.limits)
            else:
                self._transport.abort()
        except Exception as error:
            logger.exception("internal error while answering a request")
            failure = internal_error(request)
            if source is not None:
                source.cancel(error)
                source = None
        self._task = None
        if self._state is _CLOSED:
            self._mark_idle()
            if source is not None:
                source.cancel()
        elif failure is not None:
            self._fail(request, failure)
        elif source is not None:
            self._start(source)
        elif whole:
            self._send(whole)
        else:
            self.end_stream()

    def _begin_early(self, response: Response) -> ResponseStream | None:
        """Send the head of a stream while the handler runs."""
        if self._task is None or self._current is None or not self._sends_body:
            return None
        self._begin_stream(self._listener.with_common_headers(response, self._current.request))
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
                if self._paused_at:
                    self._writable = self._loop.create_future()
                    await self._writable
                if self._transport.is_closing():
                    return

    def _start(self, source: StreamSource) -> None:
        if not self._sends_body:
            source.cancel()
            self.end_stream()
            return
        self._source = source
        try:
            source.start(self)
        except Exception:
            logger.exception("internal error while starting a stream")
            self.abort_stream()
        self._flush_batch()

    def _mark_busy(self) -> None:
        if not self._is_busy:
            self._is_busy = True
            self._listener.request_started()

    def _mark_idle(self) -> None:
        current, self._current = self._current, None
        if current is not None:
            self._parser.release(current)
        if self._is_busy:
            self._is_busy = False
            self._listener.request_finished()

    # Responses

    def write(self, data: bytes) -> None:
        """Send more of a stream."""
        if not data or not self._is_streaming or not self._sends_body:
            return  # an empty chunk would end the stream
        piece = b"%x\r\n%b\r\n" % (len(data), data) if self._is_chunked else data
        if self._batch:
            self._batch.append(piece)
            if len(piece) >= _BATCH_BYTES or len(self._batch) >= _BATCH_PIECES:
                self._flush_batch()
        elif not self._transport.is_closing():
            self._transport.write(piece)

    def end_stream(self) -> None:
        """The stream is complete."""
        if not self._is_streaming:
            return
        last = _LAST_CHUNK if self._is_chunked and self._sends_body else b""
        self._is_streaming, self._source = False, None
        batch, self._batch = self._batch, []
        self._send(b"".join([*batch, last]))

    def abort_stream(self) -> None:
        """Truncate the stream."""
        source, self._source = self._source, None
        if source is not None:
            source.cancel()
        self._transport.abort()

    def _send(self, data: bytes) -> None:
        """Write the end of a response, and wait until all of it has left."""
        transport = self._transport
        if transport.is_closing():
            return
        transport.write(data)
        if transport.get_write_buffer_size():
            self._state = _FLUSHING
            self._timer.clear_timeout()
            transport.set_write_buffer_limits(high=0)  # pauses writing now, and resumes it at exactly zero
        else:
            self._finish_response()

    def _finish_response(self) -> None:
        """The last byte has left: close, or go on to the next request."""
        is_complete = self._current is None or self._current.is_complete
        self._mark_idle()
        if not is_complete:
            self._parser.abandon()
            self._linger()
        elif self._closes or self._is_draining:
            self._state = _CLOSED
            self._parser.close()
            self._transport.close()
        else:
            self._state = _IDLE
            self._timer.set_timeout(self._listener.keep_alive_seconds)
            self._advance()

    def _fail(self, request: ClientRequest, failure: Refusal) -> None:
        """Answer with an error instead; if the status was sent already, a truncated response is the only possible signal."""
        self._closes = True
        if self._is_streaming and not self._batch:
            self.abort_stream()
        else:
            self._batch, self._is_streaming = [], False
            response = self._listener.refuse(request, failure)
            self._send(self._whole(self._listener.with_common_headers(response, request)))

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

    def _begin_stream(self, response: Response) -> None:
        if self._is_streaming:
            return  # it was begun early
        self._is_chunked = self._current is not None and not self._current.is_http_10
        if not self._is_chunked:
            self._closes = True  # its end is that of the connection
        self._batch = [self._head(response, "transfer-encoding: chunked\r\n" if self._is_chunked else "")]
        self._is_streaming = True

    def _whole(self, response: Response) -> bytes:
        body = response.body
        assert isinstance(body, bytes)
        framing = "" if response.status in _WITHOUT_BODY else f"content-length: {len(body)}\r\n"
        head = self._head(response, framing)
        return head + body if self._sends_body and framing else head

    def _head(self, response: Response, framing: str) -> bytes:
        headers = response.headers
        if headers.get("connection") == "close":
            self._closes = True
        elif self._closes or self._is_draining:
            headers["connection"] = "close"
        elif self._current is not None and self._current.is_http_10:
            headers["connection"] = "keep-alive"
        status_line = _STATUS_LINES.get(response.status) or f"HTTP/1.1 {response.status} \r\n"
        fields = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
        if fields.count("\n") != len(headers) or fields.count("\r") != len(headers):
            raise ValueError("a response header contains a line break")
        return encode_head(f"{status_line}{fields}{framing}date: {http_date(int(time.time()))}\r\n\r\n")

    def _flush_batch(self) -> None:
        batch, self._batch = self._batch, []
        if batch and not self._transport.is_closing():
            self._transport.write(b"".join(batch))

    def _on_deadline(self) -> None:
        if self._state is _BODY and self._parser.incoming is not None:
            self._parser.refuse(body_timeout(self._listener.limits))
            self._advance()
        elif self._state is not _RESPONDING or self._current is None:
            self._transport.abort()
        elif self._task is not None:
            self._timed_out = True
            self._task.cancel()
        else:
            request = self._current.request
            source, self._source = self._source, None
            if source is not None:
                source.cancel()
            if not request.is_recorded:
                with request_id_scope(request.request_id):
                    logger.warning("request timed out")
            self._fail(request, request_timeout(self._listener.limits))
