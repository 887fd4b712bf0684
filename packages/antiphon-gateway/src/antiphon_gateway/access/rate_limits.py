"""`RateLimits`: token buckets for requests and tokens per client and minute.

A request takes one from its bucket and is admitted only if there is one. Tokens are charged after the response, when their
number is known; a client below zero waits until its bucket is refilled, so the average holds whatever one response cost.

Buckets belong to the client's name and survive a reload; a changed limit only changes how fast they fill. Full buckets are
evicted first when there are too many. Each process counts on its own here; `cluster.shared_limits` counts together.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from antiphon_gateway.access.client_keys import ClientKey
from antiphon_gateway.access.refusals import LimitReached

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
        """Like `try_admit`, for callers that can wait for other processes."""
        return self.try_admit(client)

    def try_admit(self, client: ClientKey) -> float | None:
        """Admit a request (None), or return the seconds until a retry can succeed."""
        requests, tokens = self._buckets(client)
        # Any positive number of tokens is enough: the cost of the response is not known yet.
        wait = max((bucket.wait_for(1.0) for bucket in (requests, tokens) if bucket is not None), default=0.0)
        if wait > 0:
            return wait
        if requests is not None:
            requests.level -= 1.0
        return None

    def limit_reached(self, client: ClientKey, wait: float) -> LimitReached:
        """The limit for which a client has to wait so many seconds."""
        requests, tokens = self._buckets(client)
        if requests is None or (tokens is not None and tokens.wait_for(1.0) > requests.wait_for(1.0)):
            limit, bucket = "tokens_per_minute", tokens
        else:
            limit, bucket = "requests_per_minute", requests
        assert bucket is not None, "it has to wait for one of its limits"
        return LimitReached(limit=limit, used=bucket.size - bucket.level, allowed=bucket.size, wait=wait)

    def charge_tokens(self, client: ClientKey, tokens: int) -> None:
        """Charge the cost of a request."""
        bucket = self._bucket(self._tokens, client.name, client.tokens_per_minute, self._clock())
        if bucket is not None and tokens > 0:
            bucket.level -= tokens

    def _buckets(self, client: ClientKey) -> tuple[TokenBucket | None, TokenBucket | None]:
        """The client's request and token buckets, refilled until now; None where there is no limit."""
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
    """A token bucket that holds one minute's worth and refills over time; below zero is debt."""

    __slots__ = ("_at", "level", "size")

    def __init__(self, size: float, now: float) -> None:
        self.size = self.level = size
        self._at = now

    def fill(self, size: float, now: float) -> None:
        """Refill it for the time that has passed, at `size` per minute."""
        self.size = size
        self.level = min(size, self.level + max(0.0, now - self._at) * size / WINDOW_SECONDS)
        self._at = now

    def set_level(self, level: float, at: float, now: float) -> None:
        """Set the level it had at that time."""
        self.level, self._at = level, at
        self.fill(self.size, now)

    def wait_for(self, level: float) -> float:
        """Seconds until it holds that much."""
        return max(0.0, level - self.level) * WINDOW_SECONDS / self.size
