"""`Application`: what a listener serves, and what the two need to know of each other.

The server knows HTTP and nothing of what is served. It asks the application on the head of every request, passes on what was
admitted, and says why it refuses something itself (`Refusal`); how a client reads that is the application's matter.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from msgspec import Struct

from antiphon.http.messages import ClientRequest, Response

_MEBIBYTE = 1024 * 1024


class Limits(Struct, frozen=True, kw_only=True):
    """The limits of a listener. Times are in seconds."""

    max_connections: int = 2000
    max_body_bytes: int = 64 * _MEBIBYTE
    """The most bytes of one body; an application may allow less."""
    max_buffered_bytes: int = 512 * _MEBIBYTE
    """The most bytes of everything that waits in the process."""
    header_seconds: float = 10.0
    body_seconds: float = 60.0
    request_seconds: float = 900.0
    write_seconds: float = 60.0
    """How long a client may take no byte of its response."""
    ping_seconds: float = 15.0
    """How often the client of a WebSocket must show that it is there."""


class Traffic:
    """What the listeners of a process count."""

    connections = 0
    requests_in_progress = 0


class Refusal(Struct, frozen=True):
    """Why the server does not read or answer a request."""

    status: int
    message: str
    setting: str = ""
    """The name of the limit that is reached, in `Limits`."""
    headers: Mapping[str, str] = {}


def internal_error(request: ClientRequest) -> Refusal:
    """A defect of ours ended a request."""
    return Refusal(500, f"internal error; see the log for request {request.request_id}")


def request_timeout(limits: Limits) -> Refusal:
    """A request took too long."""
    return Refusal(504, f"request timed out after {limits.request_seconds:g} s", "request_seconds")


def body_timeout(limits: Limits) -> Refusal:
    """A body took too long."""
    return Refusal(408, f"request body not received within {limits.body_seconds:g} s", "body_seconds")


class RequestHandler(Protocol):
    """What answers requests."""

    def admit(self, request: ClientRequest) -> Any:
        """Decide on a request without its body: a `Response` that refuses it, or the admission that `handle` takes.

        An admission may say more: `owner` (whose bytes they are) and `max_body`; whether it `takes_form`, `passes_body` (from the
        head on, while it arrives) or `opens_socket`; and `end(request, response)` is called if the request ends without `handle`.
        """

    async def handle(self, request: ClientRequest, admission: Any = None) -> Response:
        """Answer a request. Without an admission it is admitted first."""


class Application(RequestHandler, Protocol):
    """What a listener serves."""

    def refuse(self, request: ClientRequest, refusal: Refusal) -> Response:
        """The response to a request that the server refuses. Of one whose head cannot be read the path is empty."""
        del request
        return Response.json({"error": {"message": refusal.message}}, refusal.status, refusal.headers)

    def page_headers(self, request: ClientRequest) -> Mapping[str, str]:
        """Headers of every response to a request with an `Origin`: those with which a browser shows it to the page."""
        del request
        return {}
