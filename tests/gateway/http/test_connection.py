"""A plain request is answered as the general server would answer it; what is not plain is left to that, with every byte."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import accumulate, pairwise

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.gateway.config.settings import GatewaySettings
from antiphon.gateway.http.listener import Listener, bind_socket
from antiphon.gateway.http.messages import ClientRequest, Response
from antiphon.gateway.observe.metrics import Metrics

BODY = b'{"model":"m","messages":[]}'
LENGTH = b"content-length: %d\r\n" % len(BODY)
HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nHost: here\r\nContent-Type: application/json\r\n"
ASK = HEAD + LENGTH + b"X-Name:  a value \r\nauthorization: Bearer k\r\n\r\n" + BODY
TWICE = b"x-twice: 1\r\nx-twice: 1\r\n"
SECONDS = GatewaySettings(body_seconds=0.3, request_seconds=0.5, max_body_bytes=1000)


class Echo:
    """Answers with the request itself; a path that ends in `stream` streams it, and one in `hang` never ends."""

    def __init__(self) -> None:
        self.closed = asyncio.Event()

    def admit(self, request: ClientRequest) -> None:
        del request

    async def handle(self, request: ClientRequest, admission: object = None) -> Response:
        del admission
        if request.path.endswith("late"):
            await asyncio.sleep(60)
        if request.path.endswith("broken"):
            raise RuntimeError("a mistake of ours")
        if request.path.endswith("split"):
            return Response(headers={"x-a": "b\r\nx-evil: 1"}, body=b"{}")
        if request.path.endswith(("stream", "hang")):
            return Response(headers={"content-type": "text/event-stream"}, body=self._streamed(request))
        return Response.json(
            msgspec.structs.asdict(request) | {"body": request.body.decode(), "request_id": "", "deadline": 0}
        )

    async def _streamed(self, request: ClientRequest) -> AsyncIterator[bytes]:
        try:
            yield b"data: 1\n\n"
            yield b"data: 2\n\n"
            if request.path.endswith("hang"):
                await asyncio.sleep(60)
            await asyncio.sleep(0.01)
            yield b"data: 3\n\n"
        finally:
            self.closed.set()


@asynccontextmanager
async def listening(echo: Echo) -> AsyncIterator[tuple[int, Metrics]]:
    metrics = Metrics()
    listener = Listener(echo, "main", metrics, lambda: SECONDS)
    sock = bind_socket("127.0.0.1", 0)
    await listener.open(sock)
    try:
        yield sock.getsockname()[1], metrics
    finally:
        await listener.close(0.1)


async def sent(port: int, *pieces: bytes, answers: int = 1) -> bytes:
    """Send pieces one by one; what comes back until so many answers are whole, or the connection is closed."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    came = b""
    try:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.002 if len(pieces) > 1 else 0)
        while not _is_whole(came, answers) and (piece := await asyncio.wait_for(reader.read(65_536), 20)):
            came += piece
    finally:
        writer.close()
    return came


def _is_whole(came: bytes, answers: int) -> bool:
    for _ in range(answers):
        head, blank, came = came.partition(b"\r\n\r\n")
        if not blank:
            return False
        if b"chunked" in head:
            _, end, came = came.partition(b"0\r\n\r\n")
            if not end:
                return False
            continue
        size = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
        if len(came) < size:
            return False
        came = came[size:]
    return True


def with_listener(work: Callable[[int, Metrics, Echo], Awaitable[None]]) -> None:
    async def run() -> None:
        echo = Echo()
        async with listening(echo) as (port, metrics):
            await work(port, metrics, echo)
        assert b"antiphon_requests_in_flight 0\n" in metrics.render()
        assert b"antiphon_connections 0\n" in metrics.render()

    asyncio.run(run())


def is_plain(came: bytes) -> bool:
    """Whether it was answered without the general server, which writes the names of its fields with capitals."""
    return b"\r\ndate: " in came


def echo_of(came: bytes) -> dict[str, object]:
    echoed: dict[str, object] = msgspec.json.decode(came.partition(b"\r\n\r\n")[2])
    headers = echoed["headers"]
    assert isinstance(headers, dict)
    echoed["headers"] = {name: value for name, value in headers.items() if name not in ("x-twice", "x-request-id")}
    return echoed


PLAIN = {
    "a post": ASK,
    "a get": b"GET /v1/models HTTP/1.1\r\nhost: here\r\n\r\n",
    "a query": ASK.replace(b"completions", b"completions?alt=sse&key=k-1&empty="),
    "a name with dots": ASK.replace(b"/v1/chat/completions", b"/v1beta/models/gemini-2.5-flash:generateContent"),
    "no body": HEAD + b"content-length: 0\r\n\r\n",
    "kept alive": ASK.replace(b"X-Name", b"Connection: keep-alive\r\nX-Name"),
    "another type": ASK.replace(b"application/json", b"application/vnd.api+json; charset=utf-8"),
    "no type": ASK.replace(b"Content-Type: application/json\r\n", b""),
}


