"""L7 in a graph: a process that runs one is killed with `kill -9`, at any instant and at every write of its checkpointer; another
one invokes the thread again. What is in the log is neither asked nor run again, a half-run call is reported."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, StateGraph
from langgraph.types import RetryPolicy

from antiphon.conversation import Turn
from antiphon.conversation.turn import CONTINUE_PROMPT
from antiphon.graph import AskNode, Conversations, ConversationState, LLMNode
from antiphon.history import (
    AgentHistory,
    ContextEntry,
    ModelInputEntry,
    ModelOutputEntry,
    SqliteStore,
    ToolCallFinishedEntry,
    ToolCallResultsEntry,
)
from antiphon.parts import text_of
from antiphon.providers.call import ModelCallFailed, ProviderCallOptions
from antiphon.providers.scripted import FunctionModel, ScriptedAnswer, ScriptedModel, call
from antiphon.tools import Tool, ToolContext, tool
from antiphon.tools.call_runner import UNKNOWN_OUTCOME
from antiphon.wire.output import ProviderError
from graph.rig import is_mark, kinds, loop_graph, thread
from support.child_process import in_a_process
from support.planned_turns import calls_in, refusals, results_in

PLAN = [["look", "put"], ["send"], ["put", "send", "look"], ["look"]]
LEASE = 0.15


class Diary:
    """A file in which processes note what they do, each line whole, also when they are killed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.last_words = path.with_suffix(".last")
        """While this file is there, the next tool that begins is the last thing a process does."""

    def note(self, what: str) -> None:
        with open(self.path, "ab", buffering=0) as file:
            file.write(f"{what}\n".encode())

    def counts(self) -> Counter[str]:
        return Counter(self.path.read_text().splitlines() if self.path.exists() else [])


def model(diary: Diary, plan: Sequence[Sequence[str]] = PLAN) -> FunctionModel:
    """Makes the calls of the plan, round by round, and notes for which round it was asked."""

    def answer(context: Sequence[ContextEntry], _: ProviderCallOptions) -> ScriptedAnswer:
        outputs = sum(isinstance(entry, ModelOutputEntry) for entry in context)
        diary.note(f"asked {outputs}")
        time.sleep(0.003)
        return [call(name) for name in plan[outputs]] if outputs < len(plan) else "That is all."

    return FunctionModel(answer, chunk_size=None)


def tools(diary: Diary) -> list[Tool]:
    def work(context: ToolContext) -> str:
        diary.note(f"began {context.tool_call_id}")
        if diary.last_words.exists():
            diary.last_words.unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.004)
        diary.note(f"ended {context.tool_call_id}")
        return f"done {context.tool_call_id}"

    @tool(effect="read")
    def look(context: ToolContext) -> str:
        "Reads."
        return work(context)

    @tool(effect="idempotent")
    def put(context: ToolContext) -> str:
        "Writes, and may be done twice."
        return work(context)

    @tool(effect="once")
    def send(context: ToolContext) -> str:
        "Must not be done twice."
        return work(context)

    return [look, put, send]


class MortalSaver(SqliteSaver):
    """Kills the process before or after its n-th write. LangGraph writes from several threads; here one write follows the other,
    so that the earlier writes are on the disk when the process dies and each process gets further than the one before it."""

    writes_left = -1
    is_written_first = False

    def __init__(self, db: sqlite3.Connection) -> None:
        super().__init__(db)
        self._one_write = threading.Lock()

    def put(self, *args: Any, **options: Any) -> Any:
        return self._dying(super().put, *args, **options)

    def put_writes(self, *args: Any, **options: Any) -> None:
        self._dying(super().put_writes, *args, **options)

    def _dying(self, write: Callable[..., Any], *args: Any, **options: Any) -> Any:
        with self._one_write:
            left = self.writes_left = self.writes_left - 1
            if left == 0 and not self.is_written_first:
                os.kill(os.getpid(), signal.SIGKILL)
            written = write(*args, **options)
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return written


