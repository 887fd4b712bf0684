"""`Conversation`: one thread with models and tools: history, one model call at a time, tool calls and tokens. No loop.

When to call again and when to stop is decided by a `ToolLoop`, a graph, or your own code. Everything follows from the log; what
is kept in memory (used ids, the current turn, rendered context) is updated from the entries appended since.

A model call appends one `ModelOutputEntry`, finished or not; running its calls appends one `ToolCallResultsEntry`. Before each
model call the tokens are checked: as the API last reported them, else counted locally, else characters divided by 2.5.
"""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Generic, Literal, TypeAlias

from msgspec import structs

from antiphon.context import LiveContext, LiveContextOptions, LiveContextRenderer, TokenCounter, TokenLedger
from antiphon.conversation.events import CompactionCallback, CompactionCallbacks, CompactionNeeded
from antiphon.conversation.message import ThreadView
from antiphon.conversation.model_settings import SettingsLike, read_settings
from antiphon.conversation.recorded_call import FAILED, CallRecorder, EmbeddedCallPolicy, RecordedCall, check_model
from antiphon.conversation.run import RunTotals, run_start
from antiphon.conversation.sync import SyncClosable, run_sync
from antiphon.conversation.turn import Turn, find_call_state, is_from_person
from antiphon.errors import ApprovalPending, ConversationError
from antiphon.history import AgentHistory, HistoryStore, ModelOutputEntry, Origin, RollbackEntry, ToolCallStartedEntry
from antiphon.history.location import open_history
from antiphon.ids import new_id
from antiphon.parts import TokenUsage, ToolCallRequest, ToolCallResult
from antiphon.providers.call import CallReport, ModelCallFailed, ProviderCallOptions
from antiphon.providers.client import ProviderClient
from antiphon.tools.call_runner import CallRunner, note_edit, request_approval
from antiphon.tools.context import State
from antiphon.tools.executor import ToolExecutor
from antiphon.tools.hooks import Hook
from antiphon.tools.registry import ToolLike, ToolRegistry, ToolSource
from antiphon.tools.tool import ApprovalPolicy, tool_policy
from antiphon.wire.capabilities import capabilities_for
from antiphon.wire.delta import ModelOutputDelta
from antiphon.wire.request import ModelRequest, ToolDefinition

if TYPE_CHECKING:
    from antiphon.conversation.turn_runner import ActiveTurn
    from antiphon.tools.embedded import EmbeddedSetting

logger = logging.getLogger(__name__)
LiveScreenSource: TypeAlias = str | Callable[[], str | None] | None

_SETTINGS = ModelRequest()


