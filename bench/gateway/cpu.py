"""CPU time of our gateway and of others for one request, measured alternately in one run.

The upstream and the load generator are other processes (`traffic`), so only the gateway is counted: user and system time of its
process tree. Wall time would mostly show what else runs on the machine. Each gateway is warmed up, then measured in rounds, and
the best round counts.

Also measured: the time until a gateway accepts connections, its memory after all of this, and the latency it adds to a request
on an idle connection (wall time, median). `latency` measures streams in wall time.

The floors are proxies that only pass bytes on. A promise in milliseconds was made for a small machine with two cores.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from bench.gateway.latency import UPSTREAM, StreamLatencies, stream_cases
from bench.gateway.programs import (
    AIOHTTP,
    LITELLM,
    NOT_FOUND,
    OURS,
    ROOT,
    TENSORZERO,
    Contestant,
    DidNotStart,
    RunningGateway,
    contestants,
    is_installed,
    version_of,
)
from bench.gateway.traffic import CONNECTIONS, EVENTS, WrongAnswer, latencies, request_cases, run_load
from bench.measure.figures import Figure, Timing, not_measured

ROUNDS = 5
SECONDS, WARM_UP_SECONDS = 1.0, 0.5
LATENCY_REQUESTS, PAUSE_SECONDS = 60, 0.02

NAMES = {
    "small": "gateway, small request",
    "stream": f"gateway, stream of {EVENTS} events",
    "slow stream": f"gateway, {EVENTS} events, 1 ms apart",
    "agent": "gateway, 320 KB agent request",
    "agent stream": "gateway, 320 KB agent request, streamed",
    "translated": "gateway, translated",
    "translated stream": "gateway, translated stream",
    "small, 1": "gateway, small request, 1 connection",
    "small, 64": "gateway, small request, 64 connections",
    "stream, 64": f"gateway, stream of {EVENTS} events, 64 connections",
}
"""The requests; a number after the comma is how many connections send them, if not `CONNECTIONS`."""
MORE = {
    "wait": "gateway, added latency",
    "memory": "gateway, memory after the run",
    "start": "gateway, time until it accepts connections",
}
AT_MOST = {
    ("small", TENSORZERO): 1.0,
    ("stream", TENSORZERO): 1.0,
    ("agent", TENSORZERO): 1 / 4,
    ("agent stream", TENSORZERO): 1 / 4,
    ("small", LITELLM): 1 / 40,
    ("stream", AIOHTTP): 2.0,
    ("translated", LITELLM): 1 / 30,
    ("translated stream", LITELLM): 1 / 30,
}
PROMISED = {
    "small": (0.64, "the promise: 0.64 ms"),
    "stream": (5.8, "the promise: 5.8 ms"),
    "agent": (2.0, "the promise: 2 ms"),
    "agent stream": (3.0, "the promise: 3 ms"),
    "translated": (1.0, "the promise: 1 ms"),
    "translated stream": (4.0, "the promise: 4 ms"),
    "start": (1.0, "the promise: 1 s"),
}


UNITS = {"memory": "MB", "start": "s"}


class Measurements:
    """The rounds of every gateway and request, in CPU milliseconds per request, and the reasons for missing ones."""

    def __init__(self) -> None:
        self.rounds: dict[tuple[str, str], list[float]] = {}
        self.reasons: dict[str, str] = dict(NOT_FOUND)
        self.latencies = StreamLatencies()

    def run_round(self, running: RunningGateway, work: str, seconds: float) -> float | None:
        """CPU milliseconds per request in one round; None if it failed."""
        contestant = running.contestant
        before = running.cpu
        try:
            name, _, connections = work.partition(", ")
            answers = asyncio.run(
                run_load(
                    running.port,
                    contestant.adapt(request_cases()[name]),
                    contestant.headers,
                    seconds,
                    int(connections or CONNECTIONS),
                )
            )
        except (WrongAnswer, OSError) as error:
            self.reasons[f"{contestant.name}, {work}"] = " ".join(str(error).split())[:200]
            return None
        return (running.cpu - before) / answers * 1e3

    def measure_latency(self, name: str, port: int, contestant: Contestant | None = None) -> None:
        """The median latency of requests with pauses between them, in milliseconds."""
        case = request_cases()["small"]
        headers = contestant.headers if contestant is not None else {}
        with contextlib.suppress(WrongAnswer, OSError):
            case = case if contestant is None else contestant.adapt(case)
            seconds = asyncio.run(latencies(port, case, headers, LATENCY_REQUESTS, PAUSE_SECONDS))
            self.add(name, "wait", median(seconds) * 1e3)

    def measure_streams(self, name: str, port: int, contestant: Contestant | None = None) -> None:
        """The latencies of streams over one connection."""
        quick, slow = stream_cases()
        headers = contestant.headers if contestant is not None else {}
        if contestant is not None:
            if not {"stream", "slow stream"} <= set(contestant.work):
                return
            quick, slow = contestant.adapt(quick), contestant.adapt(slow)
        try:
            self.latencies.measure(name, port, quick, slow, headers)
        except (WrongAnswer, OSError) as error:
            self.reasons[f"{name}, streams"] = " ".join(str(error).split())[:200]

    def add(self, name: str, work: str, milliseconds: float) -> None:
        self.rounds.setdefault((work, name), []).append(milliseconds)

    def timing(self, name: str, work: str) -> Timing | None:
        """The timing of a gateway; of a latency, without that of the upstream."""
        rounds = self.rounds.get((work, name))
        if not rounds:
            return None
        timing = Timing.of(rounds)
        if work == "wait" and name and (direct := self.timing("", work)) is not None:
            return Timing(timing.least - direct.least, timing.median - direct.median)
        return timing


def figures() -> Iterator[Figure | str]:
    with tempfile.TemporaryDirectory(prefix="antiphon-bench-") as name, scripted_upstream() as upstream:
        measured = Measurements()
        gateways = list(contestants(Path(name), upstream))
        with contextlib.ExitStack() as stack:
            running = list(start_all(gateways, Path(name), measured, stack))
            measure(running, measured)
            for _ in range(ROUNDS):
                measured.measure_latency("", upstream)
                measured.measure_streams(UPSTREAM, upstream)
                for each in running:
                    measured.measure_latency(each.contestant.name, each.port, each.contestant)
                    measured.measure_streams(each.contestant.name, each.port, each.contestant)
            for each in running:
                measured.add(each.contestant.name, "memory", each.memory)
                measured.add(each.contestant.name, "start", each.start_seconds)
    versions = {contestant.name: f"{contestant.name} {version_of(contestant)}".strip() for contestant in gateways}
    for work, label in (NAMES | MORE).items():
        mine = measured.timing(OURS, work)
        if mine is None:
            continue
        unit = UNITS.get(work, "ms")
        if work in PROMISED:
            promised, against = PROMISED[work]
            yield Figure(label, mine.least, promised, unit, 1.0, against, mine.median)
        for contestant in gateways[1:]:
            theirs = measured.timing(contestant.name, work)
            if theirs is not None:
                at_most = AT_MOST.get((work, contestant.name))
                yield Figure.of(label, mine, theirs, unit, at_most=at_most, against=versions[contestant.name])
    yield from measured.latencies.figures(OURS, {one.name: versions[one.name] for one in gateways[1:]})
    for peer, reason in measured.reasons.items():
        yield not_measured(f"gateway: {peer}", reason)


def start_all(
    gateways: list[Contestant], folder: Path, measured: Measurements, stack: contextlib.ExitStack
) -> Iterator[RunningGateway]:
    """Start the gateways. Why one does not start is recorded."""
    for contestant in gateways:
        if not is_installed(contestant):
            measured.reasons[contestant.name] = "not installed; `make bench` installs it where possible"
            continue
        try:
            running = RunningGateway(contestant, folder)
        except DidNotStart as error:
            measured.reasons[contestant.name] = str(error)
            continue
        stack.callback(running.stop)
        yield running


def measure(running: list[RunningGateway], measured: Measurements) -> None:
    """Warm every gateway up with every request it supports, then measure in rounds."""
    supported = [
        (gateway, work)
        for work in NAMES
        for gateway in running
        if work.partition(", ")[0] in gateway.contestant.work
        and measured.run_round(gateway, work, WARM_UP_SECONDS) is not None
    ]
    for _ in range(ROUNDS):
        for gateway, work in supported:
            milliseconds = measured.run_round(gateway, work, SECONDS)
            if milliseconds is not None:
                measured.add(gateway.contestant.name, work, milliseconds)


@contextlib.contextmanager
def scripted_upstream() -> Iterator[int]:
    """Start the upstream; its port."""
    with subprocess.Popen(
        [sys.executable, "-m", "bench.gateway.traffic"], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        yield int(process.stdout.readline())
        process.communicate()
