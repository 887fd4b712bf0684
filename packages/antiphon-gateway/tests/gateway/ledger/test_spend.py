"""Spend equals the sum of the costs of single rows, on SQLite and on PostgreSQL, also after a price was corrected."""

from __future__ import annotations

import itertools
import random
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from antiphon.history.sql.database import Database
from antiphon.parts import TokenUsage
from antiphon.prices import PriceOverride, PriceTable, cost_of
from antiphon.prices.table import KINDS, Tiers, price_data
from antiphon_gateway.ledger import row as row_module
from antiphon_gateway.ledger.database import open_operator_database
from antiphon_gateway.ledger.price_expressions import MILLION, price_rates
from antiphon_gateway.ledger.row import (
    TIER_BOUNDS,
    UNBOUNDED,
    PriceClass,
    UsageRow,
    decode_variant,
    encode_variant,
    token_counts,
)
from antiphon_gateway.ledger.spend import DIMENSIONS, Dimension, SpendRow, spend, spent_by_key
from antiphon_gateway.ledger.writer import TOKEN_COLUMNS, LedgerWriter

START = datetime(2026, 3, 1, 22, 15, tzinfo=UTC)
MODELS = [
    ("openai", "gpt-4o", ""),
    ("openai", "gpt-5", encode_variant({"service_tier": "flex"})),
    ("anthropic", "claude-sonnet-4-5", ""),
    ("gemini", "gemini-2.5-pro", ""),
    ("deepseek", "deepseek-chat", ""),
    ("openai", "text-embedding-3-small", ""),
    ("acme", "no-price-known", ""),
]


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    sqlite = request.param == "sqlite"
    opened = open_operator_database(str(tmp_path / "ledger.db") if sqlite else request.getfixturevalue("postgres"))
    yield opened
    opened.close()


def counts_of(usage: TokenUsage) -> dict[str, Any]:
    return dict(zip(TOKEN_COLUMNS, token_counts(usage), strict=True))


