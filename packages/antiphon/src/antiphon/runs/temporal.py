"""Turns on Temporal (extra `temporal`).

Temporal decides when a step runs, on which machine, and when a failed one is retried. A step is one step of `resume` under a
lease, so the guarantees are those of the log: a retried step does not repeat what the log contains, and of two attempts at one
step only the later claim can write. Temporal's history contains ids and versions; the messages are in the store.

    worker = temporal_worker(client, store, registry)      # registry: a RunRegistry, or one function (history, run) -> ToolLoop
    handle = await start_turn(client, store, "What does IELTS 7 need?", kind="research")
    end = await handle.result()
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from antiphon.conversation import Decision as CallDecision
from antiphon.conversation import RunResult, ToolLoop, Turn, decide
from antiphon.conversation.message import make_entry
from antiphon.conversation.turn import FAILED
from antiphon.errors import (
    AntiphonError,
    ConversationError,
    RunStateError,
    UnknownConversation,
    WriterConflict,
)
from antiphon.history import AgentHistory, HistoryStore, Lease, ModelOutputEntry, Run, ToolCallResultsEntry
from antiphon.history.lease import default_holder, hold_lease
from antiphon.parts import InputPart
from antiphon.providers.retry import may_retry
from antiphon.runs.client import close_open_calls, record_interrupted
from antiphon.runs.registry import LoopFactory, RunRegistry, find_kind
from antiphon.runs.run_execution import check_entries
from antiphon.runs.temporal_workflow import (
    ASK_MODEL,
    CALL_OFF,
    LOOK,
    RUN_CALLS,
    Decision,
    Step,
    TurnInput,
    TurnStatus,
    TurnWorkflow,
)
from antiphon.threads import STORES
from antiphon.wire.output import ProviderError

if TYPE_CHECKING:
    from temporalio.client import Client, WorkflowHandle
    from temporalio.exceptions import ApplicationError
    from temporalio.worker import Interceptor, Plugin, Worker, WorkerTuner

logger = logging.getLogger("antiphon.runs")

TASK_QUEUE = "antiphon"
_HEARTBEAT_SECONDS = 1.0
_DEFAULT_HOLDER = "temporal client"


class WorkerOptions(TypedDict, total=False):
    """Arguments of `temporalio.worker.Worker` that are passed on. Others are accepted too."""

    workflows: Sequence[type]
    activities: Sequence[Callable[..., Any]]
    interceptors: Sequence[Interceptor]
    plugins: Sequence[Plugin]
    identity: str | None
    build_id: str | None
    tuner: WorkerTuner | None
    max_cached_workflows: int
    max_concurrent_workflow_tasks: int | None
    max_concurrent_activities: int | None
    max_activities_per_second: float | None
    max_heartbeat_throttle_interval: timedelta
    sticky_queue_schedule_to_start_timeout: timedelta
    graceful_shutdown_timeout: timedelta
    debug_mode: bool


def temporal_worker(
    client: Client,
    store: HistoryStore,
    build: RunRegistry | LoopFactory,
    *,
    task_queue: str = TASK_QUEUE,
    **options: Unpack[WorkerOptions],
) -> Worker:
    """A Temporal worker that runs turns of `store`. `options` are passed to `temporalio.worker.Worker`.

    When it is stopped, running steps have `graceful_shutdown_timeout` to finish; the rest is left to other workers.
    """
    from temporalio.worker import Worker

    # Cancellation arrives with a heartbeat. A workflow is first offered to its last worker, which may have been killed.
    options.setdefault("max_heartbeat_throttle_interval", timedelta(seconds=_HEARTBEAT_SECONDS))
    options.setdefault("sticky_queue_schedule_to_start_timeout", timedelta(seconds=2))
    options.setdefault("graceful_shutdown_timeout", timedelta(seconds=10))
    options["workflows"] = [TurnWorkflow, *options.get("workflows", ())]
    options["activities"] = [*turn_activities(store, build), *options.get("activities", ())]
    return Worker(client, task_queue=task_queue, **options)


def turn_activities(store: HistoryStore, build: RunRegistry | LoopFactory) -> Sequence[Callable[..., Any]]:
    """The steps of a turn as activities, for your own worker or workflow."""
    from temporalio import activity

    turns = _Activities(store, build)
    steps = {LOOK: turns.inspect, ASK_MODEL: turns.step, RUN_CALLS: turns.step, CALL_OFF: turns.cancel}

    def define(name: str) -> Callable[..., Any]:
        @activity.defn(name=name)
        async def run_step(step: Step) -> TurnStatus:
            return await steps[name](step)

        run_step.__name__ = name
        return run_step

    return [define(name) for name in steps]


async def start_turn(
    client: Client,
    store: HistoryStore,
    *content: InputPart | str,
    conversation: str | None = None,
    kind: str = "",
    options: Mapping[str, Any] | None = None,
    title: str = "",
    task_queue: str = TASK_QUEUE,
    lease_seconds: float = 15.0,
    step_seconds: float = 3600.0,
    max_attempts: int = 25,
    steps_per_run: int = 200,
    code: int = 0,
    decisions: Sequence[Decision] = (),
) -> WorkflowHandle[TurnWorkflow, TurnStatus]:
    """Start a turn with a message, in a new conversation or an existing one. Without content, continue the turn in the log.

    The other arguments are fields of `TurnInput`. Raises `RunStateError` if the conversation has a running turn.
    """
    from temporalio.common import WorkflowIDConflictPolicy

    if conversation is not None:
        conversation = (await STORES.run(store.info, conversation)).id
        if content and await _is_running(client, conversation):
            raise RunStateError(
                f"conversation {conversation} has an unfinished turn on Temporal; wait for it or cancel it"
            )
    turn = await STORES.run(_prepare_conversation, store, content, conversation, title)
    standing = TurnStatus("model", version=turn.version) if content else TurnStatus()
    return await client.start_workflow(
        TurnWorkflow.run,
        TurnInput(
            conversation=turn.id,
            kind=kind,
            options=dict(options or {}),
            code=code,
            lease_seconds=lease_seconds,
            step_seconds=step_seconds,
            max_attempts=max_attempts,
            steps_per_run=steps_per_run,
            standing=standing,
            decisions=list(decisions),
        ),
        id=workflow_id(turn.id),
        task_queue=task_queue,
        id_conflict_policy=WorkflowIDConflictPolicy.FAIL if content else WorkflowIDConflictPolicy.USE_EXISTING,
    )


def turn_handle(client: Client, conversation: str) -> WorkflowHandle[TurnWorkflow, TurnStatus]:
    """The handle of a conversation's turn: wait for it, signal it, query its status."""
    return client.get_workflow_handle_for(TurnWorkflow.run, workflow_id(conversation))


