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
from urllib.parse import parse_qsl, unquote

import httptools
from msgspec import Struct

from antiphon.errors import TransportError
from antiphon.http.body import Hold, PausedBody, add_piece
from antiphon.http.decompress import BodyTooLarge, Decompressor, MalformedBody
from antiphon.http.messages import REPEATED_HOST, ClientRequest, Response, read_fields
from antiphon.http.server.application import Handler, Refusal, Service

logger = logging.getLogger("antiphon.http")

MAX_HEAD_BYTES = 64 * 1024
MAX_FIELD_BYTES = 32 * 1024
MAX_TARGET_BYTES = 16 * 1024
MAX_FIELDS = 128
MAX_PIPELINED = 32
"""More requests than this in one read are not answered; the connection is closed after the last one that is."""

_scheme_and_host = re.compile(r"[a-z][a-z0-9+.-]*://[^/?#]*", re.IGNORECASE).match
_is_request_id = re.compile(r"[!-~]{1,128}").fullmatch
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
"""Some programs on Windows write it before UTF-8; a JSON parser may ignore it (RFC 8259, section 8.1)."""
_VERSIONS = frozenset({"1.0", "1.1"})
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
    def is_refused(self) -> bool:
        """Whether it was not admitted, or only up to some byte of its body."""
        return self.refusal is not None

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

    def __init__(self, service: Service, peer: str) -> None:
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
        self._service = service
        self._peer = peer
        self._target = b""
        self._fields: list[tuple[bytes, bytes]] = []
        self._unfinished = 0  # bytes read since the last part of a head or body was complete
        self._read_size = 0  # bytes of this read
        self._begun = 0  # heads that started in it
        self._arrived: list[bytes] = []  # pieces of a body that this read brought
        self._has_body_data = False  # whether it brought any
        self.on_body = self._arrived.append
        self._skips_head = False
        self._upgrade: IncomingRequest | None = None
        self._parser: httptools.HttpRequestParser | None = httptools.HttpRequestParser(self)

    def feed(self, data: bytes) -> None:
        """Read more bytes; `requests` and `incoming` say what they were."""
        if self.is_finished:
            return
        assert self._parser is not None
        was_between = not self.is_in_head and self.incoming is None
        self._read_size, self._begun, self._has_body_data = len(data), 0, False
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserUpgrade, httptools.HttpParserError) as error:
            self._take_arrived()
            self._stop_or_upgrade(data, error)
        if self._arrived:
            self._take_arrived()
        if (self.is_in_head or self.incoming is not None) and not self.is_finished:
            self._check_progress(was_between=was_between)
        else:
            self._unfinished = 0

    def refuse(self, refusal: Refusal) -> None:
        """Refuse the incoming request; the rest of its body is not read."""
        if self.incoming is not None:
            self._drop_body(self.incoming, refusal)
            self._finish(self.incoming)

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
        if self.is_finished or self._skips_head:
            return
        self.is_in_head = True
        self._begun += 1
        self._target = b""
        self._fields = []

    def on_url(self, url: bytes) -> None:
        self._target = self._target + url if self._target else url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._fields.append((name, value))  # or a trailer, which nothing reads

    def on_headers_complete(self) -> None:
        if self.is_finished or self._skips_head:
            return
        try:
            self._read_head()
        except Exception:
            logger.exception("internal error while admitting a request")
            request = self._request_without_head()
            incoming = IncomingRequest(request)
            incoming.refusal = self._service.application.refuse(request, self._service.internal_error(request))
            self._service.application.refused(request, incoming.refusal)
            self._finish(incoming)

    def on_message_complete(self) -> None:
        if self._arrived:
            self._take_arrived()
        incoming = self.incoming
        if incoming is None or incoming is self._upgrade:
            return
        self.incoming = None
        if incoming.stream is not None and incoming.refusal is None:
            incoming.is_complete = True
            incoming.stream.on_complete()
            self.is_finished = not incoming.keeps_connection
            return
        if incoming.decompressor is not None and incoming.refusal is None:
            try:
                incoming.decompressor.close()
            except MalformedBody as error:
                self._drop_body(incoming, Refusal(400, f"cannot decompress the request body: {error}"))
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
        parser, service = self._parser, self._service
        assert parser is not None
        headers = read_fields(self._fields)
        version, coding = parser.get_http_version(), headers.get("transfer-encoding")
        host = headers.get("host")
        # A head that is all in this read, and that is small, needs no measuring.
        is_small = self._begun and self._read_size <= MAX_TARGET_BYTES and len(self._fields) <= MAX_FIELDS
        if version != "1.1" or coding is not None or host is None or REPEATED_HOST in host or not is_small:
            problem = ("" if is_small else self._size_problem()) or _head_problem(version, headers, coding)
            if problem:
                logger.info("refused the head of a request from %s: %s", self._peer, problem)
                self._refuse(problem, 431 if "too large" in problem else 400)
                return
        length = None if coding is not None else int(headers.get("content-length", 0))
        target = self._target.decode("ascii")
        is_plain = target.startswith("/") and "?" not in target and "%" not in target and "#" not in target
        path, raw_query = (target, "") if is_plain else _split_target(target)
        request_id = headers.get("x-request-id")
        if request_id is None or not _is_request_id(request_id):
            request_id = next(service.ids)
        request = ClientRequest(
            method=parser.get_method().decode(),
            path=path,
            query=_parse_query(raw_query) if raw_query else {},
            raw_query=raw_query,
            headers=headers,
            peer=self._peer,
            listener=service.name,
            request_id=request_id,
        )
        incoming = self.incoming = IncomingRequest(request, length)
        incoming.keeps_connection = parser.should_keep_alive()
        incoming.is_http_10 = version == "1.0"
        admitted = service.application.admit(request)
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
        request, service, headers = incoming.request, self._service, incoming.request.headers
        incoming.handler = handler
        incoming.hold = request.hold = Hold(service.governor, handler.owner)
        if "expect" in headers and not incoming.is_http_10:
            incoming.expects_continue = headers["expect"].lower() == "100-continue"
        if incoming.length == 0:
            return
        if handler.takes == "stream":
            incoming.stream = request.stream = PausedBody()
            incoming.stream.length = incoming.length
            return
        incoming.max_body = limit = min(service.limits.max_body_bytes, handler.max_body)
        content_type = headers.get("content-type", "")
        if content_type != "application/json" and not is_json_type(content_type):
            message = f"unsupported content type {content_type[:80]!r}; send content-type: application/json"
            self._drop_body(incoming, Refusal(415, message))
        elif incoming.length is not None and incoming.length > limit:
            self._drop_body(incoming, service.body_too_large(request.path, limit))
        elif (encoding := headers.get("content-encoding")) is not None:
            try:
                incoming.decompressor = Decompressor(encoding.lower(), limit)
            except MalformedBody as error:
                message = f"{error}; send gzip, deflate, zstd or no content encoding"
                self._drop_body(incoming, Refusal(415, message))

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
        self._has_body_data = True
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
                self._drop_body(incoming, self._service.body_too_large(incoming.request.path, incoming.max_body))
                return
            except MalformedBody as error:
                self._drop_body(incoming, Refusal(400, f"cannot decompress the request body: {error}"))
                return
        hold = incoming.hold
        assert hold is not None, "it was admitted"
        if hold.size + len(data) > incoming.max_body:
            self._drop_body(incoming, self._service.body_too_large(incoming.request.path, incoming.max_body))
        elif excess := hold.grow(len(data)):
            self._drop_body(incoming, Refusal(503, excess))
        else:
            incoming.pieces = add_piece(incoming.pieces, data) if incoming.pieces else (data,)

    def _check_progress(self, *, was_between: bool) -> None:
        """After a read that left something open: stop if it is refused, or if a head, chunk header or trailer has no end."""
        incoming = self.incoming
        if incoming is not None and incoming.refusal is not None:
            self._finish(incoming)
            return
        if incoming is not None and self._has_body_data:
            self._unfinished = 0
            return
        if not self._begun:
            self._unfinished += self._read_size
        else:  # other messages may be part of this read
            self._unfinished = self._read_size if was_between and self._begun == 1 else 0
        if self._unfinished > MAX_HEAD_BYTES:
            self._refuse("request headers too large", 431)

    # Ends and upgrades

    def _stop_or_upgrade(self, data: bytes, stopped: Exception) -> None:
        """httptools stopped in these bytes."""
        if isinstance(stopped, httptools.HttpParserUpgrade):
            rest = data[stopped.args[0] :]
            if self.is_finished:
                self.unread = rest
            else:
                self._continue_without_upgrade(rest)
        elif not self.is_finished:
            # Its reasons are constants; what was sent is not repeated, because it may contain a key.
            logger.info("malformed HTTP request from %s: %s", self._peer, stopped)
            self._refuse(f"malformed HTTP request: {stopped}")

    def _check_upgrade(self, incoming: IncomingRequest) -> None:
        """Refuse a WebSocket or a tunnel; ignore other upgrades (some clients offer h2c with every first request)."""
        protocols = incoming.request.headers.get("upgrade", "").lower()
        if incoming.request.method == "CONNECT":
            self._drop_body(incoming, Refusal(405, "method CONNECT is not supported"))
            self._finish(incoming)
        elif "websocket" not in protocols:
            self._upgrade = incoming
        else:
            if incoming.handler is not None and incoming.handler.takes == "socket":
                incoming.is_websocket = incoming.is_complete = True
            elif incoming.refusal is None:
                message = "WebSocket is not supported here; send a plain HTTP request"
                self._drop_body(incoming, Refusal(426, message, headers={"upgrade": "HTTP/1.1"}))
            self._finish(incoming)

    def _continue_without_upgrade(self, rest: bytes) -> None:
        """httptools reads no body after the head of an upgrade; a new parser with the same framing does."""
        incoming, self._upgrade = self._upgrade, None
        assert incoming is not None
        framing = b"transfer-encoding: chunked" if incoming.length is None else b"content-length: %d" % incoming.length
        self._parser = httptools.HttpRequestParser(self)
        self._skips_head = True
        self._parser.feed_data(b"POST / HTTP/1.1\r\n%b\r\n\r\n" % framing)
        self._skips_head = False
        if rest and not self.is_finished:
            try:
                self._parser.feed_data(rest)
            except (httptools.HttpParserUpgrade, httptools.HttpParserError) as error:
                self._take_arrived()
                self._stop_or_upgrade(rest, error)

    def _refuse(self, problem: str, status: int = 400) -> None:
        """Answer with an error and read nothing more."""
        incoming = self.incoming
        if incoming is not None and incoming.stream is not None:  # it is being answered: its body ends here
            incoming.stream.on_failure(_cut_body())
            self.incoming, self.is_finished = None, True
            return
        self._drop_body(incoming := incoming or IncomingRequest(self._request_without_head()), Refusal(status, problem))
        self._finish(incoming)

    def _request_without_head(self) -> ClientRequest:
        return ClientRequest(
            method="", path="", peer=self._peer, listener=self._service.name, request_id=next(self._service.ids)
        )

    def _drop_body(self, incoming: IncomingRequest, refusal: Refusal) -> None:
        application = self._service.application
        incoming.refusal = response = application.refuse(incoming.request, refusal)
        if incoming.handler is not None:
            incoming.handler.end(response.status, response.error)
            incoming.handler = None
        else:
            application.refused(incoming.request, response)
        incoming.decompressor = None
        incoming.release()

    def _finish(self, incoming: IncomingRequest) -> None:
        """The last request of the connection, which is not read to its end."""
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
    if version not in _VERSIONS:
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
