"""A store that was not closed is closed when its last reference goes."""

from __future__ import annotations

import gc
import subprocess
import sys
import warnings
from pathlib import Path

from antiphon.history import ModelInputEntry, SqliteStore


def test_a_forgotten_store_is_closed_without_a_warning(tmp_path: Path) -> None:
    def use_and_forget() -> None:
        store = SqliteStore(tmp_path / "chats.db")
        store.create().append(ModelInputEntry.of("hello"))
        assert store.count() == 1

    with warnings.catch_warnings(record=True) as complaints:
        warnings.simplefilter("always", ResourceWarning)
        use_and_forget()
        gc.collect()
    assert complaints == []
    assert not Path(f"{tmp_path}/chats.db-wal").exists(), "closing the last connection folds the log into the file"


def test_a_history_keeps_its_store_open(tmp_path: Path) -> None:
    history = SqliteStore(tmp_path / "chats.db").create()
    gc.collect()
    history.append(ModelInputEntry.of("still here"))
    assert history.version == 1


def test_a_program_that_exits_without_closing_prints_nothing(tmp_path: Path) -> None:
    code = "import antiphon as ap; ap.SqliteStore('chats.db').create().append(ap.ModelInputEntry.of('hi'))"
    run = subprocess.run(
        [sys.executable, "-Walways::ResourceWarning", "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert (run.stdout, run.stderr) == ("", "")
