"""Limits that several processes count together: by a real server, without it, and when it comes back or was emptied."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from antiphon.errors import SharedStoreUnavailable
from antiphon.providers.keys.secret import Credential
from antiphon_gateway.access.accounts import ClientAccounts
from antiphon_gateway.access.client_keys import ClientKey
from antiphon_gateway.config.references import parse_store_url
from antiphon_gateway.share.counts import SYNC_SECONDS, Buckets
from antiphon_gateway.share.redis_state import RedisState
from support.valkey_server import Line, ValkeyServer, running

SMALL = ClientKey(name="small", requests_per_minute=10)
LARGE = ClientKey(name="large", requests_per_minute=6000)
TOKENS = ClientKey(name="tokens", tokens_per_minute=600)
BOTH = ClientKey(name="both", requests_per_minute=1200, tokens_per_minute=600)


class Clock:
    """Time that can be put forward."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.ahead


@pytest.fixture
def server() -> Iterator[ValkeyServer]:
    with running() as server:
        yield server


class Limits:
    """The limits of clients as one process has them."""

    def __init__(self, store: RedisState, clock: Clock) -> None:
        self.store = store
        self.buckets = Buckets(store, clock=clock)
        self.accounts = ClientAccounts(self.buckets)

    async def admit(self, client: ClientKey) -> float | None:
        """None if a request is let in, else the seconds to wait."""
        reached = await self.accounts.limit_reached(client, costs=True)
        return None if reached is None else reached.wait

    async def flush(self) -> None:
        await self.buckets.exchange()


@asynccontextmanager
async def workers(
    address: str, count: int = 2, *, clock: Clock | None = None, timeout: float = 10.0
) -> AsyncIterator[list[Limits]]:
    """Limits as so many processes have them."""
    stores = [RedisState(parse_store_url(address), timeout=timeout) for _ in range(count)]
    limits = [Limits(store, clock or Clock()) for store in stores]
    try:
        for store in stores:
            await store.connect()
            store.mark_available()
        yield limits
    finally:
        for one in limits:
            await one.buckets.aclose()
            await one.store.aclose()


async def let_in(limits: Limits, client: ClientKey, tries: int) -> int:
    """How many of so many requests are let in."""
    return sum([await limits.admit(client) is None for _ in range(tries)])


async def at_once(limits: Limits, client: ClientKey, tries: int) -> int:
    return sum(wait is None for wait in await asyncio.gather(*(limits.admit(client) for _ in range(tries))))


def asked(server: ValkeyServer) -> int:
    """How often the script ran so far."""
    counts = server.ask("INFO", "commandstats")
    return sum(int(counts.get(f"cmdstat_{name}", {"calls": 0})["calls"]) for name in ("eval", "evalsha"))


def test_a_small_limit_holds_for_all_together(server: ValkeyServer) -> None:
    async def run() -> None:
        async with workers(server.address, 3) as (one, two, three):
            assert await let_in(one, SMALL, 4) == 4
            assert await let_in(two, SMALL, 4) == 4
            assert await let_in(three, SMALL, 4) == 2
            assert await let_in(one, SMALL, 4) == 0
            wait = await two.admit(SMALL)
            assert wait is not None
            assert 0 < wait <= 6.0
            # Others and those without a limit do not share it.
            assert await let_in(one, ClientKey(name="other", requests_per_minute=2), 4) == 2
            assert await let_in(one, ClientKey(name="small"), 100) == 100

    asyncio.run(run())


def test_concurrent_requests_share_what_is_left(server: ValkeyServer) -> None:
    async def run() -> None:
        async with workers(server.address, 2) as (one, two):
            before = asked(server)
            got = await asyncio.gather(at_once(one, SMALL, 50), at_once(two, SMALL, 50))
            assert sum(got) == 10
            assert asked(server) - before < 10  # not one for each

    asyncio.run(run())


