"""`ChatSession`: the store, the models and the tools of a chat in the terminal, and the conversation that is open in it.

One router and one toolbox serve every conversation that is opened, one after the other. The page opens its conversations with the
same function, `open_conversation`, so that the model and the approvals of a conversation are the same on both. A session deletes
a conversation only if it created it and nothing was added. Plans and the document index are in the folder of the store, or in the
user's data folder if the store is a server.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct, structs

from antiphon.conversation import Agent, Conversation, RunLimits, ToolLoop
from antiphon.conversation.replay import Replay
from antiphon.errors import DocumentFolderError, HistoryError, StoreError, UnknownConversation
from antiphon.history import AgentHistory, ConversationInfo, HistoryStore, ModelInputEntry
from antiphon.history.location import data_folder_for, display_location, ensure_private_folder, open_store
from antiphon.providers.call import ProviderClient
from antiphon.providers.default_model import ModelChoice, is_tour
from antiphon.tools.builtin import PlanStore, with_memory
from antiphon.tools.embedded import EmbeddedSetting
from antiphon.tools.registry import ToolLike, ToolRegistry
from antiphon.tools.tool import Tool
from antiphon_chat.shared.conversations.branches import make_branch
from antiphon_chat.shared.conversations.changes import set_texts
from antiphon_chat.shared.conversations.titles import write_title
from antiphon_chat.shared.mcp.servers import McpServers
from antiphon_chat.shared.models import (
    ChatModels,
    ReloadableProvider,
    find_model,
    models_used,
    record_model,
    remembered_model,
)
from antiphon_chat.shared.partial_answers import PartialAnswer, PartialAnswers
from antiphon_chat.shared.permissions import approval_policy
from antiphon_chat.shared.setup.model_setup import ModelSetup
from antiphon_chat.shared.toolbox import Toolboxes


def open_chat_store(location: str | Path) -> HistoryStore:
    """The store at a location; the folder of a file is created."""
    ensure_private_folder(data_folder_for(location))
    return open_store(location)


class TurnSettings(Struct, frozen=True, kw_only=True):
    """How turns run: the same in the terminal, on the page and in `serve`."""

    limits: RunLimits = RunLimits()
    embedded_calls: EmbeddedSetting = "auto"
    token_limit: int | Literal["auto"] | None = "auto"
    """Above it, older parts are shortened or summarised: `auto` is 80 % of the model's context window; None is never."""
    has_memory_tool: bool = False
    """Whether the model may read and edit its notebook."""
    agents: tuple[Agent, ...] = ()
    """The agents that take part; the first begins."""
    can_raise_limits: bool = True
    """Whether a user may set higher limits for a conversation than `limits`."""


def open_conversation(
    history: AgentHistory,
    models: ChatModels,
    tools: ToolRegistry,
    *,
    model: str = "",
    provider: ProviderClient | None = None,
    asks_before_changes: bool = False,
    turns: TurnSettings | None = None,
    partial_answers: PartialAnswers | None = None,
) -> Conversation:
    """A conversation of a chat, with `model`, else with the model it was last used with, if that is available."""
    turns = turns or TurnSettings()
    if partial_answers is not None:
        partial_answers.recover(history)
    return Conversation(
        model or remembered_model(history.snapshot(), models.is_available, models.choice.model),
        provider=provider or models.router,
        tools=with_memory(tools, history) if turns.has_memory_tool else tools,
        history=history,
        token_limit=turns.token_limit,
        compaction=None if turns.token_limit is None else "auto",
        approval=approval_policy(history, asks_before_changes=asks_before_changes),
        embedded_calls=turns.embedded_calls,
    )


def needs_approval(tool: Tool, *, asks_before_changes: bool) -> bool:
    """Whether calls of a tool may need approval."""
    return bool(tool.needs_approval) or (asks_before_changes and tool.effect != "read")


def resume_conversation(store: HistoryStore, which: str, model: str | None, system: str | None) -> AgentHistory:
    """A stored conversation, with another model and system instruction if they are given."""
    history = store.open(which)
    set_texts(history, system=system)
    if model:
        record_model(history, model)
    return history


class ChatSettings(Struct, frozen=True, kw_only=True):
    """The options of a chat."""

    store: str | Path
    model: str | None = None
    resume: str | None = None
    system: str | None = None
    has_tools: bool = True
    asks_before_changes: bool = False
    """Whether calls of tools that are not read-only need approval."""
    folder: Path | None = None
    turns: TurnSettings = TurnSettings()
    tools: tuple[ToolLike, ...] = ()
    """The person's own tools (`chat/setup/own_tools.py`)."""

    def toolboxes(self, servers: McpServers, model: str) -> Toolboxes:
        """The tools on offer, those of the MCP servers too; `model` is the one that begins."""
        return Toolboxes(
            data_folder_for(self.store),
            folder=self.folder,
            with_builtin=self.has_tools,
            tools=(*self.tools, servers) if self.has_tools else self.tools,
            with_tour=is_tour(model),
        )

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """The fields, without a password in the address of the store (law L10)."""
        return list((structs.asdict(self) | {"store": display_location(self.store)}).items())

    def __repr__(self) -> str:
        return f"ChatSettings({', '.join(f'{name}={value!r}' for name, value in self.__rich_repr__())})"


