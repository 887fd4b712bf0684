"""`RateLimits`: how many requests and tokens a client may have in a minute.

Each limit is a bucket that holds a minute's worth and fills steadily. A request takes one from its bucket, and is let in only if
it can. What it costs in tokens is known afterwards: then they are taken, also those that are not there. A client in debt waits
until it is paid, so the average holds whatever a single answer cost.

Buckets belong to the name of a client and not to a configuration: a reload that keeps the name keeps what was used, and one that
changes the limit changes only how it fills. A full bucket is like none at all; those are forgotten first when there are too many,
so memory is bounded. Each process counts for itself here; `shared_limits` is for those that count together.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from antiphon.gateway.access.client_keys import ClientKey

MINUTE = 60.0
_MOST_CLIENTS = 10_000


class RateLimits:
    """What clients have used. `clock` gives seconds and never goes back."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, most_clients: int = _MOST_CLIENTS) -> None:
        self._clock = clock
        self._most_clients = most_clients
        self._requests: dict[str, Bucket] = {}
        self._tokens: dict[str, Bucket] = {}

    async def admitted(self, client: ClientKey) -> float | None:
        """The same as `admit`, for whoever can wait until others were asked."""
        return self.admit(client)

    def admit(self, client: ClientKey) -> float | None:
        """Let a request in (None), or say in how many seconds to ask again."""
        requests, tokens = self._buckets(client)
        # Of tokens any credit will do: nobody knows yet what the answer will cost.
        wait = max((bucket.seconds_until(1.0) for bucket in (requests, tokens) if bucket is not None), default=0.0)
        if wait > 0:
            return wait
        if requests is not None:
            requests.level -= 1.0
        return None

    def spend(self, client: ClientKey, tokens: int) -> None:
        """Take what a request cost."""
        bucket = self._bucket(self._tokens, client.name, client.tokens_per_minute, self._clock())
        if bucket is not None and tokens > 0:
            bucket.level -= tokens

    def _buckets(self, client: ClientKey) -> tuple[Bucket | None, Bucket | None]:
        """The client's requests and tokens, filled until now; None where they are not limited."""
        now = self._clock()
        return (
            self._bucket(self._requests, client.name, client.requests_per_minute, now),
            self._bucket(self._tokens, client.name, client.tokens_per_minute, now),
        )

    def _bucket(self, buckets: dict[str, Bucket], name: str, limit: int | None, now: float) -> Bucket | None:
        if limit is None:
            buckets.pop(name, None)
            return None
        bucket = buckets.get(name)
        if bucket is None:
            if len(buckets) >= self._most_clients:
                self._make_room(buckets, now)
            bucket = buckets[name] = Bucket(float(limit), now)
        bucket.fill(float(limit), now)
        return bucket

    def _make_room(self, buckets: dict[str, Bucket], now: float) -> None:
        for name, bucket in list(buckets.items()):
            bucket.fill(bucket.size, now)
            if bucket.level >= bucket.size:
                del buckets[name]
        while len(buckets) >= self._most_clients:
            del buckets[next(iter(buckets))]


class Bucket:
    """A minute's worth of something, filling as time goes by; below zero is debt."""

    __slots__ = ("_at", "level", "size")

    def __init__(self, size: float, now: float) -> None:
        self.size = self.level = size
        self._at = now

    def fill(self, size: float, now: float) -> None:
        """Fill it for the time that has passed, at the pace of `size` a minute."""
        self.size = size
        self.level = min(size, self.level + max(0.0, now - self._at) * size / MINUTE)
        self._at = now

    def know(self, level: float, at: float, now: float) -> None:
        """It is known that it held `level` then."""
        self.level, self._at = level, at
        self.fill(self.size, now)

    def seconds_until(self, level: float) -> float:
        """How long until so much is in it."""
        return max(0.0, level - self.level) * MINUTE / self.size
