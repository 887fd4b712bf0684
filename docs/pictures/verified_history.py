"""The picture of a verified history: what the real command prints before and after an entry is changed in the file."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

from terminal_picture import draw_terminal

_COLUMNS = 118
_CONVERSATION = """
import antiphon as ap

history = ap.SqliteStore("chats.db").create("Rain in Oslo")
history.append(ap.ModelInputEntry.of("Is it raining in Oslo?"))
history.append(ap.ModelOutputEntry.of("Yes: rain, 7 °C."))
"""
_CHANGE = """python -c 'import sqlite3; db = sqlite3.connect("chats.db")
db.execute("UPDATE entries SET body = CAST(replace(body, \\"Yes\\", \\"No!\\") AS BLOB)"); db.commit()'"""
_COMMANDS = ("antiphon history verify --store chats.db", _CHANGE, "antiphon history verify --store chats.db")


def take_verified_history() -> None:
    """Write history-verify.svg."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-c", _CONVERSATION], cwd=folder, check=True)
        path = f"{os.path.dirname(sys.executable)}{os.pathsep}{os.environ['PATH']}"
        environment = {**os.environ, "COLUMNS": str(_COLUMNS), "PATH": path}
        runs = [
            subprocess.run(
                ["bash", "-c", command], cwd=folder, capture_output=True, text=True, env=environment, check=False
            )
            for command in _COMMANDS
        ]
    assert [run.returncode for run in runs] == [0, 0, 1]
    shown = [run.stdout + run.stderr for run in runs]
    draw_terminal("history-verify.svg", "antiphon history verify", zip(_COMMANDS, shown, strict=True), _COLUMNS)


if __name__ == "__main__":
    take_verified_history()
