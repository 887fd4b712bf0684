"""`ToolCallRunner`: the only code that starts a model's call. Loop, graph, durable runs and `execute_tool_calls` all use it.

It reads the state of each call from the log and decides from that alone, so a process that resumes a turn does what the first
one would have done:

    has a result                    nothing to do
    denied by a person              a result with the denial
    started, its result comes later it waits for that (`Settled.later`)
    started, and no result          `read` and `idempotent` tools run again, under the same key; others are asked about
                                    (`reconcile`), and without an answer get a result: the outcome is unknown
    refused by the caller           a result with the reason (a limit is reached)
    needs approval, undecided       it waits, once everything else has run
    anything else                   it runs

A call needs approval if the log has an `ApprovalRequestedEntry` for it, or else if the executor's policy requires it; then the
request is written before anything runs. Once it is in the log it holds in every process, whatever tools that one has (law L11).

Before a tool runs, a `ToolCallStartedEntry` is in the log: if nothing follows it, the call may have half-run. When one of
several calls is done, a `ToolCallFinishedEntry` keeps its result until all of them become the one `ToolCallResultsEntry` that a
model sees. A single call needs no such entry: its results entry comes at once.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Collection, Coroutine, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

import msgspec
from msgspec import Struct, structs

from antiphon.errors import ToolError
from antiphon.history import (
    AgentHistory,
    ApprovalRequestedEntry,
    DebugLogEntry,
    EntryMetadata,
    HumanDecisionEntry,
    ToolCallFinishedEntry,
    ToolCallResultsEntry,
    ToolCallStartedEntry,
)
from antiphon.parts import Text, ToolCallRequest, ToolCallResult, ToolExecutionStatus
from antiphon.tools.executor import ToolExecutor
from antiphon.tools.hooks import CallObserver, CallOutcome, run_after_tool
from antiphon.tools.results import is_plain_text, to_result
from antiphon.tools.settling import Settled, ask_outcome
from antiphon.tools.tool import Tool

if TYPE_CHECKING:
    from antiphon.providers.call import ProviderClient

AWAITS = "awaits"
"""Where the metadata of a note have the id of a call whose result comes from outside."""

OnInterrupt: TypeAlias = Literal["cancel", "await"]

UNKNOWN_OUTCOME = (
    "Outcome unknown: this call was started and everything stopped before it returned. It may have run, in part or whole, and "
    "was not run again. Check what it did before you call it once more."
)
NOT_RUN = "This call was not run: "
NOT_COME = "This call was started, and its result had not come from outside when the conversation went on without it."
CANCELLED = "This call was cancelled while it was running; part of its work may have been done, or may still go on."

_NO_REFUSALS: Mapping[str, str] = {}
_NOTHING_HASHED = hashlib.sha256()
"""Copied, which is quicker than a new one."""


class ToolCallState(Struct, eq=False):
    """A call and its state in the log."""

    call: ToolCallRequest
    approval_requested: bool = False
    started: ToolCallStartedEntry | None = None
    decision: HumanDecisionEntry | None = None
    result: ToolCallResult | None = None
    is_answered: bool = False
    """Whether the result is one that a model sees: it is in a results entry."""
    seconds: float | None = None
    is_later: bool = False
    """Whether its result comes from outside."""
    is_cached: bool = False
    """Whether the result is that of an equal call."""
    traceback: str = ""

    @property
    def needs_approval(self) -> bool:
        """Whether the call waits for a person, according to the log."""
        return self.approval_requested and self.decision is None and self.result is None


class ToolCallPlan(Struct):
    """What to do with the calls of an output."""

    settled: list[tuple[ToolCallState, ToolCallResult]]
    """Calls that do not run (again), with their results."""
    to_run: list[ToolCallState]
    pending: list[ToolCallState]
    """Calls that wait for a person."""
    waiting: list[ToolCallState] = []
    """Calls that wait for a result from outside."""
    interrupted: list[ToolCallState] = []
    """Calls that a crash interrupted, and whose tool can say what became of them."""

    @property
    def pending_calls(self) -> tuple[ToolCallRequest, ...]:
        return tuple([state.call for state in self.pending])


class ToolCallRunObserver(CallObserver, Protocol):
    """A `CallObserver` that also gets the calls which were answered without running."""

    def settled(self, call: ToolCallRequest, result: ToolCallResult) -> None:
        """The call was not run; its result has the reason."""


class ToolCallRunner(Struct, eq=False):
    """Runs the calls of one output of a conversation.

    `conversation_key` keeps its idempotency keys apart from those of all other conversations; `source` is the agent that made the
    calls. `on_interrupt` decides whether a cancellation cancels running tools or waits for them.
    """

    history: AgentHistory
    executor: ToolExecutor
    conversation_key: str
    round: int = 0
    source: str = ""
    model: str | ProviderClient | None = None
    provider: ProviderClient | None = None
    observer: ToolCallRunObserver | None = None
    on_interrupt: OnInterrupt = "cancel"
    _remaining: int = 0
    _has_later: bool = False
    _running: dict[str, ToolCallState] = {}

    def plan(self, calls: Collection[ToolCallState], refusals: Mapping[str, str] = _NO_REFUSALS) -> ToolCallPlan:
        """What to do with the calls; changes nothing. `refusals` gives a reason for each call that must not run."""
        plan = ToolCallPlan([], [], [])
        executor = self.executor
        for state in calls:
            call, decision = state.call, state.decision
            tool = executor.registry.get(call.tool_name)
            if state.is_later and state.result is None and call.tool_call_id not in refusals:
                plan.waiting.append(state)
                continue
            if state.started is not None and state.result is None and self._can_be_asked(state, tool):
                plan.interrupted.append(state)
                continue
            is_new = decision is None and state.started is None and state.result is None
            result = None if is_new else final_result(state, tool)
            if refusals and result is None and call.tool_call_id in refusals:
                result = closing_result(state, refusals[call.tool_call_id], UNKNOWN_OUTCOME)
            if result is not None:
                plan.settled.append((state, result))
            elif decision is None and (state.approval_requested or executor.needs_approval(tool, call)):
                plan.pending.append(state)
            else:
                plan.to_run.append(state)
        return plan

    async def run(self, calls: Collection[ToolCallState], refusals: Mapping[str, str] = _NO_REFUSALS) -> ToolCallPlan:
        """Run what can run, and append the results of all calls unless some wait for a person.

        Cancelled, it leaves the results that came in by then in the states of their calls.
        """
        plan = self.plan(calls, refusals)
        if plan.waiting:
            await self._take_results(plan)
        if plan.interrupted:
            await self._ask_outcomes(plan)
        if plan.pending and (unrecorded := [state for state in plan.pending if not state.approval_requested]):
            request_approval(self.history, [state.call.tool_call_id for state in unrecorded], self.source)
            for state in unrecorded:
                state.approval_requested = True
        for state, result in plan.settled:
            if self.observer is not None and result is not state.result:
                self.observer.settled(state.call, result)
            state.result = result
        if plan.to_run:
            self._remaining = len(plan.to_run) + len(plan.pending) + len(plan.waiting)
            requests: list[ToolCallRequest] = []
            approved: list[str] = []
            self._running = {}
            for state in plan.to_run:
                self._running[state.call.tool_call_id] = state
                if state.decision is None:
                    requests.append(state.call)
                else:
                    requests.append(apply_edit(state))
                    approved.append(state.call.tool_call_id)
            running = self.executor.execute(
                requests,
                observer=self,
                conversation_id=self.conversation_key,
                round=self.round,
                model=self.model,
                provider=self.provider,
                history=self.history,
                approved=approved,
                keys=self._key_of,
            )
            results = await (running if self.on_interrupt == "cancel" else _run_to_the_end(running))
            if len(results) > len(self._running):  # two calls of one id: `finished` kept the result of one
                for state, result in zip(plan.to_run, results, strict=True):
                    state.result = result
            if self._has_later:
                plan.waiting += [state for state in plan.to_run if state.is_later and state.result is None]
            if plan.waiting:  # one may have come while its tool was still running
                await self._take_results(plan)
        if not plan.pending and not plan.waiting:
            append_results(self.history, calls, self.source)
        return plan

    def _key_of(self, call: ToolCallRequest) -> str:
        """The idempotency key of a call: the one it was started with, if it was."""
        started = self._running[call.tool_call_id].started
        if started is not None and self._is_own(started):
            return started.idempotency_key
        return f"{self.conversation_key}:{call.tool_call_id}"

    def _is_own(self, started: ToolCallStartedEntry) -> bool:
        """Whether a call was started in this conversation, and not in the one it was forked from."""
        return started.idempotency_key.startswith(f"{self.conversation_key}:")

    def _can_be_asked(self, state: ToolCallState, tool: Tool | None) -> bool:
        return (
            tool is not None
            and tool.reconcile is not None
            and state.started is not None
            and self._is_own(state.started)
            and (state.decision is None or state.decision.decision != "deny")
        )

    async def _ask_outcomes(self, plan: ToolCallPlan) -> None:
        """Ask what became of the calls that a crash interrupted: they have a result, run again, wait, or stay unknown."""
        outcomes = await asyncio.gather(*(self._ask_outcome(state) for state in plan.interrupted))
        for state, settled in zip(plan.interrupted, outcomes, strict=True):
            if settled.outcome == "done":
                await self._record(state, to_result(state.call, settled.value), "reconciled")
            elif settled.outcome == "not_done":
                plan.to_run.append(state)
            elif settled.outcome == "later":
                self.waits(state.call, state)
                plan.waiting.append(state)
            else:
                plan.settled.append((state, _failed(state.call, UNKNOWN_OUTCOME)))

    async def _ask_outcome(self, state: ToolCallState) -> Settled:
        started, tool = state.started, self.executor.registry.get(state.call.tool_name)
        assert started is not None, "it was planned as interrupted"
        assert tool is not None, "it was planned as interrupted"
        assert tool.reconcile is not None, "it was planned as interrupted"
        if started.timestamp is not None:  # a request of the process that died may still be on its way
            age = (datetime.now(UTC) - started.timestamp).total_seconds()
            await asyncio.sleep(min(max(0.0, tool.settle_seconds - age), tool.settle_seconds))
        call = apply_edit(state)
        if started.arguments is not None:
            call = structs.replace(call, arguments=started.arguments)
        executor = self.executor
        scope = executor.scope(self.conversation_key, self.round, self.model, self.provider, self.history)
        context = structs.replace(scope, tool_call_id=call.tool_call_id, idempotency_key=started.idempotency_key)
        return await ask_outcome(tool.reconcile, call, context, tool.timeout, executor.grace)

    async def _take_results(self, plan: ToolCallPlan) -> None:
        """Take the results that came from outside."""
        items = {item.key: item for item in self.history.inbox.items() if item.kind == "result"}
        for state in [state for state in plan.waiting if state.call.tool_call_id in items]:
            item = items[state.call.tool_call_id]
            sent = msgspec.json.decode(item.body, type=ToolCallResult)
            await self._record(state, ToolCallResult.of(state.call, *sent.content, status=sent.status), "settled")
            self.history.inbox.remove([item.key])
            plan.waiting.remove(state)

    async def _record(self, state: ToolCallState, result: ToolCallResult, how: str) -> None:
        """Write down the result of a call that did not come from its tool here, as the hooks leave it."""
        try:
            result = await run_after_tool(self.executor.hooks, state.call, result)
        except ToolError as error:
            result = _failed(state.call, str(error))
        self.history.append(ToolCallFinishedEntry(result, metadata=EntryMetadata(extra={how: True})))
        state.result = result
        if self.observer is not None:
            self.observer.settled(state.call, result)

    # The observer of the executor.

    def started(self, call: ToolCallRequest, tool: Tool | None, idempotency_key: str) -> None:
        """Write down that a tool is about to run, before it does, and with which arguments."""
        if tool is not None:
            state = self._running[call.tool_call_id]
            asked = (state.call if state.decision is None else apply_edit(state)).arguments
            digest = _NOTHING_HASHED.copy()
            digest.update(call.arguments.encode("utf-8", "surrogatepass"))
            metadata = EntryMetadata(argument_digest=f"sha256:{digest.hexdigest()}")
            self.history.append(
                ToolCallStartedEntry(
                    call.tool_name,
                    call.tool_call_id,
                    idempotency_key,
                    arguments=None if call.arguments == asked else call.arguments,
                    metadata=metadata,
                ),
                is_checked=call.arguments is asked and type(call.tool_call_id) is str,
            )
        if self.observer is not None:
            self.observer.started(call, tool, idempotency_key)

    def progress(self, call: ToolCallRequest, message: str, fraction: float | None) -> None:
        """Pass on how far a tool is."""
        if self.observer is not None:
            self.observer.progress(call, message, fraction)

    def finished(self, call: ToolCallRequest, result: ToolCallResult, outcome: CallOutcome) -> None:
        """Keep a result; durably, if others are still to come."""
        state = self._running[call.tool_call_id]
        state.result, state.seconds, state.traceback = result, outcome.seconds, outcome.traceback
        state.is_cached = outcome.is_cached
        self._remaining -= 1
        if self._remaining > 0:
            extra: dict[str, Any] = {"traceback": outcome.traceback} if outcome.traceback else {}
            if outcome.is_cached:
                extra["cached"] = True
            metadata = EntryMetadata(duration=outcome.seconds, extra=extra or None)
            self.history.append(ToolCallFinishedEntry(result, metadata=metadata))
        if self.observer is not None:
            self.observer.finished(call, result, outcome)

    def waits(self, call: ToolCallRequest, state: ToolCallState | None = None) -> None:
        """Write down that the result of a call comes from outside."""
        state = state or self._running[call.tool_call_id]
        state.is_later = self._has_later = True
        extra = {AWAITS: call.tool_call_id}
        text = f"{call.tool_name} ({call.tool_call_id}) waits for its result from outside."
        self.history.append(DebugLogEntry("tool call", text, metadata=EntryMetadata(extra=extra)))
        if self.observer is not None:
            self.observer.waits(call)


def request_approval(history: AgentHistory, tool_call_ids: Sequence[str], source: str = "") -> None:
    """Write down that calls run only after a person allowed them."""
    metadata = EntryMetadata(source=source) if source else None
    history.append(ApprovalRequestedEntry(tuple(tool_call_ids), metadata=metadata))


def append_results(history: AgentHistory, calls: Collection[ToolCallState], source: str = "", ended: str = "") -> None:
    """Append the results of calls that all have one; `ended` is why the turn is over with them, if it is."""
    results: list[ToolCallResult] = []
    is_plain = True
    for state in calls:
        if (result := state.result) is not None:
            results.append(result if state.decision is None else note_edit(state, result))
            is_plain = is_plain and is_plain_text(results[-1])
    entry = ToolCallResultsEntry(tuple(results), metadata=_results_metadata(calls, source, ended))
    history.append(entry, is_checked=is_plain)


def _results_metadata(calls: Collection[ToolCallState], source: str, ended: str) -> EntryMetadata | None:
    """How long the calls took (all together: the longest), which results were cached, and where they failed."""
    longest: float | None = None
    extra: dict[str, Any] = {"ended": ended} if ended else {}
    for state in calls:
        if (seconds := state.seconds) is not None:
            seconds = int(seconds * 1e6) / 1e6
            if longest is None or seconds > longest:
                longest = seconds
            if len(calls) > 1:
                extra.setdefault("durations", {})[state.call.tool_call_id] = seconds
        if state.is_cached:
            extra.setdefault("cached", []).append(state.call.tool_call_id)
        if state.traceback:
            extra.setdefault("tracebacks", {})[state.call.tool_call_id] = state.traceback
    if not (source or extra or longest is not None):
        return None
    return EntryMetadata(source=source, duration=longest, extra=extra or None)


def close_calls(
    history: AgentHistory, calls: Collection[ToolCallState], reason: str, source: str = "", ended: str = ""
) -> None:
    """Give calls that will not run a result with the reason."""
    for state in calls:
        state.result = closing_result(state, reason, CANCELLED if ended else UNKNOWN_OUTCOME)
    append_results(history, calls, source, ended)


def final_result(state: ToolCallState, tool: Tool | None) -> ToolCallResult | None:
    """The result of a call that must not run (again), or None if it may run."""
    if state.result is not None:
        return state.result
    if state.decision is not None and state.decision.decision == "deny":
        denied = "a person denied it" + (f": {state.decision.reason}" if state.decision.reason else "")
        if state.started is not None:  # where it needed no approval, before everything stopped
            return _failed(state.call, f"{UNKNOWN_OUTCOME} Now {denied}.")
        return skipped_result(state.call, denied)
    if state.started is not None and (tool is None or tool.effect == "once"):
        return _failed(state.call, UNKNOWN_OUTCOME)
    return None


def closing_result(state: ToolCallState, reason: str, running: str) -> ToolCallResult:
    """The result of a call that is not waited for; `running` is the text for one that was started."""
    if state.started is not None and state.result is None:
        return _failed(state.call, NOT_COME if state.is_later else running)
    return final_result(state, None) or skipped_result(state.call, reason)


def skipped_result(call: ToolCallRequest, reason: str) -> ToolCallResult:
    """The result of a call that was not run."""
    return ToolCallResult.of(call, f"{NOT_RUN}{reason}.", status=ToolExecutionStatus.SKIPPED)


def apply_edit(state: ToolCallState) -> ToolCallRequest:
    """The call with the arguments that a person gave it, if one did."""
    if state.decision is not None and state.decision.arguments is not None:
        return structs.replace(state.call, arguments=state.decision.arguments)
    return state.call


def note_edit(state: ToolCallState, result: ToolCallResult) -> ToolCallResult:
    """The result; if a person changed the arguments of the call, the model reads that."""
    if state.decision is None or state.decision.arguments is None or result.status is ToolExecutionStatus.SKIPPED:
        return result
    note = Text(f"(A person changed the arguments of this call to {state.decision.arguments})\n")
    return structs.replace(result, content=(note, *result.content))


def _failed(call: ToolCallRequest, text: str) -> ToolCallResult:
    return ToolCallResult.of(call, text, status=ToolExecutionStatus.FAILED)


async def _run_to_the_end(calls: Coroutine[Any, Any, list[ToolCallResult]]) -> list[ToolCallResult]:
    """Run calls that an interruption does not cancel: it takes effect when they are done, a second one at once."""
    running = asyncio.ensure_future(calls)
    try:
        await asyncio.wait([running])
    except asyncio.CancelledError:
        await _wait_for_tools(running)
        raise
    return await running


async def _wait_for_tools(running: asyncio.Future[list[ToolCallResult]]) -> None:
    """Wait for running tools, until a second interruption: then they are cancelled after all."""
    try:
        await asyncio.wait([running])
    except asyncio.CancelledError:
        running.cancel()
        await asyncio.wait([running])
    if not running.cancelled() and (error := running.exception()) is not None:
        raise error
