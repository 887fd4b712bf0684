"""`Counters`: what clients used in a day or a month, counted by all processes together.

A counter is what is known of all processes, and what was added here since. Once per `interval` those in use are exchanged with
what processes share, together: no request makes a query of its own, except the first one of a client. Something that was added
stays pending until an exchange has confirmed it, so nothing is lost or counted twice. While the shared side is unavailable each
process counts on from what it knows, and reports it later.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from math import inf
from typing import Protocol

from msgspec import Struct

from antiphon.errors import SharedStoreUnavailable
from antiphon_gateway.share.grouped import GroupedExchange
from antiphon_gateway.utc_time import date_of

logger = logging.getLogger("antiphon.gateway")

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


class Period(Struct, frozen=True):
    """A calendar day or month of a client, from day `start` to before `end`; days are since 1970, UTC."""

    client: str
    start: int
    end: int

    @property
    def name(self) -> str:
        """`client:2026-11-18`, or `client:2026-11` for a month."""
        first = date_of(self.start)
        return f"{self.client}:{first if self.end == self.start + 1 else f'{first:%Y-%m}'}"


class CounterStore(Protocol):
    """Where processes share what clients used."""

    async def count(self, added: Mapping[Period, Amount]) -> Mapping[Period, Amount]:
        """Add the amounts; the totals of each, as far as they are known. Raises `SharedStoreUnavailable`."""


class _Counter:
    """One counter: what is known of all processes, and what was added here since."""

    __slots__ = ("asked_at", "known", "pending", "period", "used_at")

    def __init__(self, period: Period, now: float) -> None:
        self.period = period
        self.known = self.pending = NOTHING
        self.asked_at, self.used_at = -inf, now


class Counters:
    """The counters of this process. Without a `store` it counts alone. `clock` gives seconds and never goes back."""

    def __init__(
        self, store: CounterStore | None = None, *, interval: float = 1.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.interval = interval
        self._store = store
        self._clock = clock
        self._counters: dict[Period, _Counter] = {}
        self._asking: GroupedExchange[_Counter] = GroupedExchange(self._exchange)
        self._unavailable_until = -inf
        self._is_logged = False

    def add(self, period: Period, amount: Amount) -> None:
        """Count something."""
        counter = self._find(period)
        counter.pending += amount

    def total(self, period: Period) -> Amount:
        """What was counted, as far as this process knows."""
        counter = self._find(period)
        return counter.known + counter.pending

    async def refresh(self, periods: Sequence[Period]) -> None:
        """Ask for the totals of all processes, unless they were asked for lately or cannot be."""
        now = self._clock()
        if self._store is None or now < self._unavailable_until:
            return
        counters = [self._find(period) for period in periods]
        if any(now - counter.asked_at > 2 * self.interval for counter in counters):
            await self._asking.ask(counters)

    async def exchange(self, today: int) -> None:
        """Exchange the counters in use, if that is possible, and forget those of earlier days."""
        now = self._clock()
        for period, counter in list(self._counters.items()):
            is_over = period.end <= today and (self._store is None or counter.pending == NOTHING)
            is_idle = self._store is not None and counter.pending == NOTHING and now - counter.used_at > _IDLE_SECONDS
            if is_over or is_idle:
                del self._counters[period]
        if self._store is not None and self._counters and now >= self._unavailable_until:
            with suppress(SharedStoreUnavailable):  # it is logged, and they are tried again
                await self._asking.report(self._counters.values())

    async def aclose(self) -> None:
        """Wait for the exchange in progress."""
        await self._asking.aclose()

    def _find(self, period: Period) -> _Counter:
        counter = self._counters.get(period)
        now = self._clock()
        if counter is None:
            counter = self._counters[period] = _Counter(period, now)
        counter.used_at = now
        return counter

    async def _exchange(self, counters: list[_Counter]) -> None:
        assert self._store is not None
        began = self._clock()
        added = {counter.period: counter.pending for counter in counters}
        try:
            totals = await self._store.count(added)
        except SharedStoreUnavailable as error:
            self._unavailable_until = self._clock() + self.interval
            if not self._is_logged:
                logger.warning("budgets: %s; each worker counts on its own until it is reachable", error)
            self._is_logged = True
            raise
        if self._is_logged:
            logger.info("budgets: the shared counters are reachable again")
        self._is_logged = False
        for counter in counters:
            counter.asked_at = began
            total = totals.get(counter.period)
            if total is not None:
                counter.known, counter.pending = total, counter.pending - added[counter.period]
