"""`SharedStandings`: what each process knows of the providers' keys, known to all of them.

Nothing is asked when a request is made. Each process has its own pools, which decide; a few times a second what they know is
joined with what the store knows (`shared_state` tells why the order does not matter), what is new here is written there,
and what is new there is learnt here. A key that cools at one worker so cools at the others within a second.

In the store a key is a sorted set whose members are words and whose scores are times, and the only way to write is `ZADD GT`,
which keeps the later time of the two: the store joins as we do, one command at a time, and no writer can undo another.

    <generation> until <facet>       when the rest ends
    <generation> healed <facet>      when a probe succeeded
    <generation> disabled            for ever
    <generation> begun               when an operator last said something

Beside them is a mark that every writer changes. As long as it is the one that was seen last, nothing has to be read. It is gone
when the store was emptied: then everything is read, found missing and written again. That is also done from time to time, for a
server may drop single keys when its memory is full.

A key is called by a hash of its secret and of the address it is for, keyed with the password of the store (law L10): whoever
reads the store learns nothing about it. What is over is removed, and what nobody writes any more goes by itself after a day.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from hashlib import blake2b
from math import inf

from antiphon.gateway.cluster.redis_store import PREFIX, Command, SharedStore
from antiphon.history.ids import new_id
from antiphon.providers.credentials.pool import CredentialPool
from antiphon.providers.credentials.shared_state import NO_COOLDOWNS, RETENTION_SECONDS, SharedHealth

_MARK = f"{PREFIX}mark"
_DAY = 86_400
_READ_ALL_SECONDS = 10.0
_PATIENCE = 1.0
"""No request waits for this, so it may take longer than what one waits for."""


class SharedStandings:
    """The keys of some pools, shared. `pools` gives those in use, each with the address that its keys are for."""

    def __init__(self, store: SharedStore, pools: Callable[[], Iterable[tuple[str, CredentialPool]]]) -> None:
        self._store = store
        self._pools = pools
        self._stored: dict[str, SharedHealth] = {}
        self._mark: str | None = None
        self._read_at = -inf

    async def exchange(self, *, is_first: bool = False) -> None:
        """Tell what is new here, and learn what is new there. `is_first`: the connection is new. Raises `SharedStoreAway`."""
        pools = [(pool, partial(name_of, address=address, key=self._store.key)) for address, pool in self._pools()]
        offset = self._store.offset
        known: dict[str, SharedHealth] = {}
        for pool, named in pools:
            for name, standing in pool.export_health(named).items():
                known[name] = known.get(name, NO_COOLDOWNS).merge(standing.shift_clock(offset))
        await self._read(known, is_all=is_first)
        merged = {name: standing.merge(self._stored[name]) for name, standing in known.items()}
        await self._write({name: standing for name, standing in merged.items() if standing != self._stored[name]})
        for pool, named in pools:
            pool.merge_health(named, {name: standing.shift_clock(-offset) for name, standing in merged.items()})

    async def _read(self, names: Iterable[str], *, is_all: bool) -> None:
        """Know what the store says of these keys."""
        names = list(names)
        now = time.monotonic()
        [mark] = await self._store.ask([("GET", _MARK)], _PATIENCE)
        is_all = is_all or mark != self._mark or now - self._read_at > _READ_ALL_SECONDS
        wanted = names if is_all else [name for name in names if name not in self._stored]
        if wanted:
            answers = await self._store.ask(
                [("ZRANGE", _place(name), 0, -1, "WITHSCORES") for name in wanted], _PATIENCE
            )
            read = {name: standing_of(answer) for name, answer in zip(wanted, answers, strict=True)}
            self._stored = read if is_all else {**self._stored, **read}
        if is_all:
            self._mark, self._read_at = mark, now

    async def _write(self, standings: Mapping[str, SharedHealth]) -> None:
        """Make the store know these."""
        if not standings:
            return
        since = self._store.clock() - RETENTION_SECONDS
        commands: list[Command] = []
        for name, standing in standings.items():
            place = _place(name)
            members = members_of(standing, self._store.clock())
            scores = [word for member, score in members.items() for word in (score, member)]
            commands.append(("ZADD", place, "GT", *scores))
            commands.append(("ZREMRANGEBYSCORE", place, "-inf", since))
            commands.append(("EXPIRE", place, _DAY))
        # The mark last: who sees it finds what was written before it.
        await self._store.ask([*commands, ("SET", _MARK, new_id(), "EX", _DAY)], _PATIENCE)
        self._stored.update(standings)


def name_of(secret: str, *, address: str, key: bytes) -> str:
    """What a secret for an address is called where others can read it."""
    return blake2b(f"{address}\0{secret}".encode(), key=key, digest_size=16, person=b"antiphon").hexdigest()


def members_of(standing: SharedHealth, now: float) -> dict[str, float]:
    """A standing as a sorted set."""
    generation = standing.generation
    members = {f"{generation} until {facet}": at for facet, at in standing.until.items()}
    members |= {f"{generation} healed {facet}": at for facet, at in standing.cleared.items()}
    if standing.is_disabled:
        members[f"{generation} disabled"] = inf
    if generation:
        members[f"{generation} begun"] = now
    return members


def standing_of(answer: Iterable[object]) -> SharedHealth:
    """What a sorted set says, told as members and scores in turn. Words of a later version that are not known are passed over."""
    words = iter(answer)
    until: dict[int, dict[str, float]] = {}
    cleared: dict[int, dict[str, float]] = {}
    is_disabled: set[int] = set()
    last = 0
    for member, score in zip(words, words, strict=True):
        number, _, said = str(member).partition(" ")
        what, _, facet = said.partition(" ")
        if not number.isdecimal():
            continue
        generation, at = int(number), float(str(score))
        last = max(last, generation)
        if what == "until":
            until.setdefault(generation, {})[facet] = at
        elif what == "healed":
            cleared.setdefault(generation, {})[facet] = at
        elif what == "disabled":
            is_disabled.add(generation)
    return SharedHealth(
        generation=last, is_disabled=last in is_disabled, until=until.get(last, {}), cleared=cleared.get(last, {})
    )


def _place(name: str) -> str:
    return f"{PREFIX}key:{name}"
