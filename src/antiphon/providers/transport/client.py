"""`HttpClient`: HTTP/1.1 over plain sockets, with idle connections kept per origin.

What it cannot send itself (through a proxy of the environment, to a URL with unusual characters) goes through the aiohttp
transport. Responses are requested uncompressed. For one event loop.
"""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
import time
from functools import lru_cache
from typing import NamedTuple

from antiphon import __version__
from antiphon.errors import TransportError
from antiphon.providers.transport.aiohttp_transport import MAX_REDIRECTS, AiohttpTransport, redirect_target
from antiphon.providers.transport.connection import ClientConnection, StreamedResponse
from antiphon.providers.transport.request import HttpRequest, HttpResponse, transport_error

_DEFAULT_HEADERS = f"user-agent: antiphon/{__version__}\r\naccept-encoding: identity\r\n"
_PORTS = {"http": 80, "https": 443}
_parse_url = re.compile(
    r"(https?)://([A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])(?::([0-9]{1,5}))?"
    r"((?:/[A-Za-z0-9_~:@-][A-Za-z0-9._~:@-]*)+(?:\?[A-Za-z0-9._~=&-]*)?)"
).fullmatch


class _Origin(NamedTuple):
    """The origin of a URL, and the constant start of its request head."""

    key: tuple[str, str, int]
    head: str


@lru_cache(maxsize=1024)
def _origin(method: str, url: str) -> _Origin | None:
    """The origin of a URL; None if the URL is unusual."""
    match = _parse_url(url)
    if match is None or method not in ("GET", "POST"):
        return None
    scheme, host, port = match[1], match[2], int(match[3] or _PORTS[match[1]])
    authority = host if port == _PORTS[scheme] else f"{host}:{port}"
    return _Origin(
        (scheme, host.strip("[]"), port), f"{method} {match[4]} HTTP/1.1\r\nhost: {authority}\r\n{_DEFAULT_HEADERS}"
    )


class HttpClient:
    """An HTTP client for one event loop; what it cannot send itself goes through `fallback`."""

    def __init__(self, fallback: AiohttpTransport) -> None:
        self._fallback = fallback
        self._idle: dict[tuple[str, str, int], list[ClientConnection]] = {}
        self._connections: set[ClientConnection] = set()
        self._certificates: ssl.SSLContext | None = None

    async def send(self, request: HttpRequest, redirects: int = MAX_REDIRECTS) -> HttpResponse:
        """Send it and wait for the response head. Follows up to `redirects` redirects."""
        origin = _origin(request.method, request.url)
        head = _request_head(origin, request) if origin is not None else None
        if origin is None or head is None or self._fallback.proxy_for(request.url) is not None:
            return await self._fallback.send(request)
        started_at = time.monotonic()
        connection = self._take_idle(origin.key)
        response = await _start(connection, head, request, started_at) if connection is not None else None
        if response is None:
            connection = await self._connect(origin.key, request)
            response = await _start(connection, head, request, started_at, is_new=True)
            assert response is not None, "a new connection responds or fails"
        redirect = redirect_target(request, response) if response.status >= 300 else None
        if redirect is None:
            return response
        await response.aclose()
        if not redirects:
            raise transport_error("redirect_loop", redirect)
        return await self.send(redirect, redirects - 1)

    async def aclose(self) -> None:
        """Close all connections."""
        for connection in list(self._connections):
            connection.abort()
        await self._fallback.aclose()

    def _take_idle(self, key: tuple[str, str, int]) -> ClientConnection | None:
        """An idle connection."""
        idle = self._idle.get(key)
        while idle:
            connection = idle.pop()
            if connection.is_reusable:
                return connection
            connection.abort()
        return None

    async def _connect(self, key: tuple[str, str, int], request: HttpRequest) -> ClientConnection:
        scheme, host, port = key
        loop = asyncio.get_running_loop()
        idle = self._idle.setdefault(key, [])
        secure = self._tls_context() if scheme == "https" else None
        try:
            async with asyncio.timeout(request.timeouts.connect):
                _, connection = await loop.create_connection(
                    lambda: ClientConnection(loop, self._connections, idle),
                    host,
                    port,
                    ssl=secure,
                    happy_eyeballs_delay=0.25,
                )
        except TimeoutError:
            raise transport_error("connect_timeout", request) from None
        except socket.gaierror:
            raise transport_error("dns_failed", request) from None
        except ssl.SSLError:
            raise transport_error("tls_failed", request) from None
        except OSError as error:
            raise transport_error("connection_failed", request, error.strerror or "refused") from None
        return connection

    def _tls_context(self) -> ssl.SSLContext:
        """The TLS settings, loaded on first use because that is slow."""
        if self._certificates is None:
            configured = self._fallback.certificates
            self._certificates = configured if isinstance(configured, ssl.SSLContext) else ssl.create_default_context()
            self._certificates.set_alpn_protocols(["http/1.1"])
        return self._certificates

    def __repr__(self) -> str:
        return f"<HttpClient with {len(self._connections)} connections>"


async def _start(
    connection: ClientConnection, head: bytes, request: HttpRequest, started_at: float, *, is_new: bool = False
) -> StreamedResponse | None:
    """The response once its head has arrived. None if the host closed an idle connection without a response: that may
    have happened before the request arrived, so it is sent once more on a new connection."""
    response = connection.send(head, request, started_at)
    try:
        while not response.status:
            await response.wait()
    except TransportError as error:
        connection.abort()
        if is_new or error.code != "connection_lost" or connection.has_response_data:
            raise
        return None
    except BaseException:
        connection.abort()
        raise
    return response


def _request_head(origin: _Origin, request: HttpRequest) -> bytes | None:
    """The request head; None if a header contains characters that are not allowed."""
    fields = "".join([f"{name}: {value}\r\n" for name, value in request.headers.items()])
    breaks = len(request.headers)
    if fields.count("\n") != breaks or fields.count("\r") != breaks or "\0" in fields:
        return None
    return f"{origin.head}{fields}content-length: {sum(map(len, request.body))}\r\n\r\n".encode()
