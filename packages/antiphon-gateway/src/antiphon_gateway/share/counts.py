"""What clients used, counted by all processes together: token buckets (`Buckets`), and sums per day or month (`Counters`).

A bucket holds one minute's worth of its size and refills over time; below zero is debt. Alone it is taken from directly. Shared,
it is in the store, and this is a copy: a request waits for the store to grant it, and gets a tenth of a second's worth at once if
that is more than one; the rest is kept as `prefetched`. What is used without asking is pending, and reported within
`SYNC_SECONDS`. An emptied store is filled from the copies: the lowest level wins. The bounds are derived in docs/architecture.md.

A counter is what is known of all processes, and what was added here since. Once per `interval` those in use are exchanged with
what processes share, together: no request makes a query of its own, except the first one of a client.

What was added stays pending until an exchange has confirmed it, so nothing is lost or counted twice. While the shared side is
unavailable each process counts on from what it knows, and reports it later.
"""

from __future__ import annotations

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from calendar import monthrange
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import date
from math import inf
from typing import Generic, Protocol, TypeVar

from msgspec import Struct

from antiphon.errors import SharedStoreUnavailable
from antiphon_gateway.utc_time import DAY_SECONDS, date_of, day_of

T = TypeVar("T")
logger = logging.getLogger("antiphon.gateway")

_MAX_BATCH = 256
_IDLE_SECONDS = 60.0


