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
