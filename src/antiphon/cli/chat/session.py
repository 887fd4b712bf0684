"""`ChatSession`: the store, the models and the tools of a chat, and the conversation that is open in it.

One router and one set of tools serve every conversation that is opened, one after the other. A conversation that this session
created and to which nothing was added leaves no trace: it is removed when another is opened, or at the end. Plans and the index
of documents are kept in the folder of the store; of a server, in the user's own.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct, structs

from antiphon.cli.chat.models import model_named, models_used
from antiphon.conversation import Conversation, ToolLoop
from antiphon.errors import (
    AntiphonError,
    DocumentsUnreadable,
    HistoryError,
    StoreError,
    UnknownConversation,
)
from antiphon.history import AgentHistory, ConversationInfo, ModelInputEntry
from antiphon.history.location import data_folder_for, display_location, ensure_private_folder, open_store
from antiphon.providers.default_model import Choice
from antiphon.tools.builtin import PlanStore
from antiphon.tools.tool import Tool, ask_before_changes
from antiphon.web.models import models_of_environment
from antiphon.web.toolbox import Toolboxes


class ChatSettings(Struct, frozen=True, kw_only=True):
    """What a chat was asked for."""

    store: str | Path
    model: str | None = None
    resume: str | None = None
    system: str | None = None
    has_tools: bool = True
    asks: bool = False
    """Whether calls that change something wait for a person."""
    folder: Path | None = None

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """What of it is shown: the address of a store may hold a password (law L10)."""
        return list((structs.asdict(self) | {"store": display_location(self.store)}).items())

    def __repr__(self) -> str:
        return f"ChatSettings({', '.join(f'{name}={value!r}' for name, value in self.__rich_repr__())})"


class ChatSession:
    """A chat. Close it when done."""

    def __init__(self, settings: ChatSettings, environ: Mapping[str, str] = os.environ) -> None:
        self.settings = settings
        self._environ = environ
        self.folder = data_folder_for(settings.store)
        offer = models_of_environment(environ)
        self.choice: Choice = offer.choice
        self._menu = offer.names
        self._router = offer.router
        asked = self._named(settings.model) if settings.model else ""
        if settings.folder is not None and not settings.folder.is_dir():
            raise DocumentsUnreadable(f"there is no folder {settings.folder} to search; give one with --folder")
        ensure_private_folder(self.folder)
        self.store = open_store(settings.store)
        try:
            self._toolboxes = Toolboxes(self.folder, folder=settings.folder, with_builtin=settings.has_tools)
            self._toolbox = self._toolboxes.of("")
            self._opened(self.store.open(settings.resume) if settings.resume else self.store.create(), asked)
            if settings.system is not None and settings.system != self.history.system_instruction:
                self.history.set_system_instruction(settings.system)
            if not settings.resume:
                self._created = (self.chat.id, self.history.version)
        except BaseException:
            self.store.close()
            raise

    chat: Conversation
    loop: ToolLoop
    _created: tuple[str, int] | None = None
    """The conversation that this session created, and its version then."""

    @property
    def history(self) -> AgentHistory:
        return self.chat.history

    @property
    def tools(self) -> Sequence[Tool]:
        return tuple(self._toolbox.registry)

    def asks_about(self, tool: Tool) -> bool:
        """Whether calls of a tool may need approval."""
        return bool(tool.needs_approval) or (self.settings.asks and tool.effect != "read")

    @property
    def plans(self) -> PlanStore:
        return self._toolbox.plans

    @property
    def info(self) -> ConversationInfo:
        """The facts about the conversation that is open."""
        return self.store.info(self.chat.id)

    @property
    def models(self) -> list[str]:
        """The models that can be asked now."""
        return list(dict.fromkeys([*self._menu, *models_used(self.history.entries)]))

    @property
    def is_said(self) -> bool:
        """Whether anybody said anything."""
        return any(isinstance(entry, ModelInputEntry) for entry in self.history.entries)

    @property
    def is_unused(self) -> bool:
        """Whether this session created the open conversation and nobody, here or elsewhere, has added anything since."""
        if self._created is None or self._created[0] != self.chat.id:
            return False
        try:
            info = self.info
        except UnknownConversation:  # somebody else deleted it
            return True
        return info.version == self._created[1] and not info.title

    def switch_model(self, wanted: str) -> str:
        """Ask another model from the next turn on; returns its name. Raises an error that names near misses."""
        self.chat.model = name = self._named(wanted)
        return name

    def new(self) -> None:
        """Begin another conversation, with the same model."""
        self._replace(self.store.create())
        self._created = (self.chat.id, self.history.version)

    def open(self, conversation: str) -> None:
        """Go on with a stored conversation."""
        self._replace(self.store.open(conversation))

    def fork(self, at: int | None = None) -> None:
        """Go on in a new conversation that starts with the first `at` entries of this one."""
        if not self.is_said:
            raise HistoryError("nothing was said yet, so there is nothing to fork")
        self._replace(self.history.fork(at))

    async def aclose(self) -> None:
        """Let go of everything, and delete the conversation that was created and not used."""
        try:
            self._delete_if_unused()
            await self._router.aclose()
            await self._toolboxes.aclose()
        finally:
            self.store.close()

    def _replace(self, history: AgentHistory) -> None:
        self._delete_if_unused()
        self._opened(history, self.chat.model)

    def _opened(self, history: AgentHistory, model: str) -> None:
        self.chat = Conversation(
            model or self.choice.model,
            tools=self._toolbox.registry,
            history=history,
            provider=self._router,
            approval=ask_before_changes if self.settings.asks else None,
        )
        self.loop = ToolLoop(self.chat)
        if not model and (origin := self.chat.last_origin) is not None:
            self._take_up(f"{origin.provider}/{origin.model}")

    def _take_up(self, model: str) -> None:
        """Go on with the model a conversation was with, if it can still be asked."""
        try:
            self.chat.model = self._named(model)
        except AntiphonError:
            self.chat.model = self.choice.model

    def _delete_if_unused(self) -> None:
        try:
            if self.is_unused:
                self.store.delete(self.chat.id)
        except StoreError:  # somebody else deleted it, or holds the file: an empty row harms nobody
            return

    def _named(self, wanted: str) -> str:
        return model_named(wanted, self._menu, self._router, self._environ)
