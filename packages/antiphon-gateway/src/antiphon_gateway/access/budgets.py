"""`Budgets`: tokens and money per client, calendar day and month (UTC).

A request is admitted while something is left; what it cost is charged when it ends. The counters are in memory. Once per
`interval` they are exchanged with what all workers and hosts share (`cluster.shared_budgets` or the ledger), for all clients that
were active, together: no request makes a query of its own, except the first one of a client. So a client can exceed its limit by
what is in flight when the limit is reached, plus what the others charged since the last exchange.

While the shared side is unavailable each worker counts on from what it knows, and reports it later.
"""

from __future__ import annotations

import asyncio
import logging
import time
from calendar import monthrange
from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import Protocol

from msgspec import Struct

from antiphon.prices.rate_card import TokenCounts
from antiphon.prices.table import PriceTable
from antiphon.providers.routes import Target
from antiphon.wire.output import ProviderError
from antiphon_gateway.access.client_keys import ClientKey
from antiphon_gateway.access.refusals import LimitReached
from antiphon_gateway.utc_time import DAY_SECONDS, date_of, now_microseconds

logger = logging.getLogger("antiphon.gateway")

INTERVAL_SECONDS = 1.0
_IDLE_SECONDS = 60.0


class Amount(Struct, frozen=True):
    """Tokens, and money in billionths of a dollar."""

    tokens: int = 0
    nanodollars: int = 0

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.tokens + other.tokens, self.nanodollars + other.nanodollars)

    def __sub__(self, other: Amount) -> Amount:
        return Amount(self.tokens - other.tokens, self.nanodollars - other.nanodollars)


NOTHING = Amount()


class UsageReport(Struct, frozen=True):
    """What a worker charged to a client since its last report, by day; days are since 1970."""

    client: str
    charged: Mapping[int, Amount]


class Totals(Struct, frozen=True):
    """What a client has used, in all processes together."""

    day: Amount = NOTHING
    month: Amount = NOTHING


class BudgetExchange(Protocol):
    """Where processes share what clients used. Raises `Unavailable`."""

    async def __call__(self, reports: Sequence[UsageReport], today: int) -> Sequence[Totals]:
        """Count the reports; the totals of each client for the day `today` and its month."""


class Unavailable(Exception):
    """The shared counters cannot be reached at present."""


