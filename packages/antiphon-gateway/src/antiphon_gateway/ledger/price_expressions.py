"""Prices as expressions of a statement: the database multiplies token sums with the rates of their bucket and adds them up.

A row finds the rates of its bucket by halving: `CASE WHEN d.bucket_id < 40 THEN … ELSE … END`, so a thousand buckets cost a row
ten comparisons. Rates are integers, so the result is exact. A rate has two parts, millions and the rest, which are added up
apart: products with the sums of years stay within 64 bits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from itertools import groupby
from operator import itemgetter
from typing import Any

from msgspec import Struct

from antiphon.parts import TokenUsage
from antiphon.prices.cost import cost_of
from antiphon.prices.table import PriceTable
from antiphon_gateway.ledger.row import PriceClass, decode_variant
from antiphon_gateway.ledger.writer import TOKEN_COLUMNS

MILLION = 1_000_000


class PricePeriod(Struct, frozen=True, gc=False):
    """The prices of a bucket from a day on; `rates` are dollars per million by token column (`price_rates`)."""

    bucket_id: int
    first_day: int
    group: int
    metering: str
    rates: Mapping[str, Decimal]


class PriceExpressions:
    """The expressions of a statement over rows `d` of sums, for buckets whose periods are given in the order of their days."""

    def __init__(self, periods: Sequence[PricePeriod]) -> None:
        self._periods = [[*days] for _, days in groupby(sorted(periods, key=_by_bucket_and_day), lambda p: p.bucket_id)]
        self._places = max((_decimal_places(rate) for period in periods for rate in period.rates.values()), default=0)
        self.unit = Decimal(1).scaleb(-self._places - 6)
        """What 1 of the last cost expression is in dollars; of the one before it is a million times as much."""

    @property
    def condition(self) -> str:
        """That the bucket of a row is one of these: a bucket may be added after the prices were found."""
        numbers = [days[0].bucket_id for days in self._periods]
        runs = [[*run] for _, run in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0])]
        ranges = [f"d.bucket_id BETWEEN {run[0][1]} AND {run[-1][1]}" for run in runs]
        return f"({' OR '.join(ranges)})"

    @property
    def group(self) -> str:
        """The number of the group that a row belongs to."""
        return self._choose(lambda period: str(period.group))

    @property
    def numbers(self) -> list[str]:
        """What is added up: calls, failed, estimated and unpriced calls, the token columns, and the two parts of the cost."""
        return [
            "d.calls",
            "d.failed_calls",
            self._choose(lambda period: "d.calls" if period.metering == "estimated" else "0"),
            self._choose(lambda period: _where_unpriced(period, "d.calls", "0")),
            *(f"d.{column}" for column in TOKEN_COLUMNS),
            self._choose(lambda period: self._cost(period, lambda rate: abs(rate) // MILLION)),
            self._choose(lambda period: self._cost(period, lambda rate: abs(rate) % MILLION)),
        ]

    def _cost(self, period: PricePeriod, part: Callable[[int], int]) -> str:
        scaled = {column: int(rate.scaleb(self._places)) for column, rate in period.rates.items()}
        factors = {column: part(rate) if rate >= 0 else -part(rate) for column, rate in scaled.items()}
        products = [f"d.{column} * {factor}" for column, factor in factors.items() if factor]
        return _where_unpriced(period, "0", " + ".join(products) or "0")

    def _choose(self, expression: Callable[[PricePeriod], str]) -> str:
        by_bucket = [(days[0].bucket_id, _by_day(days, expression)) for days in self._periods]
        return _halve([next(run) for _, run in groupby(by_bucket, itemgetter(1))])


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
    prompt, completion = cost(prompt_tokens=MILLION), cost(completion_tokens=MILLION)
    if prompt is not None:
        written = _or(cost(prompt_tokens=MILLION, cache_write_tokens=MILLION), prompt)
        raw = {"cache_creation": {"ephemeral_1h_input_tokens": MILLION}}
        rates["prompt_tokens"] = prompt
        rates["cached_tokens"] = _or(cost(prompt_tokens=MILLION, cached_tokens=MILLION), prompt) - prompt
        rates["cache_write_tokens"] = written - prompt
        long_lived = _or(cost(prompt_tokens=MILLION, cache_write_tokens=MILLION, raw=raw), written)
        rates["cache_write_1h_tokens"] = long_lived - written
    if completion is not None:
        rates["completion_tokens"] = completion
        reasoning = _or(cost(completion_tokens=MILLION, reasoning_tokens=MILLION), completion)
        rates["reasoning_tokens"] = reasoning - completion
    return rates


def _where_unpriced(period: PricePeriod, unpriced: str, priced: str) -> str:
    """One expression where the price of a row is not known, and another where it is."""
    if period.metering == "unknown":
        return unpriced
    needed = {"prompt_tokens", "completion_tokens"} - period.rates.keys()
    if not needed:
        return priced
    return f"CASE WHEN {' OR '.join(f'd.{column} > 0' for column in sorted(needed))} THEN {unpriced} ELSE {priced} END"


def _by_day(periods: Sequence[PricePeriod], expression: Callable[[PricePeriod], str]) -> str:
    found = [(period.first_day, expression(period)) for period in periods]
    text = found[-1][1]
    for (start, _), (_, earlier) in zip(found[:0:-1], found[-2::-1], strict=True):
        text = text if text == earlier else f"CASE WHEN d.day < {start} THEN {earlier} ELSE {text} END"
    return text


def _halve(values: Sequence[tuple[int, str]]) -> str:
    """The value of the last bucket that is not above the row's, from values in the order of their buckets."""
    if len(values) == 1:
        return values[0][1]
    middle = len(values) // 2
    return (
        f"CASE WHEN d.bucket_id < {values[middle][0]} THEN {_halve(values[:middle])} ELSE {_halve(values[middle:])} END"
    )


def _by_bucket_and_day(period: PricePeriod) -> tuple[int, int]:
    return period.bucket_id, period.first_day


def _or(amount: Decimal | None, otherwise: Decimal) -> Decimal:
    return otherwise if amount is None else amount


def _decimal_places(rate: Decimal) -> int:
    exponent = rate.normalize().as_tuple().exponent
    return max(0, -exponent) if isinstance(exponent, int) else 0
