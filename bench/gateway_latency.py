"""How streams feel to one client: streams per second on one connection, the gap between tokens, the time to the first byte.

Wall time, asked over one keep-alive connection, one stream after another, straight from the upstream and through each contestant
in turns. CPU time does not show a packet that waits: with Nagle on, a stream cost no more CPU and ran at 23 per second instead
of 840, and tokens came in steps of 40 ms.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping
from itertools import pairwise
from statistics import median, quantiles

from msgspec import Struct

from bench.figures import Figure, Taken
from bench.gateway_traffic import AnswerWrong, Ask, Line, asks

STREAMS, SLOW_STREAMS, WARM_UP = 200, 4, 20
UPSTREAM = "the upstream itself"
NAMES = {
    "rate": "gateway, a stream after another, 1 connection",
    "gap": "gateway, gap between tokens, p99",
    "first byte": "gateway, added to the first byte of a stream",
}
AT_MOST = {"rate": 2643 / 800, "gap": 2.5}
"""Of what the upstream itself takes: at least 800 streams a second where it does 2,643 by itself."""
FIRST_BYTE_MS = 2.0
_PATIENCE = 60.0


class StreamTimes(Struct):
    """Milliseconds of several streams over one connection."""

    totals: list[float]
    first_bytes: list[float]
    gaps: list[float]

    @property
    def p99_gap(self) -> float:
        return quantiles(self.gaps, n=100)[98]


class _Watcher(Line):
    """One connection that notes when each piece arrives."""

    def __init__(self, ask: Ask) -> None:
        super().__init__()
        self.arrivals: list[float] = []
        self._ask = ask
        self._over: asyncio.Future[None] | None = None

    def send(self, request: bytes) -> asyncio.Future[None]:
        self.arrivals = []
        self._over = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        return self._over

    def data_received(self, data: bytes) -> None:
        self.arrivals.append(time.perf_counter())
        super().data_received(data)

    def received(self, message: bytes) -> None:
        assert self._over is not None
        if all(part in message for part in self._ask.holds):
            self._over.set_result(None)
        else:
            self._over.set_exception(AnswerWrong(message[:300].decode(errors="replace")))

    def connection_lost(self, _: Exception | None) -> None:
        if self._over is not None and not self._over.done():
            self._over.set_exception(AnswerWrong("the connection was closed"))


async def stream_times(port: int, ask: Ask, headers: Mapping[str, str], count: int) -> StreamTimes:
    """Ask for `count` streams, one after another. Raises `AnswerWrong`."""
    request, times = ask.sent(port, headers), StreamTimes([], [], [])
    transport, line = await asyncio.get_running_loop().create_connection(lambda: _Watcher(ask), "127.0.0.1", port)
    try:
        async with asyncio.timeout(_PATIENCE):
            for _ in range(count):
                started = time.perf_counter()
                await line.send(request)
                times.totals.append((line.arrivals[-1] - started) * 1e3)
                times.first_bytes.append((line.arrivals[0] - started) * 1e3)
                times.gaps += [(after - before) * 1e3 for before, after in pairwise(line.arrivals)]
    except TimeoutError:
        raise AnswerWrong(f"no answer within {_PATIENCE:g} s") from None
    finally:
        transport.close()
    return times


class Latencies:
    """Rounds of everybody; the upstream itself is called `UPSTREAM`."""

    def __init__(self) -> None:
        self.rounds: dict[tuple[str, str], list[float]] = {}

    def measure(self, name: str, port: int, quick: Ask, slow: Ask, headers: Mapping[str, str]) -> None:
        """One round. Raises `AnswerWrong` or `OSError`."""
        asyncio.run(stream_times(port, quick, headers, WARM_UP))
        times = asyncio.run(stream_times(port, quick, headers, STREAMS))
        one_by_one = asyncio.run(stream_times(port, slow, headers, SLOW_STREAMS))
        self._add("rate", name, median(times.totals))
        self._add("first byte", name, median(times.first_bytes))
        self._add("gap", name, one_by_one.p99_gap)

    def taken(self, work: str, name: str) -> Taken | None:
        rounds = self.rounds.get((work, name))
        return Taken.of(rounds) if rounds else None

    def figures(self, ours: str, others: Mapping[str, str]) -> Iterator[Figure]:
        """What was measured; `others` are the contestants by name, with their versions."""
        for work, at_most in AT_MOST.items():
            mine, straight = self.taken(work, ours), self.taken(work, UPSTREAM)
            if mine is None or straight is None:
                continue
            yield Figure.of(NAMES[work], mine, straight, "ms", at_most=at_most, against=UPSTREAM)
            for name, version in others.items():
                if (theirs := self.taken(work, name)) is not None:
                    yield Figure.of(NAMES[work], mine, theirs, "ms", against=version)
        mine, straight = self.taken("first byte", ours), self.taken("first byte", UPSTREAM)
        if mine is not None and straight is not None:
            added = Taken(max(0.0, mine.least - straight.least), max(0.0, mine.median - straight.median))
            against = f"the promise: {FIRST_BYTE_MS:g} ms"
            yield Figure(NAMES["first byte"], added.least, FIRST_BYTE_MS, "ms", 1.0, against, added.median)

    def _add(self, work: str, name: str, milliseconds: float) -> None:
        self.rounds.setdefault((work, name), []).append(milliseconds)


def stream_asks() -> tuple[Ask, Ask]:
    """The short stream, and the one whose events come one by one."""
    known = asks()
    return known["short stream"], known["slow stream"]
