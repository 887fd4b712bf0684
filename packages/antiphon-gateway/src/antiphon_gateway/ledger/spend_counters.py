"""`SpendCounters`: tokens and money of written rows, for the metrics.

The thread of the ledger adds rows after they are committed, and the event loop takes the sums for a scrape. Prices are those of
the moment, as floats: the counters are for graphs and alarms, and the exact amounts are in the ledger.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import TypeAlias

from antiphon.prices.table import PriceTable
from antiphon_gateway.ledger.price_expressions import price_rates
from antiphon_gateway.ledger.row import DAY_MICROSECONDS, UNBOUNDED, PriceClass, UsageRow

_MILLION = 1_000_000
_MAX_CACHED_MODELS = 5_000

_EVERY_CALL = PriceClass(0, UNBOUNDED, -1)


class Spent:
    """What was added for one provider, model and key. `model` is the one that clients asked for."""

    __slots__ = ("calls", "completion_tokens", "dollars", "prompt_tokens", "unpriced_calls")

    def __init__(self) -> None:
        self.calls = self.unpriced_calls = self.prompt_tokens = self.completion_tokens = 0
        self.dollars = 0.0


Label: TypeAlias = tuple[str, str, str]
"""Provider, requested model, client key."""


class SpendCounters:
    """Sums since they were taken last. `prices` gives the current price table."""

    def __init__(self, prices: Callable[[], PriceTable]) -> None:
        self._prices = prices
        self._lock = threading.Lock()
        self._spent: dict[Label, Spent] = {}
        self._prices_of: dict[tuple[object, ...], _ModelRates] = {}
        self._table: PriceTable | None = None

    def add(self, rows: Sequence[UsageRow]) -> None:
        """Add rows that were written. Rows that cost nothing are left out."""
        table = self._prices()
        if table is not self._table or len(self._prices_of) > _MAX_CACHED_MODELS:
            self._prices_of.clear()
            self._table = table
        with self._lock:
            for row in rows:
                if row.metering != "free":
                    self._add(row, table)

    def take(self) -> dict[Label, Spent]:
        """The sums since the last time."""
        with self._lock:
            spent, self._spent = self._spent, {}
        return spent

    def _add(self, row: UsageRow, table: PriceTable) -> None:
        label = row.provider, row.model_asked, row.key
        spent = self._spent.get(label)
        if spent is None:
            spent = self._spent[label] = Spent()
        spent.calls += 1
        spent.prompt_tokens += row.prompt_tokens
        spent.completion_tokens += row.completion_tokens
        model: tuple[object, ...] = row.provider, row.model_served, row.variant, row.at // DAY_MICROSECONDS
        known = self._prices_of.get(model)
        if known is None:
            known = self._prices_of[model] = _ModelRates(row, table)
        rates = known.rates or known.of(row, table)
        if row.metering == "unknown" or rates.prompt is None or (rates.completion is None and row.completion_tokens):
            spent.unpriced_calls += 1
            return
        spent.dollars += row.prompt_tokens * rates.prompt
        if rates.completion is not None:
            spent.dollars += row.completion_tokens * rates.completion + row.reasoning_tokens * rates.reasoning
        if row.cached_tokens or row.cache_write_tokens:
            spent.dollars += row.cached_tokens * rates.cached + row.cache_write_tokens * rates.written
            spent.dollars += row.cache_write_1h_tokens * rates.long_lived


class _Rates:
    """Dollars per token. As the columns are inclusive, those of cached, written and reasoning tokens are differences."""

    __slots__ = ("cached", "completion", "long_lived", "prompt", "reasoning", "written")

    def __init__(self, per_million: Mapping[str, Decimal]) -> None:
        rates = {column: float(rate) / _MILLION for column, rate in per_million.items()}
        self.prompt = rates.get("prompt_tokens")
        self.completion = rates.get("completion_tokens")
        self.cached = rates.get("cached_tokens", 0.0)
        self.written = rates.get("cache_write_tokens", 0.0)
        self.long_lived = rates.get("cache_write_1h_tokens", 0.0)
        self.reasoning = rates.get("reasoning_tokens", 0.0)


class _ModelRates:
    """The rates of a model on a day: one for all calls, or one for each price class."""

    def __init__(self, row: UsageRow, table: PriceTable) -> None:
        prices = table.find(row.model_served, row.provider)
        is_flat = prices is None or _EVERY_CALL.has_one_price(prices)
        self._by_class: dict[tuple[int, int, int], _Rates] = {}
        self.rates = self._find(row, _EVERY_CALL, table) if is_flat else None

    def of(self, row: UsageRow, table: PriceTable) -> _Rates:
        """The rates of a call."""
        price_class = PriceClass.of(row, table)
        rates = self._by_class.get(price_class.key)
        if rates is None:
            rates = self._by_class[price_class.key] = self._find(row, price_class, table)
        return rates

    @staticmethod
    def _find(row: UsageRow, price_class: PriceClass, table: PriceTable) -> _Rates:
        return _Rates(price_rates(row.provider, row.model_served, row.variant, price_class, row.day, table))
