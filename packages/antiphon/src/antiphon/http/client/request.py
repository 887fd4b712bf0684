"""`HttpRequest`, `HttpResponse`, `Timeouts` and `Transport`: the interface between the engine and the network.

A transport sends one request and returns a response whose body is read as it arrives. It knows nothing about formats, keys or
retries. Network failures are a `TransportError` with a code; a status is never an error here. Aborting a response before its end
closes its connection at once.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, Protocol, Self
from urllib.parse import urlsplit

from msgspec import Struct, field

from antiphon.errors import TransportError
from antiphon.http.body import IteratedFlow, PausedBody, copy_failure


class Timeouts(Struct, frozen=True, kw_only=True):
    """Timeouts in seconds; None for no limit."""

    connect: float | None = 10.0
    """To connect, with name lookup and TLS."""
    read: float | None = 300.0
    """Between two bytes, and before the first: a model that thinks may be silent for minutes."""
    total: float | None = None
    """For the whole call, with retries and the delays between them."""
    first_token: float | None = None
    """Until the first visible output of a stream, where another target could be asked; None: as the router says."""


DEFAULT_PORTS = {"http": 80, "https": 443}


class Origin(NamedTuple):
    """Where a connection leads."""

    scheme: str
    host: str
    port: int

    @property
    def authority(self) -> str:
        """Host and port as they are written in a URL."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"


class HttpRequest(Struct, frozen=True, kw_only=True):
    """A request. `body` is sent piece by piece."""

    url: str
    headers: Mapping[str, str] = {}
    body: Sequence[bytes] = ()
    method: str = "POST"
    timeouts: Timeouts = Timeouts()
    stream: AsyncIterator[bytes] | None = None
    """A body that is sent while it arrives, in place of `body`; such a request is sent once, on a new connection."""
    stream_length: int | None = None
    """The length of that body; None: it is sent in chunks."""
    is_whole: bool = False
    """Whether the response is of use only when its body is complete: `send` may wait for that."""
    resends: list[TransportError] = field(default_factory=list)
    """Why it was sent again on the way to its response: an entry for each request that the host got besides the last one."""

    @property
    def host(self) -> str:
        """The host, for display."""
        try:
            return urlsplit(self.url).netloc.rpartition("@")[2]
        except ValueError:
            return "(invalid URL)"

    def __repr__(self) -> str:
        return f"<HttpRequest {self.method} to {self.host}>"


_PUBLIC_CODES = {"tls_handshake_failed": "tls_failed", "invalid_header": "invalid_url"}
"""Failures with a message of their own and the code of another, which callers know."""


def transport_error(
    code: str, host: str, timeouts: Timeouts, detail: str = "", *, response_started: bool = False
) -> TransportError:
    """A `TransportError` with our own text: that of a library may contain URLs with passwords."""
    if code == "connection_lost":
        when = "before the response ended" if response_started else "without a response"
        message = f"connection lost: {host} closed the connection {when}"
    else:
        message = {
            "connect_timeout": f"no connection to {host} within {timeouts.connect} s",
            "read_timeout": f"no data from {host} for {timeouts.read} s (read timeout)",
            "total_timeout": f"{host} did not finish within {timeouts.total} s",
            "dns_failed": f"cannot resolve {host}; check the base URL and the network",
            "tls_failed": f"TLS certificate of {host} is not trusted ({detail or 'rejected'}); "
            "for a private CA set SSL_CERT_FILE",
            "tls_handshake_failed": f"TLS handshake with {host} failed ({detail or 'rejected'}); check the base URL",
            "proxy_failed": f"cannot use the proxy for {host}{f' ({detail})' if detail else ''}; "
            "check HTTP_PROXY and HTTPS_PROXY",
            "address_blocked": f"the address of {host} is not allowed",
            "invalid_header": f"header {detail} contains characters that HTTP does not allow; remove them",
            "connection_failed": f"cannot connect to {host}: {detail}",
            "invalid_url": f"invalid URL at {host}; check the base URL",
            "redirect_loop": f"redirect loop at {host}; check the base URL",
            "not_http": f"malformed HTTP response from {host}: {detail or 'unreadable'}; check the base URL",
        }[code]
    return TransportError(message, _PUBLIC_CODES.get(code, code))


class HttpResponse(PausedBody):
    """A response: its head, once `status` is set, and its body. Header names are in lower case."""

    status = 0
    headers: Mapping[str, str] = MappingProxyType({})

    @classmethod
    def of(cls, status: int, headers: Mapping[str, str], body: bytes | AsyncGenerator[bytes, None]) -> Self:
        """One that came over no connection: its body is there, or is made while it is read."""
        response = cls()
        response.status, response.headers = status, headers
        if isinstance(body, bytes):
            response.on_body(body)
            response.on_complete()
        else:
            response.flow = IteratedFlow(response, body)
        return response

    @property
    def failure(self) -> TransportError:
        """Why it ended before its head."""
        assert self._failure is not None, "it waits until something arrives, or nothing more will"
        return copy_failure(self._failure)


class Transport(Protocol):
    """Sends requests."""

    async def send(self, request: HttpRequest) -> HttpResponse:
        """Send it and wait for the head of the response. Raises `TransportError`."""

    async def aclose(self) -> None:
        """Close all connections."""
