"""`NodeStage`: who plays a round on behalf of a node: its model, its instructions, and the tools it offers."""

from __future__ import annotations

from collections.abc import Sequence

from antiphon.conversation import Conversation
from antiphon.conversation.turn import AGENT_PREFIX
from antiphon.conversation.turn_runner import Participants
from antiphon.errors import GraphError
from antiphon.history import EntryMetadata, SetSystemInstructionEntry
from antiphon.providers.client import ProviderClient
from antiphon.wire.request import ToolDefinition


class NodeStage(Participants):
    """The conversation's own model and tools, as far as the node does not say otherwise."""

    def __init__(
        self,
        chat: Conversation,
        name: str,
        model: str | ProviderClient | None = None,
        system: str | None = None,
        tools: Sequence[str] | None = None,
    ) -> None:
        super().__init__(chat)
        self._name = name
        self._model = model
        self._system = system
        self._offered = tools

    @property
    def source(self) -> str:
        """A node with instructions of its own speaks as an agent of its name."""
        return f"{AGENT_PREFIX}{self._name}" if self._system is not None and self._name else ""

    @property
    def model(self) -> str | ProviderClient | None:
        return self._model

    @property
    def tools(self) -> tuple[ToolDefinition, ...]:
        definitions = super().tools
        if self._offered is None:
            return definitions
        known = {definition.name: definition for definition in definitions}
        if unknown := [name for name in self._offered if name not in known]:
            raise GraphError(
                f"the node {self._name} offers {', '.join(unknown)}, which Conversations(tools=…) does not have; it has "
                f"{', '.join(known) or 'none'}"
            )
        return tuple(known[name] for name in self._offered)

    @property
    def is_set(self) -> bool:
        return False

    async def enter(self) -> tuple[str, str] | None:
        await self.open()
        history = self.chat.history
        if self._system is not None and self._system != history.system_instruction:
            metadata = EntryMetadata(source=self.source)
            history.append(SetSystemInstructionEntry(self._system, metadata=metadata))
        return None
