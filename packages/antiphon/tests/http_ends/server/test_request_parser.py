"""`RequestParser`: what is read of a request, however its bytes are cut, and what is refused."""

from __future__ import annotations

import gzip
from itertools import takewhile
from typing import Any

import msgspec
import pytest
from backports import zstd
from hypothesis import given
from hypothesis import strategies as st

from antiphon.http.messages import ClientRequest, Response
from antiphon.http.server.application import Admitted, Application, Handler, Limits
from antiphon.http.server.listener import Listener
from antiphon.http.server.request_parser import MAX_PIPELINED, IncomingRequest, RequestParser
from support.damage import cut, damaged_bytes

BODY = b'{"model":"m","messages":[]}'
LENGTH = b"content-length: %d\r\n" % len(BODY)
HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nHost: here\r\nContent-Type: application/json\r\n"
ASK = HEAD + LENGTH + b"X-Name:  a value \r\nauthorization: Bearer k\r\n\r\n" + BODY
MAX_BODY = 1000
READ_BYTES = 256 * 1024
"""What the event loop reads at once, at most."""


class Anything(Application):
    """Admits every request; a path that ends in `defect` shows a mistake of ours, and one in `secret` is refused."""

    def __init__(self) -> None:
        self.refusals: list[Response] = []
        """Those of the server, of requests without a handler."""

    def admit(self, request: ClientRequest) -> Handler | Response:
        if request.path.endswith("defect"):
            raise RuntimeError("a mistake of ours")
        return Response(status=401) if request.path.endswith("secret") else Admitted(self._answer)

    def refused(self, request: ClientRequest, response: Response) -> None:
        self.refusals.append(response)

    async def _answer(self) -> Response:
        raise AssertionError("nothing is answered here")


def new_parser(max_buffered_bytes: int = 1_000_000) -> tuple[RequestParser, Listener]:
    limits = Limits(max_body_bytes=MAX_BODY, max_buffered_bytes=max_buffered_bytes)
    listener = Listener(Anything(), "main", limits)
    return RequestParser(listener, "127.0.0.1"), listener


def read(*pieces: bytes) -> list[IncomingRequest]:
    """The requests in these bytes, in order."""
    parser, listener = new_parser()
    for piece in pieces:
        for start in range(0, len(piece), READ_BYTES):
            parser.feed(piece[start : start + READ_BYTES])
    known = (*parser.requests, *filter(None, [parser.incoming]))
    assert listener.governor.used == sum(incoming.hold.size for incoming in known if incoming.hold is not None)
    return parser.requests


def fields_of(incoming: IncomingRequest) -> dict[str, Any]:
    fields = msgspec.structs.asdict(incoming.request)
    return {name: value for name, value in fields.items() if name not in ("request_id", "hold")}


