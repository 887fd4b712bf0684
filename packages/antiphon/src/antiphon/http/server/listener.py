"""`Listener`: one port with its connections and limits.

A process may have several, for one `Application` or for many, on ports or Unix sockets. Every `ServerConnection` asks its
listener to admit and count. A request is admitted on its head, first by the application, then by content type and declared
length; only then is its body read.

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
from antiphon.http.governor import Governor, Hold
from antiphon.http.messages import ClientRequest, Response
from antiphon.http.request_ids import new_request_ids
from antiphon.http.server.application import Application, Limits, Refusal, Traffic
from antiphon.http.server.connection import ServerConnection

KEEP_ALIVE_SECONDS = 75.0
"""How long a connection without a request is kept open, from the last byte of the response before."""
SERVER_HEADER = "antiphon"
_BACKLOG = 1024
_JSON_TYPES = frozenset({"application/json", "application/octet-stream", ""})
"""Content types that are read as JSON. The official clients send the first; any page may send text/plain without a preflight."""
_FORM_TYPE = "application/x-www-form-urlencoded"
_VALID_REQUEST_ID = re.compile(r"[!-~]{1,128}").fullmatch


class Listener:
    """One port. `name` is its name in requests; `governor` and `traffic` are those of the process."""

    keep_alive_seconds = KEEP_ALIVE_SECONDS

    def __init__(
        self,
        application: Application,
        name: str,
        limits: Callable[[], Limits] = Limits,
        *,
        governor: Governor | None = None,
        traffic: Traffic | None = None,
    ) -> None:
        self.application = application
        self.governor = governor or Governor(lambda: limits().max_buffered_bytes)
        self._traffic = traffic or Traffic()
        self.name = name
        self._limits = limits
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
                ssl_handshake_timeout=None if tls is None else self._limits().header_seconds,
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
    def limits(self) -> Limits:
        """The limits in force."""
        return self._limits()

    def max_body(self, admission: Any) -> int:
        """The most bytes that the body of an admitted request may have."""
        most = self._limits().max_body_bytes
        return min(most, getattr(admission, "max_body", most))

    def hold(self, admission: Any) -> Hold:
        """What counts the bytes of an admitted request."""
        return self.governor.hold(getattr(admission, "owner", ""))

    def admit_connection(self, connection: ServerConnection) -> bool:
        """Count a connection; False if there are too many."""
        if len(self._connections) >= self._limits().max_connections:
            return False
        self._connections.add(connection)
        self._traffic.connections += 1
        return True

    def forget_connection(self, connection: ServerConnection) -> None:
        """The connection is closed."""
        if connection in self._connections:
            self._connections.remove(connection)
            self._traffic.connections -= 1

    def request_started(self) -> None:
        """A connection has a request in progress."""
        self._active_requests += 1
        self._traffic.requests_in_progress += 1

    def request_finished(self) -> None:
        """Its response has left, or was given up."""
        self._active_requests -= 1
        self._traffic.requests_in_progress -= 1

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
        admission = self.application.admit(request)
        if length == 0 or isinstance(admission, Response) or getattr(admission, "passes_body", False):
            return admission
        refusal = self._body_problem(request, length, admission)
        if refusal is None:
            return admission
        response = self.refuse(request, refusal)
        end = getattr(admission, "end", None)
        if end is not None:
            end(request, response)
        return response

    def _body_problem(self, request: ClientRequest, length: int | None, admission: Any) -> Refusal | None:
        """Why a body is refused by its content type or its declared length; None if it may be read."""
        content_type = request.headers.get("content-type", "")
        if not is_json_type(content_type) and not (
            getattr(admission, "takes_form", False) and _kind(content_type) == _FORM_TYPE
        ):
            return Refusal(415, f"unsupported content type {content_type[:80]}; send content-type: application/json")
        limit = self.max_body(admission)
        return self.body_too_large(request.path, limit) if length is not None and length > limit else None

    def with_common_headers(self, response: Response, request: ClientRequest) -> Response:
        """The response with the id of the request, and with what a browser needs to show it to a page."""
        response.headers.setdefault("x-request-id", request.request_id)
        response.headers.setdefault("server", SERVER_HEADER)
        if "origin" in request.headers:
            response.headers.update(self.application.page_headers(request))
        return response

    def refuse(self, request: ClientRequest, refusal: Refusal) -> Response:
        """The response to a request that is refused."""
        return self.application.refuse(request, refusal)

    def body_too_large(self, path: str, limit: int) -> Refusal:
        """The refusal of a body that is, or turns out to be, too large."""
        message = f"request body exceeds {limit:,} bytes"
        if limit == self._limits().max_body_bytes:
            return Refusal(413, message, "max_body_bytes")
        return Refusal(413, f"{message} (the most that {path[:200]} takes)")

    def request_id_from(self, headers: Mapping[str, str]) -> str:
        """The id a client sent with its request, if it is valid; else a new one."""
        given = headers.get("x-request-id")
        return given if given is not None and _VALID_REQUEST_ID(given) else next(self._ids)

    def _new_connection(self) -> ServerConnection:
        return ServerConnection(self)


def is_json_type(content_type: str) -> bool:
    """Whether a body of that content type is read as JSON."""
    if content_type == "application/json":
        return True
    kind = _kind(content_type)
    return kind in _JSON_TYPES or kind.endswith("+json")


def _kind(content_type: str) -> str:
    """A content type without its parameters."""
    return content_type.partition(";")[0].strip().lower()


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
            f"cannot listen on {host}:{port}: {error.strerror}; use another port, or stop the other process"
        ) from None
    sock.setblocking(False)
    return sock
