"""Tokens and money per day and month: when a request is refused, until when, and what several processes know of each other."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime

import pytest

from antiphon.errors import SharedStoreUnavailable
from antiphon.prices.table import PriceOverride, PriceTable
from antiphon.providers.routes import Target
from antiphon.wire.output import ProviderError
from antiphon_gateway.access.accounts import EMBEDDED, ClientAccounts, LimitReached, priced_targets
from antiphon_gateway.access.client_keys import ClientKey
from antiphon_gateway.share.counts import NOTHING, Amount, Counters, Period, periods_of


class Clock:
    """Time that is set by hand."""

    def __init__(self, written: str) -> None:
        self.now = datetime.fromisoformat(written).replace(tzinfo=UTC).timestamp()

    def set(self, written: str) -> None:
        self.now = datetime.fromisoformat(written).replace(tzinfo=UTC).timestamp()

    def __call__(self) -> float:
        return self.now


class SharedCounters:
    """What several processes share, in memory."""

    def __init__(self) -> None:
        self.totals: dict[Period, Amount] = {}
        self.exchanges = 0
        self.is_available = True

    async def count(self, added: Mapping[Period, Amount]) -> dict[Period, Amount]:
        self.exchanges += 1
        await asyncio.sleep(0)
        if not self.is_available:
            raise SharedStoreUnavailable("the counters are away")
        for period, amount in added.items():
            self.totals[period] = self.totals.get(period, NOTHING) + amount
        return {period: self.totals[period] for period in added}

    def days(self) -> list[int]:
        """The tokens of each day that has some."""
        return sorted(total.tokens for period, total in self.totals.items() if period.end == period.start + 1)


class Budgets:
    """The budgets of clients as one process has them."""

    def __init__(self, shared: SharedCounters | None = None, *, clock: Clock) -> None:
        self._clock = clock
        self._counters = Counters(shared, clock=clock)
        self.accounts = ClientAccounts(counters=self._counters, clock=clock)
        self.charge = self.accounts.charge

    async def admit(self, client: ClientKey) -> LimitReached | None:
        return await self.accounts.limit_reached(client, costs=True)

    def used(self, client: ClientKey) -> list[Amount]:
        """What a client has used of its day and its month."""
        return [self._counters.total(period) for period in periods_of(client.name, int(self._clock() // 86_400))]

    async def flush(self) -> None:
        await self._counters.exchange()


def test_a_day_and_a_month_end_at_midnight_utc() -> None:
    clock = Clock("2026-11-29T22:00:00")
    budgets = Budgets(clock=clock)
    client = ClientKey(name="a", tokens_per_day=100, tokens_per_month=250)

    async def limit() -> tuple[str, float] | None:
        reached = await budgets.admit(client)
        return None if reached is None else (reached.limit, reached.wait)

    async def run() -> None:
        assert await limit() is None
        budgets.charge(client, 99)
        assert await limit() is None
        budgets.charge(client, 31)
        assert await limit() == ("tokens_per_day", 7200.0)
        clock.set("2026-11-30T00:00:00")
        assert await limit() is None
        budgets.charge(client, 120)
        assert await limit() == ("tokens_per_month", 86_400.0)  # it lasts longer than the day
        clock.set("2026-12-01T00:00:00")
        assert await limit() is None
        assert budgets.used(client) == [NOTHING, NOTHING]

    asyncio.run(run())


def test_money_is_counted_exactly_and_the_refusal_says_how_much() -> None:
    clock = Clock("2026-11-16T12:00:00")
    budgets = Budgets(clock=clock)
    client = ClientKey(name="a", budget_per_month=0.30)

    async def run() -> None:
        for _ in range(299):
            budgets.charge(client, 10, 1_000_000)
        assert await budgets.admit(client) is None
        budgets.charge(client, 10, 1_000_000)
        reached = await budgets.admit(client)
        assert reached is not None
        assert reached.message == (
            "budget exceeded for this key: $0.30 of $0.30 spent this month (budget_per_month); "
            "retry in 1252800 s, at 2026-12-01T00:00:00Z"
        )

    asyncio.run(run())


def test_a_raised_limit_counts_at_once() -> None:
    budgets = Budgets(clock=Clock("2026-11-16T12:00:00"))

    async def run() -> None:
        budgets.charge(ClientKey(name="a", tokens_per_day=10), 10)
        assert await budgets.admit(ClientKey(name="a", tokens_per_day=10)) is not None
        assert await budgets.admit(ClientKey(name="a", tokens_per_day=11)) is None

    asyncio.run(run())


def test_workers_learn_from_each_other_within_an_interval() -> None:
    clock, shared = Clock("2026-11-16T12:00:00"), SharedCounters()
    one, two = (Budgets(shared, clock=clock) for _ in range(2))
    client = ClientKey(name="a", tokens_per_day=100)

    async def run() -> None:
        assert await one.admit(client) is None
        assert await two.admit(client) is None
        asked = shared.exchanges
        for _ in range(50):
            assert await one.admit(client) is None
        assert shared.exchanges == asked  # the counters are in memory
        one.charge(client, 100)
        assert await one.admit(client) is not None
        assert await two.admit(client) is None  # not yet
        await one.flush()
        await two.flush()
        assert await two.admit(client) is not None
        # A worker that starts now begins with what the others counted.
        three = Budgets(shared, clock=clock)
        assert await three.admit(client) is not None

    asyncio.run(run())


def test_idle_clients_are_not_exchanged_and_their_first_request_asks() -> None:
    clock, shared = Clock("2026-11-16T12:00:00"), SharedCounters()
    one, two = (Budgets(shared, clock=clock) for _ in range(2))
    client = ClientKey(name="a", tokens_per_day=100)

    async def run() -> None:
        assert await one.admit(client) is None
        clock.now += 120
        await one.flush()
        asked = shared.exchanges
        await one.flush()
        assert shared.exchanges == asked
        two.charge(client, 100)
        await two.flush()
        assert await one.admit(client) is not None

    asyncio.run(run())


def test_requests_that_wait_share_one_exchange() -> None:
    clock, shared = Clock("2026-11-16T12:00:00"), SharedCounters()
    budgets = Budgets(shared, clock=clock)
    client = ClientKey(name="a", tokens_per_day=100)

    async def run() -> None:
        assert await asyncio.gather(*(budgets.admit(client) for _ in range(20))) == [None] * 20
        assert shared.exchanges == 1

    asyncio.run(run())


def test_charges_made_while_the_counters_are_away_are_reported_later(caplog: pytest.LogCaptureFixture) -> None:
    clock, shared = Clock("2026-11-16T12:00:00"), SharedCounters()
    budgets = Budgets(shared, clock=clock)
    client = ClientKey(name="a", tokens_per_day=100)

    async def run() -> None:
        shared.is_available = False
        assert await budgets.admit(client) is None
        budgets.charge(client, 60)
        for _ in range(5):
            clock.now += 2
            await budgets.flush()
        budgets.charge(client, 40)
        assert await budgets.admit(client) is not None
        shared.is_available = True
        clock.now += 2
        await budgets.flush()
        assert shared.days() == [100]

    asyncio.run(run())
    assert [record.levelname for record in caplog.records if "budgets" in record.message].count("WARNING") == 1


def test_charges_before_midnight_count_for_their_own_day() -> None:
    clock, shared = Clock("2026-11-30T23:59:59"), SharedCounters()
    budgets = Budgets(shared, clock=clock)
    client = ClientKey(name="a", tokens_per_day=100, tokens_per_month=100)

    async def run() -> None:
        assert await budgets.admit(client) is None
        budgets.charge(client, 70)
        clock.set("2026-12-01T00:00:01")
        budgets.charge(client, 30)
        await budgets.flush()
        assert shared.days() == [30, 70]
        assert budgets.used(client) == [Amount(30), Amount(30)]

    asyncio.run(run())


def test_under_a_money_budget_only_targets_with_a_price_are_used() -> None:
    table = PriceTable((PriceOverride(model="half", input=1.0), PriceOverride(model="free", input=0.0, output=0.0)))
    targets = [Target("mine", "unknown"), Target("openai", "gpt-4o"), Target("mine", "half"), Target("mine", "free")]
    rich, poor = ClientKey(name="r", tokens_per_day=1), ClientKey(name="p", budget_per_day=1.0)
    assert priced_targets(rich, targets, table) == targets
    assert priced_targets(poor, targets, table) == [targets[1], targets[3]]
    assert priced_targets(poor, targets, table, EMBEDDED) == targets[1:]
    refused = priced_targets(poor, targets[:1], table)
    assert isinstance(refused, ProviderError)
    assert "the price of mine/unknown is not known" in refused.message