CHUNKED = HEAD + b"transfer-encoding: chunked\r\n\r\n"
PACKED = gzip.compress(BODY)
PACKED_WITH_MARK = gzip.compress(b"\xef\xbb\xbf" + BODY)
ZSTD_PACKED = zstd.compress(BODY)
REQUESTS: dict[str, tuple[bytes, dict[str, Any]]] = {
    "length": (ASK, {"method": "POST", "path": "/v1/chat/completions", "body": BODY, "peer": "127.0.0.1"}),
    "get": (b"GET /v1/models HTTP/1.1\r\nhost: here\r\n\r\n", {"method": "GET", "headers": {"host": "here"}}),
    "length of a get": (b"GET / HTTP/1.1\r\nhost: here\r\n" + LENGTH + b"\r\n" + BODY, {"body": BODY}),
    "put": (ASK.replace(b"POST", b"PUT"), {"method": "PUT", "body": BODY}),
    "empty body": (HEAD + b"content-length: 0\r\n\r\n", {"body": b""}),
    "neither length nor chunks": (HEAD + b"\r\n", {"body": b""}),
    "zeros before the length": (ASK.replace(LENGTH, b"content-length: 0%d\r\n" % len(BODY)), {"body": BODY}),
    "chunks": (CHUNKED + b"1b\r\n" + BODY + b"\r\n0\r\n\r\n", {"body": BODY}),
    "several chunks": (
        CHUNKED + b"5;extension=1\r\n" + BODY[:5] + b"\r\n16\r\n" + BODY[5:] + b"\r\n0\r\n\r\n",
        {"body": BODY},
    ),
    "trailers": (
        CHUNKED + b"1b\r\n" + BODY + b"\r\n0\r\nauthorization: Bearer other\r\nx-b: 1\r\n\r\n",
        {"body": BODY, "headers": {"host": "here", "content-type": "application/json", "transfer-encoding": "chunked"}},
    ),
    "blanks around a value": (
        ASK,
        {
            "headers": {
                "host": "here",
                "content-type": "application/json",
                "content-length": str(len(BODY)),
                "x-name": "a value",
                "authorization": "Bearer k",
            }
        },
    ),
    "repeated header": (
        b"GET / HTTP/1.1\r\nhost: here\r\nUser-Agent: sdk\r\nuser-agent: library\r\ncookie: a=1\r\ncookie: b=2\r\n\r\n",
        {"headers": {"host": "here", "user-agent": "sdk, library", "cookie": "a=1; b=2"}},
    ),
    "query": (
        ASK.replace(b"completions", b"completions?alt=sse&key=k-1&empty=&a=1&a=2&b=%20+"),
        {"path": "/v1/chat/completions", "query": {"alt": "sse", "key": "k-1", "empty": "", "a": "1", "b": "  "}},
    ),
    "escape in the path": (ASK.replace(b"/chat/", b"/ch%61t%2F%C3%A9/"), {"path": "/v1/chat/é/completions"}),
    "invalid escape in the path": (ASK.replace(b"/chat/", b"/%ff/"), {"path": "/v1/%ff/completions"}),
    "dot segments in the path": (ASK.replace(b"/chat/", b"/../chat/"), {"path": "/v1/../chat/completions"}),
    "colon in the path": (
        ASK.replace(b"/v1/chat/completions", b"/v1beta/models/gemini-2.5-flash:generateContent"),
        {"path": "/v1beta/models/gemini-2.5-flash:generateContent"},
    ),
    "whole URL": (ASK.replace(b" /v1", b" http://here:80/v1"), {"path": "/v1/chat/completions"}),
    "URL without a path": (b"GET http://here?a=/b HTTP/1.1\r\nhost: here\r\n\r\n", {"path": "/", "query": {"a": "/b"}}),
    "HTTP/1.0": (ASK.replace(b"HTTP/1.1", b"HTTP/1.0"), {"body": BODY}),
    "HTTP/1.0 without a host": (b"GET /healthz HTTP/1.0\r\n\r\n", {"path": "/healthz", "headers": {}}),
    "blank lines before the request": (b"\r\n\r\n" + ASK, {"body": BODY}),
    "another JSON type": (
        ASK.replace(b"application/json", b"application/vnd.api+json; charset=utf-8"),
        {"body": BODY},
    ),
    "no content type": (ASK.replace(b"Content-Type: application/json\r\n", b""), {"body": BODY}),
    "offer of HTTP/2": (
        ASK.replace(b"X-Name", b"connection: upgrade, http2-settings\r\nupgrade: h2c\r\nX-Name"),
        {"body": BODY},
    ),
    "offer of HTTP/2 without a body": (
        b"GET / HTTP/1.1\r\nhost: here\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n",
        {"body": b""},
    ),
    "offer of HTTP/2 with chunks": (
        CHUNKED.replace(b"\r\n\r\n", b"\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n")
        + b"1b\r\n"
        + BODY
        + b"\r\n0\r\n\r\n",
        {"body": BODY},
    ),
    "gzip": (
        HEAD + b"content-encoding: GZIP\r\ncontent-length: %d\r\n\r\n" % len(PACKED) + PACKED,
        {"body": BODY},
    ),
    "zstd": (
        HEAD + b"content-encoding: zstd\r\ncontent-length: %d\r\n\r\n" % len(ZSTD_PACKED) + ZSTD_PACKED,
        {"body": BODY},
    ),
    "byte-order mark": (
        HEAD + b"content-length: %d\r\n\r\n" % (len(BODY) + 3) + b"\xef\xbb\xbf" + BODY,
        {"body": BODY},
    ),
    "compressed byte-order mark": (
        HEAD + b"content-encoding: gzip\r\ncontent-length: %d\r\n\r\n" % len(PACKED_WITH_MARK) + PACKED_WITH_MARK,
        {"body": BODY},
    ),
}
"""Each request with what the server must read of it."""


