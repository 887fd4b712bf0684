"""`ServerConnection` over real sockets: what it reads of a request, what it writes, and when it closes."""

from __future__ import annotations

import asyncio
import gc
import logging
import socket
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from itertools import accumulate, pairwise
from typing import Any

import msgspec
import pytest
import uvloop
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from antiphon.http.messages import ClientRequest, Response, ResponseStream
from antiphon.http.server.application import Admitted, Application, Handler, Limits, Traffic
from antiphon.http.server.listener import Listener, bind_socket
from antiphon.http.server.request_parser import MAX_PIPELINED
from support.examples import scaled

BODY = b'{"model":"m","messages":[]}'
LENGTH = b"content-length: %d\r\n" % len(BODY)
HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nHost: here\r\nContent-Type: application/json\r\n"
ASK = HEAD + LENGTH + b"X-Name:  a value \r\nauthorization: Bearer k\r\n\r\n" + BODY
LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}
CURRENT = [asyncio.new_event_loop]
SECONDS = Limits(body_seconds=0.3, request_seconds=0.5, max_body_bytes=1000)


@pytest.fixture(params=LOOPS, autouse=True)
def _loop(request: pytest.FixtureRequest) -> None:
    """Every test runs on both event loops."""
    CURRENT[:] = [LOOPS[request.param]]


def run(work: Coroutine[Any, Any, None]) -> None:
    """Run it on the event loop of the test."""
    with asyncio.Runner(loop_factory=CURRENT[0]) as runner:
        runner.run(work)


class Pushed:
    """A body that is pushed: three events, or with `hang` two, or with `much` as much as the client takes.

    It refers to its request, and to what that holds, until it is freed itself.
    """

    def __init__(self, echo: Echo, request: ClientRequest, held: Held) -> None:
        self._echo = echo
        self._path = request.path
        self._kept = (request, held)
        self._client: ResponseStream | None = None
        self._is_paused = False

    def start(self, client: ResponseStream) -> None:
        self._client = client
        if self._path.endswith("defect"):
            raise RuntimeError("a mistake of ours")
        client.write(b"data: 1\n\n")
        client.write(b"")
        client.write(b"data: 2\n\n")
        if self._path.endswith("much"):
            self._push()
        elif self._path.endswith("pushed"):
            asyncio.get_running_loop().call_later(0.01, self._end)
        elif self._path.endswith("cut"):
            asyncio.get_running_loop().call_later(0.01, client.abort_stream)

    def pause(self) -> None:
        self._is_paused = True
        self._echo.calls.append("pause")

    def resume(self) -> None:
        self._is_paused = False
        self._echo.calls.append("resume")
        if self._echo.calls.count("resume") < 3:
            self._push()
        else:
            self._end()

    def cancel(self, error: Exception | None = None) -> None:
        self._echo.calls.append("cancel")
        self._echo.closed.set()
        # not started: HEAD, or a head that cannot be written
        assert self._client is not None or self._path.endswith(("pushed", "unwritable"))
        assert isinstance(error, UnicodeEncodeError) == self._path.endswith("unwritable")
        self._client = None

    def _push(self) -> None:
        assert self._client is not None
        while not self._is_paused:
            self._client.write(b"x" * 100_000)

    def _end(self) -> None:
        assert self._client is not None
        self._client.write(b"data: 3\n\n")
        self._client.end_stream()
        self._client.write(b"too late")


class Held:
    """Something that the frames of a handler hold, as they hold a request's body."""


