"""`AiohttpTransport`: requests with aiohttp.

One session per running event loop, reused by every call there. A client may be used from one loop after another (each
`asyncio.run` is a new one), so a session must end with its loop: an asynchronous generator started in the loop holds it, and a
loop closes its asynchronous generators when it shuts down. Sessions of loops that were closed without that are dropped before
the next one starts.

Certificates and proxies come from the environment (never `.netrc`, which would send another account's password), cookies are not
kept, and redirects are followed only within the same origin, so that a key never goes to another host.
"""

from __future__ import annotations

import asyncio
import gc
import os
import ssl
import warnings
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from functools import cache, cached_property, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urljoin, urlsplit
from weakref import WeakSet

from msgspec import structs

from antiphon import __version__
from antiphon.errors import ProviderSetupError, TransportError
from antiphon.providers.transport.decompress import Decompressor, MalformedBody
from antiphon.providers.transport.request import HttpRequest, HttpResponse, Timeouts, transport_error

if TYPE_CHECKING:
    import aiohttp

_JOIN_BYTES = 256 * 1024
"""Pieces of a body are joined up to this size: copying is cheaper than a system call each."""
_MAX_SINGLE_BYTES = 1024 * 1024
"""A body of one piece is sent as it is up to this size; aiohttp warns about larger single writes."""
IDLE_SECONDS = 60.0
"""How long an idle connection is kept."""
MAX_REDIRECTS = 3
_REDIRECTS = (307, 308)  # these keep the method and the body


class _LoopSessions(NamedTuple):
    """The sessions of one event loop."""

    session: aiohttp.ClientSession
    fresh: aiohttp.ClientSession
    """Uses each connection once."""
    generator: AsyncGenerator[tuple[aiohttp.ClientSession, aiohttp.ClientSession], None]
    running: WeakSet[aiohttp.ClientResponse]
    """Responses that may still be read: closing a session does not wake their readers."""


class AiohttpTransport:
    """Sends requests with aiohttp. `environ` names proxies and certificates."""

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        self._environ = os.environ if environ is None else environ
        self._sessions: dict[asyncio.AbstractEventLoop, _LoopSessions] = {}
        self._proxies = _proxies(self._environ)

    async def send(self, request: HttpRequest) -> HttpResponse:
        """Send it and wait for the response head."""
        sessions = self._sessions.get(asyncio.get_running_loop())
        if sessions is None or sessions.session.closed:
            sessions = await self._open_sessions()
        for _ in range(MAX_REDIRECTS + 1):
            response = await self._send_once(sessions, request)
            redirect = redirect_target(request, response)
            if redirect is None:
                return response
            await response.aclose()
            request = redirect
        raise transport_error("redirect_loop", request)

    async def aclose(self) -> None:
        """Close the connections of this loop, and of other loops that still run."""
        here = asyncio.get_running_loop()
        for loop, sessions in list(self._sessions.items()):
            if loop is here:
                await sessions.generator.aclose()
            elif loop.is_running():
                asyncio.run_coroutine_threadsafe(_aclose(sessions.generator), loop)
        self._drop_closed_loops()

    async def _send_once(self, sessions: _LoopSessions, request: HttpRequest) -> HttpResponse:
        connection = _Connection()
        try:
            try:
                response = await self._request(sessions.session, request, connection)
            except _network_errors() as error:
                if not connection.is_reused or not _is_lost(error):
                    raise
                # The host closed an idle connection, perhaps before the request arrived: send it once more.
                response = await self._request(sessions.fresh, request, connection)
        except _network_errors() as error:
            raise _as_transport_error(error, request) from None
        sessions.running.add(response)
        return _Response(response, request)

    async def _request(
        self, session: aiohttp.ClientSession, request: HttpRequest, connection: _Connection
    ) -> aiohttp.ClientResponse:
        headers = dict(request.headers)
        return await session.request(
            request.method,
            request.url,
            data=_data(request.body, headers),
            headers=headers,
            proxy=self.proxy_for(request.url),
            ssl=self.certificates if request.url.startswith("https:") else True,
            allow_redirects=False,
            timeout=_client_timeout(request.timeouts),
            trace_request_ctx=connection,
        )

    async def _open_sessions(self) -> _LoopSessions:
        self._drop_closed_loops()
        running: WeakSet[aiohttp.ClientResponse] = WeakSet()
        generator = self._sessions_of_loop(running)
        session, fresh = await anext(generator)
        sessions = self._sessions[asyncio.get_running_loop()] = _LoopSessions(session, fresh, generator, running)
        return sessions

    async def _sessions_of_loop(
        self, running: WeakSet[aiohttp.ClientResponse]
    ) -> AsyncGenerator[tuple[aiohttp.ClientSession, aiohttp.ClientSession], None]:
        try:
            import aiohttp
        except ImportError:
            raise ProviderSetupError("HTTP to providers needs aiohttp; run: pip install aiohttp") from None
        loop = asyncio.get_running_loop()
        tracing = aiohttp.TraceConfig()
        tracing.on_connection_reuseconn.append(_mark_reused)
        session, fresh = (
            aiohttp.ClientSession(
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"User-Agent": f"antiphon/{__version__}", "Accept-Encoding": "identity"},
                auto_decompress=False,  # done here, with limits
                trace_configs=[tracing],
            )
            for connector in (
                aiohttp.TCPConnector(limit=0, keepalive_timeout=IDLE_SECONDS),
                aiohttp.TCPConnector(limit=0, force_close=True),
            )
        )
        try:
            while True:
                yield session, fresh
        finally:
            self._sessions.pop(loop, None)
            for response in list(running):
                response.close()
            await session.close()
            await fresh.close()

    @cached_property
    def certificates(self) -> ssl.SSLContext | bool:
        """The TLS settings, loaded on first use because that is slow."""
        return _certificates(self._environ) or True

    def _drop_closed_loops(self) -> None:
        """Drop the sessions of closed loops. They cannot close their sockets any more, so garbage collection does it, now and not
        later, where it would look like a leak of other code."""
        dead = [loop for loop in list(self._sessions) if loop.is_closed()]  # other threads may add one
        if not dead:
            return
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            for loop in dead:
                sessions = self._sessions.pop(loop)
                sessions.session.detach()
                sessions.fresh.detach()
            gc.collect()

    def proxy_for(self, url: str) -> str | None:
        """The proxy for a URL, from the environment; None for a direct connection. Raises `TransportError`."""
        if not self._proxies:
            return None
        parts = urlsplit(url)
        proxy = self._proxies.get(parts.scheme) or self._proxies.get("all")
        if proxy is None or _bypasses_proxy(parts.hostname or "", parts.port, self._proxies.get("no", "")):
            return None
        if not proxy.startswith(("http://", "https://")):
            if "://" in proxy:
                raise TransportError("the proxy in the environment is not an HTTP proxy; set another", "proxy_failed")
            return f"http://{proxy}"
        return proxy

    def __repr__(self) -> str:
        return f"<AiohttpTransport with {len(self._sessions)} sessions>"


