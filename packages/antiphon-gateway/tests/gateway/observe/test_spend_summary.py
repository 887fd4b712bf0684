"""The spend on the status page: sums of the ledger, unknown prices as unknown, and no page that fails with the ledger."""

from __future__ import annotations

import asyncio
import threading
import time
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path

import pytest
from msgspec import structs

from antiphon.errors import StoreError
from antiphon.history.sql.database import Database
from antiphon_gateway.ledger.database import OperatorDatabase, open_operator_database
from antiphon_gateway.ledger.journal import UsageRow
from antiphon_gateway.ledger.ledger import UsageLedger
from antiphon_gateway.ledger.search import RequestFilter
from antiphon_gateway.ledger.spend import RecentSpend
from antiphon_gateway.observe import status
from antiphon_gateway.observe.status import DAYS, LedgerReader, SpendSummary

DAY = 86_400_000_000


def read(address: Path) -> SpendSummary:
    database = OperatorDatabase(str(address))
    try:
        return asyncio.run(LedgerReader(database).spend())
    finally:
        database.close()


def write(address: Path, *rows: UsageRow) -> None:
    ledger = UsageLedger(partial(open_operator_database, str(address)))
    for row in rows:
        ledger.add((row,))
    assert ledger.flush(20)
    ledger.close()


def row(number: int, *, days_ago: int = 0, key: str = "laptop", model: str = "gpt-4o", tokens: int = 1000) -> UsageRow:
    return UsageRow(
        request_id=str(number),
        attempt=1,
        at=time.time_ns() // 1000 - days_ago * DAY,
        key=key,
        provider="openai",
        model_served=model,
        status=200,
        metering="reported",
        prompt_tokens=tokens,
        completion_tokens=tokens,
    )


def test_sums_by_key_model_and_day(tmp_path: Path) -> None:
    address = tmp_path / "ledger.db"
    rows = (row(1), row(2, key="phone", tokens=9000), row(3, days_ago=1), row(4, model="a-model-without-a-price"))
    write(address, *rows, row(5, days_ago=DAYS + 1))
    spent = read(address)
    assert spent.problem == ""
    assert [(one.key, one.calls) for one in spent.by_key] == [("phone", 1), ("laptop", 3)]
    assert [(one.model, one.calls, one.cost is None) for one in spent.by_model] == [
        ("gpt-4o", 3, False),
        ("a-model-without-a-price", 1, True),
    ]
    today = datetime.now(UTC).date()
    assert [one.day for one in spent.by_day] == [today, today - timedelta(days=1)]
    assert spent.today is not None
    assert (spent.today.calls, spent.today.unpriced_calls) == (3, 1)
    assert spent.today.cost is not None
    assert spent.today.cost > Decimal(0)


def test_a_ledger_that_is_empty_off_or_broken(tmp_path: Path) -> None:
    missing = read(tmp_path / "missing.db")
    assert (missing.problem, missing.by_day) == ("", ())
    assert not (tmp_path / "missing.db").exists(), "reading creates nothing"
    broken = tmp_path / "broken.db"
    broken.write_bytes(b"this is not a database" * 100)
    assert read(broken).problem
    assert not asyncio.run(LedgerReader(None).spend()).is_on


def test_it_is_read_at_most_every_few_seconds(tmp_path: Path) -> None:
    address, clock = tmp_path / "ledger.db", [100.0]
    write(address, row(1))
    database = OperatorDatabase(str(address))

    async def run() -> list[int]:
        reader = LedgerReader(database, clock=lambda: clock[0])
        counts = []
        for seconds in (0.0, 1.0, 5.0):
            clock[0] += seconds
            counts.append((await reader.spend()).by_key[0].calls)
            await asyncio.to_thread(write, address, row(len(counts) + 1))
        return counts

    assert asyncio.run(run()) == [1, 1, 3]
    database.close()


def test_reading_that_takes_long_is_repeated_less_often(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, reads = [100.0], []

    def slow_read(*_: object, **__: object) -> SpendSummary:
        clock[0] += 2.0
        reads.append(clock[0])
        return SpendSummary()

    monkeypatch.setattr(status, "read_spend", slow_read)

    write(tmp_path / "ledger.db", row(1))
    database = OperatorDatabase(str(tmp_path / "ledger.db"))

    async def run() -> None:
        reader = LedgerReader(database, clock=lambda: clock[0])
        for _ in range(20):
            await reader.spend()
            clock[0] += 3.0

    asyncio.run(run())
    database.close()
    assert reads == [102.0, 146.0]


def test_a_ledger_that_did_not_answer_is_read_again_soon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    address, clock, answers = tmp_path / "ledger.db", [100.0], [False, True]
    write(address, row(1))

    def slow_read(*_: object, **__: object) -> SpendSummary:
        if not answers.pop(0):
            clock[0] += 10.0  # until the connection is given up
            raise StoreError("the server does not answer")
        return SpendSummary(days=7)

    monkeypatch.setattr(status, "read_spend", slow_read)

    async def run() -> None:
        database = OperatorDatabase(str(address))
        reader = LedgerReader(database, clock=lambda: clock[0])
        assert (await reader.spend()).problem == "the server does not answer"
        clock[0] += 15.0
        assert (await reader.spend()).days == 7
        database.close()

    asyncio.run(run())


def test_the_last_sums_are_shown_while_the_ledger_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a reading that was not waited for is used when it ends."""
    address, clock, may_answer = tmp_path / "ledger.db", [100.0], threading.Event()
    write(address, row(1))
    read_spend, days = status.read_spend, iter((2, 3))

    def slow_read(database: Database, *, now: datetime, recent: RecentSpend) -> SpendSummary:
        number = next(days)
        assert number == 2 or may_answer.wait(20)
        return structs.replace(read_spend(database, now, recent), days=number)

    monkeypatch.setattr(status, "read_spend", slow_read)
    monkeypatch.setattr(status, "_PATIENCE_SECONDS", 0.1)

    async def run() -> None:
        database = OperatorDatabase(str(address))
        reader = LedgerReader(database, clock=lambda: clock[0])
        known = await reader.spend()
        assert (known.days, known.problem, len(known.by_key)) == (2, "", 1)
        for seconds in (5.0, 5.0, 15.0):
            clock[0] += seconds
            silent = await reader.spend()
            assert silent == structs.replace(known, problem=f"{address} does not answer")
        found = await reader.search(RequestFilter(key="laptop"), {})
        assert found is not None
        assert found.problem == silent.problem
        may_answer.set()
        while (await reader.spend()).problem:
            await asyncio.sleep(0.01)
        assert (await reader.spend()).days == 3
        database.close()

    asyncio.run(asyncio.wait_for(run(), 30))
