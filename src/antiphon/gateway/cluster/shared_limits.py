"""`SharedLimits`: the limits of clients, counted by all workers and hosts together.

The buckets of `limits` are in the store, where a script fills them by the server's clock and gives from them; one that is full is
not kept. What is here are copies:

- A worker asks for one request, or for a tenth of a second's worth of the limit if that is more, and has the rest in hand: small
  limits are asked for each request, large ones some ten times a second at their full pace. All who wait ask together, in one
  round trip, and those who come meanwhile wait for the next. So a worker holds at most that slice, and over any time a client has
  no more than its limit and a slice for each worker. (A slice is 1/600 of the limit, and up to 600 a minute there is none.)
- Tokens are taken when an answer has ended, as always, and told to the store within `TELL_SECONDS`. A worker lets a request in
  if the client had credit no longer ago than that. So a client can be in debt by what was under way when its credit ended, at all
  workers, and by what others ended in that moment.
- The copy of a bucket, filled since it was seen, is never below the one in the store: others only take. Where it holds nothing,
  a request is refused here, and nobody is asked.

When the store is away each worker goes on alone from its copy, and notes what it lets in. Each then gives the whole limit: over
that time a client has at most its limit for each worker. What was used, and would not have been filled up since, is told when the
store is back. Of a store that was emptied the buckets are made again from the copies: each worker says how much there can be at
most, and the least is right. So a flush gives nobody a new minute, but for what the copies are behind.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from hashlib import sha1
from math import inf
from typing import Any

from msgspec import Struct

from antiphon.errors import SharedStoreAway
from antiphon.gateway.access.client_keys import ClientKey
from antiphon.gateway.access.rate_limits import MINUTE, RateLimits
from antiphon.gateway.cluster.redis_store import PATIENCE, PREFIX, Command, SharedStore

logger = logging.getLogger("antiphon.gateway")

TELL_SECONDS = 0.25
_SLICE_SECONDS = 0.1
_MOST_AT_ONCE = 256
_SLACK_SECONDS = 2 * PATIENCE
"""What is known of a bucket was true some time between asking and hearing: so much may it have filled beyond it."""

# For each of requests and tokens: its size, what was taken without asking, and how much there can be at most.
_SCRIPT = """
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
"""
_SHA = sha1(_SCRIPT.encode(), usedforsecurity=False).hexdigest()


class SharedLimits(RateLimits):
    """The limits of clients, counted in `store`; and here, while it is away."""

    def __init__(self, store: SharedStore, **options: Any) -> None:
        super().__init__(**options)
        self._store = store
        self._accounts: dict[str, _Account] = {}
        self._waiting: dict[_Account, list[asyncio.Future[bool]]] = {}
        self._asking: asyncio.Task[None] | None = None
        self._turn = asyncio.Lock()  # two at once would tell the same twice

    async def admitted(self, client: ClientKey) -> float | None:
        """Let a request in (None), or say in how many seconds to ask again. Waits for the store, but not for long."""
        if client.requests_per_minute is None and client.tokens_per_minute is None:
            return None
        account = self._account(client)
        while True:
            requests, tokens = self._buckets(client)
            needed = tokens if account.hand >= 1.0 else requests
            wait = max((bucket.seconds_until(1.0) for bucket in (needed, tokens) if bucket is not None), default=0.0)
            if wait > 0:
                return wait
            is_fresh = tokens is None or self._clock() - account.heard_at <= TELL_SECONDS
            if is_fresh and requests is None:
                return None
            if is_fresh and account.hand >= 1.0:
                account.hand -= 1.0
                return None
            if self._store.is_away or not await self._heard(account):
                return self.admit(client)

    def admit(self, client: ClientKey) -> float | None:
        """The same without waiting: what is known here decides, and the store is told afterwards."""
        wait = super().admit(client)
        if wait is None and client.requests_per_minute is not None:
            self._account(client).requests.add(1.0, client.requests_per_minute, self._clock())
        return wait

    def spend(self, client: ClientKey, tokens: int) -> None:
        """Take what a request cost; the store is told soon."""
        super().spend(client, tokens)
        if client.tokens_per_minute is not None and tokens > 0:
            self._account(client).tokens.add(tokens, client.tokens_per_minute, self._clock())

    async def join(self) -> None:
        """Begin with a server that was not known before. Raises `SharedStoreAway`."""
        await self._store.ask([("SCRIPT", "LOAD", _SCRIPT)])
        await self.tell()

    async def tell(self) -> None:
        """Tell the store what was taken without asking. Raises `SharedStoreAway`."""
        now = self._clock()
        untold = [account for account in self._accounts.values() if account.requests.at(now) or account.tokens.at(now)]
        for start in range(0, len(untold), _MOST_AT_ONCE):
            await self._exchange([(account, 0) for account in untold[start : start + _MOST_AT_ONCE]])

    async def aclose(self) -> None:
        """Wait for what is being asked."""
        if self._asking is not None:
            await self._asking

    async def _heard(self, account: _Account) -> bool:
        """Wait until the store was asked for this client; whether it answered."""
        heard: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(account, []).append(heard)
        if self._asking is None:
            # A task of its own: a client that leaves must not break off what others wait for.
            self._asking = asyncio.create_task(self._ask_in_turn())
        return await heard

    async def _ask_in_turn(self) -> None:
        while self._waiting:
            asked, self._waiting = self._waiting, {}
            is_heard = False
            try:
                await self._exchange([(account, len(waiting)) for account, waiting in asked.items()])
                is_heard = True
            except SharedStoreAway:
                pass  # they find that it is away, and go on without
            except Exception:  # a mistake of ours must not keep anybody waiting
                logger.exception("the limits cannot be counted together")
            for heard in (one for waiting in asked.values() for one in waiting):
                if not heard.done():
                    heard.set_result(is_heard)
        self._asking = None

    async def _exchange(self, asked: list[tuple[_Account, int]]) -> None:
        """Tell what was taken of some accounts, and ask for as many requests of each as wait for it."""
        async with self._turn:
            began = self._clock()
            notes = [self._note(account, count) for account, count in asked]
            answers = await self._answers([note.command for note in notes])
            for (account, _), note, answer in zip(asked, notes, answers, strict=True):
                self._take(account, note, answer, began)

    async def _answers(self, commands: list[Command]) -> list[Any]:
        answers = await self._store.ask(commands)
        missing = [number for number, answer in enumerate(answers) if isinstance(answer, Exception)]
        if missing:  # the server was made to forget the script
            await self._store.ask([("SCRIPT", "LOAD", _SCRIPT)])
            again = await self._store.ask([commands[number] for number in missing])
            if any(isinstance(answer, Exception) for answer in again):
                raise SharedStoreAway(f"the shared store {self._store.address} forgets its script as soon as it has it")
            for number, answer in zip(missing, again, strict=True):
                answers[number] = answer
        return answers

    def _note(self, account: _Account, count: int) -> _Note:
        """What is told and asked of one account."""
        now = self._clock()
        client = account.client
        sizes: list[int | float] = []
        told: list[float] = []
        for bucket, untold in zip(self._buckets(client), (account.requests, account.tokens), strict=True):
            told.append(untold.at(now) if bucket is not None else 0.0)
            if bucket is None:
                sizes += (0, 0, 0)
            else:
                sizes += (bucket.size, told[-1], bucket.level + bucket.size * _SLACK_SECONDS / MINUTE)
        slice_ = int((client.requests_per_minute or 0) * _SLICE_SECONDS / MINUTE) if count else 0
        command = ("EVALSHA", _SHA, 1, f"{PREFIX}limit:{client.name}", *sizes, max(count, slice_))
        return _Note(command, told[0], told[1])

    def _take(self, account: _Account, note: _Note, answer: Sequence[Any], began: float) -> None:
        """Hear what the store said of one account."""
        now = self._clock()
        granted, *levels = answer
        account.hand += float(granted)
        account.heard_at = began
        account.requests.told(note.requests, now)
        account.tokens.told(note.tokens, now)
        untold = (account.requests, account.tokens)
        for bucket, level, left in zip(self._buckets(account.client), levels, untold, strict=True):
            if bucket is not None:
                bucket.know(float(level) - left.at(now), began, now)

    def _account(self, client: ClientKey) -> _Account:
        account = self._accounts.get(client.name)
        if account is None:
            if len(self._accounts) >= self._most_clients:
                del self._accounts[next(iter(self._accounts))]
            account = self._accounts[client.name] = _Account(client)
        account.client = client
        return account


class _Untold:
    """What was taken and the store does not know of. It is paid off as the bucket would have filled meanwhile."""

    __slots__ = ("_amount", "_at", "_pace")

    def __init__(self) -> None:
        self._amount = self._at = self._pace = 0.0

    def add(self, amount: float, limit: int, now: float) -> None:
        self._amount = self.at(now) + amount
        self._at, self._pace = now, limit / MINUTE

    def at(self, now: float) -> float:
        """How much it is by now."""
        return max(0.0, self._amount - max(0.0, now - self._at) * self._pace)

    def told(self, amount: float, now: float) -> None:
        """The store knows of so much of it."""
        self._amount, self._at = max(0.0, self.at(now) - amount), now


class _Account:
    """What one client has here: requests that the store gave, and what the store has yet to hear of."""

    __slots__ = ("client", "hand", "heard_at", "requests", "tokens")

    def __init__(self, client: ClientKey) -> None:
        self.client = client
        self.hand = 0.0
        self.heard_at = -inf
        self.requests = _Untold()
        self.tokens = _Untold()


class _Note(Struct, frozen=True):
    """What the store is asked for one client, and what it is told with that."""

    command: Command
    requests: float
    tokens: float
