"""`SharedLimits`: the rate limits of clients, counted by all workers and hosts together.

The token buckets are in the store, where a script refills them by the server's clock. A worker takes one request, or a tenth of
a second's worth of the limit if that is more, and keeps the rest as `prefetched`. Requests that wait for the store share one
round trip. Tokens are charged when a response has ended, and written within `SYNC_SECONDS`.

While the store is unavailable each worker counts alone from its copy, so a client has at most its limit per worker; what was
used is written when the store is back. An emptied store is rebuilt from the copies, the lowest level wins. The bounds are
derived in docs/architecture.md.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from math import inf
from typing import Any

from msgspec import Struct

from antiphon.errors import SharedStoreUnavailable
from antiphon_gateway.access.client_keys import ClientKey
from antiphon_gateway.access.rate_limits import WINDOW_SECONDS, RateLimits
from antiphon_gateway.cluster.redis_store import PREFIX, REQUEST_TIMEOUT, Command, SharedStore, StoreScript

logger = logging.getLogger("antiphon.gateway")

SYNC_SECONDS = 0.25
_PREFETCH_SECONDS = 0.1
_MAX_BATCH = 256
_SLACK_SECONDS = 2 * REQUEST_TIMEOUT
"""A reported level was true some time between request and reply; the bucket may have refilled by this much since."""

# For requests and for tokens: the size, what was taken without asking the store, and the highest possible level.
_SCRIPT = StoreScript("""
local time = redis.call('TIME')
local now = time[1] + time[2] / 1e6
local kept = redis.call('HMGET', KEYS[1], 'at', 'requests', 'tokens')
local passed = math.max(0, now - (tonumber(kept[1]) or now))
local slowest = 0
local function level(field, first)
  local size, taken, most = tonumber(ARGV[first]), tonumber(ARGV[first + 1]), tonumber(ARGV[first + 2])
  if size == 0 then return nil end
  local level = math.min(size, (tonumber(kept[field]) or size) + passed * size / 60)
  return math.min(level - taken, most), size
end
local requests, most_requests = level(2, 1)
local tokens, most_tokens = level(3, 4)
local granted = 0
if requests then
  requests = math.max(0, requests)
  if not tokens or tokens >= 1 then granted = math.min(tonumber(ARGV[7]), math.floor(requests)) end
  requests = requests - granted
  slowest = (most_requests - requests) / most_requests
