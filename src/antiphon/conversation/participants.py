"""`Participants`: the model, tools and executor of each round of a turn. Agents, graph nodes and typed output override it."""

from __future__ import annotations

from antiphon.conversation.conversation import Conversation
from antiphon.providers.client import ProviderClient
from antiphon.tools.executor import ToolExecutor
from antiphon.wire.request import ToolDefinition


class Participants:
    """The conversation's own model and tools."""

    def __init__(self, chat: Conversation) -> None:
        self.chat = chat

    @property
    def source(self) -> str:
        """The source of the entries of a round: `agent:<name>`, or empty."""
        return ""

    @property
    def model(self) -> str | ProviderClient | None:
        """The model of the next round; None for the conversation's own."""
        return None

    @property
    def executor(self) -> ToolExecutor:
        """Runs the calls of the last output."""
        return self.chat.executor

    @property
    def next_executor(self) -> ToolExecutor:
        """Runs the calls of the next output."""
        return self.chat.executor

    @property
    def tools(self) -> tuple[ToolDefinition, ...]:
        """The tools of the next round."""
        return self.chat.registry.definitions

    @property
    def is_set(self) -> bool:
        """Whether `enter` and `open` have nothing to do."""
        return not self.chat.registry.sources

    async def enter(self) -> tuple[str, str] | None:
        """Prepare the next round; the names of the previous and the new agent, if that changed."""
        await self.open()
        return None

    async def open(self) -> None:
        """Open the tools for the calls of the last output."""
        await self.chat.registry.open()