class Budgets:
    """What clients used of their budgets. `clock` gives seconds since 1970."""

    def __init__(
        self,
        exchange: BudgetExchange | None = None,
        *,
        interval: float = INTERVAL_SECONDS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._exchange = exchange
        self._interval = interval
        self._clock = clock
        self._accounts: dict[str, _Account] = {}
        self._turn = asyncio.Lock()  # two exchanges at once would report the same usage twice
        self._unavailable_until = -inf
        self._logged_unavailable = False

    async def admit(self, client: ClientKey) -> LimitReached | None:
        """The limit that a client has used up; None if it may send a request."""
        now = self._clock()
        account = self._account(client.name, now)
        reached = account.limit_reached(client, now)
        if reached is not None or self._exchange is None:
            return reached
        if now - account.synced_at > 2 * self._interval and now >= self._unavailable_until:
            async with self._turn:  # one exchange serves all requests that wait for it
                if now - account.synced_at > 2 * self._interval and now >= self._unavailable_until:
                    await self._sync([account])
            return account.limit_reached(client, self._clock())
        return None

    def charge(self, client: ClientKey, tokens: int, nanodollars: int = 0) -> None:
        """Charge what a request used. A client without a budget is not counted."""
        if not client.has_budget:
            return
        now = self._clock()
        self._account(client.name, now).add(_day_of(now), Amount(max(0, tokens), nanodollars))

    def used(self, client: ClientKey) -> Totals:
        """What a client has used of its day and month, as far as this process knows."""
        return self._account(client.name, self._clock()).totals

    async def flush(self) -> None:
        """Exchange the counters of the clients that were active."""
        if self._exchange is None or self._clock() < self._unavailable_until:
            return
        async with self._turn:
            now = self._clock()
            for name, account in list(self._accounts.items()):
                if not account.pending and now - account.active_at > _IDLE_SECONDS:
                    del self._accounts[name]
            if self._accounts:
                await self._sync(list(self._accounts.values()))

    async def run(self) -> None:
        """Exchange until cancelled."""
        while True:
            await asyncio.sleep(self._interval)
            try:
                await self.flush()
            except Exception:  # a defect of ours must not end the loop
                logger.exception("internal error while exchanging budgets")

    async def _sync(self, accounts: list[_Account]) -> None:
        assert self._exchange is not None
        began = self._clock()
        today = _day_of(began)
        reports = [UsageReport(account.name, dict(account.pending)) for account in accounts]
        try:
            totals = await self._exchange(reports, today)
        except Unavailable as error:
            self._unavailable_until = self._clock() + self._interval
            if not self._logged_unavailable:
                logger.warning("budgets: %s; each worker counts on its own until it is reachable", error)
            self._logged_unavailable = True
            return
        if self._logged_unavailable:
            logger.info("budgets: the shared counters are reachable again")
        self._logged_unavailable = False
        for account, report, total in zip(accounts, reports, totals, strict=True):
            account.take(report, total, today, began)

    def _account(self, name: str, now: float) -> _Account:
        account = self._accounts.get(name)
        if account is None:
            account = self._accounts[name] = _Account(name, _day_of(now))
        account.active_at = now
        account.turn_to(_day_of(now))
        return account


class _Account:
    """One client in this process: the shared totals it knows, and what it charged since, by day."""

    __slots__ = ("_known", "_today", "active_at", "name", "pending", "synced_at")

    def __init__(self, name: str, today: int) -> None:
        self.name = name
        self.pending: dict[int, Amount] = {}
        self.synced_at = self.active_at = -inf
        self._today = today
        self._known = Totals()

    @property
    def totals(self) -> Totals:
        """What was used today and this month."""
        today = self.pending.get(self._today, NOTHING)
        first = month_start(self._today)
        month = sum((amount for day, amount in self.pending.items() if day >= first), NOTHING)
        return Totals(self._known.day + today, self._known.month + month)

    def turn_to(self, today: int) -> None:
        """Begin a new day, and a new month with its first day."""
        if today != self._today:
            is_same_month = month_start(today) == month_start(self._today)
            self._known = Totals(NOTHING, self._known.month if is_same_month else NOTHING)
            self._today = today

    def add(self, day: int, amount: Amount) -> None:
        """Charge an amount."""
        self.pending[day] = self.pending.get(day, NOTHING) + amount

    def take(self, report: UsageReport, totals: Totals, today: int, began: float) -> None:
        """Use the shared totals, which contain what was reported."""
        for day, amount in report.charged.items():
            left = self.pending[day] - amount
            if left == NOTHING:
                del self.pending[day]
            else:
                self.pending[day] = left
        if today == self._today:
            self._known = totals
            self.synced_at = began

    def limit_reached(self, client: ClientKey, now: float) -> LimitReached | None:
        """The limit that is used up; the one that lasts longest, if there are several."""
        totals = self.totals
        for period, used, end in (
            ("month", totals.month, _end_of_month(self._today)),
            ("day", totals.day, self._today + 1),
        ):
            for limit, amount in (
                (f"budget_per_{period}", used.nanodollars / 1e9),
                (f"tokens_per_{period}", float(used.tokens)),
            ):
                allowed = getattr(client, limit)
                if allowed is not None and amount >= allowed:
                    resets_at = end * DAY_SECONDS
                    wait = max(1.0, resets_at - now)
                    return LimitReached(limit=limit, used=amount, allowed=allowed, wait=wait, resets_at=resets_at)
        return None


GENERATED: TokenCounts = (1, 1, 0, 0, 0, 0)
EMBEDDED: TokenCounts = (1, 0, 0, 0, 0, 0)
"""What a call uses at least."""


def priced_targets(
    client: ClientKey, targets: list[Target], table: PriceTable, tokens: TokenCounts = GENERATED
) -> list[Target] | ProviderError:
    """The targets a client with a money budget may use: those with a known price, because no call may be free by mistake."""
    if not client.has_money_budget:
        return targets
    now = now_microseconds()
    cards = (table.card(target.provider, target.model) for target in targets)
    priced = [target for target, card in zip(targets, cards, strict=True) if card.nanodollars(tokens, now) is not None]
    if priced:
        return priced
    names = ", ".join(f"{target.provider}/{target.model}" for target in targets)
    return ProviderError(
        f"this key has a money budget, and the price of {names} is not known; "
        "add it under [[prices]] in the configuration, or use a model with a known price",
        "permission",
        code="price_unknown",
    )


def month_start(day: int) -> int:
    """The first day of the month of a day, both since 1970."""
    return day - date_of(day).day + 1


def _end_of_month(day: int) -> int:
    first = month_start(day)
    month = date_of(first)
    return first + monthrange(month.year, month.month)[1]


def _day_of(now: float) -> int:
    return int(now // DAY_SECONDS)
