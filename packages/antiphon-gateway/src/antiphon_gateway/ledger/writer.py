"""`LedgerWriter`: batches of rows into the operator database, with the sums per day in the same transaction.

The rows of a writer are numbered, and the number of the last one is stored with each batch. If a connection breaks during the
commit, or rows come from the journal of a process that was killed, that number shows which of them arrived, so no row is written
twice. Names are stored once and rows refer to them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from operator import add, attrgetter
from typing import Any

from antiphon.history.sql.database import Database
from antiphon.prices.table import PriceTable
from antiphon_gateway.ledger.journal import DAY_MICROSECONDS, UsageRow

TOKEN_COLUMNS = (
    "prompt_tokens",
    "completion_tokens",
    "cached_tokens",
    "cache_write_tokens",
    "cache_write_1h_tokens",
    "reasoning_tokens",
)
ALL_KEYS = 0
"""The key id of the sums over all keys."""

_NAMED = ("key", "client_format", "operation", "credential", "model_asked", "outcome", "price_version")
_PLAIN = ("at", "request_id", "attempt", "status", "seconds", "first_token_seconds", *TOKEN_COLUMNS, "cost")
_BUCKET = ("provider", "model", "variant", "prompt_above", "prompt_to", "half_hour", "metering")
_SUMS = ("calls", "failed_calls", "priced_calls", *TOKEN_COLUMNS, "cost_nanodollars")
_EVERY_CALL = (0, 1 << 62, -1)
"""What an older version divided buckets by: size of the prompt and half hour of the day."""
_MAX_CACHED_IDS = 20_000
_DELETED_AT_ONCE = 5_000
_WRITER_SECONDS = 90 * 86_400

_plain_of = attrgetter(*_PLAIN)
_names_of = attrgetter(*_NAMED)
_tokens_of = attrgetter(*TOKEN_COLUMNS)
_USAGE_COLUMNS = (*_PLAIN[:-1], "cost_nanodollars", *(f"{name}_id" for name in _NAMED), "bucket_id")
_KEY_COLUMN = _USAGE_COLUMNS.index("key_id")
_ADD_TO_DAY = f"""
INSERT INTO daily (day, key_id, bucket_id, {", ".join(_SUMS)})
VALUES (:day, :key_id, :bucket_id, {", ".join(f":{column}" for column in _SUMS)})
ON CONFLICT (day, key_id, bucket_id) DO UPDATE
SET {", ".join(f"{column} = daily.{column} + excluded.{column}" for column in _SUMS)}
"""
_ADD_NAME = "INSERT INTO names (name) VALUES (:name) ON CONFLICT DO NOTHING"
_NAME_ID = "SELECT id FROM names WHERE name = :name"
_ADD_BUCKET = f"""
INSERT INTO buckets ({", ".join(_BUCKET)}) VALUES ({", ".join(f":{column}" for column in _BUCKET)}) ON CONFLICT DO NOTHING
"""
_BUCKET_ID = f"SELECT id FROM buckets WHERE {' AND '.join(f'{column} = :{column}' for column in _BUCKET)}"
_LAST_ROW = "SELECT last_row FROM writers WHERE name = :name"
_SET_LAST_ROW = """
INSERT INTO writers (name, last_row, seen) VALUES (:name, :last, :at)
ON CONFLICT (name) DO UPDATE SET last_row = excluded.last_row, seen = excluded.seen
"""
_DELETE_WRITERS = "DELETE FROM writers WHERE seen < :before"
_DELETE_ROWS = "DELETE FROM usage WHERE id IN (SELECT id FROM usage WHERE at < :before ORDER BY at LIMIT :most)"


class LedgerWriter:
    """Writes rows to one database."""

    def __init__(self, database: Database, prices: Callable[[], PriceTable]) -> None:
        self.database = self._database = database
        self._prices = prices
        self._ids: dict[str, int] = {}
        self._ids_of: dict[tuple[str, ...], tuple[int, ...]] = {}  # of the names of a row
        self._buckets: dict[tuple[object, ...], int] = {}

    @property
    def location(self) -> str:
        """Where it writes, as people may see it."""
        return self._database.location

    def write(self, writer: str, first: int, rows: Sequence[UsageRow]) -> int:
        """Write rows of a writer, numbered from `first`, except those that were written before; how many that were.

        They are durable when this returns.
        """
        for row in rows:
            if not row.price_version:  # of a journal of an older version
                row.set_cost(self._prices())
        database, stored = self._database, [self._stored(row) for row in rows]
        with database.transaction() as db:
            known = database.execute(db, _LAST_ROW, name=writer)
            written = max(0, known[0][0] - first + 1) if known else 0
            rows, stored = rows[written:], stored[written:]
            if not rows:
                return 0
            database.insert_many(db, "usage", _USAGE_COLUMNS, stored)
            database.execute_many(db, _ADD_TO_DAY, _sums_per_day(rows, stored))
            last = first + written + len(rows) - 1
            database.execute(db, _SET_LAST_ROW, name=writer, last=last, at=time.time_ns() // 1000)
        return len(rows)

    def delete_before(self, at: int) -> int:
        """Delete some of the rows that ended before a time, and return how many. Sums stay. Also writers not seen for long."""
        database = self._database
        with database.transaction() as db:
            database.execute(db, _DELETE_WRITERS, before=time.time_ns() // 1000 - _WRITER_SECONDS * 1_000_000)
            (before,) = database.execute(db, "SELECT count(*) FROM usage WHERE at < :before", before=at)[0]
            if before:
                database.execute(db, _DELETE_ROWS, before=at, most=_DELETED_AT_ONCE)
        return min(int(before), _DELETED_AT_ONCE)

    def close(self) -> None:
        self._database.close()

    def _stored(self, row: UsageRow) -> tuple[Any, ...]:
        names = _names_of(row)
        bucket = (row.provider, row.model_served, row.variant, *_EVERY_CALL, row.metering)
        return (
            *_plain_of(row),
            *(self._ids_of.get(names) or self._find_ids(names)),
            self._buckets.get(bucket) or self._add_bucket(bucket),
        )

    def _find_ids(self, names: tuple[str, ...]) -> tuple[int, ...]:
        found = tuple([self._ids.get(name) or self._add_name(name) for name in names])
        if len(self._ids_of) >= _MAX_CACHED_IDS:
            self._ids_of.clear()
        self._ids_of[names] = found
        return found

    def _add_name(self, name: str) -> int:
        if len(self._ids) >= _MAX_CACHED_IDS:
            self._ids.clear()
        self._ids[name] = find_name(self._database, name)
        return self._ids[name]

    def _add_bucket(self, bucket: tuple[object, ...]) -> int:
        database, values = self._database, dict(zip(_BUCKET, bucket, strict=True))
        with database.connection() as db:
            found = database.execute(db, _BUCKET_ID, **values)
            if not found:
                database.execute(db, _ADD_BUCKET, **values)
                found = database.execute(db, _BUCKET_ID, **values)
        if len(self._buckets) >= _MAX_CACHED_IDS:
            self._buckets.clear()
        self._buckets[bucket] = found[0][0]
        return self._buckets[bucket]


def find_name(database: Database, name: str) -> int:
    """The id of a name, which is stored if it is new."""
    # In a transaction of its own: two batches that add names in a different order would wait for each other.
    with database.connection() as db:
        found = database.execute(db, _NAME_ID, name=name)
        if not found:
            database.execute(db, _ADD_NAME, name=name)
            found = database.execute(db, _NAME_ID, name=name)
    return int(found[0][0])


def _sums_per_day(rows: Sequence[UsageRow], stored: Sequence[tuple[Any, ...]]) -> list[dict[str, object]]:
    """The sums that a batch adds, in the order of their key: writers that lock them in one order do not block each other."""
    sums: dict[tuple[int, int, int], list[int]] = {}
    for row, values in zip(rows, stored, strict=True):
        group = (row.at // DAY_MICROSECONDS, values[_KEY_COLUMN], values[-1])
        cost = row.cost
        added = (1, row.outcome != "ok", cost is not None, *_tokens_of(row), cost or 0)
        known = sums.get(group)
        sums[group] = [*added] if known is None else [*map(add, known, added)]
    for (day, _, bucket_id), of_key in list(sums.items()):
        total = sums.setdefault((day, ALL_KEYS, bucket_id), [0] * len(_SUMS))
        sums[day, ALL_KEYS, bucket_id] = [*map(add, total, of_key)]
    return [
        {"day": day, "key_id": key_id, "bucket_id": bucket_id, **dict(zip(_SUMS, map(int, numbers), strict=True))}
        for (day, key_id, bucket_id), numbers in sorted(sums.items())
    ]
