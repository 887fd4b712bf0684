"""Branches that work at once, each in a fork of its own; graphs inside graphs; and the worked examples."""

from __future__ import annotations

import asyncio
import importlib.util
import operator
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Send

from antiphon.errors import LeaseHeld
from antiphon.graph import AskNode, Conversations, ConversationState, LLMNode, ToolNode
from antiphon.providers.scripted import FunctionModel, ScriptedModel, call
from antiphon.tools import tool
from antiphon_chat.offline import OfflineModel
from graph.rig import chats_in, kinds, log_of, loop_graph, thread
from support.postgres_server import PostgresServer
from support.repository import ROOT

EXAMPLES = ROOT / "examples"


class Work(ConversationState, total=False):
    question: str
    notes: Annotated[list[str], operator.add]


class Research(ConversationState, total=False):
    topic: str
    finding: str


class Findings(TypedDict):
    notes: list[str]


def noted(saver: InMemorySaver) -> int:
    """How many researchers have their notes in the checkpoints of the outer graph."""
    written = [
        task for (_, inner, _), writes in list(saver.writes.items()) if not inner for task in list(writes.values())
    ]
    return len({task[0] for task in written if task[1] == "notes"})


def research_graph(chats: Conversations, topics: list[str], saver: Any, handed: list[str]) -> Any:
    def hand_over(state: Research) -> Findings:
        handed.append(state["finding"])
        return {"notes": [state["finding"]]}

    inner = StateGraph(Research, output_schema=Findings)
    inner.add_node("ask", AskNode(chats, lambda state: state["topic"], fork=True, by="agent"))
    inner.add_node("llm", LLMNode(chats, answer="finding"))
    inner.add_node("hand_over", hand_over)
    inner.add_edge(START, "ask")
    inner.add_edge("ask", "llm")
    inner.add_edge("llm", "hand_over")

    def sent(state: Any) -> list[Send]:
        known = {"conversation": state["conversation"], "version": state["version"]}
        return [Send("researcher", {**known, "topic": topic}) for topic in topics]

    builder = StateGraph(Work)
    builder.add_node("ask", AskNode(chats))
    builder.add_node("researcher", inner.compile())
    builder.add_node("collect", AskNode(chats, lambda state: " ".join(sorted(state["notes"])), by="agent"))
    builder.add_node("writer", LLMNode(chats))
    builder.add_edge(START, "ask")
    builder.add_conditional_edges("ask", sent, ["researcher"])
    builder.add_edge("researcher", "collect")
    builder.add_edge("collect", "writer")
    builder.add_edge("writer", END)
    return chats.bind(builder.compile(checkpointer=saver))


@pytest.mark.parametrize("is_awaited", [False, True])
def test_parallel_forks_survive_one_failure(tmp_path: Path, is_awaited: bool) -> None:
    topics = ["Oslo", "Bergen", "Tromsø"]
    asked: list[str] = []
    handed: list[str] = []
    saver = InMemorySaver()

    async def answer(context: Any, _: Any) -> str:
        question = context[-1].content[0].text
        asked.append(question)
        if question == "Bergen" and asked.count("Bergen") == 1:
            while noted(saver) < 2:  # until LangGraph has written down that the others are done
                await asyncio.sleep(0.01)
            raise OSError("away")
        return f"{question}!"

    with chats_in(tmp_path, FunctionModel(answer)) as chats:
        graph = research_graph(chats, topics, saver, handed)

        def invoke(given: Any) -> Any:
            return asyncio.run(graph.ainvoke(given, thread())) if is_awaited else graph.invoke(given, thread())

        with pytest.raises(OSError, match="away"):
            invoke({"question": "Which?"})
        state = invoke(None)
        assert sorted(state["notes"]) == ["Bergen!", "Oslo!", "Tromsø!"]
        assert sorted(asked) == sorted(["Bergen", *topics, "Bergen! Oslo! Tromsø!"]), "only what failed was asked again"
        assert kinds(log_of(tmp_path, state).entries) == ["model_input", "model_input", "model_output"]
        forks = [info for info in chats.store.list() if info.parent == state["conversation"]]
        assert len(forks) == 3
        assert [chats.store.current_lease(info.id) for info in chats.store.list()] == [None] * 4