class Scene:
    """A place with a store, a checkpointer's file, a diary, and a conversation in which something was asked."""

    def __init__(self, place: Path, plan: Sequence[Sequence[str]] = PLAN) -> None:
        self.place = place
        self.plan = plan
        self.diary = Diary(place / "diary")
        self.epoch = 2  # claimed and released by the caller
        with Conversations(place / "chats.db", model(self.diary, self.plan)) as chats:
            self.question = chats.ask("Go.")
        with closing(sqlite3.connect(place / "graph.db", check_same_thread=False)) as db:
            SqliteSaver(db).setup()

    def invoke(self, dying: Callable[[MortalSaver], None] = lambda _: None) -> None:
        """Run the graph from wherever its thread stands."""
        chats = Conversations(
            self.place / "chats.db",
            model(self.diary, self.plan),
            tools=tools(self.diary),
            seconds=LEASE,
            wait=20,
            idle=0.1,
        )
        with chats, closing(sqlite3.connect(self.place / "graph.db", check_same_thread=False)) as db:
            saver = MortalSaver(db)
            dying(saver)
            graph = loop_graph(chats, saver)
            has_begun = graph.get_state(thread()).created_at is not None
            graph.invoke(None if has_begun else self.question, {**thread(), "recursion_limit": 60}, durability="sync")

    def in_a_process(self, dying: Callable[[MortalSaver], None] = lambda _: None) -> int:
        def work(_: int) -> None:
            self.invoke(dying)
            self.diary.note("done")

        process, pipe = in_a_process(work)
        os.close(pipe)
        return process

    @property
    def log(self) -> AgentHistory:
        with SqliteStore(self.place / "chats.db") as store:
            return store.open(self.question["conversation"])

    def wait_until_held(self) -> None:
        """Back when a process has claimed the conversation since the last one was killed, or is done already."""
        with SqliteStore(self.place / "chats.db") as store:
            epoch, until = self.epoch, time.monotonic() + 20
            while time.monotonic() < until:
                lease = store.current_lease(self.question["conversation"])
                if lease is not None and lease.epoch > epoch:
                    self.epoch = lease.epoch
                    return
                time.sleep(0.002)

    def settled(self) -> Iterator[str]:
        """What must not happen again, in the words of the diary: answers and results that are in the log."""
        outputs = 0
        for entry in self.log.effective:
            if isinstance(entry, ModelOutputEntry):
                yield f"asked {outputs}"
                outputs += 1
            elif isinstance(entry, ToolCallFinishedEntry):
                yield f"began {entry.result.tool_call_id}"
            elif isinstance(entry, ToolCallResultsEntry):
                yield from (f"began {result.tool_call_id}" for result in entry.results)

    def check(self) -> None:
        """The turn is over, every call has its one result, and no tool that must run once ran twice."""
        history, counts = self.log, self.diary.counts()
        assert refusals(history.snapshot()) == []
        turn = Turn.of(history.snapshot())
        assert (turn.open_calls, turn.needs_model, turn.ended) == ({}, False, "")
        asked = calls_in(history.effective)
        assert len(asked) == sum(map(len, self.plan))
        results = results_in(history.effective)
        assert sorted(results) == sorted(asked)
        for entry in history.effective:
            for one in entry.tool_calls if isinstance(entry, ModelOutputEntry) else ():
                if one.tool_name == "send":
                    assert counts[f"began {one.tool_call_id}"] <= 1
                if results[one.tool_call_id] == UNKNOWN_OUTCOME:
                    assert one.tool_name == "send", "only of what must not run twice the outcome is unknown"
                else:
                    assert results[one.tool_call_id] == f"done {one.tool_call_id}"


def killed_until_done(
    scene: Scene,
    kill: Callable[[int, int], None],
    attempts: int,
    dying: Callable[[MortalSaver], None] = lambda _: None,
) -> int:
    """Run the graph in one process after the other; `kill` may end each. Returns how many were killed."""
    for number in range(attempts):
        settled = set(scene.settled())
        before = scene.diary.counts()
        process = scene.in_a_process(dying)
        kill(number, process)
        _, status = os.waitpid(process, 0)
        again = {line: scene.diary.counts()[line] - before[line] for line in settled}
        assert not any(again.values()), f"done again: {again}"
        if os.WIFEXITED(status):
            assert scene.diary.counts()["done"] == 1
            return number
    raise AssertionError("it never came to its end")