class _Response:
    """aiohttp's response as an `HttpResponse`."""

    def __init__(self, response: aiohttp.ClientResponse, request: HttpRequest) -> None:
        self.status = response.status
        self.headers: Mapping[str, str] = {name.lower(): value for name, value in response.headers.items()}
        self._response = response
        self._request = request
        try:
            self._decompressor = Decompressor(self.headers.get("content-encoding", "").lower())
        except MalformedBody as error:
            response.close()
            raise transport_error("not_http", request, str(error)) from None

    @property
    def body(self) -> AsyncIterator[bytes]:
        return self

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        try:
            data = await self._response.content.readany()
        except _network_errors() as error:
            raise _as_transport_error(error, self._request, response_started=True) from None
        try:
            if not data:
                self._decompressor.close()
                raise StopAsyncIteration
            return self._decompressor.feed(data)
        except MalformedBody as error:
            self._response.close()
            raise transport_error("not_http", self._request, str(error)) from None

    async def aclose(self) -> None:
        self._response.close()


class _Connection:
    """Whether the connection of a request was reused."""

    is_reused = False


async def _mark_reused(_: Any, context: Any, __: Any) -> None:
    if isinstance(context.trace_request_ctx, _Connection):
        context.trace_request_ctx.is_reused = True


def _is_lost(error: Exception) -> bool:
    """Whether the host closed the connection without a response."""
    import aiohttp

    is_reset = isinstance(error, aiohttp.ClientOSError) and not isinstance(error, aiohttp.ClientConnectorError)
    return is_reset or isinstance(error, aiohttp.ServerDisconnectedError)


@cache
def _network_errors() -> tuple[type[Exception], ...]:
    """What aiohttp raises for network and URL errors."""
    import aiohttp

    return aiohttp.ClientError, OSError, ValueError


@lru_cache
def _client_timeout(timeouts: Timeouts) -> aiohttp.ClientTimeout:
    import aiohttp

    return aiohttp.ClientTimeout(total=timeouts.total, connect=timeouts.connect, sock_read=timeouts.read)


