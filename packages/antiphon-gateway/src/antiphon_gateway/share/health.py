"""`HealthSync`: what each process knows about the providers' keys and circuits, merged with what others know.

Requests never wait for it. A key that one process finds rejected, exhausted or rate limited rests in all of them, and one that
an operator switches off is off in all. Merging needs no order (`SharedHealth`). A key is named by a hash of its secret and URL,
keyed with what only the processes know (law L10).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from hashlib import blake2b
from typing import Protocol, TypeAlias

from antiphon.providers.keys.sharing import NO_COOLDOWNS, HealthSource, SharedHealth

Sources: TypeAlias = Callable[[], Iterable[tuple[str, HealthSource]]]
"""The keys and circuits in use, each with its URL."""


class HealthStore(Protocol):
    """Where health is shared, by name."""

    @property
    def key(self) -> bytes:
        """The key for hashing names."""

    @property
    def offset(self) -> float:
        """How far the clock of its times is ahead of `time.monotonic`."""

    async def merge(self, known: Mapping[str, SharedHealth], *, is_first: bool = False) -> Mapping[str, SharedHealth]:
        """What this process knows, merged with what the others do; both then have it. `is_first`: the connection is new."""


class HealthSync:
    """Shares the health of `sources` through a store."""

    def __init__(self, store: HealthStore, sources: Sources) -> None:
        self._store = store
        self._sources = sources

    async def sync(self, *, is_first: bool = False) -> None:
        """Share local changes and take over those of others. Raises `SharedStoreUnavailable`."""
        store, offset = self._store, self._store.offset
        sources = [(source, partial(key_fingerprint, address=url, key=store.key)) for url, source in self._sources()]
        known: dict[str, SharedHealth] = {}
        for source, named in sources:
            for name, health in source.export_health(named).items():  # two sources may have the same key
                known[name] = known.get(name, NO_COOLDOWNS).merge(health)
        shared = {name: health.shift_clock(offset) for name, health in known.items()}
        merged = await store.merge(shared, is_first=is_first)
        remote = {name: health.shift_clock(-offset) for name, health in merged.items()}
        for source, named in sources:
            source.merge_health(named, remote)


def key_fingerprint(secret: str, *, address: str, key: bytes) -> str:
    """The name of a secret and its URL in the store."""
    return blake2b(f"{address}\0{secret}".encode(), key=key, digest_size=16, person=b"antiphon").hexdigest()
