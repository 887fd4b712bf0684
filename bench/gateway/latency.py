"""What a client of streams notices, in wall time: streams per second on one connection, gaps between tokens, time to first byte.

One stream after another over one keep-alive connection, alternately from the upstream itself and through each gateway. CPU time
does not show a packet that waits: with Nagle's algorithm on, streams cost no more CPU, ran at 23 instead of 840 per second, and
tokens arrived in steps of 40 ms.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping
from itertools import pairwise
from statistics import median, quantiles

from msgspec import Struct

from bench.gateway.traffic import HttpConnection, RequestCase, WrongAnswer, request_cases
from bench.measure.figures import Figure, Timing

STREAMS, SLOW_STREAMS, WARM_UP = 200, 4, 20
UPSTREAM = "the upstream itself"
NAMES = {
    "rate": "gateway, consecutive streams, 1 connection",
    "gap": "gateway, gap between tokens, p99",
    "first byte": "gateway, added time to first byte",
}
AT_MOST = {"rate": 2643 / 800, "gap": 2.5}
"""Ratios to the upstream itself: at least 800 streams per second where the upstream serves 2,643."""
FIRST_BYTE_MS = 2.0
_TIMEOUT_SECONDS = 60.0


class StreamTimes(Struct):
    """Milliseconds of several streams over one connection."""

    totals: list[float]
    first_bytes: list[float]
    gaps: list[float]

    @property
    def p99_gap(self) -> float:
        return quantiles(self.gaps, n=100)[98]


class _TimedConnection(HttpConnection):
    """A connection that records when each piece arrives."""

    def __init__(self, case: RequestCase) -> None:
        super().__init__()
        self.arrivals: list[float] = []
        self._case = case
        self._done: asyncio.Future[None] | None = None

    def send(self, request: bytes) -> asyncio.Future[None]:
        self.arrivals = []
        self._done = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        return self._done

    def data_received(self, data: bytes) -> None:
        self.arrivals.append(time.perf_counter())
        super().data_received(data)

    def on_message(self, message: bytes) -> None:
        assert self._done is not None
        if all(part in message for part in self._case.expected):
            self._done.set_result(None)
        else:
            self._done.set_exception(WrongAnswer(message[:300].decode(errors="replace")))

    def connection_lost(self, _: Exception | None) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_exception(WrongAnswer("the connection was closed"))


async def stream_times(port: int, case: RequestCase, headers: Mapping[str, str], count: int) -> StreamTimes:
    """Request `count` streams, one after another. Raises `WrongAnswer`."""
    request, times = case.to_bytes(port, headers), StreamTimes([], [], [])
    loop = asyncio.get_running_loop()
    transport, connection = await loop.create_connection(lambda: _TimedConnection(case), "127.0.0.1", port)
    try:
        async with asyncio.timeout(_TIMEOUT_SECONDS):
            for _ in range(count):
                started = time.perf_counter()
                await connection.send(request)
                times.totals.append((connection.arrivals[-1] - started) * 1e3)
                times.first_bytes.append((connection.arrivals[0] - started) * 1e3)
                times.gaps += [(after - before) * 1e3 for before, after in pairwise(connection.arrivals)]
    except TimeoutError:
        raise WrongAnswer(f"no answer within {_TIMEOUT_SECONDS:g} s") from None
    finally:
        transport.close()
    return times


class StreamLatencies:
    """The rounds of each gateway, and of the upstream itself (`UPSTREAM`)."""

    def __init__(self) -> None:
        self.rounds: dict[tuple[str, str], list[float]] = {}

    def measure(self, name: str, port: int, quick: RequestCase, slow: RequestCase, headers: Mapping[str, str]) -> None:
        """One round. Raises `WrongAnswer` or `OSError`."""
        asyncio.run(stream_times(port, quick, headers, WARM_UP))
        times = asyncio.run(stream_times(port, quick, headers, STREAMS))
        one_by_one = asyncio.run(stream_times(port, slow, headers, SLOW_STREAMS))
        self._add("rate", name, median(times.totals))
        self._add("first byte", name, median(times.first_bytes))
        self._add("gap", name, one_by_one.p99_gap)

    def timing(self, work: str, name: str) -> Timing | None:
        rounds = self.rounds.get((work, name))
        return Timing.of(rounds) if rounds else None

    def figures(self, ours: str, others: Mapping[str, str]) -> Iterator[Figure]:
        """The figures. `others` are the other gateways by name, with their versions."""
        for work, at_most in AT_MOST.items():
            mine, direct = self.timing(work, ours), self.timing(work, UPSTREAM)
            if mine is None or direct is None:
                continue
            yield Figure.of(NAMES[work], mine, direct, "ms", at_most=at_most, against=UPSTREAM)
            for name, version in others.items():
                if (theirs := self.timing(work, name)) is not None:
                    yield Figure.of(NAMES[work], mine, theirs, "ms", against=version)
        mine, direct = self.timing("first byte", ours), self.timing("first byte", UPSTREAM)
        if mine is not None and direct is not None:
            added = Timing(max(0.0, mine.least - direct.least), max(0.0, mine.median - direct.median))
            against = f"the promise: {FIRST_BYTE_MS:g} ms"
            yield Figure(NAMES["first byte"], added.least, FIRST_BYTE_MS, "ms", 1.0, against, added.median)

    def _add(self, work: str, name: str, milliseconds: float) -> None:
        self.rounds.setdefault((work, name), []).append(milliseconds)


def stream_cases() -> tuple[RequestCase, RequestCase]:
    """A short stream, and one whose events come one by one."""
    cases = request_cases()
    return cases["short stream"], cases["slow stream"]
