"""`ChatServices`: what the handlers of the page's API work with, and whether a client may use a model or begin a turn now."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from antiphon.conversation import Conversation
from antiphon.history import AgentHistory, HistoryStore
from antiphon.prices.table import PriceTable
from antiphon_chat.page.live_conversation import LiveConversation
from antiphon_chat.page.mounted.metered_calls import ChatMeter
from antiphon_chat.page.open_conversations import OpenConversations
from antiphon_chat.page.request import ApiError
from antiphon_chat.shared.conversations.titles import write_title
from antiphon_chat.shared.mcp.servers import McpServers
from antiphon_chat.shared.models import ChatModels, ReloadableProvider
from antiphon_chat.shared.session import TurnSettings, open_conversation
from antiphon_chat.shared.setup.model_setup import ModelSetup
from antiphon_chat.shared.toolbox import Toolboxes
from antiphon_chat.shared.turn_limits import limits_for
from antiphon_gateway.access.client_keys import ClientKey

MAX_RUNNING_TURNS = 64
"""How many turns run at once."""
STREAM_SECONDS = 600.0
TOOLS_SECONDS = 10.0


class ChatServices:
    """The conversations of a store with their models, tools and settings.

    `models` returns the current models; `toolboxes` have the tools; `meter` counts what each key uses. `system` is the system
    instruction of new conversations, `turns` the current settings of turns, `stream_seconds` how long a stream of events is
    kept open. With `asks_before_changes`, every call of a tool that is not read-only needs approval. With `setup`, keys can be
    pasted on the page; with `mcp`, which is one of the tools, its MCP servers can be changed there; with `writes_titles` the
    model writes the titles of new conversations. Costs are by `prices`, else by the list prices.
    """

    def __init__(
        self,
        store: HistoryStore,
        models: Callable[[], ChatModels],
        toolboxes: Toolboxes,
        *,
        meter: ChatMeter | None = None,
        system: str = "",
        turns: Callable[[], TurnSettings] = TurnSettings,
        asks_before_changes: bool = False,
        stream_seconds: Callable[[], float] = lambda: STREAM_SECONDS,
        max_running: int = MAX_RUNNING_TURNS,
        setup: ModelSetup | None = None,
        mcp: McpServers | None = None,
        writes_titles: bool = False,
        prices: Callable[[], PriceTable | None] = lambda: None,
    ) -> None:
        self.models = models
        self.toolboxes = toolboxes
        self.system = system
        self.turns = turns
        self.asks_before_changes = asks_before_changes
        self.stream_seconds = stream_seconds
        self.setup = setup
        self.mcp = mcp
        self.counting = asyncio.Lock()
        """Held by who reads every log: one at a time."""
        self._meter = meter
        self._max_running = max_running
        self._provider = ReloadableProvider(models)
        self.conversations = OpenConversations(
            store,
            self._open,
            limits=lambda history: limits_for(history.snapshot(), turns()),
            agents=lambda: turns().agents,
            partial_answers=toolboxes.partial_answers,
            write_title=write_title if writes_titles else None,
            prices=prices,
        )

    @property
    def default_model(self) -> str:
        """The model for conversations without a chosen one."""
        return self.models().choice.model

    def model_names(self, key: ClientKey) -> tuple[str, ...]:
        """The models on a client's menu."""
        return tuple(name for name in self.models().names if key.may_use(name))

    def check_model(self, model: str, key: ClientKey) -> None:
        """Raise if this client cannot use that model."""
        self.models().check(model)
        if not key.may_use(model):
            raise ApiError(f"this key may not use {model}", 403, "forbidden")

    async def admit(self, model: str, key: ClientKey) -> None:
        """Count a request to a model, by default the default one; raise if this client cannot use it, or has to wait."""
        model = model or self.default_model
        self.check_model(model, key)
        if self._meter is not None:
            await self._meter.admit(key, model)

    async def admit_turn(self, live: LiveConversation, model: str, key: ClientKey) -> None:
        """Count a turn of this client, or raise if it cannot start now; what it needs is prepared."""
        if not live.is_running and self.conversations.running >= self._max_running:
            raise ApiError(f"{self._max_running} turns are running already; try again soon", 503, "busy")
        await self.admit(model, key)
        await self.prepare_turn()

    async def prepare_turn(self) -> None:
        """Wait a moment for the MCP servers of the settings, and let a key that was rejected be tried again."""
        if self.setup is not None:
            self.setup.retry_rejected_keys()
        if self.mcp is not None:
            await self.mcp.wait_until_started(TOOLS_SECONDS)

    async def aclose(self, grace: float = 0.0) -> None:
        """Disconnect the watchers, end the turns within `grace` seconds, and close the tools."""
        await self.conversations.aclose(grace)
        await self.toolboxes.aclose()

    def _open(self, history: AgentHistory, owner: str) -> Conversation:
        chat = open_conversation(
            history,
            self.models(),
            self.toolboxes.of(owner).registry,
            provider=self._provider if self._meter is None else self._meter.calls_of(owner, self.models),
            asks_before_changes=self.asks_before_changes,
            turns=self.turns(),
            partial_answers=self.toolboxes.partial_answers,
        )
        if self._meter is not None:
            chat.executor.on_call = self._meter.count_tool_calls(chat.registry)
        return chat
