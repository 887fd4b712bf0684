"""`python -m bench budget [--renew]`: what the hot paths do, counted, against the budget that was committed. No clock is read.

`tests/budget.json` holds the counts of each hot path for each minor version of Python. A count that is more than a tenth above
its budget is a regression, and so is one that grows faster than the size of its work between a tenth of the size and the whole.
A count below its budget is good news, and the budget should be renewed, so that the gain cannot be lost again unseen.

`--renew` writes the counts of this interpreter's version, leaves those of the others, and says what changed.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from bench.counting import Counts, counted
from bench.figures import STEEPEST
from bench.hot_paths import HotPath, hot_paths

FILE = Path(__file__).parent.parent / "tests" / "budget.json"
VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
TOLERANCE = 0.1
SLACK = {"instructions": 20, "calls": 3, "peak": 3.0}
"""What a count may be above its budget whatever the share: a tenth of nearly nothing is nothing."""

Budgets = dict[str, dict[str, Counts]]
"""By version of Python, by hot path."""


class Change(Struct, frozen=True):
    """A count that is not what the budget says."""

    path: str
    count: str
    before: float | None
    now: float | None

    @property
    def is_over(self) -> bool:
        """Whether it is more than the budget bears."""
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
    tenth = counted(path.ready(path.size // 10))
    return math.log10(max(1, whole.instructions) / max(1, tenth.instructions))


def read(file: Path = FILE) -> Budgets:
    """The budget that was committed."""
    return msgspec.json.decode(file.read_bytes(), type=Budgets) if file.exists() else {}


def write(budgets: Budgets, file: Path = FILE) -> None:
    """Commit to it: one line a path, so that a change of one is a change of one line."""
    blocks = []
    for version, paths in sorted(budgets.items()):
        lines = [f"    {_json(path)}: {_json(counts)}" for path, counts in paths.items()]
        blocks.append(f"  {_json(version)}: {{\n" + ",\n".join(lines) + "\n  }")
    file.write_text("{\n" + ",\n".join(blocks) + "\n}\n")


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def main(arguments: list[str]) -> int:
    """Count, compare and say; the exit code."""
    if unknown := set(arguments) - {"--renew"}:
        print(f"budget takes --renew and nothing else, not {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    if os.environ.get("PYTHONHASHSEED") != "0":  # the order of sets is a matter of chance otherwise
        command = [sys.executable, "-m", "bench", "budget", *arguments]
        os.execve(sys.executable, command, {**os.environ, "PYTHONHASHSEED": "0"})
    budgets, now = read(), dict[str, Counts]()
    steep = []
    for path in hot_paths():
        now[path.name] = counted(path.ready(path.size))
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