class Exchanged(ABC, Generic[T]):
    """Counts of this process that are exchanged with what all processes share: many at once, and one exchange at a time."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()  # two exchanges at once would report the same usage twice
        self._waiting: dict[T, None] = {}
        self._next: asyncio.Task[bool] | None = None  # an exchange that waits for its turn

    @abstractmethod
    async def _exchange(self, asked: list[T]) -> None:
        """Report these, and learn of them. Raises `SharedStoreUnavailable`."""

    async def aclose(self) -> None:
        """Wait for the exchange in progress."""
        async with self._turn:
            pass

    async def _ask(self, asked: Iterable[T]) -> bool:
        """Wait for an exchange about these; whether it was answered."""
        self._waiting.update(dict.fromkeys(asked))
        if self._next is None:
            # A task of its own: a client that disconnects must not cancel an exchange that others wait for.
            self._next = asyncio.create_task(self._exchange_waiting())
        return await asyncio.shield(self._next)

    async def _exchange_waiting(self) -> bool:
        async with self._turn:
            asked, self._waiting, self._next = list(self._waiting), {}, None
            try:
                for batch in _batches(asked):
                    await self._exchange(batch)
            except SharedStoreUnavailable:
                return False  # those who wait continue without it
            except Exception:  # an error of ours must not block them
                logger.exception("an exchange with the shared state failed")
                return False
            return True

    async def _exchange_now(self, asked: Iterable[T]) -> None:
        """Exchange these now. Those who wait have their turn after each batch. Raises `SharedStoreUnavailable`."""
        for batch in _batches(list(asked)):
            async with self._turn:
                await self._exchange(batch)


def _batches(asked: list[T]) -> Iterator[list[T]]:
    return (asked[start : start + _MAX_BATCH] for start in range(0, len(asked), _MAX_BATCH))


WINDOW_SECONDS = 60.0
SYNC_SECONDS = 0.25
_PREFETCH_SECONDS = 0.1
_SLACK_SECONDS = 0.5
"""A reported level was true some time between request and reply; the bucket may have refilled by this much since."""
_LOWEST = -1e15


class BucketReport(Struct, frozen=True):
    """What a process says of a bucket: what it took without asking, what can be left at most and at least, how many it wants."""

    name: str
    size: float
    taken: float
    most: float
    least: float
    wanted: int


class BucketStore(Protocol):
    """Where buckets are shared."""

    @property
    def is_unavailable(self) -> bool:
        """Whether it cannot be asked at present."""

    async def take(self, reports: Sequence[BucketReport]) -> Sequence[tuple[int, float]]:
        """What is granted of each, and its level then. Raises `SharedStoreUnavailable`."""


class Bucket:
    """One bucket, as this process knows it."""

    __slots__ = ("_at", "asked_at", "has_debt", "level", "name", "pending", "prefetched", "size", "used_at", "wanted")

    def __init__(self, name: str, size: float, now: float, *, has_debt: bool = False) -> None:
        self.name = name
        self.has_debt = has_debt
        """Whether it may be below zero: what is taken is known only afterwards."""
        self.size = self.level = size
        self.pending = 0.0
        """Taken, and not known to the store yet."""
        self.prefetched = 0
        """Granted by the store, and not used yet."""
        self.wanted = 0
        """Requests that wait for a grant."""
        self.asked_at = -inf
        self.used_at = self._at = now

    def fill(self, now: float) -> None:
        """Refill it for the time that has passed, at its size per minute."""
        refill = max(0.0, now - self._at) * self.size / WINDOW_SECONDS
        self.level = min(self.size, self.level + refill)
        self.pending = max(0.0, self.pending - refill)
        self._at = max(self._at, now)

    def take(self, amount: float) -> None:
        """Take without asking."""
        self.level -= amount
        self.pending += amount

    def confirm(self, reported: float, level: float, at: float, now: float) -> None:
        """The store has counted what was reported, and was at `level` then."""
        self.pending = max(0.0, self.pending - reported)
        self.level, self._at = level - self.pending, at
        pending = self.pending
        self.fill(now)
        self.pending = pending

    def wait_for(self, level: float) -> float:
        """Seconds until it holds that much."""
        return max(0.0, level - self.level) * WINDOW_SECONDS / self.size


class Buckets(Exchanged[Bucket]):
    """The buckets of this process. `store` is where they are shared; without one the process counts alone."""

    def __init__(self, store: BucketStore | None = None, *, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` gives seconds and never goes back."""
        super().__init__()
        self._store = store
        self._clock = clock
        self._buckets: dict[str, Bucket] = {}

    def find(self, name: str, size: float, *, has_debt: bool = False) -> Bucket:
        """A bucket, refilled until now. A changed size only changes how fast it fills."""
        now = self._clock()
        bucket = self._buckets.get(name)
        if bucket is None:
            bucket = self._buckets[name] = Bucket(name, size, now, has_debt=has_debt)
        bucket.size, bucket.used_at = size, now
        bucket.fill(now)
        return bucket

    async def take(self, requests: Bucket | None, tokens: Bucket | None) -> float:
        """Take one of `requests` if there is one, and any of `tokens`; else the seconds until a retry can succeed.

        Any positive number of tokens is enough: what the answer takes is not known yet. It waits for the store, but not for long.
        """
        is_alone = self._store is None or self._store.is_unavailable
        while True:
            now = self._clock()
            for bucket in (requests, tokens):
                if bucket is not None:
                    bucket.fill(now)
            needed = None if requests is None or requests.prefetched else requests
            wait = max((bucket.wait_for(1.0) for bucket in (needed, tokens) if bucket is not None), default=0.0)
            if wait > 0:
                return wait
            is_fresh = tokens is None or now - tokens.asked_at <= SYNC_SECONDS
            if is_alone or (needed is None and is_fresh):
                if needed is not None:
                    needed.take(1.0)
                elif requests is not None:
                    requests.prefetched -= 1
                return 0.0
            if needed is not None:
                needed.wanted += 1
            is_alone = not await self._ask(bucket for bucket in (requests, tokens) if bucket is not None)

    async def exchange(self) -> None:
        """Report what was taken without asking, and forget those that are full and idle. Raises `SharedStoreUnavailable`."""
        now = self._clock()
        for name, bucket in list(self._buckets.items()):
            bucket.fill(now)
            if now - bucket.used_at > _IDLE_SECONDS and bucket.level >= bucket.size and not bucket.pending:
                del self._buckets[name]
        if self._store is not None:
            await self._exchange_now([bucket for bucket in self._buckets.values() if bucket.pending])

    async def _exchange(self, buckets: list[Bucket]) -> None:
        assert self._store is not None
        began = self._clock()
        reports = [self._report(bucket, began) for bucket in buckets]
        answers = await self._store.take(reports)
        now = self._clock()
        for bucket, report, (granted, level) in zip(buckets, reports, answers, strict=True):
            bucket.prefetched += granted
            bucket.asked_at = began
            bucket.confirm(report.taken, level, began, now)

    def _report(self, bucket: Bucket, now: float) -> BucketReport:
        bucket.fill(now)
        wanted, bucket.wanted = bucket.wanted, 0
        if wanted:
            wanted = max(wanted, int(bucket.size * _PREFETCH_SECONDS / WINDOW_SECONDS))
        most = bucket.level + bucket.size * _SLACK_SECONDS / WINDOW_SECONDS
        least = _LOWEST if bucket.has_debt else 0.0
        return BucketReport(bucket.name, bucket.size, bucket.pending, most, least, wanted)