class Echo(Application):
    """Answers with the request itself; a path with `stream` or `hang` is iterated over, one with `push` is pushed."""

    def __init__(self) -> None:
        self.closed = asyncio.Event()
        self.calls: list[str] = []
        self.held: list[weakref.ref[Held]] = []

    def admit(self, request: ClientRequest) -> Handler:
        admitted = Admitted(lambda: self._answer(request))
        admitted.takes = "stream" if request.path.endswith("unread") else "json"
        return admitted

    async def _answer(self, request: ClientRequest) -> Response:
        held = Held()
        self.held.append(weakref.ref(held))
        if request.path.endswith("late"):
            await asyncio.sleep(60)
        if request.path.endswith("broken"):
            raise RuntimeError("a mistake of ours")
        if request.path.endswith("split"):
            return Response(headers={"x-a": "b\r\nx-evil: 1"}, body=b"{}")
        if request.path.endswith("push-unwritable"):
            return Response(headers={"x-a": "\ud800"}, body=Pushed(self, request, held))
        if request.path.endswith("unchanged"):
            return Response(status=304, headers={"etag": "1"})
        if "push" in request.path:
            return Response(headers={"content-type": "text/event-stream"}, body=Pushed(self, request, held))
        if request.path.endswith(("stream", "hang")):
            return Response(headers={"content-type": "text/event-stream"}, body=self._streamed(request))
        left_out = {"request_id": "", "deadline": 0, "begin_early": None, "hold": None, "stream": None}
        return Response.json(msgspec.structs.asdict(request) | {"body": request.body.decode()} | left_out)

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
async def listening(echo: Echo, settings: Limits) -> AsyncIterator[tuple[int, Traffic]]:
    traffic = Traffic()
    listener = Listener(echo, "main", settings, traffic=traffic)
    sock = bind_socket("127.0.0.1", 0)
    await listener.open(sock)
    try:
        yield sock.getsockname()[1], traffic
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


def with_listener(work: Callable[[int, Traffic, Echo], Awaitable[None]], limits: Limits = SECONDS) -> None:
    async def serve() -> None:
        echo = Echo()
        async with listening(echo, limits) as (port, traffic):
            await work(port, traffic, echo)
        assert not traffic.connections | traffic.busy

    run(serve())


def received(came: bytes) -> dict[str, Any]:
    """The request that the server read, as it came back in a response."""
    request: dict[str, Any] = msgspec.json.decode(came.partition(b"\r\n\r\n")[2])
    return request


CHUNKS = HEAD + b"transfer-encoding: chunked\r\n\r\n1b\r\n" + BODY + b"\r\n0\r\n\r\n"
OFFER = ASK.replace(b"X-Name", b"connection: upgrade, http2-settings\r\nupgrade: h2c\r\nX-Name")
SECOND = {
    "the same": ASK,
    "chunks": CHUNKS,
    "offer of HTTP/2": OFFER,
    "no body": HEAD + b"content-length: 0\r\n\r\n",
    "another path": ASK.replace(b"/v1/chat", b"/v1/other"),
    "fewer headers": b"GET / HTTP/1.1\r\nhost: here\r\n\r\n",
}


@pytest.mark.parametrize("name", SECOND)
def test_a_pipelined_request_is_read_like_a_single_one(name: str) -> None:
    async def work(port: int, *_: object) -> None:
        alone = received(await sent(port, SECOND[name]))
        for first in (ASK, CHUNKS, OFFER):
            both = await sent(port, first + SECOND[name], answers=2)
            assert received(both[both.index(b"HTTP/1.1 200", 1) :]) == alone

    with_listener(work)


def test_too_many_pipelined_requests_end_the_connection() -> None:
    async def work(port: int, *_: object) -> None:
        ask = b"GET / HTTP/1.1\r\nhost: here\r\n\r\n"
        came = await sent(port, ask * (MAX_PIPELINED - 1), answers=MAX_PIPELINED - 1)
        assert b"connection: close" not in came
        came = await sent(port, ask * (MAX_PIPELINED + 5), answers=MAX_PIPELINED + 1)
        assert came.count(b"HTTP/1.1 200 OK") == MAX_PIPELINED
        assert came.count(b"connection: close") == 1

    with_listener(work)


def test_an_error_after_a_good_request_comes_after_its_response() -> None:
    async def work(port: int, *_: object) -> None:
        came = await sent(port, ASK.replace(b"completions", b"stream") + b"GARBAGE\r\n\r\n" + ASK, answers=3)
        assert came.index(b"data: 3") < came.index(b"HTTP/1.1 400")
        assert came.count(b"HTTP/1.1") == 2

    with_listener(work)


