"""The listeners: HTTP comes in, is held to limits, and becomes a `ClientRequest`; an `Answer` goes out.

Two ports, one process, one gateway for both (seed 001): the main service and the format proxy. No framework's type leaves this
file. Plain requests are read and answered by a `PlainLine`; the first one on a connection that is not plain goes to aiohttp's
server, with the rest of the connection. Both ask the same `Listener` to admit, count and answer.

A request is admitted on its head: endpoint, origin, key, content type and declared length. Only then is its body read.

Limits, each with its status: connections (503), the head of a request (431, or closed when it takes too long), its body (413,
408 when it takes too long, 503 when all bodies together exceed the budget), and the whole request (504). A client that leaves
cancels its request, which closes the upstream's connection.

A shutdown is graceful: nothing new is accepted, current requests get their time until the last byte has left, then the rest
is aborted.
"""

from __future__ import annotations

import asyncio
import re
import socket
import time
from collections.abc import Callable, Mapping
from math import inf
from typing import Any
from weakref import WeakSet

from antiphon.errors import ServeRefused
from antiphon.gateway.app import Answers
from antiphon.gateway.config.settings import GatewaySettings
from antiphon.gateway.http.body_budget import BodyBudget
from antiphon.gateway.http.connection import PlainLine
from antiphon.gateway.http.errors import refused
from antiphon.gateway.http.messages import Answer, ClientRequest, request_ids
from antiphon.gateway.http.request_head import is_json_type
from antiphon.gateway.observe.metrics import Metrics
from antiphon.gateway.routes import Door, door_of
from antiphon.wire.output import ProviderError

KEEP_ALIVE_SECONDS = 75.0
"""How long a connection without a request is kept open, from the last byte of the response before."""
_SERVER = "antiphon"
_SWEEP_SECONDS = 1.0
_RETRY_SECONDS = 1.0
_given_id = re.compile(r"[!-~]{1,128}").fullmatch


