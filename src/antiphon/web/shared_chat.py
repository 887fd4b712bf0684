"""`SharedChat`: the chat of a gateway with several workers. One worker runs it, the others forward requests to it.

A running turn and all its watchers are in one process. A lock on a file in the workers' folder decides which: the first worker
that gets a request takes the lock and listens on a socket next to it. When that worker dies, the lock is released and the next
worker that gets a request takes it. Its running turns are in the log, unfinished, as after any crash, and can be resumed.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import socket
import sys
from collections.abc import AsyncIterator, Callable
from math import inf
from pathlib import Path
from typing import Any

import msgspec

from antiphon.gateway.app import Gateway, MountedApp
from antiphon.gateway.config.settings import GatewaySettings
from antiphon.gateway.http.body_budget import BodyBudget
from antiphon.gateway.http.listener import Listener
from antiphon.gateway.http.messages import ClientRequest, Response
from antiphon.gateway.observe.metrics import Metrics
from antiphon.web.gateway_mount import GatewayChat
from antiphon.web.request import ApiError, error_response

_MAX_ATTEMPTS = 40
_PAUSE = 0.05
"""How often and how long to wait while no worker listens: after one died, or while one starts."""

# The worker that forwards has applied its limits already, and waits for its client as long as that reads.
_LISTENER_SETTINGS = GatewaySettings(
    max_connections=sys.maxsize, max_body_bytes=sys.maxsize, request_seconds=inf, write_seconds=inf
)
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(ClientRequest)


def shared_chat_factory(store: str | Path, folder: Path) -> Callable[[Gateway], SharedChat]:
    """The chat for each worker's `serve`. `folder` is the workers' folder."""
    return lambda gateway: SharedChat(GatewayChat(gateway, store), folder)


class _ForwardedRequests:
    """Answers what another worker forwarded: each body is a whole request, which the chat admits itself."""

    def __init__(self, chat: MountedApp) -> None:
        self._chat = chat

    def admit(self, request: ClientRequest) -> None:
        """Admit every request: only workers of this gateway reach the socket."""

    async def handle(self, request: ClientRequest, admission: Any = None) -> Response:
        """Answer the request in the body."""
        del admission
        return await self._chat.handle(_decoder.decode(request.body))


class SharedChat:
    """Serves the chat in this worker, or forwards to the worker that runs it."""

    def __init__(self, chat: MountedApp, folder: Path) -> None:
        self._chat = chat
        self._lock = folder / "chat.lock"
        self._place = str(folder / "chat.socket")
        self._taking = asyncio.Lock()
        self._held: int | None = None  # the lock, once it is ours
        self._listener: Listener | None = None
        self._session: Any = None
        self._is_closed = False

    def admit(self, request: ClientRequest) -> Any:
        """Whose request it is, decided without its body."""
        return self._chat.admit(request)

    async def handle(self, request: ClientRequest, admission: Any = None) -> Response:
        """Answer a request, or forward it to the worker that runs the chat, which checks access again."""
        from aiohttp import ClientConnectorError, ClientError

        for _ in range(_MAX_ATTEMPTS):
            if await self._is_owner():
                return await self._chat.handle(request, admission)
            try:
                return await self._forward(request)
            except ClientConnectorError:
                await asyncio.sleep(_PAUSE)
            except ClientError as error:  # it may have been executed, and must not run twice
                return _unavailable(f"the worker that has the chat broke off ({error}); look, and try again")
        return _unavailable("no worker has the chat just now; try again")

    async def aclose(self, grace: float) -> None:
        """End the running turns and release the chat for another worker."""
        self._is_closed = True
        closing = [self._listener.close(grace)] if self._listener is not None else []
        await asyncio.gather(*closing, self._chat.aclose(grace))
        if self._session is not None:
            await self._session.close()
        if self._held is not None:
            os.close(self._held)

    async def _is_owner(self) -> bool:
        """Whether this worker runs the chat; it takes the lock if it is free."""
        if self._held is None and not self._is_closed:
            async with self._taking:
                await self._become_owner()
        return self._held is not None

    async def _become_owner(self) -> None:
        if self._held is not None:  # while we waited
            return
        held = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._listener = await self._listening()
        except BlockingIOError:  # another worker has it
            os.close(held)
        except BaseException:
            os.close(held)
            raise
        else:
            self._held = held

    async def _listening(self) -> Listener:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._place)  # left by a worker that died
        listener = Listener(
            _ForwardedRequests(self._chat),
            "chat",
            Metrics(),
            lambda: _LISTENER_SETTINGS,
            BodyBudget(lambda: sys.maxsize),
        )
        sock = socket.socket(socket.AF_UNIX)
        sock.bind(self._place)
        sock.setblocking(False)
        await listener.open(sock)
        return listener

    async def _forward(self, request: ClientRequest) -> Response:
        import aiohttp

        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.UnixConnector(self._place, limit=0),
                timeout=aiohttp.ClientTimeout(total=None),
                auto_decompress=False,
            )
        response = await self._session.post(
            "http://chat/",
            data=_encoder.encode(request),
            headers={"x-request-id": request.request_id} if request.request_id else {},
            allow_redirects=False,
        )
        headers = {
            name.lower(): value for name, value in response.headers.items() if name.lower() not in _OF_THE_CONNECTION
        }
        if "text/event-stream" in headers.get("content-type", ""):
            return Response(status=response.status, headers=headers, body=_pieces(response))
        async with response:
            return Response(status=response.status, headers=headers, body=await response.read())


_OF_THE_CONNECTION = frozenset({"content-length", "transfer-encoding", "connection", "date", "server"})


async def _pieces(response: Any) -> AsyncIterator[bytes]:
    """The chunks of a forwarded response. If its worker dies the stream ends, and the page reconnects."""
    from aiohttp import ClientError

    try:
        with contextlib.suppress(ClientError):
            async for piece in response.content.iter_any():
                yield piece
    finally:
        response.close()


def _unavailable(what: str) -> Response:
    return error_response(ApiError(what, 503, "unavailable"))