def test_inner_graph_continues_conversation(tmp_path: Path) -> None:
    @tool(effect="read")
    def look() -> str:
        "Looks."
        return "seen"

    with chats_in(tmp_path, ScriptedModel(call("look"), "Seen.", "Good."), tools=[look]) as chats:
        inner = StateGraph(ConversationState)
        inner.add_node("llm", LLMNode(chats))
        inner.add_node("tools", ToolNode(chats))
        inner.add_edge(START, "llm")
        inner.add_conditional_edges("llm", chats.has_calls, {True: "tools", False: END})
        inner.add_edge("tools", "llm")
        outer = StateGraph(ConversationState)
        outer.add_node("work", inner.compile())
        outer.add_node("judge", LLMNode(chats, prompt="Is it good?"))
        outer.add_edge(START, "work")
        outer.add_edge("work", "judge")
        graph: Any = chats.bind(outer.compile(checkpointer=InMemorySaver()))
        state = graph.invoke(chats.ask("Look."), thread())
        assert kinds(log_of(tmp_path, state).entries)[-3:] == ["model_output", "model_input", "model_output"]


def test_graph_on_postgresql(postgres: str, postgres_server: PostgresServer) -> None:
    """The same with a server for the log and for the checkpoints: a turn, a second one, and going back."""

    @tool(effect="read")
    def look() -> str:
        "Looks."
        return "seen"

    def answer(context: Any, _: Any) -> Any:
        return call("look") if context[-1].role == "model_input" else f"Seen {len(context)}."

    with (
        Conversations(postgres, FunctionModel(answer), tools=[look]) as chats,
        PostgresSaver.from_conn_string(postgres_server.address()) as saver,
    ):
        saver.setup()
        graph = loop_graph(chats, saver)
        first = graph.invoke(chats.ask("Look."), thread(), durability="sync")
        second = graph.invoke(chats.ask("Again.", state=first), thread(), durability="sync")
        assert chats.store.current_lease(second["conversation"]) is None
        back = next(one for one in graph.get_state_history(thread()) if one.values.get("version") == first["version"])
        state = graph.invoke(chats.ask("Otherwise.", state=first, at=first["version"]), back.config)
        history = chats.store.open(state["conversation"])
        assert kinds(history.entries).count("model_output") == 6
        assert kinds(history.effective).count("model_output") == 4
        lease = chats.store.claim(state["conversation"], "other", 30)
        assert lease is not None
        with pytest.raises(LeaseHeld, match="other"):
            chats.ask("Now?", state=state)


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)  # where typing looks for its names
    spec.loader.exec_module(module)
    return module


def test_graph_examples_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = example("graph_search_then_plan")
    plan.main(OfflineModel(), plan.QUESTION, tmp_path / "plan.db")
    output = capsys.readouterr().out
    assert "→ search_web" in output
    assert "→ create_plan" in output
    roles = example("graph_planner_executor_reviewer")
    roles.main(roles.scripted(), tmp_path / "roles.db")
    output = capsys.readouterr().out
    spoke = [line.split()[0] for line in output.splitlines()[:7]]
    assert spoke == ["planner", *["executor", "executor", "reviewer"] * 2]
    researchers = example("graph_researchers")
    asyncio.run(researchers.main(FunctionModel(researchers.play), tmp_path / "research.db"))
    assert "3 researchers" in capsys.readouterr().out


def test_missing_graph_extra_is_named(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['langgraph'] = sys.modules['langchain_core'] = None\n"
        "from antiphon.graph import Conversations, LLMNode\n"
        f"chats = Conversations({str(tmp_path / 'chats.db')!r})\n"
        "try:\n    LLMNode(chats)\nexcept Exception as error:\n    print(type(error).__name__, error)\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.startswith("GraphError LangGraph is not installed")
    assert "antiphon[graph]" in run.stdout
