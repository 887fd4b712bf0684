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

    def __str__(self) -> str:
        kept = self.at_most is None or self.ratio <= self.at_most
        promise = f"  (at most {self.at_most:g}: {'yes' if kept else 'NO'})" if self.at_most is not None else ""
        times = f"{self.ours:>9.2f} / {self.theirs:>9.2f} {self.unit:<5} = {self.ratio:6.3f}x"
        return f"{self.name:<46} {times}{promise}  {self.against}"


def best_of(
    ours: Callable[[], object],
    theirs: Callable[[], object],
    *,
    runs: int = 7,
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[float, float]:
    """The shortest time of each, in seconds, taken in turns."""
    best = [float("inf"), float("inf")]
    for _ in range(runs):
        for side, work in enumerate((ours, theirs)):
            gc.collect()
            started = clock()
            work()
            best[side] = min(best[side], clock() - started)
    return best[0], best[1]
