"""`Application`: what a listener serves; `Handler`: one request that it admitted; `Limits` and `Traffic` of a listener.

The server knows HTTP and nothing of what is served. It asks the application on the head of every request. What is admitted is a
`Handler`: it runs once the body is there, and it learns of the end of the request however that comes. The server says why it
refuses something itself (`Refusal`); how a client reads that is the application's matter.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from msgspec import Struct

from antiphon.http.body import MEBIBYTE
from antiphon.http.messages import ClientRequest, Response

if TYPE_CHECKING:
    from antiphon.http.server.websocket import SocketSession, WebSocket

BodyKind: TypeAlias = Literal["json", "stream", "socket"]
"""What a handler takes: a JSON body, any body while it arrives, or the frames of a WebSocket."""


class Limits(Struct, frozen=True, kw_only=True):
    """The limits of a listener. Times are in seconds."""

    max_connections: int = 2000
    max_body_bytes: int = 64 * MEBIBYTE
    """The most bytes of one body; an application may allow less."""
    max_buffered_bytes: int = 512 * MEBIBYTE
    """The most bytes of everything that waits in the process."""
    header_seconds: float = 10.0
    body_seconds: float = 60.0
    request_seconds: float = 900.0
    write_seconds: float = 60.0
    """How long a client may take no byte of its response."""
    ping_seconds: float = 15.0
    """How often the client of a WebSocket must show that it is there."""


class Traffic:
    """The connections of all listeners of a process, and those with a request in progress (`busy`)."""

    def __init__(self) -> None:
        self.connections: set[Any] = set()
        self.busy: set[Any] = set()


class Refusal(Struct, frozen=True):
    """Why the server does not read or answer a request."""

    status: int
    message: str
    setting: str = ""
    """The name of the limit that is reached, in `Limits`."""
    headers: Mapping[str, str] = {}


class Handler(Protocol):
    """A request that was admitted."""

    @property
    def owner(self) -> str | None:
        """The client whose bytes wait; None: it has shown no key, although there are keys."""

    @property
    def max_body(self) -> int:
        """The most bytes that the body may have."""

    @property
    def takes(self) -> BodyKind:
        """What kind of body it takes."""

    @property
    def is_logged(self) -> bool:
        """Whether its end has a line in the log, so that the server need not write one."""

    async def run(self) -> Response:
        """Answer. Called at most once, when the body is complete, or from the head on if it takes a stream."""

    def end(self, status: int = 0, error: Any = None) -> None:
        """The request is over: with that status and error, or (0) because its client left. Only the first call counts."""


class Admitted:
    """A `Handler` that calls a function and needs to know nothing of the end."""

    takes: BodyKind = "json"
    max_body = sys.maxsize
    is_logged = False

    def __init__(self, answer: Callable[[], Awaitable[Response]], owner: str | None = "") -> None:
        self._answer = answer
        self.owner = owner

    async def run(self) -> Response:
        """Answer."""
        return await self._answer()

    def end(self, status: int = 0, error: Any = None) -> None:
        """Nothing is recorded."""


class Application(Protocol):
    """What a listener serves."""

    def admit(self, request: ClientRequest) -> Handler | Response:
        """Decide on a request without its body: the response that refuses it, or its handler."""

    def refuse(self, request: ClientRequest, refusal: Refusal) -> Response:
        """The response to a request that the server refuses. Of one whose head cannot be read the path is empty."""
        del request
        return Response.json({"error": {"message": refusal.message}}, refusal.status, refusal.headers)

    def refused(self, request: ClientRequest, response: Response) -> None:
        """A request that has no handler was refused by the server."""
        del request, response

    def page_headers(self, request: ClientRequest) -> Mapping[str, str]:
        """Headers of every response to a request with an `Origin`: those with which a browser shows it to the page."""
        del request
        return {}

    def open_socket(self, request: ClientRequest, socket: WebSocket) -> SocketSession:
        """The session of a WebSocket that a request has opened. It is called only if a handler takes one."""
        raise AssertionError(f"no handler takes a WebSocket: {request.path}, {socket}")


async def answer(admitted: Handler | Response) -> Response:
    """The response to a request that came by no connection: what refuses it, or what its handler answers."""
    return admitted if isinstance(admitted, Response) else await admitted.run()