def random_rows(count: int, seed: int = 1) -> list[UsageRow]:
    chance = random.Random(seed)
    rows = []
    for number in range(count):
        provider, model, variant = chance.choice(MODELS)
        prompt = chance.choice([10, 900, 31_999, 150_000, 200_001, 300_000])
        completion = 0 if "embedding" in model else chance.randrange(1, 4000)
        written = chance.choice([0, prompt // 4])
        usage = TokenUsage(
            prompt_tokens=prompt,
            completion_tokens=completion,
            cached_tokens=chance.choice([0, prompt // 2]),
            cache_write_tokens=written,
            reasoning_tokens=chance.choice([0, completion // 2]),
            raw={"cache_creation": {"ephemeral_1h_input_tokens": chance.choice([0, written // 2])}},
        )
        at = START + timedelta(minutes=chance.randrange(0, 4 * 24 * 60))
        rows.append(
            UsageRow(
                request_id=f"r{number}",
                attempt=1,
                at=int(at.timestamp() * 1_000_000),
                key=chance.choice(["alice", "bob", ""]),
                provider=provider,
                model_asked="fast",
                model_served=model,
                status=200,
                outcome=chance.choice(["ok", "ok", "stream_cut"]),
                metering=chance.choice(["reported", "estimated"]),
                variant=variant,
                **counts_of(usage),
            )
        )
    return rows


def write(database: Database, rows: list[UsageRow], table: PriceTable | None = None) -> None:
    writer = LedgerWriter(database, lambda: table or PriceTable())
    for start in range(0, len(rows), 70):
        writer.write("test", start + 1, rows[start : start + 70])


def expected(
    rows: list[UsageRow], by: tuple[str, ...], table: PriceTable
) -> dict[tuple[object, ...], tuple[object, ...]]:
    """What `spend` should return, made from single costs."""
    groups: dict[tuple[object, ...], list[UsageRow]] = defaultdict(list)
    for row in rows:
        at = datetime.fromtimestamp(row.at / 1_000_000, UTC)
        facts = {"key": row.key, "model": row.model_served, "provider": row.provider, "day": at.date()}
        groups[tuple(facts[name] for name in by)].append(row)
    found: dict[tuple[object, ...], tuple[object, ...]] = {}
    for group, members in groups.items():
        costs = [
            cost_of(
                row.usage,
                row.model_served,
                row.provider,
                at=datetime.fromtimestamp(row.at / 1_000_000, UTC),
                variant=decode_variant(row.variant),
                table=table,
            )
            for row in members
        ]
        known = [cost.total for cost in costs if cost is not None]
        found[group] = (
            len(members),
            sum(row.outcome != "ok" for row in members),
            sum(row.metering == "estimated" for row in members),
            len(costs) - len(known),
            sum(row.prompt_tokens for row in members),
            sum(row.cache_write_1h_tokens for row in members),
            sum(known, Decimal(0)) if known else None,
        )
    return found


def actual(rows: list[SpendRow], by: tuple[str, ...]) -> dict[tuple[object, ...], tuple[object, ...]]:
    return {
        tuple(getattr(row, name) for name in by): (
            row.calls,
            row.failed_calls,
            row.estimated_calls,
            row.unpriced_calls,
            row.usage.prompt_tokens,
            row.cache_write_1h_tokens,
            row.cost,
        )
        for row in rows
    }


@pytest.mark.parametrize("by", [(), *(part for size in (1, 2) for part in itertools.combinations(DIMENSIONS, size))])
def test_spend_equals_the_sum_of_single_costs(database: Database, by: tuple[Dimension, ...]) -> None:
    rows = random_rows(400)
    write(database, rows)
    assert actual(spend(database, by), by) == expected(rows, by, PriceTable())


@given(
    st.fixed_dictionaries({kind: st.none() | st.sampled_from([0.0, 0.5, 3.0]) for kind in KINDS}),
    st.lists(st.integers(0, 1000), min_size=6, max_size=6),
)
@example({"input": 0.5, "output": 1.0, "cache_write": 0.0}, [0, 0, 1, 0, 0, 0])
def test_rates_of_columns_give_the_cost_of_a_call(amounts: dict[str, Any], tokens: list[int]) -> None:
    table = PriceTable([PriceOverride(model="m", **amounts)])
    plain, cached, written, answer, reasoning, long_lived = tokens
    usage = TokenUsage(
        prompt_tokens=plain + cached + written,
        cached_tokens=cached,
        cache_write_tokens=written,
        completion_tokens=answer + reasoning,
        reasoning_tokens=reasoning,
        raw={"cache_creation": {"ephemeral_1h_input_tokens": min(long_lived, written)}},
    )
    columns = counts_of(usage)
    rates = price_rates("", "m", "", PriceClass(0, UNBOUNDED, -1), 20_000, table)
    cost = cost_of(usage, "m", table=table)
    if any(columns[name] and name not in rates for name in ("prompt_tokens", "completion_tokens")):
        return  # counted as unpriced
    assert cost is not None
    assert sum(rates.get(name, 0) * count for name, count in columns.items()) / MILLION == cost.total


def test_parts_of_days_are_counted_by_their_rows(database: Database) -> None:
    rows = random_rows(400)
    write(database, rows)
    for since, until in [
        (START + timedelta(hours=9), START + timedelta(hours=60)),
        (START + timedelta(hours=3), START + timedelta(hours=5)),
        (datetime(2026, 3, 2), None),
        (None, START + timedelta(hours=30)),
    ]:
        first = 0.0 if since is None else since.replace(tzinfo=UTC).timestamp()
        end = 1e12 if until is None else until.timestamp()
        inside = [row for row in rows if first <= row.at / 1_000_000 < end]
        assert inside
        by: tuple[Dimension, ...] = ("key", "day")
        assert actual(spend(database, by, since=since, until=until), by) == expected(inside, by, PriceTable())


def test_corrected_price_corrects_the_past(database: Database) -> None:
    rows = random_rows(300)
    write(database, rows)
    corrected = PriceTable(
        [PriceOverride(model="gpt-4o", input=3.333, output=0.0000071), PriceOverride(model="no-price*", input=1)]
    )
    before = {row.model: row for row in spend(database, ("model",))}
    after = {row.model: row for row in spend(database, ("model",), table=corrected)}
    assert actual(spend(database, ("model",), table=corrected), ("model",)) == expected(rows, ("model",), corrected)
    assert before["gpt-4o"].cost != after["gpt-4o"].cost
    assert before["no-price-known"].cost is None
    assert before["no-price-known"].unpriced_calls == before["no-price-known"].calls


def test_sums_from_before_a_new_price_tier_are_computed_from_rows(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = random_rows(300)
    monkeypatch.setattr(
        row_module, "TIER_BOUNDS", (32_000,)
    )  # as if the table had no other bounds when they were written
    write(database, rows)
    by: tuple[Dimension, ...] = ("key", "model")
    assert actual(spend(database, by), by) == expected(rows, by, PriceTable())


def test_spent_by_key_since_a_time(database: Database) -> None:
    rows = random_rows(300)
    write(database, rows)
    since = START + timedelta(hours=31)
    of_alice = [row for row in rows if row.key == "alice" and row.at / 1_000_000 >= since.timestamp()]
    found = spent_by_key(database, "alice", since)
    assert actual([found], ()) == expected(of_alice, (), PriceTable())
    assert spent_by_key(database, "unknown", since).cost == 0
    assert spent_by_key(database, "alice", since).day is None


def test_spend_of_an_empty_ledger_is_empty(database: Database) -> None:
    assert spend(database, ("key",)) == []
    assert spent_by_key(database, "alice", START).calls == 0


def test_failed_calls_without_tokens_are_not_unpriced(database: Database) -> None:
    at = int(START.timestamp() * 1_000_000)
    write(
        database, [UsageRow(request_id="r", attempt=1, at=at, provider="acme", model_served="x", outcome="rate_limit")]
    )
    (row,) = spend(database)
    assert (row.calls, row.failed_calls, row.unpriced_calls, row.cost) == (1, 1, 0, Decimal(0))


def test_unknown_usage_is_unpriced_even_for_a_known_model(database: Database) -> None:
    at = int(START.timestamp() * 1_000_000)
    write(
        database,
        [UsageRow(request_id="r", attempt=1, at=at, provider="openai", model_served="gpt-4o", metering="unknown")],
    )
    (row,) = spend(database)
    assert (row.unpriced_calls, row.cost) == (1, None)


def test_every_bound_of_the_committed_prices_is_known() -> None:
    bounds = set()
    for provider in price_data().providers:
        for price in itertools.chain.from_iterable(model.prices for model in provider.models):
            for amount in (getattr(price, kind) for kind in KINDS):
                bounds |= {start for start, _ in amount.above} if isinstance(amount, Tiers) else set()
    assert bounds <= set(TIER_BOUNDS), "add the new bounds to TIER_BOUNDS, or their sums are computed from single rows"


def test_reported_parts_larger_than_the_whole_are_cut() -> None:
    usage = TokenUsage(
        prompt_tokens=10, cached_tokens=50, cache_write_tokens=5, completion_tokens=-3, reasoning_tokens=10**30
    )
    counts = counts_of(usage)
    assert counts["cached_tokens"] == 10
    assert counts["cache_write_tokens"] == counts["completion_tokens"] == counts["reasoning_tokens"] == 0
    assert counts_of(TokenUsage(prompt_tokens=10**30))["prompt_tokens"] < 2**62


def test_days_are_utc(database: Database) -> None:
    late = int(datetime(2026, 3, 1, 23, 59, 59, 999_999, tzinfo=UTC).timestamp() * 1_000_000)
    write(
        database,
        [UsageRow(request_id="r", attempt=1, at=late), UsageRow(request_id="s", attempt=1, at=late + 1_000_000)],
    )
    assert [row.day for row in spend(database, ("day",))] == [date(2026, 3, 1), date(2026, 3, 2)]
