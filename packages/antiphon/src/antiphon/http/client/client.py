"""`HttpClient`: the one HTTP client: HTTP/1.1 with idle connections kept per origin.

A client may be used from one event loop after another (each `asyncio.run` is a new one), so connections must end with their loop:
an asynchronous generator started in the loop holds them, and a loop closes its asynchronous generators when it shuts down. The
connections of loops that were closed without that are dropped before the next one is used.

Responses are requested uncompressed, cookies are not kept, and redirects are followed only within the same origin, so that a key
never goes to another host. A reused connection that the host closes at once, without a byte, was closed before the request
arrived: the request is sent once more on a new connection, which `HttpRequest.resends` notes. One that closes later may have
worked on the request, which fails.
"""

from __future__ import annotations

import asyncio
import gc
import warnings
from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress
from contextvars import Context
from math import inf
from typing import Any
from urllib.parse import urljoin

from msgspec import Struct, structs

from antiphon.errors import TransportError
from antiphon.http.client.address_guard import AddressGuard
from antiphon.http.client.connection import ClientConnection, parse_url, request_head
from antiphon.http.client.dial import Destination, DialFailure, dial
from antiphon.http.client.environment import NetworkEnvironment
from antiphon.http.client.request import HttpRequest, HttpResponse, Origin, transport_error

MAX_REDIRECTS = 3
_REDIRECTS = (307, 308)  # these keep the method and the body
_MAX_ROUTES = 1024
"""Routes of URLs that are kept, and with them the lists of idle connections that are empty."""


class _Route(Struct, eq=False):
    """Where requests to a URL go: their target, the origin, headers for a proxy, and the idle connections to use."""

    destination: Destination
    origin: Origin
    target: str
    headers: Mapping[str, str] | None
    idle: list[ClientConnection]


