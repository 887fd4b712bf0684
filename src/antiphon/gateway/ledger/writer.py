"""`LedgerWriter`: batches of rows into the operator database, with the sums per day in the same transaction.

A batch has a number of its writer, stored with it. If a connection breaks during the commit, that number shows whether the batch
arrived, so no row is written twice. Names are stored once and rows refer to them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from msgspec import structs

from antiphon.gateway.ledger.row import DAY_MICROSECONDS, PriceClass, UsageRow
from antiphon.history.sql.database import Database
from antiphon.prices.table import PriceTable

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

_NAMED = ("key", "operation", "credential", "model_asked", "price_version", "outcome")
_PLAIN = ("at", "request_id", "attempt", "status", "seconds", "first_token_seconds", *TOKEN_COLUMNS)
_BUCKET = ("provider", "model", "variant", "prompt_above", "prompt_to", "half_hour", "metering")
_SUMS = ("calls", "failed_calls", *TOKEN_COLUMNS)
_MAX_CACHED_IDS = 20_000
_DELETED_AT_ONCE = 5_000
_WRITER_SECONDS = 90 * 86_400

_USAGE_COLUMNS = (*_PLAIN, *(f"{name}_id" for name in _NAMED), "bucket_id")
_INSERT = (
    f"INSERT INTO usage ({', '.join(_USAGE_COLUMNS)}) VALUES ({', '.join(f':{column}' for column in _USAGE_COLUMNS)})"
)
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
_LAST_BATCH = "SELECT last_batch FROM writers WHERE name = :name"
_SET_LAST_BATCH = """
INSERT INTO writers (name, last_batch, seen) VALUES (:name, :batch, :at)
ON CONFLICT (name) DO UPDATE SET last_batch = excluded.last_batch, seen = excluded.seen
"""
_DELETE_WRITERS = "DELETE FROM writers WHERE seen < :before"
_DELETE_ROWS = "DELETE FROM usage WHERE id IN (SELECT id FROM usage WHERE at < :before ORDER BY at LIMIT :most)"


class LedgerWriter:
    """Writes for one process, which `name` tells from all others."""

    def __init__(self, database: Database, name: str, prices: Callable[[], PriceTable]) -> None:
        self._database = database
        self._name = name
        self._prices = prices
        self._ids: dict[str, int] = {}
        self._buckets: dict[tuple[object, ...], int] = {}

    @property
    def location(self) -> str:
        """Where it writes, as people may see it."""
        return self._database.location

    def write(self, rows: Sequence[UsageRow], batch: int) -> None:
        """Write a batch; one that was written before is not written again. Durable when this returns."""
        database, table = self._database, self._prices()
        version = table.version
        stored = [self._stored(row, table, version) for row in rows]
        sums = _sums_per_day(rows, stored)
        with database.transaction() as db:
            last = database.execute(db, _LAST_BATCH, name=self._name)
            if last and last[0][0] >= batch:
                return
            database.execute_many(db, _INSERT, stored)
            database.execute_many(db, _ADD_TO_DAY, sums)
            database.execute(db, _SET_LAST_BATCH, name=self._name, batch=batch, at=time.time_ns() // 1000)

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

    def _stored(self, row: UsageRow, table: PriceTable, version: str) -> dict[str, object]:
        row = row if row.price_version else structs.replace(row, price_version=version)
        values: dict[str, object] = {column: getattr(row, column) for column in _PLAIN}
        for column in _NAMED:
            name = getattr(row, column)
            values[f"{column}_id"] = self._ids.get(name) or self._add_name(name)
        price_class = PriceClass.of(row, table)
        bucket = (row.provider, row.model_served, row.variant, *structs.astuple(price_class), row.metering)
        values["bucket_id"] = self._buckets.get(bucket) or self._add_bucket(bucket)
        return values

    def _add_name(self, name: str) -> int:
        # In a transaction of its own: two batches that add names in a different order would wait for each other.
        database = self._database
        with database.connection() as db:
            found = database.execute(db, _NAME_ID, name=name)
            if not found:
                database.execute(db, _ADD_NAME, name=name)
                found = database.execute(db, _NAME_ID, name=name)
        if len(self._ids) >= _MAX_CACHED_IDS:
            self._ids.clear()
        self._ids[name] = found[0][0]
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


def _sums_per_day(rows: Sequence[UsageRow], stored: Sequence[dict[str, object]]) -> list[dict[str, object]]:
    """The sums that a batch adds, in the order of their key: writers that lock them in one order do not block each other."""
    sums: dict[tuple[int, int, int], list[int]] = {}
    for row, values in zip(rows, stored, strict=True):
        added = (1, row.outcome != "ok", *(getattr(row, column) for column in TOKEN_COLUMNS))
        day = row.at // DAY_MICROSECONDS
        for key_id in (ALL_KEYS, values["key_id"]):
            known = sums.setdefault((day, key_id, values["bucket_id"]), [0] * len(_SUMS))  # type: ignore[arg-type]
            for index, number in enumerate(added):
                known[index] += number
    return [
        {
            "day": day,
            "key_id": key_id,
            "bucket_id": bucket_id,
            **dict(zip(_SUMS, sums[day, key_id, bucket_id], strict=True)),
        }
        for day, key_id, bucket_id in sorted(sums)
    ]
