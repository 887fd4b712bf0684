"""Text for a terminal: colours where they are seen, columns that fit, pages that can be read.

Nothing a model, a tool or a stranger wrote may move the cursor: control characters are shown, not sent.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import unicodedata
from collections.abc import Iterable, Sequence

_STYLES = {"dim": "2", "bold": "1", "green": "32", "yellow": "33", "blue": "34", "red": "31", "cyan": "36"}
_VISIBLE = {code: chr(0x2400 + code) for code in range(32) if chr(code) not in "\n\t"} | {0x7F: "␡"}
_VISIBLE |= {code: f"\\x{code:02x}" for code in range(0x80, 0xA0)}


def is_coloured() -> bool:
    """Whether colours would be seen: on a terminal whose user did not ask for none."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def styled(text: str, style: str) -> str:
    """The text in a style, if styles are seen."""
    return f"\x1b[{_STYLES[style]}m{text}\x1b[0m" if text and is_coloured() else text


def harmless(text: str) -> str:
    """The text with its control characters made visible."""
    return text.translate(_VISIBLE)


def width_of(text: str) -> int:
    """How many columns the text takes: a Chinese character takes two, an accent on its letter none."""
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text
    )


def cut(text: str, columns: int) -> str:
    """The text in one line of at most `columns`, with an ellipsis where it was cut."""
    line = " ".join(text.split())
    if width_of(line) <= columns:
        return line
    kept, used = [], 1
    for char in line:
        used += width_of(char)
        if used > columns:
            break
        kept.append(char)
    return "".join(kept) + "…"


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterable[str]:
    """Columns under their heads; the last one takes the room that is left."""
    widths = [max(map(width_of, column)) for column in zip(heads, *rows, strict=True)]
    room = max(20, shutil.get_terminal_size((120, 24)).columns - sum(widths[:-1]) - 2 * (len(heads) - 1))
    widths[-1] = min(widths[-1], room)
    for number, row in enumerate([heads, *rows]):
        cells = [cut(cell, width) for cell, width in zip(row, widths, strict=True)]
        line = "  ".join(
            cell + " " * (width - width_of(cell)) for cell, width in zip(cells, widths, strict=True)
        ).rstrip()
        yield styled(line, "bold") if number == 0 else line


def write(lines: Iterable[str], *, paged: bool = False) -> None:
    """Print lines; on a terminal, long output through the user's pager."""
    if not (paged and sys.stdout.isatty()):
        for line in lines:
            print(line)
        return
    text = "\n".join(lines) + "\n"
    pager = os.environ.get("PAGER", "less")
    if text.count("\n") < shutil.get_terminal_size().lines or not shutil.which(pager.split()[0]):
        sys.stdout.write(text)
        return
    subprocess.run(
        pager.split(), input=text.encode(), env={**os.environ, "LESS": os.environ.get("LESS", "FRX")}, check=False
    )