@pytest.mark.parametrize("name", PLAIN)
def test_both_servers_read_a_plain_request_the_same(name: str) -> None:
    async def work(port: int, *_: object) -> None:
        quick = await sent(port, PLAIN[name])
        slow = await sent(port, PLAIN[name].replace(b"\r\n\r\n", b"\r\n" + TWICE + b"\r\n", 1))
        assert is_plain(quick)
        assert not is_plain(slow)
        assert quick.startswith(b"HTTP/1.1 200 OK\r\n")
        assert echo_of(quick) == echo_of(slow)

    with_listener(work)


NOT_PLAIN = {
    "chunks": HEAD + b"transfer-encoding: chunked\r\n\r\n1b\r\n" + BODY + b"\r\n0\r\n\r\n",
    "length and chunks": HEAD + LENGTH + b"transfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "two lengths": HEAD + LENGTH + LENGTH + b"\r\n" + BODY,
    "no length": HEAD + b"\r\n",
    "a length with a sign": HEAD + b"content-length: +27\r\n\r\n" + BODY,
    "a length in other digits": HEAD + "content-length: ٢\r\n\r\n".encode() + BODY,
    "a length of a get": b"GET / HTTP/1.1\r\nhost: here\r\n" + LENGTH + b"\r\n" + BODY,
    "a space before the colon": HEAD + b"content-length : 27\r\n\r\n" + BODY,
    "a folded field": HEAD + LENGTH + b"x-a: b\r\n c\r\n\r\n" + BODY,
    "a bare line feed": HEAD + LENGTH + b"x-a: b\nx-b: c\r\n\r\n" + BODY,
    "a zero": HEAD + LENGTH + b"x-a: b\x00c\r\n\r\n" + BODY,
    "no host": ASK.replace(b"Host: here\r\n", b""),
    "an old version": ASK.replace(b"HTTP/1.1", b"HTTP/1.0"),
    "closing": ASK.replace(b"X-Name", b"connection: close\r\nX-Name"),
    "an upgrade": ASK.replace(b"X-Name", b"connection: upgrade\r\nupgrade: h2c\r\nX-Name"),
    "an escape": ASK.replace(b"/chat/", b"/ch%61t/"),
    "a way up": ASK.replace(b"/chat/", b"/../chat/"),
    "a whole address": ASK.replace(b" /v1", b" http://here/v1"),
    "a field twice in the query": ASK.replace(b"completions", b"completions?a=1&a=2"),
    "another method": ASK.replace(b"POST", b"PUT"),
    "a type that is none": ASK.replace(b"application/json", b"text/html"),
    "a packed body": ASK.replace(b"X-Name", b"content-encoding: gzip\r\nX-Name"),
}


@pytest.mark.parametrize("name", NOT_PLAIN)
def test_what_is_not_plain_is_left_to_the_general_server(name: str) -> None:
    async def work(port: int, *_: object) -> None:
        came = await sent(port, NOT_PLAIN[name])
        assert came.startswith(b"HTTP/1.")
        assert not is_plain(came)

    with_listener(work)


LONGER = b'{"model":"another","messages":[]}'
AGAIN = {
    "the same": ASK,
    "another length": ASK.replace(LENGTH, b"content-length: %d\r\n" % len(LONGER)).replace(BODY, LONGER),
    "no body": ASK.replace(LENGTH, b"content-length: 0\r\n").removesuffix(BODY),
    "another field after the length": ASK.replace(b"a value", b"something else"),
    "another path": ASK.replace(b"/v1/chat", b"/v1/other"),
    "zeros before the length": ASK.replace(LENGTH, b"content-length: 0%d\r\n" % len(BODY)),
}


@pytest.mark.parametrize("name", AGAIN)
def test_a_repeated_head_is_parsed_the_same(name: str) -> None:
    async def work(port: int, *_: object) -> None:
        alone = echo_of(await sent(port, AGAIN[name]))
        both = await sent(port, ASK + AGAIN[name], answers=2)
        assert both.count(b"\r\ndate: ") == 2
        second = both[both.index(b"HTTP/1.1", 1) :]
        assert echo_of(second) == alone

    with_listener(work)


@pytest.mark.parametrize("length", [b"+27", b"", b"2 7", b"2700000000000", b"27\r\ncontent-length: 27"])
def test_a_repeated_head_stays_on_the_fast_path(length: bytes) -> None:
    async def work(port: int, *_: object) -> None:
        both = await sent(port, ASK + ASK.replace(LENGTH, b"content-length: %b\r\n" % length), answers=2)
        assert both.count(b"\r\ndate: ") == 1

    with_listener(work)


