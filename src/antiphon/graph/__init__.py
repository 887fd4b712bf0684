"""LangGraph nodes that delegate to a Conversation: the graph owns the control flow, the conversation the messages."""

from antiphon.graph.ask_node import AskNode
from antiphon.graph.conversations import Conversations
from antiphon.graph.from_langchain import from_langchain
from antiphon.graph.human_node import HumanNode
from antiphon.graph.llm_node import LLMNode
from antiphon.graph.message_nodes import MessagesLLMNode, MessagesToolNode
from antiphon.graph.node import ConversationNode
from antiphon.graph.state import ConversationState
from antiphon.graph.step import GraphStep
from antiphon.graph.to_langchain import to_langchain
from antiphon.graph.tool_node import ToolNode

__all__ = [
    "AskNode",
    "ConversationNode",
    "ConversationState",
    "Conversations",
    "GraphStep",
    "HumanNode",
    "LLMNode",
    "MessagesLLMNode",
    "MessagesToolNode",
    "ToolNode",
    "from_langchain",
    "to_langchain",
]
