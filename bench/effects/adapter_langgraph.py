"""LangGraph: a checkpointer in SQLite, `durability="sync"`, the side effect in a `@task`; resumed with `invoke(None)`.

Documentation: docs.langchain.com/oss/python/langgraph/durable-execution
"""

from __future__ import annotations

import sys
from typing import Annotated, Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import InjectedToolCallId, tool
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.func import task
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from bench.effects.payment import FOLDER, QUESTION, decide, pay


@task
def paid(cents: int, key: str) -> str:
    return pay(cents, key)


@tool
def pay_invoice(cents: int, call_id: Annotated[str, InjectedToolCallId]) -> str:
    """Pay an invoice."""
    return str(paid(cents, call_id).result())


class Model(BaseChatModel):
    @property
    def _llm_type(self) -> str:
        return "bench"

    def _generate(self, messages: Any, *_: Any, **__: Any) -> ChatResult:
        results = [message.text for message in messages if isinstance(message, ToolMessage)]
        call = decide(str(results[-1]) if results else None)
        calls = [{"name": "pay_invoice", "args": {"cents": 500}, "id": call}] if call else []
        return ChatResult(generations=[ChatGeneration(message=AIMessage("" if call else "Done.", tool_calls=calls))])


def main(step: str) -> None:
    builder = StateGraph(MessagesState)
    builder.add_node("model", lambda state: {"messages": [Model().invoke(state["messages"])]})
    builder.add_node("tools", ToolNode([pay_invoice]))
    builder.add_edge(START, "model")
    builder.add_conditional_edges("model", tools_condition)
    builder.add_edge("tools", "model")
    with SqliteSaver.from_conn_string(str(FOLDER / "graph.db")) as saver:
        graph = builder.compile(checkpointer=saver)
        given: Any = {"messages": [("user", QUESTION)]} if step == "start" else None
        graph.invoke(given, {"configurable": {"thread_id": "1"}}, durability="sync")


if __name__ == "__main__":
    main(sys.argv[1])
