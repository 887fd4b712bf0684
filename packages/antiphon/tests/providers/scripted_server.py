"""A server on this machine that plays scripts over real sockets: statuses, headers, delays, streams that are cut or drip.

It runs in a thread with a loop of its own, so tests may use it from any number of event loops. Each request takes the next reply
of the script; the last one is played again and again.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Mapping
from types import TracebackType

from msgspec import Struct


class Received(Struct, frozen=True):
    """A request as it came."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes
    connection: int


class Reply(Struct, frozen=True, kw_only=True):
    """What the server does with a request."""

    status: int = 200
    """0: it closes the connection without a word."""
    body: bytes = b""
    content_type: str = "text/event-stream"
    headers: Mapping[str, str] = {}
    delay: float = 0.0
    """Seconds before the head."""
    gate: threading.Event | None = None
    """Where there is one, the head waits until it is set."""
    body_gate: threading.Event | None = None
    """Where there is one, everything after the first piece waits until it is set."""
    piece: int = 0
    """How many bytes go out at a time; 0: all at once."""
    pause: float = 0.0
    """Seconds between pieces."""
    cut_after: int | None = None
    """After so many bytes of the body the connection ends, as if more was to come."""
    is_reset: bool = False
    """Whether it ends with a reset instead of a close."""
    hangs: bool = False
    """Whether the server then says nothing more, until the client goes away."""
    has_length: bool = False
    """Whether the body comes under a length instead of in chunks."""
    late_end: float = 0.0
    """Seconds between the last chunk and the word that it was the last."""


Script = Reply | Callable[[Received], Reply]


class ScriptedServer:
    """Use it as a context manager: `with ScriptedServer(reply, …) as server: … server.url`."""

    def __init__(self, *script: Script, tls: ssl.SSLContext | None = None) -> None:
        self.received: list[Received] = []
        self.gone = threading.Event()
        """Set when a client closed its connection while the server hung."""
        self._script = list(script)
        self._tls = tls
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._is_up = threading.Event()
        self._connections = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"

    @property
    def connections(self) -> int:
        """How many connections were opened."""
        return self._connections

    def play(self, *script: Script) -> None:
        """Play this from the next request on."""
        self._script = list(script)

    def __enter__(self) -> ScriptedServer:
        self._thread.start()
        assert self._is_up.wait(10)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join(10)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        self._stopped = asyncio.Event()
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0, ssl=self._tls, backlog=512)
        self.port = server.sockets[0].getsockname()[1]
        self._is_up.set()
        await self._stopped.wait()
        server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._connections += 1
        number = self._connections
        try:
            while (request := await _read(reader, number)) is not None:
                self.received.append(request)
                script = self._script.pop(0) if len(self._script) > 1 else self._script[0]
                reply = script if isinstance(script, Reply) else script(request)
                if not await self._play(reply, reader, writer):
                    break
        except (ConnectionError, asyncio.CancelledError, asyncio.IncompleteReadError, ssl.SSLError):
            pass
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    async def _play(self, reply: Reply, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Play a reply; whether the connection may be used again."""
        if reply.delay:
            await asyncio.sleep(reply.delay)
        while reply.gate is not None and not reply.gate.is_set():
            await asyncio.sleep(0.01)
        if reply.status:
            headers = {"content-type": reply.content_type, **reply.headers}
            framing = ("content-length", str(len(reply.body))) if reply.has_length else ("transfer-encoding", "chunked")
            lines = [f"HTTP/1.1 {reply.status} Scripted", *(f"{name}: {value}" for name, value in headers.items())]
            writer.write("\r\n".join([*lines, ": ".join(framing), "", ""]).encode(errors="surrogateescape"))
            body = reply.body if reply.cut_after is None else reply.body[: reply.cut_after]
            size = reply.piece or len(body) or 1
            for start in range(0, len(body), size):
                while start and reply.body_gate is not None and not reply.body_gate.is_set():
                    await writer.drain()
                    await asyncio.sleep(0.01)
                if start and reply.pause:
                    await writer.drain()
                    await asyncio.sleep(reply.pause)
                writer.write(_framed(body[start : start + size], reply))
            await writer.drain()
        if reply.hangs:
            try:
                is_gone = await reader.read(1) == b""
            except ConnectionError:  # a client that had not read everything resets the connection
                is_gone = True
            if is_gone:
                self.gone.set()
            return False
        if reply.is_reset:
            sock: socket.socket = writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            return False
        if reply.cut_after is not None or not reply.status:
            writer.close()  # what was written goes out first
            await writer.wait_closed()
            return False
        if not reply.has_length:
            await asyncio.sleep(reply.late_end)
            writer.write(b"0\r\n\r\n")
            await writer.drain()
        return True


def _framed(data: bytes, reply: Reply) -> bytes:
    return data if reply.has_length else b"%x\r\n%b\r\n" % (len(data), data)


async def _read(reader: asyncio.StreamReader, connection: int) -> Received | None:
    head = await reader.readuntil(b"\r\n\r\n") if not reader.at_eof() else b""
    if not head:
        return None
    first, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
    method, target, _ = first.split(" ", 2)
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Received(method, target, headers, body, connection)
