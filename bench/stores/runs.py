"""`python -m bench runs [PLACE]`: durable runs per second with one and with three workers, and the CPU time of a run.

A run is a turn with three model calls and two tools: seven entries and one claim. The model is a function and the tools do
nothing, so the cost is ours and the store's. Workers are processes (`antiphon worker --once`); the time that one takes to start
and find nothing is subtracted. PLACE is a folder for an SQLite file (default: a temporary one), or `postgresql://…`.
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
from antiphon.providers.scripted import FunctionModel, ScriptedAnswer, call
from antiphon.runs import RunRegistry, Runs
from antiphon.tools import tool

ROOT = Path(__file__).parents[2]
RUNS = 300
WORKERS = (1, 3)

registry = RunRegistry()


@tool(effect="read")
async def look(city: str) -> str:
    """Look how the weather is."""
    return f"Rain in {city}"


@registry.kind("bench")
def turn(history: AgentHistory, _: Run) -> ToolLoop:
    def answer(*_: object) -> ScriptedAnswer:
        rounds = sum(entry.kind == "model_output" for entry in history.entries)
        return [call("look", city=("Oslo", "Rome")[rounds])] if rounds < 2 else "Rain everywhere."

    return ToolLoop(Conversation(FunctionModel(answer, chunk_size=None), tools=[look], history=history))


def run_workers(place: str, workers: int) -> tuple[float, float]:
    """The wall and CPU seconds that workers need for the open runs."""
    command = [
        sys.executable,
        "-m",
        "antiphon",
        "worker",
        "--app",
        "bench.stores.runs:registry",
        "--store",
        place,
        "--once",
    ]
    before, began = _cpu(), time.perf_counter()
    started = [subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL) for _ in range(workers)]
    for worker in started:
        if worker.wait():
            raise SystemExit(f"a worker ended with {worker.returncode}")
    return time.perf_counter() - began, _cpu() - before


def measure(place: str, workers: int) -> str:
    with open_store(place) as store:
        runs = Runs(store, registry)
        idle, idle_cpu = run_workers(place, workers)
        began = time.perf_counter()
        for number in range(RUNS):
            runs.submit(f"Question {number}?", kind="bench")
        submitting = time.perf_counter() - began
        seconds, cpu = run_workers(place, workers)
        done = store.runs.counts()
    assert set(done) == {"done"}, done
    spent, wall = cpu - idle_cpu, seconds - idle
    return (
        f"{workers} {'worker ' if workers == 1 else 'workers'}  {RUNS / wall:6.0f} runs/s"
        f"  {1000 * spent / RUNS:5.2f} ms CPU per run  submitting {1000 * submitting / RUNS:5.2f} ms"
    )


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main(arguments: list[str]) -> int:
    given = arguments[0] if arguments else ""
    print(f"{RUNS} runs of 3 model calls and 2 tools, on {os.cpu_count()} cores")
    for workers in WORKERS:
        if is_postgres_url(given):
            print(measure(given, workers))
            continue
        with tempfile.TemporaryDirectory(dir=given or None) as folder:
            print(measure(str(Path(folder) / "runs.db"), workers))

    return 0
