"""`ClientConnection`: one connection to an upstream, one request at a time.

The response is fed by plain calls, inside the callback of the event loop that read the bytes: bytes that
arrive together are delivered together, however many chunks they were cut into. After the last byte of a response the connection
returns to the idle list of its origin, unless the upstream wants to close it, bytes are left over, or the request was not fully
written. A failure is reported as an exception that was never raised: it has no traceback that could keep a request alive.

`parse_url` splits a URL and `request_head` writes the request line and headers. URLs come from configurations and from
clients: characters that a request line cannot carry are escaped, host names in other scripts become their ASCII form (IDNA),
so that the name that is resolved is the name that is sent, and what cannot be a URL is refused. With `SharedHeaders`, which
many requests have in common, a head is written once for each address.
"""

from __future__ import annotations

import asyncio
import logging
import re
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from functools import lru_cache
from math import inf
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

from antiphon import __version__
from antiphon.errors import TransportError
from antiphon.http.client.request import DEFAULT_PORTS, HttpRequest, HttpResponse, Origin, Timeouts, transport_error
from antiphon.http.client.response_parser import ResponseParser
from antiphon.http.decompress import Malformed
from antiphon.http.messages import CODEC, ERRORS, write_fields
from antiphon.http.timers import LazyTimer

IDLE_SECONDS = 60.0
"""How long an idle connection is kept, unless the upstream states a shorter time."""
MAX_AGE_SECONDS = 600.0
"""How long a connection is reused: the addresses of a host change."""
RESEND_SECONDS = 0.05
"""A connection that closes without a byte this soon after a request was written closed before the request arrived."""
_SINGLE_WRITE_BYTES = 16 * 1024
"""A smaller body is written together with its head."""

logger = logging.getLogger("antiphon.http")


