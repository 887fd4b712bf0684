"""The spend of the last days stays equal to that of the ledger: after calls of today, late rows, a new day and new prices."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from antiphon.history.sql.database import Database
from antiphon.prices import PriceOverride, PriceTable
from antiphon_gateway.ledger.database import open_operator_database
from antiphon_gateway.ledger.journal import UsageRow
from antiphon_gateway.ledger.repricing import reprice
from antiphon_gateway.ledger.spend import RecentSpend, SpendRow, spend
from antiphon_gateway.ledger.writer import LedgerWriter

TODAY = datetime(2026, 3, 20, tzinfo=UTC)
FIRST = datetime(2026, 3, 1, tzinfo=UTC)


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    sqlite = request.param == "sqlite"
    opened = open_operator_database(str(tmp_path / "ledger.db") if sqlite else request.getfixturevalue("postgres"))
    yield opened
    opened.close()


class Ledger:
    """A ledger that one writer writes, and the cache under test."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.recent = RecentSpend()
        self.written = 0

    def write(self, key: str, day: datetime, tokens: int, model: str = "gpt-4o") -> None:
        at = day + timedelta(hours=12)
        row = UsageRow(
            request_id=str(self.written),
            attempt=1,
            at=int(at.timestamp()) * 1_000_000,
            key=key,
            provider="openai",
            model_served=model,
            metering="reported",
            prompt_tokens=tokens,
            completion_tokens=tokens,
        )
        self.written += 1
        LedgerWriter(self.database, PriceTable).write("test", self.written, [row])

    def read(self, today: datetime = TODAY) -> list[SpendRow]:
        """The cached spend, which must be that of the ledger."""
        found = self.recent.by_key(self.database, FIRST, today)
        assert found == spend(self.database, ("key",), since=FIRST)
        return found


def test_calls_of_today_late_rows_new_days_and_new_prices(database: Database) -> None:
    ledger = Ledger(database)
    assert ledger.read() == []
    ledger.write("alice", TODAY - timedelta(days=3), 1000)
    ledger.write("bob", FIRST - timedelta(days=1), 1000)  # before the first day
    assert [(row.key, row.calls) for row in ledger.read()] == [("alice", 1)]
    ledger.write("alice", TODAY, 2000)
    ledger.write("bob", TODAY, 3000, "a-model-without-a-price")
    assert [(row.key, row.calls, row.cost is None) for row in ledger.read()] == [("alice", 2, False), ("bob", 1, True)]
    ledger.write("bob", TODAY - timedelta(days=1), 500)  # late
    ledger.write("carol", TODAY - timedelta(days=1), 500, "gpt-5")  # late, and of a model that is new
    assert [(row.key, row.calls) for row in ledger.read()] == [("alice", 2), ("bob", 2), ("carol", 1)]
    ledger.write("alice", TODAY + timedelta(days=1), 100)
    assert ledger.read(TODAY + timedelta(days=1))[0].calls == 3
    before = ledger.read()[0].cost
    reprice(database, PriceTable([PriceOverride(model="gpt-4o", input=1000, output=1000)]), since=FIRST.date())
    assert ledger.read()[0].cost != before


def test_earlier_days_are_read_once(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Ledger(database)
    ledger.write("alice", TODAY - timedelta(days=3), 1000)
    ledger.write("alice", TODAY, 1000)
    ledger.read()
    statements: list[str] = []
    rows = database.rows

    def count(statement: str, **values: Any) -> Any:
        statements.extend([statement] if "GROUP BY" in statement else [])
        return rows(statement, **values)

    monkeypatch.setattr(database, "rows", count)
    ledger.write("alice", TODAY, 1000)
    ledger.recent.by_key(database, FIRST, TODAY)
    assert [f"day = {(TODAY.date() - date(1970, 1, 1)).days}" in statement for statement in statements] == [True]
