"""Graphs as tests build them: a model, its tools and a person, each a node, led by where the turn stands."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph

from antiphon.graph import Conversations, ConversationState, HumanNode, LLMNode, ToolNode
from antiphon.graph.step import CATEGORY
from antiphon.history import AgentHistory, DebugLogEntry, HistoryEntry, SqliteStore

LEADS = {"llm": "llm", "tools": "tools", "human": "human", "end": END}


def thread(name: str = "1") -> Any:
    """The config of a thread."""
    return {"configurable": {"thread_id": name}}


def loop_graph(chats: Conversations, saver: BaseCheckpointSaver[Any] | None = None, *, is_bound: bool = True) -> Any:
    """A graph that does what a ToolLoop does, with a person where one is needed."""
    builder = StateGraph(ConversationState)
    builder.add_node("llm", LLMNode(chats))
    builder.add_node("tools", ToolNode(chats))
    builder.add_node("human", HumanNode(chats))
    builder.add_edge(START, "llm")
    builder.add_conditional_edges("llm", chats.next_node, LEADS)  # type: ignore[arg-type]
    builder.add_conditional_edges("tools", chats.next_node, LEADS)  # type: ignore[arg-type]
    builder.add_conditional_edges("human", chats.next_node, LEADS)  # type: ignore[arg-type]
    graph = builder.compile(checkpointer=saver or InMemorySaver())
    return chats.bind(graph) if is_bound else graph


@contextmanager
def chats_in(place: Path, model: Any = None, **options: Any) -> Iterator[Conversations]:
    with Conversations(place / "chats.db", model, **options) as chats:
        yield chats


def log_of(place: Path, state: Any) -> AgentHistory:
    """The log as another process sees it."""
    with SqliteStore(place / "chats.db") as store:
        return store.open(state["conversation"])


def kinds(entries: Any) -> list[str]:
    """What happened, without the notes of the graph."""
    return [entry.kind for entry in entries if not is_mark(entry)]


def is_mark(entry: HistoryEntry) -> bool:
    return isinstance(entry, DebugLogEntry) and entry.category == CATEGORY