class Conversation(SyncClosable, ThreadView, Generic[State]):
    """One thread with a model.

    `model` is a name (`anthropic/claude-…`, a route or role of the `provider`) or a `ProviderClient`; by default the first
    provider whose API key is set, else the offline provider. `store` is a file, an address
    (`postgresql://…`) or a `HistoryStore`, and `resume` the conversation in it to continue (an id, or `last`); without a store
    the history lives in memory. `settings` are the defaults of every request (`ModelSettings(temperature=0)`); `token_limit` is
    where compaction is requested (`"auto"`: 80 % of the model's context window); `live_screen` is shown last and not
    kept. `approval` decides which calls wait for a person: by default those whose tool requires it. `embedded_calls` is about
    calls that models write into their text (`antiphon.tools.embedded`). `call_options` switches the live context, debug data and
    the layout of messages (`strategy`); change them on `chat.call_options`. `state` is what tools get as
    `ToolContext.state`; `Conversation[MyState]` tells a type checker its type. An `executor` brings its own tools, state,
    approval and hooks.
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
        counter: TokenCounter | None = None,
        live_screen: LiveScreenSource = None,
        context_options: LiveContextOptions | None = None,
        call_options: ProviderCallOptions | None = None,
        embedded_calls: EmbeddedSetting = "auto",
        executor: ToolExecutor | None = None,
        state: State | None = None,
        approval: ApprovalPolicy | None = None,
        hooks: Sequence[Hook] = (),
    ) -> None:
        if executor is not None and (approval is not None or hooks or state is not None):
            raise ConversationError("give approval=, hooks= and state= to the ToolExecutor, not to the conversation")
        self._extra_sources = ToolRegistry()
        self._own_client: ProviderClient | None = None
        self._provider = provider
        self._model = check_model(model)
        self.registry = _registry_for(tools, executor)
        self.executor = executor or ToolExecutor(
            self.registry, state=state, approval=approval or tool_policy, hooks=hooks
        )
        self.settings: ModelRequest = _SETTINGS if settings is None else read_settings(settings)
        self.token_limit = token_limit
        self.live_screen = live_screen
        self.embedded_calls = embedded_calls
        self.report = CallReport()
        """The report of the last model call: origin, attempts, losses and repairs."""
        self.active_turn: ActiveTurn | None = None
        """The running turn, if any. A conversation has one at a time."""
        self._context_options = context_options or LiveContextOptions()
        self.call_options = structs.replace(call_options or ProviderCallOptions())  # its own: it may be changed
        self._ledger = TokenLedger(counter)
        ThreadView.__init__(self, LiveContextRenderer(self._ledger))
        self._compaction_callbacks = CompactionCallbacks()
        self._seen_version = 0
        self._ids: set[str] = set()
        self._turn = Turn()
        self._totals = RunTotals()
        self._origin: Origin | None = None
        self._record = CallRecorder()
        if not isinstance(system, str | None):
            raise ConversationError(f"system={system!r}: expected text")
        # Last, so that other arguments that are wrong create no conversation.
        self.history, self._own_store = open_history(history, store, resume, title)
        self._key = self.history.id or new_id()
        self._name = self.history.id or "memory"
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

    @property
    def key(self) -> str:
        """A prefix of idempotency keys that is unique to this conversation: its id, or a random one in memory."""
        return self._key

    def context(self, notice: str = "") -> LiveContext:
        """What the model would see now; `notice` follows the live screen."""
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
        return self._renderer.render(self.history.snapshot(), options)

    @property
    def turn(self) -> Turn:
        """The state of the current turn."""
        return self.refresh_turn()

    @property
    def totals(self) -> RunTotals:
        """What the current run has used: everything since the last message of a person."""
        self.refresh_turn()
        return self._totals

    # The model: which, and asking it once.

    @property
    def model(self) -> str:
        """The model that is called next. Set it between any two turns; the history stays the same."""
        return self._model if isinstance(self._model, str) else self._model.name

    @model.setter
    def model(self, model: str | ProviderClient) -> None:
        self._model = check_model(model)

    @property
    def model_or_client(self) -> str | ProviderClient:
        """The model as it was given: a name or a client."""
        return self._model

    @property
    def client(self) -> ProviderClient:
        """The client of the current model."""
        return self.resolve_model(self._model)[0]

    @property
    def last_origin(self) -> Origin | None:
        """The provider and model of the last answer, if known."""
        self.refresh_turn()
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
        await self._prepare()
        request = self._call_settings(settings)
        try:
            await self.start_model_call(model, tools, request, notice).run(None)
        except ModelCallFailed as failure:
            if not self.can_retry_in_text(failure, model):
                raise
            await self.start_model_call(model, tools, request, notice).run(None)
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
        await self._prepare()
        model_call = self.start_model_call(model, tools, self._call_settings(settings), notice)
        await model_call.run_before_hooks()
        with model_call as stream:
            async with aclosing(stream) as deltas:
                async for delta in deltas:
                    for read in model_call.feed(delta):
                        yield read
            for read in model_call.finish():
                yield read
            await model_call.run_after_hooks()

    def _call_settings(self, settings: SettingsLike | None) -> ModelRequest | None:
        return None if settings is None else read_settings(settings, self.settings)

    async def _prepare(self) -> None:
        await self.registry.open()
        await self.check_tokens()

    def start_model_call(
        self,
        model: str | ProviderClient | None = None,
        tools: Sequence[ToolDefinition] | None = None,
        settings: ModelRequest | None = None,
        notice: str = "",
        source: str = "",
        ended: str = "",
        executor: ToolExecutor | None = None,
    ) -> RecordedCall:
        """A call of `model`, this once in place of the conversation's own, with these tools and settings.

        `notice` is shown to it after the live screen; `executor` runs the calls of the answer, if not the conversation's own. The
        tools are open, and the tokens were checked.
        """
        client, name = self.resolve_model(self._model if model is None else check_model(model))
        options = structs.replace(
            self.call_options,
            report=CallReport(),
            model=name,
            tools=self.registry.definitions if tools is None else tuple(tools),
            settings=settings or self.settings,
            request_id=f"{self._name}:{self.history.snapshot().version + 1}",
        )
        context = self.context(notice) if options.live_context else self.context(notice).without_screen()
        self.report = options.report
        if context.screen is not None and (injected := context.injected()):
            self.history.append(injected)
        reader = None
        if self._embedded.concerns(options):
            context, options, reader = self._embedded.prepare(context, options, self.history.version)
        model_call = RecordedCall(client, context, options, self._record_call, reader, source, ended, executor)
        model_call.conversation_id = self._key
        if self.executor.hooks:
            model_call.hooks, model_call.usage = self.executor.hooks, self.usage
        return model_call

    @property
    def embedded_calls(self) -> EmbeddedSetting:
        """Whether calls that models write into their text are read."""
        return self._embedded.setting

    @embedded_calls.setter
    def embedded_calls(self, setting: EmbeddedSetting) -> None:
        self._embedded = EmbeddedCallPolicy(setting)

    def can_retry_in_text(self, failure: ModelCallFailed, model: str | ProviderClient | None = None) -> bool:
        """Whether a call that failed can be made again with its tools in text: the provider answered that there are none."""
        name = self.resolve_model(self._model if model is None else check_model(model))[1]
        return self._embedded.can_retry(failure.error, name)

    def _record_call(self, model_call: RecordedCall) -> None:
        self.refresh_turn()
        if model_call.stop_reason == FAILED:
            logger.error("[%s] the model call failed: %s", model_call.options.request_id, model_call.failure)
        entry = self._record.entry(model_call, self._ids)
        if type(entry) is ModelOutputEntry:
            # Before the output, so that its calls are never in the log without the request (law L11).
            executor = model_call.executor or self.executor
            calls = [part for part in entry.content if type(part) is ToolCallRequest]
            for_approval = executor.calls_for_approval(calls) if calls else ()
            if for_approval:
                request_approval(self.history, for_approval, model_call.source)
        self.history.append(entry)
        for note in self._record.debug_notes(model_call.options.report):
            self.history.append(note)

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

    def call_runner(self, executor: ToolExecutor, round: int, source: str = "") -> CallRunner:  # noqa: A002 - as in the design
        """A `CallRunner` for calls of this conversation with the tools of `executor`."""
        provider = self._provider if self._provider is not None else self._own_client
        return CallRunner(self.history, executor, self._key, round, source, self._model or None, provider)

    def execute_tool_calls_sync(self, calls: Sequence[ToolCallRequest] | None = None) -> list[ToolCallResult]:
        """`execute_tool_calls` from code that does not await."""
        return run_sync(self.execute_tool_calls(calls))

    # Tokens.

    @property
    def usage(self) -> TokenUsage:
        """The total usage of all model calls, as far as providers reported it."""
        return self._ledger.usage(self.history.snapshot())

    @property
    def tokens(self) -> int:
        """The size of the conversation in tokens."""
        return self._ledger.context_tokens(
            self.history.snapshot(), lambda: self._ledger.fixed_tokens(self.context(), self.registry.definitions)
        )

    @property
    def token_limit(self) -> int | None:
        """The size at which compaction is requested. `"auto"` is 80 % of the model's context window, if it is known."""
        if self._token_limit != "auto":
            return self._token_limit
        return capabilities_for(self.model, "").compaction_limit  # a limit of the model, in every format

    @token_limit.setter
    def token_limit(self, limit: int | Literal["auto"] | None) -> None:
        if limit is not None and limit != "auto":
            if not isinstance(limit, int):
                raise ConversationError(f"token_limit={limit!r}: must be a whole number, or 'auto'")
            if limit <= 0:
                raise ConversationError(f"token_limit={limit}: must be above 0; leave it out for no limit")
        self._token_limit = limit

    def on_compaction(self, callback: CompactionCallback) -> Callable[[], None]:
        """Call `callback` when the conversation outgrows `token_limit`; call the returned function to unsubscribe."""
        return self._compaction_callbacks.add(callback)

    async def check_tokens(self) -> CompactionNeeded | None:
        """Compare the tokens with the limit and call the subscribers if they exceed it."""
        limit = self.token_limit
        if limit is None or (tokens := self.tokens) <= limit:
            return None
        event = CompactionNeeded(tokens, limit)
        await self._compaction_callbacks.call(self, event)
        return event

    def close_with(self, source: ToolSource) -> None:
        """Close `source` together with this conversation (tools of an agent, for example)."""
        if source not in self._extra_sources.sources:
            self._extra_sources.add(source)

    async def aclose(self) -> None:
        """Close the connections, tools and store that belong to this conversation."""
        try:
            try:
                await self.registry.aclose()
            finally:
                await self._extra_sources.aclose()
            if self._own_client is not None:
                await self._own_client.aclose()
        finally:
            if self._own_store is not None:
                self._own_store.close()

    def __repr__(self) -> str:
        return f"<Conversation {self.id or 'in memory'} with {self.model or 'the default model'}>"

    def refresh_turn(self) -> Turn:
        """Apply the entries appended since the last call and return the current turn."""
        snapshot = self.history.snapshot()
        if snapshot.version == self._seen_version:
            return self._turn
        turn, is_rolled_back = self._turn, False
        turn.imported = snapshot.imported
        for entry in snapshot.since(self._seen_version):
            before, turn = turn, turn.apply(entry)
            if turn is not before and is_from_person(entry):
                self._totals = RunTotals(entry.sequence_number)
            elif type(entry) is not ToolCallStartedEntry:  # most entries of many calls, and nothing was used by then
                self._totals.apply(entry)
            if isinstance(entry, ModelOutputEntry):
                # Rolled-back outputs too: the log keeps them and a later rollback may restore them.
                self._ids.update(turn.open_calls)
                self._origin = entry.origin or self._origin
            elif isinstance(entry, RollbackEntry):
                is_rolled_back = True
        if is_rolled_back:
            turn = Turn.of(snapshot)
            if run_start(snapshot) != self._totals.start:  # an earlier run continues
                self._totals = RunTotals.of(snapshot)
        self._turn = turn
        self._seen_version = snapshot.version
        return self._turn

    def resolve_model(self, model_or_client: str | ProviderClient) -> tuple[ProviderClient, str]:
        """The client to call, and the model name to pass to it."""
        if not isinstance(model_or_client, str):
            return model_or_client, model_or_client.name
        if self._provider is not None:
            return self._provider, model_or_client
        if self._own_client is None:
            from antiphon.providers.router import ProviderRouter

            self._own_client = ProviderRouter.from_environment()
        if not model_or_client:
            from antiphon.providers.default_model import default_model

            model_or_client = self._model = default_model(os.environ).model
        return self._own_client, model_or_client


def _registry_for(tools: Iterable[ToolLike] | ToolRegistry, executor: ToolExecutor | None) -> ToolRegistry:
    """The tools of a conversation: those given, or those of its executor, which runs no others."""
    registry = tools if isinstance(tools, ToolRegistry) else ToolRegistry(tools)
    if executor is None or registry is executor.registry:
        return registry
    if len(registry) or registry.sources:
        raise ConversationError("tools= are not those of executor=; make the executor with a ToolRegistry of all tools")
    return executor.registry