@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_is_read_whole_and_byte_by_byte(name: str) -> None:
    data, expected = REQUESTS[name]
    (incoming,) = read(data)
    assert incoming.is_complete
    assert incoming.refusal is None
    fields = fields_of(incoming)
    assert {field: fields[field] for field in expected} == expected
    (again,) = read(*(data[at : at + 1] for at in range(len(data))))
    assert fields_of(again) == fields


@given(st.lists(st.sampled_from(sorted(REQUESTS)), min_size=1, max_size=5), st.data())
def test_requests_are_the_same_however_their_bytes_are_cut(names: list[str], data: st.DataObject) -> None:
    names = [name for name in names if "1.0" not in name]  # those end the connection
    stream = b"".join(REQUESTS[name][0] for name in names)
    requests = read(*cut(stream, data))
    assert [fields_of(incoming) for incoming in requests] == [fields_of(read(REQUESTS[name][0])[0]) for name in names]


INSERTED = [
    *(b"\r\n", b"\r", b"\n", b" ", b"\0", b":", b"\xff\xfe", b"ffffffff", LENGTH),
    *(b"transfer-encoding: chunked\r\n", b"expect: 100-continue\r\n"),
]
DAMAGED = damaged_bytes(st.sampled_from([REQUESTS[name][0] for name in sorted(REQUESTS)]), INSERTED)


@given(st.lists(DAMAGED, min_size=1, max_size=3), st.data())
def test_damaged_requests_are_read_or_refused_however_their_bytes_are_cut(
    requests: list[bytes], data: st.DataObject
) -> None:
    stream = b"".join(requests)
    accepted = []
    for pieces in ([stream], cut(stream, data)):
        parser, listener = new_parser()
        for piece in pieces:
            if not parser.is_finished:
                parser.feed(piece)
        assert all(incoming.refusal is None or incoming.refusal.status < 500 for incoming in parser.requests)
        accepted.append([fields_of(one) for one in takewhile(lambda one: one.refusal is None, parser.requests)])
        parser.close()
        assert listener.governor.used == 0
    assert accepted[0] == accepted[1]