end
if tokens then slowest = math.max(slowest, (most_tokens - tokens) / most_tokens) end
local function text(value) return string.format('%.17g', value or 0) end
redis.call('HSET', KEYS[1], 'at', text(now), 'requests', text(requests), 'tokens', text(tokens))
redis.call('PEXPIRE', KEYS[1], math.ceil(slowest * 60000) + 1000)
return {granted, text(requests), text(tokens)}
""")


class SharedLimits(RateLimits):
    """The limits of clients, counted in `store`, or locally while it is unavailable."""

    def __init__(self, store: SharedStore, **options: Any) -> None:
        super().__init__(**options)
        self._store = store
        self._accounts: dict[str, _ClientAccount] = {}
        self._waiting: dict[_ClientAccount, list[asyncio.Future[bool]]] = {}
        self._grant_task: asyncio.Task[None] | None = None
        self._turn = asyncio.Lock()  # two exchanges at once would report the same usage twice

    async def admit_async(self, client: ClientKey) -> float | None:
        """Admit a request (None), or return the seconds until a retry can succeed. Waits for the store, but not for long."""
        if client.requests_per_minute is None and client.tokens_per_minute is None:
            return None
        account = self._account(client)
        while True:
            requests, tokens = self._buckets(client)
            needed = tokens if account.prefetched >= 1.0 else requests
            wait = max((bucket.wait_for(1.0) for bucket in (needed, tokens) if bucket is not None), default=0.0)
            if wait > 0:
                return wait
            is_fresh = tokens is None or self._clock() - account.synced_at <= SYNC_SECONDS
            if is_fresh and requests is None:
                return None
            if is_fresh and account.prefetched >= 1.0:
                account.prefetched -= 1.0
                return None
            if self._store.is_unavailable or not await self._wait_for_grant(account):
                return self.try_admit(client)

    def try_admit(self, client: ClientKey) -> float | None:
        """The same without waiting: local knowledge decides, and the store is updated afterwards."""
        wait = super().try_admit(client)
        if wait is None and client.requests_per_minute is not None:
            self._account(client).requests.add(1.0, client.requests_per_minute, self._clock())
        return wait

    def charge_tokens(self, client: ClientKey, tokens: int) -> None:
        """Charge the cost of a request; the store is updated soon."""
        super().charge_tokens(client, tokens)
        if client.tokens_per_minute is not None and tokens > 0:
            self._account(client).tokens.add(tokens, client.tokens_per_minute, self._clock())

    async def join(self) -> None:
        """Start with a newly connected server. Raises `SharedStoreUnavailable`."""
        await self._store.execute([_SCRIPT.load])
        await self.flush()

    async def flush(self) -> None:
        """Report to the store what was taken without asking it. Raises `SharedStoreUnavailable`."""
        now = self._clock()
        pending = [account for account in self._accounts.values() if account.requests.at(now) or account.tokens.at(now)]
        for start in range(0, len(pending), _MAX_BATCH):
            await self._exchange([(account, 0) for account in pending[start : start + _MAX_BATCH]])

    async def aclose(self) -> None:
        """Wait for the exchange in progress."""
        if self._grant_task is not None:
            await self._grant_task

    async def _wait_for_grant(self, account: _ClientAccount) -> bool:
        """Wait for an exchange for this client; returns whether the store answered."""
        waiter: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(account, []).append(waiter)
        if self._grant_task is None:
            # A separate task: a client that disconnects must not cancel an exchange that others wait for.
            self._grant_task = asyncio.create_task(self._grant_loop())
        return await waiter

    async def _grant_loop(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting, {}
            is_answered = False
            try:
                await self._exchange([(account, len(waiting)) for account, waiting in batch.items()])
                is_answered = True
            except SharedStoreUnavailable:
                pass  # the waiting requests see that it is unavailable and continue without it
            except Exception:  # a defect of ours must not block any waiting request
                logger.exception("shared rate limits failed")
            for waiter in (one for waiting in batch.values() for one in waiting):
                if not waiter.done():
                    waiter.set_result(is_answered)
        self._grant_task = None

    async def _exchange(self, requested: list[tuple[_ClientAccount, int]]) -> None:
        """Report what was taken of some accounts, and request as many for each as are waiting."""
        async with self._turn:
            began = self._clock()
            exchanges = [self._build_exchange(account, count) for account, count in requested]
            answers = await self._store.run_script(_SCRIPT, [exchange.command for exchange in exchanges])
            for (account, _), exchange, answer in zip(requested, exchanges, answers, strict=True):
                self._take(account, exchange, answer, began)

    def _build_exchange(self, account: _ClientAccount, count: int) -> _Exchange:
        """The exchange of one account."""
        now = self._clock()
        client = account.client
        sizes: list[int | float] = []
        reported: list[float] = []
        for bucket, pending in zip(self._buckets(client), (account.requests, account.tokens), strict=True):
            reported.append(pending.at(now) if bucket is not None else 0.0)
            if bucket is None:
                sizes += (0, 0, 0)
            else:
                sizes += (bucket.size, reported[-1], bucket.level + bucket.size * _SLACK_SECONDS / WINDOW_SECONDS)
        prefetch = int((client.requests_per_minute or 0) * _PREFETCH_SECONDS / WINDOW_SECONDS) if count else 0
        command = _SCRIPT.call((f"{PREFIX}limit:{client.name}",), *sizes, max(count, prefetch))
        return _Exchange(command, reported[0], reported[1])

    def _take(self, account: _ClientAccount, exchange: _Exchange, answer: Sequence[Any], began: float) -> None:
        """Apply the store's reply for one account."""
        now = self._clock()
        granted, *levels = answer
        account.prefetched += float(granted)
        account.synced_at = began
        account.requests.reported(exchange.requests, now)
        account.tokens.reported(exchange.tokens, now)
        pending = (account.requests, account.tokens)
        for bucket, level, left in zip(self._buckets(account.client), levels, pending, strict=True):
            if bucket is not None:
                bucket.set_level(float(level) - left.at(now), began, now)

    def _account(self, client: ClientKey) -> _ClientAccount:
        account = self._accounts.get(client.name)
        if account is None:
            if len(self._accounts) >= self._max_clients:
                del self._accounts[next(iter(self._accounts))]
            account = self._accounts[client.name] = _ClientAccount(client)
        account.client = client
        return account


class _PendingUsage:
    """Usage that the store does not know of. It decreases at the rate at which the bucket would have refilled."""

    __slots__ = ("_amount", "_at", "_pace")

    def __init__(self) -> None:
        self._amount = self._at = self._pace = 0.0

    def add(self, amount: float, limit: int, now: float) -> None:
        self._amount = self.at(now) + amount
        self._at, self._pace = now, limit / WINDOW_SECONDS

    def at(self, now: float) -> float:
        """The present amount."""
        return max(0.0, self._amount - max(0.0, now - self._at) * self._pace)

    def reported(self, amount: float, now: float) -> None:
        """The store has counted this much of it."""
        self._amount, self._at = max(0.0, self.at(now) - amount), now


class _ClientAccount:
    """The local state of one client: requests granted by the store, and usage not yet reported to it."""

    __slots__ = ("client", "prefetched", "requests", "synced_at", "tokens")

    def __init__(self, client: ClientKey) -> None:
        self.client = client
        self.prefetched = 0.0
        self.synced_at = -inf
        self.requests = _PendingUsage()
        self.tokens = _PendingUsage()


class _Exchange(Struct, frozen=True):
    """One client's part of an exchange: what is requested, and the usage that is reported with it."""

    command: Command
    requests: float
    tokens: float
