"""On which line of a TOML text each key and each item stands.

The standard library reads TOML but forgets where things were, and an error without its line is half an error. This scanner knows
just enough to tell: where keys, strings, lists and tables begin and end. It is given only texts that `tomllib` has read, so it
judges nothing; names in keys, escapes and all, are read by `tomllib` itself.

Invariant: the places are exactly those of the value that `tomllib` gives for the same text.
"""

from __future__ import annotations

import re
import tomllib
from bisect import bisect_left
from collections.abc import Mapping
from typing import Any

from antiphon.gateway.config.settings import Place

_BLANK = re.compile(r"(?:[ \t\n]|#[^\n]*)*")
_KEY = re.compile(r"""(?:"(?:\\.|[^"\\])*"|'[^']*'|[^="'\]])+""")
# A string of three quotes may end with two more of them that are its own.
_STRING = re.compile(
    r'"""(?:\\.|[^\\])*?""""{0,2}' r"|'''.*?''''{0,2}" r'|"(?:\\.|[^"\\])*"' r"|'[^']*'",
    re.DOTALL,
)
_PLAIN = re.compile(r"[^,\]}#\n]+")


def places_of(text: str) -> Mapping[Place, int]:
    """The line of every table, key and item of a text that is TOML."""
    return _Scanner(text.replace("\r\n", "\n")).scanned()


class _Scanner:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = self._start = 0
        self._line_ends = [found.start() for found in re.finditer("\n", text)]
        self._lines: dict[Place, int] = {}
        self._lengths: dict[Place, int] = {}
        """How many tables each list of tables (`[[name]]`) has so far."""

    def scanned(self) -> Mapping[Place, int]:
        table: Place = ()
        while not self._is_next("", blank=True):
            if self._is_next("[["):
                table = self._opened(self._names(), is_item=True)
                self._at += 2
            elif self._is_next("["):
                table = self._opened(self._names(), is_item=False)
                self._at += 1
            else:
                self._pair(table)
        return self._lines

    def _opened(self, names: list[str], *, is_item: bool) -> Place:
        """The place of a table whose head is here."""
        place: Place = ()
        for name in names[:-1] if is_item else names:
            place = self._noted((*place, name))
            if place in self._lengths:  # what is said of a list of tables is meant for its last
                place = (*place, self._lengths[place] - 1)
        if is_item:
            place = self._noted((*place, names[-1]))
            number = self._lengths.get(place, 0)
            self._lengths[place] = number + 1
            place = self._noted((*place, number))
        return place

    def _pair(self, table: Place) -> None:
        """A key and its value."""
        place = table
        for name in self._names():
            place = self._noted((*place, name))
        self._at += 1  # the equals sign
        self._value(place)

    def _value(self, place: Place) -> None:
        self._skip()
        if self._is_next("["):
            number = 0
            while not self._is_next("]", blank=True):
                self._value(self._noted((*place, number)))
                self._is_next(",", blank=True)
                number += 1
        elif self._is_next("{"):
            while not self._is_next("}", blank=True):
                self._pair(place)
                self._is_next(",", blank=True)
        else:
            found = _STRING.match(self._text, self._at) or _PLAIN.match(self._text, self._at)
            assert found is not None
            self._at = found.end()

    def _names(self) -> list[str]:
        """The names of the dotted key that is here."""
        self._skip()
        found = _KEY.match(self._text, self._at)
        assert found is not None
        inner: Any = tomllib.loads(f"{found[0]} = 0")
        names: list[str] = []
        while isinstance(inner, dict):
            ((name, inner),) = inner.items()
            names.append(name)
        self._start, self._at = self._at, found.end()
        return names

    def _noted(self, place: Place) -> Place:
        # An item stands where the scanner is; a key began before the names that were just read.
        offset = self._at if isinstance(place[-1], int) else self._start
        self._lines.setdefault(place, bisect_left(self._line_ends, offset) + 1)
        return place

    def _is_next(self, sign: str, *, blank: bool = False) -> bool:
        """Whether the sign is next, which is then passed; an empty one is the end of the text."""
        if blank:
            self._skip()
        if not sign:
            return self._at >= len(self._text)
        if not self._text.startswith(sign, self._at):
            return False
        self._at += len(sign)
        return True

    def _skip(self) -> None:
        """Pass what says nothing."""
        found = _BLANK.match(self._text, self._at)
        assert found is not None
        self._at = found.end()
