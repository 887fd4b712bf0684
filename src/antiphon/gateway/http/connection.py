"""`ServerConnection`: one client connection, as long as its requests are simple.

Nearly every request is a `POST` of JSON with a length, whose head arrives in one piece (`request_head`). Everything else
(chunked or compressed bodies, repeated headers, escapes in the path, malformed HTTP) is handed to the general server with all
unanswered bytes, and the connection stays there.

One request is handled at a time; later ones wait. A request is admitted on its head; after a refusal a bounded part of the body
is discarded before the connection closes, so that the client sees the response and not a reset. A response ends when its last
byte has left the write buffer (`slow_clients`). A disconnect cancels the request.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from typing import Any, Protocol

from antiphon.gateway.app import RequestHandler
from antiphon.gateway.config.settings import GatewaySettings
from antiphon.gateway.http.body_budget import BodyBudget
from antiphon.gateway.http.messages import ClientRequest, Response
from antiphon.gateway.http.request_head import RequestHead, read_head
from antiphon.gateway.http.slow_clients import flush, wait_for_client
from antiphon.gateway.observe.logs import set_request_id
from antiphon.providers.transport.errand import Errand

logger = logging.getLogger("antiphon.gateway")

LINGER_BYTES = 256 * 1024
LINGER_SECONDS = 1.0
"""So much of a refused body, for so long, is discarded before the connection is closed."""

_TOO_MANY_CONNECTIONS = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
_STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n" for status in HTTPStatus}


class ConnectionListener(Protocol):
    """What a connection needs of its listener."""

    budget: BodyBudget

    @property
    def gateway(self) -> RequestHandler: ...
    @property
    def settings(self) -> GatewaySettings: ...
    def admit_connection(self, transport: asyncio.Transport) -> bool: ...
    def forget_connection(self, transport: asyncio.Transport) -> None: ...
    def request_started(self, transport: asyncio.Transport) -> None: ...
    def request_finished(self, transport: asyncio.Transport) -> None: ...
    def build_request(
        self, method: str, path: str, query: dict[str, str], headers: dict[str, str], peer: str
    ) -> ClientRequest: ...
    def admit(self, request: ClientRequest, length: int | None) -> Any: ...
    def with_common_headers(self, response: Response, request_id: str) -> Response: ...
    def request_timeout(self, path: str, request_id: str) -> Response: ...
    def body_timeout(self, path: str) -> Response: ...
    def over_budget(self, path: str) -> Response: ...
    def internal_error(self, request_id: str) -> Response: ...


class ServerConnection(asyncio.Protocol):
    """One connection. `general` makes the protocol it is handed to when a request is not plain."""

    def __init__(self, listener: ConnectionListener, general: Callable[[], asyncio.Protocol]) -> None:
        self._listener = listener
        self._general = general
        self._loop = asyncio.get_running_loop()
        self._peer = ""
        self._last_head: RequestHead | None = None
        self._incoming: tuple[RequestHead, ClientRequest, Any] | None = None  # a request whose body is not complete
        self._body: list[bytes] = []
        self._missing = 0  # bytes of that body
        self._reserved = 0  # bytes counted in the budget
        self._pipelined: list[bytes] = []
        self._task: Errand | None = None
        self._deadline = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._body_timer: asyncio.TimerHandle | None = None
        self._timed_out = False
        self._close_after_response = False
        self._is_busy = self._is_answering = self._is_flushing = False
        self._discarded = -1  # bytes of a refused body; -1: bodies are read
        self._write_batch: list[bytes] = []  # the start of a stream, until this turn of the loop is over
        self._drain_waiter: asyncio.Future[None] | None = None
        self._is_paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client connected."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        peer = transport.get_extra_info("peername")
        self._peer = str(peer[0]) if isinstance(peer, tuple) else str(peer or "")
        if not self._listener.admit_connection(transport):
            transport.write(_TOO_MANY_CONNECTIONS)
            transport.close()
            self._close_after_response = True

    def connection_lost(self, exc: Exception | None) -> None:
        """The client left: its request is cancelled."""
        del exc
        for timer in (self._timer, self._body_timer):
            if timer is not None:
                timer.cancel()
        self._close_after_response = True
        self.resume_writing()
        if self._task is not None:
            self._task.cancel()
        if not self._is_answering:  # else the handler does this when it ends
            self._mark_idle()
        self._listener.forget_connection(self._transport)

    def pause_writing(self) -> None:
        """The client reads slowly."""
        self._is_paused = True

    def resume_writing(self) -> None:
        """The client has caught up."""
        self._is_paused = False
        if self._drain_waiter is not None and not self._drain_waiter.done():
            self._drain_waiter.set_result(None)

    def data_received(self, data: bytes) -> None:
        """More of a request."""
        if self._discarded >= 0:
            self._discard(data)
        elif self._close_after_response and not self._is_busy:
            return
        elif self._task is not None:
            self._pipelined.append(data)
            self._transport.pause_reading()
        elif self._incoming is not None:
            self._add_to_body(data)
        elif not self._read(data):
            self._hand_over(data)

    def drain(self) -> None:
        """Take no new request: close now, or when the current response has left."""
        self._close_after_response = True
        if not self._is_busy and self._transport.get_protocol() is self:  # else the general server closes it
            self._transport.close()

    async def abort(self, seconds: float) -> None:
        """Give up the current request, which gets `seconds` to end."""
        task = self._task
        if self._transport.get_protocol() is self:
            self._transport.abort()
        if task is not None:
            task.cancel()
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await task.ended()

    def _read(self, data: bytes) -> bool:
        """Read the head of a request and admit it; False if it is not plain."""
        head = (self._last_head.with_length_of(data) if self._last_head is not None else None) or read_head(data)
        if head is None:
            return False
        self._last_head = head
        listener = self._listener
        request = listener.build_request(head.method, head.path, head.query, head.headers, self._peer)
        admission = listener.admit(request, head.length)
        body = data[head.size :]
        self._mark_busy()
        if len(body) < head.length:
            self._incoming, self._missing = (head, request, admission), head.length
            if isinstance(admission, Response):
                self._refuse(admission)
            else:
                self._body_timer = self._loop.call_later(listener.settings.body_seconds, self._on_body_timeout)
                self._add_to_body(body)
            return True
        if len(body) > head.length:  # the next request came with this one
            self._pipelined.append(body[head.length :])
            self._transport.pause_reading()
            body = body[: head.length]
        if not isinstance(admission, Response) and not self._reserve(len(body)):
            admission = listener.over_budget(head.path)
        request.body = body
        self._dispatch(request, admission)
        return True

    def _add_to_body(self, data: bytes) -> None:
        """More of the body of the incoming request."""
        assert self._incoming is not None
        head, request, admission = self._incoming
        if not self._reserve(min(len(data), self._missing)):
            self._refuse(self._listener.over_budget(head.path))
            return
        self._body.append(data)
        self._missing -= len(data)
        if self._missing > 0:
            return
        body, self._body, self._incoming = b"".join(self._body), [], None
        if self._missing < 0:
            self._pipelined.append(body[head.length :])
            self._transport.pause_reading()
            body = body[: head.length]
        request.body = body
        self._dispatch(request, admission)

    def _reserve(self, size: int) -> bool:
        if not size:
            return True
        if self._listener.budget.reserve(size):
            self._reserved += size
            return True
        return False

    def _release(self) -> None:
        if self._reserved:
            self._listener.budget.release(self._reserved)
            self._reserved = 0

    def _refuse(self, response: Response) -> None:
        """Answer a request whose body is not read to its end, and discard the rest."""
        assert self._incoming is not None
        _, request, _ = self._incoming
        self._incoming, self._body = None, []
        self._release()
        self._close_after_response = True
        self._discarded = 0
        self._dispatch(request, response)

    def _discard(self, data: bytes) -> None:
        self._discarded += len(data)
        if self._discarded <= LINGER_BYTES:
            return
        if self._task is None:
            self._transport.abort()
        else:
            self._transport.pause_reading()

    def _hand_over(self, data: bytes) -> None:
        """Let the general server have the connection, from these bytes on."""
        if self._timer is not None:
            self._timer.cancel()
        protocol = self._general()
        self._transport.set_protocol(protocol)
        protocol.connection_made(self._transport)
        protocol.data_received(data)

    def _dispatch(self, request: ClientRequest, admission: Any) -> None:
        """Answer a request; `admission` is an answer if it was refused."""
        if self._body_timer is not None:
            self._body_timer.cancel()
            self._body_timer = None
        seconds = self._listener.settings.request_seconds
        self._deadline = request.deadline = time.monotonic() + seconds
        if self._timer is None:
            self._timer = self._loop.call_later(seconds, self._on_deadline)
        self._task = Errand(self._run_handler(request, admission), self._loop)
        self._task.go_on()

    def _mark_busy(self) -> None:
        if not self._is_busy:
            self._is_busy = True
            self._listener.request_started(self._transport)

    def _mark_idle(self) -> None:
        self._task = None
        self._incoming = None
        self._body = []
        self._release()
        self._is_answering = self._is_flushing = False
        if self._is_busy:
            self._is_busy = False
            self._listener.request_finished(self._transport)

    def _on_deadline(self) -> None:
        """Cancel a request that takes too long. A response that is only being read is not cut."""
        self._timer = None
        if self._task is None or self._is_flushing:
            return  # the next request sets it again
        left = self._deadline - time.monotonic()
        if left > 0:
            self._timer = self._loop.call_later(left, self._on_deadline)
        else:
            self._timed_out = True
            self._task.cancel()

    def _on_body_timeout(self) -> None:
        assert self._incoming is not None
        self._refuse(self._listener.body_timeout(self._incoming[0].path))

    async def _run_handler(self, request: ClientRequest, admission: Any) -> None:
        self._is_answering = True
        set_request_id(request.request_id)
        try:
            await self._respond(request, admission)
            self._flush_batch()
            if self._transport.get_write_buffer_size():
                self._is_flushing = True
                await flush(self._transport, self._wait_drained, self._listener.settings.write_seconds)
        finally:
            self._mark_idle()
        if self._discarded >= 0:
            self._linger()
        elif self._close_after_response:
            self._transport.close()
        elif self._pipelined:
            waiting, self._pipelined = b"".join(self._pipelined), []
            self._transport.resume_reading()
            self.data_received(waiting)

    async def _respond(self, request: ClientRequest, admission: Any) -> None:
        """Write the response, or start it and write it as it comes."""
        listener, is_begun = self._listener, False
        try:
            response = (
                admission if isinstance(admission, Response) else await listener.gateway.handle(request, admission)
            )
            request.body = b""  # the upstream has it
            self._release()
            listener.with_common_headers(response, request.request_id)
            if isinstance(response.body, bytes):
                self._write_whole(response)
            else:
                is_begun = True
                await self._write_stream(response)
        except asyncio.CancelledError:
            if not self._timed_out or self._transport.is_closing():
                raise
            logger.warning("request timed out")
            self._fail(listener.request_timeout(request.path, request.request_id), is_begun=is_begun)
        except Exception:
            logger.exception("internal error in the HTTP connection")
            self._fail(listener.internal_error(request.request_id), is_begun=is_begun)

    def _fail(self, response: Response, *, is_begun: bool) -> None:
        """Answer with an error instead; if the status was sent already, a truncated response is the only possible signal."""
        self._close_after_response = True
        if is_begun and not self._write_batch:
            self._transport.abort()
        else:
            self._write_batch = []
            self._write_whole(response)

    def _linger(self) -> None:
        """Signal the end of the responses, discard what the client still sends, then close."""
        if self._transport.is_closing():
            return
        with suppress(OSError):
            self._transport.write_eof()
        self._loop.call_later(LINGER_SECONDS, self._transport.abort)

    def _write_whole(self, response: Response) -> None:
        body = response.body
        assert isinstance(body, bytes)
        self._write(self._response_head(response, f"content-length: {len(body)}\r\n") + body)

    async def _write_stream(self, response: Response) -> None:
        assert not isinstance(response.body, bytes)
        async with aclosing(response.body) as pieces:  # type: ignore[type-var]
            self._write_batch.append(self._response_head(response, "transfer-encoding: chunked\r\n"))
            self._loop.call_soon(self._flush_batch)
            async for piece in pieces:
                if not piece:
                    continue  # an empty chunk would end the stream
                self._write(b"%x\r\n%b\r\n" % (len(piece), piece))
                if self._is_paused:
                    await self._wait_for_client(response)
                if self._transport.is_closing():
                    return
            self._write(b"0\r\n\r\n")

    async def _wait_for_client(self, response: Response) -> None:
        paused_at = time.monotonic()
        try:
            await wait_for_client(self._transport, self._wait_drained(), self._listener.settings.write_seconds)
        finally:
            if response.on_client_wait is not None:
                response.on_client_wait(time.monotonic() - paused_at)

    def _response_head(self, response: Response, framing: str) -> bytes:
        if response.headers.get("connection") == "close":
            self._close_after_response = True
        elif self._close_after_response:
            response.headers["connection"] = "close"
        head = _STATUS_LINES.get(response.status) or f"HTTP/1.1 {response.status} \r\n"
        for name, value in response.headers.items():
            head += f"{name}: {value}\r\n"
        lines = len(response.headers) + 1
        if head.count("\n") != lines or head.count("\r") != lines:
            raise ValueError("a response header contains a line break")
        return f"{head}{framing}date: {_http_date(int(time.time()))}\r\n\r\n".encode()

    def _write(self, data: bytes) -> None:
        if self._write_batch:
            self._write_batch.append(data)
        elif not self._transport.is_closing():
            self._transport.write(data)

    def _flush_batch(self) -> None:
        batch, self._write_batch = self._write_batch, []
        if batch and not self._transport.is_closing():
            self._transport.write(b"".join(batch))

    def _wait_drained(self) -> Awaitable[None]:
        self._drain_waiter = self._loop.create_future()
        if not self._is_paused:
            self._drain_waiter.set_result(None)
        return self._drain_waiter


@lru_cache(maxsize=2)
def _http_date(second: int) -> str:
    return formatdate(second, usegmt=True)
