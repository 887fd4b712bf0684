"""The HTTP client: framing, reuse of connections, timeouts, lost connections; on asyncio's event loop and on uvloop."""

from __future__ import annotations

import asyncio
import gc
import gzip
import socket
import struct
import weakref
from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.errors import TransportError
from antiphon.http.client import connection as connection_module
from antiphon.http.client.client import HttpClient
from antiphon.http.client.dial import dial
from antiphon.http.client.request import HttpRequest, Timeouts
from http_ends.client.raw_host import CONTENT, LENGTH, LOOPS, OK, WHOLE, RawHost, run_on, send, with_host
from support.examples import scaled

CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
CHUNKS = b"b\r\ndata: one\n\n\r\n0B;x=y\r\ndata: two\n\n\r\n"
FRAMED = {
    "length": WHOLE,
    "chunks": CHUNKED + CHUNKS + b"0\r\n\r\n",
    "chunks with trailers": CHUNKED + CHUNKS + b"0\r\nx-sum: 1\r\nx-more: 2\r\n\r\n",
    "interim response": b"HTTP/1.1 103 Early Hints\r\nlink: a\r\n\r\n" + WHOLE,
    "no reason phrase": b"HTTP/1.1 200\r\n" + LENGTH + b"\r\n" + CONTENT,
}
PACKED = gzip.compress(CONTENT)
Work = Callable[[HttpClient, str, RawHost], Awaitable[None]]
both_loops = pytest.mark.parametrize("loop", LOOPS)


def run(host: Callable[[], RawHost], work: Work, loop: str = "asyncio") -> None:
    async def body() -> None:
        await with_host(host(), work)

    run_on(loop, body())


@pytest.mark.parametrize("name", FRAMED)
@settings(max_examples=scaled(10), deadline=None)
@given(data=st.data())
def test_a_response_is_the_same_however_it_is_cut(name: str, data: st.DataObject) -> None:
    response = FRAMED[name]
    cuts = sorted({0, len(response), *data.draw(st.lists(st.integers(0, len(response)), max_size=8))})
    pieces = [response[start:end] for start, end in pairwise(cuts)]

    async def work(client: HttpClient, url: str, host: RawHost) -> None:
        assert await send(client, url) == (200, CONTENT)
        assert await send(client, url) == (200, CONTENT)
        assert host.connections == 1  # the connection was reused

    run(lambda: RawHost(pieces, pieces), work)


@both_loops
@pytest.mark.parametrize(
    ("response", "body", "is_reused"),
    [
        (OK + b"\r\n" + CONTENT, CONTENT, False),
        (b"HTTP/1.0 200 OK\r\n" + LENGTH + b"\r\n" + CONTENT, CONTENT, False),
        (b"HTTP/1.0 200 OK\r\nconnection: keep-alive\r\n" + LENGTH + b"\r\n" + CONTENT, CONTENT, True),
        (OK + LENGTH + b"connection: close\r\n\r\n" + CONTENT, CONTENT, False),
        (WHOLE + b"HTTP/1.1 200 OK\r\n", CONTENT, False),
        (CHUNKED + CHUNKS + b"0\r\n\r\nHTTP/1.1", CONTENT, False),
        (WHOLE + WHOLE, CONTENT, False),
        (CHUNKED + CHUNKS + b"0\r\n\r\n" + WHOLE, CONTENT, False),
        (b"HTTP/1.1 204 No Content\r\n\r\n" + WHOLE, b"", False),
        (OK + b"content-encoding: gzip\r\ncontent-length: %d\r\n\r\n" % len(PACKED) + PACKED, CONTENT, True),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b"", True),
        (OK + b"content-length: 0\r\n\r\n", b"", True),
        (OK + b"keep-alive: timeout=20, max=3\r\n" + LENGTH + b"\r\n" + CONTENT, CONTENT, True),
        (OK + b"keep-alive: timeout=1\r\n" + LENGTH + b"\r\n" + CONTENT, CONTENT, False),
    ],
    ids=[
        "until the connection ends",
        "HTTP/1.0",
        "HTTP/1.0 with keep-alive",
        "connection: close",
        "bytes after a length",
        "bytes after chunks",
        "a second response after a length",
        "a second response after chunks",
        "a second response after one without content",
        "gzip",
        "no content",
        "empty",
        "long keep-alive",
        "short keep-alive",
    ],
)
def test_a_connection_is_reused_only_if_it_can_be(loop: str, response: bytes, body: bytes, is_reused: bool) -> None:
    async def work(client: HttpClient, url: str, host: RawHost) -> None:
        assert (await send(client, url))[1] == body
        assert (await send(client, url))[1] == body
        assert host.connections == (1 if is_reused else 2)

    run(lambda: RawHost([response], [response], closes=response.startswith(OK + b"\r\n")), work, loop)


