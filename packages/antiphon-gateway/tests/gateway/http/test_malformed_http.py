"""Malformed HTTP requests are refused: one 4xx or 5xx at most, the connection is closed, and nothing reaches a provider.

The table is read over real sockets and does not depend on which server class runs. Servers and proxies that disagree on where a
message ends let one client's bytes become another's request (request smuggling), so every doubtful framing is an error.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from msgspec import structs

from gateway.rig import FAST, Rig, rig
from support.cases import each_case
from support.waiting import SECONDS

BODY = b'{"model":"to-gemini","messages":[{"role":"user","content":"hi"}]}'
LINE = b"POST /v1/chat/completions HTTP/1.1\r\n"
HOST = b"host: 127.0.0.1\r\n"
TYPE = b"content-type: application/json\r\n"
HEAD = LINE + HOST + TYPE
SIZE = b"%d" % len(BODY)
LENGTH = b"content-length: " + SIZE + b"\r\n"
CHUNKED = b"transfer-encoding: chunked\r\n"
WHOLE_CHUNK = b"%x\r\n" % len(BODY) + BODY + b"\r\n0\r\n\r\n"
SMUGGLED = b"GET /smuggled HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"


def with_field(field: bytes) -> bytes:
    """A request that is fine but for one header line."""
    return HEAD + LENGTH + field + b"\r\n" + BODY


def with_length(length: bytes) -> bytes:
    return HEAD + b"content-length:" + length + b"\r\n\r\n" + BODY + SMUGGLED


def with_coding(coding: bytes) -> bytes:
    return HEAD + b"transfer-encoding:" + coding + b"\r\n\r\n" + WHOLE_CHUNK + SMUGGLED


def with_chunks(chunks: bytes) -> bytes:
    return HEAD + CHUNKED + b"\r\n" + chunks


def with_line(line: bytes) -> bytes:
    return line + b"\r\n" + HOST + TYPE + LENGTH + b"\r\n" + BODY


MALFORMED = {
    # Content-Length
    "length with a plus sign": with_length(b" +" + SIZE),
    "negative length": with_length(b" -1"),
    "hexadecimal length": with_length(b" 0x41"),
    "length with a fraction": with_length(b" 65.0"),
    "length with an exponent": with_length(b" 1e1"),
    "length with an underscore": with_length(b" 6_5"),
    "length of two numbers": with_length(b" 65 65"),
    "length with a comma list of different values": with_length(b" 65, 5"),
    "length in other digits": with_length(" ٦٥".encode()),
    "length that is a word": with_length(b" many"),
    "length beyond 64 bits": with_length(b" 99999999999999999999999"),
    "empty length": with_length(b""),
    "two different lengths": HEAD + LENGTH + b"content-length: 5\r\n\r\n" + BODY + SMUGGLED,
    "two different lengths in another case": HEAD + LENGTH + b"CONTENT-LENGTH: 5\r\n\r\n" + BODY + SMUGGLED,
    # Transfer-Encoding
    "length and chunks": HEAD + LENGTH + CHUNKED + b"\r\n" + WHOLE_CHUNK + SMUGGLED,
    "chunks and length": HEAD + CHUNKED + LENGTH + b"\r\n" + WHOLE_CHUNK + SMUGGLED,
    "unknown coding": with_coding(b" xchunked"),
    "identity": with_coding(b" identity"),
    "chunked is not the last coding": with_coding(b" chunked, identity"),
    "gzip before chunked": with_coding(b" gzip, chunked"),
    "chunked twice": with_coding(b" chunked, chunked"),
    "two coding headers": HEAD + CHUNKED + b"transfer-encoding: identity\r\n\r\n" + WHOLE_CHUNK + SMUGGLED,
    "quoted coding": with_coding(b' "chunked"'),
    "coding with a vertical tab": with_coding(b" \x0bchunked"),
    "coding with a control character": with_coding(b" chunked\x01"),
    # Chunks
    "chunk size that is not a number": with_chunks(b"zz\r\nabc\r\n0\r\n\r\n"),
    "chunk size with a sign": with_chunks(b"+5\r\nabcde\r\n0\r\n\r\n"),
    "negative chunk size": with_chunks(b"-5\r\nabcde\r\n0\r\n\r\n"),
    "chunk size with a prefix": with_chunks(b"0x5\r\nabcde\r\n0\r\n\r\n"),
    "chunk size beyond 64 bits": with_chunks(b"ffffffffffffffffff\r\nabc\r\n0\r\n\r\n"),
    "empty chunk size": with_chunks(b"\r\nabc\r\n0\r\n\r\n"),
    "chunk size with a leading space": with_chunks(b" 3\r\nabc\r\n0\r\n\r\n"),
    "chunk longer than its size": with_chunks(b"2\r\nabc\r\n0\r\n\r\n"),
    "chunk without a line end": with_chunks(b"3\r\nabc0\r\n\r\n"),
    "chunk size ended by a bare line feed": with_chunks(b"3\nabc\r\n0\r\n\r\n"),
    "chunk data ended by a bare line feed": with_chunks(b"3\r\nabc\n0\r\n\r\n"),
    "chunk size with a control character": with_chunks(b"3\x01\r\nabc\r\n0\r\n\r\n"),
    # Header lines
    "folded header": with_field(b"x-a: b\r\n c\r\n"),
    "header folded with a tab": with_field(b"x-a: b\r\n\tc\r\n"),
    "first header starts with a space": LINE + b" " + HOST + TYPE + LENGTH + b"\r\n" + BODY,
    "bare line feed after a header": with_field(b"x-a: b\nx-b: c\r\n"),
    "bare carriage return in a header": with_field(b"x-a: b\rx-b: c\r\n"),
    "zero byte in a value": with_field(b"x-a: b\x00c\r\n"),
    "control character in a value": with_field(b"x-a: b\x01c\r\n"),
    "delete character in a value": with_field(b"x-a: b\x7fc\r\n"),
    "space before the colon": with_field(b"x-a : b\r\n"),
    "space before the colon of the length": HEAD + b"content-length : " + SIZE + b"\r\n\r\n" + BODY + SMUGGLED,
    "space before the colon of the coding": HEAD + b"transfer-encoding : chunked\r\n\r\n" + WHOLE_CHUNK + SMUGGLED,
    "tab before the colon": with_field(b"x-a\t: b\r\n"),
    "space in a name": with_field(b"x a: b\r\n"),
    "zero byte in a name": with_field(b"x\x00a: b\r\n"),
    "letter beyond ASCII in a name": with_field("x-ä: b\r\n".encode()),
    "parenthesis in a name": with_field(b"x(a): b\r\n"),
    "header without a colon": with_field(b"x-a\r\n"),
    "header without a name": with_field(b": b\r\n"),
    # Host
    "missing host": LINE + TYPE + LENGTH + b"\r\n" + BODY,
    "two hosts": LINE + HOST + b"host: evil.example\r\n" + TYPE + LENGTH + b"\r\n" + BODY,
    "the same host twice": LINE + HOST + HOST + TYPE + LENGTH + b"\r\n" + BODY,
    # Request line
    "HTTP/2.0": with_line(b"POST /v1/chat/completions HTTP/2.0"),
    "HTTP/0.9 with headers": with_line(b"POST /v1/chat/completions HTTP/0.9"),
    "HTTP/1.2": with_line(b"POST /v1/chat/completions HTTP/1.2"),
    "version with two digits": with_line(b"POST /v1/chat/completions HTTP/1.10"),
    "another protocol": with_line(b"POST /v1/chat/completions ICE/1.1"),
    "lower-case protocol": with_line(b"POST /v1/chat/completions http/1.1"),
    "no version": with_line(b"POST /v1/chat/completions"),
    "no target": with_line(b"POST HTTP/1.1"),
    "space in the target": with_line(b"POST /v1/chat /completions HTTP/1.1"),
    "control character in the target": with_line(b"POST /v1/chat\x01/completions HTTP/1.1"),
    "zero byte in the target": with_line(b"POST /v1/chat\x00/completions HTTP/1.1"),
    "control character in the method": with_line(b"PO\x01ST /v1/chat/completions HTTP/1.1"),
    "lower-case method": with_line(b"post /v1/chat/completions HTTP/1.1"),
    "tabs instead of spaces": with_line(b"POST\t/v1/chat/completions\tHTTP/1.1"),
    "bare line feed after the request line": LINE.replace(b"\r\n", b"\n") + HOST + TYPE + LENGTH + b"\r\n" + BODY,
    "line feeds only": HEAD.replace(b"\r\n", b"\n") + LENGTH.replace(b"\r\n", b"\n") + b"\n" + BODY,
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    "the HTTP/2 preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
}


@pytest.fixture(scope="module")
def gateway() -> Iterator[Rig]:
    with rig(structs.replace(FAST, header_seconds=5.0, body_seconds=5.0)) as running:
        yield running


def sent(port: int, data: bytes) -> bytes:
    """Everything that comes back until the gateway closes the connection; it must."""
    came = b""
    with socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as raw:
        raw.sendall(data)
        try:
            while piece := raw.recv(65_536):
                came += piece
        except ConnectionResetError:
            pass  # it was closed while bytes of ours were on their way
    return came


def check_refused(gateway: Rig, data: bytes) -> None:
    gateway.clear()
    came = sent(gateway.port, data)
    assert came.count(b"HTTP/1.") <= 1, came  # what was smuggled is not a request
    assert not came or came.split()[1][:1] in b"45", came
    assert all(upstream.received == [] for upstream in gateway.upstreams.values())


def test_the_request_that_the_table_varies_is_answered(gateway: Rig) -> None:
    for request in (with_field(b"x-a: b\r\n"), with_chunks(WHOLE_CHUNK)):
        came = sent(gateway.port, request.replace(HOST, HOST + b"connection: close\r\n"))
        assert came.startswith(b"HTTP/1.1 200 OK\r\n"), came


@each_case("name", MALFORMED)
def test_a_malformed_request_is_refused(gateway: Rig, name: str) -> None:
    check_refused(gateway, MALFORMED[name])


@each_case("name", MALFORMED)
def test_a_malformed_request_after_a_good_one_is_refused(gateway: Rig, name: str) -> None:
    good = b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"
    gateway.clear()
    came = sent(gateway.port, good + MALFORMED[name])
    assert came.startswith(b"HTTP/1.1 200 OK\r\n"), came
    rest = came[came.find(b"HTTP/1.", 1) :] if came.find(b"HTTP/1.", 1) > 0 else b""
    assert rest.count(b"HTTP/1.") <= 1, came
    assert not rest or rest.split()[1][:1] in b"45", rest
    assert all(upstream.received == [] for upstream in gateway.upstreams.values())
