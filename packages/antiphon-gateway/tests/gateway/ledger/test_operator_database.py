"""The operator database: closed only when no thread uses it, and a journal for each."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from antiphon.history.sql.database import Database
from antiphon_gateway.ledger.database import OperatorDatabase, journal_folder


def test_close_waits_for_the_calls_in_progress(tmp_path: Path) -> None:
    database = OperatorDatabase(str(tmp_path / "ledger.db"))
    has_begun, may_end, is_closed = threading.Event(), threading.Event(), threading.Event()
    rows: list[object] = []

    def call(opened: Database) -> None:
        has_begun.set()
        assert may_end.wait(20)
        rows.extend(opened.rows("SELECT count(*) FROM usage"))

    def close() -> None:
        database.close()
        is_closed.set()

    using = threading.Thread(target=database.run_now, args=(call,))
    using.start()
    assert has_begun.wait(20)
    closing = threading.Thread(target=close)
    closing.start()
    assert not is_closed.wait(0.1)
    may_end.set()
    using.join(20)
    closing.join(20)
    assert is_closed.is_set()
    assert rows == [(0,)]
    assert database.run_now(lambda opened: opened.rows("SELECT count(*) FROM usage")) == [(0,)]  # opened again
    database.close()


def test_each_database_has_a_journal_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    server = "postgresql://gateway:secret@db.internal:5432"
    addresses = [
        str(tmp_path / "a.db"),
        str(tmp_path / "b.db"),
        f"{server}/production",
        f"{server}/staging",
        f"{server}/production?schema=other",
        "postgresql://gateway:secret@db2.internal:5432/production",
    ]
    folders = [journal_folder(address) for address in addresses]
    assert len(set(folders)) == len(addresses), "the rows of one database would be written to another"
    same = "postgresql://other:rotated@db.internal:5432/production?connect_timeout=3"
    assert journal_folder(same) == journal_folder(f"{server}/production")
    assert all("secret" not in str(folder) for folder in folders)
