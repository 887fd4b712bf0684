"""`SpendSummary`: what was spent in the last days by key, model and day, as the status page shows it.

It is read from the usage ledger, which all workers and hosts write, in a thread and at most every few seconds; less often if
reading takes long.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta

from msgspec import Struct

from antiphon.errors import AntiphonError
from antiphon.prices.table import PriceTable
from antiphon_gateway.config.settings import Config
from antiphon_gateway.ledger.database import open_for_reading
from antiphon_gateway.ledger.recent_spend import RecentSpend
from antiphon_gateway.ledger.spend import SpendRow, spend
from antiphon_gateway.threads import DATABASE

DAYS = 30
_KEPT_SECONDS = 3.0
_LEAST_PAUSE = 20.0
"""How many times as long as reading took the result is used: the page takes at most a twentieth of a processor."""


class SpendSummary(Struct, frozen=True, kw_only=True):
    """The sums of the last days, the largest first. Without a ledger all are empty."""

    days: int = DAYS
    is_on: bool = True
    problem: str = ""
    """Why the ledger cannot be read at present."""
    by_key: tuple[SpendRow, ...] = ()
    by_model: tuple[SpendRow, ...] = ()
    by_day: tuple[SpendRow, ...] = ()
    """The newest first."""
    today: SpendRow | None = None


class SpendReader:
    """Reads the summary, once for all readers of the next seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until = 0.0
        self._last = SpendSummary()
        self._recent = RecentSpend()
        self._reading = asyncio.Lock()

    async def read(self, config: Config, environ: Mapping[str, str], prices: PriceTable) -> SpendSummary:
        """The summary of now."""
        if not config.ledger.enabled:
            return SpendSummary(is_on=False)
        async with self._reading:
            if (began := self._clock()) >= self._until:
                now = datetime.now(UTC)
                self._last = await DATABASE.run(read_spend, config, environ, prices, now, self._recent)
                ended = self._clock()
                self._until = ended + max(_KEPT_SECONDS, _LEAST_PAUSE * (ended - began))
            return self._last


def read_spend(
    config: Config, environ: Mapping[str, str], prices: PriceTable, now: datetime, recent: RecentSpend
) -> SpendSummary:
    """The summary, from the database."""
    try:
        database = open_for_reading(config, environ)
    except AntiphonError as error:
        return SpendSummary(problem=str(error))
    if database is None:
        return SpendSummary()
    try:
        midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
        since = midnight - timedelta(days=DAYS - 1)
        by_day = spend(database, ("day",), since=since, table=prices)
        return SpendSummary(
            by_key=_largest_first(recent.by_key(database, since.date(), now.date(), prices)),
            by_model=_largest_first(spend(database, ("model", "provider"), since=since, table=prices)),
            by_day=tuple(reversed(by_day)),
            today=next((row for row in by_day if row.day == now.date()), None),
        )
    except AntiphonError as error:
        return SpendSummary(problem=str(error))
    finally:
        database.close()


def _largest_first(rows: list[SpendRow]) -> tuple[SpendRow, ...]:
    return tuple(sorted(rows, key=lambda row: (-(row.cost or 0), -row.usage.total_tokens)))
