"""The picture of `antiphon cache`: the page's own example, run by the real command, drawn by rich as an SVG."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

from terminal_picture import draw_terminal, first_example

_COLUMNS = 104


def take_cache_table() -> None:
    """Write cache-doctor.svg."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-c", first_example("cache-doctor.md")], cwd=folder, check=True)
        command = [sys.executable, "-m", "antiphon", "cache", "requests.jsonl"]
        environment = {**os.environ, "COLUMNS": str(_COLUMNS)}
        shown = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True, env=environment).stdout
    draw_terminal("cache-doctor.svg", "antiphon cache", [("antiphon cache requests.jsonl", shown)], _COLUMNS)


if __name__ == "__main__":
    take_cache_table()
