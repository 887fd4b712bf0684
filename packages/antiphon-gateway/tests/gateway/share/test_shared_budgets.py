"""Budgets that several processes count together in a real server: totals, first values from a ledger, an emptied server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager

import pytest

from antiphon.errors import SharedStoreUnavailable
from antiphon_gateway.access.accounts import ClientAccounts
from antiphon_gateway.access.client_keys import ClientKey
from antiphon_gateway.config.references import parse_store_url
from antiphon_gateway.share.counts import NOTHING, Amount, Counters, CounterStore, Period, periods_of
from antiphon_gateway.share.redis_state import RedisState
from antiphon_gateway.utc_time import date_of
from support.valkey_server import ValkeyServer, running

TODAY = int(time.time() // 86_400)
FIRST = periods_of("", TODAY)[1].start


@pytest.fixture
def server() -> Iterator[ValkeyServer]:
    with running() as server:
        yield server


@asynccontextmanager
async def exchange(server: ValkeyServer, ledger: CounterStore | None = None) -> AsyncIterator[RedisState]:
    store = RedisState(parse_store_url(server.address), ledger=ledger, timeout=10.0)
    await store.connect()
    store.mark_available()
    try:
        yield store
    finally:
        await store.aclose()


def day(client: str, number: int = TODAY) -> Period:
    return Period(client, number, number + 1)


def month(client: str) -> Period:
    return periods_of(client, TODAY)[1]


def test_reports_of_all_processes_add_up(server: ValkeyServer) -> None:
    async def run() -> None:
        async with exchange(server) as one, exchange(server) as two:
            assert await one.count({day("a"): NOTHING}) == {day("a"): NOTHING}
            added = {day("a"): Amount(5, 7), month("a"): Amount(5, 7), day("b"): Amount(1, 1)}
            assert await one.count(added) == added
            late = {day("a", TODAY - 1): Amount(10, 0), day("a"): Amount(1, 1), month("a"): Amount(11, 1)}
            assert await two.count(late) == {
                day("a", TODAY - 1): Amount(10, 0),
                day("a"): Amount(6, 8),
                month("a"): Amount(16, 8),
            }
            assert await one.count({day("a", TODAY + 1): NOTHING}) == {day("a", TODAY + 1): NOTHING}

    asyncio.run(run())
    keys = server.ask("KEYS", "*spent:a:*")
    today = date_of(TODAY)
    assert {f"antiphon:spent:a:{today}", f"antiphon:spent:a:{today:%Y-%m}"} <= set(keys), (
        "older gateways use these names"
    )
    assert all(int(server.ask("TTL", key)) != -1 for key in keys)


class Ledger:
    """A ledger with some totals, what was added included."""

    def __init__(self, totals: Mapping[Period, Amount]) -> None:
        self.totals = totals
        self.asked: list[list[Period]] = []
        self.is_available = True

    async def count(self, added: Mapping[Period, Amount]) -> dict[Period, Amount]:
        self.asked.append(list(added))
        if not self.is_available:
            raise SharedStoreUnavailable("the ledger is away")
        return {period: self.totals[period] for period in added}


def test_a_new_counter_begins_with_what_the_ledger_has(server: ValkeyServer) -> None:
    ledger = Ledger({day("a"): Amount(50, 500), month("a"): Amount(80, 800)})

    async def run() -> None:
        async with exchange(server, ledger) as one, exchange(server, ledger) as two:
            # What was charged is in the ledger's totals already.
            added = dict.fromkeys((day("a"), month("a")), Amount(5, 5))
            assert await one.count(added) == ledger.totals
            assert await two.count(added) == {day("a"): Amount(55, 505), month("a"): Amount(85, 805)}
            server.ask("FLUSHALL")
            server.ask("SCRIPT", "FLUSH")
            assert await one.count(dict.fromkeys(added, NOTHING)) == ledger.totals
            assert ledger.asked == [[day("a"), month("a")]] * 2

    asyncio.run(run())


def test_a_server_that_was_emptied_across_midnight_loses_nothing_of_the_month(server: ValkeyServer) -> None:
    totals = {day("a", TODAY - 1): Amount(75, 795), day("a"): Amount(5, 5), month("a"): Amount(80, 800)}

    async def run() -> None:
        added = {day("a", TODAY - 1): Amount(10, 10), day("a"): Amount(5, 5), month("a"): Amount(15, 15)}
        async with exchange(server, Ledger(totals)) as counted:
            assert await counted.count(added) == totals
            assert await counted.count(added) == {period: totals[period] + amount for period, amount in added.items()}

    asyncio.run(run())


def test_amounts_added_while_the_ledger_is_away_are_counted_later(server: ValkeyServer) -> None:
    ledger, client = Ledger({}), ClientKey(name="a", tokens_per_day=100)

    async def run() -> None:
        async with exchange(server, ledger) as store:
            counters = Counters(store, interval=0.01)
            accounts = ClientAccounts(counters=counters)
            ledger.is_available = False
            assert await accounts.limit_reached(client, costs=True) is None
            accounts.charge(client, 60, 7)
            await counters.exchange()
            assert counters.total(day("a")) == Amount(60, 7)
            ledger.totals, ledger.is_available = dict.fromkeys(ledger.asked[-1], Amount(90, 9)), True
            await asyncio.sleep(0.02)
            await counters.exchange()
            assert counters.total(day("a")) == Amount(90, 9)
            accounts.charge(client, 10)
            assert await accounts.limit_reached(client, costs=True) is not None

    asyncio.run(run())


def test_a_limit_holds_for_all_workers_within_what_is_in_flight(server: ValkeyServer) -> None:
    client = ClientKey(name="a", budget_per_day=1.0)

    async def run() -> None:
        async with exchange(server) as one, exchange(server) as two:
            counters = [Counters(one, interval=0.05), Counters(two, interval=0.05)]
            workers = [(ClientAccounts(counters=each), each) for each in counters]
            admitted = 0
            for _ in range(60):
                for accounts, shared in workers:
                    if await accounts.limit_reached(client, costs=True) is None:
                        admitted += 1
                        accounts.charge(client, 1, 50_000_000)  # one request at a time is in flight
                    await shared.exchange()
            # The other worker may admit one more before it learns of the request that reached the limit.
            assert admitted in (20, 21)

    asyncio.run(run())


def test_a_server_that_is_away_is_reported_as_such(server: ValkeyServer) -> None:
    async def run() -> None:
        async with exchange(server) as one:
            server.kill()
            with pytest.raises(SharedStoreUnavailable, match="unavailable"):
                await one.count({day("a"): NOTHING})

    asyncio.run(run())
