"""`Listener`: one port with its connections and limits.

A process has two, the main service and the format proxy, with the same routes; the chat of several workers has one on a Unix
socket. Every `ServerConnection` asks its listener to admit and count. A request is admitted on its head (endpoint, origin, key,
content type, declared length); only then is its body read.

Limits and their statuses: connections 503; head 431; body 413, 408 when late, 503 above the budget of all bodies; whole request
504. A shutdown accepts nothing new, lets current requests finish for a while, then aborts the rest.
"""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from typing import Any

from antiphon.errors import GatewayStartError
from antiphon.gateway.access.admission import body_too_large, refuse_body
from antiphon.gateway.access.origin import cors_headers
from antiphon.gateway.app import RequestHandler
from antiphon.gateway.config.settings import GatewaySettings
from antiphon.gateway.http.connection import ServerConnection
from antiphon.gateway.http.errors import error_response, internal_error, overloaded
from antiphon.gateway.http.governor import Governor, Hold
from antiphon.gateway.http.messages import ClientRequest, Response, new_request_ids
from antiphon.gateway.observe.metrics import Metrics
from antiphon.gateway.routes import error_format_for_path
from antiphon.wire.output import ProviderError

KEEP_ALIVE_SECONDS = 75.0
"""How long a connection without a request is kept open, from the last byte of the response before."""
SERVER_HEADER = "antiphon"
_BACKLOG = 1024
_VALID_REQUEST_ID = re.compile(r"[!-~]{1,128}").fullmatch


