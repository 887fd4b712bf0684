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
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Protocol
from urllib.parse import parse_qsl, unquote

import httptools

from antiphon.http.body_stream import BodyStream
from antiphon.http.decompress import BodyTooLarge, Decompressor, MalformedBody
from antiphon.http.governor import Hold
from antiphon.http.header_fields import REPEATED_HOST, read_fields
from antiphon.http.messages import ClientRequest, Response
from antiphon.http.server.application import Limits, Refusal, internal_error

logger = logging.getLogger("antiphon.http")

MAX_HEAD_BYTES = 64 * 1024
MAX_FIELD_BYTES = 32 * 1024
MAX_TARGET_BYTES = 16 * 1024
MAX_FIELDS = 128
MAX_PIPELINED = 32
"""More requests than this in one read are not answered; the connection is closed after the last one that is."""

_SCHEME_AND_HOST = re.compile(r"[a-z][a-z0-9+.-]*://[^/?#]*", re.IGNORECASE).match
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
"""Some programs on Windows write it before UTF-8; a JSON parser may ignore it (RFC 8259, section 8.1)."""
_VERSIONS = frozenset({"1.0", "1.1"})


class RequestAdmission(Protocol):
    """What the parser needs of the listener."""

    @property
    def limits(self) -> Limits: ...
    def build_request(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], peer: str
    ) -> ClientRequest: ...
    def admit(self, request: ClientRequest, length: int | None) -> Any: ...
    def hold(self, admission: Any) -> Hold: ...
    def max_body(self, admission: Any) -> int: ...
    def body_too_large(self, path: str, limit: int) -> Refusal: ...
    def refuse(self, request: ClientRequest, refusal: Refusal) -> Response: ...


class IncomingRequest:
    """A request as far as it has arrived. `admission` is a `Response` if it is refused; its body is then dropped."""

    hold: Hold | None = None
    max_body = 0
    decompressor: Decompressor | None = None
    is_complete = False
    keeps_connection = False
    is_http_10 = False
    is_websocket = False
    """Whether it opens a WebSocket; what follows its head are frames."""
    expects_continue = False

    def __init__(self, request: ClientRequest, admission: Any, length: int | None = 0) -> None:
        self.request = request
        self.admission = admission
        self.is_refused = isinstance(admission, Response)
        self.length = length
        """The declared length of the body; None if it is chunked."""
        self.body: bytes | bytearray = b""
        self.stream: BodyStream | None = None
        """Where the body goes, if it is passed on while it arrives; then the request is answered from its head on."""

    def end(self, response: Response | None) -> None:
        """It ends with a response that its handler did not give; None if the client left."""
        end = getattr(self.admission, "end", None)
        if end is not None:
            end(self.request, response)

    @property
    def has_more(self) -> bool:
        """Whether it is answered while its body still arrives."""
        return self.stream is not None and not self.is_complete


