"""The gateway's HTTP server over real sockets: whole responses, slow readers, admission on the head, and its limits.

Nothing here depends on which class serves a connection: every test runs with each shape of a request that the server may treat
differently.
"""

from __future__ import annotations

import asyncio
import fcntl
import re
import socket
import struct
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest
from msgspec import structs

from antiphon.http.messages import ClientRequest, Response
from antiphon.http.server.application import Admitted, Application, Handler
from antiphon.http.server.listener import Listener, bind_socket
from antiphon.http.timers import ConnectionTimer, unsent_bytes
from antiphon_gateway.access.client_keys import hash_key
from antiphon_gateway.config.settings import ClientKeySettings
from gateway.rig import FAST, Rig, rig
from gateway.strict_upstream import hang, text_answer
from support.waiting import SECONDS, until

MIB = 1024 * 1024
KEYS = (ClientKeySettings(name="one", key=hash_key("sk-one")),)
BODY = b'{"model":"to-openai-chat","messages":[{"role":"user","content":"hi"}]}'
LINE = b"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"


def with_length(body: bytes, *fields: bytes, length: int | None = None) -> bytes:
    head = LINE + b"".join(field + b"\r\n" for field in fields)
    return head + b"content-length: %d\r\n\r\n" % (len(body) if length is None else length) + body


def with_repeated_header(body: bytes, *fields: bytes, length: int | None = None) -> bytes:
    return with_length(body, b"x-twice: 1", b"x-twice: 2", *fields, length=length)


def chunked(body: bytes, *fields: bytes, length: int | None = None) -> bytes:
    head = LINE + b"".join(field + b"\r\n" for field in fields)
    end = b"0\r\n\r\n" if length is None else b""
    return head + b"transfer-encoding: chunked\r\n\r\n" + b"%x\r\n" % len(body) + body + b"\r\n" + end


Shape = Callable[..., bytes]
SHAPES: dict[str, Shape] = {"length": with_length, "repeated header": with_repeated_header, "chunked": chunked}
"""Ways to send the same request. A `length` larger than the body leaves the request incomplete."""


@pytest.fixture(params=["length", "chunked", pytest.param("repeated header", marks=pytest.mark.slow)])
def shape(request: pytest.FixtureRequest) -> Shape:
    return SHAPES[request.param]


@pytest.fixture(
    params=["length", *(pytest.param(name, marks=pytest.mark.slow) for name in ("chunked", "repeated header"))]
)
def any_shape(request: pytest.FixtureRequest) -> Shape:
    """For tests of responses, which take long: the shape of the request should not matter to them."""
    return SHAPES[request.param]


@contextmanager
def connection(port: int, *, buffer: int = 0) -> Iterator[socket.socket]:
    """A connection to the server; `buffer` is the size of its receive buffer."""
    with socket.socket() as raw:
        if buffer:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        raw.settimeout(SECONDS)
        raw.connect(("127.0.0.1", port))
        yield raw


def read_all(raw: socket.socket, came: bytes = b"") -> bytes:
    """Everything until the server closes the connection."""
    pieces = [came]
    try:
        while piece := raw.recv(MIB):
            pieces.append(piece)
    except ConnectionResetError:
        pass
    return b"".join(pieces)


def read_response(raw: socket.socket) -> tuple[int, bytes, bytes]:
    """One response with a length: status, head and body."""
    came = b""
    while b"\r\n\r\n" not in came:
        piece = raw.recv(65_536)
        assert piece, f"closed after {came!r}"
        came += piece
    head, _, body = came.partition(b"\r\n\r\n")
    length = re.search(rb"\r\ncontent-length: *(\d+)", head.lower())
    assert length is not None, head
    while len(body) < int(length[1]):
        piece = raw.recv(MIB)
        assert piece, f"closed after {len(body):,} of {int(length[1]):,} bytes"
        body += piece
    return int(head.split()[1]), head, body


