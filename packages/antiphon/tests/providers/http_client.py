"""A client of the scripted server, and the policies the tests of the HTTP provider use."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import msgspec

from antiphon.http.client.client import HttpClient
from antiphon.http.client.request import HttpRequest, HttpResponse
from antiphon.providers.call import ProviderCallOptions
from antiphon.providers.http_provider import HttpProviderClient
from antiphon.providers.keys.ring import KeyRing
from antiphon.providers.retry import RetryPolicy
from antiphon.wire.delta import ModelOutputDelta
from providers.sample_answers import PRESET_OF, STREAMS, deltas_from
from providers.scripted_server import Reply, ScriptedServer

KEY = "sk-canary-0000000000000000wxyz"

OTHER = "sk-another-000000000000000abcd"

CHAT = STREAMS["openai-chat"]

ONCE = RetryPolicy(retries=0, rotations=0)

EMPTY: dict[str, str] = {}

ERROR_429 = Reply(
    status=429,
    body=b'{"error":{"message":"Rate limit reached","code":"rate_limit_exceeded"}}',
    content_type="application/json",
)


class Pace:
    """A clock that only sleeping moves, so that waits cost nothing and can be looked at."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def client_of(server: ScriptedServer | str, format_name: str = "openai-chat", **given: Any) -> HttpProviderClient:
    """A client of the server; its clock stands still but for what it sleeps."""
    pace = given.pop("pace", None) or Pace()
    url = server if isinstance(server, str) else server.url
    keys = given.pop("keys", [KEY])
    return HttpProviderClient(
        PRESET_OF[format_name],
        base_url=url,
        keys=KeyRing(keys, clock=pace) if isinstance(keys, list) and keys else keys,
        sleep=pace.sleep,
        clock=pace,
        fraction=lambda: 1.0,
        transport=given.pop("transport", None) or HttpClient(EMPTY),
        **given,
    )


def ask(client: HttpProviderClient, options: ProviderCallOptions | None = None) -> list[ModelOutputDelta]:
    return asyncio.run(deltas_from(client, options))


def asked() -> ProviderCallOptions:
    return ProviderCallOptions(model="m", request_id="request-1")


def json_reply(body: Any, status: int = 200, **given: Any) -> Reply:
    return Reply(status=status, body=msgspec.json.encode(body), content_type="application/json", **given)


# The seam.


class Canned:
    """A transport without a network."""

    def __init__(self, *pieces: bytes, status: int = 200) -> None:
        self.requests: list[HttpRequest] = []
        self._pieces = pieces
        self._status = status

    async def send(self, request: HttpRequest) -> HttpResponse:
        self.requests.append(request)
        return HttpResponse.of(self._status, {}, _one_by_one(self._pieces))

    async def aclose(self) -> None:
        pass


async def _one_by_one(pieces: tuple[bytes, ...]) -> AsyncGenerator[bytes, None]:
    for piece in pieces:
        yield piece
