"""`RequestParser`: bytes of a client connection in, requests out, without I/O.

httptools (llhttp) reads the syntax. Checked here is what it does not check: sizes, exactly one Host, the version, the transfer
coding, and compressed bodies. A request is admitted as soon as its head is complete, so a refused body is never kept.

httptools cannot stop inside `feed_data`, so one read may give several requests; they queue up to a limit. An exception in a
callback would be stored with its traceback by the parser, so callbacks set state and never raise. After a malformed request, and
after a refused one that is not complete yet, nothing more is read: where the next request starts cannot be trusted.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, unquote

import httptools
from msgspec import Struct

from antiphon.errors import TransportError
from antiphon.http.body import Hold, PausedBody, add_piece
from antiphon.http.decompress import BodyTooLarge, Decompressor, Malformed
from antiphon.http.messages import MAX_HEAD_BYTES, REPEATED_HOST, VERSIONS, ClientRequest, Response, read_fields
from antiphon.http.server.application import Handler, Refusal

if TYPE_CHECKING:
    from antiphon.http.server.listener import Listener

logger = logging.getLogger("antiphon.http")

MAX_FIELD_BYTES = 32 * 1024
MAX_TARGET_BYTES = 16 * 1024
MAX_FIELDS = 128
MAX_PIPELINED = 32
"""More requests than this in one read are not answered; the connection is closed after the last one that is."""

_scheme_and_host = re.compile(r"[a-z][a-z0-9+.-]*://[^/?#]*", re.IGNORECASE).match
_is_request_id = re.compile(r"[!-~]{1,128}").fullmatch
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
"""Some programs on Windows write it before UTF-8; a JSON parser may ignore it (RFC 8259, section 8.1)."""
_JSON_TYPES = frozenset({"application/json", "application/octet-stream", ""})
"""Content types that are read as JSON. The official clients send the first; any page may send text/plain without a preflight."""


class IncomingRequest(Struct, eq=False):
    """A request as far as it has arrived. Without a `handler` it is refused, by `refusal`; its body is then dropped."""

    request: ClientRequest
    length: int | None = 0
    """The declared length of the body; None if it is chunked."""
    pieces: Sequence[bytes | bytearray] = ()
    """The body as far as it has arrived."""
    handler: Handler | None = None
    refusal: Response | None = None
    """Why it was not admitted, or only up to some byte of its body."""
    hold: Hold | None = None
    max_body: int = 0
    decompressor: Decompressor | None = None
    stream: PausedBody | None = None
    """Where the body goes, if it is passed on while it arrives; then the request is answered from its head on."""
    is_complete: bool = False
    keeps_connection: bool = False
    is_http_10: bool = False
    is_websocket: bool = False
    """Whether it opens a WebSocket; what follows its head are frames."""
    expects_continue: bool = False

    @property
    def has_more(self) -> bool:
        """Whether it is answered while its body still arrives."""
        return self.stream is not None and not self.is_complete

    def release(self) -> None:
        """Drop the body."""
        self.request.body, self.pieces = b"", ()
        if self.hold is not None:
            self.hold.release()


class RequestParser:
    """The requests of one connection. `peer` is the address of the client."""

    def __init__(self, listener: Listener, peer: str) -> None:
        self.requests: list[IncomingRequest] = []
        """Requests to be answered, in order: complete ones, and at the end perhaps a refused one."""
        self.incoming: IncomingRequest | None = None
        """An admitted request whose body is not complete."""
        self.is_finished = False
        """Whether nothing more is read from this connection."""
        self.is_in_head = False
        """Whether the head of a request has started and is not complete."""
        self.unread = b""
        """What came after the head of a request that opens a WebSocket."""
        self._listener = listener
        self._peer = peer
        self._target = b""
        self._fields: list[tuple[bytes, bytes]] = []
        self._unfinished = 0  # bytes read since a request was complete, or more of a body came
        self._read_size = 0  # bytes of this read
        self._is_new_head = False  # whether the last head started in it
        self._arrived: list[bytes] = []  # pieces of a body that this read brought
        self.on_body = self._arrived.append
        self._upgrade: IncomingRequest | None = None  # offers another protocol, which is ignored
        self._parser: httptools.HttpRequestParser | None = httptools.HttpRequestParser(self)

    def feed(self, data: bytes) -> None:
        """Read more bytes; `requests` and `incoming` say what they were."""
        if self.is_finished:
            return
        self._read_size, self._is_new_head = len(data), False
        self._unfinished += len(data)
        while data:
            assert self._parser is not None
            try:
                self._parser.feed_data(data)
                break
            except httptools.HttpParserUpgrade as upgrade:
                data = data[upgrade.args[0] :]
                if self._upgrade is None:
                    self.unread = data
                    break
                self._continue_without_upgrade()
            except httptools.HttpParserError as error:
                self._take_arrived()
                self._stop_at(error)
                break
        if self._arrived:
            self._take_arrived()
        incoming = self.incoming
        if incoming is None and not self.is_in_head:
            self._unfinished = 0
        elif incoming is not None and incoming.refusal is not None and not self.is_finished:
            self._finish(incoming)
        elif self._unfinished > MAX_HEAD_BYTES and not self.is_finished:  # a head, chunk header or trailer without end
            self.refuse(Refusal(431, "request headers too large"))

    def _stop_at(self, error: Exception) -> None:
        if not self.is_finished:
            # Its reasons are constants; what was sent is not repeated, because it may contain a key.
            logger.info("malformed HTTP request from %s: %s", self._peer, error)
            self.refuse(Refusal(400, f"malformed HTTP request: {error}"))

    def refuse(self, refusal: Refusal) -> None:
        """Refuse what is being read, and read nothing more."""
        incoming = self.incoming
        if incoming is not None and incoming.stream is not None:  # it is being answered: its body ends here
            incoming.stream.on_failure(_cut_body())
            self.incoming, self.is_finished = None, True
        else:
            self._finish(incoming or self._without_head(), refusal)

    def abandon(self) -> None:
        """The incoming request was answered before its body was complete: read nothing more."""
        incoming, self.incoming = self.incoming, None
        self.is_finished = True
        if incoming is not None and incoming.stream is not None:
            incoming.stream.abort()

    def close(self) -> None:
        """The connection is closed, or takes no further request: drop what was not dispatched."""
        self.is_finished = True
        if self.incoming is not None and self.incoming.stream is not None:
            self.incoming.stream.on_failure(_cut_body())
        for incoming in (*self.requests, self.incoming):
            if incoming is not None:
                is_answered = incoming.stream is not None and incoming not in self.requests
                if incoming.handler is not None and not is_answered:
                    incoming.handler.end()
                incoming.release()
        self.requests, self.incoming = [], None
        self._parser = None  # it refers to this object

    # Callbacks of httptools, besides `on_body`

    def on_message_begin(self) -> None:
        if self.is_finished or self._upgrade is not None:
            return
        self.is_in_head = self._is_new_head = True
        self._target = b""
        self._fields = []

    def on_url(self, url: bytes) -> None:
        self._target = self._target + url if self._target else url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._fields.append((name, value))  # or a trailer, which nothing reads

    def on_headers_complete(self) -> None:
        if self.is_finished or self._upgrade is not None:
            return
        try:
            self._read_head()
        except Exception:
            logger.exception("internal error while admitting a request")
            incoming = self._without_head()
            self._finish(incoming, self._listener.internal_error(incoming.request))

    def on_message_complete(self) -> None:
        if self._arrived:
            self._take_arrived()
        incoming = self.incoming
        if incoming is None or self._upgrade is not None:
            return
        self.incoming, self._unfinished = None, 0
        if incoming.stream is not None and incoming.refusal is None:
            incoming.is_complete = True
            incoming.stream.on_complete()
            self.is_finished = not incoming.keeps_connection
            return
        if incoming.decompressor is not None and incoming.refusal is None:
            try:
                incoming.decompressor.close()
            except Malformed as error:
                self._refuse(incoming, Refusal(400, f"cannot decompress the request body: {error}"))
        pieces, incoming.pieces = incoming.pieces, ()
        incoming.request.body = b"".join(pieces).removeprefix(_BYTE_ORDER_MARK)
        incoming.is_complete = True
        self.requests.append(incoming)
        if len(self.requests) == MAX_PIPELINED:
            incoming.keeps_connection = False
        self.is_finished = not incoming.keeps_connection

    # The head

    def _read_head(self) -> None:
        self.is_in_head = False
        parser, listener = self._parser, self._listener
        assert parser is not None
        headers = read_fields(self._fields)
        version, coding = parser.get_http_version(), headers.get("transfer-encoding")
        host = headers.get("host")
        # A head that is all in this read, and that is small, needs no measuring.
        is_small = self._is_new_head and self._read_size <= MAX_TARGET_BYTES and len(self._fields) <= MAX_FIELDS
        if version != "1.1" or coding is not None or host is None or REPEATED_HOST in host or not is_small:
            problem = ("" if is_small else self._size_problem()) or _head_problem(version, headers, coding)
            if problem:
                logger.info("refused the head of a request from %s: %s", self._peer, problem)
                self.refuse(Refusal(431 if "too large" in problem else 400, problem))
                return
        length = None if coding is not None else int(headers.get("content-length", 0))
        target = self._target.decode("ascii")
        is_plain = target.startswith("/") and "?" not in target and "%" not in target and "#" not in target
        path, raw_query = (target, "") if is_plain else _split_target(target)
        request_id = headers.get("x-request-id")
        if request_id is None or not _is_request_id(request_id):
            request_id = next(listener.ids)
        request = ClientRequest(
            method=parser.get_method().decode(),
            path=path,
            query=_parse_query(raw_query) if raw_query else {},
            raw_query=raw_query,
            headers=headers,
            peer=self._peer,
            listener=listener.name,
            request_id=request_id,
        )
        incoming = self.incoming = IncomingRequest(request, length)
        incoming.keeps_connection = parser.should_keep_alive()
        incoming.is_http_10 = version == "1.0"
        if request.method == "CONNECT":
            self._finish(incoming, Refusal(405, "method CONNECT is not supported"))
            return
        admitted = listener.application.admit(request)
        if isinstance(admitted, Response):
            incoming.refusal = admitted
        else:
            self._begin_body(incoming, admitted)
        if parser.should_upgrade():
            self._check_upgrade(incoming)
        if incoming.stream is not None and incoming.refusal is None:
            self.requests.append(incoming)

    def _begin_body(self, incoming: IncomingRequest, handler: Handler) -> None:
        """The request was admitted: decide how its body is read, if it may be."""
        request, listener, headers = incoming.request, self._listener, incoming.request.headers
        incoming.handler = handler
        incoming.hold = request.hold = Hold(listener.governor, handler.owner)
        if "expect" in headers and not incoming.is_http_10:
            incoming.expects_continue = headers["expect"].lower() == "100-continue"
        if incoming.length == 0:
            return
        if handler.takes == "stream":
            incoming.stream = request.stream = PausedBody()
            incoming.stream.length = incoming.length
            return
        incoming.max_body = limit = min(listener.limits.max_body_bytes, handler.max_body)
        content_type = headers.get("content-type", "")
        if content_type != "application/json" and not is_json_type(content_type):
            message = f"unsupported content type {content_type[:80]!r}; send content-type: application/json"
            self._refuse(incoming, Refusal(415, message))
        elif incoming.length is not None and incoming.length > limit:
            self._refuse(incoming, listener.body_too_large(request.path, limit))
        elif (encoding := headers.get("content-encoding")) is not None:
            try:
                incoming.decompressor = Decompressor(encoding.lower(), limit)
            except Malformed as error:
                message = f"{error}; send gzip, deflate, zstd or no content encoding"
                self._refuse(incoming, Refusal(415, message))

    def _size_problem(self) -> str:
        if len(self._target) > MAX_TARGET_BYTES:
            return "request target too large"
        sizes = [len(name) + len(value) for name, value in self._fields]
        if len(sizes) > MAX_FIELDS or max(sizes, default=0) > MAX_FIELD_BYTES or sum(sizes) > MAX_HEAD_BYTES:
            return "request headers too large"
        return ""

    # The body

    def _take_arrived(self) -> None:
        """Add what arrived to the body, in one piece however small its chunks are: each object costs more than it contains."""
        arrived, incoming = self._arrived, self.incoming
        if not arrived:
            return
        self._unfinished = 0
        data = arrived[0] if len(arrived) == 1 else b"".join(arrived)
        arrived.clear()
        if incoming is None or incoming.refusal is not None:
            return
        if incoming.stream is not None:
            incoming.stream.on_body(data)
            return
        if incoming.decompressor is not None:
            try:
                data = incoming.decompressor.feed(data)
            except BodyTooLarge:
                self._refuse(incoming, self._listener.body_too_large(incoming.request.path, incoming.max_body))
                return
            except Malformed as error:
                self._refuse(incoming, Refusal(400, f"cannot decompress the request body: {error}"))
                return
        hold = incoming.hold
        assert hold is not None, "it was admitted"
        if hold.size + len(data) > incoming.max_body:
            self._refuse(incoming, self._listener.body_too_large(incoming.request.path, incoming.max_body))
        elif excess := hold.grow(len(data)):
            self._refuse(incoming, Refusal(503, excess))
        else:
            incoming.pieces = add_piece(incoming.pieces, data) if incoming.pieces else (data,)

    # Ends and upgrades

    def _check_upgrade(self, incoming: IncomingRequest) -> None:
        """Refuse a WebSocket that nothing takes; ignore other upgrades (some clients offer h2c with every first request)."""
        if "websocket" not in incoming.request.headers.get("upgrade", "").lower():
            self._upgrade = incoming
        elif incoming.handler is not None and incoming.handler.takes == "socket":
            incoming.is_websocket = incoming.is_complete = True
            self._finish(incoming)
        else:
            message = "WebSocket is not supported here; send a plain HTTP request"
            self._finish(incoming, Refusal(426, message, headers={"upgrade": "HTTP/1.1"}))

    def _continue_without_upgrade(self) -> None:
        """httptools reads no body after the head of an upgrade; a new parser, after a head with the same framing, does."""
        incoming = self._upgrade
        assert incoming is not None
        self._parser = httptools.HttpRequestParser(self)
        if incoming.length != 0:
            framing = (
                b"transfer-encoding: chunked" if incoming.length is None else b"content-length: %d" % incoming.length
            )
            self._parser.feed_data(b"POST / HTTP/1.1\r\n%b\r\n\r\n" % framing)
        self._upgrade = None
        if incoming.length == 0:
            self.on_message_complete()

    def _without_head(self) -> IncomingRequest:
        """A request whose head cannot be read."""
        listener = self._listener
        request = ClientRequest(
            method="", path="", peer=self._peer, listener=listener.name, request_id=next(listener.ids)
        )
        return IncomingRequest(request)

    def _refuse(self, incoming: IncomingRequest, refusal: Refusal) -> None:
        """Answer a request with an error, and drop its body."""
        application = self._listener.application
        incoming.refusal = response = application.refuse(incoming.request, refusal)
        if incoming.handler is not None:
            incoming.handler.end(response.status, response.error)
            incoming.handler = None
        else:
            application.refused(incoming.request, response)
        incoming.decompressor = None
        incoming.release()

    def _finish(self, incoming: IncomingRequest, refusal: Refusal | None = None) -> None:
        """The last request of the connection, which is not read to its end. With a `refusal`, it is refused unless it was."""
        if refusal is not None and incoming.refusal is None:
            self._refuse(incoming, refusal)
        self.incoming = None
        incoming.keeps_connection = False
        self.requests.append(incoming)
        self.is_finished = True


def is_json_type(content_type: str) -> bool:
    """Whether a body of that content type is read as JSON."""
    kind = content_type.partition(";")[0].strip().lower()
    return kind in _JSON_TYPES or kind.endswith("+json")


def _cut_body() -> TransportError:
    return TransportError("the client did not send the whole body", "connection_lost")


def _head_problem(version: str, headers: Mapping[str, str], coding: str | None) -> str:
    """What httptools accepts in a head and we do not."""
    if version not in VERSIONS:
        return "unsupported HTTP version"
    host = headers.get("host")
    if (host is None and version == "1.1") or (host is not None and REPEATED_HOST in host):
        return "send exactly one Host header"
    if coding is not None and (coding.lower() != "chunked" or version == "1.0"):
        return "unsupported transfer coding; send chunked"
    return ""


def _split_target(target: str) -> tuple[str, str]:
    """The decoded path and the query, as it came, of a request target, which is a path or a whole URL."""
    if not target.startswith("/") and "://" in target:
        found = _scheme_and_host(target)
        target = "/" if found is None else "/" + target[found.end() :].removeprefix("/")
    path, _, query = target.partition("#")[0].partition("?")
    if "%" in path:
        with suppress(UnicodeDecodeError):  # then it is left as it is
            path = unquote(path, errors="strict")
    return path, query


def _parse_query(text: str) -> dict[str, str]:
    """The fields of a query. Of a repeated one the first counts."""
    query: dict[str, str] = {}
    for name, value in parse_qsl(text, keep_blank_values=True):
        query.setdefault(name, value)
    return query
