"""`Shared`: what gateways have in common through a store: the states of providers' keys, and the limits of clients.

A few times a second what is new here is told, and what is new there is learnt. When the store goes away everybody goes on alone;
it is looked for again and again, at first soon and then less often, and before anybody asks it again what was learnt meanwhile is
put together. A store that comes and goes is tried less and less often too. The log has one line when it goes and one when it
returns.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Iterable, Mapping

from antiphon.errors import SharedStoreAway
from antiphon.gateway.cluster.redis_store import SharedStatus, SharedStore, address_of
from antiphon.gateway.cluster.shared_health import SharedStandings
from antiphon.gateway.cluster.shared_limits import TELL_SECONDS, SharedLimits
from antiphon.gateway.config.settings import GatewaySettings
from antiphon.providers.credentials.pool import CredentialPool
from antiphon.providers.credentials.secret import Credential

logger = logging.getLogger("antiphon.gateway")

_SOONEST, _LATEST = 0.25, 10.0
_STEADY_SECONDS = 60.0
_STARTING_SECONDS = 3.0


class Shared:
    """What this process shares. `pools` gives the pools in use, each with the address that its keys are for."""

    def __init__(self, store: SharedStore, pools: Callable[[], Iterable[tuple[str, CredentialPool]]]) -> None:
        self.store = store
        self.limits = SharedLimits(store)
        self._standings = SharedStandings(store, pools)
        self._is_told_away = False

    @property
    def status(self) -> SharedStatus:
        """How the store stands."""
        return self.store.status

    async def start(self) -> None:
        """Begin with what the others know, if the store is there; else without."""
        try:
            async with asyncio.timeout(_STARTING_SECONDS):
                await self._join()
        except SharedStoreAway as away:
            self._tell_away(away)
        except TimeoutError:
            pass  # `run` will find out why

    async def run(self) -> None:
        """Share until cancelled."""
        pause = _SOONEST
        while True:
            began = time.monotonic()
            try:
                if self.store.is_away:
                    await self._join()
                while True:
                    await asyncio.sleep(TELL_SECONDS)
                    await self._standings.exchange()
                    await self.limits.tell()
            except SharedStoreAway as away:
                self._tell_away(away)
            except Exception:  # a mistake of ours must not end the sharing, nor the serving
                logger.exception("sharing through %s failed", self.store.address)
            if time.monotonic() - began > _STEADY_SECONDS:
                pause = _SOONEST
            # Not all at the same moment: a store that is just back has better to do.
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(_LATEST, pause * 2)

    async def aclose(self) -> None:
        """Tell what is not told yet, and let go."""
        try:
            if not self.store.is_away:
                await self._standings.exchange()
                await self.limits.tell()
        except SharedStoreAway:
            pass
        finally:
            await self.limits.aclose()
            await self.store.aclose()

    async def _join(self) -> None:
        await self.store.connect()
        await self._standings.exchange(is_first=True)
        await self.limits.join()
        self.store.open()
        if self._is_told_away:
            logger.info("the shared store %s is back; what was learnt meanwhile is shared", self.store.address)
        self._is_told_away = False

    def _tell_away(self, away: SharedStoreAway) -> None:
        if not self._is_told_away:
            logger.warning("%s; until it is back this process counts for itself", away)
        self._is_told_away = True


def shared_by(
    settings: GatewaySettings,
    environ: Mapping[str, str] | None,
    pools: Callable[[], Iterable[tuple[str, CredentialPool]]],
) -> Shared | None:
    """What a configuration shares; None if it names no store."""
    return Shared(store_of(settings, environ), pools) if settings.shared else None


def store_of(settings: GatewaySettings, environ: Mapping[str, str] | None = None) -> SharedStore:
    """The store that a configuration names."""
    password = Credential(secret=settings.shared_password) if settings.shared_password else None
    return SharedStore(address_of(settings.shared), password, environ=environ)
