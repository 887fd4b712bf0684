"""`SharedChat`: the chat of a gateway with several workers. One of them has it, the others hand on what they are asked.

A turn that is being played, and everybody who watches it, live in one process. Which one is decided by a lock on a file in the
workers' folder: the first that is asked takes it, and listens on a socket beside it. When that worker dies the lock is free, and
the next that is asked takes it; what was being played stands in the log, unfinished, as after any crash, and is gone on with.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import msgspec

from antiphon.gateway.app import Gateway, MountedApp
from antiphon.gateway.http.messages import ClientRequest, Response
from antiphon.web.gateway_mount import GatewayChat
from antiphon.web.request import ApiError, error_response

_MAX_ATTEMPTS = 40
_PAUSE = 0.05
"""Between a worker's death, or its taking of the lock, and its successor's listening there is a moment without anybody."""

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(ClientRequest)


def shared_chat_factory(store: str | Path, folder: Path) -> Callable[[Gateway], SharedChat]:
    """What each worker's `serve` takes as its chat. `folder` is the workers' own."""
    return lambda gateway: SharedChat(GatewayChat(gateway, store), folder)


class SharedChat:
    """One worker's way to the chat: its own, or another's."""

    def __init__(self, chat: MountedApp, folder: Path) -> None:
        self._chat = chat
        self._lock = folder / "chat.lock"
        self._place = str(folder / "chat.socket")
        self._taking = asyncio.Lock()
        self._held: int | None = None  # the lock, once it is ours
        self._server: asyncio.Server | None = None
        self._session: Any = None
        self._is_closed = False

    def admit(self, request: ClientRequest) -> Any:
        """Whose request it is, decided without its body."""
        return self._chat.admit(request)

    async def handle(self, request: ClientRequest, admission: Any = None) -> Response:
        """Answer a request, or have it answered by the worker that has the chat, which admits it again."""
        from aiohttp import ClientConnectorError, ClientError

        for _ in range(_MAX_ATTEMPTS):
            if await self._is_owner():
                return await self._chat.handle(request, admission)
            try:
                return await self._forward(request)
            except ClientConnectorError:
                await asyncio.sleep(_PAUSE)
            except ClientError as error:  # it may have been done: it must not be done twice
                return _unavailable(f"the worker that has the chat broke off ({error}); look, and try again")
        return _unavailable("no worker has the chat just now; try again")

    async def aclose(self, grace: float) -> None:
        """End what is under way here, and let another worker have the chat."""
        self._is_closed = True
        if self._server is not None:
            self._server.close()
        await self._chat.aclose(grace)
        if self._session is not None:
            await self._session.close()
        if self._held is not None:
            os.close(self._held)

    async def _is_owner(self) -> bool:
        """Whether this worker has the chat; it takes it if nobody has."""
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
            self._server = await self._listening()
        except BlockingIOError:  # another worker has it
            os.close(held)
        except BaseException:
            os.close(held)
            raise
        else:
            self._held = held

    async def _listening(self) -> asyncio.Server:
        from aiohttp import web

        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._place)  # of one that died
        server = web.Server(self._handle_forwarded, handler_cancellation=True)
        return await asyncio.get_running_loop().create_unix_server(server, self._place)

    async def _handle_forwarded(self, request: Any) -> Any:
        """Answer what another worker was asked."""
        from aiohttp import web

        answer = await self._chat.handle(_decoder.decode(await request.content.read()))
        if isinstance(answer.body, bytes):
            return web.Response(status=answer.status, headers=answer.headers, body=answer.body)
        response = web.StreamResponse(status=answer.status, headers=answer.headers)
        await response.prepare(request)
        async with aclosing(answer.body) as pieces:  # type: ignore[type-var]
            async for piece in pieces:
                await response.write(piece)
        await response.write_eof()
        return response

    async def _forward(self, request: ClientRequest) -> Response:
        import aiohttp

        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.UnixConnector(self._place, limit=0),
                timeout=aiohttp.ClientTimeout(total=None),
                auto_decompress=False,
            )
        response = await self._session.post("http://chat/", data=_encoder.encode(request), allow_redirects=False)
        headers = {
            name.lower(): value for name, value in response.headers.items() if name.lower() not in _OF_THE_CONNECTION
        }
        if "text/event-stream" in headers.get("content-type", ""):
            return Response(status=response.status, headers=headers, body=_pieces(response))
        async with response:
            return Response(status=response.status, headers=headers, body=await response.read())


_OF_THE_CONNECTION = frozenset({"content-length", "transfer-encoding", "connection", "date", "server"})


async def _pieces(response: Any) -> AsyncIterator[bytes]:
    """What comes, for as long as somebody reads it. If its worker dies the stream ends, and the page asks again."""
    from aiohttp import ClientError

    try:
        with contextlib.suppress(ClientError):
            async for piece in response.content.iter_any():
                yield piece
    finally:
        response.close()


def _unavailable(what: str) -> Response:
    return error_response(ApiError(what, 503, "unavailable"))
