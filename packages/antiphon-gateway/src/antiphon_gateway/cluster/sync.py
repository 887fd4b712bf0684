"""`ClusterSync`: the loop that shares key health, rate limits and budgets with other gateways through a store.

A few times a second local changes are written and remote ones merged. When the store becomes unavailable each process continues
on its own and reconnects with backoff; before the store is used again, both sides are merged. The log has one line when it
becomes unavailable and one when it is reachable again.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Iterable, Mapping

from antiphon.errors import SharedStoreUnavailable
from antiphon.providers.credentials.secret import Credential
from antiphon.providers.credentials.shared_state import HealthSource
from antiphon_gateway.access.budgets import BudgetExchange, Budgets
from antiphon_gateway.cluster.redis_store import SharedStatus, SharedStore
from antiphon_gateway.cluster.shared_budgets import SharedBudgets
from antiphon_gateway.cluster.shared_health import SharedKeyHealth
from antiphon_gateway.cluster.shared_limits import SYNC_SECONDS, SharedLimits
from antiphon_gateway.config.settings import GatewaySettings
from antiphon_gateway.config.store_url import parse_store_url

logger = logging.getLogger("antiphon.gateway")

_MIN_BACKOFF, _MAX_BACKOFF = 0.25, 10.0
_STEADY_SECONDS = 60.0
_STARTING_SECONDS = 3.0


class ClusterSync:
    """The state this process shares. `sources` gives the keys and circuits in use, each with its URL."""

    def __init__(
        self,
        store: SharedStore,
        sources: Callable[[], Iterable[tuple[str, HealthSource]]],
        ledger: BudgetExchange | None = None,
    ) -> None:
        self.store = store
        self.limits = SharedLimits(store)
        self.budgets = Budgets(SharedBudgets(store, ledger), interval=SYNC_SECONDS)
        self._key_health = SharedKeyHealth(store, sources)
        self._logged_unavailable = False

    @property
    def status(self) -> SharedStatus:
        """The state of the store."""
        return self.store.status

    async def start(self) -> None:
        """Load the state of the other processes, if the store is available."""
        try:
            async with asyncio.timeout(_STARTING_SECONDS):
                await self._rejoin()
        except SharedStoreUnavailable as error:
            self._log_unavailable(error)
        except TimeoutError:
            pass  # `run` finds and logs the reason

    async def run(self) -> None:
        """Share until cancelled."""
        pause = _MIN_BACKOFF
        while True:
            began = time.monotonic()
            try:
                if self.store.is_unavailable:
                    await self._rejoin()
                while True:
                    await asyncio.sleep(SYNC_SECONDS)
                    await self._key_health.sync()
                    await self.limits.flush()
                    await self.budgets.flush()
            except SharedStoreUnavailable as error:
                self._log_unavailable(error)
            except Exception:  # a defect of ours must not end the loop or the server
                logger.exception("internal error while syncing with the shared store %s", self.store.address)
            if time.monotonic() - began > _STEADY_SECONDS:
                pause = _MIN_BACKOFF
            # With jitter, so that the processes do not all reconnect at the same moment.
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(_MAX_BACKOFF, pause * 2)

    async def aclose(self) -> None:
        """Report what is not reported yet, and disconnect."""
        try:
            if not self.store.is_unavailable:
                await self._key_health.sync()
                await self.limits.flush()
                await self.budgets.flush()
        except SharedStoreUnavailable:
            pass
        finally:
            await self.limits.aclose()
            await self.store.aclose()

    async def _rejoin(self) -> None:
        await self.store.connect()
        await self._key_health.sync(is_first=True)
        await self.limits.join()
        self.store.mark_available()
        if self._logged_unavailable:
            logger.info("shared store %s is reachable again; local changes merged", self.store.address)
        self._logged_unavailable = False

    def _log_unavailable(self, error: SharedStoreUnavailable) -> None:
        if not self._logged_unavailable:
            logger.warning("%s; rate limits and key health are local until it is reachable", error)
        self._logged_unavailable = True


def cluster_sync(
    settings: GatewaySettings,
    environ: Mapping[str, str] | None,
    sources: Callable[[], Iterable[tuple[str, HealthSource]]],
    ledger: BudgetExchange | None = None,
) -> ClusterSync | None:
    """The sync loop of a configuration; None if it names no store. `ledger` has the first values of budgets."""
    return ClusterSync(open_shared_store(settings, environ), sources, ledger) if settings.shared else None


def open_shared_store(settings: GatewaySettings, environ: Mapping[str, str] | None = None) -> SharedStore:
    """The store that a configuration names."""
    password = Credential(secret=settings.shared_password) if settings.shared_password else None
    return SharedStore(parse_store_url(settings.shared), password, environ=environ)
