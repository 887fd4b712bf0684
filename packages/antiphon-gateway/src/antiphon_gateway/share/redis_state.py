"""`RedisState`: counters, buckets and health in a Redis or Valkey server, for all workers and hosts.

One script does what must happen at once. A bucket is refilled by the server's clock and keeps the lowest level that a process
knows of; a counter is only ever added to, and one that does not exist, because the client is new or the store was emptied,
begins with what the ledger has; without a ledger it begins with what is reported. The health of a key is a sorted set written
only with `ZADD GT`, which keeps the later of two times, so writers cannot undo each other:

    <generation> until <scope>, <generation> healed <scope>, <generation> disabled, <generation> begun

A marker changes with every write of health; while it is unchanged nothing is read. If it is missing, or now and then,
everything is read and missing keys are written again.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from math import inf

from antiphon.ids import new_id
from antiphon.providers.keys.sharing import RETENTION_SECONDS, SharedHealth
from antiphon_gateway.share.counts import Amount, BucketReport, CounterStore, Period
from antiphon_gateway.share.redis_store import PREFIX, Command, RedisStore, StoreScript
from antiphon_gateway.utc_time import DAY_SECONDS

_KEPT_SECONDS = 2 * DAY_SECONDS
_MARKER_KEY = f"{PREFIX}mark"
_READ_ALL_SECONDS = 10.0
_TIMEOUT = 1.0
"""No request waits for health, so it may take longer than `REQUEST_TIMEOUT`."""

# KEYS: a bucket or a counter. ARGV of a bucket: "take", its size, what was taken without asking, the highest and the lowest
# possible level, how many are wanted. ARGV of a counter: "add", tokens, nanodollars, when it expires, then the values of one
# that does not exist, or none.
_SCRIPT = StoreScript("""
local key = KEYS[1]
if ARGV[1] == 'add' then
  if redis.call('EXISTS', key) == 1 then
    redis.call('HINCRBY', key, 'tokens', ARGV[2])
    redis.call('HINCRBY', key, 'nanos', ARGV[3])
  elseif ARGV[5] then
    redis.call('HSET', key, 'tokens', ARGV[5], 'nanos', ARGV[6])
  else
    return {}
  end
  redis.call('EXPIREAT', key, ARGV[4])
  return redis.call('HMGET', key, 'tokens', 'nanos')
