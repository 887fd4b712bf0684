"""Spend equals the sum of what single rows cost when they were written, on SQLite and on PostgreSQL."""

from __future__ import annotations

import itertools
import random
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest

from antiphon.history.sql.database import Database
from antiphon.parts import TokenUsage
from antiphon.prices import PriceOverride, PriceTable, cost_of
from antiphon.prices.rate_card import encode_variant, token_counts
from antiphon_gateway.ledger.database import open_operator_database
from antiphon_gateway.ledger.journal import UsageRow
from antiphon_gateway.ledger.spend import DIMENSIONS, Dimension, SpendRow, spend
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


def single_cost(row: UsageRow, table: PriceTable) -> Decimal | None:
    """What a row cost, by the library and rounded to a nanodollar."""
    if row.metering == "unknown":
        return None
    usage = TokenUsage(
        prompt_tokens=row.prompt_tokens,
        completion_tokens=row.completion_tokens,
        cached_tokens=row.cached_tokens,
        cache_write_tokens=row.cache_write_tokens,
        reasoning_tokens=row.reasoning_tokens,
        raw={"cache_creation": {"ephemeral_1h_input_tokens": row.cache_write_1h_tokens}},
    )
    at = datetime.fromtimestamp(row.at / 1_000_000, UTC)
    variant = msgspec.json.decode(row.variant) if row.variant else {}
    found = cost_of(usage, row.model_served, row.provider, at=at, variant=variant, table=table)
    return None if found is None else found.total.quantize(Decimal("1e-9"), ROUND_HALF_UP)


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
        costs = [single_cost(row, table) for row in members]
        known = [cost for cost in costs if cost is not None]
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


def test_spend_equals_the_sum_of_single_costs(database: Database) -> None:
    rows, table = random_rows(400), PriceTable()
    write(database, rows)
    for by in [(), *(part for size in (1, 2) for part in itertools.combinations(DIMENSIONS, size))]:
        assert actual(spend(database, by), by) == expected(rows, by, table), by


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


def test_spend_of_keys_since_a_time(database: Database) -> None:
    rows = random_rows(300)
    write(database, rows)
    since = START + timedelta(hours=31)
    wanted = [row for row in rows if row.key in ("alice", "bob") and row.at / 1_000_000 >= since.timestamp()]
    found = spend(database, ("key",), keys=("alice", "bob", "unknown"), since=since)
    assert actual(found, ("key",)) == expected(wanted, ("key",), PriceTable())
    assert spend(database, keys=("unknown",), since=since) == []


def test_a_price_that_changes_does_not_change_the_past(database: Database) -> None:
    rows = random_rows(200)
    write(database, rows[:100])
    before = spend(database, ("model",))
    changed = PriceTable([PriceOverride(model="*", input=3.333, output=0.0000071)])
    assert spend(database, ("model",)) == before
    LedgerWriter(database, lambda: changed).write("later", 1, rows[100:])
    costs = [
        *(single_cost(row, PriceTable()) for row in rows[:100]),
        *(single_cost(row, changed) for row in rows[100:]),
    ]
    assert spend(database)[0].cost == sum(cost for cost in costs if cost is not None)
    versions = {version for (version,) in database.rows("SELECT DISTINCT price_version FROM attempts")}
    assert versions == {PriceTable().version, changed.version}


def test_spend_of_an_empty_ledger_is_empty(database: Database) -> None:
    assert spend(database, ("key",)) == []
    assert spend(database, since=START) == []


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


def test_days_are_utc(database: Database) -> None:
    late = int(datetime(2026, 3, 1, 23, 59, 59, 999_999, tzinfo=UTC).timestamp() * 1_000_000)
    write(
        database,
        [UsageRow(request_id="r", attempt=1, at=late), UsageRow(request_id="s", attempt=1, at=late + 1_000_000)],
    )
    assert [row.day for row in spend(database, ("day",))] == [date(2026, 3, 1), date(2026, 3, 2)]
