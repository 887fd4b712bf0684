"""Measuring: several runs in turns, so that what disturbs one side disturbs the other too; the least and the median are kept.

The least is what is compared: whatever else runs on a machine only ever adds. The median tells how far to trust it.

A `Figure` is one line of the report, ours against theirs. A `Growth` is one piece of work at several sizes, and its slope: the
exponent by which the cost grows with the size. 1 is linear, below 1 something fixed is shared out, and above 1 is a promise
broken, with a little room for caches that stop fitting.
"""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, median
from typing import TypeVar

from msgspec import Struct

K = TypeVar("K")

STEEPEST = 1.1
"""The slope above which work counts as growing faster than its size."""


class Taken(Struct, frozen=True):
    """What several runs of one piece of work took."""

    least: float
    median: float

    @classmethod
    def of(cls, runs: Sequence[float]) -> Taken:
        return cls(min(runs), median(runs))

    def scaled(self, factor: float) -> Taken:
        return Taken(self.least * factor, self.median * factor)


class Figure(Struct, frozen=True, omit_defaults=True):
    """One line of the report. `at_most` is what was promised of the ratio, if anything was; medians are shown where known."""

    name: str
    ours: float
    theirs: float
    unit: str
    at_most: float | None = None
    against: str = ""
    our_median: float | None = None
    their_median: float | None = None

    @classmethod
    def of(
        cls, name: str, ours: Taken, theirs: Taken, unit: str, *, at_most: float | None = None, against: str = ""
    ) -> Figure:
        return cls(name, ours.least, theirs.least, unit, at_most, against, ours.median, theirs.median)

    @property
    def ratio(self) -> float:
        return self.ours / self.theirs if self.theirs else math.inf

    @property
    def is_kept(self) -> bool:
        """Whether what was promised holds; nothing was, then it does."""
        return self.at_most is None or self.ratio <= self.at_most

    def __str__(self) -> str:
        promise = f"  (at most {self.at_most:g}: {'yes' if self.is_kept else 'NO'})" if self.at_most is not None else ""
        times = f"{self.ours:>9.2f} / {self.theirs:>9.2f} {self.unit:<5} = {self.ratio:6.3f}x"
        return f"{self.name:<46} {times}{promise}  {self.against}"


class Point(Struct, frozen=True, array_like=True):
    """What work of one size cost."""

    size: int
    least: float
    median: float


class Growth(Struct, frozen=True, omit_defaults=True):
    """The whole cost of one piece of work at several sizes, counted in `sized`. A peer's growth promises nothing."""

    name: str
    sized: str
    points: tuple[Point, ...]
    unit: str
    at_most: float | None = STEEPEST

    @classmethod
    def of(
        cls, name: str, sized: str, taken: Mapping[int, Taken], unit: str, *, at_most: float | None = STEEPEST
    ) -> Growth:
        points = tuple(Point(size, cost.least, cost.median) for size, cost in sorted(taken.items()))
        return cls(name, sized, points, unit, at_most)

    @property
    def slope(self) -> float:
        """The exponent of the growth: the straight line nearest to the points where both axes are logarithms."""
        across = [math.log(point.size) for point in self.points]
        up = [math.log(point.least) for point in self.points]
        middle, height = fmean(across), fmean(up)
        rise = sum((x - middle) * (y - height) for x, y in zip(across, up, strict=True))
        return rise / sum((x - middle) ** 2 for x in across)

    @property
    def is_kept(self) -> bool:
        """Whether it grows no faster than it may."""
        return self.at_most is None or self.slope <= self.at_most

    def __str__(self) -> str:
        costs = "  ".join(f"{point.size:,}: {point.least:.3g}" for point in self.points)
        promise = f"  (at most {self.at_most:g}: {'yes' if self.is_kept else 'NO'})" if self.at_most is not None else ""
        return f"{self.name:<46} {costs} {self.unit} by {self.sized}; slope {self.slope:.2f}{promise}"


def not_measured(name: str, why: str) -> str:
    """A line of the report for what could not be measured."""
    return f"{name:<46} not measured: {why}"


def timed(work: Callable[[], object], clock: Callable[[], float] = time.process_time) -> float:
    """The time of one run, in seconds."""
    gc.collect()
    started = clock()
    work()
    return clock() - started


def in_turns(
    work: Mapping[K, Callable[[], object]], *, runs: int, clock: Callable[[], float] = time.process_time
) -> dict[K, Taken]:
    """What each takes, in seconds, all of them run one after the other and that again and again."""
    times: dict[K, list[float]] = {name: [] for name in work}
    for _ in range(runs):
        for name, one in work.items():
            times[name].append(timed(one, clock))
    return {name: Taken.of(taken) for name, taken in times.items()}


def compared(
    name: str,
    ours: Callable[[], object],
    theirs: Callable[[], object],
    *,
    runs: int,
    scale: float,
    unit: str,
    at_most: float | None = None,
    against: str = "",
    clock: Callable[[], float] = time.process_time,
) -> Figure:
    """A figure of two pieces of work run in turns; `scale` carries seconds to the unit."""
    taken = in_turns({"ours": ours, "theirs": theirs}, runs=runs, clock=clock)
    mine, other = taken["ours"].scaled(scale), taken["theirs"].scaled(scale)
    return Figure.of(name, mine, other, unit, at_most=at_most, against=against)