class Listener:
    """One port. `door` is its name in logs; `budget` is shared by the listeners of a process."""

    keep_alive_seconds = KEEP_ALIVE_SECONDS

    def __init__(
        self,
        gateway: Answers,
        door: str,
        metrics: Metrics,
        settings: Callable[[], GatewaySettings],
        budget: BodyBudget | None = None,
    ) -> None:
        self.gateway = gateway
        self.budget = budget or BodyBudget(lambda: settings().max_buffered_bytes)
        self._metrics = metrics
        self._door = door
        self._settings = settings
        self._server: Any = None
        self._connections: WeakSet[PlainLine] = WeakSet()
        self._ids = request_ids()
        self._sockets: asyncio.Server | None = None
        self._active_requests = 0
        self.is_draining = False
        self._until: dict[Any, float] = {}  # all connections, and when they are closed if no request comes

    @property
    def connections(self) -> int:
        """How many clients are connected."""
        return len(self._until)

    async def open(self, sock: socket.socket) -> None:
        """Listen."""
        from antiphon.gateway.http.general_server import general_server  # imports aiohttp

        self._server = general_server(self)
        self._sockets = await asyncio.get_running_loop().create_server(self._new_connection, sock=sock, backlog=1024)
        self._sweeper = asyncio.create_task(self._sweep())

    async def close(self, grace: float) -> None:
        """Accept nothing new, give current requests `grace` seconds, then abort the rest."""
        self.is_draining = True
        self._sweeper.cancel()
        if self._sockets is not None:
            self._sockets.close()
        self._server.pre_shutdown()
        for connection in list(self._connections):
            connection.drain()
        deadline = time.monotonic() + grace
        while self._active_requests and time.monotonic() < deadline:
            await asyncio.sleep(0.05)
        aborting = [connection.abort(1.0) for connection in list(self._connections)]
        await asyncio.gather(self._server.shutdown(1.0), *aborting)

    @property
    def settings(self) -> GatewaySettings:
        """The limits in force."""
        return self._settings()

    def admit_connection(self, transport: asyncio.Transport) -> bool:
        """Count a connection; False if there are too many."""
        if transport in self._until:
            return True  # it is handed from one server to the other
        settings = self._settings()
        if len(self._until) >= settings.max_connections:
            return False
        self._until[transport] = time.monotonic() + settings.header_seconds
        self._metrics.connection_opened()
        return True

    def forget_connection(self, transport: Any) -> None:
        """The connection is closed."""
        if self._until.pop(transport, None) is not None:
            self._metrics.connection_closed()

    def request_started(self, transport: Any) -> None:
        """A connection has a request in progress."""
        self._active_requests += 1
        self._metrics.request_began()
        if transport in self._until:
            self._until[transport] = inf

    def request_finished(self, transport: Any) -> None:
        """Its response has left, or was given up."""
        self._active_requests -= 1
        self._metrics.request_ended()
        if transport in self._until:
            self._until[transport] = time.monotonic() + self.keep_alive_seconds

    def build_request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        headers: Mapping[str, str],
        peer: str,
    ) -> ClientRequest:
        """A request without its body, under the id that the client gave or a new one."""
        return ClientRequest(
            method=method,
            path=path,
            query=query,
            headers=headers,
            peer=peer,
            door=self._door,
            request_id=self._id_of(headers),
        )

    def admit(self, request: ClientRequest, length: int | None) -> Any:
        """Decide on the head of a request: an `Answer` that refuses it, or what `handle` takes as its admission.

        `length` is what the head says of the body: 0 without one, None if it does not say.
        """
        admission = self.gateway.admit(request)
        if isinstance(admission, Answer) or length == 0:
            return admission
        content_type = request.headers.get("content-type", "")
        if not is_json_type(content_type):
            message = f"unsupported content type {content_type[:80]}; send content-type: application/json"
            return refused(error_format_for_path(request.path), ProviderError(message, "invalid_request"), status=415)
        if length is not None and length > self.settings.max_body_bytes:
            return self.body_too_large(request.path)
        return admission

    def with_common_headers(self, answer: Answer, request_id: str) -> Answer:
        """The answer with the id of the request."""
        answer.headers.setdefault("x-request-id", request_id)
        answer.headers.setdefault("server", _SERVER)
        return answer

    def request_timeout(self, path: str, request_id: str) -> Answer:
        """A request took longer than any may."""
        message = f"request timed out after {self.settings.request_seconds:g} s (gateway.request_seconds)"
        answer = refused(error_format_for_path(path), ProviderError(message, "timeout"))
        return self.with_common_headers(answer, request_id)

    def body_timeout(self, path: str) -> Answer:
        """A body took longer than any may."""
        message = f"request body not received within {self.settings.body_seconds:g} s (gateway.body_seconds)"
        return refused(error_format_for_path(path), ProviderError(message, "timeout"), status=408)

    def body_too_large(self, path: str) -> Answer:
        """A body is larger than any may be."""
        message = f"request body exceeds {self.settings.max_body_bytes:,} bytes (gateway.max_body_bytes)"
        return refused(error_format_for_path(path), ProviderError(message, "too_large"))

    def over_budget(self, path: str) -> Answer:
        """All bodies together are larger than they may be."""
        message = "too many request bodies in progress (gateway.max_buffered_bytes); retry later"
        error = ProviderError(message, "overloaded", retry_after=_RETRY_SECONDS)
        return refused(error_format_for_path(path), error)

    def internal_error(self, request_id: str) -> Answer:
        """The gateway has a defect."""
        message = f"internal error; see the log for request {request_id}"
        return self.with_common_headers(refused("", ProviderError(message, "server"), status=500), request_id)

    def _id_of(self, headers: Mapping[str, str]) -> str:
        """The id a client gave its request, if it can be used; else a new one."""
        given = headers.get("x-request-id")
        return given if given is not None and _given_id(given) else next(self._ids)

    def _new_connection(self) -> PlainLine:
        connection = PlainLine(self, self._server)
        self._connections.add(connection)
        return connection

    async def _sweep(self) -> None:
        """Close connections that do nothing: no request in their first seconds, or none since the last one."""
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            now = time.monotonic()
            for transport, until in list(self._until.items()):
                if now > until:
                    transport.abort()


def error_format_for_path(path: str) -> str:
    """The format in which clients of that path understand errors."""
    door = door_of("POST", path, {})
    return door.format if isinstance(door, Door) else ""


def bound(host: str, port: int) -> socket.socket:
    """A socket that listens there, or an error that says why it cannot."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With the protocol named, asyncio sets TCP_NODELAY on every connection it accepts from this socket.
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
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
