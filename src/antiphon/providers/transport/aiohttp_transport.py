"""`AiohttpTransport`: requests over real sockets, by aiohttp.

One session for each running event loop: its connections are reused by every call made there. A client may be used from one loop
after the other (each `asyncio.run` is a new one), so a session must end with its loop. It is held by an asynchronous generator
that was started in the loop: a loop that is shut down properly closes its asynchronous generators while it still runs, and this
one closes its session then. What is left of a loop that was closed without that is cleared away before the next begins.

What is ours and not aiohttp's: certificates and proxies are taken from the environment (never `.netrc`, which would send
somebody else's password along), cookies are not kept, and redirects are followed only within the same origin, so that a key never
travels to another host.
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
from antiphon.providers.transport.request import HttpRequest, HttpResponse, Timeouts, trouble

if TYPE_CHECKING:
    import aiohttp

_JOINED = 256 * 1024
"""Pieces of a body are joined up to this size: copying is cheaper than a system call for each."""
_LARGEST_SINGLE = 1024 * 1024
"""A body that is one piece is sent as it is up to this size; beyond that aiohttp warns of writing so much at once."""
KEPT_ALIVE = 60.0
"""For so many seconds a connection waits for the next request."""
MOST_REDIRECTS = 3
_REDIRECTS = (307, 308)  # those that keep the method and the body


class _Held(NamedTuple):
    """What belongs to one event loop."""

    session: aiohttp.ClientSession
    fresh: aiohttp.ClientSession
    """Uses every connection once."""
    generator: AsyncGenerator[tuple[aiohttp.ClientSession, aiohttp.ClientSession], None]
    running: WeakSet[aiohttp.ClientResponse]
    """Responses that may still be read: closing a session does not wake those who wait for their next byte."""


class AiohttpTransport:
    """Sends requests over sockets. `environ` is where proxies and certificates are looked for."""

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        self._environ = os.environ if environ is None else environ
        self._sessions: dict[asyncio.AbstractEventLoop, _Held] = {}
        self._proxies = _proxies(self._environ)

    async def send(self, request: HttpRequest) -> HttpResponse:
        """Send it and wait for the head of the response."""
        held = self._sessions.get(asyncio.get_running_loop())
        if held is None or held.session.closed:
            held = await self._begin()
        for _ in range(MOST_REDIRECTS + 1):
            response = await self._ask(held, request)
            following = redirected(request, response)
            if following is None:
                return response
            await response.aclose()
            request = following
        raise trouble("redirect_loop", request)

    async def aclose(self) -> None:
        """Close the connections of this loop, and of others as far as they can be reached."""
        here = asyncio.get_running_loop()
        for loop, held in list(self._sessions.items()):
            if loop is here:
                await held.generator.aclose()
            elif loop.is_running():
                asyncio.run_coroutine_threadsafe(_closed(held.generator), loop)
        self._let_go_of_the_dead()

    async def _ask(self, held: _Held, request: HttpRequest) -> HttpResponse:
        connection = _Connection()
        try:
            try:
                response = await self._sent(held.session, request, connection)
            except _troubles() as error:
                if not connection.is_reused or not _is_lost(error):
                    raise
                # The host closed an idle connection, perhaps before the request came: no failure of the host.
                response = await self._sent(held.fresh, request, connection)
        except _troubles() as error:
            raise _failure(error, request) from None
        held.running.add(response)
        return _Response(response, request)

    async def _sent(
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
            timeout=_patience(request.timeouts),
            trace_request_ctx=connection,
        )

    async def _begin(self) -> _Held:
        self._let_go_of_the_dead()
        running: WeakSet[aiohttp.ClientResponse] = WeakSet()
        generator = self._session_of_a_loop(running)
        session, fresh = await anext(generator)
        held = self._sessions[asyncio.get_running_loop()] = _Held(session, fresh, generator, running)
        return held

    async def _session_of_a_loop(
        self, running: WeakSet[aiohttp.ClientResponse]
    ) -> AsyncGenerator[tuple[aiohttp.ClientSession, aiohttp.ClientSession], None]:
        try:
            import aiohttp
        except ImportError:
            raise ProviderSetupError(
                "speaking to a provider over HTTP needs aiohttp; install it with: pip install aiohttp"
            ) from None
        loop = asyncio.get_running_loop()
        tracing = aiohttp.TraceConfig()
        tracing.on_connection_reuseconn.append(_note_reuse)
        session, fresh = (
            aiohttp.ClientSession(
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"User-Agent": f"antiphon/{__version__}", "Accept-Encoding": "identity"},
                auto_decompress=False,  # that is bounded here
                trace_configs=[tracing],
            )
            for connector in (
                aiohttp.TCPConnector(limit=0, keepalive_timeout=KEPT_ALIVE),
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
        """Whom to trust; read when it is first needed, for that takes a while."""
        return _certificates(self._environ) or True

    def _let_go_of_the_dead(self) -> None:
        """Close what belongs to loops that were closed without a word. They can do nothing any more, so garbage collection
        closes the sockets; here and now, and not at some moment when it would look like somebody else's leak."""
        dead = [loop for loop in list(self._sessions) if loop.is_closed()]  # other threads may begin one
        if not dead:
            return
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            for loop in dead:
                held = self._sessions.pop(loop)
                held.session.detach()
                held.fresh.detach()
            gc.collect()

    def proxy_for(self, url: str) -> str | None:
        """The proxy that the environment wants in between; None where it wants none. Raises `TransportError`."""
        if not self._proxies:
            return None
        parts = urlsplit(url)
        proxy = self._proxies.get(parts.scheme) or self._proxies.get("all")
        if proxy is None or _needs_none(parts.hostname or "", parts.port, self._proxies.get("no", "")):
            return None
        if not proxy.startswith(("http://", "https://")):
            if "://" in proxy:
                raise TransportError(
                    "the proxy of the environment is none that speaks HTTP; set another", "proxy_failed"
                )
            return f"http://{proxy}"
        return proxy

    def __repr__(self) -> str:
        return f"<AiohttpTransport with {len(self._sessions)} sessions>"