REFUSED = {
    "content type that is not text": (ASK.replace(b"n/json", b"n/\xff\xfe"), 415, r"application/\udcff\udcfe"),
    "WebSocket": (
        b"GET /v1/responses HTTP/1.1\r\nhost: here\r\nconnection: Upgrade\r\nupgrade: websocket\r\n"
        b"sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n",
        426,
        "WebSocket is not supported",
    ),
    "tunnel": (b"CONNECT here:443 HTTP/1.1\r\nhost: here\r\n\r\n", 405, "CONNECT is not supported"),
    "unknown method": (ASK.replace(b"POST", b"FROB"), 400, "malformed HTTP request: Invalid method"),
    "no host": (ASK.replace(b"Host: here\r\n", b""), 400, "exactly one Host"),
    "chunks of HTTP/1.0": (CHUNKED.replace(b"1.1", b"1.0") + b"0\r\n\r\n", 400, "transfer coding"),
    "another transfer coding": (CHUNKED.replace(b"chunked", b"gzip, chunked") + b"0\r\n\r\n", 400, "transfer coding"),
    "unknown content encoding": (
        ASK.replace(b"X-Name", b"content-encoding: br\r\nX-Name"),
        415,
        "send gzip, deflate, zstd",
    ),
    "damaged zstd": (
        HEAD + b"content-encoding: zstd\r\ncontent-length: %d\r\n\r\n" % len(PACKED) + PACKED,
        400,
        "damaged",
    ),
    "truncated gzip": (
        HEAD + b"content-encoding: gzip\r\ncontent-length: %d\r\n\r\n" % (len(PACKED) - 9) + PACKED[:-9],
        400,
        "truncated",
    ),
    "content type": (ASK.replace(b"application/json", b"text/html"), 415, "application/json"),
    "body too large": (HEAD + b"content-length: 1001\r\n\r\n" + b" " * 1001, 413, "1,000 bytes"),
    "chunks too large": (CHUNKED + b"3e9\r\n" + b" " * 1001 + b"\r\n0\r\n\r\n", 413, "1,000 bytes"),
    "129 headers": (HEAD + b"".join(b"x-%d: 1\r\n" % number for number in range(127)) + b"\r\n", 431, "too large"),
    "33 KiB in one header": (HEAD + b"x-a: " + b"a" * 33_000 + b"\r\n\r\n", 431, "too large"),
    "17 KiB of target": (b"GET /" + b"a" * 17_000 + b" HTTP/1.1\r\nhost: here\r\n\r\n", 431, "too large"),
    "65 KiB of head": (
        HEAD + b"".join(b"x-%d: %b\r\n" % (n, b"a" * 8000) for n in range(9)) + b"\r\n",
        431,
        "too large",
    ),
    "head without end": (HEAD + b"x-a: " + b"a" * 200_000, 431, "too large"),
    "target without end": (b"GET /" + b"a" * 200_000, 431, "too large"),
    "trailers without end": (CHUNKED + b"1b\r\n" + BODY + b"\r\n0\r\nx-a: " + b"a" * 600_000, 431, "too large"),
}
"""Requests that are refused, with the status and a part of the message."""


@pytest.mark.parametrize("name", REFUSED)
def test_a_request_is_refused_with_the_reason(name: str) -> None:
    data, status, message = REFUSED[name]
    for pieces in ((data,), [data[at : at + 999] for at in range(0, len(data), 999)]):
        incoming = read(*pieces)[0]
        assert isinstance(incoming.refusal, Response)
        assert incoming.refusal.status == status
        assert isinstance(incoming.refusal.body, bytes)
        assert message in msgspec.json.decode(incoming.refusal.body)["error"]["message"]
        assert incoming.request.body == b""


@pytest.mark.parametrize(
    ("content_type", "length", "status"),
    [
        ("application/json", 10, None),
        ("application/json; charset=utf-8", 10, None),
        ("application/vnd.api+json", 10, None),
        ("", 10, None),
        ("text/plain", 10, 415),
        ("text/plain", 0, None),  # no body: nothing is read
        ("text/plain", None, 415),
        ("application/json", MAX_BODY, None),
        ("application/json", MAX_BODY + 1, 413),
        ("application/json", None, None),  # counted while it is read
        ("multipart/form-data; boundary=x", 10, 415),
    ],
)
def test_which_bodies_are_read(content_type: str, length: int | None, status: int | None) -> None:
    framing = "transfer-encoding: chunked" if length is None else f"content-length: {length}"
    parser, _ = new_parser()
    parser.feed(
        f"POST /v1/messages HTTP/1.1\r\nhost: here\r\ncontent-type: {content_type}\r\n{framing}\r\n\r\n".encode()
    )
    incoming = parser.incoming or parser.requests[0]
    assert (None if incoming.refusal is None else incoming.refusal.status) == status


