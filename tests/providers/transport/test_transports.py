"""What both transports do in the same way: lost idle connections, malformed heads, compressed bodies."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from collections.abc import Awaitable, Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.errors import TransportError
from antiphon.providers.transport.client import HttpClient
from antiphon.providers.transport.decompress import Decompressor, MalformedBody
from antiphon.providers.transport.request import HttpRequest, Timeouts, Transport
from providers.transport.test_client import LENGTH, OK, WORDS, Host

TRANSPORTS: dict[str, Callable[[], Transport]] = {
    "direct": lambda: HttpClient({}),
}
both = pytest.mark.parametrize("name", TRANSPORTS)
WHOLE = OK + LENGTH + b"\r\n" + WORDS


def with_host(name: str, host: Callable[[], Host], work: Callable[[Transport, str, Host], Awaitable[None]]) -> None:
    async def run() -> None:
        made = host()
        server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
        transport = TRANSPORTS[name]()
        try:
            await work(transport, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1/chat", made)
        finally:
            await transport.aclose()
            server.close()

    asyncio.run(run())


async def asked(transport: Transport, url: str) -> bytes:
    response = await transport.send(HttpRequest(url=url, body=(b"{}",), timeouts=Timeouts(read=20)))
    return b"".join([piece async for piece in response.body])


@both
def test_a_lost_idle_connection_is_replaced_once(name: str) -> None:
    async def work(transport: Transport, url: str, host: Host) -> None:
        assert await asked(transport, url) == WORDS
        assert await asked(transport, url) == WORDS  # the host closed the first connection when it came
        assert (host.connections, len(host.asked)) == (2, 3)

    with_host(name, lambda: Host([WHOLE], None, [WHOLE]), work)


@both
def test_a_host_that_closes_new_connections_is_asked_once(name: str) -> None:
    async def work(transport: Transport, url: str, host: Host) -> None:
        with pytest.raises(TransportError) as caught:
            await asked(transport, url)
        assert caught.value.code == "connection_lost"
        assert len(host.asked) == 1
        assert await asked(transport, url) == WORDS
        with pytest.raises(TransportError):  # the idle one and the new one that replaces it
            await asked(transport, url)
        assert len(host.asked) == 4

    with_host(name, lambda: Host(None, [WHOLE], None, None), work)


@both
def test_an_answer_that_breaks_off_on_an_idle_connection_is_not_asked_for_again(name: str) -> None:
    async def work(transport: Transport, url: str, host: Host) -> None:
        assert await asked(transport, url) == WORDS
        with pytest.raises(TransportError):
            await asked(transport, url)
        assert len(host.asked) == 2

    class Cutting(Host):
        async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self._closes = False
            await super().serve(reader, _Closing(writer, self))  # type: ignore[arg-type]

    class _Closing:
        """Closes after the beginning of the second answer."""

        def __init__(self, writer: asyncio.StreamWriter, host: Host) -> None:
            self._writer, self._host = writer, host

        def write(self, data: bytes) -> None:
            if len(self._host.asked) == 1:
                self._writer.write(data)
            else:
                self._writer.write(data[: len(data) - 5])
                self._host._closes = True

        def close(self) -> None:
            self._writer.close()

    with_host(name, lambda: Cutting([WHOLE], [WHOLE]), work)


def test_a_space_before_the_colon_is_a_clear_error() -> None:
    async def work(transport: Transport, url: str, _: Host) -> None:
        with pytest.raises(TransportError, match=r"malformed HTTP response from 127.*: invalid header field char"):
            await asked(transport, url)

    with_host("direct", lambda: Host([OK + b"Content-Length : 2\r\n\r\n{}"]), work)


def packed(body: bytes) -> bytes:
    return OK + b"content-encoding: gzip\r\ncontent-length: %d\r\n\r\n" % len(body) + body


@both
def test_every_member_of_a_gzip_body_is_read(name: str) -> None:
    members = gzip.compress(WORDS[:11]) + gzip.compress(b"") + gzip.compress(WORDS[11:])

    async def work(transport: Transport, url: str, _: Host) -> None:
        assert await asked(transport, url) == WORDS

    with_host(name, lambda: Host([packed(members)]), work)


@both
@pytest.mark.parametrize(
    "body",
    [gzip.compress(WORDS)[:-3], gzip.compress(WORDS) + b"more", gzip.compress(bytes(80 * 1024 * 1024))],
    ids=["cut", "more after it", "bomb"],
)
def test_a_compressed_body_that_cannot_be_right_is_malformed(name: str, body: bytes) -> None:
    async def work(transport: Transport, url: str, _: Host) -> None:
        with pytest.raises(TransportError, match="malformed HTTP response") as caught:
            await asked(transport, url)
        assert caught.value.code == "not_http"

    with_host(name, lambda: Host([packed(body)]), work)


@given(st.lists(st.binary(max_size=300), max_size=4), st.lists(st.integers(0, 2000), max_size=6))
def test_members_may_be_cut_anywhere(members: list[bytes], cuts: list[int]) -> None:
    data = b"".join(map(gzip.compress, members))
    places = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    decompressor = Decompressor("gzip")
    decompressed = b"".join(decompressor.feed(data[start:end]) for start, end in pairwise(places))
    decompressor.close()
    assert decompressed == b"".join(members)


def test_the_whole_is_bounded_and_deflate_has_one_member() -> None:
    bounded = Decompressor("gzip", max_total=1000)
    assert len(bounded.feed(gzip.compress(bytes(600)))) == 600
    with pytest.raises(MalformedBody, match="too large"):
        bounded.feed(gzip.compress(bytes(600)))
    deflate = Decompressor("deflate")
    assert deflate.feed(zlib.compress(WORDS)) == WORDS
    with pytest.raises(MalformedBody, match="after the compressed body"):
        deflate.feed(zlib.compress(WORDS))
    with pytest.raises(MalformedBody, match="not supported"):
        Decompressor("br")
