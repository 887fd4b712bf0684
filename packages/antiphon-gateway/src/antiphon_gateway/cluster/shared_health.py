"""`SharedKeyHealth`: what each process knows about the providers' keys and circuits, shared with all of them.

Requests never wait for it. Each process has its own pools; a few times a second their state is merged with the store's. A key
is a sorted set written only with `ZADD GT`, which keeps the later of two times, so writers cannot undo each other:

    <generation> until <scope>, <generation> healed <scope>, <generation> disabled, <generation> begun

A marker changes with every write; while it is unchanged nothing is read. If it is missing, or now and then, everything is read
and missing keys are written again. A key is named by a hash of its secret and URL, keyed with the store's password (law L10).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from hashlib import blake2b
from math import inf

from antiphon.ids import new_id
from antiphon.providers.credentials.shared_state import NO_COOLDOWNS, RETENTION_SECONDS, HealthSource, SharedHealth
from antiphon_gateway.cluster.redis_store import PREFIX, Command, SharedStore

_MARKER_KEY = f"{PREFIX}mark"
_DAY = 86_400
_READ_ALL_SECONDS = 10.0
_TIMEOUT = 1.0
"""No request waits for this, so it may take longer than `REQUEST_TIMEOUT`."""


class SharedKeyHealth:
    """The shared keys and circuits. `sources` gives those in use, each with its URL."""

    def __init__(self, store: SharedStore, sources: Callable[[], Iterable[tuple[str, HealthSource]]]) -> None:
        self._store = store
        self._sources = sources
        self._stored: dict[str, SharedHealth] = {}
        self._marker: str | None = None
        self._read_at = -inf

    async def sync(self, *, is_first: bool = False) -> None:
        """Write local changes and merge remote ones. `is_first`: the connection is new. Raises `SharedStoreUnavailable`."""
        local = LocalHealth(self._sources(), self._store.key)
        offset = self._store.offset
        known = {name: health.shift_clock(offset) for name, health in local.export().items()}
        await self._read(known, is_all=is_first)
        merged = {name: health.merge(self._stored[name]) for name, health in known.items()}
        await self._write({name: health for name, health in merged.items() if health != self._stored[name]})
        local.merge({name: health.shift_clock(-offset) for name, health in merged.items()})

    async def _read(self, names: Iterable[str], *, is_all: bool) -> None:
        """Read the store's state of these keys, as far as it may have changed."""
        names = list(names)
        now = time.monotonic()
        [marker] = await self._store.execute([("GET", _MARKER_KEY)], _TIMEOUT)
        is_all = is_all or marker != self._marker or now - self._read_at > _READ_ALL_SECONDS
        wanted = names if is_all else [name for name in names if name not in self._stored]
        if wanted:
            answers = await self._store.execute(
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
        since = self._store.clock() - RETENTION_SECONDS
        commands: list[Command] = []
        for name, health in changed.items():
            store_key = _store_key(name)
            members = to_sorted_set(health, self._store.clock())
            scores = [word for member, score in members.items() for word in (score, member)]
            commands.append(("ZADD", store_key, "GT", *scores))
            commands.append(("ZREMRANGEBYSCORE", store_key, "-inf", since))
            commands.append(("EXPIRE", store_key, _DAY))
        # The marker is written last: a process that sees it finds everything written before it.
        await self._store.execute([*commands, ("SET", _MARKER_KEY, new_id(), "EX", _DAY)], _TIMEOUT)
        self._stored.update(changed)


class LocalHealth:
    """The keys and circuits of this process under the names that processes share, which are hashes with `key`."""

    def __init__(self, sources: Iterable[tuple[str, HealthSource]], key: bytes) -> None:
        self._sources = [(source, partial(key_fingerprint, address=url, key=key)) for url, source in sources]

    def export(self) -> dict[str, SharedHealth]:
        """What this process knows. Two sources may have the same key."""
        known: dict[str, SharedHealth] = {}
        for source, named in self._sources:
            for name, health in source.export_health(named).items():
                known[name] = known.get(name, NO_COOLDOWNS).merge(health)
        return known

    def merge(self, remote: Mapping[str, SharedHealth]) -> None:
        """Add what other processes know."""
        for source, named in self._sources:
            source.merge_health(named, remote)


def key_fingerprint(secret: str, *, address: str, key: bytes) -> str:
    """The name of a secret and its URL in the store."""
    return blake2b(f"{address}\0{secret}".encode(), key=key, digest_size=16, person=b"antiphon").hexdigest()


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
