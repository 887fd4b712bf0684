"""`Conversations`: where the nodes of a graph find the conversation that its state names.

The graph owns control flow and termination, the conversation owns the messages (seed 004). What goes between them is an id and
a version. Conversations are opened from a store by id, under a lease (see `holdings`); how the graph's state stands to the log
is found at the beginning of each step (see `standing`).

Give one to all nodes of a graph, and bind the compiled graph to it, so that it knows when a run is over:

    chats = Conversations("chats.db", "anthropic/claude-…", tools=[weather])
    graph = chats.bind(builder.compile(checkpointer=saver))
    graph.invoke(chats.ask("Is it raining in Oslo?"), {"configurable": {"thread_id": "1"}})
"""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

from antiphon.conversation import Bounds, Conversation, Turn
from antiphon.conversation.blocking import run_blocking
from antiphon.conversation.message import message
from antiphon.conversation.stage import Stage
from antiphon.conversation.turn_runner import TurnRunner
from antiphon.errors import GraphError, LeaseHeld
from antiphon.graph.holdings import Holding, Holdings
from antiphon.graph.lineage import lineage_of
from antiphon.graph.mark import last_mark
from antiphon.graph.place import Place, place_in
from antiphon.graph.run_end import RunEnds
from antiphon.graph.standing import belongs_elsewhere, standing_of
from antiphon.graph.state import ConversationState
from antiphon.graph.step import GraphStep
from antiphon.graph.telling import Telling
from antiphon.history import AgentHistory, HistoryStore, ModelInputEntry
from antiphon.history.ids import new_id
from antiphon.history.location import open_store
from antiphon.parts import InputPart
from antiphon.providers.client import ProviderClient
from antiphon.tools.registry import ToolRegistry

if TYPE_CHECKING:
    from langgraph.pregel import Pregel

    G = TypeVar("G", bound=Pregel[Any, Any, Any, Any])

Next = Literal["llm", "tools", "human", "end"]


