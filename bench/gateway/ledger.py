"""`python -m bench ledger [ROWS [ADDRESS]]`: how long spend queries take with many keys and rows.

A ledger of 10,000,000 rows (or ROWS) of 10,000 keys in 30 days is made in a temporary SQLite file, or at ADDRESS
(`postgresql://…`, an empty schema). The promise: the spend of one key by day, and of all keys on one day, take less than 50 ms:
CPU time for SQLite, which runs in this process, and wall time for PostgreSQL. The best of several tries counts.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from antiphon.history.location import is_postgres_url
from antiphon.history.sql.database import Database
from antiphon.prices import PriceTable
from antiphon_gateway.ledger.database import open_operator_database
from antiphon_gateway.ledger.journal import UsageRow
from antiphon_gateway.ledger.spend import RecentSpend, spend
from antiphon_gateway.ledger.writer import ALL_KEYS, TOKEN_COLUMNS, LedgerWriter

KEYS, DAYS = 10_000, 30
FIRST = datetime(2026, 9, 1, tzinfo=UTC)
MODELS = [("openai", "gpt-4o"), ("anthropic", "claude-sonnet-4-5"), ("gemini", "gemini-2.5-pro")]
PROMISE_MS = 50.0
TRIES = 15
_DAY = 86_400_000_000


def fill(database: Database, rows: int) -> None:
    """The rows, made by the database itself, and the sums that the writer would have made of them."""
    first = int(FIRST.timestamp()) * 1_000_000
    samples = [
        UsageRow(
            request_id="sample",
            attempt=1,
            at=first,
            key="key-1",
            provider=provider,
            model_served=model,
            metering="reported",
        )
        for provider, model in MODELS
    ]
    LedgerWriter(database, PriceTable).write("bench", 1, samples)
    with database.transaction() as db:
        run = database.execute
        (template,) = run(db, "SELECT * FROM usage ORDER BY id LIMIT 1")
        buckets = [number for (number,) in run(db, "SELECT DISTINCT bucket_id FROM usage ORDER BY 1")]
        run(db, "DELETE FROM usage")
        run(db, "DELETE FROM daily")
        run(db, series(1, KEYS, "INSERT INTO names (name) SELECT 'client-' || n FROM numbers"))
        (lowest,) = run(db, "SELECT id FROM names WHERE name = 'client-1'")[0]
        cases = " ".join(f"WHEN {index} THEN {bucket}" for index, bucket in enumerate(buckets))
        values = f"""INSERT INTO usage (at, request_id, attempt, key_id, client_format_id, operation_id, credential_id,
            model_asked_id, price_version_id, outcome_id, bucket_id, status, seconds, first_token_seconds,
            {", ".join(TOKEN_COLUMNS)}, cost_nanodollars)
            SELECT {first} + (n - 1) * {DAYS * _DAY // rows}, 'request-' || n, 1,
            {lowest} + {remainder("n * 7919", KEYS)}, u.f, u.f, u.f, u.f, u.f, u.f,
            CASE {remainder("n", len(buckets))} {cases} END, 200, 1.5, 0.4, 900 + {remainder("n", 700)},
            100 + {remainder("n", 300)}, {remainder("n", 500)}, 0, 0, 0, 2000000 + {remainder("n", 900)} * 2500
            FROM numbers CROSS JOIN (SELECT {template[4]} AS f) u"""
        run(db, series(1, rows, values))
        summed = ("cost_nanodollars", *TOKEN_COLUMNS)
        sums = ", ".join(f"sum({column})" for column in summed)
        for key in ("key_id", str(ALL_KEYS)):
            run(
                db,
                f"""INSERT INTO daily (day, key_id, bucket_id, calls, failed_calls, priced_calls, {", ".join(summed)})
                SELECT CAST(at / {_DAY} AS integer), {key}, bucket_id, count(*), 0, count(*), {sums} FROM usage
                GROUP BY 1, 2, 3""",
            )


def remainder(number: str, divisor: int) -> str:
    """The remainder of a division of integers, without the sign that PostgreSQL's driver reads as a placeholder."""
    return f"({number} - ({number}) / {divisor} * {divisor})"


def series(first: int, last: int, statement: str) -> str:
    """A statement over the table `numbers`."""
    numbers = f"SELECT CAST({first} AS bigint) UNION ALL SELECT n + 1 FROM numbers WHERE n < {last}"
    return f"WITH RECURSIVE numbers (n) AS ({numbers}) {statement}"


def measure(name: str, query: Callable[[], Any], *, by_clock: bool = False) -> float:
    """The milliseconds that a query takes at best: of the CPU, or of the clock."""
    query()
    found: list[tuple[float, float]] = []
    for _ in range(TRIES):
        began, cpu = time.perf_counter(), time.process_time()
        rows = query()
        found.append(((time.perf_counter() - began) * 1000, (time.process_time() - cpu) * 1000))
    clock, cpu = min(found)[0], min(pair[1] for pair in found)
    size = len(rows) if isinstance(rows, list) else 1
    print(f"{name:44} {clock:8.1f} ms  (CPU {cpu:6.1f} ms, {size:,} rows)", flush=True)
    return clock if by_clock else cpu


def main(arguments: list[str]) -> int:
    rows = int(arguments[0]) if arguments else 10_000_000
    with tempfile.TemporaryDirectory() as folder:
        address = arguments[1] if len(arguments) > 1 else str(Path(folder) / "ledger.db")
        by_clock = is_postgres_url(address)
        database = open_operator_database(address)
        began = time.perf_counter()
        fill(database, rows)
        if not by_clock:
            print(f"{Path(address).stat().st_size / 1e6:,.0f} MB", end=", ")
        print(f"{rows:,} rows of {KEYS:,} keys made in {time.perf_counter() - began:.0f} s", flush=True)
        last, since = FIRST + timedelta(days=DAYS - 1), FIRST
        noon = last + timedelta(hours=12)
        all_keys = measure("one day, by key", lambda: spend(database, ("key",), since=last), by_clock=by_clock)
        one_key = measure(
            "30 days of one key, by day",
            lambda: spend(database, ("day",), keys=("client-77",), since=since),
            by_clock=by_clock,
        )
        measure("a key since the first of the month", lambda: spend(database, keys=("client-77",), since=since))
        measure("a key since noon", lambda: spend(database, keys=("client-77",), since=noon))
        measure("30 days, by model and day", lambda: spend(database, ("model", "day"), since=since))
        measure("30 days, by key", lambda: spend(database, ("key",), since=since))
        recent = RecentSpend()
        measure(
            "the same again, today being the last day",
            lambda: recent.by_key(database, since, last),
        )
        database.close()
    holds = max(one_key, all_keys) < PROMISE_MS
    verdict = "holds" if holds else "does not hold"
    print(f"promise: the spend of a key by day, and of all keys on a day, in less than {PROMISE_MS:g} ms: {verdict}")
    return 0 if holds else 1
