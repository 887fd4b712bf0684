"""`RateLimits`: token buckets for requests and tokens per client and minute.

A request takes one from its bucket and is admitted only if there is one. Tokens are charged after the response, when their
number is known; a client below zero waits until its bucket is refilled, so the average holds whatever one response cost.

Buckets belong to the client's name and survive a reload; a changed limit only changes how fast they fill. Full buckets are
evicted first when there are too many. Each process counts on its own here; `cluster.shared_limits` counts together.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from antiphon.gateway.access.client_keys import ClientKey

WINDOW_SECONDS = 60.0
_MAX_CLIENTS = 10_000


class RateLimits:
    """What clients have used. `clock` gives seconds and never goes back."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, max_clients: int = _MAX_CLIENTS) -> None:
        self._clock = clock
        self._max_clients = max_clients
        self._requests: dict[str, TokenBucket] = {}
        self._tokens: dict[str, TokenBucket] = {}

    async def admit_async(self, client: ClientKey) -> float | None:
        """The same as `try_admit`, for whoever can wait until others were asked."""
        return self.try_admit(client)

    def try_admit(self, client: ClientKey) -> float | None:
        """Let a request in (None), or say in how many seconds to ask again."""
        requests, tokens = self._buckets(client)
        # Of tokens any credit will do: nobody knows yet what the answer will cost.
        wait = max((bucket.wait_for(1.0) for bucket in (requests, tokens) if bucket is not None), default=0.0)
        if wait > 0:
            return wait
        if requests is not None:
            requests.level -= 1.0
        return None

    def charge_tokens(self, client: ClientKey, tokens: int) -> None:
        """Take what a request cost."""
        bucket = self._bucket(self._tokens, client.name, client.tokens_per_minute, self._clock())
        if bucket is not None and tokens > 0:
            bucket.level -= tokens

    def _buckets(self, client: ClientKey) -> tuple[TokenBucket | None, TokenBucket | None]:
        """The client's requests and tokens, filled until now; None where they are not limited."""
        now = self._clock()
        return (
            self._bucket(self._requests, client.name, client.requests_per_minute, now),
            self._bucket(self._tokens, client.name, client.tokens_per_minute, now),
        )

    def _bucket(self, buckets: dict[str, TokenBucket], name: str, limit: int | None, now: float) -> TokenBucket | None:
        if limit is None:
            buckets.pop(name, None)
            return None
        bucket = buckets.get(name)
        if bucket is None:
            if len(buckets) >= self._max_clients:
                self._evict_full(buckets, now)
            bucket = buckets[name] = TokenBucket(float(limit), now)
        bucket.fill(float(limit), now)
        return bucket

    def _evict_full(self, buckets: dict[str, TokenBucket], now: float) -> None:
        for name, bucket in list(buckets.items()):
            bucket.fill(bucket.size, now)
            if bucket.level >= bucket.size:
                del buckets[name]
        while len(buckets) >= self._max_clients:
            del buckets[next(iter(buckets))]


class TokenBucket:
    """A minute's worth of something, filling as time goes by; below zero is debt."""

    __slots__ = ("_at", "level", "size")

    def __init__(self, size: float, now: float) -> None:
        self.size = self.level = size
        self._at = now

    def fill(self, size: float, now: float) -> None:
        """Fill it for the time that has passed, at the pace of `size` a minute."""
        self.size = size
        self.level = min(size, self.level + max(0.0, now - self._at) * size / WINDOW_SECONDS)
        self._at = now

    def set_level(self, level: float, at: float, now: float) -> None:
        """It is known that it held `level` then."""
        self.level, self._at = level, at
        self.fill(self.size, now)

    def wait_for(self, level: float) -> float:
        """How long until so much is in it."""
        return max(0.0, level - self.level) * WINDOW_SECONDS / self.size
