"""The gateway without sockets: requests are handed to it and answers taken from it in this process, with the upstream in memory.

So only the gateway's own work on a request is counted, without reading and writing HTTP. `bench.gateway` measures all of it, with
processes and sockets.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec

from antiphon.http.body import BodyReceiver
from antiphon.http.client.request import HttpRequest, HttpResponse
from antiphon.http.messages import ClientRequest
from antiphon.http.server.application import answer
from antiphon_gateway.app import Gateway
from antiphon_gateway.config.settings import Config, GatewaySettings, LedgerSettings, ModelSettings, ProviderSettings
from antiphon_gateway.runtime.loaded import LoadedConfig
from antiphon_gateway.serve import open_services
from bench.workload.streams import streams, words_of

MODEL = "gpt-4o"
CLIENT_KEY = "sk-of-the-bench-0123456789"
ANSWER = "Rain in Oslo until the evening, seven degrees."
STREAMED = words_of(107)
PATHS = {"openai-chat": "/v1/chat/completions", "anthropic": "/v1/messages"}
_ENVIRON = {"CLIENT_KEY": CLIENT_KEY, "UPSTREAM_KEY": "none"}


class MemoryUpstream:
    """A provider that speaks Chat Completions and answers at once, whole or as a stream of 107 events."""

    def __init__(self) -> None:
        message = {"role": "assistant", "content": ANSWER, "refusal": None}
        whole = {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1,
            "model": MODEL,
            "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 12, "completion_tokens": 11, "total_tokens": 23},
        }
        stream = streams(STREAMED)["openai-chat"]
        self._whole = [msgspec.json.encode(whole)]
        self._stream = [event + b"\n\n" for event in stream.removesuffix(b"\n\n").split(b"\n\n")]

    async def send(self, request: HttpRequest) -> MemoryAnswer:
        if b'"stream":true' in b"".join(request.body):
            return MemoryAnswer(self._stream, "text/event-stream")
        return MemoryAnswer(self._whole, "application/json")

    async def aclose(self) -> None:
        pass


class MemoryClient:
    """A client that stores what is written to it."""

    def __init__(self) -> None:
        self.done: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._pieces: list[bytes] = []

    def write(self, data: bytes) -> None:
        self._pieces.append(data)

    def end_stream(self) -> None:
        self.done.set_result(b"".join(self._pieces))

    def abort_stream(self) -> None:
        self.done.set_result(b"")


class MemoryAnswer(HttpResponse):
    """A complete answer in pieces, which can also be delivered by callbacks."""

    status = 200

    def __init__(self, pieces: list[bytes], kind: str) -> None:
        self.headers = {"content-type": kind}
        self._pieces = iter(pieces)

    async def __anext__(self) -> bytes:
        for piece in self._pieces:
            return piece
        raise StopAsyncIteration

    def deliver_to(self, receiver: BodyReceiver) -> None:
        for piece in self._pieces:
            receiver.on_body(piece)
        receiver.on_complete()


def build_gateway() -> Gateway:
    """A gateway with one provider and one client key."""
    provider = ProviderSettings(
        name="scripted", format="openai-chat", base_url="http://127.0.0.1:9/v1", keys=("env:UPSTREAM_KEY",)
    )
    config = Config(
        gateway=GatewaySettings(client_keys=("env:CLIENT_KEY",), log_level="error"),
        ledger=LedgerSettings(enabled=False),
        providers=(provider,),
        models=(
            ModelSettings(name="gpt-*", targets=("scripted/*",)),
            ModelSettings(name="claude-*", targets=(f"scripted/{MODEL}",)),
        ),
    )
    services = open_services(config, lambda: gateway.loaded, environ=_ENVIRON)
    services.transport = MemoryUpstream()
    gateway = Gateway(LoadedConfig(config, services.transport, environ=_ENVIRON), services)
    return gateway


def send_requests(client: str, body: dict[str, Any], count: int) -> Callable[[], object]:
    """The work: the same request in a client's format `count` times, each answer checked."""
    request = ClientRequest(
        method="POST",
        path=PATHS[client],
        headers={"authorization": f"Bearer {CLIENT_KEY}", "content-type": "application/json"},
        body=msgspec.json.encode(body),
        peer="127.0.0.1",
        request_id="bench",
    )
    gateway = build_gateway()
    expected = (STREAMED[-1] if body.get("stream") else ANSWER).encode()

    async def send() -> None:
        for _ in range(count):
            response = await answer(gateway.admit(request))
            if isinstance(response.body, bytes):
                got = response.body
            else:
                assert not isinstance(response.body, AsyncIterator)
                client = MemoryClient()
                response.body.start(client)
                got = await client.done
            assert response.status == 200
            assert expected in got, got[:300]

    return lambda: asyncio.run(send())
