"""`TurnRunner`: runs one turn to its end, from whatever state the log has.

It is one loop: if calls are open, run them (`ToolCallRunner`); if the model must be called, call it; else the turn is over. Each
step is in the log before the next one, so after a crash another runner continues from there.

An interruption is a cancellation: the partial answer is kept and marked, running tools are cancelled or awaited, and every call
gets a result. `Participants` provides model, tools and executor of each round.

Fast path: without a listener no events are made, and the runner yields to the event loop at most every 10 ms.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any

from msgspec import Struct, structs

from antiphon.conversation.conversation import Conversation
from antiphon.conversation.events import (
    AgentSwitched,
    ApprovalNeeded,
    CompactionNeeded,
    EndReason,
    LoopEvent,
    LoopFinished,
    RoundStarted,
    RoundUsage,
    TurnEvents,
)
from antiphon.conversation.inbox import admit
from antiphon.conversation.model_call import ModelCall
from antiphon.conversation.run import RunLimits
from antiphon.conversation.run_meter import ModelCallAllowance, RunMeter, current_meter
from antiphon.conversation.turn import AGENT_PREFIX, FAILED, INTERRUPTED, REFUSAL, Turn
from antiphon.errors import CallRefused, ContextLimitReached
from antiphon.history import (
    ApprovalRequestedEntry,
    DebugLogEntry,
    EntryMetadata,
    HistoryEntry,
    HumanDecisionEntry,
    ModelInputEntry,
    ModelOutputEntry,
    ToolCallFinishedEntry,
    ToolCallResultsEntry,
    ToolCallStartedEntry,
)
from antiphon.tools.call_runner import OnInterrupt, ToolCallPlan, ToolCallRunner, close_calls
from antiphon.tools.executor import ToolExecutor
from antiphon.wire.request import ModelRequest, ToolChoice, ToolDefinition

if TYPE_CHECKING:
    from antiphon.conversation.output.typed_output import OutputRequest
    from antiphon.providers.call import ProviderClient
    from antiphon.telemetry.spans import TurnSpan

logger = logging.getLogger(__name__)

_MAX_BLOCKING_SECONDS = 0.01
_NOTHING: Mapping[str, str] = {}
_OUTPUT_KINDS = (
    ModelOutputEntry,
    ToolCallStartedEntry,
    ToolCallFinishedEntry,
    ToolCallResultsEntry,
    HumanDecisionEntry,
    ApprovalRequestedEntry,
)
"""The entries that go with an output when it is discarded; everything else (settings, notes, inputs) stays."""


class Speaker(Struct, frozen=True):
    """Who answers in a round: the source of its entries (`agent:<name>`, or empty), its model (None: the conversation's own), the
    tools it is offered, and what runs its calls."""

    source: str
    model: str | ProviderClient | None
    tools: tuple[ToolDefinition, ...]
    executor: ToolExecutor


class Participants:
    """The speaker of each round of a turn: the conversation's own model and tools.

    Agents and graph nodes override it.
    """

    def __init__(self, chat: Conversation) -> None:
        self.chat = chat

    @property
    def source(self) -> str:
        """The source of the entries of a round."""
        return ""

    @property
    def speaker(self) -> Speaker:
        """Who answers in the next round."""
        return Speaker("", None, self.chat.registry.definitions, self.chat.executor)

    @property
    def models(self) -> Sequence[str | ProviderClient | None]:
        """The models of all rounds."""
        return (None,)

    @property
    def executor(self) -> ToolExecutor:
        """Runs the calls of the last output."""
        return self.chat.executor

    @property
    def has_tools(self) -> bool:
        """Whether a round may have tools."""
        return bool(self.chat.registry.sources or len(self.chat.registry))

    @property
    def needs_no_setup(self) -> bool:
        """Whether `enter` and `open` have nothing to do."""
        return not self.chat.registry.sources

    async def enter(self) -> tuple[str, str] | None:
        """Prepare the next round; the names of the previous and the new agent, if that changed."""
        await self.open()
        return None

    async def open(self) -> None:
        """Open the tools for the calls of the last output."""
        await self.chat.registry.open()


class TurnRunner:
    """Runs a turn; `emit` gets the events, if there is a listener.

    `settings` replace the conversation's; `output` is the typed answer that is wanted; `meter` compares what the run uses with
    its limits, if not just with `limits`.
    """

    def __init__(
        self,
        participants: Participants,
        limits: RunLimits,
        emit: Callable[[LoopEvent], None] | None,
        on_interrupt: OnInterrupt = "cancel",
        *,
        steps: int | None = None,
        settings: ModelRequest | None = None,
        output: OutputRequest[Any] | None = None,
        meter: RunMeter | None = None,
    ) -> None:
        self._participants = participants
        self._settings = settings
        self._output = output
        self.span: TurnSpan | None = None
        """The span of the turn, if it is traced."""
        self._chat = participants.chat
        self.meter = meter or RunMeter(limits, lambda: self._chat.totals)
        self._events = None if emit is None else TurnEvents(emit, self._chat, output)
        self._emit = emit or _discard_event
        self._on_interrupt = on_interrupt
        self._last_yield = monotonic()
        self._steps_left: float = math.inf if steps is None else steps

    def start(self, question: ModelInputEntry) -> None:
        """Append the input. Calls that still wait for something are closed first."""
        if self.meter.limits_cost:
            self._check_prices()
        if self._chat.turn.open_calls:
            self.close_calls("the conversation went on without it")
        self._chat.history.append(question)

    async def run(self) -> EndReason:
        """Continue until the turn is over or the steps are used, and return which it is."""
        chat, inbox = self._chat, self._chat.history.inbox
        if self.meter.limits_cost:
            self._check_prices()
        turn = chat.turn
        if not turn.open_calls and not turn.needs_model and inbox.items():
            admit(chat.history, turn, "user")  # the run is over: a message that waits begins the next one
        elif turn.output is not None and turn.output.stop_reason == FAILED and not turn.ended:
            self._discard_failed_output(turn)
        self.meter.start()
        token = current_meter.set(self.meter)  # for agents that work as tools
        try:
            while True:
                turn = chat.turn
                if not turn.open_calls and not turn.ended and inbox.items() and admit(chat.history, turn):
                    continue
                if turn.ended and turn.open_calls:  # it was killed before it could close them
                    self.close_calls(f"the turn was over ({turn.ended})", turn.ended)
                    continue
                if not turn.open_calls and not turn.needs_model:
                    return turn.ended or "answered"  # type: ignore[return-value]
                if self._steps_left < 1:
                    return "stepped"
                self._steps_left -= 1
                if not turn.open_calls:
                    try:
                        await self._call_model(turn)
                    except CallRefused as refusal:
                        is_too_large = isinstance(refusal, ContextLimitReached)
                        self.record_end("context_limit" if is_too_large else "refused", str(refusal))
                elif waits_for := await self._run_calls(turn):
                    return waits_for
                elif self._output is not None and self._output.is_accepted(turn.output):
                    self.record_end("answered")
                elif self._events is not None or monotonic() - self._last_yield > _MAX_BLOCKING_SECONDS:
                    await asyncio.sleep(0)  # lets the reader of the events, an interruption and everything else run
                    self._last_yield = monotonic()
        finally:
            current_meter.reset(token)

    def plan(self) -> ToolCallPlan:
        """What to do with the calls of the last output; changes nothing."""
        turn = self._chat.turn
        if turn.ended or turn.has_failed:
            return ToolCallPlan([], [], [])
        return self._call_runner(turn).plan(turn.open_calls.values(), self._over_limit(turn))

    def close_calls(self, reason: str, ended: str = "") -> None:
        """Give every call without a result one that states the reason."""
        open_calls = self._chat.turn.open_calls
        if open_calls:
            close_calls(self._chat.history, list(open_calls.values()), reason, self._participants.source, ended)

    def finish_interrupted(self) -> None:
        """Close what an interruption left open. The partial answer was kept when its stream was closed."""
        self.close_calls("it was interrupted", INTERRUPTED)
        if self._chat.turn.needs_model:
            self.record_end(INTERRUPTED)

    def may_hand_off(self) -> bool:
        """Whether a turn may start that no person asked for. If not, the turn is over."""
        if not self.meter.has_hand_off_left:
            self.record_end("max_hand_offs")
            return False
        if reached := self.meter.exceeded_by_run(self._chat.turn):  # there is an answer: no other is paid for
            self.record_end(reached[0])
            return False
        return True

    def _check_prices(self) -> None:
        """Refuse a run whose money cannot be counted. Raises `ConversationError`."""
        for model in self._participants.models:
            self._chat.price_call(model, 1)

    def record_end(self, reason: str, details: str = "") -> None:
        """Record that the turn is over, and why, unless another entry does."""
        extra = {"ended": reason, **({REFUSAL: details} if details else {})}
        metadata = EntryMetadata(source=self._participants.source, extra=extra)
        self._chat.history.append(
            DebugLogEntry("turn", f"The turn ended: {reason}. {details}".rstrip(), metadata=metadata)
        )

    def _discard_failed_output(self, turn: Turn) -> None:
        """Request an answer that the provider cut off again; the log keeps it, the model does not see it.

        Only the answer is taken back. Instructions, notes and inputs that were appended after it still count.
        """
        assert turn.output is not None, "a turn that failed has an output"
        number = turn.output.sequence_number
        self._chat.history.rollback(
            number - 1,
            "the answer was cut off; it is requested again",
            kept=[
                entry.sequence_number
                for entry in _effective_after(self._chat, number)
                if not isinstance(entry, _OUTPUT_KINDS)
            ],
        )

    async def _call_model(self, turn: Turn) -> None:
        """One call of the model: without tools, if the run has come to a limit."""
        chat, participants = self._chat, self._participants
        if not participants.needs_no_setup and (switched := await participants.enter()):
            self._emit(AgentSwitched(*switched))
        speaker = participants.speaker
        source, model, tools, executor = speaker.source, speaker.model, speaker.tools, speaker.executor
        if self._output is not None:
            tools, executor = self._output.tools(tools), self._output.executor(executor)
        if self.span is not None:
            self.span.enter_agent(source.removeprefix(AGENT_PREFIX))
        limit, notice = self.meter.exceeded(turn) or (None, "")
        settings = self._settings or chat.settings
        compaction: CompactionNeeded | None = None
        if chat.measures_tokens:
            compaction = await chat.check_tokens(notice, tools, model)
            limit, notice = self.meter.exceeded(turn) or (None, "")  # a summary counts for the limits
        allowance: ModelCallAllowance | None = None
        if self.meter.counts_tokens:
            limit, notice, allowance = self._allow(turn, limit, notice, model, has_tools=bool(tools))
            if allowance is None:
                self.record_end("cost_budget")  # not even a last answer can be paid
                return
        if self._output is not None:
            settings = self._output.settings(settings)
        if limit:
            if tools:  # offered still, so that the request begins as the ones before it, and no provider misses them
                choice = ToolChoice("none") if self._output is None else self._output.last_choice
                settings = structs.replace(settings, tool_choice=choice)
            logger.info("[%s] the run has come to a limit: %s", chat.id or "memory", limit)
        elif turn.output is not None and turn.output.stop_reason == "malformed_call":
            notice = "Your last tool call could not be read. Write it again, or answer without it."
        seconds = self.meter.seconds
        if seconds is not None and not limit:  # a last answer may take as long once more
            seconds = self.meter.seconds_left
        call = ModelCall(
            chat,
            model,
            tools,
            settings,
            notice,
            source=source,
            executor=executor,
            ended=limit or "",
            allowance=allowance,
            seconds=seconds,
            on_retry=None if self._events is None else self._emit,
        )
        if self._events is None:
            await call.run()
        else:
            self._events.start_answer()
            self._emit(RoundStarted(turn.rounds + 1, call.model, bool(limit), source.removeprefix(AGENT_PREFIX)))
            if compaction is not None:
                self._emit(compaction)
            await call.run(self._events.add_delta)
            if call.usage is not None:
                self._emit(RoundUsage(call.usage, chat.totals.usage))
        if call.ended:
            self.close_calls(f"no tool can be called any more in this turn ({call.ended})", call.ended)

    def _allow(
        self,
        turn: Turn,
        limit: EndReason | None,
        notice: str,
        model: str | ProviderClient | None,
        *,
        has_tools: bool,
    ) -> tuple[EndReason | None, str, ModelCallAllowance | None]:
        """What the next call may use. If the run cannot pay for it and a last answer after it, it is the last one."""
        chat, meter = self._chat, self.meter
        tokens = chat.tokens
        price = chat.price_call(model, tokens) if meter.limits_cost else None
        if has_tools and not limit:
            allowance = meter.allow(price, tokens, keeps_last_answer=True)
            if allowance is not None:
                return limit, notice, allowance
            limit, notice = "cost_budget", meter.limits.notice("cost_budget", turn)
        return limit, notice, meter.allow(price, tokens, keeps_last_answer=False)

    async def _run_calls(self, turn: Turn) -> EndReason | None:
        """Run what can be run and append the results; what they wait for if some do: a person, or a result from outside."""
        if not self._participants.needs_no_setup:
            await self._participants.open()
        over_limit = self._over_limit(turn) if self.meter.limits_calls else _NOTHING
        plan = await self._call_runner(turn).run(list(turn.open_calls.values()), over_limit)
        if plan.pending:
            self._emit(ApprovalNeeded(plan.pending_calls))
            return "approval"
        return "waiting" if plan.waiting else None

    def _call_runner(self, turn: Turn) -> ToolCallRunner:
        executor = self._participants.executor
        if self._output is not None:
            executor = self._output.executor(executor)
        runner = self._chat.call_runner(executor, turn.rounds, self._participants.source)
        runner.on_interrupt = self._on_interrupt
        if self._events is not None:
            self._events.round = turn.rounds
            runner.observer = self._events
        return runner

    def _over_limit(self, turn: Turn) -> Mapping[str, str]:
        """The calls of the last output that the limit does not allow any more, and why."""
        left = self.meter.calls_left
        if left is None:
            return _NOTHING
        allowed = max(0, left + len(turn.open_calls))  # they are counted already
        return dict.fromkeys(list(turn.open_calls)[allowed:], "the limit of tool calls is reached")


class ActiveTurn:
    """The running turn of a conversation: its task, how it ended, and whether `interrupt` was called."""

    __slots__ = ("finished", "is_interrupted", "output", "runner", "task")

    task: asyncio.Task[None]

    def __init__(self, runner: TurnRunner, output: OutputRequest[Any] | None = None) -> None:
        self.runner = runner
        self.output = output
        self.finished: LoopFinished | None = None
        self.is_interrupted = False

    @property
    def was_interrupted(self) -> bool:
        """Whether the task was cancelled before it could close the turn."""
        return self.task.cancelled() and self.is_interrupted

    async def wait(self) -> None:
        """Wait for the task and raise its error, if it has one."""
        if not (self.is_interrupted and self.task.cancelled()):
            await self.task


def _discard_event(_: LoopEvent) -> None:
    """There is no listener."""


def _effective_after(chat: Conversation, number: int) -> list[HistoryEntry]:
    """The effective entries after entry `number`, oldest first."""
    effective = chat.history.snapshot().effective
    index = len(effective)
    while index and effective[index - 1].sequence_number > number:
        index -= 1
    return effective.since(index)