MALFORMED = {
    "not HTTP": b"SSH-2.0-OpenSSH\r\n\r\n",
    "another protocol": b"RTSP/1.0 200 OK\r\n" + LENGTH + b"\r\n" + CONTENT,
    "HTTP/2.0": b"HTTP/2.0 200 OK\r\n" + LENGTH + b"\r\n" + CONTENT,
    "status below 100": b"HTTP/1.1 099 No\r\n" + LENGTH + b"\r\n" + CONTENT,
    "switching protocols": b"HTTP/1.1 101 Switching\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n",
    "line feeds only": b"HTTP/1.1 200 OK\ncontent-length: 2\n\n{}",
    "length and chunks": OK + LENGTH + b"transfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "two lengths": OK + LENGTH + b"content-length: 5\r\n\r\n" + CONTENT,
    "a length twice": OK + LENGTH + LENGTH + b"\r\n" + CONTENT,
    "a length with a sign": OK + b"content-length: +5\r\n\r\n" + CONTENT,
    "a length beyond 64 bits": OK + b"content-length: 99999999999999999999\r\n\r\n",
    "another transfer encoding": OK + b"transfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "chunked twice": OK + b"transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "another content encoding": OK + b"content-encoding: br\r\n" + LENGTH + b"\r\n" + CONTENT,
    "a folded header": OK + LENGTH + b"x-a: b\r\n c\r\n\r\n" + CONTENT,
    "a header without a name": OK + LENGTH + b": b\r\n\r\n" + CONTENT,
    "a header with a zero byte": OK + LENGTH + b"x-a: b\0\r\n\r\n" + CONTENT,
    "an invalid chunk size": CHUNKED + b"zz\r\n",
    "a chunk size with a sign": CHUNKED + b"+5\r\nhello\r\n0\r\n\r\n",
    "a chunk size beyond 64 bits": CHUNKED + b"FFFFFFFFFFFFFFFFFF\r\n",
    "a chunk longer than its size": CHUNKED + b"2\r\nhello\r\n0\r\n\r\n",
    "not gzip": OK + b"content-encoding: gzip\r\n" + LENGTH + b"\r\n" + CONTENT,
    "headers without end": OK + b"x-a: " + b"a" * 70_000,
    "too many headers": OK + b"x-a: b\r\n" * 10_000,
    "interim responses without end": b"HTTP/1.1 103 Early Hints\r\nlink: a\r\n\r\n" * 5_000,
    "trailers without end": CHUNKED + b"0\r\nx-a: " + b"a" * 600_000,
    "a space before the colon": OK + b"Content-Length : 2\r\n\r\n{}",
    "gzip, truncated": OK + b"content-encoding: gzip\r\ncontent-length: 20\r\n\r\n" + PACKED[:20],
    "gzip with bytes after it": OK
    + b"content-encoding: gzip\r\ncontent-length: %d\r\n\r\n" % (len(PACKED) + 4)
    + PACKED
    + b"more",
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_response_is_an_error_and_is_not_requested_again(name: str) -> None:
    async def work(client: HttpClient, url: str, host: RawHost) -> None:
        with pytest.raises(TransportError, match="malformed HTTP response") as caught:
            await send(client, url)
        assert caught.value.code == "not_http"
        await asyncio.wait_for(host.gone.wait(), 10)
        assert len(host.requests) == 1

    run(lambda: RawHost([MALFORMED[name]]), work)


def test_a_malformed_response_on_a_reused_connection_is_not_requested_again() -> None:
    async def work(client: HttpClient, url: str, host: RawHost) -> None:
        assert await send(client, url) == (200, CONTENT)
        with pytest.raises(TransportError) as caught:
            await send(client, url)
        assert caught.value.code == "not_http"
        assert len(host.requests) == 2

    run(lambda: RawHost([WHOLE], [MALFORMED["not HTTP"]], [WHOLE]), work)


def test_a_space_before_the_colon_is_named() -> None:
    async def work(client: HttpClient, url: str, _: RawHost) -> None:
        with pytest.raises(TransportError, match=r"malformed HTTP response from 127.*: invalid header field char"):
            await send(client, url)

    run(lambda: RawHost([MALFORMED["a space before the colon"]]), work)


@both_loops
@pytest.mark.parametrize("response", [b"", OK, OK + LENGTH + b"\r\n" + CONTENT[:5], CHUNKED + CHUNKS])
def test_a_truncated_response_is_a_lost_connection(loop: str, response: bytes) -> None:
    async def work(client: HttpClient, url: str, _: RawHost) -> None:
        with pytest.raises(TransportError) as caught:
            await send(client, url)
        assert caught.value.code == "connection_lost"
        assert ("before the response ended" in str(caught.value)) is (b"\r\n\r\n" in response)

    run(lambda: RawHost([response], closes=True), work, loop)


@both_loops
@pytest.mark.parametrize("response", [b"", CHUNKED + CHUNKS])
def test_a_silent_host_times_out(loop: str, response: bytes) -> None:
    async def work(client: HttpClient, url: str, host: RawHost) -> None:
        for code, timeouts in {"read_timeout": Timeouts(read=0.05), "total_timeout": Timeouts(total=0.05)}.items():
            with pytest.raises(TransportError) as caught:
                await send(client, url, timeouts)
            assert caught.value.code == code
        await asyncio.wait_for(host.gone.wait(), 10)

    run(lambda: RawHost([response], [response]), work, loop)


def test_the_request_has_the_given_headers_and_body() -> None:
    async def work(client: HttpClient, url: str, host: RawHost) -> None:
        await send(client, url)
        head, body = host.requests[0].split(b"\r\n\r\n")
        assert head.startswith(b"POST /v1/chat HTTP/1.1\r\nhost: 127.0.0.1:")
        assert b"\r\nx-a: b\r\n" in head + b"\r\n"
        assert b"accept-encoding: identity" in head
        assert body == b"{}"

    run(lambda: RawHost([WHOLE]), work)


def test_headers_that_would_split_the_request_are_refused() -> None:
    async def work(client: HttpClient, url: str, host: RawHost) -> None:
        for headers in ({"x-a": "b\r\nx-evil: 1"}, {"x-a": "b\0"}, {"x-a\r\nx-evil": "1"}):
            with pytest.raises(TransportError, match="contains characters that HTTP does not allow"):
                await client.send(HttpRequest(url=url, headers=headers))
        for headers in ({"host": "a\r\nx-evil: 1"}, {"Host": "a\nb"}):
            with pytest.raises(TransportError):
                await client.send(HttpRequest(url=url, headers=headers))
        assert host.requests == []

    run(lambda: RawHost([WHOLE]), work)


def test_headers_of_the_caller_replace_ours_and_never_the_length() -> None:
    async def work(client: HttpClient, url: str, host: RawHost) -> None:
        headers = {"User-Agent": "mine", "Content-Length": "999", "Host": "named.test", "Accept-Encoding": "gzip"}
        await client.send(HttpRequest(url=url, headers=headers, body=(b"{}",)))
        head = host.requests[0].lower()
        for name in (
            b"user-agent: mine\r\n",
            b"content-length: 2\r\n",
            b"host: named.test\r\n",
            b"accept-encoding: gzip\r\n",
        ):
            assert head.count(name) == head.count(name.split(b" ")[0]) == 1

    run(lambda: RawHost([WHOLE]), work)


@pytest.mark.parametrize(
    ("written", "sent"),
    [("/a b?q=ä&x=%20", b"/a%20b?q=%C3%A4&x=%20"), ("", b"/"), ("?a=1", b"/?a=1"), ("/a#part", b"/a")],
)
def test_a_path_is_sent_as_http_allows(written: str, sent: bytes) -> None:
    async def work(client: HttpClient, url: str, host: RawHost) -> None:
        await client.send(HttpRequest(url=url.removesuffix("/v1/chat") + written, method="GET"))
        assert host.requests[0].startswith(b"GET " + sent + b" HTTP/1.1\r\n")
        assert b"content-length" not in host.requests[0]

    run(lambda: RawHost([WHOLE]), work)


@pytest.mark.parametrize(
    "url", ["http://[", "http://", "http:///x", "ftp://host/", "http://me:word@host/", "http://a b/"]
)
def test_an_invalid_url_is_refused(url: str) -> None:
    async def work() -> None:
        with pytest.raises(TransportError) as caught:
            await HttpClient({}).send(HttpRequest(url=url))
        assert caught.value.code == "invalid_url"

    run_on("asyncio", work())


def test_closing_a_response_early_closes_its_connection() -> None:
    async def work(client: HttpClient, url: str, host: RawHost) -> None:
        response = await client.send(HttpRequest(url=url))
        assert await anext(response) == CONTENT
        waiting = asyncio.ensure_future(anext(response))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        response.abort()
        await asyncio.wait_for(host.gone.wait(), 10)

    run(lambda: RawHost([CHUNKED + CHUNKS]), work)


@both_loops
def test_no_host_and_no_such_name(loop: str) -> None:
    async def work() -> None:
        client = HttpClient({})
        for url, code in {
            "http://127.0.0.1:1/v1": "connection_failed",
            "http://unknown.invalid/v1": "dns_failed",
        }.items():
            with pytest.raises(TransportError) as caught:
                await client.send(HttpRequest(url=url))
            assert caught.value.code == code
        await client.aclose()

    run_on(loop, work())


@both_loops
def test_reading_pauses_while_the_body_is_not_taken(loop: str) -> None:
    body = b"x" * 3_000_000

    async def work(client: HttpClient, url: str, _: RawHost) -> None:
        response = await client.send(HttpRequest(url=url))
        await asyncio.sleep(0.1)
        first = await anext(response)
        assert len(first) < 1_000_000
        assert first + b"".join([piece async for piece in response]) == body

    run(lambda: RawHost([OK + b"content-length: 3000000\r\n\r\n", body]), work, loop)


@both_loops
def test_a_lost_idle_connection_is_replaced_once(loop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "RESEND_SECONDS", 10.0)  # a busy machine notices an end late

    async def work(client: HttpClient, url: str, host: RawHost) -> None:
        assert (await send(client, url))[1] == CONTENT
        assert (await send(client, url))[1] == CONTENT  # the host closed the first connection when this request came
        assert (host.connections, len(host.requests)) == (2, 3)

    run(lambda: RawHost([WHOLE], None, [WHOLE]), work, loop)


def test_a_new_connection_that_is_closed_is_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "RESEND_SECONDS", 10.0)

    async def work(client: HttpClient, url: str, host: RawHost) -> None:
        with pytest.raises(TransportError) as caught:
            await send(client, url)
        assert caught.value.code == "connection_lost"
        assert len(host.requests) == 1
        assert (await send(client, url))[1] == CONTENT
        with pytest.raises(TransportError):  # the idle one, and the new one that replaces it
            await send(client, url)
        assert len(host.requests) == 4

    run(lambda: RawHost(None, [WHOLE], None, None), work)


