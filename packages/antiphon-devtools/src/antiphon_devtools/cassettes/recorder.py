"""`TapeRecorder`: the gateway with a tape: every API request is answered as before, and written to the tape with its answer.

It takes the gateway's place at the listeners, so a gateway that does not record runs none of this. An exchange is on the tape
before the client gets the end of its answer. An answer that has no end (the client left, the upstream broke off, time ran out) is
recorded as cut; a request without any answer is not recorded. A tape that cannot be written is logged, and clients are served on.
"""

from __future__ import annotations

import logging
import os
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing
from typing import Any

from antiphon.errors import TapeError
from antiphon.http.body import PausedBody
from antiphon.http.messages import ClientRequest, Response, ResponseStream, StreamSource
from antiphon.http.server.application import Handler, Refusal
from antiphon.http.server.websocket import SocketSession, WebSocket
from antiphon_devtools.cassettes.matching import read_request
from antiphon_devtools.cassettes.redaction import Redactor
from antiphon_devtools.cassettes.tape import Exchange, RecordedAnswer, Tape
from antiphon_gateway.app import Gateway
from antiphon_gateway.runtime.metered import MeteredRequest

logger = logging.getLogger("antiphon.gateway")

MAX_BODY_BYTES = 64 << 20
"""Of a longer body that is passed on, only this much is compared and described."""
_NOT_RECORDED = frozenset({"connect", "usage"})
"""What clients ask about the gateway itself. A WebSocket is recorded by its requests, not by its opening."""
_OWN_HEADERS = frozenset(
    {"connection", "keep-alive", "transfer-encoding", "content-length", "date", "server", "x-request-id", "alt-svc"}
)
"""Headers that every answer gets again when it is played."""


def is_recorded(handler: Handler) -> bool:
    """Whether a request is recorded and played: one of the gateway that is not about itself, and not of the chat."""
    endpoint = handler.endpoint if isinstance(handler, MeteredRequest) else None
    return endpoint is not None and endpoint.access == "client" and endpoint.action not in _NOT_RECORDED


class WrappedHandler:
    """A handler of the gateway whose requests are answered by another function."""

    is_logged = True

    def __init__(self, handler: Handler, answer: Callable[[], Awaitable[Response]]) -> None:
        self._answer = answer
        self._handler = handler
        self.owner, self.max_body, self.takes = handler.owner, handler.max_body, handler.takes

    async def run(self) -> Response:
        """Answer by the other function."""
        return await self._answer()

    def end(self, status: int = 0, error: Any = None) -> None:
        """The request is over."""
        self._handler.end(status, error)


class TapeListener(ABC):
    """Takes the gateway's place at its listeners: some requests are answered with the tape, everything else by the gateway."""

    def __init__(self, gateway: Gateway, tape: Tape) -> None:
        self._gateway = gateway
        self._tape = tape

    @abstractmethod
    def admit(self, request: ClientRequest) -> Handler | Response:
        """Decide on a request without its body, as the gateway does."""

    def refuse(self, request: ClientRequest, refusal: Refusal) -> Response:
        """The response to a request that a listener refuses."""
        return self._gateway.refuse(request, refusal)

    def refused(self, request: ClientRequest, response: Response) -> None:
        """A request that has no handler was refused."""
        self._gateway.refused(request, response)

    def page_headers(self, request: ClientRequest) -> Mapping[str, str]:
        """The CORS headers for a page of another origin."""
        return self._gateway.page_headers(request)

    def open_socket(self, request: ClientRequest, socket: WebSocket) -> SocketSession:
        """The session of a WebSocket; its requests are those over HTTP."""
        return self._gateway.open_socket(request, socket, self.admit)

    def close(self) -> None:
        """Close the tape."""
        self._tape.close()


class TapeRecorder(TapeListener):
    """Records the exchanges of `gateway` on `tape`. `names` are headers and fields to remove beyond the usual ones."""

    def __init__(self, gateway: Gateway, tape: Tape, names: Iterable[str] = ()) -> None:
        super().__init__(gateway, tape)
        self._redactor = Redactor(tape.redact_also(names))

    def admit(self, request: ClientRequest) -> Handler | Response:
        """Decide on a request without its body, as the gateway does."""
        handler = self._gateway.admit(request)
        if isinstance(handler, Response) or not is_recorded(handler):
            return handler
        return WrappedHandler(handler, lambda: self._answer(request, handler))

    async def _answer(self, request: ClientRequest, handler: Handler) -> Response:
        """Answer a request, and record it."""
        recording = _Recording(self._tape, self._redactor.knowing(*self._gateway.loaded.secrets), request)
        try:
            response = await handler.run()
        except BaseException:
            recording.finish(is_cut=True)  # records something only if the head was sent early
            raise
        return recording.of(response)


def recorder_to(path: str | os.PathLike[str], names: Iterable[str] = ()) -> Callable[[Gateway], TapeRecorder]:
    """Opens the tape in the process that records: a connection to it does not survive a fork."""
    return lambda gateway: TapeRecorder(gateway, Tape(path, records=True), names)


