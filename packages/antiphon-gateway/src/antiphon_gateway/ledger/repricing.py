"""What stored calls cost, found again: once for those of an older version, and when an operator asks for it.

Rows have what they cost when they were written, so a corrected price changes nothing by itself: `reprice` does, and adjusts the
sums per day by the differences. An older version stored no cost. Its sums are priced when the database is opened, which gives the
same reports as before, and its rows some at a time, so that no gateway waits for it (`price_old_rows`); a command does.

Calls whose rows were deleted keep the cost that is in the sums.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import date
from fnmatch import fnmatchcase
from typing import Any

from msgspec import Struct

from antiphon.errors import StoreError
from antiphon.history.sql.database import Database
from antiphon.prices.rate_card import TokenCounts
from antiphon.prices.table import PriceTable
from antiphon_gateway.ledger.writer import ALL_KEYS, TOKEN_COLUMNS, find_name
from antiphon_gateway.utc_time import DAY_MICROSECONDS, day_of

_ROWS_AT_ONCE = 20_000
_LOCK = "prices"
_HALF_HOUR_MICROSECONDS = 1_800_000_000
_TOKENS = ", ".join(TOKEN_COLUMNS)
_SUMS_OF_DAY = f"SELECT key_id, bucket_id, calls, {_TOKENS} FROM daily WHERE day = :day"
_ADJUST_SUMS = """
UPDATE daily SET priced_calls = priced_calls + :priced, cost_nanodollars = cost_nanodollars + :cost
WHERE day = :day AND key_id = :key_id AND bucket_id = :bucket_id
"""
_SET_COST = "UPDATE usage SET cost_nanodollars = :cost, price_version_id = :version WHERE id = :id"
_ROW = f"SELECT id, at, key_id, bucket_id, cost_nanodollars, {_TOKENS} FROM usage"
_OLD_ROWS = f"{_ROW} WHERE id <= :last ORDER BY id DESC LIMIT :most"
_CLAIM = "UPDATE unpriced SET last = last WHERE name = :name RETURNING last"


class Repricing(Struct, kw_only=True):
    """What was found: rows that were looked at and those with another cost, and the cost of the latter before and after."""

    rows: int = 0
    changed: int = 0
    before: int = 0
    """Nanodollars, as `after`; a call without a known price is not in them."""
    after: int = 0
    without_row: int = 0
    """Calls of that time whose rows were deleted: they keep their cost."""


class _Bucket(Struct, frozen=True):
    id: int
    provider: str
    model: str
    variant: str
    metering: str
    prompt_above: int
    half_hour: int

    def cost(self, table: PriceTable, tokens: TokenCounts, at: int, *, prompt_size: int = 0) -> int | None:
        """What a call cost; None if the number of its tokens, or their price, is not known."""
        if self.metering in ("free", "unknown"):
            return 0 if self.metering == "free" else None
        return table.card(self.provider, self.model, self.variant).nanodollars(tokens, at, prompt_size=prompt_size)

    def cost_of_sums(self, table: PriceTable, tokens: TokenCounts, day: int) -> int | None:
        """What the calls of a day cost: an older version divided them by all that their price depends on."""
        at = day * DAY_MICROSECONDS + max(0, self.half_hour) * _HALF_HOUR_MICROSECONDS
        return self.cost(table, tokens, at, prompt_size=self.prompt_above + 1)


def has_unpriced_sums(database: Database) -> bool:
    """Whether an older version wrote the sums, and they have no cost yet."""
    return bool(database.rows("SELECT 1 FROM unpriced WHERE name = 'daily'"))


def price_old_sums(database: Database, table: PriceTable) -> None:
    """Find what the sums of an older version cost, if it has not been done yet."""
    if not has_unpriced_sums(database):
        return
    buckets = _read_buckets(database)
    with database.transaction() as db:
        if not database.execute(db, _CLAIM, name="daily"):
            return  # another process did it
        for (day,) in database.execute(db, "SELECT DISTINCT day FROM daily"):
            priced = []
            for key_id, bucket_id, calls, *tokens in database.execute(db, _SUMS_OF_DAY, day=day):
                cost = buckets[bucket_id].cost_of_sums(table, tuple(tokens), day)
                place = {"day": day, "key_id": key_id, "bucket_id": bucket_id}
                priced.append({**place, "priced": 0 if cost is None else calls, "cost": cost or 0})
            database.execute_many(db, _ADJUST_SUMS, priced)
        database.execute(db, "DELETE FROM unpriced WHERE name = 'daily'")


def price_old_rows(database: Database, table: PriceTable, most: int = _ROWS_AT_ONCE) -> bool:
    """Find what some rows of an older version cost, whose sums have it already. Whether there are more."""
    if not database.rows("SELECT 1 FROM unpriced WHERE name = 'usage'"):
        return False
    buckets, version = _read_buckets(database), find_name(database, table.version)
    with database.transaction() as db:
        claimed = database.execute(db, _CLAIM, name="usage")
        rows = database.execute(db, _OLD_ROWS, last=claimed[0][0], most=most) if claimed else []
        costs = [
            {"id": number, "cost": buckets[bucket].cost(table, tuple(tokens), at), "version": version}
            for number, at, _, bucket, _, *tokens in rows
        ]
        database.execute_many(db, _SET_COST, costs)
        if len(rows) < most:
            database.execute(db, "DELETE FROM unpriced WHERE name = 'usage'")
        else:
            database.execute(db, "UPDATE unpriced SET last = :last WHERE name = 'usage'", last=rows[-1][0] - 1)
    return len(rows) == most


def price_all_old_rows(database: Database, table: PriceTable) -> None:
    """The same for all of them."""
    while price_old_rows(database, table):
        pass


def reprice(
    database: Database, table: PriceTable, *, since: date, model: str = "*", is_dry_run: bool = False
) -> Repricing:
    """Find what the calls from a day on cost with a price table. `model` is a pattern for `model` or `provider/model`.

    With `is_dry_run` nothing is written. Raises `StoreError` if rows of an older version have not been priced yet.
    """
    if database.rows("SELECT 1 FROM unpriced"):
        raise StoreError(
            f"{database.location} has calls of an older Antiphon that are not priced yet; `antiphon serve` prices them, and "
            "this command too if it may write there"
        )
    buckets = {number: bucket for number, bucket in _read_buckets(database).items() if _is(bucket, model)}
    first_at, found = day_of(since) * DAY_MICROSECONDS, Repricing()
    known: dict[str, Any] = {"first": first_at, "buckets": list(buckets), "most": _ROWS_AT_ONCE}
    statement = f"""{_ROW} WHERE id > :after AND at >= :first AND {database.one_of("bucket_id", "buckets")}
        ORDER BY id LIMIT :most"""
    ((lowest,),) = database.rows("SELECT min(id) FROM usage WHERE at >= :first", first=first_at)
    after, version = (lowest or 0) - 1, 0 if is_dry_run else find_name(database, table.version)
    while True:
        if is_dry_run:
            rows = database.rows(statement, after=after, **known)
            _compare(rows, buckets, table, found)
        else:
            with database.transaction() as db:
                database.lock(db, _LOCK)
                rows = database.execute(db, statement, after=after, **known)
                changed = _compare(rows, buckets, table, found)
                database.execute_many(
                    db, _SET_COST, [{"id": row[0], "cost": row[-1], "version": version} for row in changed]
                )
                database.execute_many(db, _ADJUST_SUMS, _differences(changed))
        if len(rows) < _ROWS_AT_ONCE:
            break
        after = rows[-1][0]
    calls = f"SELECT CAST(coalesce(sum(calls), 0) AS bigint) FROM daily WHERE day >= :day AND key_id = {ALL_KEYS}"
    ((counted,),) = database.rows(
        f"{calls} AND {database.one_of('bucket_id', 'buckets')}", day=day_of(since), buckets=list(buckets)
    )
    found.without_row = max(0, counted - found.rows)
    return found


_Changed = tuple[int, int, int, int, int | None, int | None]
"""A row with another cost: its id, day, key and bucket, its cost before and now."""


def _compare(rows: Sequence[Any], buckets: dict[int, _Bucket], table: PriceTable, found: Repricing) -> list[_Changed]:
    changed: list[_Changed] = []
    for number, at, key_id, bucket_id, before, *tokens in rows:
        cost = buckets[bucket_id].cost(table, tuple(tokens), at)
        if cost != before:
            changed.append((number, at // DAY_MICROSECONDS, key_id, bucket_id, before, cost))
    found.rows += len(rows)
    found.changed += len(changed)
    found.before += sum(before or 0 for *_, before, _ in changed)
    found.after += sum(cost or 0 for *_, cost in changed)
    return changed


def _differences(changed: Iterable[_Changed]) -> list[dict[str, int]]:
    """What the sums change by, in the order of their key, as writers lock them."""
    sums: defaultdict[tuple[int, int, int], list[int]] = defaultdict(lambda: [0, 0])
    for _, day, key_id, bucket_id, before, cost in changed:
        for key in (key_id, ALL_KEYS):
            sums[day, key, bucket_id][0] += (cost is not None) - (before is not None)
            sums[day, key, bucket_id][1] += (cost or 0) - (before or 0)
    return [
        {"day": day, "key_id": key_id, "bucket_id": bucket_id, "priced": priced, "cost": cost}
        for (day, key_id, bucket_id), (priced, cost) in sorted(sums.items())
    ]


def _is(bucket: _Bucket, pattern: str) -> bool:
    return fnmatchcase(bucket.model, pattern) or fnmatchcase(f"{bucket.provider}/{bucket.model}", pattern)


def _read_buckets(database: Database) -> dict[int, _Bucket]:
    rows = database.rows("SELECT id, provider, model, variant, metering, prompt_above, half_hour FROM buckets")
    return {row[0]: _Bucket(*row) for row in rows}
