"""The floors of the gateway bench: proxies that pass bytes on and do nothing else.

`python -m bench.gateway.floors aiohttp|raw PORT UPSTREAM_PORT`. The first is aiohttp's server and client as its documentation
shows them; the second is two asyncio protocols, the lower bound in Python. Neither reads a body, checks a key or counts.
"""

from __future__ import annotations

import asyncio
import sys

from bench.gateway.traffic import HttpConnection


async def aiohttp_proxy(port: int, upstream: int) -> None:
    from aiohttp import ClientSession, TCPConnector, web

    async with ClientSession(connector=TCPConnector(limit=0)) as session:

        async def handle(request: web.BaseRequest) -> web.StreamResponse:
            body = await request.read()
            url = f"http://127.0.0.1:{upstream}{request.path}"
            headers = {"content-type": "application/json", "authorization": "Bearer none"}
            async with session.post(url, data=body, headers=headers) as reply:
                if reply.content_type == "application/json":
                    return web.Response(
                        status=reply.status, body=await reply.read(), headers={"content-type": "application/json"}
                    )
                response = web.StreamResponse(status=reply.status, headers={"content-type": "text/event-stream"})
                await response.prepare(request)
                async for piece in reply.content.iter_any():
                    await response.write(piece)
                await response.write_eof()
                return response

        server = web.Server(handle, access_log=None)
        await asyncio.get_running_loop().create_server(server, "127.0.0.1", port)
        await asyncio.Event().wait()


class _UpstreamSide(HttpConnection):
    """A connection to the upstream, used by one client at a time."""

    def __init__(self, idle: list[_UpstreamSide]) -> None:
        super().__init__()
        self._idle = idle
        self._client: asyncio.Transport | None = None

    def forward(self, data: bytes, client: asyncio.Transport) -> None:
        self._client = client
        self.transport.write(data)

    def data_received(self, data: bytes) -> None:
        assert self._client is not None
        self._client.write(data)
        super().data_received(data)

    def on_message(self, _: bytes) -> None:
        self._idle.append(self)


class _ClientSide(HttpConnection):
    """A client's connection."""

    def __init__(self, upstream: int, idle: list[_UpstreamSide]) -> None:
        super().__init__()
        self._upstream = upstream
        self._idle = idle

    def on_message(self, message: bytes) -> None:
        if self._idle:
            self._idle.pop().forward(message, self.transport)
        else:
            self._connecting = asyncio.ensure_future(self._connect(message))

    async def _connect(self, request: bytes) -> None:
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(lambda: _UpstreamSide(self._idle), "127.0.0.1", self._upstream)
        connection.forward(request, self.transport)


async def raw_proxy(port: int, upstream: int) -> None:
    idle: list[_UpstreamSide] = []
    await asyncio.get_running_loop().create_server(lambda: _ClientSide(upstream, idle), "127.0.0.1", port)
    await asyncio.Event().wait()


if __name__ == "__main__":
    proxies = {"aiohttp": aiohttp_proxy, "raw": raw_proxy}
    asyncio.run(proxies[sys.argv[1]](int(sys.argv[2]), int(sys.argv[3])))
