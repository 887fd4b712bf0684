"""Planner, executor and reviewer: three models of three providers over one conversation, led by a graph.

The executor has tools, the reviewer may send it back, and whatever happens it ends: the graph leads from model to model only so
many times. Without arguments three scripted models play the parts; give three names to ask real ones:

    python examples/graph_planner_executor_reviewer.py anthropic/claude-sonnet-5 openai/gpt-5.5 gemini/gemini-3.5-flash
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph

import antiphon as ap
from antiphon.conversation import rounds_of
from antiphon.graph import AskNode, Conversations, ConversationState, LLMNode, ToolNode


class Task(ConversationState, total=False):
    question: str
    verdict: str


@ap.tool(effect="read")
def weather(city: str) -> str:
    "Current weather in a city."
    return f"{city}: rain, 7 °C"


def scripted() -> list[ap.ScriptedModel]:
    """The three parts, written down."""
    return [
        ap.ScriptedModel("1. Look up Oslo.\n2. Look up Bergen.\n3. Compare.", name="planner-model"),
        ap.ScriptedModel(
            ["Oslo first.", ap.call("weather", city="Oslo")],
            "It rains in Oslo.",
            [ap.call("weather", city="Bergen")],
            "It rains in both, 7 °C each.",
            name="executor-model",
        ),
        ap.ScriptedModel("REVISE: Bergen is missing.", "APPROVED.", name="reviewer-model"),
    ]


def graph_of(chats: Conversations, planner: Any, executor: Any, reviewer: Any) -> Any:
    builder = StateGraph(Task)
    builder.add_node("ask", AskNode(chats))
    builder.add_node(
        "planner", LLMNode(chats, planner, system="Plan the work in short steps. Do nothing yet.", tools=[])
    )
    builder.add_node(
        "executor",
        LLMNode(chats, executor, system="Do the work, with the tools you have.", prompt="Do what is left to do."),
    )
    builder.add_node("tools", ToolNode(chats))
    builder.add_node(
        "reviewer",
        LLMNode(
            chats,
            reviewer,
            system="Judge the work. Begin with APPROVED or with REVISE: and what is missing.",
            prompt="Is it done?",
            tools=[],
            answer="verdict",
        ),
    )
    builder.add_edge(START, "ask")
    builder.add_edge("ask", "planner")
    builder.add_edge("planner", "executor")
    builder.add_conditional_edges("executor", chats.has_calls, {True: "tools", False: "reviewer"})
    builder.add_edge("tools", "executor")
    builder.add_conditional_edges(
        "reviewer", lambda state: state["verdict"].startswith("REVISE"), {True: "executor", False: END}
    )
    return chats.bind(builder.compile(checkpointer=InMemorySaver()))


def main(models: Sequence[Any], place: Path) -> None:
    with Conversations(place, tools=[weather], max_hand_offs=8) as chats:
        graph = graph_of(chats, *models)
        task: Any = {"question": "Compare the weather in Oslo and Bergen."}
        state = graph.invoke(task, {"configurable": {"thread_id": "1"}, "recursion_limit": 60})
        chat = chats.conversation(state)
        for one in rounds_of(chat.history.snapshot()):
            if one.number:
                print(f"{one.agent:9} {one.model:31} calls: {', '.join(one.calls) or 'none'}")
        for entry in chat.history.effective:
            if isinstance(entry, ap.ModelOutputEntry) and entry.response_markdown:
                speaker = entry.metadata.source.removeprefix("agent:") if entry.metadata else ""
                print(f"\n{speaker}: {entry.response_markdown}")


if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        main(sys.argv[1:4] if len(sys.argv) > 3 else scripted(), Path(folder) / "chats.db")
