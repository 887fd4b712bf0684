"""`LedgerTotals`: what clients used per day and month, as the usage ledger has it.

Workers and hosts share budgets through the ledger if there is no shared store, and counters begin with it after a restart. What
this process charged is in the ledger as rows, so its rows are written first, and the totals then contain them.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from antiphon.errors import StoreBusy, StoreError
from antiphon_gateway.access.budgets import (
    NOTHING,
    Amount,
    Totals,
    Unavailable,
    UsageReport,
    month_start,
)
from antiphon_gateway.ledger.database import OperatorDatabase
from antiphon_gateway.ledger.ledger import UsageLedger
from antiphon_gateway.ledger.spend import SpendRow, spend
from antiphon_gateway.threads import BUDGETS
from antiphon_gateway.utc_time import date_of

_FLUSH_SECONDS = 5.0


class LedgerTotals:
    """The totals of clients in one process's ledger and database."""

    def __init__(self, ledger: UsageLedger, database: OperatorDatabase) -> None:
        self._ledger = ledger
        self._database = database

    async def __call__(self, reports: Sequence[UsageReport], today: int) -> list[Totals]:
        """The totals of clients, what they report included. Raises `Unavailable`."""
        try:
            return await BUDGETS.run(self._read, [report.client for report in reports], today)
        except StoreBusy as error:
            raise Unavailable(str(error)) from None

    def _read(self, clients: list[str], today: int) -> list[Totals]:
        if not self._ledger.flush(_FLUSH_SECONDS):
            raise Unavailable(f"the usage ledger cannot write: {self._ledger.status.problem or 'it takes too long'}")
        if not self._database.exists:
            return [Totals() for _ in clients]
        first = date_of(month_start(today))
        since = datetime(first.year, first.month, first.day, tzinfo=UTC)
        try:
            rows = self._database.run_now(lambda opened: spend(opened, ("key", "day"), since=since, keys=clients))
        except StoreError as error:
            raise Unavailable(str(error)) from error
        days: dict[str, Amount] = {}
        months: dict[str, Amount] = {}
        for row in rows:
            assert row.key is not None, "rows are by key"
            months[row.key] = months.get(row.key, NOTHING) + _amount(row)
            if row.day == date_of(today):
                days[row.key] = days.get(row.key, NOTHING) + _amount(row)
        return [Totals(days.get(client, NOTHING), months.get(client, NOTHING)) for client in clients]


def _amount(row: SpendRow) -> Amount:
    return Amount(row.usage.total_tokens, int((row.cost or 0) * 1_000_000_000))
