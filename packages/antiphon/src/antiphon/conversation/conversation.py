"""`Conversation`: one thread with models and tools: history, one model call at a time, tool calls and tokens. No loop.

A `ToolLoop`, a graph or your own code decides when to call again and when to stop. Everything follows from the log; what is kept
in memory (used ids, the current turn, rendered context) is updated from the entries appended since.

A model call appends one `ModelOutputEntry`, finished or not; running its calls appends one `ToolCallResultsEntry`. Before each
model call the tokens are checked: as the API last reported them, else counted locally, else characters divided by 2.5.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Generic, Literal, TypeAlias

from msgspec import structs

from antiphon.closing import SyncClosable, run_sync
from antiphon.context import LiveContext, LiveContextOptions, LiveContextRenderer, TokenCounter, TokenLedger
from antiphon.context.live import RenderedContextEntry
from antiphon.conversation.compaction.recall import offer_recall
from antiphon.conversation.compaction.token_check import CompactionSetting, TokenCheck
from antiphon.conversation.message import MessageList
from antiphon.conversation.model_call import EmbeddedCallPolicy, ModelCall, ReportNotes
from antiphon.conversation.model_settings import SettingsLike, check_model, read_settings
from antiphon.conversation.run import RunTotals, SideAnswer
from antiphon.conversation.run_meter import ModelCallPrice, current_meter
from antiphon.conversation.turn import AGENT_CHANNEL, Turn, find_call_state
from antiphon.errors import ApprovalPending, CallRefused, ConversationError
from antiphon.history import (
    AgentHistory,
    AgentHistorySnapshot,
    ContextEntry,
    ContextEntryRole,
    HistoryStore,
    ModelInputEntry,
    ModelOutputEntry,
    Origin,
    RollbackEntry,
)
from antiphon.history.location import open_history
from antiphon.ids import new_id
from antiphon.parts import Text, ToolCallRequest, ToolCallResult
from antiphon.prices import PriceTable
from antiphon.providers.call import CallReport, ProviderCallOptions, ProviderClient
from antiphon.tools.call_runner import ToolCallRunner, note_edit
from antiphon.tools.context import State
from antiphon.tools.executor import ToolExecutor
from antiphon.tools.hooks import Hook
from antiphon.tools.registry import ToolLike, ToolRegistry, ToolSource
from antiphon.tools.tool import ApprovalPolicy, tool_policy
from antiphon.wire.delta import ModelOutputDelta
from antiphon.wire.request import ModelRequest, ToolDefinition

if TYPE_CHECKING:
    from antiphon.conversation.turn_runner import ActiveTurn
    from antiphon.providers.router import ProviderRouter
    from antiphon.tools.embedded import EmbeddedSetting

LiveScreenSource: TypeAlias = str | Callable[[], str | None] | None

_SETTINGS = ModelRequest()


class Conversation(SyncClosable, MessageList, TokenCheck, Generic[State]):
    """One thread with a model.

    `model` is a name (`anthropic/claude-…`, a route or role of the `provider`) or a `ProviderClient`; by default the first
    provider whose API key is set, else the offline provider. `store` is a file, an address
    (`postgresql://…`) or a `HistoryStore`, and `resume` the conversation in it to continue (an id, or `last`); without a store
    the history lives in memory. `settings` are the defaults of every request (`ModelSettings(temperature=0)`); `token_limit` is
    where compaction is requested (`"auto"`: 80 % of the model's context window), and `compaction` (`"auto"`, or a `Compaction`)
    does it, so that no request is larger (`"native"`: the provider does it, where it can); `live_screen` is shown last and not
    kept. `approval` decides which calls wait for a person: by default those whose tool requires it. `embedded_calls` is about
    calls that models write into their text (`antiphon.tools.embedded`). `call_options` switches the live context, debug data and
    the layout of messages (`strategy`); change them on `chat.call_options`. `state` is what tools get as
    `ToolContext.state`; `Conversation[MyState]` tells a type checker its type. `prices` are for `max_cost` and `totals.spend`, if
    the list prices are not yours. An `executor` brings its own tools, state, approval and hooks.
    """

    def __init__(
        self,
        model: str | ProviderClient | None = None,
        *,
        tools: Iterable[ToolLike] | ToolRegistry = (),
        store: str | Path | HistoryStore | None = None,
        resume: str | None = None,
        history: AgentHistory | None = None,
        system: str | None = None,
        title: str = "",
        provider: ProviderClient | None = None,
        settings: SettingsLike | None = None,
        token_limit: int | Literal["auto"] | None = None,
        compaction: CompactionSetting = None,
        counter: TokenCounter | None = None,
        live_screen: LiveScreenSource = None,
        context_options: LiveContextOptions | None = None,
        call_options: ProviderCallOptions | None = None,
        embedded_calls: EmbeddedSetting = "auto",
        executor: ToolExecutor | None = None,
        state: State | None = None,
        approval: ApprovalPolicy | None = None,
        hooks: Sequence[Hook] = (),
        prices: PriceTable | None = None,
    ) -> None:
        if executor is not None and (approval is not None or hooks or state is not None):
            raise ConversationError("give approval=, hooks= and state= to the ToolExecutor, not to the conversation")
        TokenCheck.__init__(self, TokenLedger(counter), token_limit, compaction)
        self._extra_sources = ToolRegistry()
        self._own_client: ProviderRouter | None = None
        self._provider = provider
        self.model = check_model(model)
        self.registry = _registry_for(tools, executor)
        self.executor = executor or ToolExecutor(
            self.registry, state=state, approval=approval or tool_policy, hooks=hooks
        )
        self.prepare_tools(self.registry)
        self.settings: ModelRequest = _SETTINGS if settings is None else read_settings(settings)
        self.live_screen = live_screen
        self.embedded_calls = embedded_calls
        self.report = CallReport()
        """The report of the last model call: origin, attempts, losses and repairs."""
        self.active_turn: ActiveTurn | None = None
        """The running turn, if any. A conversation has one at a time."""
        self.closes_after_runs = False
        """Whether an agent made this conversation for itself: connections and tools are closed after each of its runs."""
        self._context_options = context_options or LiveContextOptions()
        self.call_options = structs.replace(call_options or ProviderCallOptions())  # its own: it may be changed
        MessageList.__init__(self, LiveContextRenderer(self._ledger))
        self.prices = prices
        self.used_call_ids: set[str] = set()
        """The ids of all calls so far, rolled back or not: a new call gets another one."""
        self.notes = ReportNotes()
        self._seen_version = 0
        self._turn = Turn()
        self._totals = RunTotals(prices=prices)
        self._origin: Origin | None = None
        if not isinstance(system, str | None):
            raise ConversationError(f"system={system!r}: expected text")
        # Last, so that other arguments that are wrong create no conversation.
        self.history, self._own_store = open_history(history, store, resume, title)
        self.key = self.history.id or new_id()
        """A prefix of idempotency keys that is unique to this conversation: its id, or a random one in memory."""
        if system is not None and system != self.history.system_instruction:
            self.history.set_system_instruction(system)

    # The thread: what is in it.

    @property
    def id(self) -> str:
        """The id of the stored conversation; empty for one in memory."""
        return self.history.id

    @property
    def state(self) -> State:
        """What tools get as `ToolContext.state`."""
        return self.executor.state  # type: ignore[no-any-return]  # the executor takes any

    def prepare_tools(self, registry: ToolRegistry) -> None:
        """Note the tools, of the conversation or of an agent in it, whose results are kept; and add the one that reads again what
        compactions leave out, if the conversation has it and there are other tools."""
        self._kept_tools.update([tool.name for tool in registry if tool.keep_result])
        if self.compaction is not None and self.compaction.recall and (len(registry) or registry.sources):
            offer_recall(registry)

    def context(self, notice: str = "", model: str | ProviderClient | None = None) -> LiveContext:
        """What the model (by default the conversation's) would see now; `notice` follows the live screen."""
        options = self._context_options
        screen = self.live_screen() if callable(self.live_screen) else self.live_screen
        if screen is None:
            screen = options.live_screen
        elif not isinstance(screen, str):
            raise ConversationError(
                f"live_screen is {screen!r}: expected text, or a function that returns text or None"
            )
        if notice:
            screen = f"{screen}\n\n{notice}" if screen else notice
        if screen != options.live_screen:
            options = structs.replace(options, live_screen=screen)
        snapshot = self.history.current
        if snapshot.in_force.has_native:
            options = structs.replace(options, readers=self.readers(model))
        return self._renderer.render(snapshot, options)

    @property
    def turn(self) -> Turn:
        """The state of the current turn."""
        if self.history.current.version != self._seen_version:
            self._catch_up(self.history.current)
        return self._turn

    @property
    def pending(self) -> tuple[ToolCallRequest, ...]:
        """The calls that wait for a person."""
        return self.turn.pending

    @property
    def totals(self) -> RunTotals:
        """What the current run has used: everything since the last message of a person."""
        if self.history.current.version != self._seen_version:
            self._catch_up(self.history.current)
        totals, snapshot = self._totals, self.history.current
        if totals.version != snapshot.version:
            totals.count(snapshot.since(totals.version), snapshot.version)
        return totals

    def _catch_up(self, snapshot: AgentHistorySnapshot) -> None:
        """Take in the entries appended since the last time."""
        turn, is_rolled_back = self._turn, False
        turn.imported = snapshot.in_force.imported
        for entry in snapshot.since(self._seen_version):
            before, turn = turn, turn.apply(entry)
            if turn is not before and entry.channel != AGENT_CHANNEL:  # type: ignore[attr-defined]  # an input
                self._totals = RunTotals(entry.sequence_number, self.prices)
            kind = type(entry)
            if kind is ModelOutputEntry:
                # Rolled-back outputs too: the log keeps them and a later rollback may restore them.
                self.used_call_ids.update(turn.open_calls)
                self._origin = entry.origin or self._origin  # type: ignore[attr-defined]  # an output
            elif kind is RollbackEntry:
                is_rolled_back = True
        if is_rolled_back:  # it may have returned to an earlier turn, and to an earlier run
            turn = Turn.of(snapshot)
            self._totals = RunTotals.of(snapshot, self.prices)
        self._turn = turn
        self._seen_version = snapshot.version

    # The model: which, and asking it once.

    @property
    def model(self) -> str:
        """The model that is called next. Set it between any two turns; the history stays the same."""
        return self._model if isinstance(self._model, str) else self._model.name

    @model.setter
    def model(self, model: str | ProviderClient) -> None:
        self._model = check_model(model)
        if self._provider is None and isinstance(self._model, str) and "/" in self._model:
            self._own_router().resolve(self._model)  # raises, here rather than in the first call

    @property
    def client(self) -> ProviderClient:
        """The client of the current model."""
        return self.resolve_model()[0]

    @property
    def last_origin(self) -> Origin | None:
        """The provider and model of the last answer, if known."""
        self.turn  # noqa: B018 - takes in what is new
        return self._origin

    async def call_model(
        self,
        model: str | ProviderClient | None = None,
        *,
        tools: Sequence[ToolDefinition] | None = None,
        settings: SettingsLike | None = None,
        notice: str = "",
    ) -> ModelOutputEntry:
        """Call the model once and append its answer. Raises `ModelCallFailed` if it is not finished; the log keeps it.

        `model`, `tools` and `settings` replace the conversation's for this call; `notice` is shown after the live screen.
        """
        await self._prepare(tools, model)
        await ModelCall(self, model, tools, self._call_settings(settings), notice).run()
        output = self.turn.output
        assert output is not None, "a call that finished was appended"
        return output

    async def stream_model(
        self,
        model: str | ProviderClient | None = None,
        *,
        tools: Sequence[ToolDefinition] | None = None,
        settings: SettingsLike | None = None,
        notice: str = "",
    ) -> AsyncGenerator[ModelOutputDelta, None]:
        """The same as a stream. A reader that stops interrupts the model; the partial answer is appended and marked."""
        await self._prepare(tools, model)
        call = ModelCall(self, model, tools, self._call_settings(settings), notice)
        async with aclosing(call.stream()) as deltas:
            async for delta in deltas:
                yield delta

    async def call_aside(
        self,
        ask: str,
        *,
        purpose: str,
        system: str = "",
        context: Sequence[ContextEntry] | None = None,
        model: str | ProviderClient | None = None,
        tools: Sequence[ToolDefinition] | None = None,
        settings: SettingsLike | None = None,
    ) -> SideAnswer:
        """Ask a model something beside the conversation: neither `ask` nor the answer becomes part of it.

        It is a call like every other: hooks see it, with its `purpose` (`summary`, `title`), it counts for the limits of the run,
        and the log has a note with what it used. The model sees `ask` alone, after the instruction `system` if there is one; with
        `context=chat.context()` everything the conversation's model would see, and its tools (so that a cached prompt is read
        again), and `ask` at the end. Raises `ModelCallFailed`; and `CallRefused`, if a hook or a limit refuses the call.
        """
        if not purpose:
            raise ConversationError("purpose= is empty: say what the side call is for, as in purpose='summary'")
        sent: list[ContextEntry] = [*(context or ())]
        if system:
            sent.insert(0, RenderedContextEntry(ContextEntryRole.SYSTEM, (Text(system),)))
        sent.append(ModelInputEntry.of(ask))
        if tools is None and context is None:
            tools = ()
        meter, allowance = current_meter.get(), None
        if meter is not None:
            prompt = sum(map(self._ledger.tokens_of, sent)) if meter.counts_tokens else 0
            price = self.price_call(model, prompt) if meter.limits_cost else None
            allowance = meter.allow_aside(purpose, self.turn, price, prompt)
        call = ModelCall(
            self,
            model,
            tools,
            read_settings(settings, _SETTINGS if context is None else self.settings),
            context=sent,
            purpose=purpose,
            allowance=allowance,
            seconds=None if meter is None else meter.seconds_left,
        )
        await call.run()
        if call.ended:  # out of time or money
            raise CallRefused(f"no {purpose}: {call.ended} ended the call")
        return call.answer

    def price_call(self, model: str | ProviderClient | None, prompt_tokens: int) -> ModelCallPrice:
        """The price of a call with a prompt of that size. Raises `ConversationError` if it is not known."""
        client, name = self.resolve_model(model)
        output = self.turn.output
        usage = output.metadata.usage if output is not None and output.metadata is not None else None
        cached = usage.cached_tokens if usage is not None else 0
        return ModelCallPrice.of(client.origins_of(name), self.prices, prompt_tokens, cached)

    def _call_settings(self, settings: SettingsLike | None) -> ModelRequest | None:
        return None if settings is None else read_settings(settings, self.settings)

    async def _prepare(self, tools: Sequence[ToolDefinition] | None, model: str | ProviderClient | None) -> None:
        await self.registry.open()
        if self.measures_tokens:
            await self.check_tokens("", tools, model)

    @property
    def embedded_calls(self) -> EmbeddedSetting:
        """Whether calls that models write into their text are read."""
        return self.embedded.setting

    @embedded_calls.setter
    def embedded_calls(self, setting: EmbeddedSetting) -> None:
        self.embedded = EmbeddedCallPolicy(setting)

    def call_model_sync(
        self,
        model: str | ProviderClient | None = None,
        *,
        tools: Sequence[ToolDefinition] | None = None,
        settings: SettingsLike | None = None,
        notice: str = "",
    ) -> ModelOutputEntry:
        """`call_model` from code that does not await."""
        return run_sync(self.call_model(model, tools=tools, settings=settings, notice=notice))

    # The tools.

    async def execute_tool_call(self, call: ToolCallRequest) -> ToolCallResult:
        """Run one call and append its result. A failing tool gives a failed result."""
        return (await self.execute_tool_calls([call]))[0]

    async def execute_tool_calls(self, calls: Sequence[ToolCallRequest] | None = None) -> list[ToolCallResult]:
        """Run calls (those of the last output by default), in parallel, and append their results as one entry.

        Calls that finished or may have run before a crash are not run again, nor those of an answer that was cut off. If calls
        need a person, the others run, no results are appended yet, and `ApprovalPending` is raised: `decide` and call this again.
        """
        await self.registry.open()
        turn = self.turn
        if calls is None:
            states = list(turn.open_calls.values())
        else:
            states = [
                turn.open_calls.get(call.tool_call_id) or find_call_state(call, self.history.snapshot())
                for call in calls
            ]
        to_answer = [state for state in states if not state.is_answered]
        if not to_answer:
            return [state.result for state in states if state.result is not None]
        is_cut = turn.ended or turn.has_failed
        refusals = dict.fromkeys(turn.open_calls, "the answer that asked for it was cut off") if is_cut else {}
        plan = await self.call_runner(self.executor, turn.rounds).run(to_answer, refusals)
        if plan.pending:
            waiting = ", ".join(f"{call.tool_call_id} ({call.tool_name})" for call in plan.pending_calls)
            raise ApprovalPending(
                f"calls need a person's approval and were not run: {waiting}; decide each (antiphon.conversation.decide) and run "
                "the calls again",
                tuple(call.tool_call_id for call in plan.pending_calls),
            )
        return [
            state.result if state.is_answered else note_edit(state, state.result)
            for state in states
            if state.result is not None
        ]

    def call_runner(self, executor: ToolExecutor, round: int, source: str = "") -> ToolCallRunner:  # noqa: A002 - as in the design
        """A `ToolCallRunner` for calls of this conversation with the tools of `executor`."""
        provider = self._provider if self._provider is not None else self._own_client
        return ToolCallRunner(self.history, executor, self.key, round, source, self._model or None, provider)

    def execute_tool_calls_sync(self, calls: Sequence[ToolCallRequest] | None = None) -> list[ToolCallResult]:
        """`execute_tool_calls` from code that does not await."""
        return run_sync(self.execute_tool_calls(calls))

    def close_with(self, source: ToolSource) -> None:
        """Close `source` together with this conversation (tools of an agent, for example)."""
        if source not in self._extra_sources.sources:
            self._extra_sources.add(source)

    async def aclose(self) -> None:
        """Close the connections, tools and store that belong to this conversation; without a store, it can still go on."""
        try:
            try:
                await self.registry.aclose()
            finally:
                await self._extra_sources.aclose()
            if self._own_client is not None:
                client, self._own_client = self._own_client, None
                await client.aclose()
        finally:
            if self._own_store is not None:
                self._own_store.close()

    def __repr__(self) -> str:
        return f"<Conversation {self.id or 'in memory'} with {self.model or 'the default model'}>"

    def resolve_model(self, model: str | ProviderClient | None = None) -> tuple[ProviderClient, str]:
        """The client to call, and the model name to pass to it; by default those of the conversation."""
        model_or_client = self._model if model is None else check_model(model)
        if not isinstance(model_or_client, str):
            return model_or_client, model_or_client.name
        if self._provider is not None:
            return self._provider, model_or_client
        client = self._own_router()
        if not model_or_client:
            from antiphon.providers.default_model import default_model

            model_or_client = self._model = default_model(os.environ).model
        return client, model_or_client

    def _own_router(self) -> ProviderRouter:
        if self._own_client is None:
            from antiphon.providers.router import ProviderRouter

            self._own_client = ProviderRouter.from_environment()
        return self._own_client


def _registry_for(tools: Iterable[ToolLike] | ToolRegistry, executor: ToolExecutor | None) -> ToolRegistry:
    """The tools of a conversation: those given, or those of its executor, which runs no others."""
    registry = tools if isinstance(tools, ToolRegistry) else ToolRegistry(tools)
    given: object = executor
    if not isinstance(given, ToolExecutor | None):
        raise ConversationError(f"executor={given!r}: expected a ToolExecutor, or a class derived from it")
    if executor is None or registry is executor.registry:
        return registry
    if len(registry) or registry.sources:
        raise ConversationError("tools= are not those of executor=; make the executor with a ToolRegistry of all tools")
    return executor.registry
