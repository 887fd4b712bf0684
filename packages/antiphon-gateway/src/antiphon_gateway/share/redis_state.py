"""`RedisState`: counters, buckets and health in a Redis or Valkey server, for all workers and hosts.

The server may be unavailable and is never waited for. Every command is answered within `REQUEST_TIMEOUT`, or the
store is unavailable: no reply, a broken connection and a server that refuses are treated alike. From then on callers get
`SharedStoreUnavailable` at once, until `connect` has found a server that replies in time and can be written, and `mark_available`
is called. So an outage delays only the requests that are just waiting. Shared times are the server's: `clock` is the local
monotonic clock plus an offset, measured on connecting; it stays unless it differs by more than a second. The password is read
from `shared_password` for each connection.

One script does what must happen at once. A bucket is refilled by the server's clock and keeps the lowest level that a process
knows of; a counter is only ever added to, and one that does not exist, because the client is new or the store was emptied,
begins with what the ledger has; without a ledger it begins with what is reported. The health of a key is a sorted set written
only with `ZADD GT`, which keeps the later of two times, so writers cannot undo each other:

    <generation> until <scope>, <generation> healed <scope>, <generation> disabled, <generation> begun

A marker changes with every write of health; while it is unchanged nothing is read. If it is missing, or now and then,
everything is read and missing keys are written again.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import blake2b, sha1
from math import inf
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Struct, field

from antiphon.errors import CredentialError, SharedStoreUnavailable
from antiphon.ids import new_id
from antiphon.providers.keys.secret import HIDDEN, Credential
from antiphon.providers.keys.sharing import RETENTION_SECONDS, SharedHealth
from antiphon_gateway.config.references import StoreUrl
from antiphon_gateway.share.counts import Amount, BucketReport, CounterStore, Period
from antiphon_gateway.utc_time import DAY_SECONDS

if TYPE_CHECKING:
    from redis.asyncio import Redis

PREFIX = "antiphon:"
"""The prefix of every key in the store."""
REQUEST_TIMEOUT = 0.25
"""How long anything that a request waits for may take, in seconds."""
_CONNECT_SECONDS = 2.0
_LARGEST_SKEW = 1.0
_LONGEST_REASON = 200
_ALIVE = f"{PREFIX}alive"
_ALIVE_SECONDS = 60
_KEPT_SECONDS = 2 * DAY_SECONDS
_MARKER_KEY = f"{PREFIX}mark"
_READ_ALL_SECONDS = 10.0
_TIMEOUT = 1.0
"""No request waits for health, so it may take longer than `REQUEST_TIMEOUT`."""

# KEYS: a bucket or a counter. ARGV of a bucket: "take", its size, what was taken without asking, the highest and the lowest
# possible level, how many are wanted. ARGV of a counter: "add", tokens, nanodollars, when it expires, then the values of one
# that does not exist, or none.
_SCRIPT = """
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
"""
_DIGEST = sha1(_SCRIPT.encode(), usedforsecurity=False).hexdigest()

Command: TypeAlias = Sequence[str | int | float]


class SharedStatus(Struct, frozen=True, kw_only=True):
    """The state of the store. `reason` is why it is unavailable; `since` is when the state last changed."""

    address: str
    is_unavailable: bool = field(name="is_away")
    since: datetime
    reason: str = ""


class RedisState:
    """The state in one server, as one process sees it; unavailable at first. `password` is read again for every connection.

    `ledger` gives the first values of counters.
    """

    def __init__(
        self,
        address: StoreUrl,
        password: Credential | None = None,
        *,
        ledger: CounterStore | None = None,
        environ: Mapping[str, str] | None = None,
        timeout: float = REQUEST_TIMEOUT,
    ) -> None:
        self.address = address
        self.is_unavailable = True
        """Whether commands fail at once."""
        self.offset = 0.0
        """How far the server's clock is ahead of `time.monotonic`."""
        self.reason = "not connected yet"
        self._password = password
        self._ledger = ledger
        self._environ = environ
        self._timeout = timeout
        self._client: Redis | None = None
        self._since = datetime.now(UTC)
        self._secret = ""
        self._closing: set[asyncio.Task[None]] = set()
        self._stored: dict[str, SharedHealth] = {}
        self._marker: str | None = None
        self._read_at = -inf

    @property
    def status(self) -> SharedStatus:
        """The current state."""
        return SharedStatus(
            address=str(self.address),
            is_unavailable=self.is_unavailable,
            since=self._since,
            reason=self.reason if self.is_unavailable else "",
        )

    @property
    def secrets(self) -> tuple[str, ...]:
        """The password, which must not be shown anywhere."""
        return (self._secret,) if self._secret else ()

    @property
    def key(self) -> bytes:
        """The key for hashing the names of secrets in the store: every process that shares it has it, the store does not."""
        return blake2b(self._secret.encode(), person=b"antiphon").digest()

    def clock(self) -> float:
        """The server's time now, in seconds since 1970."""
        return time.monotonic() + self.offset

    async def connect(self) -> None:
        """Find a server that answers in time, can be written and runs scripts. Others may use it from `mark_available` on."""
        await self.aclose()
        try:
            self._secret = self._password.read(self._environ) if self._password is not None else ""
        except CredentialError as error:
            raise self._mark_unavailable(f"cannot read its password: {error}") from None
        self._client = self._new_client()
        await self.execute([("PING",)], _CONNECT_SECONDS)  # connecting may take longer than an answer
        began = time.monotonic()
        _, _, (seconds, microseconds) = await self.execute(
            [("SET", _ALIVE, 1, "EX", _ALIVE_SECONDS), ("SCRIPT", "LOAD", _SCRIPT), ("TIME",)]
        )
        offset = int(seconds) + int(microseconds) / 1e6 - (began + time.monotonic()) / 2
        if abs(offset - self.offset) > _LARGEST_SKEW:
            self.offset = round(offset, 3)
        self._read_at = -inf  # what the store has may be of another time

    def mark_available(self) -> None:
        """Allow commands of all callers."""
        self.is_unavailable = False
        self._since = datetime.now(UTC)

    async def execute(self, commands: Sequence[Command], timeout: float | None = None) -> list[Any]:
        """The replies to some commands, in one round trip. Raises `SharedStoreUnavailable`; the commands may have run then."""
        client = self._client
        if client is None:
            raise SharedStoreUnavailable(f"shared store {self.address} is unavailable: {self.reason}")
        timeout = self._timeout if timeout is None else timeout
        try:
            async with asyncio.timeout(timeout):
                answers = await _send(client, commands)
        except TimeoutError:
            raise self._mark_unavailable(f"no reply within {timeout:g} s", client) from None
        except Exception as error:  # an error of the store must not fail a request
            raise self._mark_unavailable(_error_text(error), client) from None
        for answer in answers:
            if isinstance(answer, Exception):
                raise self._mark_unavailable(f"the server returned an error: {_error_text(answer)}", client)
        return answers

    async def take(self, reports: Sequence[BucketReport]) -> list[tuple[int, float]]:
        """What is granted of each bucket, and its level then. Raises `SharedStoreUnavailable`."""
        calls = [
            (f"{PREFIX}bucket:{one.name}", "take", one.size, one.taken, one.most, one.least, one.wanted)
            for one in reports
        ]
        return [(int(granted), float(level)) for granted, level in await self._run_script(calls)]

    async def count(self, added: Mapping[Period, Amount]) -> dict[Period, Amount]:
        """Add to counters; the totals of all. Raises `SharedStoreUnavailable`."""
        totals = await self._add(added, {})
        missing = {period: amount for period, amount in added.items() if period not in totals}
        if missing:
            first = missing if self._ledger is None else await self._ledger.count(missing)
            totals |= await self._add(missing, first)
        return totals

    async def _add(self, added: Mapping[Period, Amount], first: Mapping[Period, Amount]) -> dict[Period, Amount]:
        calls: list[Command] = []
        for period, amount in added.items():
            begins = first.get(period)
            given = () if begins is None else (begins.tokens, begins.nanodollars)
            expires = period.end * DAY_SECONDS + _KEPT_SECONDS
            calls.append((f"{PREFIX}spent:{period.name}", "add", amount.tokens, amount.nanodollars, expires, *given))
        answers = await self._run_script(calls)
        return {
            period: Amount(*(int(value or 0) for value in answer))
            for period, answer in zip(added, answers, strict=True)
            if answer
        }

    async def merge(self, known: Mapping[str, SharedHealth]) -> dict[str, SharedHealth]:
        """What this process knows of keys, merged with what the store has. Raises `SharedStoreUnavailable`."""
        await self._read(list(known))
        merged = {name: health.merge(self._stored[name]) for name, health in known.items()}
        await self._write({name: health for name, health in merged.items() if health != self._stored[name]})
        return merged

    async def _read(self, names: list[str]) -> None:
        """Read the store's state of these keys, as far as it may have changed."""
        now = time.monotonic()
        [marker] = await self.execute([("GET", _MARKER_KEY)], _TIMEOUT)
        is_all = marker != self._marker or now - self._read_at > _READ_ALL_SECONDS
        wanted = names if is_all else [name for name in names if name not in self._stored]
        if wanted:
            answers = await self.execute(
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
        since = self.clock() - RETENTION_SECONDS
        commands: list[Command] = []
        for name, health in changed.items():
            store_key = _store_key(name)
            members = to_sorted_set(health, self.clock())
            scores = [word for member, score in members.items() for word in (score, member)]
            commands.append(("ZADD", store_key, "GT", *scores))
            commands.append(("ZREMRANGEBYSCORE", store_key, "-inf", since))
            commands.append(("EXPIRE", store_key, DAY_SECONDS))
        # The marker is written last: a process that sees it finds everything written before it.
        await self.execute([*commands, ("SET", _MARKER_KEY, new_id(), "EX", DAY_SECONDS)], _TIMEOUT)
        self._stored.update(changed)

    async def _run_script(self, calls: Sequence[Command]) -> list[Any]:
        """The replies to the script, called with each key and its values. The first call brings it: a server forgets scripts."""
        return await self.execute(
            [("EVALSHA", _DIGEST, 1, *call) if at else ("EVAL", _SCRIPT, 1, *call) for at, call in enumerate(calls)]
        )

    async def aclose(self) -> None:
        """Close the connection."""
        client, self._client = self._client, None
        self.is_unavailable = True
        if client is not None:
            await _close(client)
        await asyncio.gather(*self._closing)

    def _new_client(self) -> Redis:
        from redis.asyncio import Redis
        from redis.asyncio.retry import Retry
        from redis.backoff import NoBackoff

        address = self.address
        return Redis(
            host=address.host or "localhost",
            port=address.port,
            unix_socket_path=address.path or None,
            db=address.database,
            username=address.user or None,
            password=self._secret or None,
            ssl=address.is_encrypted,
            socket_timeout=None,  # each caller has its own timeout
            socket_connect_timeout=_CONNECT_SECONDS,
            retry=Retry(NoBackoff(), 0),
            protocol=2,
            decode_responses=True,
        )

    def _mark_unavailable(self, reason: str, client: Redis | None = None) -> SharedStoreUnavailable:
        """Record that the store is unavailable, and return the error to raise."""
        if self._secret:
            reason = reason.replace(self._secret, HIDDEN)
        if client is self._client:  # otherwise an earlier caller recorded it, and there may be a new connection
            if not self.is_unavailable:
                self._since = datetime.now(UTC)
            self.is_unavailable, self.reason, self._client = True, reason, None
            if client is not None:
                self._closing.add(task := asyncio.create_task(_close(client)))
                task.add_done_callback(self._closing.discard)
        return SharedStoreUnavailable(f"shared store {self.address} is unavailable: {reason}")


async def _send(client: Any, commands: Sequence[Command]) -> list[Any]:
    """The replies, including error replies."""
    from redis.exceptions import ResponseError

    if len(commands) == 1:  # a pipeline of one costs half as much again
        try:
            return [await client.execute_command(*commands[0])]
        except ResponseError as refusal:
            return [refusal]
    pipeline = client.pipeline(transaction=False)
    for command in commands:
        pipeline.execute_command(*command)
    return list(await pipeline.execute(raise_on_error=False))


async def _close(client: Redis) -> None:
    with contextlib.suppress(Exception):  # the connection is being discarded
        async with asyncio.timeout(_CONNECT_SECONDS):
            await client.aclose()


def _error_text(error: Exception) -> str:
    return " ".join(str(error).split())[:_LONGEST_REASON].rstrip(".") or type(error).__name__


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
    words, found = iter(answer), []
    for member, score in zip(words, words, strict=True):
        number, _, rest = str(member).partition(" ")
        what, _, scope = rest.partition(" ")
        if number.isdecimal():
            found.append((int(number), what, scope, float(str(score))))
    last = max((generation for generation, *_ in found), default=0)
    known = [(what, scope, at) for generation, what, scope, at in found if generation == last]
    return SharedHealth(
        generation=last,
        is_disabled=any(what == "disabled" for what, *_ in known),
        until={scope: at for what, scope, at in known if what == "until"},
        cleared={scope: at for what, scope, at in known if what == "healed"},
    )


def _store_key(name: str) -> str:
    return f"{PREFIX}key:{name}"
