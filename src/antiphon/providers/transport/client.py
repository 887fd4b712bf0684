"""`DirectTransport`: HTTP/1.1 over plain sockets, with idle connections kept per origin.

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
from antiphon.providers.transport.aiohttp_transport import MOST_REDIRECTS, AiohttpTransport, redirected
from antiphon.providers.transport.connection import ClientConnection, StreamedResponse
from antiphon.providers.transport.request import HttpRequest, HttpResponse, trouble

_USUAL = f"user-agent: antiphon/{__version__}\r\naccept-encoding: identity\r\n"
_PORTS = {"http": 80, "https": 443}
_url = re.compile(
    r"(https?)://([A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])(?::([0-9]{1,5}))?"
    r"((?:/[A-Za-z0-9_~:@-][A-Za-z0-9._~:@-]*)+(?:\?[A-Za-z0-9._~=&-]*)?)"
).fullmatch


class _Place(NamedTuple):
    """Where a request goes: the host, and the beginning of every head for that address."""

    key: tuple[str, str, int]
    head: str


@lru_cache(maxsize=1024)
def _place(method: str, url: str) -> _Place | None:
    """The place of an address; None if it is not plain."""
    found = _url(url)
    if found is None or method not in ("GET", "POST"):
        return None
    scheme, host, port = found[1], found[2], int(found[3] or _PORTS[found[1]])
    shown = host if port == _PORTS[scheme] else f"{host}:{port}"
    return _Place((scheme, host.strip("[]"), port), f"{method} {found[4]} HTTP/1.1\r\nhost: {shown}\r\n{_USUAL}")


class DirectTransport:
    """Sends what is plain itself and the rest through `otherwise`. For one event loop."""

    def __init__(self, otherwise: AiohttpTransport) -> None:
        self._otherwise = otherwise
        self._idle: dict[tuple[str, str, int], list[ClientConnection]] = {}
        self._lines: set[ClientConnection] = set()
        self._certificates: ssl.SSLContext | None = None

    async def send(self, request: HttpRequest, redirects: int = MOST_REDIRECTS) -> HttpResponse:
        """Send it and wait for the head of the response. So many redirects are followed."""
        place = _place(request.method, request.url)
        head = _head_of(place, request) if place is not None else None
        if place is None or head is None or self._otherwise.proxy_for(request.url) is not None:
            return await self._otherwise.send(request)
        began = time.monotonic()
        line = self._taken(place.key)
        reply = await _begun(line, head, request, began) if line is not None else None
        if reply is None:
            line = await self._connected(place.key, request)
            reply = await _begun(line, head, request, began, is_new=True)
            assert reply is not None, "a new connection answers or fails"
        following = redirected(request, reply) if reply.status >= 300 else None
        if following is None:
            return reply
        await reply.aclose()
        if not redirects:
            raise trouble("redirect_loop", following)
        return await self.send(following, redirects - 1)

    async def aclose(self) -> None:
        """Close all connections."""
        for line in list(self._lines):
            line.cut()
        await self._otherwise.aclose()

    def _taken(self, key: tuple[str, str, int]) -> ClientConnection | None:
        """A connection that waits for work."""
        idle = self._idle.get(key)
        while idle:
            line = idle.pop()
            if line.is_fresh:
                return line
            line.cut()
        return None

    async def _connected(self, key: tuple[str, str, int], request: HttpRequest) -> ClientConnection:
        scheme, host, port = key
        loop = asyncio.get_running_loop()
        idle = self._idle.setdefault(key, [])
        secure = self._trusted() if scheme == "https" else None
        try:
            async with asyncio.timeout(request.timeouts.connect):
                _, line = await loop.create_connection(
                    lambda: ClientConnection(loop, self._lines, idle), host, port, ssl=secure, happy_eyeballs_delay=0.25
                )
        except TimeoutError:
            raise trouble("connect_timeout", request) from None
        except socket.gaierror:
            raise trouble("dns_failed", request) from None
        except ssl.SSLError:
            raise trouble("tls_failed", request) from None
        except OSError as error:
            raise trouble("connection_failed", request, error.strerror or "refused") from None
        return line

    def _trusted(self) -> ssl.SSLContext:
        """Whom to trust; read when it is first needed, for that takes a while."""
        if self._certificates is None:
            given = self._otherwise.certificates
            self._certificates = given if isinstance(given, ssl.SSLContext) else ssl.create_default_context()
            self._certificates.set_alpn_protocols(["http/1.1"])
        return self._certificates

    def __repr__(self) -> str:
        return f"<DirectTransport with {len(self._lines)} connections>"


async def _begun(
    line: ClientConnection, head: bytes, request: HttpRequest, began: float, *, is_new: bool = False
) -> StreamedResponse | None:
    """The reply once its head has come. None if the host closed a connection that had been idle, without a word: it may have
    done so before the request came, so that is no failure of the host, and the request is sent once more on a new connection."""
    reply = line.ask(head, request, began)
    try:
        while not reply.status:
            await reply.more()
    except TransportError as lost:
        line.cut()
        if is_new or lost.code != "connection_lost" or line.has_heard:
            raise
        return None
    except BaseException:
        line.cut()
        raise
    return reply


def _head_of(place: _Place, request: HttpRequest) -> bytes | None:
    """The head of a request; None if it holds what no head can carry."""
    fields = "".join([f"{name}: {value}\r\n" for name, value in request.headers.items()])
    breaks = len(request.headers)
    if fields.count("\n") != breaks or fields.count("\r") != breaks or "\0" in fields:
        return None
    return f"{place.head}{fields}content-length: {sum(map(len, request.body))}\r\n\r\n".encode()
