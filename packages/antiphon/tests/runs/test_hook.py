"""`resume_run`, the hook for any queue: delivered twice, at once, late or after a kill, every step is done once."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from antiphon.conversation import Conversation, ToolLoop, Turn
from antiphon.errors import LeaseHeld, LeaseLost, RunConfigError, UnknownConversation
from antiphon.history import SqliteStore
from antiphon.history.codec import decode_entry
from antiphon.providers.call import ModelCallFailed, ProviderClient
from antiphon.providers.scripted import ScriptedModel, call
from antiphon.runs import RunRegistry, Runs
from antiphon.runs.hook import resume_run, resume_run_async
from antiphon.runs.registry import LoopFactory
from antiphon.tools import Tool, tool
from antiphon.wire.output import ProviderError
from runs.workers import Place, check_log
from support.planned_turns import World, planned, refusals, results_in
from support.repository import ROOT
from support.valkey_server import running
from support.waiting import until

PAGE = ROOT / "docs" / "library" / "runs.md"


def asked(store: SqliteStore) -> str:
    chat = Conversation(store=store)
    chat.add("Go.")
    return chat.id


def built(model: ProviderClient, *tools: Tool) -> LoopFactory:
    return lambda history, run: ToolLoop(Conversation(model, tools=tools, history=history))


def booked(model: ProviderClient, *tools: Tool) -> RunRegistry:
    registry = RunRegistry()
    registry.kind("turn", code=1)(built(model, *tools))
    return registry


def test_resume_run_finishes_turn_once(store: SqliteStore) -> None:
    world, conversation = World(), asked(store)
    build = built(planned([["look"], ["send", "put"]]), *world.tools())
    assert resume_run(store, conversation, build) == "answered"
    version = store.open(conversation).version
    assert resume_run(store, conversation[:10], build) == "answered"
    assert store.open(conversation).version == version
    assert store.current_lease(conversation) is None
    assert set(world.began.values()) == {1}


def test_concurrent_deliveries_run_each_step_once(store: SqliteStore) -> None:
    world, conversation = World(), asked(store)
    build = built(planned([["send"], ["send", "look"], ["send"]]), *world.tools())
    barrier = threading.Barrier(4)

    def deliver(_: int) -> str:
        barrier.wait()
        while True:
            with contextlib.suppress(LeaseHeld):
                return resume_run(store, conversation, build)
            time.sleep(0.01)

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(deliver, range(4))) == ["answered"] * 4
    assert set(world.began.values()) == {1}
    assert len(results_in(store.open(conversation).entries)) == 4


def test_second_delivery_gets_lease_held(store: SqliteStore) -> None:
    conversation = asked(store)

    @tool
    def deliver_again() -> str:
        "The same message, once more."
        with pytest.raises(LeaseHeld, match=r"is leased by .* Try again later"):
            resume_run(store, conversation, built(ScriptedModel()))
        return "refused"

    assert resume_run(store, conversation, built(planned([["deliver_again"]]), deliver_again)) == "answered"
    assert list(results_in(store.open(conversation).entries).values()) == ["refused"]


def test_failed_model_call_is_delivered_again(store: SqliteStore) -> None:
    model = ScriptedModel(ProviderError("slow down", "rate_limit", retry_after=7.0), "Here.")
    conversation = asked(store)
    with pytest.raises(ModelCallFailed) as failed:
        resume_run(store, conversation, built(model))
    assert failed.value.error.retry_after == 7.0
    assert store.current_lease(conversation) is None
    assert resume_run(store, conversation, built(model)) == "answered"


def test_resume_run_settles_run_of_table(store: SqliteStore) -> None:
    @tool(needs_approval=True)
    def fly() -> str:
        "Fly."
        return "flown"

    model = ScriptedModel(
        ProviderError("busy", "overloaded"), [call("fly")], "Done.", ProviderError("no key", "authentication")
    )
    registry, runs = booked(model, fly), Runs(store)
    run = runs.submit("Fly.", kind="turn")
    with pytest.raises(ModelCallFailed):
        resume_run(store, run, registry)
    assert (store.runs.get(run.id).state, store.runs.get(run.id).reason) == ("waiting", "overloaded: busy")
    for _ in range(2):
        assert resume_run(store, run, registry) == "approval"
        assert store.runs.get(run.id).state == "suspended"
    runs.approve(run.id)
    assert resume_run(store, run, registry) == "answered"
    assert (store.runs.get(run.id).state, runs.answer(run.id)) == ("done", "Done.")
    assert resume_run(store, run, registry) == "answered", "a finished run is only reported"
    other = runs.submit("Once more.", kind="turn")
    with pytest.raises(ModelCallFailed):
        resume_run(store, other, registry)
    assert store.runs.get(other.id).state == "failed"
    assert resume_run(store, other, registry) == "authentication: no key"
    assert model.turns_left == 0


def test_cancel_interrupts_running_delivery(store: SqliteStore) -> None:
    runs = Runs(store)

    @tool(timeout=None)
    async def wait_for_ever() -> str:
        "Never ends."
        await asyncio.to_thread(runs.cancel, run.id)
        await asyncio.sleep(3600)
        return ""

    run = runs.submit("Wait.", kind="turn")
    registry = booked(ScriptedModel([call("wait_for_ever")]), wait_for_ever)
    assert resume_run(store, run, registry, lease_seconds=1.5) == "interrupted"
    assert store.runs.get(run.id).state == "cancelled"
    history = store.open(run.conversation)
    assert Turn.of(history.snapshot()).ended == "interrupted"
    assert refusals(history.snapshot()) == []
    assert resume_run(store, run, registry) == store.runs.get(run.id).reason


def test_lost_lease_stops_writes(store: SqliteStore) -> None:
    conversation = asked(store)

    @tool(effect="idempotent", timeout=None)
    async def lose() -> str:
        "Another takes the conversation over."
        lease = store.current_lease(conversation)
        assert lease is not None
        store.release(lease)
        assert store.claim(conversation, "another") is not None
        await asyncio.sleep(3600)
        return ""

    with pytest.raises(LeaseLost):
        resume_run(store, conversation, built(ScriptedModel([call("lose")]), lose), lease_seconds=0.6)
    assert store.open(conversation).entries[-1].kind == "tool_call_started"
    held = store.current_lease(conversation)
    assert held is not None
    assert held.holder == "another"


def test_cancelled_delivery_leaves_turn_resumable(store: SqliteStore) -> None:
    conversation = asked(store)
    running = asyncio.Event()

    @tool(effect="idempotent", timeout=None)
    async def hang() -> str:
        "Hangs, once."
        if not running.is_set():
            running.set()
            await asyncio.sleep(3600)
        return "done"

    build = built(planned([["hang"]]), hang)

    async def stop() -> None:
        playing = asyncio.ensure_future(resume_run_async(store, conversation, build))
        await running.wait()
        playing.cancel()
        await asyncio.wait([playing])
        assert playing.cancelled()

    asyncio.run(stop())
    assert store.open(conversation).entries[-1].kind == "tool_call_started"
    assert store.current_lease(conversation) is None
    assert resume_run(store, conversation, build) == "answered"


def test_resume_run_rejects_unknown_kind_and_code(store: SqliteStore) -> None:
    registry = booked(ScriptedModel("Here."))
    with pytest.raises(UnknownConversation):
        resume_run(store, "01arz3ndektsv4rrffq69g5fav", registry)
    with pytest.raises(RunConfigError, match="'poem'; this registry has turn"):
        resume_run(store, Runs(store).submit("Go.", kind="poem"), registry)
    with pytest.raises(RunConfigError, match="needs code 2; this worker has 1"):
        resume_run(store, Runs(store).submit("Go.", kind="turn", code=2), registry)
    with pytest.raises(RunConfigError, match="must return a ToolLoop, got str"):
        resume_run(store, asked(store), lambda history, run: "loop")  # type: ignore[arg-type,return-value]


def test_resume_run_leaves_a_log_of_a_newer_version_alone(store: SqliteStore) -> None:
    conversation = asked(store)
    store.open(conversation).append(decode_entry(b'{"kind":"vision_of_the_future","sequence_number":2,"depth":7}'))
    run = Runs(store).submit(conversation=conversation, kind="turn")
    for delivered in (run, conversation):
        with pytest.raises(RunConfigError, match=r"entry 2 \(vision_of_the_future\) was written by a newer version"):
            resume_run(store, delivered, built(ScriptedModel("Here.")))
    assert (store.runs.get(run.id).state, store.open(conversation).version) == ("waiting", 2)


def example() -> str:
    """The actor as the page shows it."""
    (code,) = re.findall(r"^```py\n(import os\n.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return str(code)


def fresh_book() -> ModuleType:
    """The module of the registry, which looks for its folder when it is imported."""
    spec = importlib.util.spec_from_file_location("my_agents", Path(__file__).parent / "sample_runs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_dramatiq_example_delivered_twice(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    dramatiq = pytest.importorskip("dramatiq", reason="dramatiq is not installed")
    from dramatiq.brokers.stub import StubBroker

    monkeypatch.setenv("ANTIPHON_STORE", place.store)
    monkeypatch.setenv("RUNS_FOLDER", str(place.folder))
    monkeypatch.setitem(sys.modules, "my_agents", fresh_book())
    broker = StubBroker()
    dramatiq.set_broker(broker)
    names: dict[str, Any] = {}
    exec(compile(example(), PAGE.name, "exec"), names)
    play = names["play"]
    worker = dramatiq.Worker(broker, worker_threads=4, worker_timeout=20)
    with place.open() as store:
        runs = [
            Runs(store).submit("Go.", kind="work", code=2, options={"plan": [["send"], ["put", "send"]]})
            for _ in range(3)
        ]
        for run in runs * 2:
            play.send(run.id)
        worker.start()
        try:
            broker.join(play.queue_name, timeout=60_000)
            worker.join()
        finally:
            worker.stop()
            broker.close()
        for run in runs:
            assert (store.runs.get(run.id).state, store.runs.get(run.id).reason) == ("done", "answered")
            assert check_log(place, store, run) == 0
    assert len(place.began("send")) == 6
    assert len(place.began("put")) == 3


FINISHED = "tool_call_finished"
BROKER = """
import os, signal, dramatiq
from dramatiq.brokers.redis import RedisBroker

