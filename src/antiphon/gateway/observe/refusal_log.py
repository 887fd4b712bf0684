"""`RefusalLog`: a log line for requests that a client's limit refuses, bounded however many there are.

The first refusal of a key by a limit is logged at once. Further ones within `interval` seconds are counted, and one line at its
end says how many they were. So a key that is refused all the time has one line per interval.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from antiphon.gateway.access.client_keys import ClientKey
from antiphon.gateway.access.refusals import LimitReached

logger = logging.getLogger("antiphon.gateway")

INTERVAL_SECONDS = 10.0

_Later = Callable[[float, Callable[[], None]], object]


class RefusalLog:
    """The log of the refusals of a process. `later` calls a function after so many seconds; by default the event loop does."""

    def __init__(self, interval: float = INTERVAL_SECONDS, later: _Later | None = None) -> None:
        self._interval = interval
        self._later = later
        self._held: dict[tuple[str, str], _Held] = {}

    def add(self, key: ClientKey, reached: LimitReached) -> None:
        """A request of a client was refused by one of its limits."""
        which = key.name, reached.limit
        held = self._held.get(which)
        if held is not None:
            held.count += 1
            held.reached = reached
            return
        self._held[which] = _Held(reached)
        _write(key.name, reached, 0)
        self._wait(which)

    def _wait(self, which: tuple[str, str]) -> None:
        later = self._later or asyncio.get_running_loop().call_later
        later(self._interval, lambda: self._end_interval(which))

    def _end_interval(self, which: tuple[str, str]) -> None:
        held = self._held.pop(which)
        if held.count:
            _write(which[0], held.reached, held.count)
            self._held[which] = _Held(held.reached)
            self._wait(which)


class _Held:
    """The refusals that were not logged."""

    __slots__ = ("count", "reached")

    def __init__(self, reached: LimitReached) -> None:
        self.count = 0
        self.reached = reached


def _write(key: str, reached: LimitReached, more: int) -> None:
    fields = {
        "event": "limit_reached",
        "key": key,
        "limit": reached.limit,
        "used": round(reached.used, 6),
        "allowed": reached.allowed,
        "reset": reached.reset,
        "retry_seconds": round(reached.wait, 3),
    }
    if more:
        fields["left_out"] = more
        logger.warning("%s more requests of key %s refused: %s reached", more, key, reached.limit, extra=fields)
    else:
        logger.warning("request of key %s refused: %s reached", key, reached.limit, extra=fields)
