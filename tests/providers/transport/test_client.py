"""The direct transport reads every way in which an answer may be framed, however it is cut, and believes nothing doubtful."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.errors import TransportError
from antiphon.providers.transport.client import HttpClient
from antiphon.providers.transport.request import HttpRequest, Timeouts

WORDS = b"data: one\n\ndata: two\n\n"
LENGTH = b"content-length: %d\r\n" % len(WORDS)
OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
CHUNKS = b"b\r\ndata: one\n\n\r\n0B;x=y\r\ndata: two\n\n\r\n"
WHOLE = {
    "a length": OK + LENGTH + b"\r\n" + WORDS,
    "chunks": CHUNKED + CHUNKS + b"0\r\n\r\n",
    "chunks with trailers": CHUNKED + CHUNKS + b"0\r\nx-sum: 1\r\nx-more: 2\r\n\r\n",
    "a word before": b"HTTP/1.1 103 Early Hints\r\nlink: a\r\n\r\n" + OK + LENGTH + b"\r\n" + WORDS,
    "no reason": b"HTTP/1.1 200\r\n" + LENGTH + b"\r\n" + WORDS,
}
PACKED = gzip.compress(WORDS)


class Host:
    """A host that says the next of its answers for each request, in pieces, and then waits or closes. None: it closes."""

    def __init__(self, *answers: Sequence[bytes] | None, closes: bool = False) -> None:
        self.asked: list[bytes] = []
        self.connections = 0
        self.gone = asyncio.Event()
        self._answers = list(answers)
        self._closes = closes

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
                self.asked.append(head + await reader.readexactly(length))
                answer = self._answers.pop(0) if self._answers else ()
                for piece in answer or ():
                    writer.write(piece)
                    await asyncio.sleep(0)
                if self._closes or answer is None:
                    break
        except asyncio.IncompleteReadError:
            self.gone.set()
        finally:
            writer.close()


@asynccontextmanager
async def running(host: Host) -> AsyncIterator[tuple[HttpClient, str]]:
    server = await asyncio.start_server(host.serve, "127.0.0.1", 0)
    transport = HttpClient({})
    try:
        yield transport, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1/chat"
    finally:
        await transport.aclose()
        server.close()
        await asyncio.sleep(0)
        await asyncio.sleep(0)


def with_host(host: Callable[[], Host], work: Callable[[HttpClient, str, Host], Awaitable[None]]) -> None:
    async def run() -> None:
        made = host()
        async with running(made) as (transport, url):
            await work(transport, url, made)

    asyncio.run(run())


async def asked(transport: HttpClient, url: str, timeouts: Timeouts | None = None) -> tuple[int, bytes]:
    request = HttpRequest(url=url, headers={"x-a": "b"}, body=(b"{", b"}"), timeouts=timeouts or Timeouts(read=20))
    response = await transport.send(request)
    return response.status, b"".join([piece async for piece in response.body])


@pytest.mark.parametrize("name", WHOLE)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_an_answer_does_not_depend_on_chunking(name: str, data: st.DataObject) -> None:
    response_bytes = WHOLE[name]
    cuts = sorted({0, len(response_bytes), *data.draw(st.lists(st.integers(0, len(response_bytes)), max_size=8))})
    pieces = [response_bytes[start:end] for start, end in pairwise(cuts)]

    async def work(transport: HttpClient, url: str, host: Host) -> None:
        assert await asked(transport, url) == (200, WORDS)
        assert await asked(transport, url) == (200, WORDS)
        assert host.connections == 1  # the connection was used again

    with_host(lambda: Host(pieces, pieces), work)


@pytest.mark.parametrize(
    ("response_bytes", "body", "is_kept"),
    [
        (OK + b"\r\n" + WORDS, WORDS, False),
        (b"HTTP/1.0 200 OK\r\n" + LENGTH + b"\r\n" + WORDS, WORDS, False),
        (OK + LENGTH + b"connection: close\r\n\r\n" + WORDS, WORDS, False),
        (OK + LENGTH + b"\r\n" + WORDS + b"HTTP/1.1 200 OK\r\n", WORDS, False),
        (CHUNKED + CHUNKS + b"0\r\n\r\nHTTP/1.1", WORDS, False),
        (OK + b"content-encoding: gzip\r\ncontent-length: %d\r\n\r\n" % len(PACKED) + PACKED, WORDS, True),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b"", True),
        (OK + b"content-length: 0\r\n\r\n", b"", True),
    ],
    ids=["to the end", "old", "closing", "more after the body", "more after chunks", "packed", "nothing", "empty"],
)
def test_other_ways_to_frame_an_answer(response_bytes: bytes, body: bytes, is_kept: bool) -> None:
    async def work(transport: HttpClient, url: str, host: Host) -> None:
        assert (await asked(transport, url))[1] == body
        assert (await asked(transport, url))[1] == body
        assert host.connections == (1 if is_kept else 2)

    with_host(lambda: Host([response_bytes], [response_bytes], closes=response_bytes.startswith(OK + b"\r\n")), work)


MALFORMED = {
    "no HTTP": b"SSH-2.0-OpenSSH\r\n\r\n",
    "length and chunks": OK + LENGTH + b"transfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "two lengths": OK + LENGTH + b"content-length: 5\r\n\r\n" + WORDS,
    "a length with a sign": OK + b"content-length: +5\r\n\r\n" + WORDS,
    "another coding": OK + b"transfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "another packing": OK + b"content-encoding: br\r\n" + LENGTH + b"\r\n" + WORDS,
    "a folded field": OK + LENGTH + b"x-a: b\r\n c\r\n\r\n" + WORDS,
    "a field without a name": OK + LENGTH + b": b\r\n\r\n" + WORDS,
    "a chunk of no size": CHUNKED + b"zz\r\n",
    "a chunk with a sign": CHUNKED + b"+5\r\nhello\r\n0\r\n\r\n",
    "a chunk that is too long": CHUNKED + b"2\r\nhello\r\n0\r\n\r\n",
    "not packed": OK + b"content-encoding: gzip\r\n" + LENGTH + b"\r\n" + WORDS,
    "a head without end": OK + b"x-a: " + b"a" * 70_000,
    "a space before the colon": OK + b"Content-Length : 2\r\n\r\n{}",
    "packed and cut": OK + b"content-encoding: gzip\r\ncontent-length: 20\r\n\r\n" + PACKED[:20],
    "packed and damaged at the end": OK
    + b"content-encoding: gzip\r\ncontent-length: %d\r\n\r\n" % (len(PACKED) + 4)
    + PACKED
    + b"more",
}


@pytest.mark.parametrize("name", MALFORMED)
def test_an_ambiguous_response_is_refused_and_closes_the_connection(name: str) -> None:
    async def work(transport: HttpClient, url: str, host: Host) -> None:
        with pytest.raises(TransportError) as caught:
            await asked(transport, url)
        assert caught.value.code == "not_http"
        await asyncio.wait_for(host.gone.wait(), 10)

    with_host(lambda: Host([MALFORMED[name]]), work)


@pytest.mark.parametrize("response_bytes", [b"", OK, OK + LENGTH + b"\r\n" + WORDS[:5], CHUNKED + CHUNKS])
def test_a_truncated_answer_is_reported_as_truncated(response_bytes: bytes) -> None:
    async def work(transport: HttpClient, url: str, _: Host) -> None:
        with pytest.raises(TransportError) as caught:
            await asked(transport, url)
        assert caught.value.code == "connection_lost"
        assert ("before the response ended" in str(caught.value)) is (b"\r\n\r\n" in response_bytes)

    with_host(lambda: Host([response_bytes], closes=True), work)


@pytest.mark.parametrize("response_bytes", [b"", CHUNKED + CHUNKS])
def test_a_host_that_is_silent_is_not_waited_for(response_bytes: bytes) -> None:
    async def work(transport: HttpClient, url: str, host: Host) -> None:
        for code, timeouts in {"read_timeout": Timeouts(read=0.05), "total_timeout": Timeouts(total=0.05)}.items():
            with pytest.raises(TransportError) as caught:
                await asked(transport, url, timeouts)
            assert caught.value.code == code
        await asyncio.wait_for(host.gone.wait(), 10)

    with_host(lambda: Host([response_bytes], [response_bytes]), work)


def test_what_is_sent_is_one_message_with_what_was_given() -> None:
    async def work(transport: HttpClient, url: str, host: Host) -> None:
        await asked(transport, url)
        head, body = host.asked[0].split(b"\r\n\r\n")
        assert head.startswith(b"POST /v1/chat HTTP/1.1\r\nhost: 127.0.0.1:")
        assert b"\r\nx-a: b\r\n" in head + b"\r\n"
        assert b"accept-encoding: identity" in head
        assert body == b"{}"
        for value in ("b\r\nx-evil: 1", "b\0"):
            with pytest.raises(TransportError):
                await transport.send(HttpRequest(url=url, headers={"x-a": value}))
        assert len(host.asked) == 1

    with_host(lambda: Host([WHOLE["a length"]]), work)


def test_letting_go_of_an_answer_closes_its_connection() -> None:
    async def work(transport: HttpClient, url: str, host: Host) -> None:
        response = await transport.send(HttpRequest(url=url))
        assert await anext(response.body) == WORDS
        waiting = asyncio.ensure_future(anext(response.body))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        await response.aclose()
        await asyncio.wait_for(host.gone.wait(), 10)

    with_host(lambda: Host([CHUNKED + CHUNKS]), work)


def test_refused_connections_and_unknown_hosts() -> None:
    async def run() -> None:
        transport = HttpClient({})
        for url, code in {
            "http://127.0.0.1:1/v1": "connection_failed",
            "http://unknown.invalid/v1": "dns_failed",
        }.items():
            with pytest.raises(TransportError) as caught:
                await transport.send(HttpRequest(url=url))
            assert caught.value.code == code
        await transport.aclose()

    asyncio.run(run())


def test_more_than_is_taken_is_not_read() -> None:
    body = b"x" * 3_000_000

    async def work(transport: HttpClient, url: str, _: Host) -> None:
        response = await transport.send(HttpRequest(url=url))
        await asyncio.sleep(0.1)
        first = await anext(response.body)
        assert len(first) < 1_000_000
        assert first + b"".join([piece async for piece in response.body]) == body

    with_host(lambda: Host([OK + b"content-length: 3000000\r\n\r\n", body]), work)