def metric(gateway: Rig, name: str) -> float:
    with gateway.client() as client:
        text = client.get("/metrics").body.decode()
    return sum(float(value) for value in re.findall(rf"^{name}(?:\{{[^}}]*\}})? (\S+)", text, re.MULTILINE))


def wait_until_read(raw: socket.socket, gateway: Rig) -> None:
    """Wait until the server has read what was sent: it was acknowledged, and the server's loop has gone round since."""

    def unacknowledged() -> int:
        (size,) = struct.unpack("i", fcntl.ioctl(raw.fileno(), termios.TIOCOUTQ, bytes(4)))
        return int(size)

    until(lambda: not unacknowledged(), "the request is acknowledged")
    with gateway.client() as client:
        for _ in range(20):
            assert client.get("/healthz").status == 200


# Responses that leave slowly


def test_a_slow_reader_gets_its_whole_response_after_the_keep_alive_time(
    monkeypatch: pytest.MonkeyPatch, any_shape: Shape
) -> None:
    monkeypatch.setattr(Listener, "keep_alive_seconds", 0.1)
    with rig() as gateway:
        gateway.upstreams["openai-chat"].answer = lambda _: text_answer("x" * (20 * MIB))
        with connection(gateway.port, buffer=65_536) as raw:
            raw.sendall(any_shape(BODY))
            assert raw.recv(10)
            time.sleep(2.5)  # longer than the keep-alive time and two looks for idle connections
            came = read_all(raw)
    assert came.count(b"x") >= 20 * MIB


def test_a_client_that_takes_no_byte_is_disconnected(any_shape: Shape) -> None:
    with rig(structs.replace(FAST, write_seconds=0.2)) as gateway:
        gateway.upstreams["openai-chat"].answer = lambda _: text_answer("x" * (8 * MIB))
        for body in (BODY, BODY[:-1] + b',"stream":true}'):
            with connection(gateway.port, buffer=65_536) as raw:
                raw.sendall(any_shape(body))
                assert raw.recv(10)
                until(lambda: metric(gateway, "antiphon_requests_in_flight") == 1, "the response is given up")
                came = read_all(raw)
                assert len(came) < 8 * MIB


def test_a_client_that_still_reads_is_not_disconnected() -> None:
    async def run() -> None:
        left, right = socket.socketpair()
        with right:
            transport, _ = await asyncio.get_running_loop().create_connection(asyncio.Protocol, sock=left)
            transport.write(b"x" * (4 * MIB))
            timer = ConnectionTimer(transport, transport.abort)
            timer.watch_client(3600)

            def look() -> None:
                timer._stall_due = 0.0
                timer._on_due()

            for _ in range(3):
                right.recv(300_000)
                await asyncio.sleep(0.01)
                look()
                assert not transport.is_closing()
            assert unsent_bytes(transport) > 0
            look()
            look()
            assert transport.is_closing()
            timer.cancel()

    asyncio.run(run())


def test_waiting_for_a_slow_client_is_not_overhead(any_shape: Shape) -> None:
    with rig() as gateway:
        gateway.upstreams["openai-chat"].answer = lambda _: text_answer("x" * 400_000)
        with connection(gateway.port, buffer=65_536) as raw:
            raw.sendall(any_shape(BODY[:-1] + b',"stream":true}', b"connection: close"))
            assert raw.recv(10)
            time.sleep(1)
            assert b"[DONE]" in read_all(raw)[-200:]
        until(lambda: metric(gateway, "antiphon_overhead_seconds_count") == 1, "the request is recorded")
        waited = metric(gateway, "antiphon_request_seconds_sum") - metric(gateway, "antiphon_overhead_seconds_sum")
        assert waited >= 0.5


class Recording(socket.socket):
    """A listening socket that keeps what it accepted."""

    def accept(self) -> tuple[socket.socket, Any]:
        accepted, address = super().accept()
        ACCEPTED.append(accepted)
        return accepted, address


ACCEPTED: list[socket.socket] = []


