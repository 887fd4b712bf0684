"""The file of a tape: what is written comes back, private and in one piece; what is not a tape is refused and not changed."""

from __future__ import annotations

import os
import signal
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from antiphon.errors import TapeError
from antiphon.history.sql.sqlite import SqliteStore
from antiphon_devtools.cassettes.tape import Exchange, RecordedAnswer, RecordedRequest, Tape

EXCHANGE = Exchange(
    RecordedRequest(at=1, method="POST", path="/v1/x", query={"a": "b"}, headers={"h": "北"}, body=b'{"n":1}'),
    RecordedAnswer(
        status=200, headers={"c": "d"}, head_after=1500, is_stream=True, is_cut=True, pieces=[(0, b"a"), (9, b"\xff")]
    ),
)


def test_an_exchange_comes_back_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "tape.db"
    tape = Tape(path, records=True)
    assert [tape.add(EXCHANGE), tape.add(EXCHANGE)] == [1, 2]
    assert tape.redact_also(["X-Team"]) == ("x-team",)
    tape.close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["tape.db"]
    read = Tape(path)
    first, second = read.exchanges()
    assert (first.answer, second.request.id, first.request.headers) == (EXCHANGE.answer, 2, {"h": "北"})
    assert [request.body for request in read.requests()] == [b'{"n":1}'] * 2
    assert (read.redacted, read.answer(1).duration) == (("x-team",), 0.001509)
    with pytest.raises(TapeError, match=r"has no exchange 7; see `antiphon tape list"):
        read.answer(7)
    read.close()
    assert os.listdir(tmp_path) == ["tape.db"]  # reading leaves no journal beside a tape that is committed


def test_deleted_exchanges_are_gone_from_the_file(tmp_path: Path) -> None:
    path = tmp_path / "tape.db"
    tape = Tape(path, records=True)
    tape.add(Exchange(RecordedRequest(method="GET", path="/find-me"), RecordedAnswer(status=200)))
    tape.add(EXCHANGE)
    with pytest.raises(TapeError, match="has no exchange 9"):
        tape.delete([1, 9])
    assert len(list(tape.requests())) == 2
    tape.delete([1])
    tape.close()
    assert b"find-me" not in path.read_bytes()
    tape = Tape(path, records=True)
    assert tape.add(EXCHANGE) == 3  # a number is not used again
    tape.close()


def test_a_killed_recording_keeps_what_was_finished(tmp_path: Path) -> None:
    code = (
        "import os, sys; sys.path.insert(0, 'tests'); from antiphon_devtools.cassettes.tape import *\n"
        "tape = Tape(sys.argv[1], records=True)\n"
        "for n in range(3): tape.add(Exchange(RecordedRequest(method='GET', path=f'/{n}'), RecordedAnswer(status=200)))\n"
        "os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "tape.db")], check=False)
    assert done.returncode == -signal.SIGKILL
    tape = Tape(tmp_path / "tape.db")
    assert [request.path for request in tape.requests()] == ["/0", "/1", "/2"]
    tape.close()


def test_a_file_that_is_not_a_cassette_is_refused_and_not_changed(tmp_path: Path) -> None:
    with pytest.raises(TapeError, match=r"there is no tape at .*; record one: `antiphon serve --record"):
        Tape(tmp_path / "none.db")
    with pytest.raises(TapeError, match=r"the folder .* does not exist"):
        Tape(tmp_path / "no" / "tape.db", records=True)
    text = tmp_path / "text.db"
    text.write_text("hello, this is a text and not a database at all" * 100)
    history = tmp_path / "history.db"
    SqliteStore(history).close()
    foreign = tmp_path / "foreign.db"
    with closing(sqlite3.connect(foreign)) as db, db:
        db.execute("CREATE TABLE t (a)")
    db.close()
    for path in (text, history, foreign):
        before = path.read_bytes()
        for records in (False, True):
            with pytest.raises(TapeError, match="not a"):
                Tape(path, records=records)
        assert path.read_bytes() == before


def test_a_damaged_tape_is_named(tmp_path: Path) -> None:
    path = tmp_path / "tape.db"
    tape = Tape(path, records=True)
    for _ in range(200):
        tape.add(EXCHANGE)
    tape.close()
    data = bytearray(path.read_bytes())
    data[4096 * 3 : 4096 * 5] = os.urandom(4096 * 2)
    path.write_bytes(data)
    with pytest.raises(TapeError, match=r"damaged \(.*\); delete it and record it again"):
        list(Tape(path).exchanges())


def test_a_tape_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "tape.db"
    Tape(path, records=True).close()
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("PRAGMA user_version = 9")
    db.close()
    with pytest.raises(TapeError, match="newer Antiphon"):
        Tape(path)
