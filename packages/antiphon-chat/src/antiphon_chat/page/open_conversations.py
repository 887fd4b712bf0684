"""`OpenConversations`: the conversations that are open in this process, each at most once.

A conversation is opened on request and closed when it was idle for a while; nothing is lost, because all of it is in the store.
One that is watched or runs a turn stays open. A key gives access to its own conversations only: the store keeps the owner as a
tag.

A remote store may be slow, so it is called in a thread, and other requests are served meanwhile.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar
from weakref import WeakValueDictionary

from antiphon.conversation import Agent, Conversation, RunLimits
from antiphon.errors import UnknownConversation
from antiphon.history import AgentHistory, HistoryStore
from antiphon.history.store import ConversationInfo
from antiphon.ids import is_id
from antiphon.prices.table import PriceTable
from antiphon.threads import STORES
from antiphon_chat.page.live_conversation import LiveConversation
from antiphon_chat.shared.conversations.changes import set_title
from antiphon_chat.shared.partial_answers import PartialAnswers

T = TypeVar("T")

MAX_OPEN = 64
IDLE_SECONDS = 600.0
_OWNER = "owner:"


class OpenConversations:
    """The open conversations of a store. `make` builds the conversation of an owner's history, `write_title` its title."""

    def __init__(
        self,
        store: HistoryStore,
        make: Callable[[AgentHistory, str], Conversation],
        *,
        limits: Callable[[AgentHistory], RunLimits] = lambda _: RunLimits(),
        agents: Callable[[], Sequence[Agent]] = lambda: (),
        partial_answers: PartialAnswers | None = None,
        write_title: Callable[[Conversation], Awaitable[str]] | None = None,
        prices: Callable[[], PriceTable | None] = lambda: None,
        max_open: int = MAX_OPEN,
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        self.store = store
        self._make = make
        self._limits = limits
        self._agents = agents
        self._partial_answers = partial_answers
        self._write_title = write_title
        self.prices = prices
        """The current prices; None for the list prices."""
        self._most_open = max_open
        self._idle_seconds = idle_seconds
        self._open: dict[str, LiveConversation] = {}
        self._opening: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def __len__(self) -> int:
        return len(self._open)

    @property
    def running(self) -> int:
        """The number of running turns."""
        return sum(live.is_running for live in self._open.values())

    async def ask(self, question: Callable[[], T]) -> T:
        """Call the store in a thread if it is remote."""
        return question() if self.store.is_local else await STORES.run(question)

    async def create(self, owner: str, title: str = "") -> LiveConversation:
        """A new conversation."""
        self._evict_idle()
        history = await self.ask(lambda: self.store.create(title, tags=[owner_tag(owner)] if owner else []))
        return self._add(history, owner)

    async def info(self, conversation: str, owner: str) -> ConversationInfo:
        """The facts about a conversation, if it is this owner's. Raises `UnknownConversation`."""
        # Only whole ids: an abbreviation could match a conversation of another owner.
        info = await self.ask(lambda: self.store.info(conversation)) if is_id(conversation) else None
        if info is None or (owner and owner_tag(owner) not in info.tags):
            raise UnknownConversation(f"there is no conversation {conversation[:40]!r} here; it may have been deleted")
        return info

    async def open(self, conversation: str, owner: str) -> LiveConversation:
        """The conversation, opened if necessary, with entries that others appended since."""
        await self.info(conversation, owner)
        # Two requests for the same conversation wait for each other, and for no others.
        async with self._opening.setdefault(conversation, asyncio.Lock()):
            self._evict_idle()
            live = self._open.get(conversation)
            if live is None:
                history = await STORES.run(self.store.open, conversation)
                live = self._add(history, owner)
        await live.refresh()
        return live

    async def open_to_write(self, conversation: str, owner: str) -> LiveConversation:
        """The conversation for a message: to store that takes in what others appended, and fails if it was deleted."""
        live = self._open.get(conversation)
        if live is None or live.owner != owner:
            return await self.open(conversation, owner)
        live.last_used = time.monotonic()
        return live

    async def delete(self, conversation: str, owner: str) -> None:
        """Delete a conversation and notify its watchers."""
        await self.info(conversation, owner)
        live = self._open.pop(conversation, None)
        if live is not None:
            live.is_deleted = True
            await live.close()
        await self.ask(lambda: self.store.delete(conversation))

    async def aclose(self, grace: float = 0.0) -> None:
        """Close all of them. Turns get `grace` seconds to end."""
        while self._open:
            open_ones = list(self._open.values())
            self._open.clear()
            await asyncio.gather(*(live.close(grace) for live in open_ones))

    def _add(self, history: AgentHistory, owner: str) -> LiveConversation:
        live = self._open[history.id] = LiveConversation(
            self._make(history, owner),
            owner,
            is_local=self.store.is_local,
            limits=self._limits(history),
            agents=self._agents(),
            partial_answers=self._partial_answers,
            write_title=self._add_title if self._write_title is not None else None,
            prices=self.prices,
        )
        return live

    async def _add_title(self, live: LiveConversation) -> str:
        """Have a title written, and store it unless a person set one meanwhile."""
        assert self._write_title is not None
        title = await self._write_title(live.chat)
        if not title or not live.wants_title or live.is_deleted:
            return ""
        await self.ask(lambda: set_title(self.store, live.chat.id, title))
        return title

    def _evict_idle(self) -> None:
        """Close idle conversations; over the limit, the least recently used ones."""
        now = time.monotonic()
        idle = sorted((live for live in self._open.values() if live.is_idle), key=lambda live: live.last_used)
        spare = len(self._open) - self._most_open
        for live in idle:
            if spare >= 0 or now - live.last_used > self._idle_seconds:
                spare -= 1
                live.events.close()
                del self._open[live.chat.id]


def owner_tag(owner: str) -> str:
    """The tag that marks the owner of a conversation."""
    return f"{_OWNER}{owner}"
