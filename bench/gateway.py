"""The gateway beside others: CPU time of the server's processes for one request, everybody in turns in one run.

The upstream and the load are other processes (`gateway_traffic`), so only the gateways themselves are counted: user and system
time of their process trees, as the kernel tells it. Wall time would say more about what else runs on the machine. Every
contestant is warmed up and then asked in rounds, and the best round counts.

Beside that: what it takes until a contestant serves, what its processes hold in memory once it has served everything, and how
much later an answer comes through it than straight from the upstream, asked now and then over one connection. That is wall
time, and the median of many. What a client of streams notices, also in wall time, is in `gateway_latency`.

The floors are proxies that do nothing but pass bytes on. Where a promise is a number of milliseconds, it is the one of the
project's plan, measured then on a small machine with two cores; a ratio needs no such excuse.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from bench.figures import Figure, Taken, not_measured
from bench.gateway_latency import UPSTREAM, Latencies, stream_asks
from bench.gateway_peers import (
    AIOHTTP,
    LITELLM,
    NOT_FOUND,
    OURS,
    ROOT,
    TENSORZERO,
    Contestant,
    DidNotStart,
    Running,
    contestants,
    is_installed,
    version_of,
)
from bench.gateway_traffic import CONNECTIONS, EVENTS, AnswerWrong, asks, load, waits

ROUNDS = 5
SECONDS, WARM_UP_SECONDS = 1.0, 0.5
START_RUNS = 5
WAITS, PAUSE = 60, 0.02

NAMES = {
    "small": "gateway, small request",
    "stream": f"gateway, stream of {EVENTS} events",
    "slow stream": f"gateway, {EVENTS} events one by one",
    "agent": "gateway, 320 KB agent request",
    "agent stream": "gateway, 320 KB agent request, streamed",
    "translated": "gateway, translated",
    "translated stream": "gateway, translated stream",
    "small, 1": "gateway, small request, 1 connection",
    "small, 64": "gateway, small request, 64 connections",
}
"""The work; a number after a comma is how many connections ask, where it is not the usual."""
MORE = {
    "wait": "gateway, added to the wait for an answer",
    "memory": "gateway, memory after all of that",
    "start": "gateway, from start to serving",
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
    "small": (0.64, "what TensorZero took"),
    "stream": (5.8, "what TensorZero took"),
    "agent": (2.0, "the promise: 2 ms"),
    "agent stream": (3.0, "the promise: 3 ms"),
    "translated": (1.0, "the promise: 1 ms"),
    "translated stream": (4.0, "the promise: 4 ms"),
    "start": (1.0, "the promise: 1 s"),
}


UNITS = {"memory": "MB", "start": "s"}


class Measured:
    """Everybody's rounds of every piece of work, in CPU milliseconds a request; and why there are none."""

    def __init__(self) -> None:
        self.rounds: dict[tuple[str, str], list[float]] = {}
        self.why: dict[str, str] = dict(NOT_FOUND)
        self.latencies = Latencies()

    def play(self, running: Running, work: str, seconds: float) -> float | None:
        """One round; None if it went wrong."""
        contestant = running.contestant
        before = running.cpu
        try:
            ask, _, connections = work.partition(", ")
            at_once = int(connections or CONNECTIONS)
            answers = asyncio.run(
                load(running.port, contestant.asked(asks()[ask]), contestant.headers, seconds, at_once)
            )
        except (AnswerWrong, OSError) as error:
            self.why[f"{contestant.name}, {work}"] = " ".join(str(error).split())[:200]
            return None
        return (running.cpu - before) / answers * 1e3

    def wait(self, name: str, port: int, contestant: Contestant | None = None) -> None:
        """How long answers take where little is asked; the median, in milliseconds."""
        ask = asks()["small"]
        headers = contestant.headers if contestant is not None else {}
        with contextlib.suppress(AnswerWrong, OSError):
            asked = ask if contestant is None else contestant.asked(ask)
            taken = asyncio.run(waits(port, asked, headers, WAITS, PAUSE))
            self.add(name, "wait", median(taken) * 1e3)

    def stream(self, name: str, port: int, contestant: Contestant | None = None) -> None:
        """How streams come over one connection."""
        quick, slow = stream_asks()
        headers = contestant.headers if contestant is not None else {}
        if contestant is not None:
            if not {"stream", "slow stream"} <= set(contestant.work):
                return
            quick, slow = contestant.asked(quick), contestant.asked(slow)
        try:
            self.latencies.measure(name, port, quick, slow, headers)
        except (AnswerWrong, OSError) as error:
            self.why[f"{name}, streams"] = " ".join(str(error).split())[:200]

    def add(self, name: str, work: str, milliseconds: float) -> None:
        self.rounds.setdefault((work, name), []).append(milliseconds)

    def taken(self, name: str, work: str) -> Taken | None:
        """What a round took; of a wait, without what the upstream itself takes."""
        rounds = self.rounds.get((work, name))
        if not rounds:
            return None
        taken = Taken.of(rounds)
        if work == "wait" and name and (straight := self.taken("", work)) is not None:
            return Taken(taken.least - straight.least, taken.median - straight.median)
        return taken


