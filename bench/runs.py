"""`python -m bench.runs [PLACE]`: durable runs a second with one worker and with three, and the CPU time of a run.

A run is a turn of three calls of a model and two tools: seven entries, a claim and a settling. The model
is a function and the tools do nothing, so what is measured is ours and the store's. Workers are processes, `antiphon worker
--once`; what one takes to start and find nothing is measured beside and taken off. PLACE is a folder for an SQLite file (a
temporary one by default), or `postgresql://…`.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from antiphon.conversation import Conversation, ToolLoop
from antiphon.history import AgentHistory, Run
from antiphon.history.location import is_postgres_url, open_store
from antiphon.providers.scripted import FunctionModel, Said, call
from antiphon.runs import RunBook, Runs
from antiphon.tools import tool

ROOT = Path(__file__).parent.parent
RUNS = 300
WORKERS = (1, 3)

book = RunBook()


@tool(effect="read")
async def look(city: str) -> str:
    """Look how the weather is."""
    return f"Rain in {city}"


@book.kind("bench")
def turn(history: AgentHistory, _: Run) -> ToolLoop:
    def answer(*_: object) -> Said:
        rounds = sum(entry.kind == "model_output" for entry in history.entries)
        return [call("look", city=("Oslo", "Rome")[rounds])] if rounds < 2 else "Rain everywhere."

    return ToolLoop(Conversation(FunctionModel(answer, chunk_size=None), tools=[look], history=history))


def played(place: str, workers: int) -> tuple[float, float]:
    """The seconds that so many workers take to play what there is, by the clock and of CPU."""
    command = [sys.executable, "-m", "antiphon", "worker", "--app", "bench.runs:book", "--store", place, "--once"]
    before, began = _cpu(), time.perf_counter()
    started = [subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL) for _ in range(workers)]
    for worker in started:
        if worker.wait():
            raise SystemExit(f"a worker ended with {worker.returncode}")
    return time.perf_counter() - began, _cpu() - before


def measured(place: str, workers: int) -> str:
    with open_store(place) as store:
        runs = Runs(store, book)
        idle, idle_cpu = played(place, workers)
        began = time.perf_counter()
        for number in range(RUNS):
            runs.submit(f"Question {number}?", kind="bench")
        submitting = time.perf_counter() - began
        seconds, cpu = played(place, workers)
        done = store.runs.counts()
    assert set(done) == {"done"}, done
    spent, wall = cpu - idle_cpu, seconds - idle
    return (
        f"{workers} {'worker ' if workers == 1 else 'workers'}  {RUNS / wall:6.0f} runs/s"
        f"  {1000 * spent / RUNS:5.2f} ms CPU a run  submitting {1000 * submitting / RUNS:5.2f} ms"
    )


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main(given: str) -> None:
    print(f"{RUNS} runs of 3 calls of a model and 2 tools, on {os.cpu_count()} cores")
    for workers in WORKERS:
        if is_postgres_url(given):
            print(measured(given, workers))
            continue
        with tempfile.TemporaryDirectory(dir=given or None) as folder:
            print(measured(str(Path(folder) / "runs.db"), workers))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "")
