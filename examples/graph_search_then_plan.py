"""Search, then a plan, as a LangGraph graph: a model, its tools and a person, each a node.

The graph's checkpoints hold which conversation it is and how far the graph knows it, and no text. Without
arguments the model is the offline provider, a guided tour and not a language model; name a real one to ask that instead:

    python examples/graph_search_then_plan.py anthropic/claude-sonnet-5 "What does IELTS 7 need? Make me a 3 month plan."
"""

from __future__ import annotations

import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph

from antiphon.conversation import TextDelta, ToolCallFailed, ToolCallFinished, ToolCallStarted
from antiphon.graph import Conversations, ConversationState, HumanNode, LLMNode, ToolNode
from antiphon.providers.call import ProviderClient
from antiphon.tools.builtin import builtin_tools
from antiphon_chat.offline import OfflineModel

QUESTION = "Find out what IELTS 7 needs, then make me a 3 month plan."


def graph_of(chats: Conversations, saver: Any) -> Any:
    """The model until it calls something, the tools, a person where one is needed, and the model again."""
    builder = StateGraph(ConversationState)
    builder.add_node("llm", LLMNode(chats))
    builder.add_node("tools", ToolNode(chats))
    builder.add_node("human", HumanNode(chats))
    builder.add_edge(START, "llm")
    for node in ("llm", "tools", "human"):
        builder.add_conditional_edges(
            node, chats.next_node, {"llm": "llm", "tools": "tools", "human": "human", "end": END}
        )
    return chats.bind(builder.compile(checkpointer=saver))


def main(model: str | ProviderClient, question: str, place: Path) -> None:
    with (
        Conversations(place, model, tools=builtin_tools(), system="Search before you plan.") as chats,
        closing(sqlite3.connect(f"{place}-checkpoints", check_same_thread=False)) as db,
    ):
        graph = graph_of(chats, SqliteSaver(db))
        asked = chats.ask(question, title="IELTS")
        thread: Any = {"configurable": {"thread_id": asked["conversation"]}}
        print("you:", question)
        for event in graph.stream(asked, thread, stream_mode="custom", durability="sync"):
            match event:
                case TextDelta(text):
                    print(text, end="", flush=True)
                case ToolCallStarted(call):
                    print(f"\n  → {call.tool_name} {call.arguments[:90]}")
                case ToolCallFinished(_, result) | ToolCallFailed(_, result):
                    print(f"  ← {result.status}: {result.result_markdown.splitlines()[0][:90]}")
        state = graph.get_state(thread).values
        (size,) = db.execute("SELECT sum(length(checkpoint) + length(metadata)) FROM checkpoints").fetchone()
        (count,) = db.execute("SELECT count(*) FROM checkpoints").fetchone()
        log_length = len(str(chats.conversation(state).history.entries))
        print(f"\nthe graph's state: {state}")
        print(f"{count} checkpoints in the file, {size // count} bytes each; the log holds {log_length} characters")


if __name__ == "__main__":
    named = sys.argv[1] if len(sys.argv) > 1 else None
    with TemporaryDirectory() as folder:
        main(named or OfflineModel(), " ".join(sys.argv[2:]) or QUESTION, Path(folder) / "chats.db")
