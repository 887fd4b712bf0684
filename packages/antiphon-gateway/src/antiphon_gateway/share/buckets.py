"""`Buckets`: token buckets by name, alone in this process or shared with others.

A bucket holds one minute's worth of its size and refills over time; below zero is debt. Alone it is taken from directly.
Shared, it is in the store, and this is a copy: a request waits for the store to grant it, and gets a tenth of a second's worth
at once if that is more than one; the rest is kept as `prefetched`. What is used without asking is pending, and reported within
`SYNC_SECONDS`.

While the store is unavailable each process counts alone from its copy, so a client has at most its size per process; what was
used is reported when the store is back, less what would have been refilled. An emptied store is filled from the copies: the
lowest level wins. The bounds are derived in docs/architecture.md.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from math import inf
from typing import Protocol

from msgspec import Struct

from antiphon_gateway.share.grouped import GroupedExchange

WINDOW_SECONDS = 60.0
SYNC_SECONDS = 0.25
_PREFETCH_SECONDS = 0.1
_SLACK_SECONDS = 0.5
"""A reported level was true some time between request and reply; the bucket may have refilled by this much since."""
_MAX_BUCKETS = 20_000
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

    __slots__ = ("_at", "asked_at", "has_debt", "level", "name", "pending", "prefetched", "size", "wanted")

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
        self._at = now

    def fill(self, size: float, now: float) -> None:
        """Refill it for the time that has passed, at `size` per minute."""
        refill = max(0.0, now - self._at) * size / WINDOW_SECONDS
        self.size = size
        self.level = min(size, self.level + refill)
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
        self.fill(self.size, now)
        self.pending = pending

    def wait_for(self, level: float) -> float:
        """Seconds until it holds that much."""
        return max(0.0, level - self.level) * WINDOW_SECONDS / self.size


class Buckets:
    """The buckets of this process. `store` is where they are shared; without one the process counts alone."""

    def __init__(
        self,
        store: BucketStore | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        max_buckets: int = _MAX_BUCKETS,
    ) -> None:
        """`clock` gives seconds and never goes back."""
        self._store = store
        self._clock = clock
        self._max_buckets = max_buckets
        self._buckets: dict[str, Bucket] = {}
        self._asking: GroupedExchange[Bucket] = GroupedExchange(self._exchange)

    def find(self, name: str, size: float, *, has_debt: bool = False) -> Bucket:
        """A bucket, refilled until now. A changed size only changes how fast it fills."""
        now = self._clock()
        bucket = self._buckets.get(name)
        if bucket is None:
            if len(self._buckets) >= self._max_buckets:
                self._evict(now)
            bucket = self._buckets[name] = Bucket(name, size, now, has_debt=has_debt)
        bucket.fill(size, now)
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
                    bucket.fill(bucket.size, now)
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
            is_alone = not await self._asking.ask(bucket for bucket in (requests, tokens) if bucket is not None)

    async def report(self) -> None:
        """Report what was taken without asking. Raises `SharedStoreUnavailable`."""
        now = self._clock()
        for bucket in self._buckets.values():
            bucket.fill(bucket.size, now)
        await self._asking.report([bucket for bucket in self._buckets.values() if bucket.pending])

    async def aclose(self) -> None:
        """Wait for the exchange in progress."""
        await self._asking.aclose()

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
        bucket.fill(bucket.size, now)
        wanted, bucket.wanted = bucket.wanted, 0
        if wanted:
            wanted = max(wanted, int(bucket.size * _PREFETCH_SECONDS / WINDOW_SECONDS))
        most = bucket.level + bucket.size * _SLACK_SECONDS / WINDOW_SECONDS
        least = _LOWEST if bucket.has_debt else 0.0
        return BucketReport(bucket.name, bucket.size, bucket.pending, most, least, wanted)

    def _evict(self, now: float) -> None:
        """Forget the buckets that are full, and if that is not enough the oldest."""
        for name, bucket in list(self._buckets.items()):
            bucket.fill(bucket.size, now)
            if bucket.level >= bucket.size and not bucket.pending:
                del self._buckets[name]
        while len(self._buckets) >= self._max_buckets:
            del self._buckets[next(iter(self._buckets))]
