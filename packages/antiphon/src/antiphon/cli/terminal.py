"""Text for a terminal: escaped, styled where styles are shown, in columns that fit, in pages that can be read.

Everything the commands print passes through `write`, `write_error` or `data_writer`. They escape what a model, a tool, a file or
a provider could use to move the cursor or to reorder a line; only `Styled` text, which is escaped already, may hold the escape
sequences of a style. So text that no caller thought of is escaped.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime

import msgspec

from antiphon.cli.program import runnable
from antiphon.text import one_line

_STYLES = {"dim": "2", "bold": "1", "green": "32", "yellow": "33", "blue": "34", "red": "31", "cyan": "36"}
_C0 = [code for code in range(32) if chr(code) not in "\n\t"]
_C1 = range(0x80, 0xA0)
_BIDI = (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_SEPARATORS = (0x2028, 0x2029)
_SURROGATES = range(0xD800, 0xE000)  # from an argument or a file name that is not UTF-8; they cannot be encoded
_JSON_ESCAPES = {code: f"\\u{code:04x}" for code in (*_C0, 0x7F, *_C1, *_BIDI, *_SEPARATORS)}
_ESCAPES = (
    {code: f"\\u{code:04x}" for code in (*_BIDI, *_SEPARATORS, *_SURROGATES)}
    | {code: f"\\x{code:02x}" for code in _C1}
    | {code: chr(0x2400 + code) for code in _C0}
    | {0x7F: "␡"}
)

_WORD = re.compile(r"\s+|[\u2e80-\uffef]|[^\s\u2e80-\uffef]+")

BIDI_CONTROLS = tuple(map(chr, _BIDI))
"""The characters with Unicode's property Bidi_Control: they change the order in which a line is shown."""


class Styled(str):
    """Text whose control characters are escaped, and which may hold escape sequences of a style."""

    __slots__ = ()


def as_sentence(summary: str) -> str:
    """The summary of a command as a sentence for its help."""
    return f"{summary[:1].upper()}{summary[1:]}."


def use_color() -> bool:
    """Whether standard output shows colours: it is a terminal, and its user did not ask for none."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def escape_control_chars(text: str) -> str:
    """The text with control characters and bidirectional controls made visible; new lines and tabs stay."""
    return text if isinstance(text, Styled) else text.translate(_ESCAPES)


def styled(text: str, style: str) -> Styled:
    """The text, escaped, in a style if styles are shown."""
    shown = escape_control_chars(text)
    return Styled(f"\x1b[{_STYLES[style]}m{shown}\x1b[0m" if shown and use_color() else shown)


def joined(*pieces: str) -> Styled:
    """One text of several; those that are not styled are escaped."""
    return Styled("".join(map(escape_control_chars, pieces)))


def width_of(text: str) -> int:
    """How many columns the text takes: a Chinese character takes two, an accent on its letter none."""
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text
    )


def ellipsize(text: str, columns: int) -> str:
    """The text in one line of at most `columns`, with an ellipsis where it was cut."""
    line = one_line(text)
    if width_of(line) <= columns:
        return line
    kept, used = [], 1
    for char in line:
        used += width_of(char)
        if used > columns:
            break
        kept.append(char)
    return "".join(kept) + "…"


def wrapped(text: str, columns: int) -> Iterator[str]:
    """The lines of a text, none wider than `columns`, broken between words; Chinese is broken anywhere."""
    for paragraph in text.split("\n"):
        line, used = "", 0
        for piece in _pieces(paragraph, columns):
            width = width_of(piece)
            if used + width > columns:
                yield line.rstrip()
                line, used = "", 0
                if piece.isspace():
                    continue
            line += piece
            used += width
        yield line.rstrip()


def _pieces(text: str, columns: int) -> Iterator[str]:
    for word in _WORD.findall(text):
        if width_of(word) <= columns:
            yield word
        else:
            yield from word


def format_time(time: datetime) -> str:
    """A time to the minute, in the time zone of this machine."""
    return f"{time.astimezone():%Y-%m-%d %H:%M}"


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], *, right_from: int | None = None) -> Iterable[str]:
    """Columns under their heads. On a terminal the last one is shortened to the room that is left. Cells are escaped.

    From the column `right_from` on, cells are aligned to the right, as numbers are.
    """
    shown = [heads, *([escape_control_chars(cell) for cell in row] for row in rows)]
    widths = [max(map(width_of, column)) for column in zip(*shown, strict=True)]
    if sys.stdout.isatty():
        room = shutil.get_terminal_size((120, 24)).columns - sum(widths[:-1]) - 2 * (len(heads) - 1)
        widths[-1] = min(widths[-1], max(20, room))
    for number, row in enumerate(shown):
        cells = []
        for column, (cell, width) in enumerate(zip(row, widths, strict=True)):
            shown_cell = ellipsize(cell, width)
            padding = " " * (width - width_of(shown_cell))
            is_right = right_from is not None and column >= right_from
            cells.append(padding + shown_cell if is_right else shown_cell + padding)
        line = "  ".join(cells).rstrip()
        yield styled(line, "bold") if number == 0 else line


def write(lines: Iterable[str], *, paged: bool = False) -> None:
    """Print lines, escaped; on a terminal, long output through the user's pager."""
    if not (paged and sys.stdout.isatty()):
        for line in lines:
            print(escape_control_chars(line))
        return
    text = "\n".join(map(escape_control_chars, lines)) + "\n"
    pager = _pager()
    if text.count("\n") < shutil.get_terminal_size().lines or not pager:
        sys.stdout.write(text)
        return
    subprocess.run(pager, input=text.encode(), env={**os.environ, "LESS": os.environ.get("LESS", "FRX")}, check=False)


def write_error(*lines: str) -> None:
    """Print lines on standard error, escaped, and at once. Instructions in them can be run as they are printed."""
    for line in lines:
        print(escape_control_chars(runnable(line)), file=sys.stderr, flush=True)


def data_writer() -> Callable[[bytes], object]:
    """Writes JSON to standard output: byte for byte to a pipe or a file, with `\\u` escapes of the same meaning to a terminal."""
    sys.stdout.flush()
    if not sys.stdout.isatty():
        return sys.stdout.buffer.write

    def write_escaped(data: bytes) -> object:
        return sys.stdout.buffer.write(data.decode("utf-8", "backslashreplace").translate(_JSON_ESCAPES).encode())

    return write_escaped


def write_json(value: object) -> None:
    """Write a value to standard output as indented JSON."""
    data_writer()(msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")


def write_json_lines(values: Iterable[object]) -> None:
    """Write values to standard output as JSON, one per line."""
    write_bytes = data_writer()
    for value in values:
        write_bytes(msgspec.json.encode(value) + b"\n")


def _pager() -> list[str]:
    """The user's pager as a command; empty if there is none, or if PAGER is set to nothing or cannot be parsed."""
    try:
        command = shlex.split(os.environ.get("PAGER", "less"))
    except ValueError:  # a quote without its end
        return []
    return command if command and shutil.which(command[0]) else []
