"""`RecentSpend`: what each key spent in the last days, for a reader that asks every few seconds.

The sums of all keys and days are many rows (a million with 10,000 keys and a month), and only those of today change. So the days
before today are added up once, and each time only today is added. They are added up again if prices change, or if rows of an
earlier day arrive late: then the calls of all keys together, a few rows that are written with the others, are more than before.
"""

from __future__ import annotations

from datetime import date

from antiphon.history.sql.database import Database
from antiphon.prices.table import PriceTable
from antiphon_gateway.ledger.spend import LATEST_DAY, SpendQuery, SpendRow
from antiphon_gateway.ledger.writer import ALL_KEYS
from antiphon_gateway.utc_time import day_of


class RecentSpend:
    """The spend of all keys, in one database at a time. Not for several threads at once."""

    def __init__(self) -> None:
        self._known: tuple[object, ...] = ()
        self._earlier: SpendQuery | None = None

    def by_key(self, database: Database, first: date, today: date, table: PriceTable) -> list[SpendRow]:
        """What each key spent from day `first` on, sorted by key."""
        start, end = day_of(first), day_of(today)
        # Counted before the sums are read: a row that comes between is found the next time.
        known = (database.location, table, start, end, _count_calls(database, start, end))
        if self._earlier is None or known != self._known:
            self._earlier = SpendQuery(database, ("key",), None, table)
            self._earlier.add_days(start, end)
            self._known = known
        query = SpendQuery(database, ("key",), None, table)
        query.add_days(end, LATEST_DAY)
        query.add_result(self._earlier)
        return query.result()


def _count_calls(database: Database, start: int, end: int) -> int:
    statement = f"""
SELECT CAST(coalesce(sum(d.calls), 0) AS bigint) FROM daily d
WHERE {database.one_of("d.day", "days")} AND d.key_id = {ALL_KEYS}
"""
    ((calls,),) = database.rows(statement, days=list(range(start, end)))
    return int(calls)