def workflow_id(conversation: str) -> str:
    """The workflow id of a conversation; Temporal runs only one workflow with an id."""
    return f"antiphon-{conversation}"


def _prepare_conversation(
    store: HistoryStore, content: tuple[InputPart | str, ...], conversation: str | None, title: str
) -> AgentHistory:
    if conversation is None and not content:
        raise RunStateError("nothing to run: give a message, or a conversation to continue")
    question = make_entry("user", content) if content else None
    if conversation is not None:
        if any(not run.is_over for run in store.runs.list(conversation=conversation, limit=1)):
            raise RunStateError(
                f"conversation {conversation} has an unfinished run for `antiphon worker`; cancel it first"
            )
        if question is not None:
            close_open_calls(store, conversation, _DEFAULT_HOLDER)
    history = store.create(title) if conversation is None else store.open(conversation)
    if question is not None:
        history.append(question)
    return history


async def _is_running(client: Client, conversation: str) -> bool:
    from temporalio.client import WorkflowExecutionStatus
    from temporalio.service import RPCError, RPCStatusCode

    try:
        known = await client.get_workflow_handle(workflow_id(conversation)).describe()
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return False
        raise
    return known.status is WorkflowExecutionStatus.RUNNING


class _Activities:
    """The steps, each under its own lease."""

    def __init__(self, store: HistoryStore, build: RunRegistry | LoopFactory) -> None:
        self._store = store
        self._build = build

    async def inspect(self, step: Step) -> TurnStatus:
        """The status of the turn, without running anything."""
        return await self._under_lease(step, lambda history, loops: self._run_steps(step, history, loops, steps=0))

    async def step(self, step: Step) -> TurnStatus:
        """One step of the turn, unless the log already has it."""
        return await self._under_lease(step, lambda history, loops: self._run_steps(step, history, loops, steps=1))

    async def cancel(self, step: Step) -> TurnStatus:
        """End the turn, unless it is over."""

        async def work(history: AgentHistory, _: list[ToolLoop]) -> TurnStatus:
            record_interrupted(history)
            turn = Turn.of(history.snapshot())
            return TurnStatus("over", turn.ended or "answered", history.version, turn.rounds)

        return await self._under_lease(step, work)

    async def _under_lease(
        self, step: Step, work: Callable[[AgentHistory, list[ToolLoop]], Coroutine[Any, Any, TurnStatus]]
    ) -> TurnStatus:
        """Run `work` under the lease, with heartbeats, and turn errors into failures that Temporal retries or not."""
        from temporalio import activity
        from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

        loops: list[ToolLoop] = []

        async def work_with_heartbeat(history: AgentHistory, _: Lease) -> TurnStatus:
            beating = asyncio.ensure_future(_send_heartbeats(history, min(_HEARTBEAT_SECONDS, step.lease_seconds / 5)))
            try:
                return await work(history, loops)
            finally:
                beating.cancel()

        async def interrupt() -> bool:
            return _cancel_requested() and bool(loops) and await loops[0].interrupt()

        benign = ApplicationErrorCategory.BENIGN
        try:
            info = activity.info()
            holder = f"{info.workflow_id} on {default_holder()}, attempt {info.attempt}"
            return await hold_lease(
                self._store,
                step.conversation,
                work_with_heartbeat,
                holder=holder,
                seconds=step.lease_seconds,
                on_cancel=interrupt,
            )
        except asyncio.CancelledError:
            if _cancel_requested():
                raise
            raise ApplicationError("left for another worker", type="Left", category=benign) from None
        except WriterConflict as error:
            raise ApplicationError(str(error), type=type(error).__name__, category=benign) from None
        except AntiphonError as error:
            is_permanent = isinstance(error, UnknownConversation)
            raise ApplicationError(str(error), type=type(error).__name__, non_retryable=is_permanent) from None

    async def _run_steps(self, step: Step, history: AgentHistory, loops: list[ToolLoop], steps: int) -> TurnStatus:
        run = _run(step)
        kind = find_kind(self._build, run)
        check_entries(history)
        is_done = _is_done(history, step.standing.version)
        async with kind.loop(history, run) as loop:
            loops.append(loop)
            note = "" if is_done else _record_decisions(loop.chat.history, step.decisions)
            finished = await loop.run(steps=0 if is_done else steps, check=False)
            if finished.error is not None:
                raise _failure(finished.error)
            return _status(loop, finished, note)


