"""The picture of `antiphon cache`: the page's own example, run by the real command, drawn by rich as an SVG."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

HERE = Path(__file__).parent
_COLUMNS = 104


def take_cache_table() -> None:
    """Write cache-doctor.svg."""
    example = re.search(
        r"^```python\n(.*?)^```", (HERE.parent / "cache-doctor.md").read_text(), re.DOTALL | re.MULTILINE
    )
    assert example is not None, "the page begins with its example"
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-c", example[1]], cwd=folder, check=True)
        command = [sys.executable, "-m", "antiphon", "cache", "requests.jsonl"]
        environment = {**os.environ, "COLUMNS": str(_COLUMNS)}
        shown = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True, env=environment).stdout
    console = Console(record=True, width=_COLUMNS, file=open(os.devnull, "w"), force_terminal=True)  # noqa: SIM115
    console.print(Text("$ antiphon cache requests.jsonl", style="bold"))
    console.print(Text(shown.rstrip()))
    drawn = re.sub(r"@font-face \{.*?\}", "", console.export_svg(title="antiphon cache"), flags=re.DOTALL)
    (HERE / "cache-doctor.svg").write_text(drawn)  # without fonts of another host


if __name__ == "__main__":
    take_cache_table()