class ClientConnection(asyncio.Protocol):
    """A connection to an upstream. `connections` has it while it is open, `idle` while it is idle."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, connections: set[ClientConnection], idle: list[ClientConnection]
    ) -> None:
        self._loop = loop
        self._origin: Origin | None = None
        self._connections = connections
        self._idle = idle
        self.transport: Any = None  # uvloop's transports are not subclasses of asyncio's
        self._timer = LazyTimer(loop, self._deadline, self._on_due)
        self._opened_at = loop.time()
        self.idle_until = 0.0
        self.was_stale = False
        """Whether the upstream closed it at once, without a byte, when a request was sent: it was closed before."""
        self._receiver: HttpResponse | None = None
        self._parser: ResponseParser | None = None
        self._timeouts = Timeouts()
        self._total_deadline = inf
        self._silent_since = 0.0  # since the last byte, or since reading resumed
        self._sent_at = -inf  # when the request was written, until the first byte of the response
        self._closes_after_response = False
        self._is_paused = self._is_aborted = False
        self._is_write_paused = False
        self._writable: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self._connections.add(self)
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family != getattr(socket, "AF_UNIX", None):
            with suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(
        self, head: bytes, request: HttpRequest, origin: Origin, deadline: float, *, decompresses: bool
    ) -> HttpResponse:
        """Send a request. `origin` is for messages. `deadline` is for the whole response, in the loop's time."""
        response = self._receiver = HttpResponse()
        response.flow, response.is_whole = self, request.is_whole
        self._parser = ResponseParser(is_for_head=request.method == "HEAD", decompresses=decompresses)
        self._origin = origin
        self._timeouts = timeouts = request.timeouts
        self._total_deadline = deadline
        now = self._silent_since = self._sent_at = self._loop.time()
        self._closes_after_response = request.headers.get("connection") == "close"
        due = deadline if timeouts.read is None else min(deadline, now + timeouts.read)
        if due < self._timer.due:
            self._timer.start()
        body = request.body
        if len(body) == 1 and len(body[0]) < _SINGLE_WRITE_BYTES:
            self.transport.write(head + body[0])
        elif body:
            self.transport.writelines([head, *body])
        else:
            self.transport.write(head)
        return response

    async def send_stream(self, pieces: AsyncIterator[bytes], *, is_chunked: bool) -> None:
        """Send a body piece by piece, as fast as the upstream takes it. Until its end the connection is not reused."""
        closes, self._closes_after_response = self._closes_after_response, True
        async for piece in pieces:
            if self._is_aborted or self._receiver is None:
                return
            self._silent_since = self._loop.time()
            self.transport.write(b"%x\r\n%b\r\n" % (len(piece), piece) if is_chunked else piece)
            if self._is_write_paused:
                self._writable = self._loop.create_future()
                await self._writable
        if is_chunked and not self._is_aborted:
            self.transport.write(b"0\r\n\r\n")
        self._closes_after_response = closes

    def pause_writing(self) -> None:
        """The upstream reads slowly."""
        self._is_write_paused = True

    def resume_writing(self) -> None:
        """The upstream has caught up, or is gone."""
        self._is_write_paused = False
        writable, self._writable = self._writable, None
        if writable is not None and not writable.done():
            writable.set_result(None)

    def pause(self) -> None:
        """Stop reading: the receiver has more than it can pass on."""
        if not self._is_paused and self._receiver is not None:
            self._is_paused = True
            self.transport.pause_reading()

    def resume(self) -> None:
        """Read again."""
        if self._is_paused:
            self._is_paused = False
            self._silent_since = self._loop.time()
            self._timer.start()
            if not self.transport.is_closing():
                self.transport.resume_reading()

    def abort(self) -> None:
        """Close the connection at once. The receiver of a response that is not complete gets nothing more."""
        self._receiver = None
        self._close()

    def close(self) -> None:
        """Close the connection. A response that is not complete fails."""
        self._fail("connection_lost")

    def data_received(self, data: bytes) -> None:
        receiver, parser = self._receiver, self._parser
        if receiver is None or parser is None:
            self.abort()  # no request was sent
            return
        self._silent_since = self._loop.time()
        self._sent_at = -inf
        had_head = parser.has_head
        try:
            content = parser.feed(data)
        except Malformed as error:
            self._fail("not_http", str(error))
            return
        try:
            if not had_head and parser.has_head:
                receiver.status, receiver.headers = parser.status, parser.headers
                if not receiver.is_whole:
                    receiver.wake()
            if content and self._receiver is receiver:
                if receiver.receiver is not None:
                    receiver.receiver.on_body(content)
                else:
                    receiver.on_body(content)
            if parser.is_complete and self._receiver is not None:
                self._finish(parser)
        except Exception:
            # A defect of ours, not of the peer: it must not look like a failed upstream, nor stay unseen.
            logger.exception("internal error while receiving a response")
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.discard(self)
        if self._writable is not None:
            self.resume_writing()
        if self._receiver is None:
            self._close()
            return
        self.was_stale = not self._is_aborted and self._loop.time() - self._sent_at <= RESEND_SECONDS
        try:
            # A reset is not an end: what it cut off is unknown, also where a body ends with its connection.
            is_complete = exc is None and self._parser is not None and not self._is_aborted and self._parser.end()
        except Malformed as error:
            self._fail("not_http", str(error))
            return
        if not is_complete:
            self._fail("connection_lost")
            return
        receiver, self._receiver = self._receiver, None
        self._close()
        receiver.on_complete()

    def _finish(self, parser: ResponseParser) -> None:
        """The last byte was read: the connection may be reused."""
        receiver, self._receiver, self._parser = self._receiver, None, None
        assert receiver is not None
        now, transport = self._silent_since, self.transport
        seconds = IDLE_SECONDS
        if "keep-alive" in parser.headers and (stated := parser.idle_seconds) is not None:
            seconds = min(IDLE_SECONDS, stated - 1.0)  # close before the host does
        if (
            not parser.keeps_alive
            or parser.is_overfull
            or self._closes_after_response
            or seconds <= 0
            or now - self._opened_at > MAX_AGE_SECONDS
            or transport.get_write_buffer_size()
            or transport.is_closing()
        ):
            self._close()
        else:
            self.idle_until = now + seconds
            if self._is_paused:
                self.resume()
            self._idle.append(self)
            if self.idle_until < self._timer.due:
                self._timer.start()
        receiver.on_complete()

    def _fail(self, code: str, detail: str = "") -> None:
        receiver, parser, self._receiver = self._receiver, self._parser, None
        self._close()
        if receiver is not None:
            has_head = parser is not None and parser.has_head
            host = self._origin.authority if self._origin is not None else ""
            receiver.on_failure(transport_error(code, host, self._timeouts, detail, response_started=has_head))

    def _close(self) -> None:
        self._is_aborted = True
        self._timer.cancel()
        if self._parser is not None:
            self._parser.close()
            self._parser = None
        if self in self._idle:
            self._idle.remove(self)
        if self.transport is not None:
            self.transport.abort()

    def _deadline(self) -> float:
        """When to look at the connection again."""
        if self._receiver is None:
            return self.idle_until
        read = self._timeouts.read
        due = inf if read is None or self._is_paused else self._silent_since + read
        return due if due < self._total_deadline else self._total_deadline

    def _on_due(self) -> None:
        if self._receiver is None:
            self._close()
        else:
            self._fail("total_timeout" if self._loop.time() >= self._total_deadline else "read_timeout")


