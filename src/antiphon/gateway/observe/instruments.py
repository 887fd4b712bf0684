"""`Counter`, `Gauge` and `Histogram`: numbers under labels, and the Prometheus text they are read as.

A family is a name, the names of its labels, and a row of numbers for each set of label values that was seen: one number for
a counter or gauge, for a histogram the count of each bucket (the last has no bound) and the sum of what was observed. Rows of
the same labels add up number by number, whatever the family, so the counts of several workers are merged by one rule.

A family has a limited number of rows. What comes beyond goes to a row whose labels all say `other`: a flood of new names
costs precision, never memory.

Nothing here locks; a worker counts from the thread of its event loop.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, TypeAlias

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OTHER = "other"

Rows: TypeAlias = dict[tuple[str, ...], list[float]]

_MOST_ROWS = 2000
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


class Family:
    """What the three kinds share: rows by label values, their limit, and their text."""

    kind: ClassVar[str]

    def __init__(self, name: str, help_text: str, labels: Sequence[str] = (), *, most_rows: int = _MOST_ROWS) -> None:
        self.name = name
        self.help_text = help_text
        self.labels = tuple(labels)
        self.rows: Rows = {}
        self._most_rows = most_rows
        self._width = 1

    def row(self, labels: tuple[str, ...]) -> list[float]:
        """The row of these label values, a new one where there is none yet and room for one."""
        if labels not in self.rows and len(self.rows) >= self._most_rows:
            labels = (OTHER,) * len(self.labels)
        return self.rows.setdefault(labels, [0.0] * self._width)

    def text(self, rows: Mapping[tuple[str, ...], Sequence[float]]) -> str:
        """Rows of this family, as a scrape reads them."""
        lines = [f"# HELP {self.name} {self.help_text}", f"# TYPE {self.name} {self.kind}"]
        for labels in sorted(rows):
            lines += self.lines(labels, rows[labels])
        return "\n".join(lines) + "\n"

    def lines(self, labels: tuple[str, ...], row: Sequence[float]) -> Iterable[str]:
        """One row of this family as text."""
        return (f"{self.name}{self._braced(labels)} {_number(row[0])}",)

    def _braced(self, labels: tuple[str, ...], bound: str = "") -> str:
        pairs = [f'{name}="{value.translate(_ESCAPES)}"' for name, value in zip(self.labels, labels, strict=True)]
        if bound:
            pairs.append(f'le="{bound}"')
        return f"{{{','.join(pairs)}}}" if pairs else ""


class Counter(Family):
    """A number that only grows."""

    kind = "counter"

    def add(self, labels: tuple[str, ...] = (), amount: float = 1) -> None:
        """It happened once more, or `amount` times."""
        (self.rows.get(labels) or self.row(labels))[0] += amount


class Gauge(Family):
    """A number that goes up and down."""

    kind = "gauge"

    def add(self, labels: tuple[str, ...] = (), amount: float = 1) -> None:
        """It is `amount` more than it was."""
        (self.rows.get(labels) or self.row(labels))[0] += amount

    def set(self, labels: tuple[str, ...], value: float) -> None:
        """It is `value` now."""
        self.row(labels)[0] = value


class Histogram(Family):
    """How many observations fell under each of some fixed bounds, and their sum."""

    kind = "histogram"

    def __init__(self, name: str, help_text: str, labels: Sequence[str], bounds: Sequence[float]) -> None:
        super().__init__(name, help_text, labels)
        self._bounds = tuple(bounds)
        self._width = len(bounds) + 2

    def observe(self, labels: tuple[str, ...], value: float) -> None:
        """Something took `value`."""
        row = self.rows.get(labels) or self.row(labels)
        row[bisect_left(self._bounds, value)] += 1
        row[-1] += value

    def lines(self, labels: tuple[str, ...], row: Sequence[float]) -> Iterable[str]:
        total = 0.0
        for bound, count in zip((*map(_number, self._bounds), "+Inf"), row, strict=False):
            total += count
            yield f"{self.name}_bucket{self._braced(labels, bound)} {_number(total)}"
        yield f"{self.name}_sum{self._braced(labels)} {_number(row[-1])}"
        yield f"{self.name}_count{self._braced(labels)} {_number(total)}"


def add_rows(total: Rows, more: Iterable[tuple[Sequence[str], Sequence[float]]]) -> None:
    """Add rows to `total`, number by number where the labels are the same."""
    for labels, row in more:
        known = total.get(tuple(labels))
        total[tuple(labels)] = list(row) if known is None else [a + b for a, b in zip(known, row, strict=True)]


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(value)