async def _aclose(generator: AsyncGenerator[Any, None]) -> None:
    await generator.aclose()


def redirect_target(request: HttpRequest, response: HttpResponse) -> HttpRequest | None:
    """The request that follows a redirect within the same origin; None for any other response."""
    location = response.headers.get("location")
    if response.status not in _REDIRECTS or not location:
        return None
    target = urljoin(request.url, location)
    return structs.replace(request, url=target) if _origin(target) == _origin(request.url) else None


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port


def _data(body: Sequence[bytes], headers: dict[str, str]) -> Any:
    """The body for aiohttp: small ones joined, large ones piece by piece with a known length."""
    size = sum(map(len, body))
    if len(body) == 1 and size <= _MAX_SINGLE_BYTES:
        return body[0]
    if size <= _JOIN_BYTES:
        return b"".join(body)
    headers["Content-Length"] = str(size)
    return _pieces(body)


async def _pieces(body: Sequence[bytes]) -> AsyncIterator[bytes]:
    for piece in _join_small(body):
        yield piece


def _join_small(body: Sequence[bytes]) -> Iterator[bytes]:
    """The same bytes in fewer pieces: small neighbours joined, large pieces unchanged."""
    waiting: list[bytes] = []
    size = 0
    for piece in body:
        if waiting and size + len(piece) > _JOIN_BYTES:
            yield waiting[0] if len(waiting) == 1 else b"".join(waiting)
            waiting, size = [], 0
        waiting.append(piece)
        size += len(piece)
    if waiting:
        yield waiting[0] if len(waiting) == 1 else b"".join(waiting)


def _proxies(environ: Mapping[str, str]) -> dict[str, str]:
    """Proxies by scheme, and the hosts without one (`no`)."""
    proxies: dict[str, str] = {}
    for name in ("http", "https", "all", "no"):
        value = environ.get(f"{name}_proxy")
        # In a CGI program this variable is a request header that a client controls.
        if value is None and not (name == "http" and "REQUEST_METHOD" in environ):
            value = environ.get(f"{name.upper()}_PROXY")
        if value:
            proxies[name] = value
    return proxies


def _bypasses_proxy(host: str, port: int | None, exempt: str) -> bool:
    """Whether NO_PROXY names the host, a domain it is in, or everything."""
    names = [name.strip().lower().lstrip(".") for name in exempt.split(",") if name.strip()]
    full = f"{host}:{port}" if port else host
    return any(name == "*" or f".{place}".endswith(f".{name}") for name in names for place in (host, full))


def _certificates(environ: Mapping[str, str]) -> ssl.SSLContext | None:
    """A TLS context for the certificates that the environment names; None if it names none."""
    file = environ.get("SSL_CERT_FILE") or environ.get("REQUESTS_CA_BUNDLE") or None
    folder = environ.get("SSL_CERT_DIR") or None
    if file is not None and os.path.isdir(file):
        file, folder = None, file
    if file is None and folder is None:
        return None
    try:
        return ssl.create_default_context(cafile=file, capath=folder)
    except (OSError, ssl.SSLError) as error:
        raise ProviderSetupError(
            f"cannot read the certificates in {file or folder} ({error.strerror or 'no certificates'}); "
            "correct SSL_CERT_FILE, SSL_CERT_DIR or REQUESTS_CA_BUNDLE"
        ) from None


def _as_transport_error(error: Exception, request: HttpRequest, *, response_started: bool = False) -> TransportError:
    """An aiohttp exception as a `TransportError`."""
    import aiohttp

    code, detail = "connection_lost", ""
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        code = "connect_timeout"
    elif isinstance(error, aiohttp.SocketTimeoutError):
        code = "read_timeout"
    elif isinstance(error, TimeoutError):
        code = "total_timeout"
    elif isinstance(error, aiohttp.ClientConnectorDNSError):
        code = "dns_failed"
    elif isinstance(error, aiohttp.ClientConnectorCertificateError | aiohttp.ClientSSLError):
        code = "tls_failed"
    elif isinstance(error, aiohttp.ClientProxyConnectionError | aiohttp.ClientHttpProxyError):
        code = "proxy_failed"
    elif isinstance(error, aiohttp.ClientConnectorError):
        code, detail = "connection_failed", error.os_error.strerror or "refused"
    elif isinstance(error, aiohttp.ClientResponseError):
        code, detail = "not_http", "invalid head"
    elif isinstance(error, ValueError) and not isinstance(error, OSError):
        code = "invalid_url"
    return transport_error(code, request, detail, response_started=response_started)
