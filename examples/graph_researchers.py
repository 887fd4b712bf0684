"""Parallel researchers with one writer: each looks into one question in a fork of the conversation, all at once, and the writer
writes in the conversation itself.

A conversation has one writer at a time; a fork is another conversation, which begins with the history so far.
Without arguments a scripted model plays all parts; give a name to ask a real one:

    python examples/graph_researchers.py openai/gpt-5.5
"""

from __future__ import annotations

import asyncio
import operator
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, TypedDict

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Send

import antiphon as ap
from antiphon.graph import AskNode, Conversations, ConversationState, LLMNode, ToolNode
from antiphon.providers import ProviderCallOptions
from antiphon.tools.builtin import builtin_tools

TOPICS = ("reading", "writing", "a study plan")


class Work(ConversationState, total=False):
    question: str
    notes: Annotated[list[str], operator.add]


class Research(ConversationState, total=False):
    topic: str
    finding: str


class Findings(TypedDict):
    """All that a researcher hands over: neither its conversation nor the version of it."""

    notes: list[str]


def play(context: Any, _: ProviderCallOptions) -> Any:
    """The parts, written down: look once, then say what was found; and at the end write."""
    asked = [entry for entry in context if entry.role == "model_input"][-1].content[0].text
    if not asked.startswith("Find out"):
        return "What to do, in three lines:\n" + asked.split("\n", 1)[1]
    topic = asked.removeprefix("Find out about ").rstrip(".")
    if context[-1].role == "model_input":
        return ap.call("search_web", query=f"IELTS {topic}")
    return f"{topic}: {context[-1].results[0].result_markdown.splitlines()[0][:80]}"


def researcher_of(chats: Conversations) -> Any:
    """A graph of its own: fork, ask, look, and hand over what was found."""
    builder = StateGraph(Research, output_schema=Findings)
    builder.add_node("ask", AskNode(chats, lambda state: f"Find out about {state['topic']}.", fork=True, by="agent"))
    builder.add_node("llm", LLMNode(chats, system="Look things up. Answer in one line.", answer="finding"))
    builder.add_node("tools", ToolNode(chats))
    builder.add_node("hand_over", lambda state: {"notes": [state["finding"]]})
    builder.add_edge(START, "ask")
    builder.add_edge("ask", "llm")
    builder.add_conditional_edges("llm", chats.has_calls, {True: "tools", False: "hand_over"})
    builder.add_edge("tools", "llm")
    return builder.compile()


def graph_of(chats: Conversations) -> Any:
    def researchers(state: Work) -> list[Send]:
        known = {"conversation": state["conversation"], "version": state["version"]}
        return [Send("researcher", {**known, "topic": topic}) for topic in TOPICS]

    def collected(state: Mapping[str, Any]) -> str:
        return "Write it up:\n" + "\n".join(sorted(state["notes"]))

    builder = StateGraph(Work)
    builder.add_node("ask", AskNode(chats))
    builder.add_node("researcher", researcher_of(chats))
    builder.add_node("collect", AskNode(chats, collected, by="agent"))
    builder.add_node("writer", LLMNode(chats, tools=[]))
    builder.add_edge(START, "ask")
    builder.add_conditional_edges("ask", researchers, ["researcher"])
    builder.add_edge("researcher", "collect")
    builder.add_edge("collect", "writer")
    builder.add_edge("writer", END)
    return chats.bind(builder.compile(checkpointer=InMemorySaver()))


async def main(model: Any, place: Path) -> None:
    async with Conversations(place, model, tools=builtin_tools()) as chats:
        graph = graph_of(chats)
        config: Any = {"configurable": {"thread_id": "1"}}
        state = await graph.ainvoke({"question": "How do I get to IELTS 7?"}, config)
        chat = chats.conversation(state)
        forks = [info for info in chats.store.list() if info.parent == chat.id]
        print(
            f"{len(forks)} researchers, each in a fork of its own; {len(chat.messages)} messages in the conversation:"
        )
        for message in chat.messages:
            print(f"\n{message.role}: {ap.parts.text_of(message.content)}")


if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else ap.FunctionModel(play), Path(folder) / "chats.db"))
