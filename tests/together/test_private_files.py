"""What holds conversations is its owner's alone from the moment it exists, whatever the umask is."""

from __future__ import annotations

import json
import logging
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from antiphon.errors import StoreDamaged
from antiphon.history import ModelInputEntry, SqliteStore
from antiphon.private_files import create_private_file, exposure, make_private_folder
from antiphon.tools.builtin import builtin_tools
from antiphon.tools.builtin.plans import PlanStore
from antiphon_gateway.state.file import StateFile

UMASKS = [0o000, 0o022, 0o077, 0o777]

# Reports every database that does not exist, or is open to others, when SQLite is asked to open it; and every looser folder.
WATCH = """
import os, stat, sys
def watch(event, given):
    if event == "sqlite3.connect" and str(given[0]).startswith("file:///") and "mode=rwc" in str(given[0]):
        path = str(given[0])[len("file://"):].split("?")[0]
        mode = stat.S_IMODE(os.stat(path).st_mode) if os.path.exists(path) else None
        if mode != 0o600:
            print(f"LOOSE {path} {mode}", flush=True)
    if event == "os.mkdir" and given[1] & 0o077 and str(given[0]).startswith(os.environ["HOME"]):
        print(f"LOOSE folder {given[0]} {given[1]:o}", flush=True)
sys.addaudithook(watch)
os.umask(0)
from antiphon.cli import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture(params=UMASKS, ids=lambda mask: f"umask {mask:03o}")
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    try:
        yield request.param
    finally:
        os.umask(before)


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A folder that every user may enter, as a project folder is."""
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o755)
    return folder


def mode(path: str | Path) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)


def modes(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): f"{mode(path):o}" for path in sorted(folder.rglob("*"))}


def test_databases_and_their_journals_are_private(tmp_path: Path, umask: int) -> None:
    folder = tmp_path / "new" / "data"
    make_private_folder(folder)
    make_private_folder(folder)
    with (
        SqliteStore(folder / "chats.db") as store,
        PlanStore(folder / "plans.db") as plans,
        closing(StateFile(folder / "responses.db")),
    ):
        store.create().append(ModelInputEntry.of("for my eyes only"))
        assert plans.list() is not None
        assert modes(tmp_path) == {"new": "700", "new/data": "700"} | {
            f"new/data/{name}.db{end}": "600"
            for name in ("chats", "plans", "responses")
            for end in ("", "-shm", "-wal")
        }


def test_the_folder_of_the_builtin_tools_is_private(tmp_path: Path, umask: int) -> None:
    builtin_tools(tmp_path / "data")
    assert set(modes(tmp_path).values()) == {"700", "600"}


@pytest.mark.parametrize("arguments", [["chat", "-p", "Hello", "-m", "offline"], ["history", "list"]])
def test_files_of_a_chat_are_private_at_every_moment(tmp_path: Path, arguments: list[str]) -> None:
    home = tmp_path / "home"
    environment = {"HOME": str(home), "PATH": os.environ["PATH"], "TERM": "dumb"}
    home.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", WATCH, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    assert "LOOSE" not in done.stdout, done.stdout
    if arguments[0] == "chat":
        assert done.returncode == 0, done.stderr
        assert (home / ".local/share/antiphon/history.db").exists()
        output = home / "talk.jsonl"
        exported = [sys.executable, "-c", WATCH, "history", "export", "last", "-o", str(output)]
        subprocess.run(exported, env=environment, check=True, capture_output=True)
        assert mode(output) == 0o600
        output.chmod(0o644)
        subprocess.run(exported, env=environment, check=True, capture_output=True)
        assert mode(output) == 0o644  # it was opened on purpose
        output.unlink()
    assert all(int(found, 8) & 0o077 == 0 for found in modes(home).values()), modes(home)


def test_a_linked_file_is_private_too(shared: Path) -> None:
    (shared / "link.db").symlink_to(shared / "real.db")
    with SqliteStore(shared / "link.db"):
        assert mode(shared / "real.db") == 0o600


def test_existing_files_keep_their_mode_and_are_warned_about_once(
    shared: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = shared / "chats.db"
    with SqliteStore(path):
        pass
    assert not caplog.records
    path.chmod(0o644)
    with caplog.at_level(logging.WARNING), SqliteStore(path) as store, SqliteStore(path):
        store.create()
        assert mode(f"{path}-wal") == 0o644  # SQLite goes by the database
    assert [record.getMessage() for record in caplog.records] == [
        f"{path} is open to other users (mode 0644); run: chmod 600 '{path}'"
    ]
    assert mode(path) == 0o644


def test_no_advice_about_a_file_of_another_program(shared: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = shared / "passwd"
    path.write_text("root:x:0:0:root:/root:/bin/bash\n" * 50)
    path.chmod(0o644)
    with caplog.at_level(logging.WARNING), pytest.raises(StoreDamaged):
        SqliteStore(path)
    assert not caplog.records


def test_a_private_folder_protects_its_files(shared: Path) -> None:
    path = shared / "notes"
    create_private_file(path)
    assert exposure(path) == exposure(shared / "missing") == exposure("/dev/null") == ""
    path.chmod(0o640)
    assert "mode 0640" in exposure(path)
    shared.chmod(0o700)
    assert exposure(path) == ""


def test_doctor_reports_files_that_others_can_read(tmp_path: Path) -> None:
    home = tmp_path / "home"
    environment = {"HOME": str(home), "PATH": os.environ["PATH"]}
    data = home / ".local/share/antiphon"
    doctor = [sys.executable, "-m", "antiphon", "doctor", "--offline", "--json"]

    def reported() -> list[str]:
        done = subprocess.run(doctor, env=environment, capture_output=True, text=True, cwd=tmp_path)
        return [one["said"] for one in json.loads(done.stdout) if one["what"] == "privacy"]

    make_private_folder(data)
    with SqliteStore(data / "history.db") as store, PlanStore(data / "plans.db"):
        store.create()
        assert reported() == []
        for folder in (data, *data.parents[:3]):
            folder.chmod(0o755)
        (data / "history.db").chmod(0o644)
        (data / "history.db-wal").chmod(0o604)
        (data / "plans.db").chmod(0o660)
        found = reported()
    assert [line.split(" is open")[0].rsplit("/", 1)[-1] for line in found] == [
        "antiphon",
        "history.db",
        "history.db-wal",
        "plans.db",
    ]
    assert "chmod 700" in found[0]
