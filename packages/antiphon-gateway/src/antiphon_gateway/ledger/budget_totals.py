"""`LedgerTotals`: what clients used per day and month, as the usage ledger has it (`CounterStore`).

Workers and hosts share counters through the ledger if there is no shared store, and new counters begin with it. What this process
counted is in the ledger as rows, so its rows are written first, and the totals then contain them.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from antiphon.errors import SharedStoreUnavailable, StoreError
from antiphon_gateway.ledger.database import OperatorDatabase
from antiphon_gateway.ledger.ledger import UsageLedger
from antiphon_gateway.ledger.spend import SpendRow, spend
from antiphon_gateway.share.counts import NOTHING, Amount, Period
from antiphon_gateway.threads import BUDGETS
from antiphon_gateway.utc_time import day_of

_FLUSH_SECONDS = 5.0
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class LedgerTotals:
    """The totals of clients in one process's ledger and database."""

    def __init__(self, ledger: UsageLedger, database: OperatorDatabase) -> None:
        self._ledger = ledger
        self._database = database

    async def count(self, added: Mapping[Period, Amount]) -> dict[Period, Amount]:
        """The totals, with what was added. Raises `SharedStoreUnavailable`."""
        try:
            return await BUDGETS.run(self._read, list(added))
        except StoreError as error:
            raise SharedStoreUnavailable(str(error)) from error

    def _read(self, periods: list[Period]) -> dict[Period, Amount]:
        if not self._ledger.flush(_FLUSH_SECONDS):
            reason = self._ledger.status.problem or "it takes too long"
            raise SharedStoreUnavailable(f"the usage ledger cannot write: {reason}")
        totals = dict.fromkeys(periods, NOTHING)
        if not periods or not self._database.exists:
            return totals
        since = _EPOCH + timedelta(days=min(period.start for period in periods))
        clients = list({period.client for period in periods})
        rows = self._database.run_now(lambda opened: spend(opened, ("key", "day"), since=since, keys=clients))
        used: dict[str, list[SpendRow]] = {}
        for row in rows:
            used.setdefault(row.key or "", []).append(row)
        return {
            period: sum((_amount(row) for row in used.get(period.client, ()) if _is_in(row, period)), NOTHING)
            for period in periods
        }


def _is_in(row: SpendRow, period: Period) -> bool:
    return row.day is not None and period.start <= day_of(row.day) < period.end


def _amount(row: SpendRow) -> Amount:
    return Amount(row.usage.total_tokens, int((row.cost or 0) * 1_000_000_000))
