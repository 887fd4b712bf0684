"""`ConversationState`: all that a graph's state holds of a conversation.

The messages are in the log; the state says which log, and how far the graph knows it. So a checkpoint costs the same after a
thousand steps as after one, and a checkpointer holds nothing that anybody said.
"""

from __future__ import annotations

from typing import TypedDict


class ConversationState(TypedDict, total=False):
    """Which conversation, and at which version of its log the graph is. Subclass it to add keys of your own."""

    conversation: str
    version: int
