"""`Conversations`: the conversations of a store, for the nodes of a graph.

The graph owns control flow and termination, the conversation owns the messages; only an id and a version pass between them.
Conversations are opened by id under a lease (see `leases`). Each step first finds out whether the log is ahead of the graph's
state (see `step`). Give one `Conversations` to all nodes of a graph, and bind the compiled graph to it, so that leases are
released when a run ends:

    chats = Conversations("chats.db", "anthropic/claude-…", tools=[weather])
    graph = chats.bind(builder.compile(checkpointer=saver))
    graph.invoke(chats.ask("Is it raining in Oslo?"), {"configurable": {"thread_id": "1"}})
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeVar, Unpack
from uuid import UUID

from antiphon.closing import SyncClosable, run_sync
from antiphon.context import Compaction, LiveContextOptions, TokenCounter
from antiphon.conversation import Conversation, RunLimits, Turn
from antiphon.conversation.conversation import LiveScreenSource
from antiphon.conversation.events import CompactionCallback, CompactionCallbacks
from antiphon.conversation.message import make_entry
from antiphon.conversation.model_settings import SettingsLike
from antiphon.conversation.run import LimitOptions
from antiphon.conversation.turn_runner import Participants, TurnRunner
from antiphon.errors import GraphError, LeaseHeld, UnknownConversation
from antiphon.graph.leases import HeldConversation, LeaseCache
from antiphon.graph.nodes import ConversationState
from antiphon.graph.step import (
    GraphStep,
    StreamForwarder,
    TaskInfo,
    current_task,
    last_mark,
    load_checkpoints,
    owned_by_other_thread,
    replay_status,
)
from antiphon.history import AgentHistory, HistoryStore, ModelInputEntry
from antiphon.history.lease import default_holder
from antiphon.history.location import open_store
from antiphon.ids import new_id
from antiphon.parts import InputPart
from antiphon.prices import PriceTable
from antiphon.providers.call import ProviderCallOptions, ProviderClient
from antiphon.tools.executor import ToolExecutor
from antiphon.tools.hooks import Hook
from antiphon.tools.registry import ToolLike, ToolRegistry
from antiphon.tools.tool import ApprovalPolicy

if TYPE_CHECKING:
    from langchain_core.callbacks import BaseCallbackHandler
    from langgraph.pregel import Pregel

    from antiphon.tools.embedded import EmbeddedSetting

    G = TypeVar("G", bound=Pregel[Any, Any, Any, Any])

Next = Literal["llm", "tools", "human", "end"]


class ConversationOptions(TypedDict, total=False):
    """Arguments of `Conversation` that the nodes of a graph pass on."""

    settings: SettingsLike | None
    token_limit: int | Literal["auto"] | None
    compaction: Compaction | Literal["auto"] | None
    counter: TokenCounter | None
    live_screen: LiveScreenSource
    context_options: LiveContextOptions | None
    call_options: ProviderCallOptions | None
    embedded_calls: EmbeddedSetting
    executor: ToolExecutor | None
    state: Any
    approval: ApprovalPolicy | None
    hooks: Sequence[Hook]
    prices: PriceTable | None


class GraphOptions(ConversationOptions, LimitOptions, total=False):
    """The same, and the limits of a run."""


class Conversations(SyncClosable):
    """The conversations of a store, for the nodes of graphs.

    `store` is a file, the URL of a server or a `HistoryStore`. `model`, `tools`, `provider` and `options` are passed to every
    `Conversation`; `system` is the system instruction of new ones. `limits`, or single ones (`max_rounds=…`, `max_hand_offs=…`),
    hold for all that a graph does before a person writes again. A lease lasts `seconds` and is renewed while this process
    lives. `wait` is how many seconds to wait for another holder's lease. Without `bind`, a conversation is released after
    `idle` seconds without use.
    """

    def __init__(
        self,
        store: str | Path | HistoryStore,
        model: str | ProviderClient | None = None,
        *,
        tools: Iterable[ToolLike] | ToolRegistry = (),
        system: str | None = None,
        provider: ProviderClient | None = None,
        limits: RunLimits | None = None,
        seconds: float = 10.0,
        wait: float = 0.0,
        idle: float = 5.0,
        holder: str = "",
        **options: Unpack[GraphOptions],
    ) -> None:
        for name, value, least in (("seconds", seconds, 0.05), ("wait", wait, 0), ("idle", idle, 0)):
            if value < least:
                raise GraphError(f"{name}={value:g}: must be at least {least:g}")
        given: dict[str, Any] = dict(options)
        if unknown := given.keys() - GraphOptions.__annotations__.keys():
            known = ", ".join(GraphOptions.__annotations__)
            raise GraphError(f"unknown options {', '.join(sorted(unknown))}; a conversation has {known}")
        self.store: HistoryStore = store if isinstance(store, HistoryStore) else open_store(store)
        self._owns_store = self.store is not store
        self.registry = tools if isinstance(tools, ToolRegistry) else ToolRegistry(tools)
        self._model = model
        self._system = system
        self._provider = provider
        self._own_provider: ProviderClient | None = None
        self._compaction_callbacks = CompactionCallbacks()
        self._limits = RunLimits.of(
            limits, {name: given.pop(name) for name in LimitOptions.__annotations__ if name in given}
        )
        self._options = given
        self._runs = RunTracker(lambda run: self._leases.release(run=run), self._log_version)
        self._leases = LeaseCache(
            self.store,
            self._conversation,
            holder=holder or f"graph {default_holder()}",
            seconds=seconds,
            wait=wait,
            idle=idle,
        )

    # For callers of a graph.

    def ask(
        self,
        *content: InputPart | str,
        state: Mapping[str, Any] | None = None,
        conversation: str = "",
        title: str = "",
        at: int | None = None,
    ) -> ConversationState:
        """Add a message to a conversation and return the input to invoke the graph with.

        It is the conversation of `state`, or the one with this id, or a new one. Open calls in it are closed. To continue from
        an earlier version, pass it as `at`: later entries are rolled back.
        """
        entry = make_entry("user", content)
        if not isinstance(entry, ModelInputEntry):
            raise GraphError("expected text or parts as the question")
        name = conversation or str((state or {}).get("conversation") or "")
        return run_sync(self._add_question(entry, name, title, at))

    def on_compaction(self, callback: CompactionCallback) -> Callable[[], None]:
        """Call `callback` when a conversation outgrows its `token_limit`; call the returned function to unsubscribe.

        `antiphon.conversation.compaction.compact_when_needed` is one that shortens and summarises what is old.
        """
        return self._compaction_callbacks.add(callback)

    def bind(self, graph: G) -> G:
        """The graph, with a callback that notes where a run starts, and releases its conversations when it ends."""
        return graph.with_config(callbacks=[self._runs.handler])

    def conversation(self, state: Mapping[str, Any]) -> Conversation:
        """The conversation of a state, to read it. Use a node or `ask` to write."""
        name = state.get("conversation")
        if not name:
            raise GraphError("the state has no conversation yet; start with Conversations.ask or an AskNode")
        return self._leases.peek(name) or self._conversation(self.store.open(name))

    # For conditional edges.

    def has_calls(self, state: Mapping[str, Any]) -> bool:
        """Whether there are calls to run; route to a ToolNode."""
        return self.next_node(state) == "tools"

    def needs_person(self, state: Mapping[str, Any]) -> bool:
        """Whether all open calls need approval; route to a HumanNode."""
        return self.next_node(state) == "human"

    def is_over(self, state: Mapping[str, Any]) -> bool:
        """Whether the turn is over: the model answered without calls, or reached a limit."""
        return self.next_node(state) == "end"

    def next_node(self, state: Mapping[str, Any]) -> Next:
        """What the turn needs next: `tools`, `human`, `llm` or `end`, for `add_conditional_edges`."""
        chat = self.conversation(state)
        turn = Turn.of(chat.history.snapshot())
        if turn.has_failed and not turn.ended:
            return "llm"  # calls of an answer that was cut off are not run
        if turn.open_calls:
            plan = TurnRunner(Participants(chat), self._limits, None).plan()
            return "human" if plan.pending and not plan.to_run else "tools"
        return "llm" if turn.needs_model else "end"

    # For nodes.

    @asynccontextmanager
    async def step(
        self, state: Mapping[str, Any], config: Mapping[str, Any], *, fork: bool = False, is_async: bool = True
    ) -> AsyncGenerator[GraphStep, None]:
        """The step of a node, with its conversation open and held until the step ends."""
        callbacks = config.get("callbacks")
        task = current_task(config, self._runs.root_run_id(callbacks))
        held = await self._acquire(state, task, fork)
        try:
            chat = held.chat
            version = _seen_version(
                chat.history, task, state.get("version") if chat.id == state.get("conversation") else None
            )
            status = await replay_status(
                chat.history,
                task,
                version,
                self._runs.start_version(task.run, chat.id),
                lambda: load_checkpoints(config, task, chat.id, is_async),
            )
            yield GraphStep(
                chat,
                {**state, "conversation": chat.id, "version": version},
                task,
                status,
                StreamForwarder(task.write, callbacks),
                limits=self._limits,
            )
        finally:
            self._leases.release_step(held)

    def release(self, conversation: str | None = None) -> None:
        """Release one conversation, or all, unless a step is using it."""
        self._leases.release(conversation)

    async def aclose(self) -> None:
        """Release all conversations, and close the tools, connections and store that this object opened."""
        self._leases.close()
        try:
            await self.registry.aclose()
            if self._own_provider is not None:
                await self._own_provider.aclose()
        finally:
            if self._owns_store:
                self.store.close()

    async def _add_question(self, entry: ModelInputEntry, name: str, title: str, at: int | None) -> ConversationState:
        task = TaskInfo(task=new_id())
        name = self.store.info(name).id if name else self._create(task, title)
        was_held = self._leases.peek(name) is not None
        held = await self._leases.acquire(name, task)
        try:
            if at is not None and at != held.chat.history.version:
                held.chat.history.rollback(at, "asked from here")
            TurnRunner(Participants(held.chat), self._limits, lambda _: None).start(entry)
            return {"conversation": name, "version": held.chat.history.version}
        finally:
            self._leases.release_step(held)
            if not was_held:
                self._leases.release(name)

    async def _acquire(self, state: Mapping[str, Any], task: TaskInfo, fork: bool) -> HeldConversation:
        """The conversation of a step: the state's, a new one if it has none, or a fork."""
        name, version = state.get("conversation"), state.get("version")
        if not name:
            return await self._leases.acquire(self._create(task), task)
        if not fork:
            try:
                held = await self._leases.acquire(name, task)
            except LeaseHeld:
                if not owned_by_other_thread(self.store.open(name), task, version):
                    raise
            else:
                if not owned_by_other_thread(held.chat.history, task, version):
                    return held
                self._leases.release_step(held)
                self._leases.release(name)
        return await self._leases.acquire(self._fork(task, name, version), task)

    def _create(self, task: TaskInfo, title: str = "") -> str:
        """A new conversation, or the one this step created when it ran before."""
        name = self._find_created(task)
        history = self.store.open(name) if name else self.store.create(title, tags=_tags(task))
        if self._system and not history.version:
            history.set_system_instruction(self._system)
        return history.id

    def _fork(self, task: TaskInfo, name: str, version: int | None) -> str:
        """A fork, or the one this step created when it ran before."""
        if created := self._find_created(task):
            return created
        fork = self.store.fork(name, version)
        tags = [tag for tag in self.store.info(fork.id).tags if not tag.startswith(_TAG)]
        self.store.describe(fork.id, tags=[*tags, *_tags(task)])
        return fork.id

    def _find_created(self, task: TaskInfo) -> str:
        found = [info for tag in _tags(task) for info in self.store.list(limit=1, tag=tag)]
        return found[0].id if found else ""

    def _conversation(self, history: AgentHistory) -> Conversation:
        chat = Conversation(self._model, tools=self.registry, history=history, provider=self._router(), **self._options)
        chat.on_compaction(self._compaction_callbacks.call)
        return chat

    def _log_version(self, conversation: str) -> int | None:
        """The version of a stored conversation; None if there is none of that name."""
        try:
            return self.store.info(conversation).version
        except UnknownConversation:
            return None

    def _router(self) -> ProviderClient:
        """The provider client that all conversations share."""
        if self._provider is not None:
            return self._provider
        if self._own_provider is None:
            from antiphon.providers.router import ProviderRouter

            self._own_provider = ProviderRouter.from_environment()
        return self._own_provider


