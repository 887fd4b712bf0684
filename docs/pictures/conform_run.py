"""The picture of `antiphon conform`: the whole suite against a real gateway, drawn by rich as an SVG."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from terminal_picture import draw_terminal

_COLUMNS = 92
_SHOWN = "http://127.0.0.1:8000"
_KEY = "sk-conform"


def take_conform_run() -> None:
    """Write conformance.svg."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "COLUMNS": str(_COLUMNS), "CONFORM_KEY": _KEY, "ANTIPHON_HOME": folder}
        program = [sys.executable, "-m", "antiphon"]
        config = Path(folder) / "conform.toml"
        setup = subprocess.run([*program, "conform", "--setup", "antiphon"], check=True, capture_output=True, text=True)
        config.write_text(setup.stdout)
        serve = [*program, "serve", "--config", str(config), "--port", "0", "--format-port", "0"]
        log = Path(folder) / "serve.log"
        with log.open("w") as written, subprocess.Popen(serve, env=environment, stderr=written) as gateway:
            try:
                command = [*program, "conform", _address(log), "--key", _KEY]
                shown = subprocess.run(command, capture_output=True, text=True, env=environment, check=True).stdout
            finally:
                gateway.terminate()
    commands = [
        ("antiphon conform --setup antiphon > conform.toml", ""),
        ("antiphon serve --config conform.toml &", ""),
        (f"antiphon conform {_SHOWN} --key {_KEY}", shown),
    ]
    draw_terminal("conformance.svg", "antiphon conform", commands, _COLUMNS)


def _address(log: Path) -> str:
    """Where the gateway listens, as soon as its log says so."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if found := re.search(r"listening on (http://\S+)", log.read_text()):
            return found[1]
        time.sleep(0.05)
    raise TimeoutError(log.read_text())


if __name__ == "__main__":
    take_conform_run()
