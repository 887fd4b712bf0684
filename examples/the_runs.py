"""Durable runs, in a minute: questions are asked, two workers answer them, one is killed with `kill -9` in the middle of its
tools, and the other continues. Then a run that waits for a person while no lease is held, and the answer after the decision.

No key and no network: the model is a function. The workers are real processes, `antiphon worker --app the_runs:registry`.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import antiphon as ap
from antiphon.history import AgentHistory, HistoryStore, Run
from antiphon.providers.scripted import ScriptedAnswer, call
from antiphon.runs import RunRegistry, Runs

FOLDER = "ANTIPHON_DEMO_FOLDER"
"""The environment variable that tells the workers where the store and the list of finished calls are."""
CITIES = ["Oslo", "Rome", "Lima", "Cairo", "Kyoto", "Quito"]

registry = RunRegistry()


def store_file() -> Path:
    return Path(os.environ[FOLDER]) / "chats.db"


def finished_calls() -> Path:
    return Path(os.environ[FOLDER]) / "finished_calls.log"


@ap.tool(effect="idempotent")
async def measure(city: str, context: ap.ToolContext) -> str:
    """Measure the temperature of a city."""
    await asyncio.sleep(0.4)
    with finished_calls().open("a") as file:
        file.write(f"{context.idempotency_key} {os.getpid()}\n")
    return f"{len(city) * 4} degrees"


@ap.tool(effect="once", needs_approval=True)
async def call_off(what: str) -> str:
    """Call something off. A person must allow it."""
    return f"{what} is called off"


@registry.kind("weather", code=1)
def weather(history: AgentHistory, run: Run) -> ap.ToolLoop:
    """Three rounds: measure, measure again, answer. What it is asked to call off, it wants to call off first."""

    def answer(*_: object) -> ScriptedAnswer:
        outputs = sum(entry.kind == "model_output" for entry in history.entries)
        if outputs == 0 and "call_off" in run.options:
            return call("call_off", what=run.options["call_off"])
        if outputs < 2 and "city" in run.options:
            return ["I measure.", call("measure", city=run.options["city"])]
        return "That is done."

    chat = ap.Conversation(ap.FunctionModel(answer), tools=[measure, call_off], history=history)
    return ap.ToolLoop(chat, max_repeats=3)


def worker(name: str) -> subprocess.Popen[bytes]:
    command = [
        "-m",
        "antiphon",
        "worker",
        "--app",
        "the_runs:registry",
        "--store",
        str(store_file()),
        "--slots",
        "3",
        "--lease",
        "2",
    ]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    return subprocess.Popen(
        [sys.executable, *command, "--name", name],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def heading(text: str) -> None:
    print(f"\n\x1b[1m{text}\x1b[0m" if sys.stdout.isatty() else f"\n{text}", flush=True)


def standing(store: HistoryStore) -> str:
    return ", ".join(f"{number} {state}" for state, number in store.runs.counts().items())


def players(store: HistoryStore) -> Counter[str]:
    return Counter(run.lease.holder for run in store.runs.list() if run.lease)


def wait_for(store: HistoryStore, state: str, number: int) -> None:
    while store.runs.counts().get(state, 0) < number:
        time.sleep(0.05)


def main() -> None:
    with ap.SqliteStore(store_file()) as store:
        runs = Runs(store, registry)

        heading("1. Six questions are submitted. No worker runs yet; the process that submitted them could end now.")
        asked = [runs.submit(f"How warm is {city}?", kind="weather", options={"city": city}) for city in CITIES]
        print(standing(store))

        heading("2. Two workers take them up, and one is killed with kill -9 while its tools run.")
        doomed, heir = worker("doomed"), worker("heir")
        try:
            while not (held := players(store))["doomed"]:
                time.sleep(0.05)
            time.sleep(0.2)
            held = players(store)
            print(f"{standing(store)}: {', '.join(f'{name} plays {number}' for name, number in sorted(held.items()))}")
            doomed.kill()
            print(f"doomed ended with signal {-doomed.wait()}")
            wait_for(store, "done", 6)
            moved = [run.options["city"] for run in store.runs.list() if run.attempts > 1]
            print(f"{standing(store)}; {len(moved)} were taken over: {', '.join(sorted(moved))}")
            ended = Counter(line.split()[0] for line in finished_calls().read_text().splitlines())
            print(f"{len(ended)} tool calls came to their end, each once: {set(ended.values()) == {1}}")

            heading("3. A call that needs a person: the run sleeps in the store, and no worker holds it.")
            run = runs.submit("Never mind the picnic.", kind="weather", options={"call_off": "The picnic"})
            wait_for(store, "suspended", 1)
            (waiting,) = runs.pending(run.id)
            print(f"waiting: {waiting.tool_name} {waiting.arguments}; approved, perhaps days later:")
            runs.approve(run.id)
            run = asyncio.run(runs.wait(run.id))
            print(f"{run.state}: {run.reason}")
        finally:
            for process in (doomed, heir):
                process.terminate()
                process.wait()
        assert len(asked) == 6
        heading("4. The log of a run that was taken over:")
        first = next((run for run in store.runs.list() if run.attempts > 1), asked[0])
        for entry in store.open(first.conversation).entries:
            print(f"  {entry.sequence_number:>2} {entry.kind}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="antiphon-demo-") as folder:
        os.environ[FOLDER] = folder
        main()
