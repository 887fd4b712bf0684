"""`python -m bench budget [--renew]`: what the hot paths do, counted and compared with the committed budget. No clock is read.

`tests/budget.json` has the counts of each hot path for each minor version of Python. A count that is more than a tenth above its
budget is a regression, and so is one that grows faster than linearly. When a count falls, renew the budget, so that the gain is
kept. `--renew` writes the counts of this Python version, leaves the others, and prints the changes.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from bench.budget.counts import Counts, counted
from bench.budget.hot_paths import HotPath, hot_paths
from bench.measure.figures import STEEPEST

FILE = Path(__file__).parents[2] / "tests" / "budget.json"
VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
TOLERANCE = 0.1
SLACK = {"instructions": 20, "calls": 3, "peak": 3.0}
"""A count may always be this much above its budget: a tenth of a small count is nothing."""

Budgets = dict[str, dict[str, Counts]]
"""By version of Python, by hot path."""


class Change(Struct, frozen=True):
    """A count that differs from the budget."""

    path: str
    count: str
    before: float | None
    now: float | None

    @property
    def is_over(self) -> bool:
        """Whether it is a regression."""
        if self.before is None or self.now is None:
            return True
        return self.now > self.before * (1 + TOLERANCE) and self.now > self.before + SLACK[self.count]

    def __str__(self) -> str:
        if self.before is None:
            return f"{self.path}: not in the budget"
        if self.now is None:
            return f"{self.path}: in the budget, but there is no such path"
        share = f" ({self.now / self.before - 1:+.1%})" if self.before else ""
        word = "OVER  " if self.is_over else ""
        return f"{word}{self.path}: {self.count} {self.before:,} -> {self.now:,}{share}"


def changes(budget: Mapping[str, Counts], now: Mapping[str, Counts]) -> Iterator[Change]:
    """Where the two differ."""
    for path in [*now, *(path for path in budget if path not in now)]:
        if path not in budget or path not in now:
            is_new = path not in budget
            yield Change(path, "", None if is_new else 0, 0 if is_new else None)
            continue
        for count in Counts.__struct_fields__:
            before, after = getattr(budget[path], count), getattr(now[path], count)
            if before != after:
                yield Change(path, count, before, after)


def slope(path: HotPath, whole: Counts) -> float:
    """The exponent by which instructions grow from a tenth of the size to the whole."""
    tenth = counted(path.prepare(path.size // 10))
    return math.log10(max(1, whole.instructions) / max(1, tenth.instructions))


def read(file: Path = FILE) -> Budgets:
    """The committed budget."""
    return msgspec.json.decode(file.read_bytes(), type=Budgets) if file.exists() else {}


def write(budgets: Budgets, file: Path = FILE) -> None:
    """Write the budget, one line per path."""
    blocks = []
    for version, paths in sorted(budgets.items()):
        lines = [f"    {_json(path)}: {_json(counts)}" for path, counts in paths.items()]
        blocks.append(f"  {_json(version)}: {{\n" + ",\n".join(lines) + "\n  }")
    file.write_text("{\n" + ",\n".join(blocks) + "\n}\n")


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def main(arguments: list[str]) -> int:
    """Count, compare and print; the exit code."""
    if unknown := set(arguments) - {"--renew"}:
        print(f"budget takes --renew and nothing else, not {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    if os.environ.get("PYTHONHASHSEED") != "0":  # else the order of sets is random
        command = [sys.executable, "-m", "bench", "budget", *arguments]
        os.execve(sys.executable, command, {**os.environ, "PYTHONHASHSEED": "0"})
    budgets, now = read(), dict[str, Counts]()
    steep = []
    for path in hot_paths():
        now[path.name] = counted(path.prepare(path.size))
        if (exponent := slope(path, now[path.name])) > STEEPEST:
            steep.append(f"STEEP {path.name}: instructions grow with the size to the power of {exponent:.2f}")
    changed = list(changes(budgets.get(VERSION, {}), now))
    for line in [*changed, *steep]:
        print(line)
    if "--renew" in arguments:
        write({**budgets, VERSION: now})
        print(f"{FILE.name}: the budget of Python {VERSION} is renewed, {len(now)} paths, {len(changed)} changes")
        return int(bool(steep))
    if VERSION not in budgets:
        print(f"there is no budget for Python {VERSION}; `python -m bench budget --renew` writes one")
        return 1
    over = [change for change in changed if change.is_over]
    print(f"{len(now)} paths; {len(over)} counts over the budget, {len(steep)} too steep")
    return int(bool(over or steep))
