"""What a docstring says: a description for the tool, and words for its arguments.

Three ways of writing are read, plainly and line by line; none needs a parser:

    Google      Args:                    NumPy   Parameters        reST   :param city: Which city.
                    city (str): Which.           ----------
                                                 city : str
                                                     Which city.

The description is what stands before the first section. Lines that are indented deeper than an argument go on describing it.
"""

from __future__ import annotations

import inspect
import re

from msgspec import Struct

_ARGUMENT_SECTIONS = {
    "args",
    "arguments",
    "parameters",
    "params",
    "keyword args",
    "keyword arguments",
    "other parameters",
}
_OTHER_SECTIONS = {
    *("returns", "return", "yields", "yield", "raises", "raise", "warns", "example", "examples", "note", "notes"),
    *("see also", "references", "attributes", "warning", "warnings", "todo"),
}
_GOOGLE_ARGUMENT = re.compile(r"\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)")
_NUMPY_ARGUMENT = re.compile(r"(\*{0,2}\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?")
_REST_FIELD = re.compile(r":(\w+)(?:\s+([^:]*))?:\s*(.*)")
_REST_ARGUMENT_FIELDS = {"param", "parameter", "arg", "argument", "key", "keyword"}


class Docstring(Struct, frozen=True):
    """A docstring, taken apart."""

    description: str = ""
    arguments: dict[str, str] = {}


def read_docstring(text: str | None) -> Docstring:
    """The description and the arguments of a docstring, whichever way it is written."""
    if not text:
        return Docstring()
    lines = inspect.cleandoc(text).splitlines()
    reader = _Reader()
    for number, line in enumerate(lines):
        reader.read(line, lines[number + 1] if number + 1 < len(lines) else "")
    return Docstring(
        "\n".join(reader.description).strip(),
        {name: " ".join(words) for name, words in reader.arguments.items() if words},
    )


class _Reader:
    def __init__(self) -> None:
        self.description: list[str] = []
        self.arguments: dict[str, list[str]] = {}
        self._section = "description"
        self._current: list[str] = []
        self._indent = 0

    def read(self, line: str, next_line: str) -> None:
        stripped = line.strip()
        indent = len(line) - len(line.lstrip())
        if self._opens_section(stripped, indent, next_line):
            return
        if self._section == "description":
            self.description.append(line)
        elif not stripped:
            return
        elif self._section == "google":
            self._read_google(stripped, indent)
        elif self._section == "numpy":
            self._read_numpy(stripped, indent)
        elif self._section == "rest" and indent > 0:
            self._current.append(stripped)

    def _opens_section(self, stripped: str, indent: int, next_line: str) -> bool:
        title = stripped.rstrip(":").lower()
        is_known = title in _ARGUMENT_SECTIONS or title in _OTHER_SECTIONS
        if indent == 0 and is_known and _is_underline(next_line):
            self._open("numpy" if title in _ARGUMENT_SECTIONS else "other")
            return True
        if indent == 0 and is_known and stripped.endswith(":"):
            self._open("google" if title in _ARGUMENT_SECTIONS else "other")
            return True
        field = _REST_FIELD.fullmatch(stripped) if indent == 0 and stripped.startswith(":") else None
        if field is None:
            return False
        self._open("rest")
        if field[1] in _REST_ARGUMENT_FIELDS and field[2]:
            # ":param str city:" names the type before the argument.
            self._start(field[2].split()[-1], field[3])
        return True

    def _open(self, section: str) -> None:
        self._section = section
        self._current = []
        self._indent = -1

    def _start(self, name: str, words: str) -> None:
        self._current = self.arguments.setdefault(name.lstrip("*"), [])
        if words:
            self._current.append(words)

    def _read_google(self, stripped: str, indent: int) -> None:
        if indent == 0:
            self._open("description")
            self.description.append(stripped)
            return
        if self._indent < 0:
            self._indent = indent
        argument = _GOOGLE_ARGUMENT.fullmatch(stripped) if indent <= self._indent else None
        if argument is not None:
            self._start(argument[1], argument[2])
        else:
            self._current.append(stripped)

    def _read_numpy(self, stripped: str, indent: int) -> None:
        if _is_underline(stripped):
            return
        argument = _NUMPY_ARGUMENT.fullmatch(stripped) if indent == 0 else None
        if argument is None:
            self._current.append(stripped)
            return
        self._current = []
        for name in argument[1].split(","):
            self.arguments[name.strip().lstrip("*")] = self._current


def _is_underline(line: str) -> bool:
    stripped = line.strip()
    return len(stripped) >= 3 and set(stripped) == {"-"}
