"""`RefusalLog`: a log line for requests that are refused, bounded however many there are.

Bounded are refusals by a limit of a client, and those of requests whose client is not known (no key, a wrong key, no such path).
The first refusal of a kind is logged at once. Further ones within `interval` seconds are counted, and one line at its end says
how many they were. So a key that is refused all the time, and all wrong keys together, have one line per interval.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from antiphon_gateway.access.client_keys import ClientKey
from antiphon_gateway.access.refusals import LimitReached
from antiphon_gateway.observe.record import Record

logger = logging.getLogger("antiphon.gateway")

INTERVAL_SECONDS = 10.0

_LONGEST_REASON = 200

_Later = Callable[[float, Callable[[], None]], object]
_Write = Callable[[int], None]
"""Writes a line; the number is that of the refusals that it reports, 0 for a single one."""


class RefusalLog:
    """The log of the refusals of a process. `later` calls a function after so many seconds; by default the event loop does."""

    def __init__(self, interval: float = INTERVAL_SECONDS, later: _Later | None = None) -> None:
        self._interval = interval
        self._later = later
        self._held: dict[tuple[str, str], _Held] = {}

    def add(self, key: ClientKey, reached: LimitReached) -> None:
        """A request of a client was refused by one of its limits."""
        self._add((key.name, reached.limit), partial(_write_limit, key.name, reached))

    def add_unknown(self, record: Record, peer: str) -> None:
        """A request of a client that is not known was refused."""
        self._add(("", str(record.status)), partial(_write_unknown, record, peer))

    def flush(self) -> None:
        """Write what was counted so far."""
        for held in self._held.values():
            if held.count:
                held.write(held.count)
                held.count = 0

    def _add(self, which: tuple[str, str], write: _Write) -> None:
        held = self._held.get(which)
        if held is not None:
            held.count += 1
            held.write = write
            return
        self._held[which] = _Held(write)
        write(0)
        self._wait(which)

    def _wait(self, which: tuple[str, str]) -> None:
        later = self._later or asyncio.get_running_loop().call_later
        later(self._interval, lambda: self._end_interval(which))

    def _end_interval(self, which: tuple[str, str]) -> None:
        held = self._held.pop(which)
        if held.count:
            held.write(held.count)
            self._held[which] = _Held(held.write)
            self._wait(which)


class _Held:
    """The refusals that were not logged, and how a line about them is written."""

    __slots__ = ("count", "write")

    def __init__(self, write: _Write) -> None:
        self.count = 0
        self.write = write


def _write_limit(key: str, reached: LimitReached, more: int) -> None:
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


def _write_unknown(record: Record, peer: str, more: int) -> None:
    reason = record.error.message[:_LONGEST_REASON] if record.error is not None else ""
    fields = {
        "event": "refused",
        "request_id": record.request_id,
        "status": record.status,
        "client_format": record.client_format,
        "operation": record.operation,
        "peer": peer,
        "error": reason,
    }
    if more:
        fields["left_out"] = more
        logger.warning(
            "%s more requests refused with %s, the last one from %s", more, record.status, peer, extra=fields
        )
    else:
        logger.warning("request from %s refused with %s: %s", peer, record.status, reason, extra=fields)