class Hello(Application):
    """Answers everything."""

    def admit(self, request: ClientRequest) -> Handler:
        del request
        return Admitted(self._answer)

    async def _answer(self) -> Response:
        return Response.json({})


def test_accepted_sockets_have_no_nagle_delay(shape: Shape) -> None:
    async def run() -> int:
        plain = bind_socket("127.0.0.1", 0)
        port = plain.getsockname()[1]
        sock = Recording(plain.family, plain.type, plain.proto, fileno=plain.detach())
        sock.setblocking(False)
        ACCEPTED.clear()
        listener = Listener(Hello(), "main")
        await listener.open(sock)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(shape(BODY))
        assert await reader.read(10)
        option = ACCEPTED[0].getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        writer.close()
        await listener.close(1.0)
        return option

    assert asyncio.run(run())


# Admission on the head


@pytest.fixture(scope="module")
def with_keys() -> Iterator[Rig]:
    with rig(keys=KEYS) as gateway:
        yield gateway


def test_the_body_of_a_request_without_a_key_is_not_read(with_keys: Rig, shape: Shape) -> None:
    with connection(with_keys.port) as raw:
        raw.sendall(shape(b"{" * 1000, length=50 * MIB))  # and the rest never comes
        came = read_all(raw)
    assert came.startswith(b"HTTP/1.1 401"), came
    assert b"connection: close" in came.lower()


@pytest.mark.parametrize("fields", [(), (b"authorization: Bearer sk-one",)], ids=["no key", "a key"])
def test_a_body_that_is_too_large_is_refused_on_the_head(with_keys: Rig, fields: tuple[bytes, ...]) -> None:
    for shape in (with_length, with_repeated_header):
        with connection(with_keys.port) as raw:
            raw.sendall(shape(b"{" * 1000, *fields, length=70 * MIB))
            came = read_all(raw)
        assert came.split()[1] == (b"413" if fields else b"401"), came


@pytest.mark.parametrize("shape_name", ["length", "repeated header"])
def test_continue_is_sent_only_after_admission(with_keys: Rig, shape_name: str) -> None:
    head = SHAPES[shape_name](b"", b"expect: 100-continue", length=len(BODY))
    with connection(with_keys.port) as raw:
        raw.sendall(head)
        came = read_all(raw)
    assert came.startswith(b"HTTP/1.1 401"), came
    head = SHAPES[shape_name](b"", b"expect: 100-continue", b"authorization: Bearer sk-one", length=len(BODY))
    with connection(with_keys.port) as raw:
        raw.sendall(head)
        assert raw.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        raw.sendall(BODY)
        assert read_response(raw)[0] == 200


def test_a_client_that_sends_its_whole_body_sees_why_it_is_refused(with_keys: Rig, shape: Shape) -> None:
    with connection(with_keys.port) as raw:
        raw.sendall(shape(b"{" * 200_000))
        assert read_response(raw)[0] == 401


def test_a_connection_is_kept_after_a_small_request_without_a_key(with_keys: Rig) -> None:
    with connection(with_keys.port) as raw:
        for _ in range(3):
            raw.sendall(with_length(BODY))
            assert read_response(raw)[0] == 401
        raw.sendall(with_length(BODY, b"authorization: Bearer sk-one"))
        assert read_response(raw)[0] == 200


def test_bodies_of_all_requests_together_have_a_budget(shape: Shape) -> None:
    padding = b" " * 600_000
    with rig(structs.replace(FAST, max_buffered_bytes=MIB)) as gateway:
        with connection(gateway.port) as first:
            request = shape(padding + BODY)
            first.sendall(request[:600_000])  # it holds this much until the rest comes
            wait_until_read(first, gateway)

            def status_of_another() -> tuple[int, bytes]:
                with connection(gateway.port) as raw:
                    raw.sendall(shape(padding + BODY))
                    status, head, _ = read_response(raw)
                return status, head

            status, head = status_of_another()
            assert status == 503
            assert b"\r\nretry-after: 1" in head.lower()
            first.sendall(request[600_000:])
            assert read_response(first)[0] == 200
        for _ in range(5):  # more than the budget, one after the other
            assert status_of_another()[0] == 200


