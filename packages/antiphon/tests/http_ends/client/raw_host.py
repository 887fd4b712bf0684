"""A host that answers each request with given bytes, and a way to run a client against it on either event loop."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

import uvloop

from antiphon.http.client.client import HttpClient
from antiphon.http.client.request import HttpRequest, Timeouts

CONTENT = b"data: one\n\ndata: two\n\n"
OK = b"HTTP/1.1 200 OK\r\n"
LENGTH = b"content-length: %d\r\n" % len(CONTENT)
WHOLE = OK + LENGTH + b"\r\n" + CONTENT
LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}


def run_on(loop: str, work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine on one of `LOOPS`; a test that hangs fails."""
    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(asyncio.wait_for(work, 60))


class RawHost:
    """Sends the next of its answers, in pieces, for each request; then it waits, or closes. An answer of None: it closes."""

    def __init__(self, *answers: Sequence[bytes] | None, closes: bool = False) -> None:
        self.requests: list[bytes] = []
        self.connections = 0
        self.gone = asyncio.Event()
        self.closes = closes
        self._answers = list(answers)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0]
                self.requests.append(head + await reader.readexactly(int(length or 0)))
                answer = self._answers.pop(0) if self._answers else ()
                for piece in answer or ():
                    writer.write(piece)
                    await asyncio.sleep(0)
                if self.closes or answer is None:
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            self.gone.set()
        finally:
            writer.close()


async def with_host(
    host: RawHost,
    work: Callable[[HttpClient, str, RawHost], Awaitable[None]],
    *,
    client: HttpClient | None = None,
    address: str = "127.0.0.1",
    tls: ssl.SSLContext | None = None,
) -> None:
    """Run `work` with a client, the URL of the host, and the host."""
    server = await asyncio.start_server(host.serve, address, 0, ssl=tls)
    client = client or HttpClient({})
    place = f"[{address}]" if ":" in address else address
    try:
        port = server.sockets[0].getsockname()[1]
        await work(client, f"{'https' if tls else 'http'}://{place}:{port}/v1/chat", host)
    finally:
        await client.aclose()
        server.close()


async def send(client: HttpClient, url: str, timeouts: Timeouts | None = None) -> tuple[int, bytes]:
    """The status and the whole body of the answer to a POST."""
    request = HttpRequest(url=url, headers={"x-a": "b"}, body=(b"{", b"}"), timeouts=timeouts or Timeouts(read=20))
    response = await client.send(request)
    return response.status, b"".join([piece async for piece in response])
