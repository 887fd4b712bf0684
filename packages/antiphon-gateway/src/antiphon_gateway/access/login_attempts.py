"""`LoginAttempts`: how often a wrong key may be tried on the status page, by the address it comes from."""

from __future__ import annotations

import time
from collections.abc import Callable

_MOST_ADDRESSES = 10_000


class LoginAttempts:
    """Wrong keys by address: at most `most` in `seconds`."""

    def __init__(self, *, most: int = 10, seconds: float = 60.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = most
        self._seconds = seconds
        self._clock = clock
        self._failures: dict[str, list[float]] = {}

    def left(self, address: str) -> int:
        """How many wrong keys may still be tried now."""
        return max(0, self._most - len(self._recent(address)))

    def wait(self, address: str) -> float:
        """Seconds until another key may be tried; 0 if one may be now."""
        failures = self._recent(address)
        return 0.0 if len(failures) < self._most else failures[0] + self._seconds - self._clock()

    def failed(self, address: str) -> None:
        """A wrong key was tried."""
        if len(self._failures) >= _MOST_ADDRESSES:
            self._failures = {known: recent for known in self._failures if (recent := self._recent(known))}
            if len(self._failures) >= _MOST_ADDRESSES:
                del self._failures[next(iter(self._failures))]
        self._failures[address] = [*self._recent(address), self._clock()]

    def _recent(self, address: str) -> list[float]:
        since = self._clock() - self._seconds
        return [at for at in self._failures.get(address, ()) if at > since]