def test_continue_waits_for_the_response_before_it() -> None:
    async def work(port: int, *_: object) -> None:
        waits = ASK.replace(b"X-Name", b"expect: 100-continue\r\nX-Name").removesuffix(BODY)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(ASK.replace(b"completions", b"stream") + waits)
        came = b""
        while not came.endswith(b"100 Continue\r\n\r\n"):
            piece = await asyncio.wait_for(reader.read(65_536), 20)
            assert piece, came
            came += piece
        assert came.index(b"0\r\n\r\n") < came.index(b"100 Continue")
        writer.write(BODY)
        assert (await asyncio.wait_for(reader.read(65_536), 20)).startswith(b"HTTP/1.1 200 OK")
        writer.close()

    with_listener(work)


KEPT = {
    "HTTP/1.1": (b"GET / HTTP/1.1\r\nhost: here\r\n\r\n", True),
    "close": (b"GET / HTTP/1.1\r\nhost: here\r\nconnection: Close\r\n\r\n", False),
    "HTTP/1.0": (b"GET / HTTP/1.0\r\n\r\n", False),
    "HTTP/1.0 that keeps it": (b"GET / HTTP/1.0\r\nconnection: keep-alive\r\n\r\n", True),
}


@pytest.mark.parametrize("name", KEPT)
def test_a_connection_is_kept_as_the_client_wishes(name: str) -> None:
    data, is_kept = KEPT[name]

    async def work(port: int, *_: object) -> None:
        came = await sent(port, data + data, answers=2)
        assert came.count(b"HTTP/1.1 200 OK") == (2 if is_kept else 1)
        assert (b"connection: close" in came) is not is_kept
        if b"1.0" in data:
            assert (b"connection: keep-alive" in came) is is_kept

    with_listener(work)


def test_the_answer_to_head_has_no_body() -> None:
    async def work(port: int, *_: object) -> None:
        head = b"HEAD /%b HTTP/1.1\r\nhost: here\r\n\r\n"
        for path in (b"", b"stream", b"pushed"):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(head % path + head % b"last" + b"GET / HTTP/1.1\r\nhost: here\r\nconnection: close\r\n\r\n")
            came = await asyncio.wait_for(reader.read(), 20)
            assert [part[:15] for part in came.split(b"\r\n\r\n")[:3]] == [b"HTTP/1.1 200 OK"] * 3, came
            writer.close()

    with_listener(work)


def test_not_modified_has_no_length() -> None:
    async def work(port: int, *_: object) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /unchanged HTTP/1.1\r\nhost: here\r\nconnection: close\r\n\r\n")
        came = await asyncio.wait_for(reader.read(), 20)
        assert came.startswith(b"HTTP/1.1 304")
        assert b"content-length" not in came
        assert came.endswith(b"\r\n\r\n")
        writer.close()

    with_listener(work)


def test_a_stream_for_http_1_0_ends_with_the_connection() -> None:
    async def work(port: int, *_: object) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /stream HTTP/1.0\r\nconnection: keep-alive\r\n\r\n")
        head, body = (await asyncio.wait_for(reader.read(), 20)).split(b"\r\n\r\n", 1)
        assert b"chunked" not in head
        assert b"connection: close" in head
        assert body == b"data: 1\n\ndata: 2\n\ndata: 3\n\n"
        writer.close()

    with_listener(work)


@settings(max_examples=scaled(15), deadline=None)
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


@pytest.mark.parametrize("path", [b"stream", b"pushed"])
def test_a_stream_leaves_in_chunks_and_its_beginning_in_one_write(path: bytes) -> None:
    async def work(port: int, *_: object) -> None:
        came = await sent(port, ASK.replace(b"completions", path))
        head, body = came.split(b"\r\n\r\n", 1)
        assert b"transfer-encoding: chunked" in head
        assert body == b"9\r\ndata: 1\n\n\r\n9\r\ndata: 2\n\n\r\n9\r\ndata: 3\n\n\r\n0\r\n\r\n"
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(ASK.replace(b"completions", path.replace(b"stream", b"hang").replace(b"ed", b"-hang")))
        assert (await reader.read(65_536)).endswith(b"data: 2\n\n\r\n")
        writer.close()

    with_listener(work)


@pytest.mark.parametrize("path", [b"hang", b"push-hang"])
@pytest.mark.parametrize("is_half", [False, True], ids=["close", "half-close"])
def test_a_client_that_leaves_cancels_its_request(path: bytes, is_half: bool) -> None:
    async def work(port: int, _: object, echo: Echo) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(ASK.replace(b"completions", path))
        await reader.read(10)
        writer.write_eof() if is_half else writer.close()
        await asyncio.wait_for(echo.closed.wait(), 10)
        writer.close()

    with_listener(work)