class ChatSession:
    """A chat. Close it when done."""

    def __init__(self, settings: ChatSettings, environ: Mapping[str, str] = os.environ) -> None:
        self.settings = settings
        self.folder = data_folder_for(settings.store)
        self.setup = ModelSetup(environ, self.folder)
        model = self.find_model(settings.model) if settings.model else ""
        if settings.folder is not None and not settings.folder.is_dir():
            raise DocumentFolderError(f"no folder {settings.folder}; give an existing one with --folder")
        self.mcp = McpServers(self.folder, settings.tools)
        """The MCP servers of the settings."""
        self.store = open_chat_store(settings.store)
        try:
            self._toolboxes = settings.toolboxes(self.mcp, model or self.choice.model)
            self._toolbox = self._toolboxes.of("")
            if settings.resume:
                self._open(resume_conversation(self.store, settings.resume, model, settings.system))
            else:
                self._open(self.store.create(), model)
                set_texts(self.history, system=settings.system)
                self._created = (self.chat.id, self.history.version)
        except BaseException:
            self.store.close()
            raise

    chat: Conversation
    loop: ToolLoop
    partial_answer: PartialAnswer
    _created: tuple[str, int] | None = None
    """The conversation that this session created, and its version then."""

    @property
    def choice(self) -> ModelChoice:
        """The default model."""
        return self.setup.models.choice

    @property
    def history(self) -> AgentHistory:
        return self.chat.history

    @property
    def tools(self) -> Sequence[Tool]:
        return tuple(self._toolbox.registry)

    async def open_tools(self, wait_seconds: float = 0.0) -> None:
        """Start the MCP servers. Raises `McpUnavailable` if one of the command line cannot be reached; those of the settings
        are waited for, but not longer than `wait_seconds`."""
        if wait_seconds and self.settings.has_tools:
            await self.mcp.wait_until_started(wait_seconds)
        await self._toolbox.registry.open()

    def needs_approval(self, tool: Tool) -> bool:
        """Whether calls of a tool may need approval."""
        return needs_approval(tool, asks_before_changes=self.settings.asks_before_changes)

    @property
    def plans(self) -> PlanStore:
        return self._toolbox.plans

    @property
    def info(self) -> ConversationInfo:
        """The facts about the open conversation."""
        return self.store.info(self.chat.id)

    @property
    def models(self) -> list[str]:
        """The models that are available now."""
        return list(dict.fromkeys([*self.setup.models.names, *models_used(self.history.entries), *self.setup.listed]))

    @property
    def has_messages(self) -> bool:
        """Whether a message was sent."""
        return any(isinstance(entry, ModelInputEntry) for entry in self.history.entries)

    @property
    def is_unused(self) -> bool:
        """Whether this session created the open conversation and nothing was added since, here or elsewhere."""
        if self._created is None or self._created[0] != self.chat.id:
            return False
        try:
            info = self.info
        except UnknownConversation:  # deleted by another process
            return True
        return info.version == self._created[1] and not info.title

    def set_model(self, wanted: str) -> str:
        """Use another model from the next turn on; returns its name. Raises an error that names near misses."""
        self.chat.model = name = self.find_model(wanted)
        if self.has_messages:  # before that, the first answer records it, and an unused conversation stays unused
            record_model(self.history, name)
        return name

    def new(self) -> None:
        """Start another conversation with the same model."""
        self._replace(self.store.create())
        self._created = (self.chat.id, self.history.version)

    def open(self, conversation: str) -> None:
        """Continue a stored conversation with its own model, as the page does."""
        self._replace(self.store.open(conversation), model="")

    def fork(self, at: int | None = None) -> None:
        """Continue in a new conversation that starts with the first `at` entries of this one."""
        if not self.has_messages:
            raise HistoryError("the conversation is empty; there is nothing to fork")
        self._replace(self.history.fork(at))

    def branch(self, at: int) -> None:
        """Continue in a branch that leaves this conversation after entry `at`."""
        self._replace(make_branch(self.store, self.chat.id, at))

    def find_model(self, wanted: str) -> str:
        """The name of a model. Raises an error that names near misses if there is no such model."""
        models = self.setup.models
        return find_model(wanted, [*models.names, *self.setup.listed], models.router, self.setup.environ)

    def start_replay(self, replay: Replay, model: str) -> None:
        """Continue in a branch of the replayed conversation, in which `model` answers again. Its tools are open."""
        branch = make_branch(self.store, replay.original.id, replay.plan.at)
        record_model(branch, model)
        replay.start(model, branch)
        self._replace(branch)
        self.chat.model = model
        replay.equip(self.chat)

    def leave_branch(self, conversation: str, model: str) -> None:
        """Return to a conversation and its model."""
        self._replace(self.store.open(conversation), model)

    async def written_title(self) -> str:
        """A title that the model writes; empty if it writes none."""
        return await write_title(self.chat)

    async def aclose(self) -> None:
        """Close everything, and delete the conversation that was created and not used."""
        try:
            self._delete_if_created_and_empty()
            await self.setup.aclose()
            await self._toolboxes.aclose()
        finally:
            self.store.close()

    def _replace(self, history: AgentHistory, model: str | None = None) -> None:
        """Open another history, with the same model unless one is given; empty is the model of that conversation."""
        self._delete_if_created_and_empty()
        self._open(history, self.chat.model if model is None else model)

    def _open(self, history: AgentHistory, model: str = "") -> None:
        self.chat = open_conversation(
            history,
            self.setup.models,
            self._toolbox.registry,
            model=model,
            provider=ReloadableProvider(lambda: self.setup.models),
            asks_before_changes=self.settings.asks_before_changes,
            turns=self.settings.turns,
            partial_answers=self._toolboxes.partial_answers,
        )
        self.partial_answer = self._toolboxes.partial_answers.writer(self.chat)
        self.loop = ToolLoop(self.chat, limits=self.settings.turns.limits, agents=self.settings.turns.agents)

    def _delete_if_created_and_empty(self) -> None:
        try:
            if self.is_unused:
                self.store.delete(self.chat.id)
        except StoreError:  # deleted or locked by another process; an empty row does no harm
            return
