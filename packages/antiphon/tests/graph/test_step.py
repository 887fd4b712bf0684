"""Going back in a graph is a rollback in the log, on another thread a fork; it is never taken for a crash, nor a crash for it."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import START, StateGraph
from langgraph.types import Command

from antiphon.graph import AskNode, Conversations, ConversationState, LLMNode, ToolNode
from antiphon.history import AgentHistory, ModelInputEntry, ModelOutputEntry, RollbackEntry
from antiphon.providers.scripted import FunctionModel, ScriptedModel, call
from antiphon.tools import tool
from graph.rig import chats_in, kinds, log_of, loop_graph, thread
from support.planned_turns import refusals, results_in


class Asked(ConversationState, total=False):
    question: str


def counting() -> tuple[list[str], Any]:
    """A tool that says how often it ran."""
    ran: list[str] = []

    @tool(effect="once")
    def count() -> str:
        "Counts."
        ran.append("ran")
        return f"run {len(ran)}"

    return ran, count


def model() -> FunctionModel:
    """Calls the tool once a turn, and then repeats the question and the result."""

    def answer(context: Any, _: Any) -> Any:
        if context[-1].role == "model_input":
            return call("count")
        asked = [entry for entry in context if entry.role == "model_input"][-1]
        return f"{asked.content[0].text}: {context[-1].results[0].result_markdown}"

    return FunctionModel(answer)


def question_graph(chats: Conversations, saver: Any) -> Any:
    builder = StateGraph(Asked)
    builder.add_node("ask", AskNode(chats))
    builder.add_node("llm", LLMNode(chats))
    builder.add_node("tools", ToolNode(chats))
    builder.add_edge(START, "ask")
    builder.add_edge("ask", "llm")
    builder.add_conditional_edges("llm", chats.has_calls, {True: "tools", False: "__end__"})
    builder.add_edge("tools", "llm")
    return chats.bind(builder.compile(checkpointer=saver))


@pytest.fixture(params=["memory", "sqlite"])
def saver(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    if request.param == "memory":
        yield InMemorySaver()
        return
    with closing(sqlite3.connect(tmp_path / "graph.db", check_same_thread=False)) as db:
        yield SqliteSaver(db)


def texts_in(history: AgentHistory) -> list[str]:
    return [
        entry.content[0].text  # type: ignore[union-attr]
        for entry in history.effective
        if isinstance(entry, ModelInputEntry | ModelOutputEntry) and not getattr(entry, "tool_calls", ())
    ]


def before(graph: Any, node: str, config: Any = None) -> Any:
    """The latest checkpoint from which `node` is next."""
    return next(state for state in graph.get_state_history(config or thread()) if state.next == (node,))


def test_earlier_checkpoint_rolls_log_back(tmp_path: Path, saver: Any) -> None:
    ran, count = counting()
    with chats_in(tmp_path, model(), tools=[count]) as chats:
        graph = question_graph(chats, saver)
        first = graph.invoke({"question": "One"}, thread())
        graph.invoke({"question": "Two"}, thread())
        assert ran == ["ran"] * 2
        # The last answer again: the tool has its result, and does not run.
        state = graph.invoke(None, before(graph, "llm").config)
        assert texts_in(log_of(tmp_path, state)) == ["One", "One: run 1", "Two", "Two: run 2"]
        assert ran == ["ran"] * 2
        # From before the tool on: it is run again, since that is what was asked for.
        state = graph.invoke(None, before(graph, "tools").config)
        assert ran == ["ran"] * 3
        # With another question in place of the second.
        edited = graph.update_state(before(graph, "ask").config, {"question": "Zwei"})
        state = graph.invoke(None, edited)
        history = log_of(tmp_path, state)
        assert texts_in(history) == ["One", "One: run 1", "Zwei", "Zwei: run 4"]
        rollbacks = [entry for entry in history.entries if isinstance(entry, RollbackEntry)]
        assert [entry.reason for entry in rollbacks] == ["the graph went back to here"] * 3
        assert rollbacks[-1].to == first["version"]
        assert refusals(history.snapshot()) == []
        # And to the branch that was left: the log finds it again.
        old = next(
            one for one in graph.get_state_history(thread()) if one.values.get("question") == "Two" and not one.next
        )
        state = graph.invoke({"question": "Three"}, old.config)
        assert texts_in(log_of(tmp_path, state))[-3:-1] == ["Two: run 3", "Three"]


def test_earlier_checkpoint_rolls_log_back_async(tmp_path: Path) -> None:
    _, count = counting()

    async def back_and_forth(chats: Conversations) -> Any:
        async with AsyncSqliteSaver.from_conn_string(str(tmp_path / "graph.db")) as saver:
            graph = question_graph(chats, saver)
            await graph.ainvoke({"question": "One"}, thread())
            history = [one async for one in graph.aget_state_history(thread())]
            back = next(one for one in history if one.next == ("tools",))
            return await graph.ainvoke(None, back.config)

    with chats_in(tmp_path, model(), tools=[count]) as chats:
        state = asyncio.run(back_and_forth(chats))
        assert texts_in(log_of(tmp_path, state)) == ["One", "One: run 2"]


def test_crash_in_branch_keeps_branch(tmp_path: Path, saver: Any) -> None:
    ran, count = counting()
    is_away = [False]
    answers = model()

    def sometimes(context: Any, options: Any) -> Any:
        if is_away[0]:
            raise OSError("away")
        return answers._function(context, options)

    with chats_in(tmp_path, FunctionModel(sometimes), tools=[count]) as chats:
        graph = question_graph(chats, saver)
        graph.invoke({"question": "One"}, thread())
        is_away[0] = True
        with pytest.raises(OSError, match="away"):
            graph.invoke(None, before(graph, "llm").config)
        with pytest.raises(OSError, match="away"):
            graph.invoke(None, thread())
        is_away[0] = False
        state = graph.invoke(None, thread())
        history = log_of(tmp_path, state)
        assert texts_in(history) == ["One", "One: run 1"]
        assert [entry.reason for entry in history.entries if isinstance(entry, RollbackEntry)].count(
            "the graph went back to here"
        ) == 1, "trying again is not going back"
        assert ran == ["ran"]


def test_new_question_keeps_work_of_crashed_step(tmp_path: Path) -> None:
    """The tool has run and its checkpoint was not saved; the graph is not resumed, but asked something new."""
    ran, count = counting()

    class Forgetful(InMemorySaver):
        is_away = False

        def put(self, *args: Any, **options: Any) -> Any:
            self._check()
            return super().put(*args, **options)

        def put_writes(self, *args: Any, **options: Any) -> None:
            self._check()
            super().put_writes(*args, **options)

        def _check(self) -> None:
            if self.is_away and ran:
                raise OSError("the disk of the checkpointer is full")

    saver = Forgetful()
    with chats_in(tmp_path, model(), tools=[count]) as chats:
        graph = question_graph(chats, saver)
        saver.is_away = True
        with pytest.raises(OSError, match="full"):
            graph.invoke({"question": "One"}, thread(), durability="sync")
        saver.is_away = False
        assert (
            before(graph, "tools").values["version"] < chats.conversation(before(graph, "tools").values).history.version
        )
        state = graph.invoke({"question": "Two"}, thread(), durability="sync")
        history = log_of(tmp_path, state)
        assert "rollback" not in kinds(history.entries)
        assert sorted(results_in(history.effective).values()) == ["run 1", "run 2"]
        assert texts_in(history)[-1] == "Two: run 2"


def test_copied_state_forks_conversation(tmp_path: Path, saver: Any) -> None:
    _, count = counting()
    with chats_in(tmp_path, model(), tools=[count]) as chats:
        graph = question_graph(chats, saver)
        first = graph.invoke({"question": "One"}, thread())
        graph.invoke({"question": "Two"}, thread())
        copied = {name: first[name] for name in ("conversation", "version")}
        other = graph.invoke({**copied, "question": "Other"}, thread("2"))
        assert other["conversation"] != first["conversation"]
        assert texts_in(log_of(tmp_path, other)) == ["One", "One: run 1", "Other", "Other: run 3"]
        assert texts_in(log_of(tmp_path, first))[-1] == "Two: run 2", "the first thread is as it was"
        assert chats.store.info(other["conversation"]).parent == first["conversation"]
        again = graph.invoke({"question": "More"}, thread("2"))
        assert again["conversation"] == other["conversation"], "it has its own from then on"
        taken = graph.invoke({"conversation": first["conversation"], "question": "Mine"}, thread("3"))
        assert taken["conversation"] == first["conversation"], "named without a version, it is taken over"


def test_node_can_set_version_back(tmp_path: Path) -> None:
    with chats_in(tmp_path, ScriptedModel("Bad.", "Good.")) as chats:
        builder = StateGraph(ConversationState)
        builder.add_node("llm", LLMNode(chats))
        builder.add_node(
            "judge", lambda state: {"version": 1} if "Bad." in str(chats.conversation(state).messages) else {}
        )
        builder.add_edge(START, "llm")
        builder.add_edge("llm", "judge")
        builder.add_conditional_edges("judge", lambda state: state["version"] == 1, {True: "llm", False: "__end__"})
        graph: Any = chats.bind(builder.compile(checkpointer=InMemorySaver()))
        state = graph.invoke(chats.ask("Well?"), thread())
        assert texts_in(log_of(tmp_path, state)) == ["Well?", "Good."]


def test_message_between_runs_is_included(tmp_path: Path) -> None:
    with chats_in(tmp_path, ScriptedModel("Yes.", "Both.")) as chats:
        graph = question_graph(chats, InMemorySaver())
        state = graph.invoke({"question": "One"}, thread())
        chats.store.open(state["conversation"]).append(ModelInputEntry.of("By the way."))
        state = graph.invoke({"question": "Two"}, thread())
        assert texts_in(log_of(tmp_path, state)) == ["One", "Yes.", "By the way.", "Two", "Both."]


def test_rolled_back_decision_is_requested_again(tmp_path: Path) -> None:
    @tool(needs_approval=True)
    def book() -> str:
        "Book."
        return "booked"

    booking = FunctionModel(lambda context, _: call("book") if context[-1].role == "model_input" else "Done.")
    with chats_in(tmp_path, booking, tools=[book]) as chats:
        graph = loop_graph(chats)
        graph.invoke(chats.ask("Fly."), thread())
        waiting = before(graph, "human")
        state = graph.invoke(Command(resume="approve"), thread())
        assert list(results_in(log_of(tmp_path, state).effective).values()) == ["booked"]
        stopped = graph.invoke(None, waiting.config)
        assert stopped["__interrupt__"][0].value["kind"] == "approval"
        state = graph.invoke(Command(resume="deny"), thread())
        assert ["denied" in one for one in results_in(log_of(tmp_path, state).effective).values()] == [True]
        assert kinds(log_of(tmp_path, state).entries).count("rollback") == 1