def _run(step: Step) -> Run:
    """The turn as a run, for the function of its kind."""
    from temporalio import activity

    now = datetime.now(UTC)
    return Run(
        id=activity.info().workflow_id or "",
        conversation=step.conversation,
        kind=step.kind,
        code=step.code,
        options=step.options,
        created=now,
        updated=now,
        due=now,
        attempts=activity.info().attempt,
    )


def _is_done(history: AgentHistory, version: int) -> bool:
    """Whether the log has the step that started at `version`: an answer that was not cut off, or results."""
    return any(
        isinstance(entry, ToolCallResultsEntry) or (isinstance(entry, ModelOutputEntry) and entry.stop_reason != FAILED)
        for entry in history.entries[version:]
    )


def _record_decisions(history: AgentHistory, decisions: Sequence[Decision]) -> str:
    """Record decisions; returns the error of one that cannot be recorded."""
    note = ""
    for given in decisions:
        arguments = (given.arguments or {}) if given.decision == "edit" else None
        try:
            decide(
                history,
                CallDecision(
                    tool_call_id=given.call,
                    decision=given.decision,  # type: ignore[arg-type]  # `decide` checks it
                    reason=given.reason,
                    arguments=arguments,
                ),
            )
        except ConversationError as error:
            note = str(error)
            logger.warning("a decision was not recorded: %s", error)
    return note


def _status(loop: ToolLoop, finished: RunResult, note: str) -> TurnStatus:
    state, reason, pending = "over", finished.reason, []
    if finished.reason in ("approval", "waiting"):  # of the latter, a signal says that the result is there
        state, pending = "approval", [call.tool_call_id for call in loop.pending]
    elif finished.reason == "stepped":
        state = "calls" if loop.chat.turn.open_calls else "model"
    return TurnStatus(
        state,
        reason if state == "over" else "",
        loop.chat.history.version,
        finished.rounds,
        pending,
        note,
    )


def _failure(error: ProviderError) -> ApplicationError:
    """A failed model call: retried when the provider asks for it, or never if a retry cannot help."""
    from temporalio.exceptions import ApplicationError

    return ApplicationError(
        error.message,
        type=error.kind,
        non_retryable=not may_retry(error),
        next_retry_delay=timedelta(seconds=error.retry_after) if error.retry_after is not None else None,
    )


def _cancel_requested() -> bool:
    """Whether the workflow cancelled the activity, as opposed to a worker that stops or a timeout."""
    from temporalio import activity

    details = activity.cancellation_details()
    return details is not None and details.cancel_requested


async def _send_heartbeats(history: AgentHistory, seconds: float) -> None:
    from temporalio import activity

    while True:
        activity.heartbeat(history.version)
        await asyncio.sleep(seconds)