@pytest.mark.parametrize("name", REFUSED)
def test_nothing_is_read_after_a_refusal_before_the_end(name: str) -> None:
    data = REFUSED[name][0]
    parser, listener = new_parser()
    for at in range(0, len(data), 7):
        parser.feed(data[at : at + 7])
        if parser.is_finished:
            break
    parser.feed(ASK)
    parser.feed(ASK)
    first = parser.requests[0]
    assert first.refusal is not None
    if not first.is_complete:
        assert parser.requests == [first]
        assert not first.keeps_connection
    parser.close()
    assert listener.governor.used == 0


def test_a_refused_request_that_came_whole_keeps_the_connection() -> None:
    refused, other = read(ASK.replace(b"application/json", b"text/html") + ASK)
    assert refused.refusal is not None
    assert refused.keeps_connection
    assert other.refusal is None


@pytest.mark.parametrize("size", [1, 10_000])
def test_a_refused_request_is_refused_once_also_if_its_body_is_malformed(size: int) -> None:
    parser, listener = new_parser()
    data = CHUNKED.replace(b"completions", b"secret") + b"zz\r\n"
    for at in range(0, len(data), size):
        parser.feed(data[at : at + size])
    (incoming,) = parser.requests
    assert incoming.refusal is not None
    assert incoming.refusal.status == 401
    assert isinstance(listener.application, Anything)
    assert listener.application.refusals == []


def test_a_tunnel_is_refused_once() -> None:
    parser, listener = new_parser()
    parser.feed(b"CONNECT secret HTTP/1.1\r\nhost: here\r\n\r\n")
    assert isinstance(listener.application, Anything)
    assert [one.refusal for one in parser.requests] == listener.application.refusals
    assert [one.status for one in listener.application.refusals] == [405]


def test_a_defect_while_admitting_is_500(caplog: pytest.LogCaptureFixture) -> None:
    (incoming,) = read(ASK.replace(b"completions", b"defect") + ASK)
    assert isinstance(incoming.refusal, Response)
    assert incoming.refusal.status == 500
    assert not incoming.keeps_connection
    assert "a mistake of ours" in caplog.text


def test_128_headers_are_read() -> None:
    (incoming,) = read(HEAD + b"".join(b"x-%d: 1\r\n" % number for number in range(126)) + b"\r\n")
    assert len(incoming.request.headers) == 128


def test_a_large_body_in_small_pieces_before_half_a_head_is_not_a_large_head() -> None:
    body = b" " * 999
    whole = HEAD + b"content-length: 999\r\n\r\n" + body
    parser, _ = new_parser()
    parser.feed(whole * 30 + HEAD)
    parser.feed(b"x-a: 1\r\n")
    assert len(parser.requests) == 30
    assert parser.is_in_head
    assert not parser.is_finished


def test_a_body_over_the_budget_is_503_and_given_back() -> None:
    parser, listener = new_parser(max_buffered_bytes=20)
    parser.feed(ASK)
    (incoming,) = parser.requests
    assert isinstance(incoming.refusal, Response)
    assert incoming.refusal.status == 503
    assert listener.governor.used == 0


def test_a_closed_parser_gives_every_byte_back() -> None:
    parser, listener = new_parser()
    parser.feed(ASK + ASK + ASK[:-5])
    assert len(parser.requests) == 2
    assert parser.incoming is not None
    assert listener.governor.used == 3 * len(BODY) - 5
    parser.close()
    assert listener.governor.used == 0


def test_pipelined_requests_have_a_limit() -> None:
    requests = read(b"GET / HTTP/1.1\r\nhost: here\r\n\r\n" * (MAX_PIPELINED + 5))
    assert len(requests) == MAX_PIPELINED
    assert [incoming.keeps_connection for incoming in requests] == [True] * (MAX_PIPELINED - 1) + [False]