@both_loops
def test_a_new_connection_that_is_lost_before_the_request_is_written_is_an_error(
    loop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lose(*given: Any, **settings: Any) -> Any:
        connection: Any = await dial(*given, **settings)
        connection.transport.abort()
        await asyncio.sleep(0.01)
        return connection

    monkeypatch.setattr("antiphon.http.client.client.dial", lose)

    async def work(client: HttpClient, url: str, _: RawHost) -> None:
        with pytest.raises(TransportError) as caught:
            await asyncio.wait_for(send(client, url), 10)
        assert caught.value.code == "connection_lost"
        assert repr(client) == "<HttpClient with 0 connections>"

    run(lambda: RawHost([WHOLE]), work, loop)


def test_a_response_that_is_truncated_on_a_reused_connection_is_not_requested_again() -> None:
    async def work(client: HttpClient, url: str, host: RawHost) -> None:
        assert (await send(client, url))[1] == CONTENT
        host.closes = True
        with pytest.raises(TransportError):
            await send(client, url)
        assert len(host.requests) == 2

    run(lambda: RawHost([WHOLE], [WHOLE[:-5]]), work)


@both_loops
def test_a_reset_is_not_the_end_of_a_body(loop: str) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(OK + b"\r\n" + CONTENT)  # it ends with its connection
        await writer.drain()
        await has_read.wait()
        sock: socket.socket = writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()

    async def work() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        client = HttpClient({})
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1/chat"
        response = await client.send(HttpRequest(url=url, method="GET"))
        assert await anext(response) == CONTENT
        has_read.set()
        with pytest.raises(TransportError) as caught:
            await anext(response)
        assert caught.value.code == "connection_lost"
        await client.aclose()
        server.close()

    has_read = asyncio.Event()
    run_on(loop, work())


def test_an_idle_connection_is_closed_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "IDLE_SECONDS", 0.05)

    async def work(client: HttpClient, url: str, host: RawHost) -> None:
        await send(client, url)
        await asyncio.wait_for(host.gone.wait(), 10)
        assert repr(client) == "<HttpClient with 0 connections>"

    run(lambda: RawHost([WHOLE]), work)