class RequestParser:
    """The requests of one connection. `peer` is the address of the client."""

    def __init__(self, listener: RequestAdmission, peer: str) -> None:
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
        self._parser: httptools.HttpRequestParser | None = httptools.HttpRequestParser(self)
        self._target = b""
        self._fields: list[tuple[bytes, bytes]] = []
        self._unfinished = 0  # bytes read since the last part of a head or body was complete
        self._read_size = 0  # bytes of this read
        self._begun = 0  # heads that started in it
        self._arrived: list[bytes] = []  # pieces of a body that this read brought
        self._has_body_data = False  # whether it brought any
        self._skips_head = False
        self._upgrade: IncomingRequest | None = None

    def feed(self, data: bytes) -> None:
        """Read more bytes; `requests` and `incoming` say what they were."""
        if self.is_finished:
            return
        was_between = not self.is_in_head and self.incoming is None
        self._read_size, self._begun, self._has_body_data = len(data), 0, False
        self._feed(data)
        if not self.is_finished:
            self._check_progress(was_between=was_between)

    def refuse(self, refusal: Refusal) -> None:
        """Refuse the incoming request; the rest of its body is not read."""
        if self.incoming is not None:
            self._drop_body(self.incoming, refusal)
            self._finish(self.incoming)

    def release(self, incoming: IncomingRequest) -> None:
        """Drop the body of a request."""
        incoming.request.body = incoming.body = b""
        if incoming.hold is not None:
            incoming.hold.release()

    def abandon(self) -> None:
        """The incoming request was answered before its body was complete: read nothing more."""
        incoming, self.incoming = self.incoming, None
        self.is_finished = True
        if incoming is not None and incoming.stream is not None:
            incoming.stream.stop()

    def close(self) -> None:
        """The connection is closed, or takes no further request: drop what was not dispatched."""
        self.is_finished = True
        if self.incoming is not None and self.incoming.stream is not None:
            self.incoming.stream.end(is_cut=True)
        for incoming in (*self.requests, self.incoming):
            if incoming is not None:
                if incoming.stream is None or incoming in self.requests:  # else it is being answered
                    incoming.end(None)
                self.release(incoming)
        self.requests, self.incoming = [], None
        self._parser = None  # it refers to this object

    # Callbacks of httptools

    def on_message_begin(self) -> None:
        if self.is_finished or self._skips_head:
            return
        self.is_in_head = True
        self._begun += 1
        self._target = b""
        self._fields = []

    def on_url(self, url: bytes) -> None:
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._fields.append((name, value))  # or a trailer, which nothing reads

    def on_headers_complete(self) -> None:
        if self.is_finished or self._skips_head:
            return
        try:
            self._read_head()
        except Exception:
            logger.exception("internal error while admitting a request")
            request = self._listener.build_request("", "", {}, {}, self._peer)
            self._finish(IncomingRequest(request, self._listener.refuse(request, internal_error(request))))

    def on_body(self, data: bytes) -> None:
        self._has_body_data = True
        self._arrived.append(data)

    def _take_arrived(self) -> None:
        """Add what arrived to the body, in one piece however small its chunks are: each object costs more than it contains."""
        pieces, self._arrived = self._arrived, []
        incoming = self.incoming
        if not pieces or incoming is None or incoming.is_refused:
            return
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        if incoming.stream is not None:
            incoming.stream.feed(data)
            return
        if incoming.decompressor is not None:
            try:
                data = incoming.decompressor.feed(data)
            except BodyTooLarge:
                self._drop_body(incoming, self._listener.body_too_large(incoming.request.path, incoming.max_body))
                return
            except MalformedBody as error:
                self._drop_body(incoming, Refusal(400, f"cannot decompress the request body: {error}"))
                return
        path, size, hold = incoming.request.path, len(incoming.body) + len(data), incoming.hold
        if size > incoming.max_body:
            self._drop_body(incoming, self._listener.body_too_large(path, incoming.max_body))
        elif hold is not None and (excess := hold.grow(len(data))):
            self._drop_body(incoming, Refusal(503, excess))
        elif not incoming.body:
            incoming.body = data
        else:
            if isinstance(incoming.body, bytes):
                incoming.body = bytearray(incoming.body)
            incoming.body += data

    def on_message_complete(self) -> None:
        self._take_arrived()
        incoming = self.incoming
        if incoming is None or incoming is self._upgrade:
            return
        self.incoming = None
        if incoming.stream is not None and not incoming.is_refused:
            incoming.is_complete = True
            incoming.stream.end()
            self.is_finished = not incoming.keeps_connection
            return
        if not incoming.is_refused and incoming.decompressor is not None:
            try:
                incoming.decompressor.close()
            except MalformedBody as error:
                self._drop_body(incoming, Refusal(400, f"cannot decompress the request body: {error}"))
        body, incoming.body = incoming.body, b""
        incoming.request.body = bytes(body).removeprefix(_BYTE_ORDER_MARK)
        incoming.is_complete = True
        self.requests.append(incoming)
        if len(self.requests) == MAX_PIPELINED:
            incoming.keeps_connection = False
        self.is_finished = not incoming.keeps_connection

    # Decisions

    def _feed(self, data: bytes) -> None:
        assert self._parser is not None
        try:
            self._parser.feed_data(data)
            self._take_arrived()
        except httptools.HttpParserUpgrade as upgrade:
            rest = data[upgrade.args[0] :]
        except httptools.HttpParserError as error:
            self._take_arrived()
            # Its reasons are constants; what was sent is not repeated, because it may contain a key.
            if not self.is_finished:
                logger.info("malformed HTTP request from %s: %s", self._peer, error)
                self._refuse(f"malformed HTTP request: {error}")
            return
        else:
            return
        if self.is_finished:
            self.unread = rest
        else:
            self._continue_without_upgrade(rest)

    def _check_progress(self, *, was_between: bool) -> None:
        """After a read: stop if the request is refused, or if a head, chunk header or trailer has no end."""
        incoming = self.incoming
        if incoming is not None and incoming.is_refused:
            self._finish(incoming)
        elif self.is_in_head or (incoming is not None and not self._has_body_data):
            if not self._begun:
                self._unfinished += self._read_size
            else:  # other messages may be part of this read
                self._unfinished = self._read_size if was_between and self._begun == 1 else 0
            if self._unfinished > MAX_HEAD_BYTES:
                self._refuse("request headers too large", 431)
        else:
            self._unfinished = 0

    def _read_head(self) -> None:
        self.is_in_head = False
        parser = self._parser
        assert parser is not None
        headers = read_fields(self._fields)
        version, coding = parser.get_http_version(), headers.get("transfer-encoding")
        problem = self._size_problem() or _head_problem(version, headers, coding)
        if problem:
            logger.info("refused the head of a request from %s: %s", self._peer, problem)
            self._refuse(problem, 431 if "too large" in problem else 400)
            return
        length = None if coding is not None else int(headers.get("content-length", 0))
        path, query = _split_target(self._target.decode("ascii"))
        request = self._listener.build_request(parser.get_method().decode(), path, query, headers, self._peer)
        incoming = self.incoming = IncomingRequest(request, self._listener.admit(request, length), length)
        if not incoming.is_refused:
            incoming.hold = request.hold = self._listener.hold(incoming.admission)
            incoming.max_body = self._listener.max_body(incoming.admission)
        incoming.keeps_connection = parser.should_keep_alive()
        incoming.is_http_10 = version == "1.0"
        if query:
            request.raw_query = self._target.decode("ascii").partition("#")[0].partition("?")[2]
        if not incoming.is_refused:
            if length != 0 and getattr(incoming.admission, "passes_body", False):
                incoming.stream = request.stream = BodyStream(length)
            elif (encoding := headers.get("content-encoding")) is not None:
                self._decompress(incoming, encoding.lower())
            if "expect" in headers and not incoming.is_http_10:
                incoming.expects_continue = headers["expect"].lower() == "100-continue"
        if parser.should_upgrade():
            self._check_upgrade(incoming)
        if incoming.stream is not None and not incoming.is_refused:
            self.requests.append(incoming)

    def _size_problem(self) -> str:
        fields = self._fields
        if self._begun and self._read_size <= MAX_TARGET_BYTES and len(fields) <= MAX_FIELDS:
            return ""  # all of it is in this read
        if len(self._target) > MAX_TARGET_BYTES:
            return "request target too large"
        sizes = [len(name) + len(value) for name, value in fields]
        if len(sizes) > MAX_FIELDS or max(sizes, default=0) > MAX_FIELD_BYTES or sum(sizes) > MAX_HEAD_BYTES:
            return "request headers too large"
        return ""

    def _decompress(self, incoming: IncomingRequest, encoding: str) -> None:
        try:
            incoming.decompressor = Decompressor(encoding, incoming.max_body)
        except MalformedBody as error:
            self._drop_body(incoming, Refusal(415, f"{error}; send gzip, deflate, zstd or no content encoding"))

    def _check_upgrade(self, incoming: IncomingRequest) -> None:
        """Refuse a WebSocket or a tunnel; ignore other upgrades (some clients offer h2c with every first request)."""
        protocols = incoming.request.headers.get("upgrade", "").lower()
        if incoming.request.method == "CONNECT":
            self._drop_body(incoming, Refusal(405, "method CONNECT is not supported"))
            self._finish(incoming)
        elif "websocket" in protocols and getattr(incoming.admission, "opens_socket", False):
            incoming.is_websocket = incoming.is_complete = True
            self._finish(incoming)
        elif "websocket" in protocols and incoming.is_refused:
            self._finish(incoming)
        elif "websocket" in protocols:
            message = "WebSocket is not supported here; send a plain HTTP request"
            self._drop_body(incoming, Refusal(426, message, headers={"upgrade": "HTTP/1.1"}))
            self._finish(incoming)
        else:
            self._upgrade = incoming

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
            self._feed(rest)

    def _refuse(self, problem: str, status: int = 400) -> None:
        """Answer with an error and read nothing more."""
        incoming = self.incoming
        if incoming is not None and incoming.stream is not None:  # it is being answered: its body ends here
            incoming.stream.end(is_cut=True)
            self.incoming, self.is_finished = None, True
            return
        if incoming is None:
            incoming = IncomingRequest(self._listener.build_request("", "", {}, {}, self._peer), None)
        self._drop_body(incoming, Refusal(status, problem))
        self._finish(incoming)

    def _drop_body(self, incoming: IncomingRequest, refusal: Refusal) -> None:
        response = self._listener.refuse(incoming.request, refusal)
        incoming.end(response)
        incoming.admission, incoming.is_refused = response, True
        incoming.decompressor = None
        self.release(incoming)

    def _finish(self, incoming: IncomingRequest) -> None:
        """The last request of the connection, which is not read to its end."""
        self.incoming = None
        incoming.keeps_connection = False
        self.requests.append(incoming)
        self.is_finished = True


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


def _split_target(target: str) -> tuple[str, dict[str, str]]:
    """The decoded path and query of a request target, which is a path or a whole URL."""
    if not target.startswith("/") and "://" in target:
        scheme_and_host = _SCHEME_AND_HOST(target)
        target = "/" if scheme_and_host is None else "/" + target[scheme_and_host.end() :].removeprefix("/")
    path, _, query_text = target.partition("#")[0].partition("?")
    if "%" in path:
        with suppress(UnicodeDecodeError):  # then it is left as it is
            path = unquote(path, errors="strict")
    return path, _parse_query(query_text) if query_text else {}


def _parse_query(text: str) -> dict[str, str]:
    """The fields of a query. Of a repeated one the first counts."""
    query: dict[str, str] = {}
    for name, value in parse_qsl(text, keep_blank_values=True):
        query.setdefault(name, value)
    return query
