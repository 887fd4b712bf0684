"""`Transport`: the seam between what is said and the network that carries it.

A transport sends one request and gives back a response whose body is read as it comes. It knows nothing of formats, keys or
retries, and its types are nobody's framework's. What goes wrong on the way is a `TransportError` with a word for it; a status is
never an error here. Closing a response before its end closes its connection at once.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Protocol
from urllib.parse import urlsplit

from msgspec import Struct

from antiphon.errors import TransportError


class Timeouts(Struct, frozen=True, kw_only=True):
    """How many seconds to wait. None: for ever."""

    connect: float | None = 10.0
    """For a connection, name lookup and TLS included."""
    read: float | None = 300.0
    """For the next byte, the first one included: a model that thinks may be silent for minutes."""
    total: float | None = None
    """For the whole call, retries and the waits between them included."""


class HttpRequest(Struct, frozen=True, kw_only=True):
    """A request. `body` are pieces that are sent one after the other."""

    url: str
    headers: Mapping[str, str] = {}
    body: Sequence[bytes] = ()
    method: str = "POST"
    timeouts: Timeouts = Timeouts()

    @property
    def host(self) -> str:
        """Where it goes, as it may be shown."""
        return urlsplit(self.url).netloc.rpartition("@")[2]

    def __repr__(self) -> str:
        return f"<HttpRequest {self.method} to {self.host}>"


def trouble(code: str, request: HttpRequest, detail: str = "", *, is_begun: bool = False) -> TransportError:
    """What happened on the way, in our words: a library's may hold addresses with passwords in them."""
    host, timeouts = request.host, request.timeouts
    if code == "connection_lost":
        told = f"{host} closed the connection {'before the answer ended' if is_begun else 'without an answer'}"
    else:
        told = {
            "connect_timeout": f"no connection to {host} within {timeouts.connect} s",
            "read_timeout": f"{host} said nothing for {timeouts.read} s",
            "total_timeout": f"{host} did not finish within {timeouts.total} s",
            "dns_failed": f"the name {host} cannot be resolved; check the base URL and the network",
            "tls_failed": f"the certificate of {host} is not trusted; for one of your own set SSL_CERT_FILE",
            "proxy_failed": f"the proxy for {host} cannot be used; check HTTP_PROXY and HTTPS_PROXY",
            "connection_failed": f"cannot connect to {host}: {detail}",
            "invalid_url": f"the address at {host} is no URL; check the base URL",
            "redirect_loop": f"{host} redirects in a circle; check the base URL",
            "not_http": f"malformed HTTP response from {host}: {detail or 'it cannot be read'}; check the base URL",
        }[code]
    return TransportError(told, code)


class HttpResponse(Protocol):
    """A response whose head has come. Names of headers are in lower case."""

    @property
    def status(self) -> int: ...
    @property
    def headers(self) -> Mapping[str, str]: ...
    @property
    def body(self) -> AsyncIterator[bytes]:
        """The bytes as they come. Raises `TransportError` where they end too early."""

    async def aclose(self) -> None:
        """Let go of it; a connection whose body was not read to the end is closed."""


class Transport(Protocol):
    """Somebody who sends requests."""

    async def send(self, request: HttpRequest) -> HttpResponse:
        """Send it and wait for the head of the response. Raises `TransportError`."""

    async def aclose(self) -> None:
        """Close all connections."""
