"""Measuring: the best of several alternating runs, so that what disturbs one side disturbs the other too."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

from msgspec import Struct


class Figure(Struct, frozen=True):
    """One line of the report. `at_most` is what was promised, if anything was."""

    name: str
    ours: float
    theirs: float
    unit: str
    at_most: float | None = None
    against: str = ""

    @property
    def ratio(self) -> float:
        return self.ours / self.theirs

    @property
    def is_kept(self) -> bool:
        """Whether what was promised holds; nothing was, then it does."""
        return self.at_most is None or self.ratio <= self.at_most

    def __str__(self) -> str:
        promise = f"  (at most {self.at_most:g}: {'yes' if self.is_kept else 'NO'})" if self.at_most is not None else ""
        times = f"{self.ours:>9.2f} / {self.theirs:>9.2f} {self.unit:<5} = {self.ratio:6.3f}x"
        return f"{self.name:<46} {times}{promise}  {self.against}"


def not_measured(name: str, why: str) -> str:
    """A line of the report for what could not be measured."""
    return f"{name:<46} not measured: {why}"


def best(work: Callable[[], object], *, runs: int) -> float:
    """The shortest CPU time of several runs, in seconds."""
    shortest = float("inf")
    for _ in range(runs):
        gc.collect()
        started = time.process_time()
        work()
        shortest = min(shortest, time.process_time() - started)
    return shortest


def best_of(
    ours: Callable[[], object],
    theirs: Callable[[], object],
    *,
    runs: int = 7,
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[float, float]:
    """The shortest time of each, in seconds, taken in turns."""
    shortest = [float("inf"), float("inf")]
    for _ in range(runs):
        for side, work in enumerate((ours, theirs)):
            gc.collect()
            started = clock()
            work()
            shortest[side] = min(shortest[side], clock() - started)
    return shortest[0], shortest[1]
