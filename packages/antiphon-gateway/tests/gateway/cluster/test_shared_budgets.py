"""Budgets that several processes count together in a real server: totals, first values from a ledger, an emptied server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager

import pytest

from antiphon_gateway.access.budgets import Amount, BudgetExchange, Budgets, Totals, Unavailable, UsageReport
from antiphon_gateway.access.client_keys import ClientKey
from antiphon_gateway.cluster.redis_store import SharedStore
from antiphon_gateway.cluster.shared_budgets import SharedBudgets
from antiphon_gateway.config.store_url import parse_store_url
from support.valkey_server import ValkeyServer, running

TODAY = 20_773  # 2026-11-16


@pytest.fixture
def server() -> Iterator[ValkeyServer]:
    with running() as server:
        yield server


@asynccontextmanager
async def exchange(server: ValkeyServer, ledger: BudgetExchange | None = None) -> AsyncIterator[SharedBudgets]:
    store = SharedStore(parse_store_url(server.address))
    await store.connect()
    store.mark_available()
    try:
        yield SharedBudgets(store, ledger)
    finally:
        await store.aclose()


def test_reports_of_all_processes_add_up(server: ValkeyServer) -> None:
    async def play() -> None:
        async with exchange(server) as one, exchange(server) as two:
            assert await one([UsageReport("a", {})], TODAY) == [Totals()]
            reports = [UsageReport("a", {TODAY: Amount(5, 7)}), UsageReport("b", {TODAY: Amount(1, 1)})]
            assert await one(reports, TODAY) == [Totals(Amount(5, 7), Amount(5, 7)), Totals(Amount(1, 1), Amount(1, 1))]
            [total] = await two([UsageReport("a", {TODAY - 1: Amount(10, 0), TODAY: Amount(1, 1)})], TODAY)
            assert total == Totals(Amount(6, 8), Amount(16, 8))
            # The next day begins with nothing; the next month too.
            assert await one([UsageReport("a", {})], TODAY + 1) == [Totals(Amount(), Amount(16, 8))]
            assert await one([UsageReport("a", {})], TODAY + 20) == [Totals()]

    asyncio.run(play())
    keys = server.ask("KEYS", "*spent:a:*")
    assert keys
    assert all(int(server.ask("TTL", key)) != -1 for key in keys)


def test_a_new_counter_begins_with_what_the_ledger_has(server: ValkeyServer) -> None:
    asked: list[list[str]] = []

    async def ledger(reports: Sequence[UsageReport], today: int) -> list[Totals]:
        assert today == TODAY
        asked.append([report.client for report in reports])
        return [Totals(Amount(50, 500), Amount(80, 800)) for _ in reports]

    async def play() -> None:
        async with exchange(server, ledger) as one, exchange(server, ledger) as two:
            # What was charged is in the ledger's totals already.
            [first] = await one([UsageReport("a", {TODAY: Amount(5, 5)})], TODAY)
            assert first == Totals(Amount(50, 500), Amount(80, 800))
            [second] = await two([UsageReport("a", {TODAY: Amount(5, 5)})], TODAY)
            assert second == Totals(Amount(55, 505), Amount(85, 805))
            server.ask("FLUSHALL")
            server.ask("SCRIPT", "FLUSH")
            [third] = await one([UsageReport("a", {})], TODAY)
            assert third == Totals(Amount(50, 500), Amount(80, 800))
            assert asked == [["a"], ["a"]]

    asyncio.run(play())


def test_a_server_that_was_emptied_across_midnight_loses_nothing_of_the_month(server: ValkeyServer) -> None:
    async def ledger(reports: Sequence[UsageReport], today: int) -> list[Totals]:
        return [Totals(Amount(5, 5), Amount(80, 800)) for _ in reports]

    async def play() -> None:
        report = UsageReport("a", {TODAY - 1: Amount(10, 10), TODAY: Amount(5, 5)})
        async with exchange(server, ledger) as counted:
            assert await counted([report], TODAY) == [Totals(Amount(5, 5), Amount(80, 800))]
            assert await counted([report], TODAY) == [Totals(Amount(10, 10), Amount(95, 815))]

    asyncio.run(play())


def test_a_limit_holds_for_all_workers_within_what_is_in_flight(server: ValkeyServer) -> None:
    client = ClientKey(name="a", budget_per_day=1.0)

    async def play() -> None:
        async with exchange(server) as one, exchange(server) as two:
            workers = [Budgets(one, interval=0.05), Budgets(two, interval=0.05)]
            admitted = 0
            for _ in range(60):
                for worker in workers:
                    if await worker.admit(client) is None:
                        admitted += 1
                        worker.charge(client, 1, 50_000_000)  # one request at a time is in flight
                    await worker.flush()
            # The other worker may admit one more before it learns of the request that reached the limit.
            assert admitted in (20, 21)

    asyncio.run(play())


def test_a_server_that_is_away_is_reported_as_such(server: ValkeyServer) -> None:
    async def play() -> None:
        async with exchange(server) as one:
            server.kill()
            with pytest.raises(Unavailable, match="unavailable"):
                await one([UsageReport("a", {})], TODAY)

    asyncio.run(play())
