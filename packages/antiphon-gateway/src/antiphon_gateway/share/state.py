"""`SharedState`: what this process shares with the other workers of its host, and with other hosts.

It has the token buckets and counters of clients (`Buckets`, `Counters`) and the health of the providers' keys (`sync_health`).
There are two places to share them: the files of the workers of one host, which have health only, and a Redis or Valkey server,
which has everything. Counters of processes without a server are exchanged through the ledger.

A few times a second local changes are written and remote ones merged. A key that one process finds rejected, exhausted or rate
limited rests in all of them, and one that an operator switches off is off in all; merging needs no order (`SharedHealth`), and
requests never wait for it. A key is named by a hash of its secret and URL, keyed with what only the processes know (law L10).

When the server becomes unavailable each process continues on its own and reconnects with backoff; before it is used again, both
sides are merged. The log has one line when it becomes unavailable and one when it is reachable again. It is closed last of all
services: what they charge while they end is reported, too.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from hashlib import blake2b
from typing import Protocol, TypeAlias

from antiphon.errors import SharedStoreUnavailable
from antiphon.providers.keys.health import Health
from antiphon.providers.keys.secret import Credential
from antiphon.providers.keys.sharing import NO_COOLDOWNS, SharedHealth
from antiphon_gateway.config.references import parse_store_url
from antiphon_gateway.config.settings import GatewaySettings
from antiphon_gateway.share.counts import SYNC_SECONDS, Buckets, Counters, CounterStore
from antiphon_gateway.share.redis_state import RedisState, SharedStatus
from antiphon_gateway.share.workers import Credentials, WorkerHealth, repeat_forever

Sources: TypeAlias = Callable[[], Iterable[tuple[str, str, Health]]]
"""The keys and circuits in use, each with its URL and what names it there."""


class HealthStore(Protocol):
    """Where health is shared, by name."""

    @property
    def key(self) -> bytes:
        """The key for hashing names."""

    @property
    def offset(self) -> float:
        """How far the clock of its times is ahead of `time.monotonic`."""

    async def merge(self, known: Mapping[str, SharedHealth]) -> Mapping[str, SharedHealth]:
        """What this process knows, merged with what the others do; both then have it."""


async def sync_health(store: HealthStore, sources: Sources) -> None:
    """Share local changes of keys and circuits, and take over those of others. Raises `SharedStoreUnavailable`."""
    offset = store.offset
    known: dict[str, SharedHealth] = {}
    for url, secret, health in sources():  # two providers may have the same key
        name = key_fingerprint(secret, address=url, key=store.key)
        known[name] = known.get(name, NO_COOLDOWNS).merge(health.export())
    merged = await store.merge({name: health.shift_clock(offset) for name, health in known.items()})
    for url, secret, health in sources():  # a key may have been replaced meanwhile
        if remote := merged.get(key_fingerprint(secret, address=url, key=store.key)):
            health.merge(remote.shift_clock(-offset))


def key_fingerprint(secret: str, *, address: str, key: bytes) -> str:
    """The name of a secret and its URL in the store."""
    return blake2b(f"{address}\0{secret}".encode(), key=key, digest_size=16, person=b"antiphon").hexdigest()


logger = logging.getLogger("antiphon.gateway")

_LEDGER_SECONDS = _WORKER_SECONDS = 1.0
_MIN_BACKOFF, _MAX_BACKOFF = 0.25, 10.0
_STEADY_SECONDS = 60.0
_STARTING_SECONDS = 3.0


class SharedState:
    """What this process shares. `sources` gives the keys and circuits in use, each with its URL.

    `ledger` has what clients used, for counters without a `server`. `workers` are the other workers of the host.
    """

    def __init__(
        self,
        sources: Sources = tuple,
        *,
        server: RedisState | None = None,
        ledger: CounterStore | None = None,
        workers: WorkerHealth | None = None,
    ) -> None:
        self.buckets = Buckets(server)
        self.counters = Counters(server or ledger, interval=SYNC_SECONDS if server is not None else _LEDGER_SECONDS)
        self._sources = sources
        self._server = server
        self._workers = workers
        self._has_tried = asyncio.Event()

    @property
    def status(self) -> SharedStatus | None:
        """The state of the server; None without one."""
        return None if self._server is None else self._server.status

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must not be shown anywhere."""
        return () if self._server is None else self._server.secrets

    def with_other_workers(self, credentials: Credentials) -> Credentials:
        """The health of keys with the calls of all workers of the host."""
        return credentials if self._workers is None else self._workers.with_others(credentials)

    async def start(self) -> asyncio.Task[None]:
        """Share until the task is cancelled. This waits a moment for the state of the other processes."""
        task = asyncio.create_task(self._run())
        if self._server is not None:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._has_tried.wait(), _STARTING_SECONDS)
        return task

    async def _run(self) -> None:
        own = [self.buckets.exchange, self.counters.exchange]
        loops = [repeat_forever(own, _LEDGER_SECONDS) if self._server is None else self._run_with(self._server)]
        if self._workers is not None:
            loops.append(repeat_forever([partial(sync_health, self._workers, self._sources)], _WORKER_SECONDS))
        await asyncio.gather(*loops)

    async def aclose(self) -> None:
        """Report what is not reported yet, and disconnect."""
        server = self._server
        try:
            if server is not None and not server.is_unavailable:
                await self._share(server)
        except SharedStoreUnavailable:
            pass
        finally:
            await self.buckets.aclose()
            await self.counters.aclose()
            if server is not None:
                await server.aclose()

    async def _run_with(self, server: RedisState) -> None:
        pause, is_logged = _MIN_BACKOFF, False
        while True:
            began = time.monotonic()
            try:
                await server.connect()
                await sync_health(server, self._sources)
                await self.buckets.exchange()
                server.mark_available()
                if is_logged:
                    logger.info("shared store %s is reachable again; local changes merged", server.address)
                is_logged = False
                self._has_tried.set()
                while True:
                    await asyncio.sleep(SYNC_SECONDS)
                    await self._share(server)
            except SharedStoreUnavailable as error:
                if not is_logged:
                    logger.warning("%s; rate limits and key health are local until it is reachable", error)
                is_logged = True
            except Exception:  # an error of ours must not end the loop or the server
                logger.exception("internal error while syncing with the shared store %s", server.address)
            self._has_tried.set()
            if time.monotonic() - began > _STEADY_SECONDS:
                pause = _MIN_BACKOFF
            # With jitter, so that the processes do not all reconnect at the same moment.
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(_MAX_BACKOFF, pause * 2)

    async def _share(self, server: RedisState) -> None:
        await sync_health(server, self._sources)
        await self.buckets.exchange()
        await self.counters.exchange()


def open_shared_store(
    settings: GatewaySettings, environ: Mapping[str, str] | None = None, ledger: CounterStore | None = None
) -> RedisState | None:
    """The server that a configuration names; None if it names none. `ledger` gives the first values of counters."""
    if not settings.shared:
        return None
    password = Credential(secret=settings.shared_password) if settings.shared_password else None
    return RedisState(parse_store_url(settings.shared), password, ledger=ledger, environ=environ)