broker = RedisBroker(url=os.environ["BROKER"], heartbeat_timeout=2_000, maintenance_chance=1_000_000)
dramatiq.set_broker(broker)
"""
WORKS = """
if __name__ == "__main__":
    dramatiq.Worker(broker, worker_threads=2, worker_timeout=100).start()
    print("ready", flush=True)
    signal.pause()
"""


@pytest.mark.slow
def test_killed_dramatiq_worker_is_redelivered(place: Place) -> None:
    pytest.importorskip("dramatiq", reason="dramatiq is not installed")
    folder = place.folder
    (folder / "tasks.py").write_text(BROKER + example() + WORKS)
    (folder / "my_agents.py").write_text("from runs.sample_runs import registry\n")
    with running() as valkey:
        environment = {**place.environment, "BROKER": f"unix://{valkey.socket}"}

        @contextlib.contextmanager
        def worker() -> Iterator[subprocess.Popen[bytes]]:
            with (folder / "workers.log").open("ab") as log:
                process = subprocess.Popen(
                    [sys.executable, "tasks.py"], cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=log
                )
            assert process.stdout is not None
            try:
                with process.stdout:
                    assert process.stdout.readline() == b"ready\n", (folder / "workers.log").read_text()
                    yield process
            finally:
                process.kill()
                process.wait()

        with place.open() as store:
            plan = [["send"], ["send", "hold_put"], ["hold_send"]]
            run = Runs(store).submit("Go.", kind="work", code=2, options={"plan": plan})
            send = ["-c", "import sys, tasks; tasks.play.send(sys.argv[1]); tasks.play.send(sys.argv[1])", run.id]
            with worker() as first:
                subprocess.run([sys.executable, *send], cwd=folder, env=environment, check=True)
                until(lambda: place.began("hold_put") and store.open(run.conversation).entries[-1].kind == FINISHED)
                first.kill()
                first.wait()
            place.go()
            with worker():
                until(lambda: store.runs.get(run.id).is_over)
            assert (store.runs.get(run.id).state, store.runs.get(run.id).reason) == ("done", "answered")
            assert check_log(place, store, run) == 0
    assert [len(place.began(name)) for name in ("send", "hold_put", "hold_send")] == [2, 2, 1]
