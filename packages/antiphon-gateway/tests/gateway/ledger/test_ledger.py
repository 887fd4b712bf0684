"""`UsageLedger`: nothing waits for the database, nothing is written twice, and what cannot be written is counted."""

from __future__ import annotations

import asyncio
import logging
import os
import stat
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from msgspec import structs

from antiphon.errors import SharedStoreUnavailable, StoreError, StoreUnreachable
from antiphon.history.sql.database import Database
from antiphon.prices import PriceTable
from antiphon_gateway.config.file import ConfigError, load_config
from antiphon_gateway.config.settings import Config, GatewaySettings, LedgerSettings
from antiphon_gateway.ledger.database import OperatorDatabase, ledger_address, open_operator_database
from antiphon_gateway.ledger.journal import RowJournal, UsageRow, recover
from antiphon_gateway.ledger.ledger import UsageLedger
from antiphon_gateway.ledger.spend import LedgerTotals, spend
from antiphon_gateway.ledger.writer import LedgerWriter
from antiphon_gateway.share.counts import NOTHING, Period
from antiphon_gateway.utc_time import DAY_MICROSECONDS

NOW = time.time_ns() // 1000


@pytest.fixture(params=["sqlite", "postgresql"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    sqlite = request.param == "sqlite"
    return str(tmp_path / "made" / "ledger.db") if sqlite else request.getfixturevalue("postgres")


@pytest.fixture
def database(address: str) -> Iterator[Database]:
    opened = open_operator_database(address)
    yield opened
    opened.close()


def row(number: int, at: int = NOW) -> UsageRow:
    return UsageRow(request_id=f"r{number}", attempt=1, at=at, key="alice", provider="openai", model_served="gpt-4o")


def row_ids(database: Database) -> list[str]:
    return [request_id for (request_id,) in database.rows("SELECT request_id FROM attempts ORDER BY id")]


def test_rows_are_written_in_order_with_their_sums(address: str, database: Database) -> None:
    ledger = UsageLedger(lambda: open_operator_database(address), interval=0.01)
    for number in range(2500):
        ledger.add((row(number),))
    assert ledger.flush(30)
    assert row_ids(database) == [f"r{number}" for number in range(2500)]
    assert spend(database)[0].calls == 2500
    assert ledger.status.written_rows == 2500
    assert ledger.status.pending_rows == ledger.status.lost_rows == 0
    ledger.close()


def test_totals_have_the_rows_of_their_moment_and_no_later_ones(address: str) -> None:
    """Rows that are written while they are read would be counted twice: as totals, and as what was charged since."""
    day = NOW // DAY_MICROSECONDS
    period = Period("alice", day, day + 1)

    def open_late() -> Database:
        time.sleep(0.2)
        return open_operator_database(address)

    def with_tokens(number: int) -> UsageRow:
        return structs.replace(row(number), metering="reported", prompt_tokens=10**number)

    async def count() -> None:
        ledger = UsageLedger(open_late, interval=0.01)
        totals = LedgerTotals(ledger, OperatorDatabase(address))
        ledger.add([with_tokens(1), with_tokens(2)])
        counting = asyncio.create_task(totals.count({period: NOTHING}))
        await asyncio.sleep(0)
        ledger.add([with_tokens(3)])
        assert (await counting)[period].tokens == 110
        ledger.add([with_tokens(4)])
        assert (await totals.count({period: NOTHING}))[period].tokens == 11_110
        ledger.close()

    asyncio.run(count())


def test_totals_of_a_database_that_is_away_are_refused_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("antiphon_gateway.ledger.spend._READ_SECONDS", 1.0)

    def fail() -> Database:
        raise StoreUnreachable("the server does not answer")

    async def count() -> None:
        ledger = UsageLedger(fail, interval=0.01)
        ledger.add([row(1)])
        with pytest.raises(SharedStoreUnavailable, match="cannot write: the server does not answer"):
            await LedgerTotals(ledger, OperatorDatabase(":memory:")).count({Period("alice", 1, 2): NOTHING})
        ledger.close(timeout=0.1)

    asyncio.run(count())


def test_close_writes_what_is_left(address: str, database: Database) -> None:
    ledger = UsageLedger(lambda: open_operator_database(address), interval=60)
    ledger.add((row(1),))
    ledger.close()
    assert row_ids(database) == ["r1"]


def test_a_ledger_without_rows_opens_nothing(tmp_path: Path) -> None:
    ledger = UsageLedger(lambda: open_operator_database(str(tmp_path / "ledger.db")))
    ledger.close()
    assert not list(tmp_path.iterdir())


def test_rows_wait_while_the_database_is_away_and_the_log_says_so_once(
    address: str, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    attempts = []

    def open_late() -> Database:
        attempts.append(1)
        if len(attempts) < 3:
            raise StoreUnreachable("the server does not answer")
        return open_operator_database(address)

    ledger = UsageLedger(open_late, interval=0.01)
    with caplog.at_level(logging.WARNING):
        ledger.add((row(1),))
        assert ledger.flush(30)
    ledger.close()
    assert row_ids(database) == ["r1"]
    messages = [record.getMessage() for record in caplog.records]
    assert len([message for message in messages if "the server does not answer" in message]) == 1
    assert len([message for message in messages if "is written again" in message]) == 1


def test_rows_above_the_limit_are_dropped_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    blocked = threading.Event()

    def open_blocked() -> Database:
        blocked.wait(30)
        raise StoreError("gone")

    ledger = UsageLedger(open_blocked, interval=0.0, max_pending=10)
    for number in range(25):
        ledger.add((row(number),))
    assert ledger.status.lost_rows == 15
    assert ledger.status.pending_rows == 10
    blocked.set()
    ledger.close(timeout=0.1)
    assert len([record for record in caplog.records if "further rows are dropped" in record.getMessage()]) == 1
    assert "10 rows were not written" in caplog.text


def test_a_batch_that_was_written_is_not_written_again(database: Database) -> None:
    """As after a connection that broke during the commit."""
    writer = LedgerWriter(database, PriceTable)
    writer.write("one", 1, [row(1), row(2)])
    writer.write("one", 1, [row(1), row(2)])
    writer.write("two", 1, [row(3)])
    assert row_ids(database) == ["r1", "r2", "r3"]
    assert spend(database)[0].calls == 3


def test_writers_at_once_add_to_the_same_sums(address: str, database: Database) -> None:
    def work(name: str) -> None:
        own = open_operator_database(address)
        writer = LedgerWriter(own, PriceTable)
        for batch in range(20):
            writer.write(name, 5 * batch + 1, [row(number) for number in range(5)])
        own.close()

    threads = [threading.Thread(target=work, args=(f"w{number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(row_ids(database)) == 400
    assert spend(database, ("key",))[0].calls == 400


def test_expired_rows_are_deleted_and_their_sums_stay(address: str, database: Database) -> None:
    ledger = UsageLedger(lambda: open_operator_database(address), interval=0.01, retention_days=30)
    ledger.add((row(1, NOW - 31 * DAY_MICROSECONDS),))
    ledger.add((row(2),))
    assert ledger.flush(30)
    ledger.close()
    assert row_ids(database) == ["r2"]
    assert spend(database)[0].calls == 2


def test_a_new_file_belongs_to_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "made" / "ledger.db"
    open_operator_database(str(path)).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_the_file_of_another_program_is_refused(tmp_path: Path) -> None:
    from antiphon.history import SqliteStore

    SqliteStore(tmp_path / "chats.db").close()
    with pytest.raises(StoreError, match="another program"):
        open_operator_database(str(tmp_path / "chats.db"))


def test_default_place_is_beside_the_state_or_in_the_data_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", "/data")
    assert ledger_address(Config()) == "/data/antiphon/ledger.db"
    assert ledger_address(Config(gateway=GatewaySettings(state="/var/lib/a/state.db"))) == "/var/lib/a/ledger.db"
    assert ledger_address(Config(ledger=LedgerSettings(address="/x.db"))) == "/x.db"
    by_variable = Config(ledger=LedgerSettings(address="env:DB"))
    assert ledger_address(by_variable, {"DB": "postgresql://u:p@h/d"}) == "postgresql://u:p@h/d"


def test_relative_address_is_relative_to_the_file(tmp_path: Path) -> None:
    path = tmp_path / "antiphon.toml"
    path.write_text('[ledger]\naddress = "usage.db"\nretention_days = 90\n')
    assert load_config(path).ledger == LedgerSettings(address=str(tmp_path / "usage.db"), retention_days=90)


@pytest.mark.parametrize(
    ("section", "problem"),
    [
        ('address = "postgresql://u:hunter2@h/d"', "contains a password"),
        ('address = "mysql://h/d"', "not a known address"),
        ('address = "env:NOT_SET_ANYWHERE"', "NOT_SET_ANYWHERE is not set"),
        ("retention_days = 0", "retention_days"),
        ("retain = 3", "retain"),
    ],
)
def test_bad_settings_are_refused_with_their_line(tmp_path: Path, section: str, problem: str) -> None:
    path = tmp_path / "antiphon.toml"
    path.write_text(f"[ledger]\n{section}\n")
    with pytest.raises(ConfigError) as refused:
        load_config(path)
    assert problem in str(refused.value)
    assert "antiphon.toml:2" in str(refused.value)
    assert "hunter2" not in str(refused.value)


def test_rows_of_a_killed_process_are_recovered_once(
    address: str, database: Database, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The first three of five rows were committed before the process was killed."""
    folder = tmp_path / "journal"
    journal = RowJournal(folder, "killed")
    journal.append(1, [row(number) for number in range(1, 6)])
    journal.close(is_empty=False)  # as the kernel does
    (segment,) = folder.iterdir()
    with segment.open("ab") as file:
        file.write(b'[6,["r6",1,')  # cut in the midst of a write
    LedgerWriter(database, PriceTable).write("killed", 1, [row(1), row(2), row(3)])
    ledger = UsageLedger(lambda: open_operator_database(address), journal=folder, interval=0.01)
    ledger.recover()
    ledger.add((row(7),))
    assert ledger.flush(30)
    ledger.close()
    assert row_ids(database) == ["r1", "r2", "r3", "r4", "r5", "r7"]
    assert "recovered 2 rows" in caplog.text
    assert not list(folder.iterdir())


def test_requests_in_progress_of_a_killed_process_are_rows(address: str, database: Database, tmp_path: Path) -> None:
    folder = tmp_path / "journal"
    journal = RowJournal(folder, "killed")
    slots = [journal.begin(structs.replace(row(number), prompt_tokens=number)) for number in range(1, 5)]
    journal.begin(structs.replace(row(4), attempt=2, prompt_tokens=4, at=row(4).at + 1))
    journal.begin(row(5))
    journal.append(1, [], slots[:1])  # it had no row
    journal.append(1, [row(2)], slots[1:2])
    journal.append(2, [row(5)])  # killed before its slot was given back
    again = journal.begin(row(6))
    damaged = journal.begin(row(8))
    journal.close(is_empty=False)  # as the kernel does
    assert again == slots[1]
    with open(folder / "killed.sent", "r+b") as file:  # a machine that lost its power did not write all of it
        file.seek(damaged + 1)
        file.write(bytes(100))
    ledger = UsageLedger(lambda: open_operator_database(address), journal=folder, interval=0.01)
    ledger.recover()
    ledger.add((row(7),))
    assert ledger.flush(30)
    ledger.close()
    assert sorted(row_ids(database)) == ["r2", "r3", "r4", "r4", "r5", "r6", "r7"]
    tokens = database.rows("SELECT prompt_tokens FROM attempts WHERE request_id = 'r4' ORDER BY attempt")
    assert [count for (count,) in tokens] == [0, 4], "what the first attempt brought is not known"
    assert not list(folder.iterdir())


def test_the_journal_of_a_live_process_is_left_alone(tmp_path: Path) -> None:
    journal = RowJournal(tmp_path, "alive")
    journal.append(1, [row(1)])
    written: list[UsageRow] = []

    def write(writer: str, first: int, rows: Sequence[UsageRow]) -> int:
        assert (writer, first) == ("alive", 1)
        written.extend(rows)
        return len(rows)

    assert recover(tmp_path, write) == 0
    assert not written
    journal.close(is_empty=False)
    assert recover(tmp_path, write) == 1
    assert written == [row(1)]
    assert not list(tmp_path.iterdir())


def test_segments_are_deleted_when_their_rows_are_committed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("antiphon_gateway.ledger.journal._SEGMENT_BYTES", 100)
    journal = RowJournal(tmp_path, "w")
    for number in range(1, 5):
        journal.append(number, [row(number)])
    assert len(list(tmp_path.iterdir())) == 4
    journal.committed(2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["w-3.rows", "w-4.rows"]
    journal.close(is_empty=True)
    assert not list(tmp_path.iterdir())


def test_a_row_that_was_cut_by_a_full_disk_takes_none_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal, write = RowJournal(tmp_path, "killed"), os.write
    journal.append(1, [row(1)])
    with monkeypatch.context() as full:
        full.setattr(os, "write", lambda file, data: write(file, data[: len(data) // 2]))
        journal.append(2, [row(2)])
    journal.append(3, [row(3)])
    journal.append(4, [row(4)])
    journal.close(is_empty=False)
    found: list[tuple[int, list[str]]] = []

    def note(_: str, first: int, rows: Sequence[UsageRow]) -> int:
        found.append((first, [each.request_id for each in rows]))
        return len(rows)

    recover(tmp_path, note)
    assert found == [(1, ["r1"]), (3, ["r3", "r4"])]


def test_a_journal_that_cannot_be_written_is_reported_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("not a folder")
    ledger = UsageLedger(
        lambda: open_operator_database(str(tmp_path / "ledger.db")), journal=tmp_path / "file" / "rows", interval=0.01
    )
    ledger.add((row(1),))
    ledger.add((row(2),))
    assert ledger.flush(30)
    ledger.close()
    assert len([record for record in caplog.records if "only in memory" in record.getMessage()]) == 1
