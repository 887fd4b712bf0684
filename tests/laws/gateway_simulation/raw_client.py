"""A client that sends what it is given, and may leave early or read slowly: one request on one connection."""

from __future__ import annotations

import http.client
import socket
import time
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct


class Answer(Struct, frozen=True, kw_only=True):
    """What came back. Names of headers are in lower case; `trouble` says why it is not whole."""

    status: int = 0
    headers: Mapping[str, str] = {}
    body: bytes = b""
    trouble: str = ""

    @property
    def is_whole(self) -> bool:
        return not self.trouble

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)

    @property
    def text(self) -> str:
        """Everything that can be read in it."""
        headers = "\n".join(f"{name}: {value}" for name, value in self.headers.items())
        return f"{headers}\n\n{self.body.decode('utf-8', 'replace')}"


class KeptConnection:
    """A connection that is used again as long as both sides keep it."""

    def __init__(self) -> None:
        self.sock: socket.socket | None = None

    def close(self) -> None:
        if self.sock is not None:
            self.sock.close()
            self.sock = None


def exchange(
    port: int,
    method: str,
    path: str,
    headers: Mapping[str, str],
    body: bytes | None,
    *,
    leaves: str = "",
    pause: float = 0.0,
    patience: float = 10.0,
    kept: KeptConnection | None = None,
) -> Answer:
    """Send a request and read its answer. A `body` of None sends the head alone; `pause` is made before the body is read."""
    sent = {"host": f"127.0.0.1:{port}", **headers}
    if body is not None:
        sent.setdefault("content-length", str(len(body)))
    head = "".join([f"{method} {path} HTTP/1.1\r\n", *(f"{name}: {value}\r\n" for name, value in sent.items()), "\r\n"])
    connection = kept if kept is not None else KeptConnection()
    if connection.sock is None:
        connection.sock = socket.socket()
        if pause:
            connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.sock.connect(("127.0.0.1", port))
    connection.sock.settimeout(patience)
    answer = Answer(trouble="failed")
    try:
        answer = _exchanged(connection.sock, method, head.encode() + (body or b""), leaves, pause)
    finally:
        if kept is None or not answer.is_whole or answer.headers.get("connection") == "close":
            connection.close()
    return answer


def _exchanged(sock: socket.socket, method: str, data: bytes, leaves: str, pause: float) -> Answer:
    status, headers, got = 0, {}, bytearray()
    try:
        sock.sendall(data)
        if leaves == "before the head":
            time.sleep(0.05)
            return Answer(trouble="left")
        response = http.client.HTTPResponse(sock, method=method)
        response.begin()
        status = response.status
        headers = {name.lower(): value for name, value in response.getheaders()}
        if leaves and status == 200:
            return Answer(status=status, headers=headers, body=response.read1(65536), trouble="left")
        if pause:
            time.sleep(pause)
        while piece := response.read1(262_144):
            got += piece
        is_cut = bool(response.length) or (response.chunked and response.chunk_left not in (None, 0))
        return Answer(status=status, headers=headers, body=bytes(got), trouble="cut" if is_cut else "")
    except (OSError, http.client.HTTPException) as error:
        trouble = "timed out" if isinstance(error, TimeoutError) else type(error).__name__
        return Answer(status=status, headers=headers, body=bytes(got), trouble=trouble)