def test_a_large_limit_is_asked_for_in_slices_and_overshoots_by_no_more(server: ValkeyServer) -> None:
    async def run() -> None:
        async with workers(server.address, 3) as limits:
            began, before = time.monotonic(), asked(server)
            got = sum(await asyncio.gather(*(let_in(one, LARGE, 2500) for one in limits)))
            passed = time.monotonic() - began
            assert 6000 - 3 * 10 <= got <= 6000 + 100 * passed + 3 * 10
            assert asked(server) - before <= 6000 / 10 + 100 * passed + 3

    asyncio.run(run())


def test_rejected_requests_do_not_ask_the_store(server: ValkeyServer) -> None:
    async def run() -> None:
        async with workers(server.address, 1) as [limits]:
            assert await let_in(limits, SMALL, 11) == 10
            before = asked(server)
            assert await let_in(limits, SMALL, 200) == 0
            assert asked(server) - before <= 1

    asyncio.run(run())


def test_cancelled_waiters_give_their_admissions_back(server: ValkeyServer) -> None:
    async def run() -> None:
        async with workers(server.address, 1) as [limits]:
            asking = [asyncio.create_task(limits.admit(SMALL)) for _ in range(6)]
            await asyncio.sleep(0)
            for leaving in asking[:3]:
                leaving.cancel()
            assert [await one for one in asking[3:]] == [None] * 3
            # What was given for those who left is in hand.
            assert await let_in(limits, SMALL, 20) == 7

    asyncio.run(run())


def test_tokens_are_a_debt_at_every_worker(server: ValkeyServer) -> None:
    async def run() -> None:
        async with workers(server.address, 2) as (one, two):
            for key in (TOKENS, BOTH):
                assert await one.admit(key) is None
                assert await two.admit(key) is None
                one.accounts.charge(key, 1200)
                assert await one.admit(key) is not None  # at once where it was spent
                await one.flush()
                await asyncio.sleep(SYNC_SECONDS * 1.2)
                wait = await two.admit(key)
                assert wait == pytest.approx(60.0, abs=5.0)

    asyncio.run(run())


def test_spending_is_reported_once_even_concurrently(server: ValkeyServer) -> None:
    async def run() -> None:
        async with workers(server.address, 1) as [limits]:
            limits.accounts.charge(TOKENS, 100)
            await asyncio.gather(limits.flush(), limits.admit(TOKENS), limits.flush())

    asyncio.run(run())
    assert float(server.ask("HGET", "antiphon:bucket:tokens:tokens", "level")) == pytest.approx(500, abs=20)


def test_amounts_taken_in_advance_are_reported_once(server: ValkeyServer) -> None:
    async def run() -> None:
        async with workers(server.address, 2) as (one, two):
            assert await let_in(two, SMALL, 3) == 3
            one.store.is_unavailable = True
            assert await let_in(one, SMALL, 6) == 6
            one.store.is_unavailable = False
            await one.flush()
            await one.flush()
            assert await let_in(two, SMALL, 20) == 1

    asyncio.run(run())


def test_buckets_that_are_full_are_not_kept(server: ValkeyServer) -> None:
    async def run() -> None:
        async with workers(server.address, 1) as [limits]:
            await limits.admit(SMALL)
            limits.accounts.charge(TOKENS, 6000)
            await limits.flush()

    asyncio.run(run())
    assert 6000 <= int(server.ask("PTTL", "antiphon:bucket:small:requests")) <= 8000
    assert 590_000 <= int(server.ask("PTTL", "antiphon:bucket:tokens:tokens")) <= 602_000


def test_a_flush_grants_no_new_minute(server: ValkeyServer) -> None:
    async def run() -> None:
        async with workers(server.address, 2) as (one, two):
            assert await let_in(one, SMALL, 4) == 4
            assert await let_in(two, SMALL, 4) == 4
            one.accounts.charge(TOKENS, 1200)
            await one.flush()
            server.ask("FLUSHALL")
            server.ask("SCRIPT", "FLUSH")
            assert await let_in(two, SMALL, 20) == 2
            assert await let_in(one, SMALL, 20) == 0
            assert await one.admit(TOKENS) is not None

    asyncio.run(run())


