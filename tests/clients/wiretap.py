"""`Wiretap`: a connection to the gateway that records what clients send.

Bytes pass as they come, in both directions; the requests are taken apart only when they are read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from msgspec import Struct
from wsproto import ConnectionType
from wsproto.connection import Connection
from wsproto.events import TextMessage

from providers.scripted_server import ScriptedServer


class SeenRequest(Struct, frozen=True):
    """A request of a client. Names of headers are in lower case."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    is_message: bool = False
    """Whether it is a message of a WebSocket, shown as the equivalent POST."""


class Wiretap(ScriptedServer):
    """Listens on `port` of this machine and passes everything on to another port of it."""

    def __init__(self, target: int) -> None:
        super().__init__()
        self._target = target
        self._heard: list[bytearray] = []

    def requests(self) -> list[SeenRequest]:
        """Every request so far, connection by connection."""
        return [request for data in self._heard for request in _requests(bytes(data))]

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        received = bytearray()
        self._heard.append(received)
        there, back = await asyncio.open_connection("127.0.0.1", self._target)
        try:
            await asyncio.gather(_pass(reader, back, received), _pass(there, writer, None))
        except asyncio.CancelledError:
            pass  # the tap is taken off; asyncio's streams would make noise of it
        finally:
            self._tasks.discard(task)
            for end in (writer, back):
                end.close()


async def _pass(source: asyncio.StreamReader, target: asyncio.StreamWriter, kept: bytearray | None) -> None:
    try:
        while data := await source.read(65536):
            if kept is not None:
                kept += data
            target.write(data)
            await target.drain()
    except ConnectionError:
        pass
    finally:
        target.close()


def _requests(data: bytes) -> list[SeenRequest]:
    found = []
    while (end := data.find(b"\r\n\r\n")) >= 0:
        first, *lines = data[:end].decode("latin-1").split("\r\n")
        method, path, _ = first.split(" ", 2)
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        data = data[end + 4 :]
        if "chunked" in headers.get("transfer-encoding", ""):
            body, data = _unchunked(data)
        else:
            size = int(headers.get("content-length", "0"))
            body, data = data[:size], data[size:]
        found.append(SeenRequest(method, path, headers, body))
        if headers.get("upgrade", "").lower() == "websocket":
            return [*found, *(SeenRequest("POST", path, headers, message, True) for message in _messages(data))]
    return found


def _messages(data: bytes) -> Iterator[bytes]:
    """The messages that a client sent over a WebSocket."""
    connection, text = Connection(ConnectionType.SERVER), ""
    connection.receive_data(data)
    for event in connection.events():
        if isinstance(event, TextMessage):
            text += event.data
            if event.message_finished:
                yield text.encode()
                text = ""


def _unchunked(data: bytes) -> tuple[bytes, bytes]:
    body = b""
    while data:
        line, _, data = data.partition(b"\r\n")
        size = int(line.partition(b";")[0], 16)
        body, data = body + data[:size], data[size + 2 :]
        if not size:
            break
    return body, data
