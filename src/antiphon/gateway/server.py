"""The listeners: HTTP comes in, is held to limits, and becomes a `ClientRequest`; an `Answer` goes out.

Two ports, one process, one gateway behind both (seed 001): the main service and the format proxy. The rest of the gateway knows
nothing of this: no framework's type goes past this file.

What is plain is read and answered by a `PlainLine`; the first thing on a connection that is not goes to aiohttp's server, with
the rest of the connection. Both count, ask and answer through the `Listener` of their port.

Limits, each with the status that says so: connections (503 and closed), the head of a request (431, or closed when it takes
too long), its body (413, or 408 when it takes too long), and the time of the whole (504). A client that goes away cancels what
is done for it, and that closes the upstream's connection.

A stop is graceful: nothing new is accepted, what is under way gets its time, and then the rest is cut.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import socket
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing
from math import inf
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from antiphon.errors import ServeRefused
from antiphon.gateway.config import GatewaySettings
from antiphon.gateway.door import Door, door_of
from antiphon.gateway.gateway import Answers
from antiphon.gateway.logs import request_named
from antiphon.gateway.message import Answer, ClientRequest
from antiphon.gateway.metrics import Metrics
from antiphon.gateway.plain_head import JSON_TYPES
from antiphon.gateway.plain_line import PlainLine
from antiphon.gateway.refusal import refused
from antiphon.gateway.request_ids import request_ids
from antiphon.wire.output import ProviderError

if TYPE_CHECKING:
    from aiohttp import web

logger = logging.getLogger("antiphon.gateway")

_SERVER = "antiphon"
_IDLE_SECONDS = 75.0
_SWEEP_SECONDS = 1.0
_given_id = re.compile(r"[!-~]{1,128}").fullmatch
_HEAD = re.compile(rb"[A-Z]+ /")
_AGENT = re.compile(rb"\r\nuser-agent:", re.IGNORECASE)
_OTHER_AGENT = b"\r\nalso-agent:"


class Listener:
    """One port. `door` is what it is called in logs."""

    def __init__(self, gateway: Answers, door: str, metrics: Metrics, settings: Callable[[], GatewaySettings]) -> None:
        self.gateway = gateway
        self._metrics = metrics
        self._door = door
        self._settings = settings
        self._server: Any = None
        self._lines: WeakSet[PlainLine] = WeakSet()
        self._ids = request_ids()
        self._sockets: asyncio.Server | None = None
        self._under_way = 0  # requests
        self._until: dict[Any, float] = {}  # all connections, and when they are closed if no request comes

    @property
    def connections(self) -> int:
        """How many clients are connected."""
        return len(self._until)

    async def open(self, sock: socket.socket) -> None:
        """Listen."""
        self._server = _server_class()(self)
        self._sockets = await asyncio.get_running_loop().create_server(self._line, sock=sock, backlog=1024)
        self._sweeper = asyncio.create_task(self._sweep())

    async def close(self, grace: float) -> None:
        """Accept nothing new, give what is under way `grace` seconds, then cut the rest."""
        self._sweeper.cancel()
        if self._sockets is not None:
            self._sockets.close()
        self._server.pre_shutdown()
        for line in list(self._lines):
            line.stop()
        deadline = time.monotonic() + grace
        while self._under_way and time.monotonic() < deadline:
            await asyncio.sleep(0.05)
        await asyncio.gather(self._server.shutdown(1.0), *(line.cut(1.0) for line in list(self._lines)))

    @property
    def settings(self) -> GatewaySettings:
        """The limits in force."""
        return self._settings()

    def connected(self, transport: asyncio.Transport) -> bool:
        """Note a connection; False if there are too many."""
        if transport in self._until:
            return True  # it is handed from one to the other
        settings = self._settings()
        if len(self._until) >= settings.max_connections:
            return False
        self._until[transport] = time.monotonic() + settings.header_seconds
        self._metrics.connection_opened()
        return True

    def disconnected(self, transport: Any) -> None:
        """Forget a connection."""
        if self._until.pop(transport, None) is not None:
            self._metrics.connection_closed()

    def began(self, transport: Any) -> None:
        """A connection has a request under way."""
        self._under_way += 1
        self._metrics.request_began()
        if transport in self._until:
            self._until[transport] = inf

    def ended(self, transport: Any) -> None:
        """It is answered, or was given up."""
        self._under_way -= 1
        self._metrics.request_ended()
        if transport in self._until:
            self._until[transport] = time.monotonic() + _IDLE_SECONDS

    def request_of(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        headers: Mapping[str, str],
        body: bytes,
        peer: str,
    ) -> ClientRequest:
        """What a client asks, under the id it gave or a new one."""
        return ClientRequest(
            method=method,
            path=path,
            query=query,
            headers=headers,
            body=body,
            peer=peer,
            door=self._door,
            request_id=self._id_of(headers),
        )

    def signed(self, answer: Answer, request_id: str) -> Answer:
        """The answer, under the id of the request."""
        answer.headers.setdefault("x-request-id", request_id)
        answer.headers.setdefault("server", _SERVER)
        return answer

    def too_late(self, path: str, request_id: str) -> Answer:
        """A request took longer than any may."""
        error = ProviderError(f"the request took longer than {self.settings.request_seconds:g} s", "timeout")
        return self.signed(refused(_format_of(path), error), request_id)

    def body_too_late(self, path: str) -> Answer:
        """A body took longer than any may."""
        message = f"the body did not come within {self.settings.body_seconds:g} s"
        return refused(_format_of(path), ProviderError(message, "timeout"), status=408, headers={"connection": "close"})

    def broken(self, request_id: str) -> Answer:
        """The gateway made a mistake."""
        told = f"the gateway failed; its log says more under {request_id}"
        return self.signed(refused("", ProviderError(told, "server"), status=500), request_id)

    def _id_of(self, headers: Mapping[str, str]) -> str:
        """The id a client gave its request, if it can be used; else a new one."""
        given = headers.get("x-request-id")
        return given if given is not None and _given_id(given) else next(self._ids)

    def _line(self) -> PlainLine:
        line = PlainLine(self, self._server)
        self._lines.add(line)
        return line

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """One request."""
        from aiohttp import web

        transport = request.transport
        self.began(transport)
        headers = {name.lower(): value for name, value in request.headers.items()}
        request_id = headers["x-request-id"] = self._id_of(headers)
        seconds = self._settings().request_seconds
        streamed: web.StreamResponse | None = None
        try:
            with request_named(request_id):
                async with asyncio.timeout(seconds) as limit:
                    answer = await self._answered(request, headers, request_id)
                    if isinstance(answer.body, bytes):
                        return web.Response(status=answer.status, headers=answer.headers, body=answer.body)
                    streamed = web.StreamResponse(status=answer.status, headers=answer.headers)
                    await self._stream(request, streamed, answer.body)
                    return streamed
        except TimeoutError:
            if not limit.expired():
                raise
            if streamed is not None and streamed.prepared:
                # A status was told already: that there is no end is all that can still be said.
                logger.warning("the request took too long; its stream is cut", extra={"request_id": request_id})
                if transport is not None:
                    transport.abort()
                return streamed
            late = self.too_late(request.path, request_id)
            return web.Response(status=late.status, headers=late.headers, body=late.body)
        finally:
            self.ended(transport)

    async def _answered(self, request: web.BaseRequest, headers: Mapping[str, str], request_id: str) -> Answer:
        body = b""
        if request.body_exists:
            taken = await self._body(request, headers)
            if isinstance(taken, Answer):
                return self.signed(taken, request_id)
            body = taken
        query = dict(request.query) if request.query_string else {}
        peer = request.remote or ""
        asked = self.request_of(request.method, request.path, query, headers, body, peer)
        return self.signed(await self.gateway.handle(asked), request_id)

    async def _body(self, request: web.BaseRequest, headers: Mapping[str, str]) -> bytes | Answer:
        settings = self._settings()
        format_name = _format_of(request.path)
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind not in JSON_TYPES and not kind.endswith("+json"):
            message = f"a body is JSON here, not {kind[:80]}; send content-type: application/json"
            return refused(
                format_name, ProviderError(message, "invalid_request"), status=415, headers={"connection": "close"}
            )
        too_large = ProviderError(f"the body is larger than {settings.max_body_bytes:,} bytes", "too_large")
        length = request.content_length
        if length is not None and length > settings.max_body_bytes:
            return refused(format_name, too_large, headers={"connection": "close"})
        if headers.get("expect", "").lower() == "100-continue":
            await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            request.writer.output_size = 0  # nothing of the answer was said yet
        pieces: list[bytes] = []
        size = 0
        is_there = request.content.is_eof()  # it came with the head: there is nothing to wait for
        try:
            async with asyncio.timeout(None if is_there else settings.body_seconds):
                while piece := await request.content.readany():
                    size += len(piece)
                    if size > settings.max_body_bytes:
                        return refused(format_name, too_large, headers={"connection": "close"})
                    pieces.append(piece)
        except TimeoutError:
            return self.body_too_late(request.path)
        except Exception as error:
            message = f"the body cannot be read: {type(error).__name__}"
            return refused(format_name, ProviderError(message, "invalid_request"), headers={"connection": "close"})
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def _stream(self, request: web.BaseRequest, response: web.StreamResponse, body: AsyncIterator[bytes]) -> None:
        async with aclosing(body) as pieces:  # type: ignore[type-var]
            await response.prepare(request)
            with contextlib.suppress(ConnectionError):  # the client is gone; closing the pieces tells the upstream
                async for piece in pieces:
                    await response.write(piece)
                await response.write_eof()

    async def _sweep(self) -> None:
        """Close connections that do nothing: no request in their first seconds, or none since the last one."""
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            now = time.monotonic()
            for transport, until in list(self._until.items()):
                if now > until:
                    transport.abort()


def _server_class() -> Any:
    """aiohttp's server with our count of connections, and our words for what is no HTTP."""
    from aiohttp import http_exceptions, web

    class _Handler(web.RequestHandler):
        def data_received(self, data: bytes) -> None:
            super().data_received(_with_one_agent(data))

        def handle_error(
            self,
            request: web.BaseRequest,
            status: int = 500,
            exc: BaseException | None = None,
            message: str | None = None,
        ) -> web.StreamResponse:
            if not isinstance(exc, http_exceptions.HttpProcessingError) or request.writer.output_size:
                return super().handle_error(request, status, exc, message)
            # What was sent is not repeated, neither to the log nor to whoever sent it: a key may be in it.
            is_large = isinstance(exc, http_exceptions.LineTooLong) or "Too many headers" in str(exc)
            logger.info("a request from %s is no HTTP: %s", request.remote, type(exc).__name__)
            told = "the head of the request is too large" if is_large else "the request is not well-formed HTTP"
            answer = refused("", ProviderError(told, "invalid_request"), status=431 if is_large else 400)
            response = web.Response(
                status=answer.status, headers={**answer.headers, "server": _SERVER}, body=answer.body
            )
            response.force_close()
            return response

        def log_exception(self, *told: Any, **more: Any) -> None:
            if isinstance(more.get("exc_info"), web.RequestPayloadError):
                return  # a body that cannot be read was answered already
            super().log_exception(*told, **more)

    class _Server(web.Server):
        def __init__(self, listener: Listener) -> None:
            self._listener = listener
            super().__init__(
                listener.handle,
                handler_cancellation=True,
                access_log=None,
                keepalive_timeout=_IDLE_SECONDS,
                max_line_size=16 * 1024,
                max_field_size=32 * 1024,
                lingering_time=1.0,
            )

        def __call__(self) -> web.RequestHandler:
            return _Handler(self, loop=self._loop, **self._kwargs)

        def connection_made(self, handler: Any, transport: asyncio.Transport) -> None:
            super().connection_made(handler, transport)
            if not self._listener.connected(transport):
                transport.write(b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
                transport.close()

        def connection_lost(self, handler: Any, exc: BaseException | None = None) -> None:
            self._listener.disconnected(self._connections.get(handler))
            super().connection_lost(handler, exc)

    return _Server


def _with_one_agent(data: bytes) -> bytes:
    """The head of a request with its second User-Agent under another name, of the same length: libraries that stand on an SDK
    send theirs beside it (pydantic-ai does to Gemini), and aiohttp takes two for no HTTP at all."""
    if not _HEAD.match(data):
        return data
    end = data.find(b"\r\n\r\n")
    end = len(data) if end < 0 else end
    for other in list(_AGENT.finditer(data, 0, end))[1:]:
        data = data[: other.start()] + _OTHER_AGENT + data[other.end() :]
    return data


def _format_of(path: str) -> str:
    """The format in which whoever asks for that path understands errors."""
    door = door_of("POST", path, {})
    return door.format if isinstance(door, Door) else ""


def bound(host: str, port: int) -> socket.socket:
    """A socket that listens there, or an error that says why it cannot."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
        sock.listen(1024)
    except OSError as error:
        sock.close()
        raise ServeRefused(
            f"cannot listen on {host}:{port}: {error.strerror}; choose another port (port, format_port) or stop who has it"
        ) from None
    sock.setblocking(False)
    return sock