_PATIENCE_SECONDS, _SILENT_SECONDS = 2.0, 10.0
"""How long a request waits for the totals of all processes, and then none does so."""


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

    def has(self, day: date | None) -> bool:
        """Whether a day is in it."""
        return day is not None and self.start <= day_of(day) < self.end


def periods_of(client: str, day: int) -> tuple[Period, Period]:
    """The day of a client, and its month."""
    first = date_of(day).replace(day=1)
    start = day_of(first)
    return Period(client, day, day + 1), Period(client, start, start + monthrange(first.year, first.month)[1])


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


class Counters(Exchanged[_Counter]):
    """The counters of this process. Without a `store` it counts alone. `clock` gives seconds and never goes back."""

    def __init__(
        self, store: CounterStore | None = None, *, interval: float = 1.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__()
        self.interval = interval
        self._store = store
        self._clock = clock
        self._counters: dict[Period, _Counter] = {}
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
        """Ask for the totals of all processes, unless they were asked for lately or cannot be, and wait a moment for them."""
        now = self._clock()
        if self._store is None or now < self._unavailable_until:
            return
        counters = [self._find(period) for period in periods]
        if any(now - counter.asked_at > 2 * self.interval for counter in counters):
            try:
                await asyncio.wait_for(self._ask(counters), _PATIENCE_SECONDS)
            except TimeoutError:  # the exchange continues; no other request waits for it
                self._mark_unavailable(_SILENT_SECONDS, f"no reply within {_PATIENCE_SECONDS:g} s")

    async def exchange(self) -> None:
        """Forget those that are not in use any more, and exchange the others, if that is possible."""
        now, today = self._clock(), time.time() // DAY_SECONDS
        for period, counter in list(self._counters.items()):
            is_over = period.end <= today if self._store is None else counter.pending == NOTHING
            if is_over and now - counter.used_at > _IDLE_SECONDS:
                del self._counters[period]
        if self._store is not None and self._counters and now >= self._unavailable_until:
            with suppress(SharedStoreUnavailable):  # it is logged, and they are tried again
                await self._exchange_now(self._counters.values())

    def _find(self, period: Period) -> _Counter:
        counter = self._counters.get(period)
        now = self._clock()
        if counter is None:
            counter = self._counters[period] = _Counter(period, now)
        counter.used_at = now
        return counter

    def _mark_unavailable(self, seconds: float, reason: object) -> None:
        self._unavailable_until = self._clock() + seconds
        if not self._is_logged:
            logger.warning("budgets: %s; each worker counts on its own until it is reachable", reason)
        self._is_logged = True

    async def _exchange(self, counters: list[_Counter]) -> None:
        assert self._store is not None
        began = self._clock()
        added = {counter.period: counter.pending for counter in counters}
        try:
            totals = await self._store.count(added)
        except SharedStoreUnavailable as error:
            self._mark_unavailable(self.interval, error)
            raise
        if self._is_logged:
            logger.info("budgets: the shared counters are reachable again")
        self._is_logged, self._unavailable_until = False, -inf
        for counter in counters:
            counter.asked_at = began
            total = totals.get(counter.period)
            if total is not None:
                counter.known, counter.pending = total, counter.pending - added[counter.period]
