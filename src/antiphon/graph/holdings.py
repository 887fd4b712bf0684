"""`Holdings`: the conversations that this process holds under a lease while graphs are at work on them.

A conversation is claimed when a run first touches it, renewed by a thread for as long as the process lives, and given back when
the run ends (where `Conversations.bind` tells of it) or when nobody has touched it for `idle` seconds. In between it stays
open, so that a step reads only what is new.

The lease keeps other processes out. Inside the process the table does the same: one run at a time, and in it one step at a
time. Whoever comes second waits for `wait` seconds and is then refused by name: nothing is ever done twice because two did not
know of each other. A holder that lost its lease to somebody else is stopped by the store at its next append.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from time import monotonic

from antiphon.conversation import Conversation
from antiphon.errors import GraphError, LeaseHeld, LeaseLost, StoreError
from antiphon.graph.place import Place
from antiphon.history import AgentHistory, HistoryStore, Lease

logger = logging.getLogger("antiphon.graph")

_LOOK_AGAIN = 0.05


class Holding:
    """A conversation, open under its lease. `place` is the step at work on it now, `run` the run that holds it."""

    def __init__(self, chat: Conversation, lease: Lease, run: str) -> None:
        self.chat = chat
        self.lease = lease
        self.run = run
        self.place: Place | None = None
        self.used = monotonic()


class Holdings:
    """What is held now, by the id of the conversation. `build` makes a conversation of a history."""

    def __init__(
        self,
        store: HistoryStore,
        build: Callable[[AgentHistory], Conversation],
        *,
        holder: str,
        seconds: float,
        wait: float,
        idle: float,
    ) -> None:
        self._store = store
        self._build = build
        self._holder = holder
        self._seconds = seconds
        self._wait = wait
        self._idle = idle
        self._held: dict[str, Holding] = {}
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    async def take(self, conversation: str, place: Place) -> Holding:
        """Hold a conversation for a step; to be given to `leave` afterwards."""
        deadline = monotonic() + self._wait
        while True:
            holding, who = self._try(conversation, place)
            if holding is not None:
                return holding
            if monotonic() >= deadline:
                waited = f" after {self._wait:g} s of waiting" if self._wait else ""
                raise LeaseHeld(
                    f"conversation {conversation} is at work elsewhere{waited}: {who}. Nothing was done; invoke the graph again "
                    "when that is over, or give Conversations(wait=…) seconds to wait for it"
                )
            await asyncio.sleep(_LOOK_AGAIN)

    def leave(self, holding: Holding) -> None:
        """The step is over. The conversation stays held for the steps to come."""
        with self._changed:
            holding.place = None
            holding.used = monotonic()

    def look(self, conversation: str) -> Conversation | None:
        """A conversation that is held, to read in it."""
        holding = self._held.get(conversation)
        return holding.chat if holding is not None else None

    def release(self, conversation: str | None = None, *, run: str | None = None) -> None:
        """Give back one conversation, or those of a run, or all. What a step is still at work on is given back behind it."""
        with self._changed:
            for name, holding in list(self._held.items()):
                if conversation in (None, name) and run in (None, holding.run):
                    if holding.place is None:
                        self._give_back(name)
                    else:
                        holding.run = ""
            self._changed.notify_all()

    def close(self) -> None:
        """Give everything back and beat no more."""
        with self._changed:
            for name in list(self._held):
                self._give_back(name)
            self._changed.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join()

    def _try(self, conversation: str, place: Place) -> tuple[Holding | None, str]:
        with self._changed:
            holding = self._held.get(conversation)
            if holding is None:
                return self._claimed(conversation, place)
            if holding.place is not None:
                if place.checkpoint and holding.place.checkpoint == place.checkpoint:
                    raise at_once(conversation, holding.place.node, place.node)
                return None, f"the node {holding.place.node or '(none)'} of another run of this process"
            if holding.run != place.run:
                return None, "another run of this process"
            holding.place = place
            return holding, ""

    def _claimed(self, conversation: str, place: Place) -> tuple[Holding | None, str]:
        lease = self._store.claim(conversation, self._holder, self._seconds)
        if lease is None:
            held = self._store.leased(conversation)
            return None, f"held by {held.holder} until {held.expires:%H:%M:%S} UTC" if held else "held by somebody"
        try:
            chat = self._build(self._store.open(conversation, lease=lease))
        except BaseException:
            self._store.release(lease)
            raise
        holding = self._held[lease.conversation] = Holding(chat, lease, place.run)
        holding.place = place
        if self._thread is None:
            self._thread = threading.Thread(target=self._beat, name="antiphon-graph-leases", daemon=True)
            self._thread.start()
        return holding, ""

    def _beat(self) -> None:
        """Renew what is held, and give back what nobody uses; ends when nothing is held."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: not self._held, min(self._seconds / 3, max(self._idle, _LOOK_AGAIN)))
                for name, holding in list(self._held.items()):
                    if not holding.run and holding.place is None and monotonic() - holding.used >= self._idle:
                        self._give_back(name)
                if not self._held:
                    self._thread = None
                    return
                held = list(self._held.items())
            for name, holding in held:
                self._renew(name, holding)

    def _renew(self, name: str, holding: Holding) -> None:
        try:
            holding.lease = self._store.renew(holding.lease, self._seconds)
        except LeaseLost as error:
            with self._changed:
                if self._held.get(name) is holding:  # else it was given back by ourselves just now
                    logger.warning("[%s] %s", name, error)
                    del self._held[name]
        except StoreError as error:  # it may be back before the lease has run out, and tells if it is not
            logger.warning("[%s] the lease could not be renewed: %s", name, error)

    def _give_back(self, name: str) -> None:
        holding = self._held.pop(name)
        try:
            self._store.release(holding.lease)
        except StoreError as error:  # it runs out by itself
            logger.warning("[%s] the lease could not be given back: %s", name, error)


def at_once(conversation: str, one: str, other: str) -> GraphError:
    return GraphError(
        f"two nodes of one step, {one} and {other}, work on conversation {conversation}; a conversation has one writer. Let "
        "one follow the other, or give each a fork of its own: AskNode(…, fork=True)"
    )
