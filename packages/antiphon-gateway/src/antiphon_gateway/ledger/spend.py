"""What was spent, by key, model, provider and day: a sum of what rows cost when they were written.

Whole days are read from the sums per day and only parts of days from rows, in one statement: the result is of one moment. A call
without a known price is counted, and not in the cost.

`LedgerTotals` has what clients used per day and month (`CounterStore`). Workers and hosts share counters through the ledger if
there is no shared store, and new counters begin with it. What this process counted is in the ledger as rows, so its rows are
written first, and the totals then contain them, but none that come later: those are counted here until the next exchange.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from functools import partial
from operator import attrgetter
from typing import Any, Literal, TypeAlias

from msgspec import Struct, structs

from antiphon.errors import SharedStoreUnavailable, StoreError
from antiphon.history.sql.database import Database
from antiphon.parts import TokenUsage
from antiphon_gateway.ledger.database import OperatorDatabase
from antiphon_gateway.ledger.ledger import UsageLedger
from antiphon_gateway.ledger.writer import ALL_KEYS, SUMS, TOKEN_COLUMNS
from antiphon_gateway.share.counts import NOTHING, Amount, Period
from antiphon_gateway.utc_time import DAY_MICROSECONDS, date_of, microseconds_of, start_of

Dimension: TypeAlias = Literal["key", "model", "provider", "day"]
DIMENSIONS: tuple[Dimension, ...] = ("key", "model", "provider", "day")

_LATEST = 2_932_896 * DAY_MICROSECONDS  # 9999-12-31
_GROUPS: Mapping[Dimension, str] = {"key": "d.key_id", "model": "b.model", "provider": "b.provider", "day": "d.day"}
_ROW_SUMS = f"""1 AS calls, CASE WHEN outcome_id = (SELECT id FROM names WHERE name = 'ok') THEN 0 ELSE 1 END AS failed_calls,
    CASE WHEN cost_nanodollars IS NULL THEN 0 ELSE 1 END AS priced_calls, {", ".join(TOKEN_COLUMNS)},
    coalesce(cost_nanodollars, 0) AS cost_nanodollars"""

_ESTIMATED_CALLS = """CAST(sum(CASE WHEN d.bucket_id IN (SELECT id FROM buckets WHERE metering = 'estimated') THEN d.calls
    ELSE 0 END) AS bigint)"""


class SpendRow(Struct, frozen=True, kw_only=True, gc=False):
    """Calls added up. The fields of dimensions that were not asked for are None."""

    key: str | None = None
    model: str | None = None
    provider: str | None = None
    day: date | None = None
    calls: int = 0
    failed_calls: int = 0
    estimated_calls: int = 0
    """Calls whose tokens are an estimate."""
    unpriced_calls: int = 0
    """Calls without a known price; they are not in `cost`."""
    usage: TokenUsage = TokenUsage()
    cache_write_1h_tokens: int = 0
    cost: Decimal | None = None
    """US dollars; None if no call has a known price."""

    def __add__(self, other: SpendRow) -> SpendRow:
        """Both together, with the names of this one."""
        cost = self.cost if other.cost is None else other.cost if self.cost is None else self.cost + other.cost
        return structs.replace(
            self,
            calls=self.calls + other.calls,
            failed_calls=self.failed_calls + other.failed_calls,
            estimated_calls=self.estimated_calls + other.estimated_calls,
            unpriced_calls=self.unpriced_calls + other.unpriced_calls,
            usage=self.usage + other.usage,
            cache_write_1h_tokens=self.cache_write_1h_tokens + other.cache_write_1h_tokens,
            cost=cost,
        )

    @property
    def numbers(self) -> dict[str, Any]:
        """What was added up, without names, as JSON; `cost` is in dollars."""
        return {
            "calls": self.calls,
            "failed_calls": self.failed_calls,
            "estimated_calls": self.estimated_calls,
            "unpriced_calls": self.unpriced_calls,
            "prompt_tokens": self.usage.prompt_tokens,
            "completion_tokens": self.usage.completion_tokens,
            "cached_tokens": self.usage.cached_tokens,
            "reasoning_tokens": self.usage.reasoning_tokens,
            "cost": None if self.cost is None else float(self.cost),
        }


NO_CALLS = SpendRow(cost=Decimal(0))


def spend(
    database: Database,
    by: Sequence[Dimension] = (),
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    keys: Sequence[str] | None = None,
) -> list[SpendRow]:
    """What calls from `since` to before `until` cost, one row per combination of `by`, sorted by it; without `by`, one row.

    `keys` restricts it to client keys. A time without a zone is UTC.
    """
    values: dict[str, Any] = {}
    if keys is not None:
        found = database.rows(f"SELECT id FROM names WHERE {database.one_of('name', 'names')}", names=list(keys))
        values["keys"] = [number for (number,) in found]
    source = " UNION ALL ".join(_parts(database, since, until, values, is_by_key="key" in by))
    if not source or values.get("keys") == []:
        return []
    groups = [_GROUPS[name] for name in by]
    # Sums of one day are stored in the order of their keys: joined with nothing, they need no sorting.
    buckets = "JOIN buckets b ON b.id = d.bucket_id" if "model" in by or "provider" in by else ""
    # CROSS: else SQLite stores all sums before it finds the first name.
    names = "CROSS JOIN names n WHERE n.id = s.key" if "key" in by else ""
    statement = f"""
