"""Where a turn is drawn: `commit` text for good, above; `live` text below it, drawn again and again.

What is committed goes into the scrollback once and is never written again. What is live is asked for when it is drawn, and is
gone when something is committed over it. `flush` does both in one write, so nothing flickers.

`RegionSurface` is a surface with nothing but a terminal. It remembers the lines it drew, and counts at the next flush how many
rows they take by then: a window that became narrower has wrapped them.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Callable
from typing import Protocol, TextIO

from antiphon.cli.terminal import width_of

_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
_BEGIN, _END = "\x1b[?2026h", "\x1b[?2026l"  # one frame, for terminals that know how; the others pass over it


class Surface(Protocol):
    """A place to draw on."""

    live: Callable[[], str]

    def commit(self, text: str) -> None:
        """Lines that stay, from the next flush on."""

    async def flush(self) -> None:
        """Draw."""


class RegionSurface:
    """A surface on a bare terminal: what is live stands in the last lines, below what was written."""

    def __init__(self, output: TextIO | None = None) -> None:
        self.live: Callable[[], str] = str
        self._output = sys.stdout if output is None else output
        self._committed: list[str] = []
        self._drawn: list[str] = []

    def commit(self, text: str) -> None:
        self._committed.append(text)

    async def flush(self) -> None:
        columns, rows = shutil.get_terminal_size((80, 24))
        lines = self.live().split("\n")[-(rows - 1) :]
        if lines == [""]:
            lines = []
        if not self._committed and lines == self._drawn:
            return
        committed = "".join(f"{text}\n" for text in self._committed)
        self._output.write(f"{_BEGIN}{self._erased(columns)}{committed}{chr(10).join(lines)}{_END}")
        self._output.flush()
        self._committed.clear()
        self._drawn = lines

    def _erased(self, columns: int) -> str:
        """What takes the live lines away."""
        rows = sum(_rows_of(_ESCAPE.sub("", line), columns) for line in self._drawn)
        if not rows:
            return ""
        up = f"\x1b[{rows - 1}A" if rows > 1 else ""
        return f"\r{up}\x1b[J"


def _rows_of(line: str, columns: int) -> int:
    """How many rows a line takes; a wide character that does not fit into one begins the next."""
    rows, used = 1, 0
    for char in line:
        width = width_of(char)
        if used + width > columns:
            rows, used = rows + 1, 0
        used += width
    return rows
