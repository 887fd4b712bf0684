"""The general HTTP server: aiohttp's, for requests that a `ServerConnection` does not read.

The listener decides: it admits on the head, holds the body budget and words the errors. Here aiohttp's request becomes a
`ClientRequest`, and a `Response` becomes aiohttp's. A response is written inside the handler and counts as in progress until it
has left the write buffer.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import time
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from antiphon.gateway.http.connection import LINGER_SECONDS
from antiphon.gateway.http.errors import error_response
from antiphon.gateway.http.listener import Listener, error_format_for_path
from antiphon.gateway.http.messages import ClientRequest, Response
from antiphon.gateway.http.slow_clients import flush, wait_for_client
from antiphon.gateway.observe.logs import set_request_id
from antiphon.wire.output import ProviderError

if TYPE_CHECKING:
    from aiohttp import web

logger = logging.getLogger("antiphon.gateway")

_HEAD = re.compile(rb"[A-Z]+ /")
_AGENT = re.compile(rb"\r\nuser-agent:", re.IGNORECASE)
_OTHER_AGENT = b"\r\nalso-agent:"
_TOO_MANY_CONNECTIONS = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


def general_server(listener: Listener) -> web.Server:
    """The server that answers for `listener`."""
    server: web.Server = _server_class()(listener)
    return server


class _Exchange:
    """One request and its response."""

    def __init__(self, listener: Listener, request: web.BaseRequest, transport: asyncio.Transport) -> None:
        self._listener = listener
        self._request = request
        self._transport = transport
        self._settings = listener.settings
        self._reserved = 0  # bytes counted in the budget
        headers = {name.lower(): value for name, value in request.headers.items()}
        query = dict(request.query) if request.query_string else {}
        self._client_request = listener.build_request(
            request.method, request.path, query, headers, request.remote or ""
        )
        self._client_request.deadline = time.monotonic() + self._settings.request_seconds
        headers["x-request-id"] = self._client_request.request_id

    async def run(self) -> web.StreamResponse:
        """Answer it; the response, written."""
        set_request_id(self._client_request.request_id)
        response: web.StreamResponse | None = None
        limit = asyncio.timeout_at(self._client_request.deadline)
        try:
            async with limit:
                answer = await self._answered()
                response = self._response(answer)
                await self._write(response, answer)
        except TimeoutError:
            if not limit.expired():
                raise
            if response is not None and response.prepared:
                # The status is sent already: a truncated response is the only possible signal.
                logger.warning("request timed out; stream aborted")
                self._transport.abort()
            else:
                answer = self._listener.request_timeout(self._client_request.path, self._client_request.request_id)
                response = self._response(answer, is_last=True)
                await self._write(response, answer)
        finally:
            del limit  # it refers to the task, whose error refers to this frame
        with contextlib.suppress(ConnectionError):
            await flush(self._transport, self._request.writer.drain, self._settings.write_seconds)
        return response

    async def _answered(self) -> Response:
        listener, request, client_request = self._listener, self._request, self._client_request
        if problem := _head_problem(request):
            return error_response("", ProviderError(problem, "invalid_request"), headers={"connection": "close"})
        admission = listener.admit(client_request, request.content_length if request.body_exists else 0)
        if isinstance(admission, Response):
            return admission
        try:
            if request.body_exists and (refusal := await self._read_body(client_request)) is not None:
                return refusal
            return await listener.gateway.handle(client_request, admission)
        finally:
            client_request.body = b""  # the upstream has it
            listener.budget.release(self._reserved)

    async def _read_body(self, client_request: ClientRequest) -> Response | None:
        """Read the body into `client_request`; an answer if it is refused."""
        listener, request, settings = self._listener, self._request, self._settings
        if client_request.headers.get("expect", "").lower() == "100-continue":
            await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            request.writer.output_size = 0  # nothing of the response is written yet
        pieces: list[bytes] = []
        size = 0
        is_complete = request.content.is_eof()  # it came with the head: there is nothing to wait for
        try:
            async with asyncio.timeout(None if is_complete else settings.body_seconds):
                while piece := await request.content.readany():
                    size += len(piece)
                    if size > settings.max_body_bytes:
                        return listener.body_too_large(client_request.path)
                    if not listener.budget.reserve(len(piece)):
                        return listener.over_budget(client_request.path)
                    self._reserved += len(piece)
                    pieces.append(piece)
        except TimeoutError:
            return listener.body_timeout(client_request.path)
        except Exception as error:
            message = f"cannot read the request body: {type(error).__name__}"
            problem = ProviderError(message, "invalid_request")
            return error_response(error_format_for_path(client_request.path), problem, headers={"connection": "close"})
        client_request.body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        return None

    def _response(self, answer: Response, *, is_last: bool = False) -> web.StreamResponse:
        from aiohttp import web

        self._listener.with_common_headers(answer, self._client_request.request_id)
        if not self._request.content.is_eof() or self._listener.is_draining:
            is_last = True
        if is_last:
            answer.headers["connection"] = "close"
        if isinstance(answer.body, bytes):
            body = answer.body
            response: web.StreamResponse = web.Response(status=answer.status, headers=answer.headers, body=body)
        else:
            response = web.StreamResponse(status=answer.status, headers=answer.headers)
        if answer.headers.get("connection") == "close":
            response.force_close()
        return response

    async def _write(self, response: web.StreamResponse, answer: Response) -> None:
        request, seconds = self._request, self._settings.write_seconds
        protocol: Any = request.protocol
        with contextlib.suppress(ConnectionError):  # the client left; closing a stream's pieces stops the upstream
            if isinstance(answer.body, bytes):
                await wait_for_client(self._transport, _write_whole(request, response), seconds)
                return
            async with aclosing(answer.body) as pieces:  # type: ignore[type-var]
                await response.prepare(request)
                async for piece in pieces:
                    paused_before = protocol.paused_seconds
                    await wait_for_client(self._transport, response.write(piece), seconds)
                    if answer.on_client_wait is not None:
                        answer.on_client_wait(protocol.paused_seconds - paused_before)
                await response.write_eof()


async def _write_whole(request: web.BaseRequest, response: web.StreamResponse) -> None:
    await response.prepare(request)
    await response.write_eof()


def _server_class() -> Any:
    """aiohttp's server with our count of connections and our words for malformed requests."""
    from aiohttp import http_exceptions, web

    class _Handler(web.RequestHandler):
        """aiohttp's connection, with our words for malformed requests. `paused_seconds`: how long its client kept it waiting."""

        paused_seconds = 0.0
        _paused_at = 0.0

        def pause_writing(self) -> None:
            super().pause_writing()
            self._paused_at = time.monotonic()

        def resume_writing(self) -> None:
            super().resume_writing()
            self.paused_seconds += time.monotonic() - self._paused_at

        def data_received(self, data: bytes) -> None:
            super().data_received(_with_one_agent(data))

        def handle_error(
            self,
            request: web.BaseRequest,
            status: int = 500,
            exc: BaseException | None = None,
            message: str | None = None,
        ) -> web.StreamResponse:
            if not isinstance(exc, http_exceptions.HttpProcessingError) or request.writer.output_size:
                return super().handle_error(request, status, exc, message)
            # What was sent is repeated neither in the log nor in the response: it may contain a key.
            is_large = isinstance(exc, http_exceptions.LineTooLong) or "Too many headers" in str(exc)
            logger.info("malformed HTTP request from %s: %s", request.remote, type(exc).__name__)
            problem = "request headers too large" if is_large else "malformed HTTP request"
            answer = error_response("", ProviderError(problem, "invalid_request"), status=431 if is_large else 400)
            response = web.Response(
                status=answer.status, headers={**answer.headers, "server": "antiphon"}, body=answer.body
            )
            response.force_close()
            return response

        def log_exception(self, *args: Any, **kwargs: Any) -> None:
            if isinstance(kwargs.get("exc_info"), web.RequestPayloadError):
                return  # a body that cannot be read was answered already
            super().log_exception(*args, **kwargs)

    class _Server(web.Server):
        """aiohttp's server with our count of connections."""

        def __init__(self, listener: Listener) -> None:
            self._listener = listener
            super().__init__(
                self._handle,
                handler_cancellation=True,
                access_log=None,
                keepalive_timeout=listener.keep_alive_seconds,
                max_line_size=16 * 1024,
                max_field_size=32 * 1024,
                lingering_time=LINGER_SECONDS,
            )

        async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
            transport = request.transport
            if transport is None:
                raise ConnectionResetError("the client left")
            self._listener.request_started(transport)
            try:
                return await _Exchange(self._listener, request, transport).run()
            finally:
                self._listener.request_finished(transport)

        def __call__(self) -> web.RequestHandler:
            return _Handler(self, loop=self._loop, **self._kwargs)

        def connection_made(self, handler: Any, transport: asyncio.Transport) -> None:
            super().connection_made(handler, transport)
            if not self._listener.admit_connection(transport):
                transport.write(_TOO_MANY_CONNECTIONS)
                transport.close()

        def connection_lost(self, handler: Any, exc: BaseException | None = None) -> None:
            self._listener.forget_connection(self._connections.get(handler))
            super().connection_lost(handler, exc)

    return _Server


def _head_problem(request: web.BaseRequest) -> str:
    """What aiohttp accepts in a head and we do not; nothing if it is fine."""
    from aiohttp import HttpVersion10, HttpVersion11

    if request.version not in (HttpVersion10, HttpVersion11):
        request._version = HttpVersion11  # of the response
        return "unsupported HTTP version"
    hosts = request.headers.getall("host", ())
    if len(hosts) > 1 or (not hosts and request.version == HttpVersion11):
        return "send exactly one Host header"
    coding = request.headers.get("transfer-encoding", "chunked")
    return "" if coding.strip().lower() == "chunked" else "unsupported transfer coding; send chunked"


def _with_one_agent(data: bytes) -> bytes:
    """The head of a request with its second User-Agent under another name, of the same length: libraries built on an SDK
    send theirs beside it (pydantic-ai does to Gemini), and aiohttp rejects a request with two."""
    if not _HEAD.match(data):
        return data
    end = data.find(b"\r\n\r\n")
    end = len(data) if end < 0 else end
    for other in list(_AGENT.finditer(data, 0, end))[1:]:
        data = data[: other.start()] + _OTHER_AGENT + data[other.end() :]
    return data
