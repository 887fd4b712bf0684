"""LangGraph nodes that delegate to a Conversation: the graph owns the control flow, the conversation the messages."""

from antiphon.graph.conversations import Conversations
from antiphon.graph.nodes import AskNode, ConversationNode, ConversationState, HumanNode, LLMNode, ToolNode
from antiphon.graph.step import GraphStep

__all__ = [
    "AskNode",
    "ConversationNode",
    "ConversationState",
    "Conversations",
    "GraphStep",
    "HumanNode",
    "LLMNode",
    "ToolNode",
]
