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

import msgspec
from msgspec import structs

from antiphon.errors import TransportError
from antiphon.http.body import Governor
from antiphon.http.client.client import HttpClient
from antiphon.http.client.request import HttpRequest, HttpResponse, Timeouts
from antiphon.http.messages import ClientRequest, Response
from antiphon.http.server.application import Admitted, Application, Handler, Limits, answer
from antiphon.http.server.listener import Listener
from antiphon_chat.page.mounted.gateway_chat import GatewayChat
from antiphon_chat.page.request import ApiError, error_response
from antiphon_gateway.app import Gateway, MountedApp

_MAX_ATTEMPTS = 40
_PAUSE = 0.05
"""How often and how long to wait while no worker listens: after one died, or while one starts."""

# The worker that forwards has applied its limits already, and waits for its client as long as that reads.
_LIMITS = Limits(max_connections=sys.maxsize, max_body_bytes=sys.maxsize, request_seconds=inf, write_seconds=inf)
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(ClientRequest)


def shared_chat_factory(store: str | Path, folder: Path) -> Callable[[Gateway], SharedChat]:
    """The chat for each worker's `serve`. `folder` is the workers' folder."""
    return lambda gateway: SharedChat(GatewayChat(gateway, store), folder)


class _ForwardedRequests(Application):
    """Answers what another worker forwarded: each body is a whole request, which the chat admits itself."""

    def __init__(self, chat: MountedApp) -> None:
        self._chat = chat

    def admit(self, request: ClientRequest) -> Handler | Response:
        """Admit every request: only workers of this gateway reach the socket."""
        return Admitted(lambda: answer(self._chat.admit(_decoder.decode(request.body))))


class SharedChat:
    """Serves the chat in this worker, or forwards to the worker that runs it."""

    def __init__(self, chat: MountedApp, folder: Path) -> None:
        self._chat = chat
        self._lock = folder / "chat.lock"
        self._place = str(folder / "chat.socket")
        self._taking = asyncio.Lock()
        self._held: int | None = None  # the lock, once it is ours
        self._listener: Listener | None = None
        self._client = HttpClient({}, unix_path=self._place, decompresses=False)
        self._is_closed = False

    def admit(self, request: ClientRequest) -> Handler | Response:
        """Whose request it is, decided without its body."""
        handler = self._chat.admit(request)
        if isinstance(handler, Response):
            return handler
        admitted = Admitted(lambda: self._answer(request, handler), handler.owner)
        admitted.max_body = handler.max_body
        return admitted

    async def _answer(self, request: ClientRequest, handler: Handler) -> Response:
        """Answer a request, or forward it to the worker that runs the chat, which checks access again."""
        for _ in range(_MAX_ATTEMPTS):
            if await self._is_owner():
                return await handler.run()
            try:
                return await self._forward(request)
            except TransportError as error:
                if error.code == "connection_failed":
                    await asyncio.sleep(_PAUSE)
                    continue
                # it may have been executed, and must not run twice
                return _unavailable(f"the worker that has the chat broke off ({error}); look, and try again")
        return _unavailable("no worker has the chat just now; try again")

    async def aclose(self, grace: float) -> None:
        """End the running turns and release the chat for another worker."""
        self._is_closed = True
        closing = [self._listener.close(grace)] if self._listener is not None else []
        await asyncio.gather(*closing, self._chat.aclose(grace))
        await self._client.aclose()
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
            _LIMITS,
            governor=Governor(),
        )
        sock = socket.socket(socket.AF_UNIX)
        sock.bind(self._place)
        sock.setblocking(False)
        await listener.open(sock)
        return listener

    async def _forward(self, request: ClientRequest) -> Response:
        # A new connection each time: on a reused one that was just closed, the request might be sent and executed twice.
        forwarded = HttpRequest(
            url="http://chat/",
            headers={"connection": "close", **({"x-request-id": request.request_id} if request.request_id else {})},
            body=(_encoder.encode(structs.replace(request, begin_early=None, hold=None)),),
            timeouts=Timeouts(read=None),
        )
        response = await self._client.send(forwarded, follow=False)
        headers = {name: value for name, value in response.headers.items() if name not in _OF_THE_CONNECTION}
        if "text/event-stream" in headers.get("content-type", ""):
            return Response(status=response.status, headers=headers, body=_pieces(response))
        body = b"".join([piece async for piece in response])
        return Response(status=response.status, headers=headers, body=body)


_OF_THE_CONNECTION = frozenset({"content-length", "transfer-encoding", "connection", "date", "server"})


async def _pieces(response: HttpResponse) -> AsyncIterator[bytes]:
    """The chunks of a forwarded response. If its worker dies the stream ends, and the page reconnects."""
    try:
        with contextlib.suppress(TransportError):
            async for piece in response:
                yield piece
    finally:
        response.abort()


def _unavailable(what: str) -> Response:
    return error_response(ApiError(what, 503, "unavailable"))
