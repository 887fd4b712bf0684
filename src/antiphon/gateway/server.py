"""The listeners: HTTP comes in through aiohttp's server, is held to limits, and becomes a `ClientRequest`; an `Answer` goes out.

Two ports, one process, one gateway behind both (seed 001): the main service and the format proxy. The rest of the gateway knows
nothing of this: no framework's type goes past this file.

Limits, each with the status that says so: connections (503 and closed), the head of a request (431, or closed when it takes
too long), its body (413, or 408 when it takes too long), and the time of the whole (504). A client that goes away cancels what
is done for it, and that closes the upstream's connection.

A stop is graceful: nothing new is accepted, what is under way gets its time, and then the rest is cut.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from antiphon.errors import ServeRefused
from antiphon.gateway.config import GatewaySettings
from antiphon.gateway.door import Door, door_of
from antiphon.gateway.gateway import Answers, request_id_of
from antiphon.gateway.logs import request_named
from antiphon.gateway.message import Answer, ClientRequest
from antiphon.gateway.metrics import Metrics
from antiphon.gateway.refusal import refused
from antiphon.wire.output import ProviderError

if TYPE_CHECKING:
    from aiohttp import web

logger = logging.getLogger("antiphon.gateway")

_IDLE_SECONDS = 75.0
_SWEEP_SECONDS = 1.0
_JSON_TYPES = ("application/json", "application/octet-stream", "text/plain", "")
"""What a body of JSON may call itself; the official clients say the first, and curl says nothing useful."""


class Listener:
    """One port. `door` is what it is called in logs."""

    def __init__(self, gateway: Answers, door: str, metrics: Metrics, settings: Callable[[], GatewaySettings]) -> None:
        self._gateway = gateway
        self._metrics = metrics
        self._door = door
        self._settings = settings
        self._server: Any = None
        self._sockets: asyncio.Server | None = None
        self._busy: dict[Any, float] = {}  # connections that have a request under way, and since when
        self._since: dict[Any, float] = {}  # all connections, and when they were last heard of

    @property
    def connections(self) -> int:
        """How many clients are connected."""
        return len(self._since)

    async def open(self, sock: socket.socket) -> None:
        """Listen."""
        self._server = _server_class()(self)
        self._sockets = await asyncio.get_running_loop().create_server(self._server, sock=sock, backlog=1024)
        self._sweeper = asyncio.create_task(self._sweep())

    async def close(self, grace: float) -> None:
        """Accept nothing new, give what is under way `grace` seconds, then cut the rest."""
        self._sweeper.cancel()
        if self._sockets is not None:
            self._sockets.close()
        self._server.pre_shutdown()
        deadline = time.monotonic() + grace
        while self._busy and time.monotonic() < deadline:
            await asyncio.sleep(0.05)
        await self._server.shutdown(1.0)

    def connected(self, transport: asyncio.Transport) -> bool:
        """Note a connection; False if there are too many."""
        if len(self._since) >= self._settings().max_connections:
            return False
        self._since[transport] = time.monotonic()
        self._metrics.connection_opened()
        return True

    def disconnected(self, transport: Any) -> None:
        """Forget a connection."""
        if self._since.pop(transport, None) is not None:
            self._metrics.connection_closed()
        self._busy.pop(transport, None)

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """One request."""
        from aiohttp import web

        transport = request.transport
        self._busy[transport] = time.monotonic()
        headers = {name.lower(): value for name, value in request.headers.items()}
        request_id = request_id_of(headers)
        seconds = self._settings().request_seconds
        self._metrics.request_began()
        try:
            with request_named(request_id):
                async with asyncio.timeout(seconds) as limit:
                    answer = await self._answered(request, headers, request_id)
                    answer.headers.setdefault("x-request-id", request_id)
                    if isinstance(answer.body, bytes):
                        return web.Response(status=answer.status, headers=answer.headers, body=answer.body)
                    return await self._streamed(request, answer)
        except TimeoutError:
            if not limit.expired():
                raise
            error = ProviderError(f"the request took longer than {seconds:g} s", "timeout")
            late = refused(_format_of(request), error, headers={"x-request-id": request_id})
            return web.Response(status=late.status, headers=late.headers, body=late.body)
        finally:
            self._metrics.request_ended()
            self._busy.pop(transport, None)
            if transport in self._since:
                self._since[transport] = time.monotonic()

    async def _answered(self, request: web.BaseRequest, headers: Mapping[str, str], request_id: str) -> Answer:
        body = b""
        if request.body_exists:
            taken = await self._body(request, headers)
            if isinstance(taken, Answer):
                return taken
            body = taken
        peer = request.remote or ""
        return await self._gateway.handle(
            ClientRequest(
                method=request.method,
                path=request.path,
                query=dict(request.query),
                headers=headers,
                body=body,
                peer=peer,
                door=self._door,
                request_id=request_id,
            )
        )

    async def _body(self, request: web.BaseRequest, headers: Mapping[str, str]) -> bytes | Answer:
        settings = self._settings()
        format_name = _format_of(request)
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind not in _JSON_TYPES and not kind.endswith("+json"):
            message = f"a body is JSON here, not {kind[:80]}; send content-type: application/json"
            return refused(
                format_name, ProviderError(message, "invalid_request"), status=415, headers={"connection": "close"}
            )
        too_large = ProviderError(f"the body is larger than {settings.max_body_bytes:,} bytes", "too_large")
        length = request.content_length
        if length is not None and length > settings.max_body_bytes:
            return refused(format_name, too_large, headers={"connection": "close"})
        pieces: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(settings.body_seconds):
                while piece := await request.content.readany():
                    size += len(piece)
                    if size > settings.max_body_bytes:
                        return refused(format_name, too_large, headers={"connection": "close"})
                    pieces.append(piece)
        except TimeoutError:
            message = f"the body did not come within {settings.body_seconds:g} s"
            return refused(format_name, ProviderError(message, "timeout"), status=408, headers={"connection": "close"})
        except Exception as error:
            message = f"the body cannot be read: {type(error).__name__}"
            return refused(format_name, ProviderError(message, "invalid_request"), headers={"connection": "close"})
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def _streamed(self, request: web.BaseRequest, answer: Answer) -> web.StreamResponse:
        from aiohttp import web

        assert not isinstance(answer.body, bytes)
        response = web.StreamResponse(status=answer.status, headers=answer.headers)
        async with aclosing(answer.body) as pieces:  # type: ignore[type-var]
            await response.prepare(request)
            with contextlib.suppress(ConnectionError):  # the client is gone; closing the pieces tells the upstream
                async for piece in pieces:
                    await response.write(piece)
                await response.write_eof()
        return response

    async def _sweep(self) -> None:
        """Close connections that do nothing: no request in their first seconds, or none since the last one."""
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            now = time.monotonic()
            for transport, since in list(self._since.items()):
                patience = _IDLE_SECONDS if transport in self._server.served else self._settings().header_seconds
                if transport not in self._busy and now - since > patience:
                    transport.abort()


def _server_class() -> Any:
    """aiohttp's server with our count of connections."""
    from aiohttp import web

    class _Server(web.Server):
        def __init__(self, listener: Listener) -> None:
            self.served: set[Any] = set()
            self._listener = listener
            super().__init__(
                self._handle,
                handler_cancellation=True,
                access_log=None,
                keepalive_timeout=_IDLE_SECONDS,
                max_line_size=16 * 1024,
                max_field_size=32 * 1024,
                lingering_time=1.0,
            )

        async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
            self.served.add(request.transport)
            return await self._listener.handle(request)

        def connection_made(self, handler: Any, transport: asyncio.Transport) -> None:
            super().connection_made(handler, transport)
            if not self._listener.connected(transport):
                transport.write(b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
                transport.close()

        def connection_lost(self, handler: Any, exc: BaseException | None = None) -> None:
            transport = self._connections.get(handler)
            self._listener.disconnected(transport)
            self.served.discard(transport)
            super().connection_lost(handler, exc)

    return _Server


def _format_of(request: web.BaseRequest) -> str:
    """The format in which whoever asks for that path understands errors."""
    door = door_of("POST", request.path, {})
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
