"""The line number of every key and item of a TOML text.

`tomllib` does not report positions, and a configuration error needs its line. This scanner knows only where keys, strings,
lists and tables begin and end. It is given texts that `tomllib` accepted, so it validates nothing; names in keys are decoded by
`tomllib` itself.

Invariant: the paths are exactly those of the value that `tomllib` returns for the same text.
"""

from __future__ import annotations

import re
import tomllib
from bisect import bisect_left
from collections.abc import Mapping
from typing import Any

from antiphon_gateway.config.settings import ConfigPath

_BLANK = re.compile(r"(?:[ \t\n]|#[^\n]*)*")
_KEY = re.compile(r"""(?:"(?:\\.|[^"\\])*"|'[^']*'|[^="'\]])+""")
# A string in triple quotes may end with two more quotes that belong to it.
_STRING = re.compile(
    r'"""(?:\\.|[^\\])*?""""{0,2}' r"|'''.*?''''{0,2}" r'|"(?:\\.|[^"\\])*"' r"|'[^']*'",
    re.DOTALL,
)
_BARE_VALUE = re.compile(r"[^,\]}#\n]+")


def line_numbers(text: str) -> Mapping[ConfigPath, int]:
    """The line of every table, key and item of a valid TOML text."""
    return _Scanner(text.replace("\r\n", "\n")).scan()


class _Scanner:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = self._start = 0
        self._line_ends = [match.start() for match in re.finditer("\n", text)]
        self._lines: dict[ConfigPath, int] = {}
        self._lengths: dict[ConfigPath, int] = {}
        """How many tables each list of tables (`[[name]]`) has so far."""

    def scan(self) -> Mapping[ConfigPath, int]:
        table: ConfigPath = ()
        while not self._accept("", blank=True):
            if self._accept("[["):
                table = self._open_table(self._names(), is_item=True)
                self._at += 2
            elif self._accept("["):
                table = self._open_table(self._names(), is_item=False)
                self._at += 1
            else:
                self._pair(table)
        return self._lines

    def _open_table(self, names: list[str], *, is_item: bool) -> ConfigPath:
        """The path of the table whose header is next."""
        path: ConfigPath = ()
        for name in names[:-1] if is_item else names:
            path = self._record_line((*path, name))
            if path in self._lengths:  # keys under a list of tables belong to its last table
                path = (*path, self._lengths[path] - 1)
        if is_item:
            path = self._record_line((*path, names[-1]))
            number = self._lengths.get(path, 0)
            self._lengths[path] = number + 1
            path = self._record_line((*path, number))
        return path

    def _pair(self, table: ConfigPath) -> None:
        """A key and its value."""
        path = table
        for name in self._names():
            path = self._record_line((*path, name))
        self._at += 1  # the equals sign
        self._value(path)

    def _value(self, path: ConfigPath) -> None:
        self._skip()
        if self._accept("["):
            number = 0
            while not self._accept("]", blank=True):
                self._value(self._record_line((*path, number)))
                self._accept(",", blank=True)
                number += 1
        elif self._accept("{"):
            while not self._accept("}", blank=True):
                self._pair(path)
                self._accept(",", blank=True)
        else:
            match = _STRING.match(self._text, self._at) or _BARE_VALUE.match(self._text, self._at)
            assert match is not None
            self._at = match.end()

    def _names(self) -> list[str]:
        """The names of the dotted key that is next."""
        self._skip()
        match = _KEY.match(self._text, self._at)
        assert match is not None
        inner: Any = tomllib.loads(f"{match[0]} = 0")
        names: list[str] = []
        while isinstance(inner, dict):
            ((name, inner),) = inner.items()
            names.append(name)
        self._start, self._at = self._at, match.end()
        return names

    def _record_line(self, path: ConfigPath) -> ConfigPath:
        # An item is at the current position; a key began before the names that were just read.
        offset = self._at if isinstance(path[-1], int) else self._start
        self._lines.setdefault(path, bisect_left(self._line_ends, offset) + 1)
        return path

    def _accept(self, sign: str, *, blank: bool = False) -> bool:
        """Whether the sign is next; if so it is consumed. An empty sign is the end of the text."""
        if blank:
            self._skip()
        if not sign:
            return self._at >= len(self._text)
        if not self._text.startswith(sign, self._at):
            return False
        self._at += len(sign)
        return True

    def _skip(self) -> None:
        """Skip whitespace and comments."""
        match = _BLANK.match(self._text, self._at)
        assert match is not None
        self._at = match.end()
