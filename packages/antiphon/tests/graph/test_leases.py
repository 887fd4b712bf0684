"""Who may work on a conversation: one run at a time, in whatever process, and a zombie writes nothing."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, StateGraph

from antiphon.errors import GraphError, LeaseHeld, StaleRunError
from antiphon.graph import AskNode, Conversations, ConversationState, LLMNode
from antiphon.history import SqliteStore
from antiphon.providers.call import ModelCallFailed
from antiphon.providers.scripted import FunctionModel, ScriptedModel, call
from antiphon.tools import tool
from antiphon.wire.output import ProviderError
from graph.rig import chats_in, kinds, log_of, loop_graph, thread
from graph.test_step_crash import Diary
from support.child_process import in_a_process

ROUNDS = 3


def scene(place: Path) -> Any:
    """A thread whose graph stands before its first node."""
    with (
        Conversations(place / "chats.db", ScriptedModel()) as chats,
        closing(sqlite3.connect(place / "graph.db", check_same_thread=False)) as db,
    ):
        question = chats.ask("Go.")
        loop_graph(chats, SqliteSaver(db)).update_state(thread(), question, as_node="__start__")
    return question


def run(place: Path, name: str, seconds: float = 5.0, wait: float = 0.0, pause: float = 0.01) -> None:
    """Invoke the thread, and note what is done and how it ended."""
    diary = Diary(place / "diary")

    @tool(effect="read")
    def look(number: int) -> str:
        "Looks."
        diary.note(f"began {number}")
        time.sleep(pause)
        return f"seen {number}"

    def answer(context: Any, _: Any) -> Any:
        outputs = sum(entry.role == "model_output" for entry in context)
        diary.note(f"asked {outputs}")
        return call("look", number=outputs) if outputs < ROUNDS else "Done."

    chats = Conversations(
        place / "chats.db", FunctionModel(answer), tools=[look], seconds=seconds, wait=wait, holder=f"process {name}"
    )
    try:
        with chats, closing(sqlite3.connect(place / "graph.db", check_same_thread=False)) as db:
            loop_graph(chats, SqliteSaver(db)).invoke(None, thread(), durability="sync")
        diary.note(f"{name} done")
    except Exception as error:
        diary.note(f"{name} {type(error).__name__}: {error}")


def begun(work: Callable[[int], None]) -> int:
    process, pipe = in_a_process(work)
    os.close(pipe)
    return process


@pytest.mark.parametrize("wait", [0.0, 10.0])
def test_two_processes_run_each_step_once(tmp_path: Path, wait: float) -> None:
    question = scene(tmp_path)
    processes = [begun(lambda _, name=name: run(tmp_path, name, wait=wait)) for name in ("a", "b")]  # type: ignore[misc]
    for process in processes:
        os.waitpid(process, 0)
    counts = Diary(tmp_path / "diary").counts()
    done = [f"asked {number}" for number in range(ROUNDS + 1)] + [f"began {number}" for number in range(ROUNDS)]
    assert {line: counts[line] for line in done} == dict.fromkeys(done, 1)
    ends = sorted(line for line in counts if line not in done)
    assert any(line.endswith(" done") for line in ends), ends
    if len(ends) == 2 and not all(line.endswith(" done") for line in ends):  # else one came when all was done
        assert any("LeaseHeld" in line or "StaleRunError" in line for line in ends), ends
    assert kinds(log_of(tmp_path, question).entries).count("model_output") == ROUNDS + 1


def test_lease_held_error_names_holder(tmp_path: Path) -> None:
    question = scene(tmp_path)
    with SqliteStore(tmp_path / "chats.db") as store:
        lease = store.claim(question["conversation"], "process a", 60)
        assert lease is not None
        run(tmp_path, "b", wait=0.12)
        (tool_runs,) = Diary(tmp_path / "diary").counts()
        assert "LeaseHeld" in tool_runs
        assert "process a" in tool_runs
        assert "after waiting 0.12 s" in tool_runs
        store.release(lease)
    run(tmp_path, "b")
    assert Diary(tmp_path / "diary").counts()["b done"] == 1


def stop(process: int, file: Path) -> None:
    """Stop a process, but not while it writes the file, which would block all others."""
    while True:
        os.kill(process, signal.SIGSTOP)
        os.waitpid(process, os.WUNTRACED)
        with closing(sqlite3.connect(file, timeout=0.02, isolation_level=None)) as db:
            try:
                db.execute("BEGIN IMMEDIATE")
                db.execute("ROLLBACK")
            except sqlite3.OperationalError:
                os.kill(process, signal.SIGCONT)
                time.sleep(0.005)
            else:
                return


def test_expired_holder_cannot_append(tmp_path: Path) -> None:
    """A process is stopped in mid-tool until its lease has run out; another one finishes; the first wakes up."""
    question = scene(tmp_path)
    diary = Diary(tmp_path / "diary")
    zombie = begun(lambda _: run(tmp_path, "zombie", seconds=0.3, pause=0.5))
    until = time.monotonic() + 20
    while not diary.counts()["began 1"] and time.monotonic() < until:
        time.sleep(0.002)
    stop(zombie, tmp_path / "chats.db")
    run(tmp_path, "other", wait=20)
    version = log_of(tmp_path, question).version
    os.kill(zombie, signal.SIGCONT)
    os.waitpid(zombie, 0)
    counts = diary.counts()
    assert counts["other done"] == 1, list(counts)
    assert [line for line in counts if line.startswith("zombie LeaseLost")], list(counts)
    assert log_of(tmp_path, question).version == version
    assert [counts[f"asked {number}"] for number in range(ROUNDS + 1)] == [1] * (ROUNDS + 1)
    assert counts["began 0"] == counts["began 2"] == 1, "only what was interrupted ran again"


def test_concurrent_runs_in_one_process(tmp_path: Path) -> None:
    entered, leave = threading.Event(), threading.Event()

    @tool(effect="read")
    def hold() -> str:
        "Holds on."
        entered.set()
        leave.wait(60)
        return "done"

    model = FunctionModel(lambda context, options: "Done." if len(context) > 2 else call("hold"))
    with chats_in(tmp_path, model, tools=[hold]) as chats:
        graph = loop_graph(chats)
        question = chats.ask("Go.")
        first = threading.Thread(target=lambda: graph.invoke(question, thread()))
        first.start()
        assert entered.wait(60)
        with pytest.raises(LeaseHeld, match="of this process"):
            graph.invoke(question, thread())
        leave.set()
        first.join()
        assert chats.is_over(question)


def test_parallel_nodes_cannot_share_conversation(tmp_path: Path) -> None:
    async def slowly(context: Any, options: Any) -> str:
        await asyncio.sleep(0.02)
        return "Hm."

    with chats_in(tmp_path, FunctionModel(slowly)) as chats:
        builder = StateGraph(ConversationState)
        builder.add_node("one", LLMNode(chats))
        builder.add_node("two", LLMNode(chats))
        builder.add_edge(START, "one")
        builder.add_edge(START, "two")
        graph = chats.bind(builder.compile())
        with pytest.raises(GraphError, match="two nodes of one step"):
            asyncio.run(graph.ainvoke(chats.ask("Go.")))


def test_sequential_nodes_of_one_step_cannot_share_conversation(tmp_path: Path) -> None:
    is_done = threading.Event()

    def answer(context: Any, options: Any) -> str:
        threading.Timer(0.1, is_done.set).start()
        return "Hm."

    with chats_in(tmp_path, FunctionModel(answer)) as chats:
        llm = LLMNode(chats)

        def late(state: ConversationState) -> Any:
            is_done.wait(60)
            return llm(state)

        builder = StateGraph(ConversationState)
        builder.add_node("one", llm)
        builder.add_node("late", late)
        builder.add_edge(START, "one")
        builder.add_edge(START, "late")
        with pytest.raises(GraphError, match="two nodes of one step, one and late"):
            chats.bind(builder.compile()).invoke(chats.ask("Go."))


def test_lease_is_renewed_during_long_step(tmp_path: Path) -> None:
    refused: list[bool] = []
    with SqliteStore(tmp_path / "chats.db") as others:

        @tool(effect="read")
        def slow() -> str:
            "Takes longer than a lease."
            first = others.current_lease(question["conversation"])
            assert first is not None
            while datetime.now(UTC) <= first.expires:
                time.sleep(0.1)
            refused.append(others.claim(question["conversation"], "other", 1) is None)
            return "done"

        with chats_in(tmp_path, ScriptedModel(call("slow"), "Done."), tools=[slow], seconds=4) as chats:
            question = chats.ask("Go.")
            loop_graph(chats).invoke(question, thread())
    assert refused == [True]


def test_lease_is_released_when_run_ends_or_fails(tmp_path: Path) -> None:
    model = ScriptedModel(ProviderError("away", "overloaded"), "a " * 200, "Done.")
    with chats_in(tmp_path, model) as chats:
        graph = loop_graph(chats)
        question = chats.ask("Go.")

        async def leave_early() -> None:
            async for _ in graph.astream(question, thread(), stream_mode="custom"):
                break

        with pytest.raises(ModelCallFailed):
            graph.invoke(question, thread())
        assert chats.store.current_lease(question["conversation"]) is None
        asyncio.run(leave_early())
        until = time.monotonic() + 60
        while chats.store.current_lease(question["conversation"]) is not None and time.monotonic() < until:
            time.sleep(0.01)
        assert chats.store.current_lease(question["conversation"]) is None
        state = graph.invoke(None, thread())
        assert chats.is_over(state)


def test_unbound_graph_releases_idle_lease(tmp_path: Path) -> None:
    with chats_in(tmp_path, ScriptedModel("Done.", "Again."), idle=0.1) as chats:
        graph = loop_graph(chats, is_bound=False)
        state = graph.invoke(chats.ask("Go."), thread())
        assert chats.store.current_lease(state["conversation"]) is not None
        state = graph.invoke(chats.ask("Again.", state=state), thread())  # the same process continues with it
        until = time.monotonic() + 60
        while chats.store.current_lease(state["conversation"]) is not None and time.monotonic() < until:
            time.sleep(0.01)
        assert chats.store.current_lease(state["conversation"]) is None


class Asked(ConversationState):
    question: str


class LateSaver(InMemorySaver):
    """From `hides` on, new checkpoints are not listed: they are still on their way, as with `durability="async"`."""

    def __init__(self) -> None:
        super().__init__()
        self.hides = False
        self.hidden: set[str] = set()

    def put(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        if self.hides:
            self.hidden.add(checkpoint["id"])
        return super().put(config, checkpoint, metadata, new_versions)

    def list(self, *args: Any, **options: Any) -> Any:
        return (one for one in super().list(*args, **options) if one.checkpoint["id"] not in self.hidden)


@pytest.mark.parametrize("is_asked_in_graph", [False, True])
@pytest.mark.parametrize("order", ["as it comes", "checkpoints are late", "clock is fast", "clock is slow"])
def test_stale_run_raises(tmp_path: Path, order: str, is_asked_in_graph: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two runs of a thread begin at one checkpoint; the second comes to its node when the first is done.

    Which of them gets the later checkpoint ids, and when those are listed, decides nothing.
    """
    entered, leave = threading.Event(), threading.Event()
    raised: list[BaseException] = []
    saver = LateSaver()

    def gate(state: Any) -> dict[str, Any]:
        if not entered.is_set():
            entered.set()
            leave.wait(60)
        return {}

    def checkpoint_id(**options: Any) -> str:
        """An id of LangGraph; those of the second run as a computer makes them whose clock is wrong by years."""
        made = str(uuid6(**options))
        if threading.current_thread() is not thread_of_it or order not in ("clock is fast", "clock is slow"):
            return made
        return ("f" if order == "clock is fast" else "0") + made[1:]

    monkeypatch.setattr("langgraph.pregel._checkpoint.uuid6", checkpoint_id)
    with chats_in(tmp_path, ScriptedModel("One.", "Two.", "Three.")) as chats:
        builder = StateGraph(Asked if is_asked_in_graph else ConversationState)
        builder.add_node("gate", gate)
        builder.add_node("llm", LLMNode(chats))
        builder.add_edge(START, "gate")
        if is_asked_in_graph:
            builder.add_node("ask", AskNode(chats, lambda state: state["question"]))
            builder.add_edge("gate", "ask")
            builder.add_edge("ask", "llm")
        else:
            builder.add_edge("gate", "llm")
        graph = chats.bind(builder.compile(checkpointer=saver))
        thread_of_it = threading.current_thread()
        question: Any = {"question": "Go."} if is_asked_in_graph else chats.ask("Go.")
        if is_asked_in_graph:
            entered.set()
            graph.invoke(question, thread())
            question = {"question": "And then?"}
            entered.clear()

        def late() -> None:
            try:
                graph.invoke(question, thread())
            except StaleRunError as error:
                raised.append(error)

        thread_of_it = threading.Thread(target=late)
        thread_of_it.start()
        assert entered.wait(60)
        state = graph.invoke(question, thread())
        written = log_of(tmp_path, state).version
        saver.hides = order == "checkpoints are late"
        leave.set()
        thread_of_it.join()
        assert len(raised) == 1
        assert log_of(tmp_path, state).version == written, "nothing was written"
        answers = kinds(log_of(tmp_path, state).effective).count("model_output")
        assert answers == (2 if is_asked_in_graph else 1)