class Conversations:
    """The conversations of a store, for the nodes of graphs.

    `store` is a file, the address of a server or a `HistoryStore`. `model`, `tools`, `provider` and `options` are what every
    `Conversation` is made with, `system` the instruction that a new one begins with. `bounds` hold for each turn, and
    `max_hand_overs` for how often a graph leads from model to model before a person speaks again. A lease lasts `seconds` and is
    renewed as long as this process lives; `wait` is for how long to wait for somebody else's; a conversation of a graph that
    was not bound is given back when it was not used for `idle` seconds.
    """

    def __init__(
        self,
        store: str | Path | HistoryStore,
        model: str | ProviderClient | None = None,
        *,
        tools: Iterable[Any] | ToolRegistry = (),
        system: str | None = None,
        provider: ProviderClient | None = None,
        bounds: Bounds | None = None,
        max_hand_overs: int = 10,
        seconds: float = 10.0,
        wait: float = 0.0,
        idle: float = 5.0,
        holder: str = "",
        **options: Any,
    ) -> None:
        for name, value, least in (("seconds", seconds, 0.05), ("wait", wait, 0), ("idle", idle, 0)):
            if value < least:
                raise GraphError(f"{name} must be at least {least:g}, and it is {value:g}")
        if max_hand_overs < 0:
            raise GraphError(f"max_hand_overs must not be negative, and it is {max_hand_overs}")
        self.store: HistoryStore = store if isinstance(store, HistoryStore) else open_store(store)
        self._owns_store = self.store is not store
        self.registry = tools if isinstance(tools, ToolRegistry) else ToolRegistry(tools)
        self._model = model
        self._system = system
        self._provider = provider
        self._own_provider: ProviderClient | None = None
        self._options = options
        self._bounds = bounds or Bounds()
        self._max_hand_overs = max_hand_overs
        self._ends = RunEnds(lambda run: self._holdings.release(run=run))
        self._holdings = Holdings(
            self.store,
            self._conversation,
            holder=holder or f"graph {socket.gethostname()}:{os.getpid()}",
            seconds=seconds,
            wait=wait,
            idle=idle,
        )

    # For whoever invokes a graph.

    def ask(
        self,
        *content: InputPart | str,
        state: Mapping[str, Any] | None = None,
        conversation: str = "",
        title: str = "",
        at: int | None = None,
    ) -> ConversationState:
        """Put a question into a conversation, and get the input to invoke the graph with.

        It is the conversation of `state`, or of that id, or a new one. Calls that still wait in it are closed: the talk goes on
        without them. To ask from an earlier point, say `at` which version: what came after it is rolled back.
        """
        entry = message("user", content)
        if not isinstance(entry, ModelInputEntry):
            raise GraphError("a question is made of text and parts")
        named = conversation or str((state or {}).get("conversation") or "")
        return run_blocking(self._asked(entry, named, title, at))

    def bind(self, graph: G) -> G:
        """The graph, with word of the end of its runs: what a run held is given back then, and not before."""
        return graph.with_config(callbacks=[self._ends.handler])

    def conversation(self, state: Mapping[str, Any]) -> Conversation:
        """The conversation of a state, to read in it. Write by way of a node, or of `ask`."""
        name = state.get("conversation")
        if not name:
            raise GraphError("the graph's state names no conversation yet; begin with Conversations.ask or an AskNode")
        return self._holdings.look(name) or self._conversation(self.store.open(name))

    # For conditional edges.

    def has_calls(self, state: Mapping[str, Any]) -> bool:
        """Whether there are calls to run: lead to a ToolNode."""
        return self.next_node(state) == "tools"

    def needs_person(self, state: Mapping[str, Any]) -> bool:
        """Whether calls wait for a decision, and for nothing else: lead to a HumanNode."""
        return self.next_node(state) == "human"

    def is_over(self, state: Mapping[str, Any]) -> bool:
        """Whether the turn is over: the model has answered and calls nothing, or came to a bound."""
        return self.next_node(state) == "end"

    def next_node(self, state: Mapping[str, Any]) -> Next:
        """What the turn needs next: `tools`, `human`, `llm` or `end`. For `add_conditional_edges` with a mapping of these."""
        chat = self.conversation(state)
        turn = Turn.of(chat.history.snapshot())
        if turn.has_failed and not turn.ended:
            return "llm"  # which asks again; the calls of an answer that was cut off are not run
        if turn.open_calls:
            plan = TurnRunner(Stage(chat), self._bounds, None).plan()
            return "human" if plan.pending and not plan.to_run else "tools"
        return "llm" if turn.needs_model else "end"

    # For nodes.

    @asynccontextmanager
    async def step(
        self, state: Mapping[str, Any], config: Mapping[str, Any], *, fork: bool = False, is_async: bool = True
    ) -> AsyncGenerator[GraphStep, None]:
        """The step of a node: its conversation, open and held until the step is over."""
        callbacks = config.get("callbacks")
        place = place_in(config, self._ends.root_of(callbacks))
        holding = await self._taken(state, place, fork)
        try:
            chat = holding.chat
            known = _known_version(
                chat.history, place, state.get("version") if chat.id == state.get("conversation") else None
            )
            standing = await standing_of(
                chat.history, place, known, lambda: lineage_of(config, place, chat.id, is_async)
            )
            yield GraphStep(
                chat,
                {**state, "conversation": chat.id, "version": known},
                place,
                standing,
                Telling(place.write, callbacks),
                bounds=self._bounds,
                max_hand_overs=self._max_hand_overs,
            )
        finally:
            self._holdings.leave(holding)

    def release(self, conversation: str | None = None) -> None:
        """Give back a conversation, or all, that no step is at work on."""
        self._holdings.release(conversation)

    async def aclose(self) -> None:
        """Give back what is held, and let go of tools, connections and the store as far as they are ours."""
        self._holdings.close()
        try:
            await self.registry.aclose()
            if self._own_provider is not None:
                await self._own_provider.aclose()
        finally:
            if self._owns_store:
                self.store.close()

    def close(self) -> None:
        """`aclose` from code that does not await."""
        run_blocking(self.aclose())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _asked(self, entry: ModelInputEntry, named: str, title: str, at: int | None) -> ConversationState:
        place = Place(task=new_id())
        name = self.store.info(named).id if named else self._made(place, title)
        was_held = self._holdings.look(name) is not None
        holding = await self._holdings.take(name, place)
        try:
            if at is not None and at != holding.chat.history.version:
                holding.chat.history.rollback(at, "asked from here")
            TurnRunner(Stage(holding.chat), self._bounds, lambda _: None).start(entry)
            return {"conversation": name, "version": holding.chat.history.version}
        finally:
            self._holdings.leave(holding)
            if not was_held:
                self._holdings.release(name)

    async def _taken(self, state: Mapping[str, Any], place: Place, fork: bool) -> Holding:
        """The conversation that a step works on: the state's, a new one where it names none, or a fork."""
        name, version = state.get("conversation"), state.get("version")
        if not name:
            return await self._holdings.take(self._made(place), place)
        if not fork:
            try:
                holding = await self._holdings.take(name, place)
            except LeaseHeld:
                if not belongs_elsewhere(self.store.open(name), place, version):
                    raise
            else:
                if not belongs_elsewhere(holding.chat.history, place, version):
                    return holding
                self._holdings.leave(holding)
                self._holdings.release(name)
        return await self._holdings.take(self._forked(place, name, version), place)

    def _made(self, place: Place, title: str = "") -> str:
        """A new conversation; the same one, if the step is run again."""
        name = self._made_before(place)
        history = self.store.open(name) if name else self.store.create(title, tags=_tags(place))
        if self._system and not history.version:
            history.set_system_instruction(self._system)
        return history.id

    def _forked(self, place: Place, name: str, version: int | None) -> str:
        """A fork; the same one, if the step is run again."""
        if made := self._made_before(place):
            return made
        fork = self.store.fork(name, version)
        tags = [tag for tag in self.store.info(fork.id).tags if not tag.startswith(_TAG)]
        self.store.describe(fork.id, tags=[*tags, *_tags(place)])
        return fork.id

    def _made_before(self, place: Place) -> str:
        found = [info for tag in _tags(place) for info in self.store.list(limit=1, tag=tag)]
        return found[0].id if found else ""

    def _conversation(self, history: AgentHistory) -> Conversation:
        return Conversation(
            self._model, tools=self.registry, history=history, provider=self._asked_by_name(), **self._options
        )

    def _asked_by_name(self) -> ProviderClient:
        """Whoever knows models by their names, one for all conversations."""
        if self._provider is not None:
            return self._provider
        if self._own_provider is None:
            from antiphon.providers.router import ProviderRouter

            self._own_provider = ProviderRouter.from_environment()
        return self._own_provider


_TAG = "graph:"


def _tags(place: Place) -> list[str]:
    """By this a conversation is found again that a step of a graph made before it crashed."""
    return [f"{_TAG}{place.task}"] if place.checkpoint else []


def _known_version(history: AgentHistory, place: Place, version: int | None) -> int:
    """The version that the graph knows; of a conversation it did not know yet, the one at which the step began."""
    if version is not None:
        return version
    mark = last_mark(history)
    return mark.state if mark is not None and mark.task == place.task else history.version
