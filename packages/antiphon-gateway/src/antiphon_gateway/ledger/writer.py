"""`LedgerWriter`: batches of rows into the operator database, with the sums per day in the same transaction.

The rows of a writer are numbered, and the number of the last one is stored with each batch. If a connection breaks during the
commit, or rows come from the journal of a process that was killed, that number shows which of them arrived, so no row is written
twice. Names are stored once and rows refer to them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from operator import add, attrgetter
from typing import Any

from antiphon.history.sql.database import Database
from antiphon.prices.table import PriceTable
from antiphon_gateway.ledger.journal import UsageRow
from antiphon_gateway.utc_time import DAY_MICROSECONDS, now_microseconds

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
_BUCKET = ("provider", "model", "variant", "metering")
SUMS = ("calls", "failed_calls", "priced_calls", *TOKEN_COLUMNS, "cost_nanodollars")
"""The columns of the sums per day."""
_EVERY_CALL = {"prompt_above": 0, "prompt_to": 1 << 62, "half_hour": -1}
"""What an older version divided buckets by: size of the prompt and half hour of the day."""
_MAX_CACHED_IDS = 20_000
_DELETED_AT_ONCE = 5_000
_WRITER_DAYS = 90

_plain_of = attrgetter(*_PLAIN)
_names_of = attrgetter(*_NAMED)
_tokens_of = attrgetter(*TOKEN_COLUMNS)
_USAGE_COLUMNS = (*_PLAIN[:-1], "cost_nanodollars", *(f"{name}_id" for name in _NAMED), "bucket_id")
_KEY_COLUMN = _USAGE_COLUMNS.index("key_id")
_ADD_TO_DAY = f"""
INSERT INTO daily (day, key_id, bucket_id, {", ".join(SUMS)})
VALUES (:day, :key_id, :bucket_id, {", ".join(f":{column}" for column in SUMS)})
ON CONFLICT (day, key_id, bucket_id) DO UPDATE
SET {", ".join(f"{column} = daily.{column} + excluded.{column}" for column in SUMS)}
"""
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
        self.database = database
        self._prices = prices
        self._name_id = lru_cache(_MAX_CACHED_IDS)(partial(find_name, database))
        self._name_ids = lru_cache(_MAX_CACHED_IDS)(self._find_name_ids)
        self._bucket_id = lru_cache(_MAX_CACHED_IDS)(self._find_bucket)

    def write(self, writer: str, first: int, rows: Sequence[UsageRow]) -> int:
        """Write rows of a writer, numbered from `first`, except those that were written before; how many that were.

        They are durable when this returns.
        """
        for row in rows:
            if not row.price_version:  # of a journal of an older version
                row.set_cost(self._prices())
        database, stored = self.database, [self._stored(row) for row in rows]
        with database.transaction() as db:
            known = database.execute(db, _LAST_ROW, name=writer)
            written = max(0, known[0][0] - first + 1) if known else 0
            rows, stored = rows[written:], stored[written:]
            if not rows:
                return 0
            database.insert_many(db, "usage", _USAGE_COLUMNS, stored)
            database.execute_many(db, _ADD_TO_DAY, _sums_per_day(rows, stored))
            last = first + written + len(rows) - 1
            database.execute(db, _SET_LAST_ROW, name=writer, last=last, at=now_microseconds())
        return len(rows)

    def delete_before(self, at: int) -> int:
        """Delete some of the rows that ended before a time, and return how many. Sums stay. Also writers not seen for long."""
        database = self.database
        with database.transaction() as db:
            database.execute(db, _DELETE_WRITERS, before=now_microseconds() - _WRITER_DAYS * DAY_MICROSECONDS)
            (before,) = database.execute(db, "SELECT count(*) FROM usage WHERE at < :before", before=at)[0]
            if before:
                database.execute(db, _DELETE_ROWS, before=at, most=_DELETED_AT_ONCE)
        return min(int(before), _DELETED_AT_ONCE)

    def close(self) -> None:
        """Close the database."""
        self.database.close()

    def _stored(self, row: UsageRow) -> tuple[Any, ...]:
        bucket = self._bucket_id(row.provider, row.model_served, row.variant, row.metering)
        return (*_plain_of(row), *self._name_ids(_names_of(row)), bucket)

    def _find_name_ids(self, names: tuple[str, ...]) -> tuple[int, ...]:
        return tuple(map(self._name_id, names))

    def _find_bucket(self, *bucket: str) -> int:
        return _find_id(self.database, "buckets", **_EVERY_CALL, **dict(zip(_BUCKET, bucket, strict=True)))


def find_name(database: Database, name: str) -> int:
    """The id of a name, which is stored if it is new."""
    return _find_id(database, "names", name=name)


def _find_id(database: Database, table: str, **values: object) -> int:
    """The id of the row with these values, which is stored if it is new."""
    find = f"SELECT id FROM {table} WHERE {' AND '.join(f'{column} = :{column}' for column in values)}"
    placeholders = ", ".join(f":{column}" for column in values)
    add = f"INSERT INTO {table} ({', '.join(values)}) VALUES ({placeholders}) ON CONFLICT DO NOTHING"
    # In a transaction of its own: two batches that add names in a different order would wait for each other.
    with database.connection() as db:
        found = database.execute(db, find, **values)
        if not found:
            database.execute(db, add, **values)
            found = database.execute(db, find, **values)
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
        total = sums.setdefault((day, ALL_KEYS, bucket_id), [0] * len(SUMS))
        sums[day, ALL_KEYS, bucket_id] = [*map(add, total, of_key)]
    return [
        {"day": day, "key_id": key_id, "bucket_id": bucket_id, **dict(zip(SUMS, map(int, numbers), strict=True))}
        for (day, key_id, bucket_id), numbers in sorted(sums.items())
    ]