class Listener:
    """One port. `name` is its name in logs; `governor` is that of the process."""

    keep_alive_seconds = KEEP_ALIVE_SECONDS

    def __init__(
        self,
        gateway: RequestHandler,
        name: str,
        metrics: Metrics,
        settings: Callable[[], GatewaySettings],
        governor: Governor | None = None,
    ) -> None:
        self.gateway = gateway
        self.governor = governor or Governor(lambda: settings().max_buffered_bytes)
        self._metrics = metrics
        self.name = name
        self._settings = settings
        self._connections: set[ServerConnection] = set()
        self._ids = new_request_ids()
        self._server: asyncio.Server | None = None
        self._active_requests = 0

    @property
    def connections(self) -> int:
        """How many clients are connected."""
        return len(self._connections)

    async def open(self, sock: socket.socket, tls: ssl.SSLContext | None = None) -> None:
        """Listen on a TCP or Unix socket."""
        loop = asyncio.get_running_loop()
        if sock.family == socket.AF_UNIX:
            self._server = await loop.create_unix_server(self._new_connection, sock=sock, backlog=_BACKLOG)
        else:
            self._server = await loop.create_server(
                self._new_connection,
                sock=sock,
                backlog=_BACKLOG,
                ssl=tls,
                ssl_handshake_timeout=None if tls is None else self._settings().header_seconds,
            )

    async def close(self, grace: float) -> None:
        """Accept nothing new, give current requests `grace` seconds, then abort the rest."""
        if self._server is not None:
            self._server.close()
        for connection in list(self._connections):
            connection.drain()
        deadline = time.monotonic() + grace
        while self._active_requests and time.monotonic() < deadline:
            await asyncio.sleep(0.05)
        await asyncio.gather(*(connection.abort(1.0) for connection in list(self._connections)))

    @property
    def settings(self) -> GatewaySettings:
        """The limits in force."""
        return self._settings()

    def max_body(self, admission: Any) -> int:
        """The most bytes that the body of an admitted request may have."""
        most = self._settings().max_body_bytes
        return min(most, getattr(admission, "max_body", most))

    def hold(self, admission: Any) -> Hold:
        """What counts the bytes of an admitted request."""
        return self.governor.hold(getattr(admission, "owner", ""))

    def admit_connection(self, connection: ServerConnection) -> bool:
        """Count a connection; False if there are too many."""
        if len(self._connections) >= self._settings().max_connections:
            return False
        self._connections.add(connection)
        self._metrics.connection_opened()
        return True

    def forget_connection(self, connection: ServerConnection) -> None:
        """The connection is closed."""
        if connection in self._connections:
            self._connections.remove(connection)
            self._metrics.connection_closed()

    def request_started(self) -> None:
        """A connection has a request in progress."""
        self._active_requests += 1
        self._metrics.requests_in_progress += 1

    def request_finished(self) -> None:
        """Its response has left, or was given up."""
        self._active_requests -= 1
        self._metrics.requests_in_progress -= 1

    def build_request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        headers: Mapping[str, str],
        peer: str,
    ) -> ClientRequest:
        """A request without its body, with the id that the client sent or a new one."""
        return ClientRequest(
            method=method,
            path=path,
            query=query,
            headers=headers,
            peer=peer,
            listener=self.name,
            request_id=self.request_id_from(headers),
        )

    def admit(self, request: ClientRequest, length: int | None) -> Any:
        """Decide on the head of a request: a `Response` that refuses it, or the admission that `handle` takes.

        `length` is the declared length of the body: 0 without one, None if it is not declared.
        """
        admission = self.gateway.admit(request)
        if isinstance(admission, Response):
            return admission
        if getattr(admission, "passes_body", False):
            return admission
        takes_form = getattr(admission, "takes_form", False)
        refusal = refuse_body(request, length, self.max_body(admission), takes_form=takes_form)
        end = getattr(admission, "end", None)
        if refusal is not None and end is not None:
            end(request, refusal)
        return refusal or admission

    def with_common_headers(self, response: Response, request: ClientRequest) -> Response:
        """The response with the id of the request, and with CORS headers for a page of an allowed origin."""
        response.headers.setdefault("x-request-id", request.request_id)
        response.headers.setdefault("server", SERVER_HEADER)
        if "origin" in request.headers and (origins := self._settings().allowed_origins):
            response.headers.update(cors_headers(request.headers["origin"], origins))
        return response

    def request_timeout(self, request: ClientRequest) -> Response:
        """A request took too long."""
        message = f"request timed out after {self.settings.request_seconds:g} s (gateway.request_seconds)"
        response = error_response(error_format_for_path(request.path), ProviderError(message, "timeout"))
        return self.with_common_headers(response, request)

    def body_timeout(self, path: str) -> Response:
        """A body took too long."""
        message = f"request body not received within {self.settings.body_seconds:g} s (gateway.body_seconds)"
        return error_response(error_format_for_path(path), ProviderError(message, "timeout"), status=408)

    def body_too_large(self, path: str, limit: int) -> Response:
        """A body is too large."""
        return body_too_large(path, limit)

    def over_limit(self, path: str, refusal: str) -> Response:
        """Too many bytes wait already."""
        return error_response(error_format_for_path(path), overloaded(refusal))

    def internal_error(self, request_id: str) -> Response:
        """The gateway has a defect."""
        return internal_error("", request_id, {"x-request-id": request_id, "server": SERVER_HEADER})

    def request_id_from(self, headers: Mapping[str, str]) -> str:
        """The id a client sent with its request, if it is valid; else a new one."""
        given = headers.get("x-request-id")
        return given if given is not None and _VALID_REQUEST_ID(given) else next(self._ids)

    def _new_connection(self) -> ServerConnection:
        return ServerConnection(self)


def bind_socket(host: str, port: int) -> socket.socket:
    """A listening socket, or an error with the reason."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With the protocol named, asyncio sets TCP_NODELAY on every connection it accepts from this socket.
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
        sock.listen(_BACKLOG)
    except OSError as error:
        sock.close()
        raise GatewayStartError(
            f"cannot listen on {host}:{port}: {error.strerror}; change port or format_port, or stop the other process"
        ) from None
    sock.setblocking(False)
    return sock
