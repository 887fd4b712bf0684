"""`ConfigError`: a configuration that cannot be served, with every problem and its line."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from antiphon.errors import AntiphonError


class ConfigProblem(Struct, frozen=True, kw_only=True):
    """One problem. `line` and `column` count from 1; 0 if there is no particular one."""

    file: str
    line: int = 0
    column: int = 0
    key: str = ""
    reason: str

    def __str__(self) -> str:
        where = ":".join([self.file, *(str(number) for number in (self.line, self.column) if number)])
        return f"{where}: {self.key}{' ' if self.key else ''}{self.reason}"


class ConfigError(AntiphonError):
    """A configuration that cannot be served, with all its problems."""

    def __init__(self, problems: Iterable[ConfigProblem]) -> None:
        self.problems = list(problems)
        count = len(self.problems)
        summary = f"{count} problems in the configuration" if count > 1 else "invalid configuration"
        super().__init__("\n  ".join([f"{summary}:", *map(str, self.problems)]))
