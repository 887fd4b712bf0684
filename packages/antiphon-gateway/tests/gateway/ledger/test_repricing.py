"""What past calls cost, found again: sums stay the sums of their rows, and a ledger of an older version keeps its figures."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest

from antiphon.errors import StoreError, StoreReadOnly
from antiphon.history.location import is_postgres_url
from antiphon.history.sql.database import Database
from antiphon.history.sql.postgres_connections import Address, Connections
from antiphon.history.sql.schema import Migration, migrate
from antiphon.history.sql.sqlite_file import SqliteFile
from antiphon.prices import PriceOverride, PriceTable
from antiphon_gateway.ledger import repricing
from antiphon_gateway.ledger.database import APPLICATION_ID, MIGRATIONS, open_ledger, open_operator_database
from antiphon_gateway.ledger.ledger import UsageLedger
from antiphon_gateway.ledger.repricing import price_old_rows, reprice
from antiphon_gateway.ledger.spend import Dimension, spend
from antiphon_gateway.ledger.writer import ALL_KEYS, LedgerWriter
from gateway.ledger.test_spend import START, actual, expected, random_rows, write
from support.waiting import until

OLDER = msgspec.json.decode((Path(__file__).parent / "older_ledger.json").read_bytes())
"""A ledger that schema 2 made, without costs, and what its `spend` said at the prices `HOUSE`."""
HOUSE = PriceTable([PriceOverride(model="house-*", input=0.5, output=1.25, cache_read=0.05)])
CORRECTED = PriceTable(
    [PriceOverride(model="gpt-4o", input=3.333, output=71), PriceOverride(model="no-price*", input=1)]
)


@pytest.fixture(params=["sqlite", "postgresql"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    is_sqlite = request.param == "sqlite"
    return str(tmp_path / "ledger.db") if is_sqlite else str(request.getfixturevalue("postgres"))


@pytest.fixture
def database(address: str) -> Iterator[Database]:
    opened = open_operator_database(address)
    yield opened
    opened.close()


def check_sums(database: Database) -> None:
    """The sums per day are those of the rows."""
    rows = """SELECT CAST(at / 86400000000 AS integer) AS day, {key}, bucket_id, count(*), count(cost_nanodollars),
        CAST(coalesce(sum(cost_nanodollars), 0) AS bigint) FROM usage GROUP BY 1, 2, 3"""
    daily = "SELECT day, key_id, bucket_id, calls, priced_calls, cost_nanodollars FROM daily"
    found = {*database.rows(rows.format(key="key_id")), *database.rows(rows.format(key=str(ALL_KEYS)))}
    assert found == {*database.rows(daily)}


def test_a_corrected_price_corrects_the_past_when_asked(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repricing, "_ROWS_AT_ONCE", 64)
    rows = random_rows(300)
    write(database, rows)
    by: tuple[Dimension, ...] = ("key", "model", "day")
    before = spend(database, by)
    trial = reprice(database, CORRECTED, since=START.date(), is_dry_run=True)
    assert spend(database, by) == before
    done = reprice(database, CORRECTED, since=START.date())
    assert done == trial
    assert done.rows == len(rows)
    assert 0 < done.changed < len(rows)
    assert actual(spend(database, by), by) == expected(rows, by, CORRECTED)
    total = sum((row.cost or 0 for row in spend(database, by)), Decimal(0))
    assert total - sum((row.cost or 0 for row in before), Decimal(0)) == Decimal(done.after - done.before).scaleb(-9)
    assert reprice(database, CORRECTED, since=START.date()).changed == 0
    reprice(database, PriceTable(), since=START.date())  # a price that is not known any more
    assert spend(database, by) == before
    check_sums(database)


@pytest.mark.parametrize("pattern", ["gpt-4o", "gpt-*", "openai/gpt-4o", "*/no-price-known", "none-*"])
def test_only_some_models_from_a_day_on(database: Database, pattern: str) -> None:
    rows = random_rows(300)
    write(database, rows)
    since = START.date() + timedelta(days=2)
    before = {(row.model, row.day): row for row in spend(database, ("model", "day"))}
    everywhere = PriceTable([PriceOverride(model="*", input=77, output=99)])
    reprice(database, everywhere, since=since, model=pattern)
    models = {"gpt-4o": {"gpt-4o"}, "gpt-*": {"gpt-4o", "gpt-5"}, "openai/gpt-4o": {"gpt-4o"}, "none-*": set()}
    wanted = models.get(pattern, {"no-price-known"})
    for row in spend(database, ("model", "day")):
        assert row.day is not None
        is_changed = row != before[row.model, row.day]
        assert is_changed == (row.model in wanted and row.day >= since), row
    check_sums(database)


def test_rows_are_written_meanwhile(database: Database, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repricing, "_ROWS_AT_ONCE", 20)
    rows = random_rows(600)
    write(database, rows[:200])
    other = open_operator_database(address)

    def write_more() -> None:
        writer = LedgerWriter(other, lambda: CORRECTED)
        for start in range(200, 600, 8):
            writer.write("other", start - 199, rows[start : start + 8])

    thread = threading.Thread(target=write_more)
    thread.start()
    while thread.is_alive():
        reprice(database, CORRECTED, since=START.date())
        reprice(database, PriceTable(), since=START.date())
    thread.join()
    other.close()
    reprice(database, CORRECTED, since=START.date())
    assert actual(spend(database), ()) == expected(rows, (), CORRECTED)
    check_sums(database)


def test_calls_whose_rows_were_deleted_keep_their_cost(database: Database) -> None:
    rows = sorted(random_rows(300), key=lambda row: row.at)
    write(database, rows)
    LedgerWriter(database, PriceTable).delete_before(rows[100].at)
    before = {(row.model, row.day): row.cost for row in spend(database, ("model", "day"))}
    found = reprice(database, CORRECTED, since=START.date())
    assert (found.rows, found.without_row) == (200, 100)
    kept = rows[99].at // 86_400_000_000
    for row in spend(database, ("model", "day")):
        if row.day is not None and (row.day - date(1970, 1, 1)).days < kept:
            assert row.cost == before[row.model, row.day]


def make_older(address: str) -> None:
    """The ledger as schema 2 left it."""
    tables = OLDER["tables"]
    if is_postgres_url(address):
        parsed = Address.of(address)
        own = msgspec.structs.replace(parsed, schema=f"{parsed.schema}_gateway")
        connections = Connections(own, max_connections=1, timeout=10.0, statement_timeout=60.0, read_only=False)
        identity = {"identity": "bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY", "clustered": ""}
        scripts = [Migration(number, 1, script.format(**identity)) for number, script in enumerate(MIGRATIONS[:2], 1)]
        migrate(connections, scripts)
        with connections.transaction() as db:
            for name, table in tables.items():
                marks = ", ".join(["%s"] * len(table["rows"][0]))
                insert = f"INSERT INTO {name} ({table['columns']}) OVERRIDING SYSTEM VALUE VALUES ({marks})"
                with db.cursor() as cursor:
                    cursor.executemany(insert.encode(), table["rows"])
            for name in ("names", "buckets", "usage"):
                last = f"SELECT setval(pg_get_serial_sequence('{name}', 'id'), (SELECT max(id) FROM {name}))"
                db.execute(last.encode())
        connections.close()
        return
    identity = {"identity": "INTEGER PRIMARY KEY", "clustered": "WITHOUT ROWID"}
    first, second = [script.format(**identity) for script in MIGRATIONS[:2]]
    file = SqliteFile(
        address, tables=first, application_id=APPLICATION_ID, schema=2, timeout=10.0, read_only=False, create=True,
        migrations={1: second},
    )  # fmt: skip
    with file.transaction() as db:
        for name, table in tables.items():
            marks = ", ".join("?" * len(table["rows"][0]))
            db.executemany(f"INSERT INTO {name} ({table['columns']}) VALUES ({marks})", table["rows"])
    file.close()


def figures(database: Database, names: str) -> list[list[Any]]:
    by: Any = tuple(filter(None, names.split(",")))
    return [
        [
            *(str(getattr(row, name)) for name in by),
            row.calls,
            row.failed_calls,
            row.estimated_calls,
            row.unpriced_calls,
            row.usage.prompt_tokens,
            row.usage.completion_tokens,
            row.cost,
        ]
        for row in spend(database, by)
    ]


def check_older(database: Database) -> None:
    """All counts are those of its reports; so are the costs of what the committed prices, which change, do not decide."""
    for names, reported in OLDER["spend"].items():
        now = figures(database, names)
        assert [row[:-1] for row in now] == [row[:-1] for row in reported]
        for row, before in zip(now, reported, strict=True):
            if "house-1" in row:
                assert abs(row[-1] - Decimal(before[-1])) <= Decimal("1e-9") * row[2]


def test_an_older_ledger_keeps_its_figures(address: str) -> None:
    make_older(address)
    database = open_operator_database(address, HOUSE)
    check_older(database)
    assert [*database.rows("SELECT name FROM unpriced")] == [("usage",)]
    while price_old_rows(database, HOUSE, most=25):
        check_older(database)
    assert not database.rows("SELECT name FROM unpriced")
    check_older(database)
    found = reprice(database, HOUSE, since=date(1970, 1, 1))
    assert (found.changed, found.rows, found.without_row) == (0, 130, 30)
    rows = """SELECT CAST(at / 86400000000 AS integer) AS day, key_id, bucket_id, count(*), count(cost_nanodollars),
        CAST(coalesce(sum(cost_nanodollars), 0) AS bigint) FROM usage GROUP BY 1, 2, 3"""
    sums = {row[:3]: row[3:] for row in database.rows(
        "SELECT day, key_id, bucket_id, calls, priced_calls, cost_nanodollars FROM daily"
    )}  # fmt: skip
    whole = [(row[:3], row[3:]) for row in database.rows(rows) if sums[row[:3]][0] == row[3]]
    assert len(whole) > 100
    for place, (calls, priced, cost) in whole:
        assert sums[place][:2] == (calls, priced)
        assert abs(sums[place][2] - cost) <= calls
    database.close()


def test_a_command_prices_the_rows_of_an_older_ledger_as_its_sums(address: str) -> None:
    """Else a price that is corrected next would be found in the rows already, and never reach the sums."""
    make_older(address)
    opened = open_ledger(address, HOUSE)
    assert opened is not None
    check_older(opened)
    every = date(1970, 1, 1)
    assert reprice(opened, HOUSE, since=every, is_dry_run=True).changed == 0, "they had no cost, and have the same one"
    before = spend(opened)[0].cost or 0
    found = reprice(opened, PriceTable([PriceOverride(model="*", input=100, output=100)]), since=every)
    assert found.changed > 0
    assert (spend(opened)[0].cost or 0) - before == Decimal(found.after - found.before).scaleb(-9) > 0
    opened.close()


def test_the_rows_of_an_older_ledger_are_not_compared_before_they_are_priced(address: str) -> None:
    make_older(address)
    open_operator_database(address, HOUSE).close()
    reader = open_operator_database(address, HOUSE, create=False, read_only=True)
    with pytest.raises(StoreError, match="an older Antiphon that are not priced yet"):
        reprice(reader, HOUSE, since=date(1970, 1, 1), is_dry_run=True)
    reader.close()


def test_a_gateway_prices_the_rows_of_an_older_ledger(address: str) -> None:
    make_older(address)
    ledger = UsageLedger(lambda: open_operator_database(address, HOUSE), prices=lambda: HOUSE, interval=0.01)
    database = open_operator_database(address, HOUSE)
    (before,) = spend(database)
    new = random_rows(40)
    ledger.add(new)
    until(lambda: not database.rows("SELECT name FROM unpriced"))
    assert ledger.flush(30)
    ledger.close()
    (after,) = spend(database)
    assert after.calls == before.calls + len(new)
    assert (after.cost or 0) - (before.cost or 0) == Decimal(sum(row.cost or 0 for row in new)).scaleb(-9)
    unpriced = (
        "SELECT count(*) FROM attempts WHERE cost_nanodollars IS NULL AND metering = 'reported' AND provider = 'openai'"
    )
    assert [*database.rows(f"{unpriced} AND model_served <> 'no-price'")] == [(0,)]
    database.close()


def test_rows_of_an_older_gateway_beside_this_one_are_unpriced_until_asked(address: str) -> None:
    """During an upgrade of several gateways the older ones write rows and sums without a cost: nothing is lost."""
    make_older(address)
    database = open_operator_database(address, HOUSE)
    while price_old_rows(database, HOUSE):
        pass
    calls = spend(database)[0].calls
    with database.transaction() as db:
        (row,) = database.execute(db, "SELECT * FROM usage ORDER BY id DESC LIMIT 1")
        columns = OLDER["tables"]["usage"]["columns"].split(", ")[1:]
        database.insert_many(db, "usage", columns, [row[1 : len(columns) + 1]])
        day, key, bucket = (
            row[1] // 86_400_000_000,
            row[columns.index("key_id") + 1],
            row[columns.index("bucket_id") + 1],
        )
        for key_id in (key, ALL_KEYS):
            change = "UPDATE daily SET calls = calls + 1 WHERE day = :day AND key_id = :key AND bucket_id = :bucket"
            database.execute(db, change, day=day, key=key_id, bucket=bucket)
    unpriced = spend(database)[0].unpriced_calls
    reprice(database, HOUSE, since=date(1970, 1, 1))
    assert spend(database)[0].calls == calls + 1
    assert spend(database)[0].unpriced_calls == unpriced - 1
    database.close()


def test_an_older_ledger_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    address = str(tmp_path / "ledger.db")
    make_older(address)

    def refuse(*_: object, **__: object) -> None:
        raise StoreReadOnly("the disk is write-protected")

    monkeypatch.setattr(SqliteFile, "_migrate", refuse)
    with pytest.raises(StoreReadOnly, match=r"an older Antiphon wrote this ledger.*write-protected"):
        open_ledger(address, HOUSE)
    assert open_ledger(str(tmp_path / "none.db"), HOUSE) is None
