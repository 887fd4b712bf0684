"""What was spent, by key, model, provider and day: token sums of the ledger times the prices of now.

Sums per day are kept per bucket: calls whose tokens have the same prices. The price of a bucket is linear in its six token
sums, so the database multiplies and adds (`price_expressions`): a query reads sums, not rows. Rows are read for parts of a day,
and for buckets that a newer price table splits. What has no known price is counted, and never 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from operator import add, attrgetter
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from antiphon.history.sql.database import Database
from antiphon.parts import TokenUsage
from antiphon.prices.cost import cost_of
from antiphon.prices.table import PriceTable
from antiphon_gateway.ledger.price_expressions import MILLION, PriceExpressions, PricePeriod, price_rates
from antiphon_gateway.ledger.row import DAY_MICROSECONDS, PriceClass, decode_variant
from antiphon_gateway.ledger.writer import ALL_KEYS, TOKEN_COLUMNS
from antiphon_gateway.utc_time import date_of, day_of, microseconds_of

Dimension: TypeAlias = Literal["key", "model", "provider", "day"]
DIMENSIONS: tuple[Dimension, ...] = ("key", "model", "provider", "day")

LATEST_DAY = 2_932_896  # 9999-12-31
_BUCKETS_AT_ONCE = 400

_DAILY = "daily"
_ROWS = f"""(SELECT CAST(at / {DAY_MICROSECONDS} AS integer) AS day, key_id, bucket_id, 1 AS calls,
    CASE WHEN outcome_id = (SELECT id FROM names WHERE name = 'ok') THEN 0 ELSE 1 END AS failed_calls, {", ".join(TOKEN_COLUMNS)}
    FROM usage WHERE at >= :first_at AND at < :end_at)"""


_Group: TypeAlias = tuple[str | None, str | None, str | None, int | None]
"""Key, model, provider and day, each None if it was not asked for."""


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


class _Bucket(Struct, frozen=True):
    id: int
    provider: str
    model: str
    variant: str
    price_class: PriceClass
    metering: str


class _Sums(Struct, frozen=True, gc=False):
    """What is added up for one group: the numbers in the order of the statement, and the cost."""

    numbers: Sequence[int]
    cost: Decimal

    def __add__(self, other: _Sums) -> _Sums:
        return _Sums([*map(add, self.numbers, other.numbers)], self.cost + other.cost)

    def row(self, key: str | None, model: str | None, provider: str | None, day: int | None) -> SpendRow:
        calls, failed, estimated, unpriced, prompt, completion, cached, written, long_lived, reasoning = self.numbers
        return SpendRow(
            key=key,
            model=model,
            provider=provider,
            day=None if day is None else date_of(day),
            calls=calls,
            failed_calls=failed,
            estimated_calls=estimated,
            unpriced_calls=unpriced,
            usage=TokenUsage(prompt, completion, cached, written, reasoning, prompt + completion),
            cache_write_1h_tokens=long_lived,
            cost=None if unpriced and unpriced == calls else self.cost,
        )


def spend(
    database: Database,
    by: Sequence[Dimension] = (),
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    keys: Sequence[str] | None = None,
    table: PriceTable | None = None,
) -> list[SpendRow]:
    """What calls from `since` to before `until` cost, one row per combination of `by`, sorted by it; without `by`, one row.

    `keys` restricts it to client keys. A time without a zone is UTC.
    """
    table = table or PriceTable()
    first_at = 0 if since is None else microseconds_of(since)
    end_at = LATEST_DAY * DAY_MICROSECONDS if until is None else microseconds_of(until)
    query = SpendQuery(database, tuple(by), keys, table)
    first_day, end_day = -(-first_at // DAY_MICROSECONDS), end_at // DAY_MICROSECONDS
    if first_day > end_day:  # within one day
        query.add_rows(first_at, end_at)
    else:
        query.add_rows(first_at, first_day * DAY_MICROSECONDS)
        query.add_days(first_day, end_day)
        query.add_rows(end_day * DAY_MICROSECONDS, end_at)
    return query.result()


def spent_by_key(database: Database, key: str, since: datetime, table: PriceTable | None = None) -> SpendRow:
    """What a client key has spent since a time."""
    rows = spend(database, keys=(key,), since=since, table=table)
    return rows[0] if rows else SpendRow(cost=Decimal(0))


class SpendQuery:
    """One query, in parts: sums of whole days, and rows of parts of days."""

    def __init__(
        self, database: Database, by: tuple[Dimension, ...], keys: Sequence[str] | None, table: PriceTable
    ) -> None:
        self._database = database
        self._by = by
        self._table = table
        self._needs_keys = "key" in by or keys is not None
        self._key_ids: list[int] | None = None if keys is None else self._ids_of(keys)
        self._buckets = [
            _Bucket(number, provider, model, variant, PriceClass(*price_class), metering)
            for number, provider, model, variant, *price_class, metering in database.rows(
                "SELECT id, provider, model, variant, prompt_above, prompt_to, half_hour, metering FROM buckets"
            )
        ]
        self._groups: dict[tuple[str | None, str | None], int] = {}
        self._sums: dict[_Group, _Sums] = {}
        divided = [bucket for bucket in self._buckets if not self._has_one_price(bucket)]
        self._divided = {bucket.id: bucket for bucket in divided}

    def add_days(self, first: int, end: int) -> None:
        """Whole days, from `first` to before `end`."""
        # One after the other: for both at once SQLite reads the whole table.
        ((earliest,),) = self._database.rows("SELECT min(day) FROM daily")
        ((latest,),) = self._database.rows("SELECT max(day) FROM daily")
        if earliest is None:
            return
        first, end = max(first, earliest), min(end, latest + 1)
        days = list(range(first, end))
        if not days:
            return
        condition = [self._database.one_of("d.day", "days")]
        if not self._needs_keys:
            condition.append(f"d.key_id = {ALL_KEYS}")
        elif self._key_ids is None:
            days_text = f"d.day = {first}" if end == first + 1 else f"d.day BETWEEN {first} AND {end - 1}"
            condition = [days_text, f"d.key_id > {ALL_KEYS}"]
        else:
            condition.append(self._database.one_of("d.key_id", "keys"))
        self._add(_DAILY, condition, first, end, days=days)

    def add_rows(self, first_at: int, end_at: int) -> None:
        """Single rows of a time."""
        if first_at >= end_at:
            return
        condition = [] if self._key_ids is None else [self._database.one_of("d.key_id", "keys")]
        first, end = first_at // DAY_MICROSECONDS, -(-end_at // DAY_MICROSECONDS)
        self._add(_ROWS, condition, first, end, first_at=first_at, end_at=end_at)

    def add_result(self, other: SpendQuery) -> None:
        """What another query with the same dimensions found."""
        for group, sums in other._sums.items():
            self._add_sums(group, sums)

    def result(self) -> list[SpendRow]:
        """A row for each group."""
        rows = [sums.row(*group) for group, sums in self._sums.items()]
        return sorted(rows, key=attrgetter(*self._by)) if self._by else rows

    def _add(self, source: str, condition: Sequence[str], first: int, end: int, **values: Any) -> None:
        if self._key_ids is not None:
            values["keys"] = self._key_ids
            if not self._key_ids:
                return
        priced = [bucket for bucket in self._buckets if bucket.id not in self._divided]
        for start in range(0, len(priced), _BUCKETS_AT_ONCE):
            self._add_buckets(priced[start : start + _BUCKETS_AT_ONCE], source, condition, first, end, values)
        if self._divided:
            self._add_divided(first, end, values)

    def _add_buckets(
        self,
        buckets: Sequence[_Bucket],
        source: str,
        condition: Sequence[str],
        first: int,
        end: int,
        values: Mapping[str, Any],
    ) -> None:
        prices = PriceExpressions([period for bucket in buckets for period in self._periods(bucket, first, end)])
        columns = {
            "key_id": "d.key_id" if "key" in self._by else None,
            "grp": prices.group if "model" in self._by or "provider" in self._by else None,
            "day": "d.day" if "day" in self._by else None,
        }
        # Only what differs: sums of one day are stored in the order of their keys, and need no sorting then.
        grouped = [str(place) for place, column in enumerate(columns.values(), start=1) if column is not None]
        # CROSS: else SQLite stores all sums before it finds the first name.
        join = "CROSS JOIN names n WHERE n.id = s.key_id"
        named, names = ("n.name", join) if "key" in self._by else ("NULL", "")
        statement = f"""