class _Recording:
    """One exchange, from the request to the end of its answer."""

    def __init__(self, tape: Tape, redactor: Redactor, request: ClientRequest) -> None:
        self._tape = tape
        self._redactor = redactor
        self._request = request
        self._at, self._started = time.time_ns() // 1000, time.monotonic()
        self._body = request.body  # the handler may change it, and drops it
        self._head: Response | None = None
        self._head_time = 0.0
        self._is_stream = False
        self._pieces: list[tuple[int, bytes]] = []
        self._is_finished = False
        self._collected: list[bytes] = []
        if request.stream is not None:
            request.stream = CollectedBody(request.stream, self._collected)
        if request.begin_early is not None:
            request.begin_early = self._recorded_beginning(request.begin_early)

    def of(self, response: Response) -> Response:
        """The response, recorded while it is sent."""
        body = response.body
        if isinstance(body, bytes):
            self._begin(response, is_stream=False)
            self.add(body)
            self.finish(is_cut=False)
            return response
        self._begin(response, is_stream=True)
        if isinstance(body, AsyncIterator):
            response.body = self._iterate(body)
        else:
            response.body = _RecordedSource(body, self)
        return response

    def add(self, data: bytes) -> None:
        """A piece of the answer."""
        if data:
            self._pieces.append((_microseconds(time.monotonic() - self._head_time), data))

    def finish(self, *, is_cut: bool) -> None:
        """The answer ended, or will never end."""
        head = self._head
        if self._is_finished or head is None:
            return
        self._is_finished = True
        source = self._request
        request, redactor = read_request(
            self._redactor,
            method=source.method,
            path=source.path,
            query=source.query,
            headers=source.headers,
            body=self._body or b"".join(self._collected),
            at=self._at,
        )
        answer = RecordedAnswer(
            status=head.status,
            headers=redactor.headers(
                {name: value for name, value in head.headers.items() if name.lower() not in _OWN_HEADERS}
            ),
            head_after=_microseconds(self._head_time - self._started),
            is_stream=self._is_stream,
            is_cut=is_cut and source.method != "HEAD",
            pieces=redactor.pieces(self._pieces),
        )
        try:
            number = self._tape.add(Exchange(request, answer))
        except TapeError as error:
            logger.error("cannot record %s %s: %s", source.method, source.path, error)  # noqa: TRY400 the reason is in it
        else:
            logger.debug("recorded %s %s as exchange %d", source.method, source.path, number)

    def _begin(self, response: Response, *, is_stream: bool) -> None:
        if self._head is None:
            self._head, self._head_time, self._is_stream = response, time.monotonic(), is_stream

    def _recorded_beginning(
        self, begin: Callable[[Response], ResponseStream | None]
    ) -> Callable[[Response], ResponseStream | None]:
        def begin_recorded(response: Response) -> ResponseStream | None:
            stream = begin(response)
            if stream is None:
                return None
            self._begin(response, is_stream=True)
            return _RecordedStream(stream, self)

        return begin_recorded

    async def _iterate(self, body: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        try:
            async with aclosing(body) as pieces:  # type: ignore[type-var]
                async for piece in pieces:
                    self.add(piece)
                    yield piece
        except BaseException:
            self.finish(is_cut=True)
            raise
        self.finish(is_cut=False)


class _RecordedStream:
    """A client that receives a stream, and the recording of it."""

    def __init__(self, client: ResponseStream, recording: _Recording) -> None:
        self._client = client
        self._recording = recording

    def write(self, data: bytes) -> None:
        """Send more of the body."""
        self._recording.add(data)
        self._client.write(data)

    def end_stream(self) -> None:
        """The body is complete."""
        self._recording.finish(is_cut=False)
        self._client.end_stream()

    def abort_stream(self) -> None:
        """The body cannot be completed."""
        self._recording.finish(is_cut=True)
        self._client.abort_stream()


class _RecordedSource:
    """The source of a stream whose pieces are recorded."""

    def __init__(self, source: StreamSource, recording: _Recording) -> None:
        self._source = source
        self._recording = recording

    def start(self, client: ResponseStream) -> None:
        """The head of the response is on its way."""
        self._source.start(_RecordedStream(client, self._recording))

    def pause(self) -> None:
        """The client reads slowly."""
        self._source.pause()

    def resume(self) -> None:
        """The client has caught up."""
        self._source.resume()

    def cancel(self, error: Exception | None = None) -> None:
        """The client left, the request took too long, or `error` kept the response from being sent."""
        self._source.cancel(error)
        self._recording.finish(is_cut=True)


class CollectedBody(PausedBody):
    """The body of a request that is passed on while it arrives, collected in `pieces` up to a limit."""

    def __init__(self, source: PausedBody, pieces: list[bytes]) -> None:
        self.length = source.length
        self._source = source
        self._collected = pieces
        self._room = MAX_BODY_BYTES

    async def __anext__(self) -> bytes:
        data = await self._source.__anext__()
        if self._room > 0:
            self._collected.append(data[: self._room])
            self._room -= len(data)
        return data


def _microseconds(seconds: float) -> int:
    return max(0, int(seconds * 1_000_000))
