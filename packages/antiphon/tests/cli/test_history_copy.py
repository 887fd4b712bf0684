"""`antiphon history` on a server, and `antiphon history copy` between stores: run as a user runs it."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from antiphon.cli import main
from antiphon.history import HistoryStore, ModelInputEntry, ModelOutputEntry, SqliteStore
from antiphon.history.export import copy_conversation
from antiphon.history.location import open_store
from antiphon.parts import Image
from support.installed import needs_chat
from support.postgres_server import PostgresServer

PASSWORD = "kanarie9"


Antiphon: TypeAlias = Callable[..., tuple[int, str, str]]


@pytest.fixture
def antiphon(capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Antiphon:
    def run(*arguments: object, **environment: str) -> tuple[int, str, str]:
        for name, value in {"COLUMNS": "160", "TZ": "UTC", **environment}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
        code = main([str(argument) for argument in arguments])
        output = capfdbinary.readouterr()
        return code, output.out.decode(), output.err.decode()

    return run


def filled(store: HistoryStore, number: int = 3) -> list[str]:
    ids = []
    for talk in range(number):
        history = store.create(f"talk {talk}", tags=["x"])
        history.append(ModelInputEntry.of(f"今天 {talk}", Image("image/png", "A" * 70_000)))
        history.append(ModelOutputEntry.of("yes"))
        ids.append(history.id)
    ids.append(store.open(ids[0]).fork(1).id)
    return sorted(ids)


def exported(store: HistoryStore) -> dict[str, list[bytes]]:
    return {info.id: list(store.export_lines(info.id)) for info in store.list(limit=1000)}


def test_a_copy_to_a_server_and_back_is_equal(tmp_path: Path, postgres: str, antiphon: Antiphon) -> None:
    here, back = tmp_path / "chats.db", tmp_path / "new" / "back.db"
    with SqliteStore(here) as store:
        ids = filled(store)
        before = exported(store)
    code, out, err = antiphon("history", "copy", "--all", "--from", here, "--to", postgres)
    assert (code, err) == (0, "")
    assert out == "4 conversations, 7 entries written: 4 copied\n"
    with open_store(postgres) as server:
        assert exported(server) == before
        assert [hit.sequence_number for hit in server.search("今天", limit=9)] == [1] * 4
    code, out, _ = antiphon("history", "copy", ids[0], ids[1][-8:], "--to", back, ANTIPHON_STORE=postgres)
    assert out == "2 conversations, 4 entries written: 2 copied\n"
    with SqliteStore(back) as store:
        assert exported(store) == {each: before[each] for each in ids[:2]}


def test_a_copy_is_finished_by_making_it_again(tmp_path: Path, postgres: str, antiphon: Antiphon) -> None:
    here = tmp_path / "chats.db"
    with SqliteStore(here) as store, open_store(postgres) as server:
        ids = filled(store)
        for each in ids[:3]:  # as far as an interrupted copy came
            copy_conversation(store, server, each)
        store.open(ids[0]).append(ModelInputEntry.of("one more", Image("image/png", "B" * 70_000)))
        server.open(ids[1]).append(ModelInputEntry.of("another talk"))
        for where, text in ((store, "a"), (server, "b")):
            where.open(ids[2]).append(ModelInputEntry.of(text))
    code, out, _ = antiphon("history", "copy", "--all", "--from", here, "--to", postgres)
    assert code == 1
    assert out.splitlines()[:3] == [
        f"{ids[0]}  brought up to date, 1 new entries",
        f"{ids[1]}  left alone: ahead there (there it has 3 entries, here 2)",
        f"{ids[2]}  left alone: not the same there (from entry 3 on it says something else there)",
    ]
    assert out.splitlines()[3].startswith("4 conversations, 2 entries written: 1 copied, 1 brought up to date, 1 left")
    with SqliteStore(here) as store, open_store(postgres) as server:
        for each in (ids[0], ids[3]):
            assert exported(server)[each] == exported(store)[each]
        assert copy_conversation(store, server, ids[0]).status == "same"


def test_a_history_that_cannot_be_copied_is_refused_in_one_line(
    tmp_path: Path, postgres: str, antiphon: Antiphon
) -> None:
    here = tmp_path / "chats.db"
    refused: dict[tuple[object, ...], str] = {
        ("--all", "--from", here, "--to", postgres): "there is no store at",
        ("--all", "--from", postgres, "--to", here): "there is no store at postgresql://",
        ("--from", postgres, "--to", here): "no conversations given",
        ("x", "--all", "--from", postgres, "--to", here): "no conversations given",
        ("--all", "--from", here, "--to", here): "the same store",
    }
    for arguments, complaint in refused.items():
        code, out, err = antiphon("history", "copy", *arguments)
        assert (code, out) == (1, "")
        assert complaint in err
        assert err.count("\n") == 1
    assert not here.exists()


def test_a_terminal_sees_how_far_it_is(tmp_path: Path) -> None:
    with SqliteStore(tmp_path / "a.db") as store:
        filled(store)
    master, slave = pty.openpty()
    command = [sys.executable, "-m", "antiphon", "history", "copy", "--all", "--from", "a.db", "--to", "b.db"]
    subprocess.run(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=slave, check=True)
    os.close(slave)
    shown = os.read(master, 65536).decode()
    os.close(master)
    assert "\r\x1b[K4 of 4: " in shown
    assert shown.endswith("\r\x1b[K")


@needs_chat
def test_the_commands_take_a_server_where_they_take_a_file(
    postgres: str, antiphon: Antiphon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    with open_store(postgres) as store:
        ids = filled(store)
    code, out, _ = antiphon("history", "list", "--store", postgres)
    assert code == 0
    assert all(each in out for each in ids)
    code, out, _ = antiphon("history", "search", "今天", ANTIPHON_STORE=postgres)
    assert out.count("\n") == 5
    _, lines, _ = antiphon("history", "export", ids[0], "--store", postgres)
    assert lines.count("\n") == 4
    code, out, _ = antiphon("chat", "-p", "hello", "-m", "offline/plain", "--store", postgres)
    assert (code, out != "") == (0, True)
    code, out, _ = antiphon("history", "show", "last", "--store", postgres)
    assert "hello" in out
    code, out, _ = antiphon("doctor", "--offline", ANTIPHON_STORE=postgres)
    assert "on a server; not asked" in out


@needs_chat
@pytest.mark.parametrize("command", [("history", "list"), ("chat", "-p", "hi", "-m", "offline/plain"), ("doctor",)])
def test_a_server_that_is_away_is_one_line_without_the_password(
    postgres_server: PostgresServer,
    command: tuple[str, ...],
    antiphon: Antiphon,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    postgres_server.stop()
    place = f"postgresql://someone:{PASSWORD}@127.0.0.1:{postgres_server.port}/chats"
    code, out, err = antiphon(*command, ANTIPHON_STORE=place)
    assert code == 1
    assert f"127.0.0.1:{postgres_server.port}/chats does not answer" in out + err
    assert PASSWORD not in out + err
    assert "Traceback" not in out + err
