"""What was spent, by key, model, provider and day: token sums of the ledger times the prices of now.

Sums per day are kept per bucket: calls whose tokens have the same prices. The price of a bucket is linear in its six token
sums, so the database multiplies and adds: a query reads sums, not rows. Rows are read for parts of a day, and for buckets that a
newer price table splits. Prices are integers in the statement, so the result is exact. What has no known price is counted, and
never 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from operator import attrgetter
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from antiphon.gateway.ledger.row import DAY_MICROSECONDS, PriceClass, decode_variant
from antiphon.gateway.ledger.writer import ALL_KEYS, TOKEN_COLUMNS
from antiphon.history import TokenUsage
from antiphon.history.sql.database import Database
from antiphon.prices.cost import cost_of
from antiphon.prices.table import PriceTable

Dimension: TypeAlias = Literal["key", "model", "provider", "day"]
DIMENSIONS: tuple[Dimension, ...] = ("key", "model", "provider", "day")

_MILLION = 1_000_000
_EPOCH = date(1970, 1, 1)
_LATEST_DAY = 2_932_896  # 9999-12-31
_BUCKETS_AT_ONCE = 400

_RATE_COLUMNS = [f"{part}_{column}" for part in ("high", "low") for column in TOKEN_COLUMNS]
_PRICE_COLUMNS = (
    "bucket_id",
    "grp",
    "first_day",
    "last_day",
    "is_estimated",
    "is_unknown",
    "no_input",
    "no_output",
    *_RATE_COLUMNS,
)
_IS_UNPRICED = (
    "(p.is_unknown = 1 OR p.no_input = 1 AND d.prompt_tokens > 0 OR p.no_output = 1 AND d.completion_tokens > 0)"
)
_DAILY = "daily"
_ROWS = f"""(SELECT CAST(at / {DAY_MICROSECONDS} AS integer) AS day, key_id, bucket_id, 1 AS calls,
    CASE WHEN outcome_id = (SELECT id FROM names WHERE name = 'ok') THEN 0 ELSE 1 END AS failed_calls, {", ".join(TOKEN_COLUMNS)}
    FROM usage WHERE at >= :first_at AND at < :end_at)"""


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


class _Sums(Struct, gc=False):
    """What is added up for one group: the numbers in the order of the statement, and the cost."""

    numbers: list[int]
    cost: Decimal

    def add(self, numbers: list[int], cost: Decimal) -> None:
        self.numbers = [known + more for known, more in zip(self.numbers, numbers, strict=True)]
        self.cost += cost

    def row(self, key: str | None, model: str | None, provider: str | None, day: date | None) -> SpendRow:
        calls, failed, estimated, unpriced, prompt, completion, cached, written, long_lived, reasoning = self.numbers
        return SpendRow(
            key=key,
            model=model,
            provider=provider,
            day=day,
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
    first_at = 0 if since is None else _microseconds(since)
    end_at = _LATEST_DAY * DAY_MICROSECONDS if until is None else _microseconds(until)
    query = _Query(database, tuple(by), keys, table)
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


class _Query:
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
        self._sums: dict[tuple[Any, ...], _Sums] = {}
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
            condition = [days_text, f"d.key_id <> {ALL_KEYS}"]
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

    def result(self) -> list[SpendRow]:
        """A row for each group."""
        by_number = {number: group for group, number in self._groups.items()}
        has_days = "day" in self._by
        rows = [
            sums.row(key, *by_number[number], _EPOCH + timedelta(days=day) if has_days else None)
            for (key, number, day), sums in self._sums.items()
        ]
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
        periods = [period for bucket in buckets for period in self._periods(bucket, first, end)]
        if not periods:
            return
        places = max((_decimal_places(rate) for _, rates in periods for rate in rates.values()), default=0)
        prices = [[*facts, *_scaled(rates, places)] for facts, rates in periods]
        used = {column for column, *values in zip(_PRICE_COLUMNS, *prices, strict=True) if any(values)}
        values_text = ", ".join(f"({', '.join(map(str, price))})" for price in prices)
        has_groups = "model" in self._by or "provider" in self._by
        columns = {"d.key_id": "key" in self._by, "p.grp": has_groups, "d.day": "day" in self._by}
        groups = [f"{column if is_used else 0} AS {column[2:]}" for column, is_used in columns.items()]
        # Only what differs: sums of one day are stored in the order of their keys, and need no sorting then.
        grouped = ", ".join(column for column, is_used in columns.items() if is_used)
        numbers = _number_expressions(used)
        named, names = ("n.name", "JOIN names n ON n.id = s.key_id") if "key" in self._by else ("NULL", "")
        statement = f"""
