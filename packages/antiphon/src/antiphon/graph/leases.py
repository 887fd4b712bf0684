"""`LeaseCache`: the conversations this process holds under a lease while graphs work on them.

A conversation is claimed when a run first uses it, renewed in the background, and released when the run ends (if the graph is
bound, see `Conversations.bind`) or after `idle` seconds without use. In between it stays open, so that a step reads only new
entries. The lease keeps other processes out; the cache itself allows one run at a time, and in it one step at a time. A second
one waits up to `wait` seconds and then gets `LeaseHeld`. The store rejects appends of a holder whose lease was lost.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from time import monotonic

from antiphon.conversation import Conversation
from antiphon.errors import LeaseHeld, LeaseLost
from antiphon.graph.step import TaskInfo, concurrent_nodes_error
from antiphon.history import AgentHistory, HistoryStore, Lease
from antiphon.history.lease import LeaseKeeper

logger = logging.getLogger("antiphon.graph")

_POLL_SECONDS = 0.05


class HeldConversation:
    """A conversation, open under its lease. `task` is the step using it now, `run` the graph run that holds it."""

    def __init__(self, chat: Conversation, lease: Lease, run: str) -> None:
        self.chat = chat
        self.lease = lease
        self.run = run
        self.task: TaskInfo | None = None
        self.last_used = monotonic()


class LeaseCache:
    """The held conversations by id. `build` makes a conversation from a history."""

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
        self._held: dict[str, HeldConversation] = {}
        self._lock = threading.Lock()
        self._keeper = self._new_keeper()

    async def acquire(self, conversation: str, task: TaskInfo) -> HeldConversation:
        """Hold a conversation for a step. Call `release_step` afterwards."""
        deadline = monotonic() + self._wait
        while True:
            held, holder = self._try_acquire(conversation, task)
            if held is not None:
                return held
            if monotonic() >= deadline:
                waited = f" after waiting {self._wait:g} s" if self._wait else ""
                raise LeaseHeld(
                    f"conversation {conversation} is in use{waited}: {holder}. Nothing was written; invoke the graph again "
                    "later, or set Conversations(wait=…) to the seconds to wait"
                )
            await asyncio.sleep(_POLL_SECONDS)

    def release_step(self, held: HeldConversation) -> None:
        """End a step. The conversation stays held for the next steps."""
        with self._lock:
            held.task = None
            held.last_used = monotonic()

    def peek(self, conversation: str) -> Conversation | None:
        """A held conversation, to read it."""
        held = self._held.get(conversation)
        return held.chat if held is not None else None

    def release(self, conversation: str | None = None, *, run: str | None = None) -> None:
        """Release one conversation, or those of a run, or all. One that a step is using is released after the step."""
        with self._lock:
            for name, held in list(self._held.items()):
                if conversation in (None, name) and run in (None, held.run):
                    if held.task is None:
                        self._release_lease(name)
                    else:
                        held.run = ""

    def close(self) -> None:
        """Release everything and stop renewing."""
        with self._lock:
            for name in list(self._held):
                self._release_lease(name)
            keeper, self._keeper = self._keeper, self._new_keeper()
        keeper.close()  # outside of the lock, which its thread may be waiting for

    def _try_acquire(self, conversation: str, task: TaskInfo) -> tuple[HeldConversation | None, str]:
        with self._lock:
            held = self._held.get(conversation)
            if held is None:
                return self._claim(conversation, task)
            if held.task is not None:
                if task.checkpoint and held.task.checkpoint == task.checkpoint:
                    raise concurrent_nodes_error(conversation, held.task.node, task.node)
                return None, f"node {held.task.node or '(none)'} of another run of this process"
            if held.run != task.run:
                return None, "another run of this process"
            held.task = task
            return held, ""

    def _claim(self, conversation: str, task: TaskInfo) -> tuple[HeldConversation | None, str]:
        lease = self._store.claim(conversation, self._holder, self._seconds)
        if lease is None:
            other = self._store.current_lease(conversation)
            return None, f"leased by {other.holder} until {other.expires:%H:%M:%S} UTC" if other else "just released"
        try:
            chat = self._build(self._store.open(conversation, lease=lease))
        except BaseException:
            self._store.release(lease)
            raise
        held = self._held[lease.conversation] = HeldConversation(chat, lease, task.run)
        held.task = task
        self._keeper.add(lease, on_lost=lambda error: self._on_lost(held, error))
        return held, ""

    def _new_keeper(self) -> LeaseKeeper:
        tick = max(self._idle, _POLL_SECONDS)
        return LeaseKeeper(self._store, self._seconds, on_tick=self._release_idle, tick=tick)

    def _release_idle(self) -> None:
        with self._lock:
            for name, held in list(self._held.items()):
                if not held.run and held.task is None and monotonic() - held.last_used >= self._idle:
                    self._release_lease(name)

    def _on_lost(self, held: HeldConversation, error: LeaseLost) -> None:
        name = held.lease.conversation
        with self._lock:
            if self._held.get(name) is held:  # else we released it a moment ago
                logger.warning("[%s] %s", name, error)
                del self._held[name]

    def _release_lease(self, name: str) -> None:
        self._keeper.release(self._held.pop(name).lease)
