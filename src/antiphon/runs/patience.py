"""`Patience`: what becomes of a run after its turn was played as far as it goes, and how long it waits if it must.

A provider that is away for now is waited for: as long as it asked, and else twice as long each time. Waits are spread, so that
the runs which an outage stopped together do not come back together. What the next moment will not change (a refused key, a
request it does not take) is not waited for: the run has failed, and somebody must see to it.
"""

from __future__ import annotations

from random import uniform

from msgspec import Struct

from antiphon.conversation import LoopFinished
from antiphon.history.store import RunState
from antiphon.providers.retry import may_retry


class Verdict(Struct, frozen=True):
    """How a run stands now, why, and in how many seconds it is due again if it waits."""

    state: RunState
    reason: str
    delay: float = 0.0


class Patience(Struct, frozen=True, kw_only=True):
    """How long a run is tried.

    `max_attempts` claims from which nothing came, `max_failures` calls of the model in a row that were not answered; between
    those `first_delay` seconds, doubled each time up to `longest_delay`.
    """

    max_attempts: int = 5
    max_failures: int = 50
    first_delay: float = 1.0
    longest_delay: float = 300.0

    def verdict(self, finished: LoopFinished, failures: int) -> Verdict:
        """What follows from how the loop ended; `failures` is how many calls in a row came to nothing, this one among them."""
        if finished.reason == "approval":
            return Verdict("suspended", "a person must decide first")
        if finished.reason != "failed":
            return Verdict("done", finished.reason)
        error = finished.error
        if error is None:
            return Verdict("failed", "the provider did not answer")
        said = f"{error.kind}: {error.message}"
        if not may_retry(error):
            return Verdict("failed", said)
        if failures >= self.max_failures:
            return Verdict("failed", f"given up after {failures} calls without an answer; the last: {said}")
        return Verdict("waiting", said, self.delay(failures, error.retry_after))

    def delay(self, failures: int, asked: float | None = None) -> float:
        """The seconds until the next try."""
        bound = min(self.longest_delay, self.first_delay * 2.0 ** min(max(failures - 1, 0), 32))
        if asked is not None:
            return asked + uniform(0, bound)
        return uniform(bound / 2, bound)