class _Response:
    """aiohttp's response behind our own face."""

    def __init__(self, response: aiohttp.ClientResponse, request: HttpRequest) -> None:
        self.status = response.status
        self.headers: Mapping[str, str] = {name.lower(): value for name, value in response.headers.items()}
        self._response = response
        self._request = request
        try:
            self._decompressor = Decompressor(self.headers.get("content-encoding", "").lower())
        except MalformedBody as error:
            response.close()
            raise trouble("not_http", request, str(error)) from None

    @property
    def body(self) -> AsyncIterator[bytes]:
        return self

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        try:
            data = await self._response.content.readany()
        except _troubles() as error:
            raise _failure(error, self._request, is_begun=True) from None
        try:
            if not data:
                self._decompressor.close()
                raise StopAsyncIteration
            return self._decompressor.feed(data)
        except MalformedBody as error:
            self._response.close()
            raise trouble("not_http", self._request, str(error)) from None

    async def aclose(self) -> None:
        self._response.close()


class _Connection:
    """What is known of the connection of a request."""

    is_reused = False


async def _note_reuse(_: Any, context: Any, __: Any) -> None:
    if isinstance(context.trace_request_ctx, _Connection):
        context.trace_request_ctx.is_reused = True


def _is_lost(error: Exception) -> bool:
    """Whether the host closed the connection without a word."""
    import aiohttp

    is_reset = isinstance(error, aiohttp.ClientOSError) and not isinstance(error, aiohttp.ClientConnectorError)
    return is_reset or isinstance(error, aiohttp.ServerDisconnectedError)


@cache
def _troubles() -> tuple[type[Exception], ...]:
    """What aiohttp raises where the network or the address is to blame."""
    import aiohttp

    return aiohttp.ClientError, OSError, ValueError


@lru_cache
def _patience(timeouts: Timeouts) -> aiohttp.ClientTimeout:
    import aiohttp

    return aiohttp.ClientTimeout(total=timeouts.total, connect=timeouts.connect, sock_read=timeouts.read)


async def _closed(generator: AsyncGenerator[Any, None]) -> None:
    await generator.aclose()


def redirected(request: HttpRequest, response: HttpResponse) -> HttpRequest | None:
    """The request that a response wants to be made instead; None where it wants none, or at another host."""
    location = response.headers.get("location")
    if response.status not in _REDIRECTS or not location:
        return None
    target = urljoin(request.url, location)
    return structs.replace(request, url=target) if _origin(target) == _origin(request.url) else None


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port


def _data(body: Sequence[bytes], headers: dict[str, str]) -> Any:
    """The body as aiohttp takes it: small ones joined, large ones piece by piece under a length that is known."""
    size = sum(map(len, body))
    if len(body) == 1 and size <= _LARGEST_SINGLE:
        return body[0]
    if size <= _JOINED:
        return b"".join(body)
    headers["Content-Length"] = str(size)
    return _pieces(body)


async def _pieces(body: Sequence[bytes]) -> AsyncIterator[bytes]:
    for piece in _gathered(body):
        yield piece


def _gathered(body: Sequence[bytes]) -> Iterator[bytes]:
    """The same bytes in fewer pieces: small neighbours joined, large pieces as they are."""
    waiting: list[bytes] = []
    size = 0
    for piece in body:
        if waiting and size + len(piece) > _JOINED:
            yield waiting[0] if len(waiting) == 1 else b"".join(waiting)
            waiting, size = [], 0
        waiting.append(piece)
        size += len(piece)
    if waiting:
        yield waiting[0] if len(waiting) == 1 else b"".join(waiting)


def _proxies(environ: Mapping[str, str]) -> dict[str, str]:
    """Proxies by scheme, and the hosts that need none (`no`)."""
    found: dict[str, str] = {}
    for name in ("http", "https", "all", "no"):
        value = environ.get(f"{name}_proxy")
        # In a CGI program this variable is a header that anybody can send.
        if value is None and not (name == "http" and "REQUEST_METHOD" in environ):
            value = environ.get(f"{name.upper()}_PROXY")
        if value:
            found[name] = value
    return found


def _needs_none(host: str, port: int | None, exempt: str) -> bool:
    """Whether NO_PROXY names the host, a domain it is in, or everything."""
    names = [name.strip().lower().lstrip(".") for name in exempt.split(",") if name.strip()]
    full = f"{host}:{port}" if port else host
    return any(name == "*" or f".{place}".endswith(f".{name}") for name in names for place in (host, full))


def _certificates(environ: Mapping[str, str]) -> ssl.SSLContext | None:
    """A context that trusts what the environment names; None where it names nothing."""
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
            f"the certificates in {file or folder} cannot be read ({error.strerror or 'no certificates'}); "
            "correct SSL_CERT_FILE, SSL_CERT_DIR or REQUESTS_CA_BUNDLE"
        ) from None


def _failure(error: Exception, request: HttpRequest, *, is_begun: bool = False) -> TransportError:
    """What happened, in our words."""
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
        code, detail = "not_http", "its head is invalid"
    elif isinstance(error, ValueError) and not isinstance(error, OSError):
        code = "invalid_url"
    return trouble(code, request, detail, is_begun=is_begun)