SELECT {named}, s.* FROM (
    SELECT {", ".join(f"{column or 'NULL'} AS {name}" for name, column in columns.items())},
        {", ".join("0" if number == "0" else f"CAST(sum({number}) AS bigint)" for number in prices.numbers)}
    FROM {source} d WHERE {" AND ".join((prices.condition, *condition))}
    {f"GROUP BY {', '.join(grouped)}" if grouped else "HAVING count(*) > 0"}
) s {names}
"""
        unit, groups = prices.unit, [*self._groups]
        for key, _, number, day, *found, high, low in self._database.rows(statement, replan=True, **values):
            sums = _Sums(found, (high * MILLION + low) * unit if high else low * unit)
            self._add_sums((key, *groups[number or 0], day), sums)

    def _add_sums(self, group: _Group, sums: _Sums) -> None:
        known = self._sums.get(group)
        self._sums[group] = sums if known is None else known + sums

    def _periods(self, bucket: _Bucket, first: int, end: int) -> Iterator[PricePeriod]:
        """The prices of a bucket in the days from `first` to before `end`."""
        known = self._table.find(bucket.model, bucket.provider)
        changes = (
            {day_of(price.since) for price in known.prices if price.since is not None} if known is not None else set()
        )
        for start in sorted({first, *(day for day in changes if first < day < end)}):
            rates = price_rates(bucket.provider, bucket.model, bucket.variant, bucket.price_class, start, self._table)
            yield PricePeriod(bucket.id, start, self._group(bucket), bucket.metering, rates)

    def _add_divided(self, first: int, end: int, values: Mapping[str, Any]) -> None:
        """Buckets whose rows have different prices by now: row by row."""
        limits = {"first_at": first * DAY_MICROSECONDS, "end_at": end * DAY_MICROSECONDS, **values}
        statement = f"""