WITH price ({", ".join(_PRICE_COLUMNS)}) AS (VALUES {values_text})
SELECT {named}, s.* FROM (
    SELECT {", ".join(groups)}, {", ".join(f"CAST(sum({number}) AS bigint)" for number in numbers)}
    FROM {source} d CROSS JOIN price p
    WHERE p.bucket_id = d.bucket_id AND d.day BETWEEN p.first_day AND p.last_day{"".join(f" AND {one}" for one in condition)}
    {f"GROUP BY {grouped}" if grouped else "HAVING count(*) > 0"}
) s {names}
"""
        unit = Decimal(1).scaleb(-places - 6)
        sums = self._sums
        for key, _, number, day, *found, high_sum, low_sum in self._database.rows(statement, replan=True, **values):
            group, cost = (key, number, day), (high_sum * _MILLION + low_sum) * unit
            if group in sums:
                sums[group].add(found, cost)
            else:
                sums[group] = _Sums(found, cost)

    def _periods(self, bucket: _Bucket, first: int, end: int) -> Iterator[tuple[list[int], dict[str, Decimal]]]:
        """The prices of a bucket from day to day: facts of the price row, and dollars per million by token column."""
        known = self._table.find(bucket.model, bucket.provider)
        changes = (
            {(price.since - _EPOCH).days for price in known.prices if price.since is not None}
            if known is not None
            else set()
        )
        starts = sorted({first, *(day for day in changes if first < day < end)})
        for start, stop in zip(starts, [*starts[1:], end], strict=True):
            rates = price_rates(bucket.provider, bucket.model, bucket.variant, bucket.price_class, start, self._table)
            flags = [
                bucket.metering == "estimated",
                bucket.metering == "unknown",
                "prompt_tokens" not in rates,
                "completion_tokens" not in rates,
            ]
            yield [bucket.id, self._group(bucket), start, stop - 1, *map(int, flags)], rates

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
            group = (
                key if "key" in self._by else None,
                self._group(bucket),
                at // DAY_MICROSECONDS if "day" in self._by else 0,
            )
            numbers = [1, failed, int(bucket.metering == "estimated"), int(found is None), *tokens]
            sums = self._sums.setdefault(group, _Sums([0] * len(numbers), Decimal(0)))
            sums.add(numbers, Decimal(0) if found is None else found.total)

    def _has_one_price(self, bucket: _Bucket) -> bool:
        known = self._table.find(bucket.model, bucket.provider)
        return known is None or bucket.price_class.has_one_price(known)

    def _group(self, bucket: _Bucket) -> int:
        group = (bucket.model if "model" in self._by else None, bucket.provider if "provider" in self._by else None)
        return self._groups.setdefault(group, len(self._groups))

    def _ids_of(self, keys: Sequence[str]) -> list[int]:
        found = self._database.rows(
            f"SELECT id FROM names WHERE {self._database.one_of('name', 'names')}", names=list(keys)
        )
        return [number for (number,) in found]


def price_rates(
    provider: str, model: str, variant: str, price_class: PriceClass, day: int, table: PriceTable
) -> dict[str, Decimal]:
    """What a million more tokens in each column cost on a day; a column without a known price is missing.

    Columns are inclusive: a cached token is also one of the prompt, so its rate is the difference.
    """

    def cost(**tokens: Any) -> Decimal | None:
        found = cost_of(
            TokenUsage(**tokens),
            model,
            provider,
            at=price_class.time(day),
            variant=decode_variant(variant),
            table=table,
            prompt_size=price_class.above + 1,
        )
        return None if found is None else found.total

    rates: dict[str, Decimal] = {}
    prompt, completion = cost(prompt_tokens=_MILLION), cost(completion_tokens=_MILLION)
    if prompt is not None:
        written = cost(prompt_tokens=_MILLION, cache_write_tokens=_MILLION) or prompt
        raw = {"cache_creation": {"ephemeral_1h_input_tokens": _MILLION}}
        rates["prompt_tokens"] = prompt
        rates["cached_tokens"] = _or(cost(prompt_tokens=_MILLION, cached_tokens=_MILLION), prompt) - prompt
        rates["cache_write_tokens"] = written - prompt
        long_lived = _or(cost(prompt_tokens=_MILLION, cache_write_tokens=_MILLION, raw=raw), written)
        rates["cache_write_1h_tokens"] = long_lived - written
    if completion is not None:
        rates["completion_tokens"] = completion
        reasoning = _or(cost(completion_tokens=_MILLION, reasoning_tokens=_MILLION), completion)
        rates["reasoning_tokens"] = reasoning - completion
    return rates


def _number_expressions(used: set[str]) -> list[str]:
    """What is added up, from a row `d` of sums and its price `p`; columns of prices that are 0 throughout are left out."""
    costs = [
        " + ".join(f"d.{column} * p.{part}_{column}" for column in TOKEN_COLUMNS if f"{part}_{column}" in used) or "0"
        for part in ("high", "low")
    ]
    unpriced = "0"
    if used & {"is_unknown", "no_input", "no_output"}:
        unpriced = f"CASE WHEN {_IS_UNPRICED} THEN d.calls ELSE 0 END"
        costs = [cost if cost == "0" else f"CASE WHEN {_IS_UNPRICED} THEN 0 ELSE {cost} END" for cost in costs]
    estimated = "d.calls * p.is_estimated" if "is_estimated" in used else "0"
    return ["d.calls", "d.failed_calls", estimated, unpriced, *(f"d.{column}" for column in TOKEN_COLUMNS), *costs]


def _or(amount: Decimal | None, otherwise: Decimal) -> Decimal:
    return otherwise if amount is None else amount


def _decimal_places(rate: Decimal) -> int:
    exponent = rate.normalize().as_tuple().exponent
    return max(0, -exponent) if isinstance(exponent, int) else 0


def _scaled(rates: Mapping[str, Decimal], places: int) -> list[int]:
    """The rates as integers, each in two parts: products with the sums of years stay within 64 bits."""
    whole = [int(rates.get(column, Decimal(0)).scaleb(places)) for column in TOKEN_COLUMNS]
    return [rate // _MILLION for rate in whole] + [rate % _MILLION for rate in whole]


def _microseconds(at: datetime) -> int:
    moment = at.replace(tzinfo=UTC) if at.tzinfo is None else at
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