def test_without_the_store_each_process_counts_alone_without_waiting(server: ValkeyServer) -> None:
    async def run() -> None:
        clock = Clock()
        with Line(server) as line:
            async with workers(line.address, 2, clock=clock, timeout=0.25) as (one, two):
                assert await let_in(one, SMALL, 3) == 3
                assert await let_in(two, SMALL, 3) == 3
                line.hang()
                # The first waits for its patience, the others for nothing; it continues from what it saw last.
                assert await at_once(one, SMALL, 20) == 7
                assert one.store.is_unavailable
                assert "no reply within 0.25 s" in one.store.reason
                clock.ahead += 120.0  # full again, alone
                assert await let_in(one, SMALL, 20) == 10
                line.resume()
                await one.store.connect()
                await one.flush()
                one.store.mark_available()
                assert await let_in(one, SMALL, 20) == 0
                # The other one learns what was used: nothing is left.
                assert await let_in(two, SMALL, 20) == 0

    asyncio.run(run())


def test_usage_of_an_outage_decays_until_the_store_is_back(server: ValkeyServer) -> None:
    async def run() -> None:
        clock = Clock()
        async with workers(server.address, 2, clock=clock) as (one, two):
            one.store.is_unavailable = True
            assert await let_in(one, SMALL, 20) == 10
            clock.ahead += 48.0
            one.store.is_unavailable = False
            await one.flush()
            assert await let_in(two, SMALL, 20) == 8

    asyncio.run(run())


@pytest.mark.parametrize("trouble", ["READONLY", "no password", "wrong password", "no server"])
def test_an_unusable_server_is_reported_as_away_with_the_reason(server: ValkeyServer, trouble: str) -> None:
    expected = {
        "READONLY": "replica",
        "no password": "NOAUTH|Authentication required",
        "wrong password": "WRONGPASS|invalid username-password",
        "no server": "No such file|connect",
    }[trouble]

    async def run(address: str, password: str = "") -> None:
        store = RedisState(
            parse_store_url(address),
            Credential(secret="env:SHARED") if password else None,
            environ={"SHARED": password},
            timeout=10.0,
        )
        limits = Limits(store, Clock())
        with pytest.raises(SharedStoreUnavailable, match=expected) as away:
            await store.connect()
        assert store.is_unavailable
        assert store.status.is_unavailable
        assert "sesame" not in f"{away.value}{store.reason}"
        assert await let_in(limits, SMALL, 20) == 10
        await store.aclose()

    if trouble == "READONLY":
        with running("--replicaof", "127.0.0.1 1", "--replica-serve-stale-data", "yes") as replica:
            asyncio.run(run(replica.address))
    elif trouble == "no server":
        asyncio.run(run(f"{server.address}-that-is-none"))
    else:
        with running("--requirepass", "open sesame") as locked:
            asyncio.run(run(locked.address, "" if trouble == "no password" else "close-sesame-1234"))


def test_a_password_is_read_for_every_connection() -> None:
    async def run(address: str) -> None:
        environ = {"SHARED": "sesame-of-yesterday"}
        store = RedisState(parse_store_url(address), Credential(secret="env:SHARED"), environ=environ, timeout=10.0)
        with pytest.raises(SharedStoreUnavailable):
            await store.connect()
        environ["SHARED"] = "sesame-of-today"
        await store.connect()
        assert await store.execute([("ECHO", "hello")]) == ["hello"]
        assert store.secrets == ("sesame-of-today",)
        await store.aclose()

    with running("--requirepass", "sesame-of-today") as locked:
        asyncio.run(run(locked.address))
