"""`TurnDriver`: plays one turn to its end, from wherever the log says it stands.

The whole of it is one loop: are there calls without results, run them; is the model to be asked, ask it; else the turn is over.
Each step appends what it did before the next one looks, so a driver that is killed anywhere is followed by another that goes on
from the log. What a call's standing means for going on:

    has a result in the log         nothing to do
    denied by a person              a result that says so
    started, and no result          `read` and `idempotent` tools run again, under the same key;
                                    of the others the model is told that the outcome is unknown
    needs approval, undecided       the turn is suspended, once everything else has run
    anything else                   it runs

An interruption is a cancellation. What was said is kept and marked, running tools are cancelled or awaited, every call gets a
result that says what became of it, and the turn is over: the history is as valid as after any other turn. An interruption
that finds nothing to mark leaves a note, so that the turn is over in the log too.

The fast path: models and tools that never wait are not made to. The driver gives way to others by itself, after each round if
somebody listens and every hundredth of a second if nobody does; and events nobody listens to are not made.

Whoever wants to look in between (an engine that runs each step by itself, on whatever machine) gives a number of `steps`: one
call of the model, or the calls of one output, is a step. The driver stops behind the last of them and leaves the turn as it is.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any, Literal, TypeAlias

from msgspec import structs

from antiphon.conversation.bounds import Bounds
from antiphon.conversation.conversation import Conversation
from antiphon.conversation.events import (
    AgentSwitched,
    ApprovalNeeded,
    EndReason,
    LoopEvent,
    ModelSwitched,
    RoundStarted,
    RoundUsage,
    TextDelta,
    ThinkingDelta,
    ToolCallFailed,
)
from antiphon.conversation.execution import CallBatch
from antiphon.conversation.parts_tracker import INTERRUPTED
from antiphon.conversation.stage import Stage
from antiphon.conversation.turn import OpenCall, Turn
from antiphon.history import DebugLogEntry, EntryMetadata, ModelInputEntry, Origin, ToolCallResultsEntry
from antiphon.parts import (
    Refusal,
    Text,
    Thinking,
    ToolCallRequest,
    ToolCallResult,
    ToolExecutionStatus,
)
from antiphon.tools.tool import Tool
from antiphon.wire.delta import PartDelta, PartStarted
from antiphon.wire.request import ToolChoice

logger = logging.getLogger(__name__)

OnInterrupt: TypeAlias = Literal["cancel", "await"]

_LONGEST_HOLD = 0.01

UNKNOWN_OUTCOME = (
    "Outcome unknown: this call was started and everything stopped before it returned. It may have run, in part or whole, and "
    "was not run again. Check what it did before you call it once more."
)
NOT_RUN = "This call was not run: "
CANCELLED = "This call was cancelled while it was running; part of its work may have been done, or may still go on."


class TurnDriver:
    """Plays a turn; `emit` hears what happens, unless nobody listens.

    `spent` is how many seconds the turn was played before: they count against its budget.
    """

    def __init__(
        self,
        stage: Stage,
        bounds: Bounds,
        emit: Callable[[LoopEvent], None] | None,
        on_interrupt: OnInterrupt = "cancel",
        *,
        steps: int | None = None,
        spent: float = 0.0,
    ) -> None:
        self._stage = stage
        self._chat = stage.chat
        self._bounds = bounds
        self._is_heard = emit is not None
        self._emit = emit or _to_nobody
        self._on_interrupt = on_interrupt
        self._gave_way = monotonic()
        self._started = self._gave_way - spent
        self._steps_left: float = math.inf if steps is None else steps
        self._known: dict[str, ToolCallResult] = {}  # results that are not in the log yet

    def begin(self, question: ModelInputEntry) -> None:
        """Append what is asked. Calls that still wait for something are closed first: the talk goes on without them."""
        self.close_calls("the conversation went on without it")
        self._chat.history.append(question)

    async def play(self) -> EndReason:
        """Go on until the turn is over or the steps are used, and say which it is."""
        self._retract_what_was_cut()
        while True:
            turn = self._chat.follow()
            if not turn.open_calls and not turn.needs_model:
                return turn.ended or "answered"  # type: ignore[return-value]
            if self._steps_left < 1:
                return "stepped"
            self._steps_left -= 1
            if not turn.open_calls:
                await self._ask(turn)
            elif not await self._run_calls(turn):
                return "approval"
            elif self._is_heard or monotonic() - self._gave_way > _LONGEST_HOLD:
                await asyncio.sleep(0)  # let others go on: who listens, who wants to interrupt, and everybody else
                self._gave_way = monotonic()

    def close_calls(self, why: str, ended: str = "") -> None:
        """Give every call without a result one that says why it has none."""
        open_calls = self._chat.turn.open_calls
        if open_calls:
            running = CANCELLED if ended else UNKNOWN_OUTCOME
            closed = [
                _annotated(state, self._known.get(call_id) or _closed(state, why, running))
                for call_id, state in open_calls.items()
            ]
            self._append_results(closed, ended)

    def interrupted(self) -> None:
        """Close what an interruption left open. What the model said was kept when its stream was closed."""
        self.close_calls("it was interrupted", INTERRUPTED)
        if self._chat.turn.needs_model:
            self.note_end(INTERRUPTED)

    def note_end(self, reason: str) -> None:
        """Write down that the turn is over, and why, where no other entry says so."""
        metadata = EntryMetadata(source=self._stage.source, extra={"ended": reason})
        self._chat.history.append(DebugLogEntry("turn", f"The turn ended: {reason}.", metadata=metadata))

    def _retract_what_was_cut(self) -> None:
        """An answer that the provider cut off is asked for again; the log keeps it, the model does not see it."""
        turn = self._chat.turn
        if turn.has_failed and turn.output is not None and not turn.ended:
            self._chat.history.rollback(
                turn.output.sequence_number - 1, "the answer was cut off; it is asked for again"
            )

    async def _ask(self, turn: Turn) -> None:
        """One call of the model: without tools, if the turn has come to a bound."""
        chat, stage = self._chat, self._stage
        if not stage.is_set and (switched := await stage.enter()):
            self._emit(AgentSwitched(*switched))
        bound = self._bounds.reached(turn, monotonic() - self._started)
        tools, settings, notice = stage.tools, chat.settings, ""
        if bound:
            notice = self._bounds.told(bound, turn)
            if tools:  # offered still, so that the request begins as the ones before it, and no provider misses them
                settings = structs.replace(settings, tool_choice=ToolChoice("none"))
            logger.info("[%s] the turn has come to a bound: %s", chat.id or "memory", bound)
        elif turn.output is not None and turn.output.stop_reason == "malformed_call":
            notice = "Your last tool call could not be read. Write it again, or answer without it."
        model = stage.model
        if self._is_heard:
            asked = chat.asked if model is None else model
            self._emit(RoundStarted(turn.rounds + 1, asked if isinstance(asked, str) else asked.name, bool(bound)))
        if chat.token_limit is not None:
            await chat.check_tokens()
        tell = _Telling(self._emit, chat).tell if self._is_heard else None
        await chat.inference(model, tools, settings, notice, stage.source, bound or "").told_to(tell)
        if self._is_heard:
            self._tell_usage()
        if bound:
            self.close_calls(f"no tool can be called any more in this turn ({bound})", bound)

    def _tell_usage(self) -> None:
        turn = self._chat.turn
        if turn.output and turn.output.metadata and turn.output.metadata.usage:
            self._emit(RoundUsage(turn.output.metadata.usage, turn.usage))

    async def _run_calls(self, turn: Turn) -> bool:
        """Run what can be run and append the results; False if some wait for a person."""
        stage, open_calls = self._stage, turn.open_calls
        if not stage.is_set:
            await stage.open()
        executor = stage.executor
        results: dict[str, ToolCallResult] = {}
        to_run: list[ToolCallRequest] = []
        waiting: list[ToolCallRequest] = []
        too_many = self._too_many(turn)
        for call_id, state in open_calls.items():
            call = state.call
            tool = executor.registry.get(call.tool_name)
            settled = _settled(state, tool)
            if settled is None and call_id in too_many:
                settled = skipped(call, f"the budget of {self._bounds.calls} tool calls is used")
            if settled is not None:
                results[call_id] = settled
                if settled is not state.result:
                    self._emit(ToolCallFailed(call, settled))
            elif state.decision is None and needs_approval(tool, call):
                waiting.append(call)
            else:
                to_run.append(call if state.decision is None else _as_decided(state))
        if to_run:
            size = len(open_calls) - len(results)
            emit = self._emit if self._is_heard else None
            batch = CallBatch(self._chat.history, executor, self._chat.key, size, turn.rounds, emit)
            self._known = batch.results
            await (batch.run(to_run) if self._on_interrupt == "cancel" else self._run_to_its_end(batch, to_run))
            results |= batch.results
        if waiting:
            self._emit(ApprovalNeeded(tuple(waiting)))
            return False
        self._append_results([_annotated(state, results[call_id]) for call_id, state in open_calls.items()])
        return True

    def _too_many(self, turn: Turn) -> Sequence[str]:
        """The calls of the last output that the budget does not allow any more."""
        if self._bounds.calls is None:
            return ()
        allowed = self._bounds.calls - (turn.calls - len(turn.open_calls))
        return list(turn.open_calls)[max(0, allowed) :]

    async def _run_to_its_end(self, batch: CallBatch, calls: Sequence[ToolCallRequest]) -> None:
        """Run calls that an interruption does not cancel: it comes when they are done."""
        running = asyncio.ensure_future(batch.run(calls))
        try:
            await asyncio.wait([running])
        except asyncio.CancelledError:
            await _awaited(running)
            raise
        await running

    def _append_results(self, results: Sequence[ToolCallResult], ended: str = "") -> None:
        source = self._stage.source
        metadata = EntryMetadata(source=source, extra={"ended": ended} if ended else None) if source or ended else None
        self._chat.history.append(ToolCallResultsEntry(tuple(results), metadata=metadata))


def _to_nobody(_: LoopEvent) -> None:
    """Hear an event and forget it."""


class _Telling:
    """Deltas of one answer as events."""

    def __init__(self, emit: Callable[[LoopEvent], None], chat: Conversation) -> None:
        self._emit = emit
        self._chat = chat
        self._before = chat.last_origin
        self._events: dict[int, type[TextDelta] | type[ThinkingDelta] | None] = {}

    def tell(self, delta: Any) -> None:
        kind = type(delta)
        if kind is PartDelta:
            event = self._events.get(delta.index)
            if event is not None:
                self._emit(event(delta.text))
        elif kind is PartStarted:
            if self._before is not None and self._before != self._chat.report.origin:
                self._emit(ModelSwitched(_name(self._before), _name(self._chat.report.origin)))
            self._before = None
            # Of several candidates the log keeps the first, and that is the one to tell of.
            event = None if delta.candidate else _EVENTS.get(type(delta.part))
            self._events[delta.index] = event
            if event is not None and delta.part.text:
                self._emit(event(delta.part.text))


_EVENTS: dict[type, type[TextDelta] | type[ThinkingDelta]] = {
    Text: TextDelta,
    Refusal: TextDelta,
    Thinking: ThinkingDelta,
}


def _name(origin: Origin) -> str:
    return "/".join(filter(None, (origin.provider, origin.model)))


def needs_approval(tool: Tool | None, call: ToolCallRequest) -> bool:
    """Whether a person must allow a call. Arguments that do not parse need no approval: they will be refused anyway."""
    if tool is None or tool.needs_approval is False:
        return False
    try:
        return tool.asks_approval(call.parse_arguments())
    except ValueError:
        return False


def skipped(call: ToolCallRequest, why: str) -> ToolCallResult:
    """The result of a call that was not run."""
    return ToolCallResult.of(call, f"{NOT_RUN}{why}.", status=ToolExecutionStatus.SKIPPED)


def _failed(call: ToolCallRequest, text: str) -> ToolCallResult:
    return ToolCallResult.of(call, text, status=ToolExecutionStatus.FAILED)


def _settled(state: OpenCall, tool: Tool | None) -> ToolCallResult | None:
    """The result of a call that is not to be run (again), if that is how it stands."""
    if state.result is not None:
        return state.result
    if state.decision is not None and state.decision.decision == "deny":
        why = f": {state.decision.reason}" if state.decision.reason else ""
        return skipped(state.call, f"a person denied it{why}")
    if state.started is not None and (tool is None or tool.effect == "once"):
        return _failed(state.call, UNKNOWN_OUTCOME)
    return None


async def _awaited(running: asyncio.Future[list[ToolCallResult]]) -> None:
    """Wait for running tools, until a second interruption: then they are cancelled after all."""
    try:
        await asyncio.wait([running])
    except asyncio.CancelledError:
        running.cancel()
        await asyncio.wait([running])
    if not running.cancelled() and (error := running.exception()) is not None:
        raise error


def _closed(state: OpenCall, why: str, running: str) -> ToolCallResult:
    """What is to be said of a call that is not waited for; `running` is that of one which was started."""
    if state.started is not None and state.result is None:
        return _failed(state.call, running)
    return _settled(state, None) or skipped(state.call, why)


def _as_decided(state: OpenCall) -> ToolCallRequest:
    """The call as it is to be run: with the arguments a person gave it, if one did."""
    if state.decision is not None and state.decision.arguments is not None:
        return structs.replace(state.call, arguments=state.decision.arguments)
    return state.call


def _annotated(state: OpenCall, result: ToolCallResult) -> ToolCallResult:
    """The result; of a call whose arguments a person changed, the model is told."""
    if state.decision is None or state.decision.arguments is None or result.status is ToolExecutionStatus.SKIPPED:
        return result
    note = Text(f"(A person changed the arguments of this call to {state.decision.arguments})\n")
    return structs.replace(result, content=(note, *result.content))
