"""Commands and their real output, drawn by rich as an SVG."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from rich.console import Console
from rich.text import Text

HERE = Path(__file__).parent


def draw_terminal(name: str, title: str, shown: Iterable[tuple[str, str]], columns: int) -> None:
    """Write `name`: each command with the output it printed, which may be styled."""
    console = Console(record=True, width=columns, file=open(os.devnull, "w"), force_terminal=True)  # noqa: SIM115
    for command, output in shown:
        console.print(Text(f"$ {command}", style="bold"))
        console.print(Text.from_ansi(output.rstrip()))
    drawn = re.sub(r"@font-face \{.*?\}", "", console.export_svg(title=title), flags=re.DOTALL)
    (HERE / name).write_text(drawn)  # without fonts of another host


def first_example(page: str) -> str:
    """The first Python block of a page."""
    found = re.search(r"^```python\n(.*?)^```", (HERE.parent / page).read_text(), re.DOTALL | re.MULTILINE)
    assert found is not None, "the page begins with its example"
    return found[1]
