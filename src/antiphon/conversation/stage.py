"""`Stage`: who plays the next round, with which tools. Without agents, it is the conversation itself, always."""

from __future__ import annotations

from antiphon.conversation.conversation import Conversation
from antiphon.providers.client import ProviderClient
from antiphon.tools.executor import ToolExecutor
from antiphon.wire.request import ToolDefinition


class Stage:
    """The conversation's own model and tools."""

    def __init__(self, chat: Conversation) -> None:
        self.chat = chat

    @property
    def source(self) -> str:
        """Who speaks, for the log; empty if that is nobody in particular."""
        return ""

    @property
    def model(self) -> str | ProviderClient | None:
        """Who is asked in the next round; None for the conversation's own."""
        return None

    @property
    def executor(self) -> ToolExecutor:
        """Who runs the calls of the last output."""
        return self.chat.executor

    @property
    def next_executor(self) -> ToolExecutor:
        """Who runs the calls of the next output."""
        return self.chat.executor

    @property
    def tools(self) -> tuple[ToolDefinition, ...]:
        """What is offered in the next round."""
        return self.chat.registry.definitions

    @property
    def is_set(self) -> bool:
        """Whether there is nothing to open and nobody to change: `enter` and `open` would do nothing."""
        return not self.chat.registry.sources

    async def enter(self) -> tuple[str, str] | None:
        """Get ready for the next round; the names of who left and who came, if that changed."""
        await self.open()
        return None

    async def open(self) -> None:
        """Have the tools at hand that the calls of the last output name."""
        await self.chat.registry.open()
