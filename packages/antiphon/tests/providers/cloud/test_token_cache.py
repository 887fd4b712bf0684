"""Tokens are fetched once for many requests, replaced before they expire, and discarded when a host rejects them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from itertools import count
from typing import Any

import pytest

from antiphon.http.client.request import HttpRequest, HttpResponse
from antiphon.providers.cloud.signers import HeaderSigner
from antiphon.providers.cloud.token_cache import Fetched, TokenCache, TokenError
from antiphon.providers.cloud.tokens import TokenSource
from support.waiting import until_async


class Source:
    """Gives token 1, 2, … each valid for `lifetime` seconds; waits for `gate` if there is one."""

    def __init__(self, lifetime: float = 3600.0) -> None:
        self.count = 0
        self.lifetime = lifetime
        self.gate: asyncio.Event | None = None
        self.error: Exception | None = None

    async def fetch(self) -> Fetched[str]:
        self.count += 1
        number = self.count
        if self.gate is not None:
            await self.gate.wait()
        if self.error is not None:
            raise self.error
        return Fetched(f"token {number}", self.lifetime)


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def run(test: Callable[[TokenCache[str], Source, Clock], Awaitable[Any]]) -> None:
    source, clock = Source(), Clock()
    asyncio.run(test(TokenCache("test", source.fetch, clock=clock), source, clock))  # type: ignore[arg-type]


def test_many_requests_wait_for_one_fetch() -> None:
    async def test(cache: TokenCache[str], source: Source, clock: Clock) -> None:
        source.gate = asyncio.Event()
        waiting = [asyncio.ensure_future(cache.get()) for _ in range(20)]
        await until_async(lambda: source.count == 1)
        waiting[0].cancel()  # one that leaves does not end the fetch
        await asyncio.sleep(0)
        source.gate.set()
        assert set(await asyncio.gather(*waiting[1:])) == {"token 1"}
        assert await cache.get() == "token 1"
        assert source.count == 1

    run(test)


def test_a_token_is_replaced_in_the_background_before_it_expires() -> None:
    async def test(cache: TokenCache[str], source: Source, clock: Clock) -> None:
        assert await cache.get() == "token 1"
        clock.now += 3600 - 301
        assert await cache.get() == "token 1"
        await asyncio.sleep(0)  # a refresh in the background would have started
        assert source.count == 1
        clock.now += 2
        assert await cache.get() == "token 1"  # still valid: it is used while the next is fetched
        await until_async(lambda: cache.recent[-1] == "token 2")
        assert await cache.get() == "token 2"

    run(test)


def test_an_expired_token_is_never_used() -> None:
    async def test(cache: TokenCache[str], source: Source, clock: Clock) -> None:
        source.lifetime = 10
        assert await cache.get() == "token 1"
        clock.now += 10
        assert await cache.get() == "token 2"

    run(test)


def test_a_failed_refresh_keeps_the_old_token_and_is_not_repeated_at_once(caplog: pytest.LogCaptureFixture) -> None:
    async def test(cache: TokenCache[str], source: Source, clock: Clock) -> None:
        await cache.get()
        source.error = TokenError("the endpoint is down", "server")
        clock.now += 3400
        for _ in range(5):
            assert await cache.get() == "token 1"
            await asyncio.sleep(0)
        assert source.count == 2
        clock.now += 11
        await cache.get()
        await until_async(lambda: source.count == 3)
        clock.now += 600
        with pytest.raises(TokenError, match="the endpoint is down"):
            await cache.get()

    with caplog.at_level(logging.WARNING, "antiphon.providers"):
        run(test)
    assert "cannot refresh the token of test: the endpoint is down" in caplog.text
    assert "token 1" not in caplog.text


def test_a_rejected_token_is_discarded_by_its_value() -> None:
    async def test(cache: TokenCache[str], source: Source, clock: Clock) -> None:
        first = await cache.get()
        cache.discard(first)
        second = await cache.get()
        cache.discard(first)  # a slow request that was rejected with the old one
        assert await cache.get() == second == "token 2"
        assert source.count == 2

    run(test)


def test_a_token_that_has_expired_on_arrival_is_an_error() -> None:
    async def test(cache: TokenCache[str], source: Source, clock: Clock) -> None:
        source.lifetime = -5
        with pytest.raises(TokenError, match="expired already; check the clock"):
            await cache.get()

    run(test)


def test_it_works_in_one_event_loop_after_the_other() -> None:
    source, clock = Source(), Clock()
    cache = TokenCache("test", source.fetch, clock=clock)
    assert asyncio.run(cache.get()) == "token 1"
    clock.now += 4000
    assert asyncio.run(cache.get()) == "token 2"


def test_a_token_that_was_replaced_is_still_hidden() -> None:
    """A call that began with it may fail later, with an error that repeats it (L10)."""
    numbers, refused = count(1), HttpResponse()
    refused.status = 401

    class Headers(TokenSource[Mapping[str, str]]):
        def read(self) -> Fetched[Mapping[str, str]]:
            return Fetched({"authorization": f"Bearer secret-{next(numbers)}"}, 3600.0)

    async def test() -> None:
        signer = HeaderSigner("test", Headers(), Clock())
        request, token = HttpRequest(url="https://host.example/v1"), await signer.tokens.get()
        assert signer.sign(request, token).headers["authorization"] == "Bearer secret-1"
        assert signer.learn_from_rejection(token, refused)
        assert list(signer.secrets) == ["secret-1"]
        assert signer.sign(request, await signer.tokens.get()).headers["authorization"] == "Bearer secret-2"
        assert list(signer.secrets) == ["secret-1", "secret-2"]

    asyncio.run(test())