end
local size, taken, most = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local time = redis.call('TIME')
local now = time[1] + time[2] / 1e6
local kept = redis.call('HMGET', key, 'at', 'level')
local passed = math.max(0, now - (tonumber(kept[1]) or now))
local level = math.min(size, (tonumber(kept[2]) or size) + passed * size / 60)
level = math.max(math.min(level - taken, most), tonumber(ARGV[5]))
local granted = math.max(0, math.min(tonumber(ARGV[6]), math.floor(level)))
level = level - granted
local function text(value) return string.format('%.17g', value) end
redis.call('HSET', key, 'at', text(now), 'level', text(level))
redis.call('PEXPIRE', key, math.ceil((size - level) / size * 60000) + 1000)
return {granted, text(level)}
""")


class RedisState:
    """The shared state in one server. `ledger` gives the first values of counters."""

    def __init__(self, store: RedisStore, ledger: CounterStore | None = None) -> None:
        self.store = store
        self._ledger = ledger
        self._stored: dict[str, SharedHealth] = {}
        self._marker: str | None = None
        self._read_at = -inf

    @property
    def is_unavailable(self) -> bool:
        """Whether it cannot be asked at present."""
        return self.store.is_unavailable

    @property
    def key(self) -> bytes:
        """The key for hashing the names of secrets."""
        return self.store.key

    @property
    def offset(self) -> float:
        """How far the server's clock is ahead."""
        return self.store.offset

    async def load(self) -> None:
        """Load the script into a newly connected server. Raises `SharedStoreUnavailable`."""
        await self.store.execute([_SCRIPT.load])

    async def take(self, reports: Sequence[BucketReport]) -> list[tuple[int, float]]:
        """What is granted of each bucket, and its level then. Raises `SharedStoreUnavailable`."""
        calls = [
            _SCRIPT.call((f"{PREFIX}bucket:{one.name}",), "take", one.size, one.taken, one.most, one.least, one.wanted)
            for one in reports
        ]
        return [(int(granted), float(level)) for granted, level in await self.store.run_script(_SCRIPT, calls)]

    async def count(self, added: Mapping[Period, Amount]) -> dict[Period, Amount]:
        """Add to counters; the totals of all. Raises `SharedStoreUnavailable`."""
        totals = await self._add(added, {})
        missing = {period: amount for period, amount in added.items() if period not in totals}
        if missing:
            first = missing if self._ledger is None else await self._ledger.count(missing)
            totals |= await self._add(missing, first)
        return totals

    async def _add(self, added: Mapping[Period, Amount], first: Mapping[Period, Amount]) -> dict[Period, Amount]:
        calls = []
        for period, amount in added.items():
            begins = first.get(period)
            given = () if begins is None else (begins.tokens, begins.nanodollars)
            expires = period.end * DAY_SECONDS + _KEPT_SECONDS
            name = f"{PREFIX}spent:{period.name}"
            calls.append(_SCRIPT.call((name,), "add", amount.tokens, amount.nanodollars, expires, *given))
        answers = await self.store.run_script(_SCRIPT, calls)
        return {
            period: Amount(*(int(value or 0) for value in answer))
            for period, answer in zip(added, answers, strict=True)
            if answer
        }

    async def merge(self, known: Mapping[str, SharedHealth], *, is_first: bool = False) -> dict[str, SharedHealth]:
        """What this process knows of keys, merged with what the store has. Raises `SharedStoreUnavailable`."""
        await self._read(list(known), is_all=is_first)
        merged = {name: health.merge(self._stored[name]) for name, health in known.items()}
        await self._write({name: health for name, health in merged.items() if health != self._stored[name]})
        return merged

    async def _read(self, names: list[str], *, is_all: bool) -> None:
        """Read the store's state of these keys, as far as it may have changed."""
        now = time.monotonic()
        [marker] = await self.store.execute([("GET", _MARKER_KEY)], _TIMEOUT)
        is_all = is_all or marker != self._marker or now - self._read_at > _READ_ALL_SECONDS
        wanted = names if is_all else [name for name in names if name not in self._stored]
        if wanted:
            answers = await self.store.execute(
                [("ZRANGE", _store_key(name), 0, -1, "WITHSCORES") for name in wanted], _TIMEOUT
            )
            read = {name: from_sorted_set(answer) for name, answer in zip(wanted, answers, strict=True)}
            self._stored = read if is_all else {**self._stored, **read}
        if is_all:
            self._marker, self._read_at = marker, now

    async def _write(self, changed: Mapping[str, SharedHealth]) -> None:
        """Write the state of these keys to the store."""
        if not changed:
            return
        since = self.store.clock() - RETENTION_SECONDS
        commands: list[Command] = []
        for name, health in changed.items():
            store_key = _store_key(name)
            members = to_sorted_set(health, self.store.clock())
            scores = [word for member, score in members.items() for word in (score, member)]
            commands.append(("ZADD", store_key, "GT", *scores))
            commands.append(("ZREMRANGEBYSCORE", store_key, "-inf", since))
            commands.append(("EXPIRE", store_key, DAY_SECONDS))
        # The marker is written last: a process that sees it finds everything written before it.
        await self.store.execute([*commands, ("SET", _MARKER_KEY, new_id(), "EX", DAY_SECONDS)], _TIMEOUT)
        self._stored.update(changed)


def to_sorted_set(health: SharedHealth, now: float) -> dict[str, float]:
    """The health of a key as a sorted set."""
    generation = health.generation
    members = {f"{generation} until {scope}": at for scope, at in health.until.items()}
    members |= {f"{generation} healed {scope}": at for scope, at in health.cleared.items()}
    if health.is_disabled:
        members[f"{generation} disabled"] = inf
    if generation:
        members[f"{generation} begun"] = now
    return members


def from_sorted_set(answer: Iterable[object]) -> SharedHealth:
    """Parse a sorted set, given as alternating members and scores. Members of a later version are ignored."""
    words = iter(answer)
    until: dict[int, dict[str, float]] = {}
    cleared: dict[int, dict[str, float]] = {}
    disabled: set[int] = set()
    last = 0
    for member, score in zip(words, words, strict=True):
        number, _, rest = str(member).partition(" ")
        what, _, scope = rest.partition(" ")
        if not number.isdecimal():
            continue
        generation, at = int(number), float(str(score))
        last = max(last, generation)
        if what == "until":
            until.setdefault(generation, {})[scope] = at
        elif what == "healed":
            cleared.setdefault(generation, {})[scope] = at
        elif what == "disabled":
            disabled.add(generation)
    return SharedHealth(
        generation=last, is_disabled=last in disabled, until=until.get(last, {}), cleared=cleared.get(last, {})
    )


def _store_key(name: str) -> str:
    return f"{PREFIX}key:{name}"
