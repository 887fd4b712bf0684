"""The picture of a tape: the page's own example, and what the real commands print about its tape."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

from terminal_picture import draw_terminal, first_example

_COLUMNS = 108
_COMMANDS = ("antiphon tape list tape.db", "antiphon tape show tape.db 1 | cut -c 1-104 | head -n 38", "cat miss.txt")


def take_tape_commands() -> None:
    """Write cassettes.svg."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-c", first_example("cassettes.md")], cwd=folder, check=True)
        path = f"{os.path.dirname(sys.executable)}{os.pathsep}{os.environ['PATH']}"
        environment = {**os.environ, "COLUMNS": str(_COLUMNS), "PATH": path, "TZ": "UTC"}
        shown = [
            subprocess.run(
                ["bash", "-c", command], cwd=folder, check=True, capture_output=True, text=True, env=environment
            ).stdout
            for command in _COMMANDS
        ]
    draw_terminal("cassettes.svg", "antiphon tape", zip(_COMMANDS, shown, strict=True), _COLUMNS)


if __name__ == "__main__":
    take_tape_commands()
