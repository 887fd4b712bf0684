"""An output that is full or closed: the command says so, or does its work without it; there is no traceback."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

FULL = Path("/dev/full")
COMMANDS = [("history", "schema"), ("prices", "gpt-4o"), ("models", "gpt-4o"), ("--version",)]


@pytest.mark.skipif(not FULL.exists(), reason="this system has no device that is full")
@pytest.mark.parametrize("command", COMMANDS[:3], ids=" ".join)
def test_a_full_disk_is_an_error_in_words(command: tuple[str, ...]) -> None:
    with FULL.open("wb") as full:
        run = subprocess.run(
            [sys.executable, "-m", "antiphon", *command], stdout=full, stderr=subprocess.PIPE, check=False, timeout=60
        )
    assert (run.returncode, run.stderr) == (1, b"antiphon: cannot write all of the output: No space left on device\n")


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_closed_output_is_discarded(command: tuple[str, ...], closed: str) -> None:
    line = f"{sys.executable} -m antiphon {' '.join(command)} {closed}"
    run = subprocess.run(["/bin/sh", "-c", line], capture_output=True, check=False, timeout=60)
    assert (run.returncode, run.stderr) == (0, b"")
    assert bool(run.stdout) == (">&-" not in closed.split())
