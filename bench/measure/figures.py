"""Measuring: alternating runs, so that a disturbance affects both sides. The least is compared, because a disturbance only adds
time; the median shows how reliable it is.

A `Figure` is one line of the report, ours against theirs. A `Growth` is the cost of one piece of work at several sizes and its
slope, the exponent by which the cost grows with the size: 1 is linear, and more than `STEEPEST` breaks a promise.
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
"""A greater slope counts as more than linear: caches that stop fitting need a little room."""


class Timing(Struct, frozen=True):
    """The times of several runs of one piece of work."""

    least: float
    median: float

    @classmethod
    def of(cls, runs: Sequence[float]) -> Timing:
        return cls(min(runs), median(runs))

    def scaled(self, factor: float) -> Timing:
        return Timing(self.least * factor, self.median * factor)


class Figure(Struct, frozen=True, omit_defaults=True):
    """One line of the report. `at_most` is the promised ratio; None: nothing is promised."""

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
        cls, name: str, ours: Timing, theirs: Timing, unit: str, *, at_most: float | None = None, against: str = ""
    ) -> Figure:
        return cls(name, ours.least, theirs.least, unit, at_most, against, ours.median, theirs.median)

    @property
    def ratio(self) -> float:
        return self.ours / self.theirs if self.theirs else math.inf

    @property
    def holds(self) -> bool:
        """Whether the promise holds."""
        return self.at_most is None or self.ratio <= self.at_most

    def __str__(self) -> str:
        promise = f"  (at most {self.at_most:g}: {'yes' if self.holds else 'NO'})" if self.at_most is not None else ""
        times = f"{self.ours:>9.2f} / {self.theirs:>9.2f} {self.unit:<5} = {self.ratio:6.3f}x"
        return f"{self.name:<46} {times}{promise}  {self.against}"


class Point(Struct, frozen=True, array_like=True):
    """The cost at one size."""

    size: int
    least: float
    median: float


class Growth(Struct, frozen=True, omit_defaults=True):
    """The cost of one piece of work at several sizes, in the unit `sized`. For peers nothing is promised."""

    name: str
    sized: str
    points: tuple[Point, ...]
    unit: str
    at_most: float | None = STEEPEST

    @classmethod
    def of(
        cls, name: str, sized: str, timings: Mapping[int, Timing], unit: str, *, at_most: float | None = STEEPEST
    ) -> Growth:
        points = tuple(Point(size, cost.least, cost.median) for size, cost in sorted(timings.items()))
        return cls(name, sized, points, unit, at_most)

    @property
    def slope(self) -> float:
        """The exponent of the growth: the slope of the regression line on logarithmic axes."""
        across = [math.log(point.size) for point in self.points]
        up = [math.log(point.least) for point in self.points]
        middle, height = fmean(across), fmean(up)
        rise = sum((x - middle) * (y - height) for x, y in zip(across, up, strict=True))
        return rise / sum((x - middle) ** 2 for x in across)

    @property
    def holds(self) -> bool:
        """Whether the promise holds."""
        return self.at_most is None or self.slope <= self.at_most

    def __str__(self) -> str:
        costs = "  ".join(f"{point.size:,}: {point.least:.3g}" for point in self.points)
        promise = f"  (at most {self.at_most:g}: {'yes' if self.holds else 'NO'})" if self.at_most is not None else ""
        return f"{self.name:<46} {costs} {self.unit} by {self.sized}; slope {self.slope:.2f}{promise}"


def not_measured(name: str, why: str) -> str:
    """The line of something that could not be measured."""
    return f"{name:<46} not measured: {why}"


def time_once(work: Callable[[], object], clock: Callable[[], float] = time.process_time) -> float:
    """The time of one run, in seconds."""
    gc.collect()
    started = clock()
    work()
    return clock() - started


def run_alternately(
    work: Mapping[K, Callable[[], object]], *, runs: int, clock: Callable[[], float] = time.process_time
) -> dict[K, Timing]:
    """The time of each in seconds. All are run one after the other, `runs` times."""
    times: dict[K, list[float]] = {name: [] for name in work}
    for _ in range(runs):
        for name, one in work.items():
            times[name].append(time_once(one, clock))
    return {name: Timing.of(seconds) for name, seconds in times.items()}


def compare(
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
    """The figure of two pieces of work, run alternately. `scale` converts seconds to the unit."""
    timings = run_alternately({"ours": ours, "theirs": theirs}, runs=runs, clock=clock)
    mine, other = timings["ours"].scaled(scale), timings["theirs"].scaled(scale)
    return Figure.of(name, mine, other, unit, at_most=at_most, against=against)
