"""Search in the ledger: every filter, pages without gaps or repetitions, bounded work per page."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest

from antiphon.history.sql.database import Database
from antiphon.prices.table import PriceTable
from antiphon_gateway.ledger.database import open_operator_database
from antiphon_gateway.ledger.journal import UsageRow
from antiphon_gateway.ledger.search import RequestFilter, search_attempts
from antiphon_gateway.ledger.writer import LedgerWriter
from antiphon_gateway.utc_time import DAY_MICROSECONDS

FIRST_DAY = date(2026, 11, 1)
FIRST = int(datetime(2026, 11, 1, tzinfo=UTC).timestamp()) * 1_000_000
MODELS = [("openai", "gpt-4o"), ("anthropic", "claude-sonnet-4-5")]
COUNT = 120


def row(number: int) -> UsageRow:
    """Thirty rows a day, of three keys and two models; every tenth failed."""
    provider, model = MODELS[number % 2]
    is_failed = number % 10 == 9
    return UsageRow(
        request_id=f"req-{number:04}",
        attempt=1,
        at=FIRST + number * DAY_MICROSECONDS // 30,
        key=f"Key-{number % 3}",
        client_format="openai-chat",
        provider=provider,
        credential="env:KEY",
        model_asked=f"asked-{number % 2}",
        model_served=model,
        status=502 if is_failed else 200,
        outcome="server" if is_failed else "disconnected" if number == 50 else "ok",
        metering="free" if is_failed else "reported",
        prompt_tokens=number,
    )


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    is_sqlite = request.param == "sqlite"
    address = str(tmp_path / "ledger.db") if is_sqlite else request.getfixturevalue("postgres")
    opened = open_operator_database(address)
    LedgerWriter(opened, PriceTable).write("test", 1, [row(number) for number in range(COUNT)])
    yield opened
    opened.close()


def numbers(database: Database, **wanted: Any) -> list[int]:
    """The numbers of the rows on all pages."""
    found: list[int] = []
    cursor: int | None = None
    for _ in range(200):
        page = search_attempts(database, RequestFilter(**wanted), before=cursor, limit=7, scanned=25)
        found += [one.prompt_tokens for one in page.rows]
        cursor = page.next
        if cursor is None:
            return found
    raise AssertionError("the pages do not end")


def test_every_filter_finds_the_rows_that_it_describes(database: Database) -> None:
    every = list(reversed(range(COUNT)))
    failed = [number for number in every if number % 10 == 9]
    assert numbers(database) == every
    assert numbers(database, key="key-1") == [number for number in every if number % 3 == 1]
    assert numbers(database, model="CLAUDE") == [number for number in every if number % 2]
    assert numbers(database, model="asked-0") == [number for number in every if not number % 2]
    assert numbers(database, model="openai/gpt") == [number for number in every if not number % 2]
    assert (
        numbers(database, status="5")
        == numbers(database, status="502")
        == numbers(database, outcome="failed")
        == failed
    )
    assert numbers(database, status="20") == [number for number in every if number not in failed]
    assert numbers(database, outcome="cancelled") == [50]
    assert numbers(database, text="req-0042") == [42]
    assert numbers(database, text="req-004") == list(reversed(range(40, 50)))
    assert numbers(database, day="2026-11-02") == list(reversed(range(30, 60)))
    assert numbers(database, day="2026-11-02", key="Key-0", status="502") == [39]


@pytest.mark.parametrize(
    "wanted",
    [
        {"key": "unknown-key"},
        {"status": "abc"},
        {"status": "2000"},
        {"day": "2025-01-01"},
        {"day": "2030-01-01"},
        {"text": "' OR 1=1 --"},
        {"key": "%"},
        {"outcome": "ok' OR '1"},
        {"outcome": "refused"},
    ],
)
def test_a_search_without_matches_ends(database: Database, wanted: dict[str, Any]) -> None:
    assert numbers(database, **wanted) == []


def test_a_page_has_the_facts_of_a_row_and_says_how_far_it_looked(database: Database) -> None:
    page = search_attempts(database, RequestFilter(text="req-0119"), limit=1)
    (found,) = page.rows
    assert (found.key, found.model, found.provider, found.target_model) == ("Key-2", "asked-1", *MODELS[1])
    assert (found.status, found.outcome, found.metering, found.credential) == (502, "server", "free", "env:KEY")
    assert found.time == datetime.fromtimestamp(row(119).at / 1_000_000, UTC)
    page = search_attempts(database, RequestFilter(text="req-0000"), scanned=20)
    assert (page.rows, page.next is not None) == ((), True)
    assert page.searched_to == datetime.fromtimestamp(row(100).at / 1_000_000, UTC)


def test_rows_that_are_added_meanwhile_do_not_shift_the_pages(database: Database) -> None:
    first = search_attempts(database, RequestFilter(), limit=10)
    LedgerWriter(database, PriceTable).write("other", 1, [row(number) for number in range(COUNT, COUNT + 5)])
    second = search_attempts(database, RequestFilter(), before=first.next, limit=10)
    shown = [one.prompt_tokens for one in (*first.rows, *second.rows)]
    assert shown == list(reversed(range(COUNT - 20, COUNT)))


def test_an_empty_ledger_has_an_empty_page(tmp_path: Path) -> None:
    database = open_operator_database(str(tmp_path / "empty.db"))
    page = search_attempts(database, RequestFilter(key="a"))
    database.close()
    assert (page.rows, page.next) == ((), None)