def test_turn_completes_after_random_kills(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chance = random.Random(7)
    scene = Scene(tmp_path)

    def kill(number: int, process: int) -> None:
        if number < 6:
            scene.wait_until_held()
            time.sleep(chance.uniform(0, 0.06))
            os.kill(process, signal.SIGKILL)

    kills = killed_until_done(scene, kill, attempts=8)
    assert kills, "it was killed at least once; how often depends on the machine"
    scene.check()
    unknown = list(results_in(scene.log.effective).values()).count(UNKNOWN_OUTCOME)
    with capsys.disabled():
        print(f"\n  L7 in a graph: {kills} kills, {scene.log.version} entries, {unknown} outcomes unknown ", end="")


@pytest.mark.parametrize(
    ("writes", "is_written_first"),
    [
        pytest.param(1, True, marks=pytest.mark.slow),
        (2, False),
        pytest.param(2, True, marks=pytest.mark.slow),
        pytest.param(3, False, marks=pytest.mark.slow),
    ],
)
def test_turn_completes_after_kill_at_each_checkpoint_write(
    tmp_path: Path, writes: int, is_written_first: bool
) -> None:
    """Between an append and its checkpoint, and right after it; each process gets a few writes further."""
    scene = Scene(tmp_path, PLAN[:2])

    def die(saver: MortalSaver) -> None:
        saver.writes_left, saver.is_written_first = writes, is_written_first

    deaths = killed_until_done(scene, lambda _, __: None, attempts=40, dying=die)
    assert deaths > 3
    scene.check()
    assert UNKNOWN_OUTCOME not in results_in(scene.log.effective).values(), "every tool had come to its end"
    assert all(count == 1 for line, count in scene.diary.counts().items() if line.startswith(("began", "asked")))


@pytest.mark.parametrize(("name", "expected", "times"), [("send", UNKNOWN_OUTCOME, 1), ("put", "done", 2)])
def test_resume_after_kill_during_tool(tmp_path: Path, name: str, expected: str, times: int) -> None:
    """For calls that must not run twice the model gets an unknown outcome; the rest runs again under the same key."""
    scene = Scene(tmp_path, [[name]])
    scene.diary.last_words.touch()
    assert killed_until_done(scene, lambda _, __: None, attempts=3) == 1
    scene.check()
    (result,) = results_in(scene.log.effective).values()
    assert result.startswith(expected)
    assert [count for line, count in scene.diary.counts().items() if line.startswith("began")] == [times]


def test_new_question_after_kill_during_tool(tmp_path: Path) -> None:
    """The graph is not resumed; the model still learns about the call."""
    scene = Scene(tmp_path, [["send", "look"]])
    scene.diary.last_words.touch()
    os.waitpid(scene.in_a_process(), 0)
    with (
        Conversations(tmp_path / "chats.db", ScriptedModel("Sorry."), tools=tools(scene.diary), wait=20) as chats,
        closing(sqlite3.connect(tmp_path / "graph.db", check_same_thread=False)) as db,
    ):
        graph = loop_graph(chats, SqliteSaver(db))
        state = graph.invoke(chats.ask("What happened?", state=graph.get_state(thread()).values), thread())
    assert UNKNOWN_OUTCOME in results_in(scene.log.effective).values()
    assert scene.log.version == state["version"]
    assert "rollback" not in kinds(scene.log.entries)
    assert refusals(scene.log.snapshot()) == []


class Asked(ConversationState, total=False):
    question: str


@pytest.mark.parametrize("prompt", [None, "Is it good?"])
def test_cancelled_answer_is_requested_again(tmp_path: Path, prompt: str | None) -> None:
    """The run is stopped in mid-answer; the graph is not done with it, so neither is the turn."""
    begun = asyncio.Event()
    answers = iter(["quick", "slow", "quick"])

    async def answer(context: Any, _: Any) -> AsyncIterator[str]:
        if next(answers) == "slow":
            yield "Half an "
            begun.set()
            await asyncio.sleep(30)
        yield "answer."

    async def stopped_and_resumed(chats: Conversations) -> Any:
        builder = StateGraph(Asked)
        builder.add_node("ask", AskNode(chats))
        builder.add_node("one", LLMNode(chats))
        builder.add_node("two", LLMNode(chats, prompt=prompt))
        builder.add_edge(START, "ask")
        builder.add_edge("ask", "one")
        builder.add_edge("one", "two")
        graph: Any = chats.bind(builder.compile(checkpointer=InMemorySaver()))
        running = asyncio.ensure_future(graph.ainvoke({"question": "Well?"}, thread()))
        await begun.wait()
        running.cancel()
        await asyncio.wait([running])
        chats.release()
        chats.store.open("last").set_memory_notebook("They like Bergen.")
        return await graph.ainvoke(None, thread())

    with Conversations(tmp_path / "chats.db", FunctionModel(answer)) as chats:
        state = asyncio.run(stopped_and_resumed(chats))
        history = chats.store.open(state["conversation"])
    assert history.memory_notebook == "They like Bergen.", "what was set meanwhile stays"
    expected_texts = ["Well?", "answer.", prompt or CONTINUE_PROMPT, "answer."]
    shown = [entry for entry in history.effective if isinstance(entry, ModelInputEntry | ModelOutputEntry)]
    assert [text_of(entry.content) for entry in shown] == expected_texts
    assert "Half an " in str(history.entries), "the log keeps the partial answer"
    assert refusals(history.snapshot()) == []


def test_retry_policy_requests_failed_answer_again(tmp_path: Path) -> None:
    model = ScriptedModel(ProviderError("away", "overloaded"), ProviderError("away", "overloaded"), "Here.")
    with Conversations(tmp_path / "chats.db", model) as chats:
        builder = StateGraph(ConversationState)
        policy = RetryPolicy(max_attempts=3, initial_interval=0.01, retry_on=ModelCallFailed)
        builder.add_node("llm", LLMNode(chats), retry_policy=policy)
        builder.add_edge(START, "llm")
        state: Any = chats.bind(builder.compile()).invoke(chats.ask("Are you there?"))
        history = chats.store.open(state["conversation"])
    assert kinds(history.effective)[-1] == "model_output"
    assert sum(is_mark(entry) for entry in history.entries) == 1, "it is one step, tried three times"