SELECT {"n.name" if "key" in by else "NULL"}, s.* FROM (
    SELECT {", ".join(f"{column if name in by else 'NULL'} AS {name}" for name, column in _GROUPS.items())},
        {", ".join(f"CAST(sum(d.{column}) AS bigint)" for column in SUMS)}, {_ESTIMATED_CALLS}
    FROM ({source}) d {buckets} {f"GROUP BY {', '.join(groups)}" if by else "HAVING count(*) > 0"}
) s {names}
"""
    rows = [_row(row) for row in database.rows(statement, replan=True, **values)]
    return sorted(rows, key=attrgetter(*by)) if by else rows


class RecentSpend:
    """What each key spent in the last days, for a reader that asks every few seconds. Not for several threads at once.

    The sums of all keys and days are many rows (a million with 10,000 keys and a month), and only those of today change. The days
    before are added up once, and again if their sums over all keys, which are few rows, have changed.
    """

    def __init__(self) -> None:
        self._known: object = None
        self._earlier: list[SpendRow] = []

    def by_key(self, database: Database, first: datetime, today: datetime) -> list[SpendRow]:
        """What each key spent from the day `first` on, sorted by key."""
        # Before the sums are read: a row that comes between is found the next time.
        known = (database.location, first, today, spend(database, since=first, until=today))
        if known != self._known:
            self._earlier, self._known = spend(database, ("key",), since=first, until=today), known
        rows = {row.key: row for row in self._earlier}
        for row in spend(database, ("key",), since=today):
            earlier = rows.get(row.key)
            rows[row.key] = row if earlier is None else earlier + row
        return sorted(rows.values(), key=attrgetter("key"))


def _parts(
    database: Database, since: datetime | None, until: datetime | None, values: dict[str, Any], *, is_by_key: bool
) -> Iterator[str]:
    """Statements that read the calls from `since` to before `until`; what they name is added to `values`."""
    first_at = 0 if since is None else microseconds_of(since)
    end_at = _LATEST if until is None else microseconds_of(until)
    first_day, end_day = -(-first_at // DAY_MICROSECONDS), end_at // DAY_MICROSECONDS
    if first_day > end_day:  # within one day
        yield from _row_part(database, "within", first_at, end_at, values)
        return
    yield from _row_part(database, "before", first_at, first_day * DAY_MICROSECONDS, values)
    yield from _day_part(database, first_day, end_day, values, is_by_key=is_by_key)
    yield from _row_part(database, "after", end_day * DAY_MICROSECONDS, end_at, values)


def _day_part(database: Database, first: int, end: int, values: dict[str, Any], *, is_by_key: bool) -> Iterator[str]:
    # One after the other: for both at once SQLite reads the whole table.
    ((earliest,),) = database.rows("SELECT min(day) FROM daily")
    ((latest,),) = database.rows("SELECT max(day) FROM daily")
    if earliest is None or max(first, earliest) >= min(end, latest + 1):
        return
    first, end = max(first, earliest), min(end, latest + 1)
    if "keys" in values or not is_by_key:  # few rows of each day: by the list of days the index finds them
        values["days"] = list(range(first, end))
        keys = database.one_of("key_id", "keys") if "keys" in values else f"key_id = {ALL_KEYS}"
        condition = f"{database.one_of('day', 'days')} AND {keys}"
    else:
        days = f"day = {first}" if end == first + 1 else f"day BETWEEN {first} AND {end - 1}"
        condition = f"{days} AND key_id > {ALL_KEYS}"
    yield f"SELECT day, key_id, bucket_id, {', '.join(SUMS)} FROM daily WHERE {condition}"


def _row_part(database: Database, name: str, first_at: int, end_at: int, values: dict[str, Any]) -> Iterator[str]:
    if first_at >= end_at:
        return
    values |= {f"{name}_first": first_at, f"{name}_end": end_at}
    keys = f" AND {database.one_of('key_id', 'keys')}" if "keys" in values else ""
    yield f"""SELECT CAST(at / {DAY_MICROSECONDS} AS integer) AS day, key_id, bucket_id, {_ROW_SUMS} FROM usage
        WHERE at >= :{name}_first AND at < :{name}_end{keys}"""


def _row(row: Sequence[Any]) -> SpendRow:
    key, _, model, provider, day, calls, failed, priced, prompt, completion, cached, written, *rest = row
    written_1h, reasoning, cost, estimated = rest
    return SpendRow(
        key=key,
        model=model,
        provider=provider,
        day=None if day is None else date_of(day),
        calls=calls,
        failed_calls=failed,
        estimated_calls=estimated,
        unpriced_calls=calls - priced,
        usage=TokenUsage(prompt, completion, cached, written, reasoning, prompt + completion),
        cache_write_1h_tokens=written_1h,
        cost=Decimal(cost).scaleb(-9) if priced else None,
    )


_READ_SECONDS = 5.0


class LedgerTotals:
    """The totals of clients in one process's ledger and database."""

    def __init__(self, ledger: UsageLedger, database: OperatorDatabase) -> None:
        self._ledger = ledger
        self._database = database
        self._exists = False

    async def count(self, added: Mapping[Period, Amount]) -> dict[Period, Amount]:
        """The totals, with what was added and with nothing that is added later. Raises `SharedStoreUnavailable`."""
        periods = list(added)
        self._exists = self._exists or self._database.exists or self._ledger.status.pending_rows > 0
        if not periods or not self._exists:
            return dict.fromkeys(periods, NOTHING)
        reading = asyncio.wrap_future(self._ledger.read(partial(_totals, periods=periods)))
        try:
            return await asyncio.wait_for(reading, _READ_SECONDS)
        except StoreError as error:
            raise SharedStoreUnavailable(str(error)) from error
        except TimeoutError:
            reason = self._ledger.status.problem or "it takes too long"
            raise SharedStoreUnavailable(f"the usage ledger cannot write: {reason}") from None


def _totals(database: Database, periods: Sequence[Period]) -> dict[Period, Amount]:
    since = start_of(min(period.start for period in periods))
    clients = list({period.client for period in periods})
    used: dict[str, list[SpendRow]] = {}
    for row in spend(database, ("key", "day"), since=since, keys=clients):
        used.setdefault(row.key or "", []).append(row)
    return {
        period: sum((_amount(row) for row in used.get(period.client, ()) if period.has(row.day)), NOTHING)
        for period in periods
    }


def _amount(row: SpendRow) -> Amount:
    return Amount(row.usage.total_tokens, int((row.cost or 0) * 1_000_000_000))