_DEFAULTS = {"user-agent": f"antiphon/{__version__}", "accept-encoding": "identity"}
"""Headers of every request, besides its host. The caller's values replace them, and the host."""
_COMPUTED = frozenset({"content-length", "transfer-encoding"})
_BODILESS_METHODS = ("GET", "HEAD", "OPTIONS", "DELETE")
_MAX_KEPT = 64
_SAFE = "/:@!$&'()*+,;=-._~%?[]"
_is_host = re.compile(r"[A-Za-z0-9_.-]+|[0-9A-Fa-f:.]+(?:%[A-Za-z0-9_.-]+)?").fullmatch
_is_method = re.compile(r"[A-Z]{3,16}").fullmatch
_header_breaks = re.compile(r"[\r\n\0]").search


class ParsedUrl(NamedTuple):
    """An origin and the path with the query, as a request line carries it."""

    origin: Origin
    target: str


@lru_cache(maxsize=1024)
def parse_url(url: str) -> ParsedUrl:
    """The parts of a URL. Raises `ValueError`."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if not host.isascii():
        host = host.encode("idna").decode()  # a UnicodeError is a ValueError
    if parts.scheme not in DEFAULT_PORTS or not _is_host(host) or "@" in parts.netloc:
        raise ValueError("not an http or https URL")
    target = parts.path or "/"
    target = f"{target}?{parts.query}" if parts.query else target
    return ParsedUrl(Origin(parts.scheme, host, parts.port or DEFAULT_PORTS[parts.scheme]), quote(target, safe=_SAFE))


class SharedHeaders(dict[str, str]):
    """The headers of all requests with one key. They do not change, so the heads that were written with them are kept."""

    def __init__(self, headers: Mapping[str, str]) -> None:
        super().__init__(headers)
        self.heads: dict[tuple[str, str, Origin], str] = {}


def request_head(request: HttpRequest, target: str, origin: Origin, more: Mapping[str, str] | None = None) -> bytes:
    """The head of a request. Raises `TransportError` if it contains what HTTP does not allow."""
    method, headers, body = request.method, request.headers, request.body
    try:
        if type(headers) is SharedHeaders and not more:
            start = headers.heads.get((method, target, origin)) or _kept_start(method, target, origin, headers)
        else:
            start = _start(method, target, origin, headers, more)
        if request.stream is not None:
            length = request.stream_length
            framing = "transfer-encoding: chunked\r\n" if length is None else f"content-length: {length}\r\n"
        else:
            size = len(body[0]) if len(body) == 1 else sum(map(len, body))
            framing = f"content-length: {size}\r\n" if size or method not in _BODILESS_METHODS else ""
        return f"{start}{framing}\r\n".encode(CODEC, ERRORS)
    except ValueError:  # also of a text that no codec can write
        raise _invalid(request) from None


def _kept_start(method: str, target: str, origin: Origin, headers: SharedHeaders) -> str:
    if len(headers.heads) >= _MAX_KEPT:
        headers.heads.clear()
    start = headers.heads[method, target, origin] = _start(method, target, origin, headers)
    return start


def _start(
    method: str, target: str, origin: Origin, headers: Mapping[str, str], more: Mapping[str, str] | None = None
) -> str:
    """A head up to its length. The caller's own values of our headers are used. Raises `ValueError`."""
    if not _is_method(method):
        raise ValueError("not a method")
    fields = {"host": origin.authority, **_DEFAULTS}
    for name, value in headers.items():
        known = name.lower()
        if known not in _COMPUTED:
            fields[known if known in fields else name] = value
    if more:
        fields.update(more)
    return f"{method} {target} HTTP/1.1\r\n{write_fields(fields)}"


def _invalid(request: HttpRequest) -> TransportError:
    for name, value in request.headers.items():
        if _header_breaks(name + value):
            return transport_error("invalid_header", request.host, request.timeouts, repr(name[:80]))
    return transport_error("invalid_url", request.host, request.timeouts)