def test_a_connection_is_not_reused_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "MAX_AGE_SECONDS", 0.0)

    async def work(client: HttpClient, url: str, host: RawHost) -> None:
        await send(client, url)
        await send(client, url)
        assert host.connections == 2

    run(lambda: RawHost([WHOLE], [WHOLE]), work)


def test_a_response_to_head_has_no_body() -> None:
    async def work(client: HttpClient, url: str, _: RawHost) -> None:
        response = await client.send(HttpRequest(url=url, method="HEAD"))
        assert response.headers["content-length"] == str(len(CONTENT))
        assert [piece async for piece in response] == []

    run(lambda: RawHost([OK + LENGTH + b"\r\n"]), work)


class Body:
    """A request body that shows whether it is still alive."""

    def __init__(self) -> None:
        self.pieces = [b"{", b"}"]

    def __len__(self) -> int:
        return len(self.pieces)

    def __iter__(self) -> object:
        return iter(self.pieces)

    def __getitem__(self, index: int) -> bytes:
        return self.pieces[index]


@pytest.mark.parametrize(
    "answer", [None, [MALFORMED["not HTTP"]], [CHUNKED + CHUNKS], "refused", "no such name", "TLS"], ids=str
)
def test_a_failed_request_is_freed_without_the_garbage_collector(answer: object) -> None:
    places = {"refused": "http://127.0.0.1:1/", "no such name": "http://unknown.invalid/"}

    async def work(client: HttpClient, url: str, _: RawHost) -> None:
        where = url.replace("http:", "https:") if answer == "TLS" else places.get(str(answer), url)

        async def fail() -> weakref.ref[Body]:
            body = Body()
            request = HttpRequest(url=where, body=body, timeouts=Timeouts(connect=1, read=0.05))  # type: ignore[arg-type]
            try:
                response = await client.send(request)
                async for _ in response:
                    pass
            except TransportError:
                pass
            return weakref.ref(body)

        gc.collect()
        gc.disable()
        try:
            alive = await asyncio.ensure_future(fail())
            await asyncio.sleep(0)
            assert alive() is None
        finally:
            gc.enable()

    run(lambda: RawHost(answer if isinstance(answer, list) else None), work)


def compressed(body: bytes) -> bytes:
    return OK + b"content-encoding: gzip\r\ncontent-length: %d\r\n\r\n" % len(body) + body


def test_every_member_of_a_gzip_body_is_read() -> None:
    members = gzip.compress(CONTENT[:11]) + gzip.compress(b"") + gzip.compress(CONTENT[11:])

    async def work(client: HttpClient, url: str, _: RawHost) -> None:
        assert (await send(client, url))[1] == CONTENT

    run(lambda: RawHost([compressed(members)]), work)


def test_a_gzip_bomb_is_refused() -> None:
    async def work(client: HttpClient, url: str, _: RawHost) -> None:
        with pytest.raises(TransportError, match="the decompressed body is too large"):
            await send(client, url)

    run(lambda: RawHost([compressed(gzip.compress(bytes(80 * 1024 * 1024)))]), work)