_TAG = "graph:"


def _tags(task: TaskInfo) -> list[str]:
    """The tag that finds a conversation which a step created before it crashed."""
    return [f"{_TAG}{task.task}"] if task.checkpoint else []


def _seen_version(history: AgentHistory, task: TaskInfo, version: int | None) -> int:
    """The version the graph has seen; for a conversation new to it, the version at which the step started."""
    if version is not None:
        return version
    mark = last_mark(history)
    return mark.state if mark is not None and mark.task == task.task else history.version


class RunTracker:
    """Finds for each node the graph run it belongs to, and calls `on_end` when such a run is over.

    Nodes are children of the invoked run at any depth. LangGraph reports runs to the callback `handler`. `version_of` gives the
    version of a conversation: it is noted when a run first has a state that names it, before any of its nodes work.
    """

    def __init__(self, on_end: Callable[[str], None], version_of: Callable[[str], int | None]) -> None:
        self._on_end = on_end
        self._version_of = version_of
        self._start_versions: dict[tuple[str, str], int | None] = {}
        self._roots: dict[UUID, UUID] = {}
        self._handler: Any = None

    def root_run_id(self, callbacks: Any) -> str:
        """The run that a node with these `callbacks` belongs to; empty if its end is not reported."""
        root = self._roots.get(getattr(callbacks, "parent_run_id", None))  # type: ignore[arg-type]
        return str(root) if root is not None else ""

    def start_version(self, run: str, conversation: str) -> int | None:
        """The version of a conversation when a run started; None if that is not known."""
        return self._start_versions.get((run, conversation))

    def run_started(self, run_id: UUID, parent: UUID | None, state: object) -> None:
        root = self._roots[run_id] = self._roots.get(parent, run_id) if parent is not None else run_id
        conversation = state.get("conversation") if isinstance(state, Mapping) else None
        if isinstance(conversation, str) and (key := (str(root), conversation)) not in self._start_versions:
            self._start_versions[key] = self._version_of(conversation)

    def run_ended(self, run_id: UUID) -> None:
        if self._roots.pop(run_id, None) == run_id:
            for key in [key for key in self._start_versions if key[0] == str(run_id)]:
                del self._start_versions[key]
            self._on_end(str(run_id))

    @property
    def handler(self) -> BaseCallbackHandler:
        """The callback handler for the graph."""
        if self._handler is None:
            self._handler = _run_handler(self)
        return self._handler  # type: ignore[no-any-return]


def _run_handler(tracker: RunTracker) -> BaseCallbackHandler:
    from langchain_core.callbacks import BaseCallbackHandler

    class RunEndHandler(BaseCallbackHandler):
        run_inline = True  # on the event loop too, so that the lease is released before `ainvoke` returns

        ignore_chat_model = True

        def on_chain_start(
            self,
            serialized: Any,  # noqa: ARG002 - the signature is LangChain's
            inputs: Any,
            *,
            run_id: UUID,
            parent_run_id: UUID | None = None,
            **_: Any,
        ) -> None:
            tracker.run_started(run_id, parent_run_id, inputs)

        def on_chain_end(self, *_: Any, run_id: UUID, **__: Any) -> None:
            tracker.run_ended(run_id)

        def on_chain_error(self, *_: Any, run_id: UUID, **__: Any) -> None:
            tracker.run_ended(run_id)

    return RunEndHandler()