def test_half_a_head_is_left_to_the_general_server() -> None:
    async def work(port: int, *_: object) -> None:
        came = await sent(port, ASK[:40], ASK[40:])
        assert not is_plain(came)
        assert echo_of(came)["body"] == BODY.decode()

    with_listener(work)


def test_a_connection_is_handed_over_between_two_requests() -> None:
    async def work(port: int, *_: object) -> None:
        came = await sent(port, ASK + NOT_PLAIN["chunks"] + ASK, answers=3)
        assert came.count(b"HTTP/1.1 200 OK") == 3
        assert came.count(b"\r\ndate: ") == 1  # from the second on the general server has it

    with_listener(work)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 60), max_size=6))
def test_bodies_may_come_in_any_chunks_and_requests_may_be_pipelined(sizes: list[int]) -> None:
    second = ASK.replace(b"/chat/", b"/second/")
    rest = BODY + second
    cuts = [0, *(cut for cut in accumulate(sizes) if cut < len(BODY)), len(rest)]
    pieces = [rest[start:end] for start, end in pairwise(cuts)]

    async def work(port: int, *_: object) -> None:
        came = await sent(port, ASK.removesuffix(BODY) + pieces[0], *pieces[1:], answers=2)
        first = came.index(b"/v1/chat/completions")
        assert came.index(b"/v1/second/completions") > first
        assert came.count(b"HTTP/1.1 200 OK") == 2

    with_listener(work)


def test_a_stream_leaves_in_chunks_and_its_beginning_in_one_write() -> None:
    async def work(port: int, *_: object) -> None:
        came = await sent(port, ASK.replace(b"completions", b"stream"))
        head, body = came.split(b"\r\n\r\n", 1)
        assert b"transfer-encoding: chunked" in head
        assert body == b"9\r\ndata: 1\n\n\r\n9\r\ndata: 2\n\n\r\n9\r\ndata: 3\n\n\r\n0\r\n\r\n"
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(ASK.replace(b"completions", b"hang"))
        assert (await reader.read(65_536)).endswith(b"data: 2\n\n\r\n")
        writer.close()

    with_listener(work)


def test_a_client_that_leaves_ends_what_is_done_for_it() -> None:
    async def work(port: int, _: object, echo: Echo) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(ASK.replace(b"completions", b"hang"))
        await reader.read(10)
        writer.close()
        await asyncio.wait_for(echo.closed.wait(), 10)

    with_listener(work)


def test_a_client_that_disconnects_immediately_is_forgotten() -> None:
    async def work(port: int, metrics: Metrics, _: object) -> None:
        for data in (ASK, ASK.replace(b"completions", b"late"), ASK[:-5]):
            with socket.create_connection(("127.0.0.1", port)) as raw:
                raw.sendall(data)
        for _ in range(500):
            await asyncio.sleep(0.01)
            if b"antiphon_connections 0\n" in metrics.render():
                return
        raise AssertionError("a client that left is still counted")

    with_listener(work)


@pytest.mark.parametrize(
    ("path", "status"), [(b"late", b"504"), (b"broken", b"500"), (b"split", b"500")], ids=["late", "broken", "split"]
)
def test_invalid_requests_get_an_error_and_the_connection_is_closed(path: bytes, status: bytes) -> None:
    async def work(port: int, *_: object) -> None:
        came = await sent(port, ASK.replace(b"completions", path), answers=2)
        assert came.split()[1] == status
        assert b"connection: close" in came
        assert b"x-evil" not in came
        assert is_plain(came)

    with_listener(work)


def test_a_body_that_does_not_come_is_408_and_a_stream_without_end_is_cut() -> None:
    async def work(port: int, *_: object) -> None:
        assert (await sent(port, ASK[:-5], answers=2)).split()[1] == b"408"
        came = await sent(port, ASK.replace(b"completions", b"hang"))
        assert came.endswith(b"data: 2\n\n\r\n")

    with_listener(work)


def test_only_running_requests_are_answered_during_a_stop() -> None:
    async def run() -> None:
        listener = Listener(Echo(), "main", Metrics(), lambda: SECONDS)
        sock = bind_socket("127.0.0.1", 0)
        await listener.open(sock)
        port = sock.getsockname()[1]
        lines = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        lines[1][1].write(ASK[:-5])
        await asyncio.sleep(0.05)
        closing = asyncio.ensure_future(listener.close(10))
        assert await lines[0][0].read() == b""  # it did nothing, and is closed at once
        lines[1][1].write(ASK[-5:] + ASK)
        came = await lines[1][0].read()
        assert came.count(b"HTTP/1.1 200 OK") == 1
        assert b"connection: close" in came
        await closing
        for _, writer in lines:
            writer.close()

    asyncio.run(run())