def test_a_body_is_given_back_when_the_upstream_has_answered(shape: Shape) -> None:
    padding, streamed = b" " * 600_000, BODY[:-1] + b',"stream":true}'
    with rig(structs.replace(FAST, max_buffered_bytes=MIB, keep_alive_seconds=0.1)) as gateway:
        gateway.upstreams["openai-chat"].answer = lambda _: text_answer("word " * 200)
        gateway.upstreams["openai-chat"].faults.append(hang(600))
        with connection(gateway.port) as first, connection(gateway.port) as second:
            first.sendall(shape(padding + streamed))
            came = b""
            while b": keep-alive" not in came.partition(b"data:")[2]:  # it streams, and has no end
                came += first.recv(65_536)
            second.sendall(shape(padding + BODY))
            assert read_response(second)[0] == 200


def test_a_client_that_leaves_gives_its_bytes_back(shape: Shape) -> None:
    with rig(structs.replace(FAST, max_buffered_bytes=MIB)) as gateway:
        for _ in range(3):
            with connection(gateway.port) as raw:
                raw.sendall(shape(b" " * 900_000 + BODY)[:900_000])

        def is_answered() -> bool:
            with connection(gateway.port) as raw:
                raw.sendall(shape(b" " * 900_000 + BODY))
                return read_response(raw)[0] == 200

        until(is_answered, "the bytes of clients that left are given back")


def test_a_client_that_sent_a_further_request_and_leaves_is_noticed(shape: Shape) -> None:
    with rig() as gateway:
        upstream = gateway.upstreams["openai-chat"]
        upstream.faults.append(hang())
        with connection(gateway.port) as raw:
            raw.sendall(shape(BODY))
            until(lambda: upstream.received, "the upstream is asked")
            raw.sendall(shape(BODY))
            wait_until_read(raw, gateway)
        assert upstream.gone.wait(SECONDS), "the upstream is still asked"


@pytest.mark.parametrize("path", [b"GET /healthz", b"GET /readyz", b"POST /status/login"])
def test_a_request_without_a_key_has_no_room_for_a_body(with_keys: Rig, path: bytes) -> None:
    head = path + b" HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    for framing in (b"content-length: 9000\r\n\r\n", b"transfer-encoding: chunked\r\n\r\n2328\r\n" + b" " * 9000):
        with connection(with_keys.port) as raw:
            raw.sendall(head + framing)
            status, _, body = read_response(raw)
        assert status == 413
        assert b"8,192 bytes" in body


def test_one_of_several_clients_leaves_room_for_the_others(shape: Shape) -> None:
    keys = [ClientKeySettings(name=name, key=hash_key(f"sk-{name}-0123456789")) for name in ("one", "two")]
    one, two = (b"authorization: Bearer sk-%b-0123456789" % name for name in (b"one", b"two"))
    with (
        rig(structs.replace(FAST, max_buffered_bytes=MIB), keys=keys) as gateway,
        connection(gateway.port) as first,
        connection(gateway.port) as second,
        connection(gateway.port) as other,
    ):
        first.sendall(shape(b" " * 400_000 + BODY, one)[:400_000])
        wait_until_read(first, gateway)
        second.sendall(shape(b" " * 400_000 + BODY, one))
        status, _, body = read_response(second)
        assert status == 503
        assert b"of this client" in body
        other.sendall(shape(b" " * 400_000 + BODY, two))
        assert read_response(other)[0] == 200


def test_errors_are_json_in_the_format_of_the_endpoint(with_keys: Rig) -> None:
    with connection(with_keys.port) as raw:
        raw.sendall(with_length(BODY).replace(b"/v1/chat/completions", b"/v1/messages"))
        status, _, body = read_response(raw)
    assert status == 401
    assert msgspec.json.decode(body)["type"] == "error"
