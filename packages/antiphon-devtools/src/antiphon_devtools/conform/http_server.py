"""`RawServer`: an HTTP server on loopback whose answers are written byte by byte.

A framework cannot reset a connection before the head, fall silent in a stream, or end a chunked body without its last chunk. The
server runs in a thread with its own event loop, so that a caller that blocks can use it. It may listen on several ports.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

import msgspec
from msgspec import Struct

_STARTED_WITHIN = 20.0


class Request(Struct, frozen=True):
    """One request. `service` is the name of the port that it came to."""

    service: str
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


class Connection:
    """The client's side of one request. Each method returns once the bytes are handed to the system."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def send(self, status: int, body: bytes, kind: str, headers: str = "") -> None:
        """A whole response. `headers` are complete lines."""
        head = f"HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n{headers}\r\n"
        self._writer.write(head.encode() + body)
        await self._writer.drain()

    async def send_json(self, status: int, value: Any, headers: str = "") -> None:
        await self.send(status, msgspec.json.encode(value), "application/json", headers)

    async def start_stream(self, kind: str = "text/event-stream; charset=utf-8") -> None:
        """The head of a chunked response."""
        self._writer.write(f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ntransfer-encoding: chunked\r\n\r\n".encode())
        await self._writer.drain()

    async def send_chunk(self, data: bytes) -> None:
        self._writer.write(b"%x\r\n%b\r\n" % (len(data), data))
        await self._writer.drain()

    async def end_stream(self) -> None:
        self._writer.write(b"0\r\n\r\n")
        await self._writer.drain()

    def reset(self) -> None:
        """Reset the connection, so that the client reads an error instead of an end."""
        linger = struct.pack("ii", 1, 0)
        self._writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self._writer.transport.abort()

    async def wait_closed(self, seconds: float) -> bool:
        """Whether the client closed the connection in this time. The connection must not be used again."""
        try:
            async with asyncio.timeout(seconds):
                while await self._reader.read(1):
                    pass
        except TimeoutError:
            return False
        except ConnectionError:
            pass
        return True


class RawServer(ABC):
    """A server of one or more named ports (0: any free one). Use it as a context manager; `ports` is then filled in."""

    def __init__(self, ports: Mapping[str, int]) -> None:
        self.ports = dict(ports)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._is_up = threading.Event()
        self._stop = asyncio.Event()
        self._failure: OSError | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        if not self._is_up.wait(_STARTED_WITHIN):
            raise OSError("the mock provider did not start")
        if self._failure is not None:
            self._thread.join(_STARTED_WITHIN)
            raise self._failure
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(_STARTED_WITHIN)

    @abstractmethod
    async def respond(self, request: Request, connection: Connection) -> bool:
        """Answer a request; whether the connection stays open."""

    def _serve(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._run())

    async def _run(self) -> None:
        servers = []
        try:
            for service, port in self.ports.items():
                servers.append(await asyncio.start_server(self._handler(service), "127.0.0.1", port))
                self.ports[service] = servers[-1].sockets[0].getsockname()[1]
        except OSError as error:
            self._failure = error
            self._stop.set()
        self._is_up.set()
        await self._stop.wait()
        for server in servers:
            server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    def _handler(self, service: str) -> Any:
        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                while True:
                    request = await _read_request(service, reader)
                    if not await self.respond(request, Connection(reader, writer)):
                        return
            except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
                pass
            finally:
                writer.close()

        return connected


async def _read_request(service: str, reader: asyncio.StreamReader) -> Request:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.rstrip("\r\n").split("\r\n")
    method, path, _ = first.split(" ", 2)
    pairs = (line.partition(":") for line in lines)
    headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
    if headers.get("transfer-encoding", "").lower() == "chunked":
        body = b""
        while size := int((await reader.readline()).split(b";")[0], 16):
            body += await reader.readexactly(size)
            await reader.readline()
        await reader.readline()
    else:
        body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Request(service, method, path, headers, body)


def wait_until(condition: Any, seconds: float) -> bool:
    """Poll a condition of another thread; whether it held in this time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True