def test_a_pushed_stream_pauses_while_the_client_does_not_read() -> None:
    async def work(port: int, _: object, echo: Echo) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=65_536)
        writer.write(ASK.replace(b"completions", b"push-much").replace(b"X-Name", b"connection: close\r\nX-Name"))
        for _ in range(1000):
            if echo.calls:
                break
            await asyncio.sleep(0.01)
        assert echo.calls == ["pause"]
        came = await asyncio.wait_for(reader.read(), 20)
        assert came.endswith(b"9\r\ndata: 3\n\n\r\n0\r\n\r\n")
        assert echo.calls == ["pause", "resume"] * 3
        writer.close()

    with_listener(work, structs.replace(SECONDS, request_seconds=30.0))


@pytest.mark.parametrize("path", [b"push-cut", b"push-defect"])
def test_a_pushed_stream_that_fails_is_truncated(path: bytes) -> None:
    async def work(port: int, *_: object) -> None:
        came = await sent(port, ASK.replace(b"completions", path))
        assert b"0\r\n\r\n" not in came

    with_listener(work)


def test_a_client_that_disconnects_immediately_is_forgotten() -> None:
    async def work(port: int, traffic: Traffic, _: object) -> None:
        for data in (ASK, ASK.replace(b"completions", b"late"), ASK[:-5]):
            with socket.create_connection(("127.0.0.1", port)) as raw:
                raw.sendall(data)
        for _ in range(500):
            await asyncio.sleep(0.01)
            if not traffic.connections:
                return
        raise AssertionError("a client that left is still counted")

    with_listener(work)


def test_a_head_that_cannot_be_written_is_a_500_and_ends_its_source() -> None:
    async def work(port: int, _: object, echo: Echo) -> None:
        came = await sent(port, ASK.replace(b"completions", b"push-unwritable"))
        assert came.startswith(b"HTTP/1.1 500")
        assert echo.calls == ["cancel"]

    with_listener(work)


@pytest.mark.parametrize(
    "path",
    [b"completions", b"broken", b"split", b"late", b"hang", b"push-hang", b"push-defect", b"push-unwritable"],
)
@pytest.mark.parametrize("leaves", [False, True], ids=["stays", "leaves"])
def test_a_request_that_ended_is_freed_without_the_garbage_collector(path: bytes, leaves: bool) -> None:
    async def work(port: int, traffic: Traffic, echo: Echo) -> None:
        gc.disable()
        logging.disable()  # pytest keeps records, and they their exceptions
        try:
            if leaves:
                with socket.create_connection(("127.0.0.1", port)) as raw:
                    raw.sendall(ASK.replace(b"completions", path))
                    while not echo.held:
                        await asyncio.sleep(0.01)
            else:
                await sent(port, ASK.replace(b"completions", path))
            for _ in range(500):
                if echo.held[0]() is None:
                    return
                await asyncio.sleep(0.01)
            raise AssertionError(f"held by {gc.get_referrers(echo.held[0]())}")
        finally:
            gc.enable()
            logging.disable(logging.NOTSET)

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

    with_listener(work)


def test_an_answer_before_the_body_has_come_says_that_the_connection_closes() -> None:
    """A client that keeps its connection sends its next request on another one."""
    ask = ASK.replace(b"completions", b"unread")

    async def work(port: int, *_: object) -> None:
        assert b"connection: close" in await sent(port, ask.removesuffix(BODY))
        assert b"connection: close" not in await sent(port, ask)

    with_listener(work)


def test_a_body_that_does_not_come_is_408_and_a_stream_without_end_is_cut() -> None:
    async def work(port: int, *_: object) -> None:
        assert (await sent(port, ASK[:-5], answers=2)).split()[1] == b"408"
        for path in (b"hang", b"push-hang"):
            came = await sent(port, ASK.replace(b"completions", path))
            assert came.endswith(b"data: 2\n\n\r\n")

    with_listener(work)


def test_only_running_requests_are_answered_during_a_stop() -> None:
    async def serve() -> None:
        listener = Listener(Echo(), "main", SECONDS)
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

    run(serve())
