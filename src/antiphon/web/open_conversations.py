"""`OpenConversations`: which conversations are open here, each once, and not more of them than are needed.

A conversation is opened when somebody asks for it and let go of when nobody has for a while: nothing of it is lost, for all of
it is in the store. One that is watched or plays a turn stays. Whoever has a key sees the conversations of that key and no others:
the store keeps the owner as a tag.

A store on another machine may keep us waiting, so it is asked in a thread: whoever wants something else is served meanwhile.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar
from weakref import WeakValueDictionary

from antiphon.conversation import Conversation
from antiphon.errors import UnknownConversation
from antiphon.history import AgentHistory, HistoryStore
from antiphon.history.ids import is_id
from antiphon.history.store import ConversationInfo
from antiphon.web.live_conversation import LiveConversation

T = TypeVar("T")

MAX_OPEN = 64
IDLE_SECONDS = 600.0
_OWNER = "owner:"


class OpenConversations:
    """The open conversations of a store. `make` puts a history of an owner to work."""

    def __init__(
        self,
        store: HistoryStore,
        make: Callable[[AgentHistory, str], Conversation],
        *,
        max_open: int = MAX_OPEN,
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        self.store = store
        self._make = make
        self._most_open = max_open
        self._idle_seconds = idle_seconds
        self._open: dict[str, LiveConversation] = {}
        self._opening: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def __len__(self) -> int:
        return len(self._open)

    @property
    def running(self) -> int:
        """How many turns are being played."""
        return sum(live.is_running for live in self._open.values())

    async def ask(self, question: Callable[[], T]) -> T:
        """What the store says to a question."""
        return question() if self.store.is_local else await asyncio.to_thread(question)

    async def create(self, owner: str, title: str = "") -> LiveConversation:
        """A new conversation."""
        self._evict_idle()
        history = await self.ask(lambda: self.store.create(title, tags=[owner_tag(owner)] if owner else []))
        return self._add(history, owner)

    async def info(self, conversation: str, owner: str) -> ConversationInfo:
        """The facts about a conversation, if it is this owner's. Raises `UnknownConversation`."""
        # Only whole ids: the abbreviations that a person may type would find what is not theirs.
        info = await self.ask(lambda: self.store.info(conversation)) if is_id(conversation) else None
        if info is None or (owner and owner_tag(owner) not in info.tags):
            raise UnknownConversation(f"there is no conversation {conversation[:40]!r} here; it may have been deleted")
        return info

    async def open(self, conversation: str, owner: str) -> LiveConversation:
        """The conversation, opened if it is not yet, with what others appended since."""
        await self.info(conversation, owner)
        # Two who want the same wait for each other, and for nobody else.
        async with self._opening.setdefault(conversation, asyncio.Lock()):
            self._evict_idle()
            live = self._open.get(conversation)
            if live is None:
                history = await asyncio.to_thread(self.store.open, conversation)
                live = self._add(history, owner)
        await live.refresh()
        return live

    async def delete(self, conversation: str, owner: str) -> None:
        """Delete a conversation; whoever watches it is told."""
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
            self._make(history, owner), owner, is_local=self.store.is_local
        )
        return live

    def _evict_idle(self) -> None:
        """Forget those nobody used for a while; of too many, those that were not used for the longest time."""
        now = time.monotonic()
        idle = sorted((live for live in self._open.values() if live.is_noop), key=lambda live: live.last_used)
        spare = len(self._open) - self._most_open
        for live in idle:
            if spare >= 0 or now - live.last_used > self._idle_seconds:
                spare -= 1
                live.events.close()
                del self._open[live.chat.id]


def owner_tag(owner: str) -> str:
    """How the store says whose a conversation is."""
    return f"{_OWNER}{owner}"