def figures() -> Iterator[Figure | str]:
    yield from start_figures()
    with tempfile.TemporaryDirectory(prefix="antiphon-bench-") as name, scripted_upstream() as upstream:
        measured = Measured()
        entered = list(contestants(Path(name), upstream))
        with contextlib.ExitStack() as stack:
            running = list(started(entered, Path(name), measured, stack))
            measure(running, measured)
            for _ in range(ROUNDS):
                measured.wait("", upstream)
                measured.stream(UPSTREAM, upstream)
                for known in running:
                    measured.wait(known.contestant.name, known.port, known.contestant)
                    measured.stream(known.contestant.name, known.port, known.contestant)
            for known in running:
                measured.add(known.contestant.name, "memory", known.memory)
                measured.add(known.contestant.name, "start", known.started)
    versions = {contestant.name: f"{contestant.name} {version_of(contestant)}".strip() for contestant in entered}
    for work, label in (NAMES | MORE).items():
        mine = measured.taken(OURS, work)
        if mine is None:
            continue
        unit = UNITS.get(work, "ms")
        if work in PROMISED:
            promised, against = PROMISED[work]
            yield Figure(label, mine.least, promised, unit, 1.0, against, mine.median)
        for contestant in entered[1:]:
            theirs = measured.taken(contestant.name, work)
            if theirs is not None:
                at_most = AT_MOST.get((work, contestant.name))
                yield Figure.of(label, mine, theirs, unit, at_most=at_most, against=versions[contestant.name])
    yield from measured.latencies.figures(OURS, {one.name: versions[one.name] for one in entered[1:]})
    for peer, why in measured.why.items():
        yield not_measured(f"gateway: {peer}", why)


def started(
    entered: list[Contestant], folder: Path, measured: Measured, stack: contextlib.ExitStack
) -> Iterator[Running]:
    """Those that run; the others say why not."""
    for contestant in entered:
        if not is_installed(contestant):
            measured.why[contestant.name] = "it is not installed; `make bench` does that where it can"
            continue
        try:
            running = Running(contestant, folder)
        except DidNotStart as error:
            measured.why[contestant.name] = str(error)
            continue
        stack.callback(running.stop)
        yield running


def measure(running: list[Running], measured: Measured) -> None:
    """Warm everybody up, then go round."""
    able = [
        (known, work)
        for work in NAMES
        for known in running
        if work.partition(", ")[0] in known.contestant.work and measured.play(known, work, WARM_UP_SECONDS) is not None
    ]
    for _ in range(ROUNDS):
        for known, work in able:
            milliseconds = measured.play(known, work, SECONDS)
            if milliseconds is not None:
                measured.add(known.contestant.name, work, milliseconds)


@contextlib.contextmanager
def scripted_upstream() -> Iterator[int]:
    """The upstream, running; its port."""
    with subprocess.Popen(
        [sys.executable, "-m", "bench.gateway_traffic"], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        yield int(process.stdout.readline())
        process.communicate()


def start_figures() -> Iterator[Figure]:
    """What it costs that the program is there at all."""
    python = [sys.executable, "-c"]
    bare = min(cpu_of([*python, "pass"]) for _ in range(START_RUNS))
    imported = min(cpu_of([*python, "import antiphon"]) for _ in range(START_RUNS))
    helped = min(cpu_of([sys.executable, "-m", "antiphon", "--help"]) for _ in range(START_RUNS))
    yield Figure("import antiphon", imported * 1e3, bare * 1e3, "ms", None, "python itself")
    yield Figure("import antiphon", imported * 1e3, 60, "ms", 1.0, "the promise: 60 ms")
    yield Figure("antiphon --help", helped * 1e3, 150, "ms", 1.0, "the promise: 150 ms")


def cpu_of(command: list[str]) -> float:
    """CPU seconds of a program from start to end."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    for figure in figures():
        print(figure, flush=True)
