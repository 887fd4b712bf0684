"""`Counter`, `Gauge` and `Histogram` with labels, and their Prometheus text.

A family has a name, label names, and a series of numbers per set of label values: one number for a counter or gauge, bucket
counts and the sum for a histogram. Series with the same labels add up number by number, so workers are merged by one rule.

The number of series is bounded: above the limit values go to a series whose labels are all `other`. Nothing here locks; a
worker counts in the thread of its event loop.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, TypeAlias

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OTHER = "other"

Rows: TypeAlias = dict[tuple[str, ...], list[float]]

_MAX_SERIES = 2000
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


class Family:
    """What the three kinds share: rows by label values, their limit, and their text."""

    kind: ClassVar[str]

    def __init__(self, name: str, help_text: str, labels: Sequence[str] = (), *, most_rows: int = _MAX_SERIES) -> None:
        self.name = name
        self.help_text = help_text
        self.labels = tuple(labels)
        self.rows: Rows = {}
        self._most_rows = most_rows
        self._width = 1

    def series(self, labels: tuple[str, ...]) -> list[float]:
        """The row of these label values; a new one if there is none and the limit allows it."""
        if labels not in self.rows and len(self.rows) >= self._most_rows:
            labels = (OTHER,) * len(self.labels)
        return self.rows.setdefault(labels, [0.0] * self._width)

    def text(self, rows: Mapping[tuple[str, ...], Sequence[float]]) -> str:
        """Rows of this family, as a scrape reads them."""
        lines = [f"# HELP {self.name} {self.help_text}", f"# TYPE {self.name} {self.kind}"]
        for labels in sorted(rows):
            lines += self.lines(labels, rows[labels])
        return "\n".join(lines) + "\n"

    def lines(self, labels: tuple[str, ...], series: Sequence[float]) -> Iterable[str]:
        """One row of this family as text."""
        return (f"{self.name}{self._braced(labels)} {_number(series[0])}",)

    def _braced(self, labels: tuple[str, ...], bound: str = "") -> str:
        pairs = [f'{name}="{value.translate(_ESCAPES)}"' for name, value in zip(self.labels, labels, strict=True)]
        if bound:
            pairs.append(f'le="{bound}"')
        return f"{{{','.join(pairs)}}}" if pairs else ""


class Counter(Family):
    """A number that only grows."""

    kind = "counter"

    def add(self, labels: tuple[str, ...] = (), amount: float = 1) -> None:
        """Add one, or `amount`."""
        (self.rows.get(labels) or self.series(labels))[0] += amount


class Gauge(Family):
    """A number that goes up and down."""

    kind = "gauge"

    def set(self, labels: tuple[str, ...], value: float) -> None:
        """Set it to `value`."""
        self.series(labels)[0] = value


class Histogram(Family):
    """How many observations fell under each of some fixed bounds, and their sum."""

    kind = "histogram"

    def __init__(self, name: str, help_text: str, labels: Sequence[str], bounds: Sequence[float]) -> None:
        super().__init__(name, help_text, labels)
        self._bounds = tuple(bounds)
        self._width = len(bounds) + 2

    def observe(self, labels: tuple[str, ...], value: float) -> None:
        """Record one observation."""
        series = self.rows.get(labels) or self.series(labels)
        series[bisect_left(self._bounds, value)] += 1
        series[-1] += value

    def lines(self, labels: tuple[str, ...], series: Sequence[float]) -> Iterable[str]:
        total = 0.0
        for bound, count in zip((*map(_number, self._bounds), "+Inf"), series, strict=False):
            total += count
            yield f"{self.name}_bucket{self._braced(labels, bound)} {_number(total)}"
        yield f"{self.name}_sum{self._braced(labels)} {_number(series[-1])}"
        yield f"{self.name}_count{self._braced(labels)} {_number(total)}"


def add_rows(total: Rows, more: Iterable[tuple[Sequence[str], Sequence[float]]]) -> None:
    """Add rows to `total`, number by number where the labels are the same."""
    for labels, series in more:
        known = total.get(tuple(labels))
        total[tuple(labels)] = list(series) if known is None else [a + b for a, b in zip(known, series, strict=True)]


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(value)
