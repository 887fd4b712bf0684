"""The operator database of a process is closed only when no thread uses it."""

from __future__ import annotations

import threading
from pathlib import Path

from antiphon.gateway.ledger.database import OperatorDatabase
from antiphon.history.sql.database import Database


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
