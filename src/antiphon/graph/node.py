"""`ConversationNode`: what LLM, tool and human nodes have in common.

A node says in `work` what it does with the conversation, and returns what else goes into the graph's state; the id and the
version of the conversation are put there for it. It calls `step.mark()` before it writes, and looks at `step.standing`, because
the same step may be run again after a crash.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from antiphon.graph.runnable import RunnableNode
from antiphon.graph.step import GraphStep

if TYPE_CHECKING:
    from antiphon.graph.conversations import Conversations


class ConversationNode(RunnableNode):
    """A node that works on the conversation which the graph's state names."""

    fork = False
    """Whether the node works on a fork of that conversation."""

    def __init__(self, chats: Conversations) -> None:
        self.chats = chats

    async def work(self, step: GraphStep) -> Mapping[str, Any] | None:
        """Do what the node is there for."""
        raise NotImplementedError

    async def made(self, state: Any, config: Any, *, is_async: bool) -> dict[str, Any]:
        values = state if isinstance(state, Mapping) else dict(vars(state))  # a Pydantic or dataclass state
        async with self.chats.step(values, config, fork=self.fork, is_async=is_async) as step:
            update = await self.work(step)
            return {"conversation": step.chat.id, "version": step.chat.history.version, **(update or {})}