SELECT d.at, n.name, d.bucket_id, CASE WHEN d.outcome_id = (SELECT id FROM names WHERE name = 'ok') THEN 0 ELSE 1 END,
    {", ".join(f"d.{column}" for column in TOKEN_COLUMNS)} FROM usage d
JOIN names n ON n.id = d.key_id WHERE d.at >= :first_at AND d.at < :end_at AND {self._database.one_of("d.bucket_id", "divided")}
{"" if self._key_ids is None else f"AND {self._database.one_of('d.key_id', 'keys')}"}
"""
        limits.pop("days", None)
        for at, key, bucket_id, failed, *tokens in self._database.rows(
            statement, divided=list(self._divided), **limits
        ):
            bucket = self._divided[bucket_id]
            prompt, completion, cached, written, long_lived, reasoning = tokens
            raw = {"cache_creation": {"ephemeral_1h_input_tokens": long_lived}}
            found = (
                None
                if bucket.metering == "unknown"
                else cost_of(
                    TokenUsage(prompt, completion, cached, written, reasoning, raw=raw),
                    bucket.model,
                    bucket.provider,
                    at=datetime.fromtimestamp(at / 1_000_000, UTC),
                    variant=decode_variant(bucket.variant),
                    table=self._table,
                )
            )
            day = at // DAY_MICROSECONDS if "day" in self._by else None
            group = (key if "key" in self._by else None, *self._names(bucket), day)
            numbers = [1, failed, int(bucket.metering == "estimated"), int(found is None), *tokens]
            self._add_sums(group, _Sums(numbers, Decimal(0) if found is None else found.total))

    def _has_one_price(self, bucket: _Bucket) -> bool:
        known = self._table.find(bucket.model, bucket.provider)
        return known is None or bucket.price_class.has_one_price(known)

    def _names(self, bucket: _Bucket) -> tuple[str | None, str | None]:
        return (bucket.model if "model" in self._by else None, bucket.provider if "provider" in self._by else None)

    def _group(self, bucket: _Bucket) -> int:
        return self._groups.setdefault(self._names(bucket), len(self._groups))

    def _ids_of(self, keys: Sequence[str]) -> list[int]:
        found = self._database.rows(
            f"SELECT id FROM names WHERE {self._database.one_of('name', 'names')}", names=list(keys)
        )
        return [number for (number,) in found]