class HttpClient:
    """Sends requests. `environ` names proxies and certificates, by default the process's.

    With `guard`, connections are made only to addresses that it allows, and never through a proxy, which would connect unguarded
    in our place. With `unix_path`, all requests go to the server on that socket. `decompresses=False` leaves bodies as they come.
    """

    def __init__(
        self,
        environ: Mapping[str, str] | None = None,
        *,
        guard: AddressGuard | None = None,
        unix_path: str = "",
        decompresses: bool = True,
    ) -> None:
        self._network = NetworkEnvironment(environ)
        self._guard = guard
        self._unix_path = unix_path
        self._decompresses = decompresses
        self._pools: dict[asyncio.AbstractEventLoop, _Pool] = {}

    async def send(self, request: HttpRequest, *, follow: bool = True) -> HttpResponse:
        """Send it and wait for the response head, or all of the response if that `is_whole`. Raises `TransportError`.

        `follow`: follow redirects within the origin.
        """
        loop = asyncio.get_running_loop()
        pool = self._pools.get(loop) or await self._open_pool(loop)
        now, total = loop.time(), request.timeouts.total
        deadline = inf if total is None else now + total
        may_reuse, redirects = request.stream is None, 0
        while True:
            route = pool.routes.get(request.url) or self._route(pool, request)
            head = request_head(request, route.target, route.origin, route.headers)
            connection, idle = None, route.idle
            while idle and may_reuse and connection is None:
                connection = idle.pop()
                if now >= connection.idle_until or connection.transport.is_closing():
                    connection.abort()
                    connection = None
            is_reused = connection is not None
            if connection is None:
                connection = await self._connect(loop, pool, route, request, deadline)
            response = connection.send(head, request, route.origin, deadline, decompresses=self._decompresses)
            try:
                if request.stream is not None:
                    await _send_body(connection, request, response)
                if not response.status and not response.is_over:
                    response.waiter = loop.create_future()
                    await response.waiter
            except BaseException:
                response.abort()
                raise
            if not response.status:
                if not is_reused or not connection.was_stale:
                    raise response.failure
                request.resends.append(response.failure)
                may_reuse = False
                continue
            if response.status not in _REDIRECTS or not follow or request.stream is not None:
                return response  # a streamed body cannot be sent again
            redirect = _redirected(request, response.headers.get("location", ""))
            if redirect is None:
                return response
            response.abort()
            if redirects == MAX_REDIRECTS:
                raise transport_error("redirect_loop", request.host, request.timeouts)
            redirects += 1
            request.resends.append(
                TransportError(f"{request.host} redirected the request (status {response.status})", "redirected")
            )
            request = redirect

    async def aclose(self) -> None:
        """Close the connections of this loop, and of other loops that still run."""
        here = asyncio.get_running_loop()
        for loop, pool in list(self._pools.items()):
            if loop is here:
                await pool.generator.aclose()
            elif loop.is_running():
                asyncio.run_coroutine_threadsafe(_aclose(pool.generator), loop)
        self._drop_closed_loops()

    def __repr__(self) -> str:
        return f"<HttpClient with {sum(len(pool.connections) for pool in self._pools.values())} connections>"

    def _route(self, pool: _Pool, request: HttpRequest) -> _Route:
        """The route of a request's URL, kept for the next one. Raises `TransportError`."""
        try:
            origin, target = parse_url(request.url)
        except ValueError:
            raise transport_error("invalid_url", request.host, request.timeouts) from None
        if len(pool.routes) >= _MAX_ROUTES:
            pool.routes.clear()
            pool.idle = {known: idle for known, idle in pool.idle.items() if idle}
        proxy = None if self._guard is not None or self._unix_path else self._network.proxy_for(origin)
        headers = None
        if proxy is None:
            destination = Destination(origin, unix_path=self._unix_path)
        elif origin.scheme == "https":
            destination = Destination(origin, proxy)
        else:
            destination = Destination(proxy.origin, is_proxy=True)
            headers = {"proxy-authorization": proxy.authorization} if proxy.authorization else None
            target = f"http://{origin.authority}{target}"
        idle = pool.idle.setdefault(destination, [])
        route = pool.routes[request.url] = _Route(destination, origin, target, headers, idle)
        return route

    async def _connect(
        self,
        loop: asyncio.AbstractEventLoop,
        pool: _Pool,
        route: _Route,
        request: HttpRequest,
        deadline: float,
    ) -> ClientConnection:
        timeouts, seconds = request.timeouts, request.timeouts.connect
        left = deadline - loop.time()
        is_total = left < (inf if seconds is None else seconds)
        dialling = loop.create_task(
            dial(
                route.destination,
                lambda: ClientConnection(loop, pool.connections, route.idle),
                seconds=left if is_total else seconds,
                tls=self._network.tls_context if route.destination.uses_tls else None,
                guard=self._guard,
            ),
            # The callbacks of a connection run in the context of its creation, and it serves other requests too.
            context=Context(),
        )
        try:
            connection = await dialling
        except asyncio.CancelledError:
            if dialling.done() and not dialling.cancelled() and isinstance(late := dialling.result(), ClientConnection):
                late.abort()
            raise
        if isinstance(connection, DialFailure):
            code = "total_timeout" if connection.code == "connect_timeout" and is_total else connection.code
            raise transport_error(code, request.host, timeouts, connection.detail)
        if connection.transport.is_closing():  # the host closed it at once: nothing can be written to it
            raise transport_error("connection_lost", request.host, timeouts)
        return connection

    async def _open_pool(self, loop: asyncio.AbstractEventLoop) -> _Pool:
        self._drop_closed_loops()
        generator = self._hold_pool(loop)
        pool = self._pools[loop] = _Pool(generator)
        await anext(generator)
        return pool

    async def _hold_pool(self, loop: asyncio.AbstractEventLoop) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            pool = self._pools.pop(loop, None)
            if pool is not None:
                for connection in list(pool.connections):
                    connection.close()
                await asyncio.sleep(0)  # the sockets are closed in the next turn of the loop

    def _drop_closed_loops(self) -> None:
        """Drop the connections of closed loops. They cannot close their sockets any more, so garbage collection does it, now and
        not later, where it would look like a leak of other code."""
        dead = [loop for loop in list(self._pools) if loop.is_closed()]  # other threads may add one
        if not dead:
            return
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            for loop in dead:
                self._pools.pop(loop, None)
            gc.collect()


class _Pool:
    """The connections of one event loop, and the routes of the URLs that were asked."""

    def __init__(self, generator: AsyncGenerator[None, None]) -> None:
        self.generator = generator
        self.connections: set[ClientConnection] = set()
        self.routes: dict[str, _Route] = {}
        self.idle: dict[Destination, list[ClientConnection]] = {}


async def _send_body(connection: ClientConnection, request: HttpRequest, response: HttpResponse) -> None:
    """Send a streamed body; ends early if the response arrives first. Raises `TransportError` if the body breaks off."""
    assert request.stream is not None
    sending = asyncio.ensure_future(connection.send_stream(request.stream, is_chunked=request.stream_length is None))
    answered = response.wait()
    try:
        await asyncio.wait({sending, answered}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        answered.cancel()
        if not sending.done():
            sending.cancel()
        await asyncio.wait({sending})
        error = None if sending.cancelled() else sending.exception()  # taken also if this is cancelled itself
    if error is not None:
        response.abort()
        try:
            raise error
        finally:
            del sending, error  # its traceback holds this frame, and the request in it


async def _aclose(generator: AsyncGenerator[Any, None]) -> None:
    await generator.aclose()


def _redirected(request: HttpRequest, location: str) -> HttpRequest | None:
    """The request that follows a redirect within the same origin; None if it leads elsewhere, or nowhere."""
    with suppress(ValueError):
        target = urljoin(request.url, location)
        if location and parse_url(target).origin == parse_url(request.url).origin:
            return structs.replace(request, url=target)
    return None
