"""`SpendSummary`: what was spent in the last days by key, model and day, as the status page shows it.

It is read from the usage ledger, which all workers and hosts write, in a thread and at most every few seconds; less often if
reading takes long.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial

from msgspec import Struct

from antiphon.errors import AntiphonError
from antiphon.history.sql.database import Database
from antiphon_gateway.ledger.database import OperatorDatabase
from antiphon_gateway.ledger.spend import RecentSpend, SpendRow, spend

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

    async def read(self, database: OperatorDatabase, *, is_on: bool = True) -> SpendSummary:
        """The summary of now. `is_on`: whether there is a ledger."""
        if not is_on or not database.exists:
            return SpendSummary(is_on=is_on)
        async with self._reading:
            if (began := self._clock()) >= self._until:
                try:
                    self._last = await database.run(partial(read_spend, now=datetime.now(UTC), recent=self._recent))
                except AntiphonError as error:
                    self._last = SpendSummary(problem=str(error))
                ended = self._clock()
                self._until = ended + max(_KEPT_SECONDS, _LEAST_PAUSE * (ended - began))
            return self._last


def read_spend(database: Database, now: datetime, recent: RecentSpend) -> SpendSummary:
    """The summary, from the database. Raises `StoreError`."""
    today = now.replace(hour=0, minute=0, second=0, microsecond=0)
    since = today - timedelta(days=DAYS - 1)
    by_day = spend(database, ("day",), since=since)
    return SpendSummary(
        by_key=_largest_first(recent.by_key(database, since, today)),
        by_model=_largest_first(spend(database, ("model", "provider"), since=since)),
        by_day=tuple(reversed(by_day)),
        today=next((row for row in by_day if row.day == now.date()), None),
    )


def _largest_first(rows: list[SpendRow]) -> tuple[SpendRow, ...]:
    return tuple(sorted(rows, key=lambda row: (-(row.cost or 0), -row.usage.total_tokens)))
